//! The contract of engines, kept by this one.

use millpond_engine_wasmtime::{Options, Wasmtime};

#[test]
fn an_engine_keeps_its_contract() {
    let engine = Wasmtime::new(&Options::default()).expect("the pool can be reserved");
    contract::conformance::engine::run_all(&engine);
}
