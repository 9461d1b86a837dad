//! The contract of engines, kept by this one where accesses are checked. (With `mask`, loads from outside of memory do not trap.)

use contract::conformance::engine::CASES;
use millpond_engine_rwasm::{Options, Rwasm, Toolchain};

/// What needs SIMD, which this engine refuses by name.
const OF_VECTORS: &str = "nans_in_vectors_are_canonical";

#[test]
fn an_engine_keeps_its_contract() {
    let toolchain = match Toolchain::find() {
        Ok(toolchain) => toolchain,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let engine = Rwasm::new(toolchain, &Options::default()).expect("handlers can be installed");
    assert!(CASES.iter().any(|(name, _)| *name == OF_VECTORS));
    for (name, case) in CASES.iter().filter(|(name, _)| *name != OF_VECTORS) {
        println!("engine rwasm: {name}");
        case(&engine);
    }
}
