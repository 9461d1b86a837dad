//! The contract of engines, kept by this one where accesses are checked. (With `mask`, loads from outside of memory do not trap.)

use millpond_engine_rwasm::{Options, Rwasm, Toolchain};

#[test]
fn an_engine_keeps_its_contract() {
    match Toolchain::find() {
        Ok(toolchain) => contract::conformance::engine::run_all(
            &Rwasm::new(toolchain, &Options::default()).expect("handlers can be installed"),
        ),
        Err(reason) => println!("skipped: {reason}"),
    }
}
