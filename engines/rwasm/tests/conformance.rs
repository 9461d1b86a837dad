//! The contract of engines, kept by this one where accesses are checked. (With `mask`, loads from outside of memory do not trap.)

use millpond_engine_rwasm::{Options, Rwasm, Toolchain};

#[test]
#[ignore = "one case of the suite, each_kind_of_state_is_fresh, has a global of SIMD, which this engine refuses"]
fn an_engine_keeps_its_contract() {
    match Toolchain::find() {
        Ok(toolchain) => contract::conformance::engine::run_all(
            &Rwasm::new(toolchain, &Options::default()).expect("handlers can be installed"),
        ),
        Err(reason) => println!("skipped: {reason}"),
    }
}
