//! The contract of engines, kept by this one.

use millpond_engine_rwasm::{Bounds, Options, Rwasm, Toolchain};

fn run(bounds: Bounds) {
    let options = Options {
        bounds,
        ..Options::default()
    };
    match Toolchain::find() {
        Ok(toolchain) => contract::conformance::engine::run_all(
            &Rwasm::new(toolchain, &options).expect("handlers can be installed"),
        ),
        Err(reason) => println!("skipped: {reason}"),
    }
}

#[test]
fn an_engine_that_checks_keeps_its_contract() {
    run(Bounds::Checked);
}

#[test]
fn an_engine_that_masks_keeps_it_too() {
    run(Bounds::Mask);
}
