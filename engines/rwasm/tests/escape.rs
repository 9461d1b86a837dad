//! Guests that try to leave their sandbox, whatever keeps memory bounded.

use contract::{
    Fault,
    conformance::guest::{self, Running, grant, wasm},
};
use millpond_engine_rwasm::{Bounds, Options, Rwasm, Toolchain};
use native::{
    Outside,
    escape::{Subject, run_all},
};

fn engine(bounds: Bounds) -> Option<Rwasm> {
    let options = Options {
        bounds,
        ..Options::default()
    };
    match Toolchain::find() {
        Ok(toolchain) => Some(Rwasm::new(toolchain, &options).expect("handlers can be installed")),
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}

fn contained(bounds: Bounds, outside: Outside) {
    if let Some(engine) = engine(bounds) {
        run_all(Subject {
            engine: &engine,
            outside,
            vectors: false,
        });
    }
}

#[test]
fn checks_contain_every_guest() {
    contained(Bounds::Checked, Outside::Faults);
}

#[test]
fn with_masks_what_is_outside_is_zeros() {
    contained(Bounds::Mask, Outside::Zeros);
}

/// What the escapes leave open: what a load from outside gives, and which stores trap.
#[test]
fn with_masks_loads_from_outside_give_zeros_and_stores_trap() {
    let Some(engine) = engine(Bounds::Mask) else {
        return;
    };
    for (instruction, traps) in [
        (
            "(if (i64.ne (i64.load (i32.const -8)) (i64.const 0)) (then (unreachable)))",
            None,
        ),
        ("(if (i32.load8_u (i32.const 65536)) (then (unreachable)))", None),
        // Half of it is inside.
        (
            "(if (i64.ne (i64.load (i32.const 65532)) (i64.const 0x67676767)) (then (unreachable)))",
            None,
        ),
        // What does not fit 32 bits leads back to the begin.
        (
            "(if (i32.ne (i32.load offset=0xffffffff (i32.const 1)) (i32.const 0x67676767)) (then (unreachable)))",
            None,
        ),
        (
            "(i32.store (i32.const 65536) (i32.const 0))",
            Some("out of bounds"),
        ),
        ("(i32.store8 (i32.const -1) (i32.const 0))", Some("out of bounds")),
        (
            "(i64.store (i32.const 65532) (i64.const 0))",
            Some("out of bounds"),
        ),
        (
            "(memory.fill (i32.const 65535) (i32.const 0) (i32.const 2))",
            Some("out of bounds"),
        ),
    ] {
        let text = format!(
            r#"(module (memory (export "memory") 1 1) (func (export "_start")
                (memory.fill (i32.const 0) (i32.const 0x67) (i32.const 65536)) {instruction}))"#
        );
        let image = guest::image(&engine, &wasm(&text));
        let fault = Running::spawn(&image, &grant(), b"").finish().err();
        let right = match (&fault, traps) {
            (None, None) => true,
            (Some((Fault::Trap { reason }, _)), Some(words)) => reason.contains(words),
            _ => false,
        };
        assert!(right, "{instruction}: {fault:?}");
    }
}

/// Engines with the same places: what a guest of one has left serves no guest of the other, which would find something else around its
/// memory.
#[test]
fn what_is_around_a_memory_stays() {
    let Some(checked) = engine(Bounds::Checked) else {
        return;
    };
    let toolchain = Toolchain::find().expect("it was there just now");
    let mask = Rwasm::beside(checked.native(), toolchain, Bounds::Mask);
    for turn in 0..3 {
        for (engine, traps) in [(&mask, false), (&checked, true)] {
            let module = wasm(&format!(
                r#"(module (memory (export "memory") 1)
                    (func (export "_start")
                        (if (i64.ne (i64.load (i32.const -8)) (i64.const 0)) (then (unreachable)))
                        (i64.store (i32.const {turn}) (i64.const -1))))"#
            ));
            let image = guest::image(engine, &module);
            let ended = Running::spawn(&image, &grant(), b"")
                .finish()
                .map_err(|(fault, _)| fault);
            let trapped = matches!(&ended, Err(Fault::Trap { reason }) if reason.contains("out of bounds"));
            assert_eq!(trapped, traps, "{ended:?}");
            assert_eq!(ended.is_ok(), !traps);
        }
    }
}
