//! Calls whose results do not fit registers, and calls between pieces.

use crate::{
    Bounds, Clang, toolchain,
    translate::{PIECE, Settings, pieces},
};
use contract::conformance::guest::wasm;
use native::{
    Module,
    machine::{Machine, Program, Value, slot},
};
use std::collections::BTreeSet;

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
    let module = wasm(MODULE);
    let bytes = |value: f64| slot(&value.to_le_bytes());
    let long = |value: u64| slot(&value.to_le_bytes());
    let six = 6_u128.to_le_bytes();
    let seven = (7_u128 | 7 << 64).to_le_bytes();
    for (bounds, piece) in [
        (Bounds::Guard, PIECE),
        (Bounds::Software, PIECE),
        (Bounds::Guard, 1),
    ] {
        let settings = Settings {
            piece,
            ..Settings::here(bounds)
        };
        let program = Program::compile(
            &module,
            &Clang {
                toolchain: toolchain.clone(),
                settings,
            },
        )
        .unwrap();
        let mut machine = Machine::new().unwrap();
        let instance = machine.instantiate(&program).unwrap();
        for (name, from, sum) in [("tail", 0.5, 1_000_000.5), ("twice", 0.5, 1_000_104.0)] {
            let arguments: [Value; 3] = [slot(&1_000_000_u32.to_le_bytes()), bytes(from), six];
            let results = machine.call(instance, name, &arguments).unwrap();
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
            assert_eq!(results, wanted, "{name} with {settings:?}");
        }
    }
}

#[test]
fn a_piece_shares_what_others_use_and_nothing_else() {
    let bytes = wasm(MODULE);
    let module = Module::read(&bytes).unwrap();
    let divided = |size| {
        let pieces = pieces::divide(&module, size).unwrap().into_iter();
        let numbers = |numbers: BTreeSet<u32>| numbers.into_iter().collect::<Vec<_>>();
        pieces
            .map(|piece| (piece.functions, numbers(piece.shared), numbers(piece.foreign)))
            .collect::<Vec<_>>()
    };
    assert_eq!(divided(PIECE), [(0..4, vec![], vec![])]);
    // Tables and exports refer to all four, and the first piece has what the loader finds; each but the first calls `$there`.
    assert_eq!(
        divided(1),
        [
            (0..1, vec![0], vec![1, 2, 3]),
            (1..2, vec![1], vec![0]),
            (2..3, vec![2], vec![0]),
            (3..4, vec![3], vec![0]),
        ]
    );
}
