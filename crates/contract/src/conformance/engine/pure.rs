//! Pure functions that have their sets in their memory, and NaNs, which are the same on every engine.

use super::{
    Arc, CodeKind, Engine, Fault, Grant, Image, MEMORY, PrepareError, Protocol, RESPONSE_BODY, Running,
    SpawnError, Subject, compile_as, fault, grant, input, load, ticking, wasm,
};
use std::cell::Cell;

/// A grant of a pure function with the input sets `a` and `b` and the output sets `x` and `y`.
fn pure() -> Grant {
    let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    Grant {
        protocol: Protocol::Pure {
            inputs: names(["a", "b"]),
            outputs: names(["x", "y"]),
            content_type: "text/plain".into(),
        },
        ..grant()
    }
}

/// This module, or the native guest of this name and variant.
fn guest(subject: &Subject<'_>, name: &str, variant: i32, text: &str) -> Arc<dyn Image> {
    if subject.is_native() {
        return subject.image(name, variant, &[]);
    }
    let artefact = compile_as(subject.engine, CodeKind::PureWasm, &wasm(text))
        .unwrap_or_else(|error| panic!("compiling failed: {error}\n{text}"));
    load(subject.engine, &artefact).unwrap_or_else(|error| panic!("loading failed: {error}"))
}

fn image(engine: &dyn Engine, text: &str) -> Arc<dyn Image> {
    guest(&Subject::wasm(engine), "", 0, text)
}

/// A function with its structure at 64, whose `_start` is this.
fn module(memory: &str, body: &str) -> String {
    format!(
        r#"(module {memory}
            (global (export "__dandelion_system_data") i32 (i32.const 64))
            (func $heap (result i32) (i32.load (i32.const 68)))
            (func $end (result i32) (i32.load (i32.const 72)))
            (func $input (result i32) (i32.load (i32.const 92)))
            ;; Leaves one item in `x`, called as the first input is.
            (func $give (param $data i32) (param $length i32)
                (memory.copy (call $heap) (call $input) (i32.const 20))
                (i32.store offset=8 (call $heap) (local.get $data))
                (i32.store offset=12 (call $heap) (local.get $length))
                (i32.store offset=20 (i32.load (i32.const 88)) (i32.const 1))
                (i32.store offset=32 (i32.load (i32.const 88)) (i32.const 1))
                (i32.store (i32.const 96) (call $heap))
                (i32.store (i32.const 64) (i32.const 0)))
            (func (export "_start") {body}))"#
    )
}

/// The data of the item that such a function leaves: there are two output sets, so the response is a form.
fn answer(image: &Arc<dyn Image>, grant: &Grant, body: &[u8]) -> Vec<u8> {
    let mut running = Running::spawn(image, grant, body);
    if let Err((fault, _)) = running.finish() {
        panic!("it should answer, but: {fault}");
    }
    let form = running.said().record().body.clone();
    let begin = form.windows(4).position(|window| window == b"\r\n\r\n");
    let begin = begin.expect("a form has parts") + 4;
    let end = form.len().saturating_sub("\r\n--millpond-0--\r\n".len());
    assert!(form.starts_with(b"--millpond-0\r\ncontent-disposition: form-data; name=\"x/body\"\r\n"));
    form[begin..end].to_vec()
}

const OWN: &str = r#"(memory (export "memory") 1)"#;

/// Its inputs lie in a larger memory than it was linked with, and its outputs are taken from there.
pub(super) fn a_pure_function_has_its_sets_in_its_memory(subject: &Subject<'_>) {
    let given = "(call $give (i32.load offset=8 (call $input)) (i32.load offset=12 (call $input)))";
    for memory in [OWN, r#"(import "env" "memory" (memory 1))"#] {
        let image = guest(subject, "pure_gives", 0, &module(memory, given));
        let grant = pure();
        ticking(subject.engine, || {
            for length in [1, 5, 70_000, 1_000_000, 3] {
                let body = "x".repeat(length);
                assert!(answer(&image, &grant, body.as_bytes()) == body.as_bytes());
            }
        });
    }
    // What else it finds: two sets in and out, the first of one item called `body`, and aligned data.
    let facts = "(local $ok i32)
        (local.set $ok (i32.eq (i32.load (i32.const 64)) (i32.const 256)))
        (local.set $ok (i32.and (local.get $ok) (i32.eq (i32.load (i32.const 76)) (i32.const 2))))
        (local.set $ok (i32.and (local.get $ok) (i32.eq (i32.load (i32.const 84)) (i32.const 2))))
        (local.set $ok (i32.and (local.get $ok) (i32.eq (i32.load offset=8 (i32.load (i32.const 80))) (i32.const 0))))
        (local.set $ok (i32.and (local.get $ok) (i32.eq (i32.load offset=20 (i32.load (i32.const 80))) (i32.const 1))))
        (local.set $ok (i32.and (local.get $ok) (i32.eq (i32.load offset=32 (i32.load (i32.const 80))) (i32.const 1))))
        (local.set $ok (i32.and (local.get $ok) (i32.eq (i32.load (i32.load (call $input))) (i32.const 0x79646f62))))
        (local.set $ok (i32.and (local.get $ok) (i32.eqz (i32.and (i32.load offset=8 (call $input)) (i32.const 15)))))
        (local.set $ok (i32.and (local.get $ok) (i32.eq (call $end) (i32.shl (memory.size) (i32.const 16)))))
        (local.set $ok (i32.and (local.get $ok) (i32.eq (call $end) (i32.const 4194304))))
        (i32.store8 (i32.const 1000) (i32.add (i32.const 48) (local.get $ok)))
        (call $give (i32.const 1000) (i32.const 1))";
    let image = guest(subject, "pure_facts", 0, &module(OWN, facts));
    ticking(subject.engine, || {
        assert_eq!(answer(&image, &pure(), b"some"), b"1")
    });
}

/// Nothing of a request is left for the next, wherever it was.
pub(super) fn a_memory_with_sets_is_fresh(subject: &Subject<'_>) {
    // Counts at places of its own memory, of its inputs' and of its heap, and shows the counts.
    let count = |at: &str, to: u32| {
        format!(
            "(i32.store8 (i32.const {to}) (i32.add (i32.const 48) (i32.load8_u {at})))
            (i32.store8 {at} (i32.add (i32.load8_u {at}) (i32.const 1)))"
        )
    };
    let places = [
        "(i32.const 2000)",
        "(i32.const 65535)",
        "(i32.add (call $heap) (i32.const 100))",
        "(i32.add (call $heap) (i32.const 1500000))",
        "(i32.sub (call $end) (i32.const 1))",
    ];
    let counts: String = places.iter().zip(1000..).map(|(at, to)| count(at, to)).collect();
    let image = guest(
        subject,
        "pure_counts",
        0,
        &module(
            OWN,
            &format!("{counts} (call $give (i32.const 1000) (i32.const 5))"),
        ),
    );
    let (small, mut large) = (pure(), pure());
    large.limits.memory.0 *= 2;
    ticking(subject.engine, || {
        for round in 0..30_usize {
            let body = vec![b'7'; [1, 300_000, 10, 2_000_000][round % 4]];
            let grant = if round % 7 == 3 { &large } else { &small };
            assert_eq!(answer(&image, grant, &body), b"00000", "in round {round}");
        }
    });
}

/// Whatever it leaves behind is its outputs, or its own fault.
pub(super) fn a_hostile_structure_is_a_fault(subject: &Subject<'_>) {
    // Their native guests are numbered in this order.
    let numbers = Cell::new(0);
    let said = |body: &str| {
        let next = numbers.replace(numbers.get() + 1);
        let image = guest(subject, "pure_hostile", next, &module(OWN, body));
        ticking(subject.engine, || fault(&image, &pure(), b"x"))
    };
    let bad = |body: &str, why: &str| match said(body) {
        Fault::BadOutput { reason } => assert!(reason.contains(why), "{body}: {reason}"),
        other => panic!("{body} should be a bad output, but: {other}"),
    };
    let give = "(call $give (i32.const 1000) (i32.const 1))";
    let after = |change: &str| format!("{give} {change}");
    assert_eq!(
        said("(i32.store (i32.const 64) (i32.const 7))"),
        Fault::Exit { code: 7 }
    );
    assert_eq!(
        said("(i32.store (i32.const 64) (i32.const -1))"),
        Fault::Exit { code: -1 }
    );
    bad("", "no exit code");
    bad(
        &after("(i32.store (i32.const 84) (i32.const 1))"),
        "1 output sets in place of 2",
    );
    bad(
        &after("(i32.store (i32.const 88) (i32.const -8))"),
        "outside its memory",
    );
    bad(
        &after("(i32.store (i32.const 96) (i32.const -8))"),
        "outside its memory",
    );
    bad(
        &after("(i32.store (call $heap) (i32.const -8))"),
        "name lies outside its memory",
    );
    bad(
        &after("(i32.store offset=4 (call $heap) (i32.const 0))"),
        "bad name",
    );
    bad(
        &after("(i32.store offset=8 (call $heap) (call $end))"),
        "data lies outside its memory",
    );
    bad(
        &after("(i32.store offset=12 (call $heap) (i32.const -1))"),
        "data lies outside its memory",
    );
    bad(
        &after("(i32.store offset=32 (i32.load (i32.const 88)) (i32.const 70000))"),
        "at most 65536",
    );
    let large = format!(
        "(call $give (i32.const 0) (i32.add (i32.const {}) (i32.const 1)))",
        RESPONSE_BODY.0 / 2
    );
    let image_of_large = guest(subject, "pure_large", 0, &module(OWN, &large));
    let mut grant = pure();
    grant.limits.response_body.0 = RESPONSE_BODY.0 / 2;
    let limit = grant.limits.response_body;
    ticking(subject.engine, || {
        assert_eq!(
            fault(&image_of_large, &grant, b"x"),
            Fault::OutputTooLarge { limit }
        );
    });
    match said("unreachable") {
        Fault::Trap { .. } => {}
        other => panic!("it should trap, but: {other}"),
    }
}

/// Inputs that do not fit in the memory that it may have.
pub(super) fn inputs_beyond_the_limit_are_refused(subject: &Subject<'_>) {
    let image = guest(
        subject,
        "pure_zero",
        0,
        &module(OWN, "(call $give (i32.const 1000) (i32.const 1))"),
    );
    // A native guest takes a few pages of 4 KiB.
    let own = if subject.is_native() { 8_192 } else { 65_536 };
    let (grant, large) = (pure(), vec![0; MEMORY.bytes() - own]);
    ticking(subject.engine, || {
        match fault(&image, &grant, &large) {
            Fault::OutOfMemory { limit, reason } => {
                assert_eq!(limit, MEMORY);
                assert!(reason.contains("take"), "{reason}");
            }
            other => panic!("it should be out of memory, but: {other}"),
        }
        assert_eq!(answer(&image, &grant, &large[..large.len() - 100_000]), b"\0");
    });
}

/// What has no place for its sets is refused before it runs.
pub(super) fn a_structure_without_a_place_is_refused(subject: &Subject<'_>) {
    if subject.is_native() {
        return executables_without_a_place_are_programs(subject);
    }
    let refused = |text: &str, named: &str| match compile_as(subject.engine, CodeKind::PureWasm, &wasm(text))
    {
        Err(PrepareError::Unsupported(reason)) => assert!(reason.contains(named), "{reason}"),
        other => panic!(
            "{text} should be unsupported, but: {:?}",
            other.map(|artefact| artefact.len())
        ),
    };
    refused(&module(r#"(memory (export "memory") 1 1)"#, ""), "cannot grow");
    refused(
        &module(r#"(memory (export "memory") 0)"#, ""),
        "outside its memory",
    );
    refused(
        &module(r#"(import "env" "f" (func)) (memory (export "memory") 1)"#, ""),
        "imports `env.f`",
    );
    refused("(component)", "component");
}

/// Other than a module, an executable can be run as something else.
fn executables_without_a_place_are_programs(subject: &Subject<'_>) {
    for (variant, named) in [(0, "among its variables"), (1, "__dandelion_system_data")] {
        let image = subject.image("pure_nowhere", variant, &[]);
        let reason = image.pure().expect_err("it has no place for sets");
        assert!(reason.contains(named), "{reason}");
        let (input, _) = input(b"x");
        match image.spawn(&Arc::new(pure()), input) {
            Err(SpawnError::Failed { reason }) => assert!(reason.contains(named), "{reason}"),
            Err(other) => panic!("it should say why, but: {other:?}"),
            Ok(_) => panic!("it should not be spawned"),
        }
    }
}

/// The bits of NaNs do not depend on the processor, on the order of operands, or on the compiler.
pub(super) fn nans_are_canonical(engine: &dyn Engine) {
    // Of the input's two bytes, which are zeros, makes NaNs in many ways, and shows their bits.
    let store = |at: u32, value: &str| format!("(f64.store (i32.const {at}) {value})");
    let divide = "(f64.div (local.get $zero) (local.get $zero))";
    let negative = "(f64.div (f64.neg (local.get $zero)) (local.get $zero))";
    let values = [
        divide.to_owned(),
        negative.to_owned(),
        format!("(f64.add {divide} (f64.neg {divide}))"),
        format!("(f64.add (f64.reinterpret_i64 (i64.const -1)) {divide})"),
        format!("(f64.add {divide} (f64.reinterpret_i64 (i64.const -1)))"),
        "(f64.sqrt (f64.sub (local.get $zero) (f64.const 1)))".to_owned(),
        "(f64.sub (f64.const inf) (f64.div (f64.const 1) (local.get $zero)))".to_owned(),
        format!("(f64.min (f64.const -nan:0x8000000000123) {divide})"),
        "(f64.promote_f32 (f32.demote_f64 (f64.reinterpret_i64 (i64.const -5))))".to_owned(),
        "(f64.floor (f64.reinterpret_i64 (i64.const -5)))".to_owned(),
    ];
    let stores: String = values
        .iter()
        .zip((1000..).step_by(8))
        .map(|(value, at)| store(at, value))
        .collect();
    let length = values.len() * 8;
    let body = format!(
        "(local $zero f64)
        (local.set $zero (f64.convert_i32_u (i32.load8_u (i32.load offset=8 (call $input)))))
        {stores}
        ;; By other ways than a store, all of which leave nothing where they see what they should.
        (i64.store (i32.const {other}) (i64.xor (i64.const 0x7ff8000000000000) (i64.reinterpret_f64 {negative})))
        (f64.store (i32.const {}) (f64.sub (f64.const 1) (f64.copysign (f64.const 1) {negative})))
        (call $give (i32.const 1000) (i32.const {whole}))",
        1000 + length + 8,
        other = 1000 + length,
        whole = length + 16,
    );
    let image = image(engine, &module(OWN, &body));
    let expected = [
        0x7ff8_0000_0000_0000_u64.to_le_bytes().repeat(values.len()),
        vec![0; 16],
    ]
    .concat();
    ticking(engine, || {
        let seen = answer(&image, &pure(), b"\0\0");
        assert_eq!(seen, expected, "{seen:x?}");
    });
}

/// The same, of the lanes of vectors.
pub(super) fn nans_in_vectors_are_canonical(engine: &dyn Engine) {
    let body = "(local $zero f64) (local $both v128)
        (local.set $zero (f64.convert_i32_u (i32.load8_u (i32.load offset=8 (call $input)))))
        (local.set $both (f64x2.splat (f64.neg (local.get $zero))))
        (v128.store (i32.const 1000) (f64x2.div (local.get $both) (f64x2.splat (local.get $zero))))
        (v128.store (i32.const 1016) (f32x4.mul (v128.const i64x2 -1 -1) (f32x4.div (local.get $both) (local.get $both))))
        (call $give (i32.const 1000) (i32.const 32))";
    let image = image(engine, &module(OWN, body));
    let expected = [
        0x7ff8_0000_0000_0000_u64.to_le_bytes().repeat(2),
        0x7fc0_0000_u32.to_le_bytes().repeat(4),
    ]
    .concat();
    ticking(engine, || assert_eq!(answer(&image, &pure(), b"\0"), expected));
}
