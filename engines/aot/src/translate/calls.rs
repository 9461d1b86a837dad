//! Calls whose results do not fit registers.

use crate::{
    Bounds,
    machine::{Machine, compile, toolchain},
    plan::{Exported, Slot, slot},
};
use contract::conformance::guest::wasm;
use fiber::Thread;
use std::sync::Arc;

/// `$there` and `$back` count down by tail calls, further than any stack is deep, directly and through a table.
const MODULE: &str = r#"(module
  (type $eight (func (param i32 f64 v128) (result i32 i64 f64 f64 f64 v128 v128 i32)))
  (table funcref (elem $there $back))
  (func $there (type $eight)
    (if (i32.eqz (local.get 0))
      (then (return
        (local.get 0) (i64.const 2) (local.get 1) (f64.const 4) (f64.const 5)
        (local.get 2) (v128.const i64x2 7 7) (i32.const 8))))
    (return_call_indirect (type $eight)
      (i32.sub (local.get 0) (i32.const 1)) (local.get 1) (local.get 2) (i32.const 1)))
  (func $back (type $eight)
    (return_call $there (local.get 0) (f64.add (local.get 1) (f64.const 1)) (local.get 2)))
  (func (export "tail") (type $eight)
    (return_call $there (local.get 0) (local.get 1) (local.get 2)))
  (func (export "twice") (type $eight)
    (call $there (i32.const 4) (f64.const 100) (v128.const i64x2 0 0))
    drop drop drop drop drop (local.set 1) drop drop
    (call $there (local.get 0) (local.get 1) (local.get 2))))"#;

#[test]
fn results_that_fit_no_registers_go_through_calls_and_tail_calls() {
    let Some(toolchain) = toolchain() else { return };
    let _thread = Thread::here().unwrap();
    let module = wasm(MODULE);
    let bytes = |value: f64| slot(&value.to_le_bytes());
    let long = |value: u64| slot(&value.to_le_bytes());
    let six = 6_u128.to_le_bytes();
    let seven = (7_u128 | 7 << 64).to_le_bytes();
    for bounds in [Bounds::Guard, Bounds::Software] {
        let image = Arc::new(compile(&module, bounds, &toolchain).unwrap());
        let mut machine = Machine::new();
        machine.instantiate(&image, &[]).unwrap();
        for (name, from, sum) in [("tail", 0.5, 1_000_000.5), ("twice", 0.5, 1_000_104.0)] {
            let export = image.plan.exports.iter().find(|(export, _)| **export == *name);
            let Some((_, Exported::Function(place))) = export else {
                panic!("{name}")
            };
            let arguments: [Slot; 3] = [slot(&1_000_000_u32.to_le_bytes()), bytes(from), six];
            let results = machine.call(0, *place, &arguments).unwrap();
            let results: Vec<_> = results.into_iter().map(|(_, value)| value).collect();
            let wanted = [
                slot(&[]),
                long(2),
                bytes(sum),
                bytes(4.0),
                bytes(5.0),
                six,
                seven,
                slot(&8_u32.to_le_bytes()),
            ];
            assert_eq!(results, wanted, "{name} with {bounds:?}");
        }
    }
}
