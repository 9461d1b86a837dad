//! The contract of engines, kept by this one.

use millpond_engine_aot::{Aot, Bounds, Options, Toolchain};

fn run(bounds: Bounds) {
    match Toolchain::find() {
        Ok(toolchain) => {
            let options = Options {
                bounds,
                ..Options::default()
            };
            contract::conformance::engine::run_all(
                &Aot::new(toolchain, &options).expect("handlers can be installed"),
            );
        }
        Err(reason) => println!("skipped: {reason}"),
    }
}

#[test]
fn an_engine_keeps_its_contract() {
    run(Bounds::Guard);
}

#[test]
fn an_engine_that_checks_keeps_it_too() {
    run(Bounds::Software);
}
