//! Guests that try to leave their sandbox, in each way that compiled code could be made to: addresses in every width and direction,
//! tables, the stack, memory that grows, and signals that meet the host's own code. Each is contained whatever keeps memory
//! bounded, and a neighbour that waits meanwhile finds its memory as it was. What is wrong panics.

use crate::Outside;
use contract::{
    Engine, Fault, Grant, Image,
    conformance::guest::{self, Running, grant, ticking, wasm},
};
use std::{fmt::Write as _, sync::Arc};

/// An engine whose guests try.
#[derive(Clone, Copy)]
pub struct Subject<'e> {
    /// It has the first core.
    pub engine: &'e dyn Engine,
    /// What a guest finds outside of its memory.
    pub outside: Outside,
    /// Whether it runs SIMD.
    pub vectors: bool,
}

type Case = fn(Subject<'_>);

/// All of them.
pub fn run_all(subject: Subject<'_>) {
    let cases: [(&str, Case); 7] = [
        ("no address leads out of a memory", addresses_lead_nowhere),
        ("bulk instructions reach no further", bulk_reaches_no_further),
        (
            "a table leads to functions of the right type only",
            tables_lead_to_functions,
        ),
        ("a stack ends where it ends", a_stack_ends),
        ("memory is as large as it was granted", memory_is_as_granted),
        ("signals that meet the host do no harm", signals_do_no_harm),
        ("what a guest has written goes with it", what_was_written_goes),
    ];
    for (what, case) in cases {
        println!("{}: {what}", subject.engine.name());
        beside_a_neighbour(subject.engine, || case(subject));
    }
}

const IMPORTS: &str = r#"
    (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
"#;

fn image(engine: &dyn Engine, body: &str) -> Arc<dyn Image> {
    guest::image(engine, &wasm(&format!("(module {IMPORTS} {body})")))
}

/// A guest that fills its memory, waits, and then looks whether it is as it was.
fn beside_a_neighbour(engine: &dyn Engine, act: impl FnOnce()) {
    let image = image(
        engine,
        r#"(memory (export "memory") 4)
        (func (export "_start")
            (local $at i32)
            (memory.fill (i32.const 64) (i32.const 0x5a) (i32.const 262080))
            ;; Relative, by the monotonic clock: half a second.
            (memory.fill (i32.const 0) (i32.const 0) (i32.const 64))
            (i32.store (i32.const 16) (i32.const 1))
            (i64.store (i32.const 24) (i64.const 500000000))
            (drop (call $poll_oneoff (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 60)))
            (local.set $at (i32.const 128))
            (loop $next
                (if (i64.ne (i64.load (local.get $at)) (i64.const 0x5a5a5a5a5a5a5a5a)) (then (unreachable)))
                (local.set $at (i32.add (local.get $at) (i32.const 8)))
                (br_if $next (i32.lt_u (local.get $at) (i32.const 262144)))))"#,
    );
    let mut neighbour = Running::spawn(&image, &grant(), b"");
    let first = neighbour.turn();
    assert!(first.is_none(), "it waits, but: {first:?}");
    act();
    neighbour.finish().expect("its memory is as it was");
}

/// How a request ended: none if well.
fn fault(image: &Arc<dyn Image>, grant: &Grant, body: &[u8]) -> Option<Fault> {
    let mut running = Running::spawn(image, grant, body);
    running.finish().err().map(|(fault, _)| fault)
}

fn is_trap(fault: Option<&Fault>, words: &str) -> bool {
    matches!(fault, Some(Fault::Trap { reason }) if reason.contains(words))
}

const SIZE: u64 = 2 << 16;

/// Every instruction that accesses memory, with how many bytes.
const ACCESSES: [(&str, u64); 34] = [
    ("i32.load", 4),
    ("i64.load", 8),
    ("f32.load", 4),
    ("f64.load", 8),
    ("i32.load8_s", 1),
    ("i32.load8_u", 1),
    ("i32.load16_s", 2),
    ("i32.load16_u", 2),
    ("i64.load8_s", 1),
    ("i64.load16_u", 2),
    ("i64.load32_s", 4),
    ("i64.load32_u", 4),
    ("v128.load", 16),
    ("v128.load8x8_s", 8),
    ("v128.load32x2_u", 8),
    ("v128.load8_splat", 1),
    ("v128.load64_splat", 8),
    ("v128.load32_zero", 4),
    ("v128.load64_zero", 8),
    ("v128.load8_lane", 1),
    ("v128.load64_lane", 8),
    ("i32.store", 4),
    ("i64.store", 8),
    ("f32.store", 4),
    ("f64.store", 8),
    ("i32.store8", 1),
    ("i32.store16", 2),
    ("i64.store8", 1),
    ("i64.store16", 2),
    ("i64.store32", 4),
    ("v128.store", 16),
    ("v128.store8_lane", 1),
    ("v128.store32_lane", 4),
    ("v128.store64_lane", 8),
];

/// Around what is special: the ends of the memory and of the numbers, and the bound up to which offsets are not compared.
const OFFSETS: [u64; 9] = [
    0,
    1,
    SIZE - 1,
    (32 << 20) - 16,
    32 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 8,
    (1 << 32) - 1,
];

fn addresses() -> impl Iterator<Item = u32> {
    let near = [0_i64, SIZE as i64, 1 << 31, 1 << 32]
        .into_iter()
        .flat_map(|at| [-17, -8, -1, 0, 1].map(|more| at + more));
    near.filter_map(|at| u32::try_from(at).ok())
}

fn instruction(name: &str, offset: u64) -> String {
    let lane = if name.ends_with("_lane") { " 0" } else { "" };
    let at = "(local.get $at)";
    let vector = "(v128.const i64x2 -1 -1)";
    if name.contains("store") {
        let value = match name.split_once('.').unwrap().0 {
            "v128" => vector.to_owned(),
            kind => format!("({kind}.const -1)"),
        };
        format!("({name} offset={offset}{lane} {at} {value})")
    } else if lane.is_empty() {
        format!("(drop ({name} offset={offset} {at}))")
    } else {
        format!("(drop ({name} offset={offset}{lane} {at} {vector}))")
    }
}

/// One module that does what the request's first word says, at the address that its second is.
fn accesses(vectors: bool) -> String {
    let mut functions = String::new();
    let mut names = String::new();
    for (index, (name, offset)) in cases(vectors).enumerate() {
        let _ = writeln!(
            functions,
            "(func $f{index} (param $at i32) {})",
            instruction(name.0, offset)
        );
        let _ = write!(names, "$f{index} ");
    }
    let count = cases(vectors).count();
    format!(
        r#"(memory (export "memory") 2 2)
        (type $access (func (param i32)))
        (table {count} funcref)
        (elem (i32.const 0) {names})
        {functions}
        (func (export "_start")
            (i32.store (i32.const 0) (i32.const 16))
            (i32.store (i32.const 4) (i32.const 8))
            (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
            (call_indirect (type $access) (i32.load (i32.const 20)) (i32.load (i32.const 16))))"#
    )
}

fn cases(vectors: bool) -> impl Iterator<Item = (&'static (&'static str, u64), u64)> {
    ACCESSES
        .iter()
        .filter(move |(name, _)| vectors || !name.starts_with("v128"))
        .flat_map(|access| OFFSETS.map(|offset| (access, offset)))
}

fn addresses_lead_nowhere(subject: Subject<'_>) {
    let Subject {
        engine,
        outside,
        vectors,
    } = subject;
    let image = image(engine, &accesses(vectors));
    let grant = grant();
    for (index, ((name, width), offset)) in cases(vectors).enumerate() {
        for at in addresses() {
            let inside = u64::from(at) + offset + width <= SIZE;
            let mut body = (index as u32).to_le_bytes().to_vec();
            body.extend(at.to_le_bytes());
            let fault = fault(&image, &grant, &body);
            let trapped = is_trap(fault.as_ref(), "out of bounds memory access");
            // A sum of 32 bits.
            let wrapped = u64::from(at.wrapping_add(offset as u32)) + width <= SIZE;
            let right = match (inside, outside) {
                (true, _) => fault.is_none(),
                (false, Outside::Faults) => trapped,
                // Only what straddles the memory's end meets the pages behind it.
                (false, Outside::Inside) => fault.is_none() || trapped,
                (false, Outside::Zeros) if name.contains("store") => trapped || (wrapped && fault.is_none()),
                (false, Outside::Zeros) => fault.is_none(),
            };
            let engine = engine.name();
            assert!(right, "{engine}: {name} offset={offset} at {at:#x}: {fault:?}");
        }
    }
}

fn bulk_reaches_no_further(Subject { engine, .. }: Subject<'_>) {
    let body = |instruction: &str| {
        format!(
            r#"(memory (export "memory") 2 2)
            (data $d "12345678")
            (func (export "_start") {instruction})"#
        )
    };
    for (instruction, good) in [
        (
            "(memory.fill (i32.const 0) (i32.const 1) (i32.const 131072))",
            true,
        ),
        (
            "(memory.fill (i32.const 131072) (i32.const 1) (i32.const 0))",
            true,
        ),
        (
            "(memory.fill (i32.const 131073) (i32.const 1) (i32.const 0))",
            false,
        ),
        (
            "(memory.fill (i32.const 1) (i32.const 1) (i32.const 131072))",
            false,
        ),
        ("(memory.fill (i32.const 16) (i32.const 1) (i32.const -1))", false),
        (
            "(memory.fill (i32.const -16) (i32.const 1) (i32.const 32))",
            false,
        ),
        (
            "(memory.copy (i32.const 0) (i32.const 65536) (i32.const 65536))",
            true,
        ),
        (
            "(memory.copy (i32.const 0) (i32.const 65537) (i32.const 65536))",
            false,
        ),
        (
            "(memory.copy (i32.const 65537) (i32.const 0) (i32.const 65536))",
            false,
        ),
        ("(memory.copy (i32.const -8) (i32.const 0) (i32.const 16))", false),
        (
            "(memory.copy (i32.const 0) (i32.const 0x80000000) (i32.const 8))",
            false,
        ),
        (
            "(memory.init $d (i32.const 131064) (i32.const 0) (i32.const 8))",
            true,
        ),
        (
            "(memory.init $d (i32.const 131065) (i32.const 0) (i32.const 8))",
            false,
        ),
        (
            "(memory.init $d (i32.const 0) (i32.const 1) (i32.const 8))",
            false,
        ),
        (
            "(memory.init $d (i32.const 0) (i32.const -1) (i32.const 2))",
            false,
        ),
        (
            "(data.drop $d) (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1))",
            false,
        ),
    ] {
        let fault = fault(&image(engine, &body(instruction)), &grant(), b"");
        let right = match good {
            true => fault.is_none(),
            false => is_trap(fault.as_ref(), "out of bounds memory access"),
        };
        assert!(right, "{instruction}: {fault:?}");
    }
}

fn tables_lead_to_functions(Subject { engine, .. }: Subject<'_>) {
    let body = |instruction: &str| {
        format!(
            r#"(memory (export "memory") 1)
            (type $none (func))
            (type $one (func (param i64) (result i64)))
            (table $t 8 16 funcref)
            (elem (i32.const 0) $one)
            (func $one (type $one) (local.get 0))
            (func (export "_start") {instruction})"#
        )
    };
    let call = |at: &str| format!("(drop (call_indirect (type $one) (i64.const 1) (i32.const {at})))");
    for (instruction, words) in [
        (call("0"), ""),
        (
            "(call_indirect (type $none) (i32.const 0))".to_owned(),
            "indirect call type mismatch",
        ),
        (call("1"), "uninitialized element"),
        (call("8"), "undefined element"),
        (call("-1"), "undefined element"),
        (call("0x7fffffff"), "undefined element"),
        (call("0x08000000"), "undefined element"),
        (
            "(drop (table.get $t (i32.const 8)))".to_owned(),
            "out of bounds table access",
        ),
        (
            "(drop (table.get $t (i32.const -1)))".to_owned(),
            "out of bounds table access",
        ),
        (
            "(table.set $t (i32.const 8) (ref.null func))".to_owned(),
            "out of bounds table access",
        ),
        (
            "(table.fill $t (i32.const 7) (ref.null func) (i32.const 2))".to_owned(),
            "out of bounds table access",
        ),
        (
            "(table.fill $t (i32.const -1) (ref.null func) (i32.const 2))".to_owned(),
            "out of bounds table access",
        ),
        (
            "(table.copy $t $t (i32.const 1) (i32.const 0) (i32.const 8))".to_owned(),
            "out of bounds table access",
        ),
        // It says that it has grown further than it has.
        (
            format!(
                "(if (i32.ne (table.grow $t (ref.null func) (i32.const 9)) (i32.const -1)) (then (return))) {}",
                call("16")
            ),
            "undefined element",
        ),
        (
            format!(
                "(drop (table.grow $t (ref.null func) (i32.const 8))) {}",
                call("15")
            ),
            "uninitialized element",
        ),
    ] {
        let fault = fault(&image(engine, &body(&instruction)), &grant(), b"");
        let right = match words {
            "" => fault.is_none(),
            words => is_trap(fault.as_ref(), words),
        };
        assert!(right, "{instruction}: {fault:?}");
    }
}

/// Small frames, frames larger than a page, and frames that hold vectors; by names, by tables, and from within what the
/// host was asked for before.
fn a_stack_ends(Subject { engine, vectors, .. }: Subject<'_>) {
    let locals = "(local v128 v128 v128 v128 v128 v128 v128 v128)";
    let many: String = (0..1_200).fold(String::new(), |mut text, n| {
        let _ = write!(text, "(local $l{n} i64)");
        text
    });
    // Each local is used after the call, so that it has to be somewhere meanwhile.
    let fill: String = (0..1_200).fold(String::new(), |mut text, n| {
        let _ = write!(
            text,
            "(local.set $l{n} (i64.load (i32.and (local.get $n) (i32.const {}))))",
            n * 4 + 3
        );
        text
    });
    let add: String = (0..1_200).fold(String::new(), |mut text, n| {
        let _ = write!(
            text,
            "(local.set $s (i64.add (i64.rotl (local.get $s) (i64.const 3)) (local.get $l{n})))"
        );
        text
    });
    for function in [
        "(func $f (param $n i32) (result i64) (i64.add (call $f (i32.add (local.get $n) (i32.const 1))) (i64.const 1)))".to_owned(),
        "(func $f (param $n i32) (result i64) (i64.add (call_indirect (type $t) (i32.add (local.get $n) (i32.const 1)) (i32.const 0)) (i64.const 1)))".to_owned(),
        format!(
            "(func $f (param $n i32) (result i64) {locals} (local.set 1 (v128.load (local.get $n)))
                (i64.add (call $f (local.get $n)) (i64x2.extract_lane 0 (local.get 1))))"
        ),
        "(func $f (param $n i32) (result i64) (drop (call $random_get (i32.const 0) (i32.const 8)))
            (i64.add (call $f (i32.add (local.get $n) (i32.const 1))) (i64.const 1)))".to_owned(),
        format!("(func $f (param $n i32) (result i64) (local $s i64) {many} {fill} (local.set $s (call $f (i32.const 1))) {add} (local.get $s))"),
    ] {
        if !vectors && function.contains("v128") {
            continue;
        }
        let body = format!(
            r#"(memory (export "memory") 1)
            (type $t (func (param i32) (result i64)))
            (table 1 funcref) (elem (i32.const 0) $f)
            {function}
            (func (export "_start") (i64.store (i32.const 8) (call $f (i32.const 0))))"#
        );
        let image = image(engine, &body);
        for _ in 0..3 {
            assert_eq!(fault(&image, &grant(), b""), Some(Fault::StackOverflow), "{}", &function[..60]);
        }
    }
}

/// What a guest believes of its memory's size changes nothing.
fn memory_is_as_granted(Subject { engine, outside, .. }: Subject<'_>) {
    // The grant is 64 pages.
    let body = |pages: u64, at: u64| {
        format!(
            r#"(memory (export "memory") 1)
            (func (export "_start")
                (drop (memory.grow (i32.const {pages})))
                (i32.store (i32.const {at}) (i32.const -1))
                (if (i32.eqz (i32.load (i32.const {at}))) (then (unreachable))))"#
        )
    };
    let page = 1 << 16;
    for (pages, at, good) in [
        (63, 64 * page - 4, true),
        (63, 64 * page - 3, false),
        (63, 64 * page, false),
        (64, page, false),
        (65_535, 64 * page, false),
        (0xffff_ffff, page, false),
        (0xffff_ffff, 0xffff_fffc, false),
    ] {
        let fault = fault(&image(engine, &body(pages, at)), &grant(), b"");
        let trapped = matches!(&fault, Some(Fault::Trap { reason } | Fault::OutOfMemory { reason, .. }) if reason.contains("out of bounds"));
        let right = match (good, outside) {
            (true, _) => fault.is_none(),
            (false, Outside::Inside) => fault.is_none() || trapped,
            (false, Outside::Faults | Outside::Zeros) => trapped,
        };
        assert!(right, "{pages} pages more, {at:#x}: {fault:?}");
    }
}

/// Preempted as often as its thread takes it, while it calls the host with pointers that lead nowhere, writes over what the host reads, and
/// faults in the end.
fn signals_do_no_harm(Subject { engine, .. }: Subject<'_>) {
    let image = image(
        engine,
        r#"(memory (export "memory") 2)
        (func (export "_start")
            (local $n i32) (local $sum i64)
            (loop $next
                (i32.store (i32.const 0) (i32.mul (local.get $n) (i32.const 2654435761)))
                (i32.store (i32.const 4) (i32.mul (local.get $n) (i32.const 40503)))
                (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
                (drop (call $random_get (i32.mul (local.get $n) (i32.const 747796405)) (i32.const 64)))
                (drop (call $random_get (i32.const 4096) (i32.const 4096)))
                (local.set $sum (i64.add (local.get $sum) (i64.load (i32.const 4096))))
                (local.set $n (i32.add (local.get $n) (i32.const 1)))
                (br_if $next (i32.lt_u (local.get $n) (i32.const 30000))))
            (i64.store (i32.const -8) (local.get $sum))
            (unreachable))"#,
    );
    ticking(engine, || {
        for _ in 0..3 {
            let fault = fault(&image, &grant(), b"");
            assert!(matches!(fault, Some(Fault::Trap { .. })), "{fault:?}");
        }
    });
}

/// Each guest finds its data and zeros, and leaves neither: to the next of its image, nor, once nobody asks for that, to those of others
/// that get its place, whose memories are larger and smaller.
fn what_was_written_goes(subject: Subject<'_>) {
    let grow = |pages: u32, at: u32| {
        let reach = match subject.outside {
            Outside::Inside => pages.next_power_of_two(),
            Outside::Faults | Outside::Zeros => pages,
        };
        let image = image(
            subject.engine,
            &format!(
                r#"(memory (export "memory") {pages} 40)
                (data (i32.const {at}) "\01\02\03\04\05\06\07\08")
                (global $here (mut i32) (i32.const 0))
                (func (export "_start")
                    (if (global.get $here) (then (unreachable)))
                    (if (i64.ne (i64.load (i32.const {at})) (i64.const 0x0807060504030201)) (then (unreachable)))
                    (i64.store (i32.const {at}) (i64.const 0))
                    (loop $next
                        (if (i64.ne (i64.load (global.get $here)) (i64.const 0)) (then (unreachable)))
                        (i64.store (global.get $here) (i64.const -1))
                        (global.set $here (i32.add (global.get $here) (i32.const 8)))
                        (br_if $next (i32.lt_u (global.get $here) (i32.const {reach}))))
                    (if (i32.ne (memory.grow (i32.const 4)) (i32.const {pages})) (then (unreachable)))
                    (memory.fill (i32.const {end}) (i32.const 0x5a) (i32.const 262144)))"#,
                reach = reach << 16,
                end = pages << 16,
            ),
        );
        for _ in 0..3 {
            assert_eq!(fault(&image, &grant(), b""), None);
        }
    };
    for (pages, at) in [(3, 8), (24, 70_000), (1, 4000), (5, 0), (3, 131_072)] {
        grow(pages, at);
    }
}
