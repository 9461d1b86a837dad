//! How a guest fails by itself.

use super::*;

/// Leaving with a code other than 0 fails, also from deep inside; with 0 it answers what was written.
pub(super) fn an_exit_code_is_a_fault(subject: &Subject<'_>) {
    // A process's has 8 bits.
    let codes = if subject.is_native() {
        [(3, Some(3)), (0, None), (255, Some(255)), (1, Some(1))]
    } else {
        [(3, Some(3)), (0, None), (-1, Some(-1)), (256, Some(256))]
    };
    for (code, expected) in codes {
        let image = subject.image(
            "exits",
            code,
            &command(&format!(
                r#"(func $inner (call $proc_exit (i32.const {code})) (unreachable))
                (func (export "_start") (call $say (i32.const 7)) (call $inner) (unreachable))"#
            )),
        );
        ticking(subject.engine, || match expected {
            Some(code) => assert_eq!(fault(&image, &grant(), b""), Fault::Exit { code }),
            None => assert_eq!(answer(&image, &grant(), b""), "7 "),
        });
    }
}

/// Ways in which a native guest traps.
const TRAPS: usize = 6;

/// What Wasm forbids, or a processor, ends the guest, not the host, and the next request finds all in order.
pub(super) fn a_trap_is_a_fault(subject: &Subject<'_>) {
    let bodies = [
        "(unreachable)",
        "(drop (i32.div_s (i32.const 1) (i32.load (i32.const 2000))))",
        "(drop (i64.rem_u (i64.const 1) (i64.load (i32.const 2000))))",
        "(drop (i32.div_s (i32.const 0x80000000) (i32.sub (i32.load (i32.const 2000)) (i32.const 1))))",
        "(drop (i32.trunc_f64_s (f64.const 1e300)))",
        "(drop (i32.trunc_f32_u (f32.const nan)))",
        "(drop (i32.load (i32.const 131069)))",
        "(drop (i32.load8_u (i32.const -1)))",
        "(drop (i64.load offset=0xffffffff (i32.const -1)))",
        "(i32.store (i32.const 0x7fffffff) (i32.const 1))",
        "(memory.fill (i32.const 131000) (i32.const 1) (i32.const 1000))",
        "(memory.copy (i32.const 0) (i32.const 131000) (i32.const 1000))",
        "(call_indirect $table (type $nothing) (i32.const 0))",
        "(call_indirect $table (type $nothing) (i32.const 1))",
        "(call_indirect $table (type $nothing) (i32.const 2))",
        "(call_indirect $table (type $nothing) (i32.const -1))",
    ];
    let variants = if subject.is_native() { TRAPS } else { bodies.len() };
    for (variant, body) in (0..).zip(bodies).take(variants) {
        let image = subject.image(
            "traps",
            variant,
            &command(&format!(
                r#"(type $nothing (func))
                (table $table 2 2 funcref)
                (elem (table $table) (i32.const 0) func $other)
                (func $other (param i32))
                (func (export "_start")
                    (call $say (i32.const 7))
                    (if (i32.eq (call $letter) (i32.const 116)) (then {body})))"#
            )),
        );
        ticking(subject.engine, || {
            for _ in 0..3 {
                match fault(&image, &grant(), b"t") {
                    Fault::Trap { reason } => assert!(!reason.is_empty()),
                    other => panic!("{body} should trap, but: {other}"),
                }
                assert_eq!(answer(&image, &grant(), b"-"), "7 ");
            }
        });
    }
}

/// Recursion without an end is told as what it is; a thousand frames are no problem.
pub(super) fn endless_recursion_overflows_the_stack(subject: &Subject<'_>) {
    let image = subject.image(
        "deep",
        0,
        &command(
            r#"(func $sum (param $n i64) (result i64)
                (if (result i64) (i64.eqz (local.get $n))
                    (then (i64.const 0))
                    (else (i64.add (local.get $n) (call $sum (i64.sub (local.get $n) (i64.const 1)))))))
            (func (export "_start")
                (if (i32.eq (call $letter) (i32.const 114))
                    (then (drop (call $sum (i64.const -1))))
                    (else (call $number (i32.const 1) (call $sum (i64.const 1000))))))"#,
        ),
    );
    ticking(subject.engine, || {
        for _ in 0..10 {
            assert_eq!(fault(&image, &grant(), b"r"), Fault::StackOverflow);
            assert_eq!(answer(&image, &grant(), b"-"), "500500 ");
        }
    });
}
