//! The contract of engines, kept by this one.

use millpond_engine_aot::{Aot, Bounds, Options, Toolchain};

fn run(options: &Options) {
    match Toolchain::find() {
        Ok(toolchain) => contract::conformance::engine::run_all(
            &Aot::new(toolchain, options).expect("handlers can be installed"),
        ),
        Err(reason) => println!("skipped: {reason}"),
    }
}

#[test]
fn an_engine_keeps_its_contract() {
    run(&Options::default());
}

#[test]
fn an_engine_that_checks_keeps_it_too() {
    run(&Options {
        bounds: Bounds::Software,
        ..Options::default()
    });
}

/// No page is put back: whatever was written is given back to the host.
#[test]
fn an_engine_that_keeps_nothing_resident_keeps_it_too() {
    run(&Options {
        keep_resident: 0,
        ..Options::default()
    });
}
