//! The suite of [`Engine`], [`Image`] and [`Sandbox`](crate::Sandbox), for engines of WASI 0.1 commands.
//!
//! Guests are Wasm text, so the suite needs no toolchain. The calling thread is core 0; a ticker thread calls
//! [`Engine::preempt`] for it every millisecond, as a worker's does. Nothing here depends on how fast the engine is:
//! a case that waits for a preemption runs until it comes.
//!
//! ```ignore
//! #[test]
//! fn conformance() {
//!     contract::conformance::engine::run_all(&Wasmtime::new(&Options::default()).unwrap());
//! }
//! ```

mod pure;

use super::guest::{
    Ended, MEMORY, RESPONSE_BODY, Running, compile, grant, image, input, load, ticking, wasm,
};
use crate::{
    Body, ByteSize, CoreId, Engine, Fault, Grant, Image, Input, Limits, PrepareError, Protocol, SpawnError,
    Step, Until, is_reserved_variable,
};
pub use pure::{
    a_hostile_structure_is_a_fault, a_memory_with_sets_is_fresh, a_pure_function_has_its_sets_in_its_memory,
    a_structure_without_a_place_is_refused, inputs_beyond_the_limit_are_refused, nans_are_canonical,
    nans_in_vectors_are_canonical,
};
use std::{
    collections::HashSet,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        /// All cases, by name.
        pub const CASES: &[(&str, fn(&dyn Engine))] = &[$((stringify!($name), $name)),*];
    };
}

cases! {
    standard_input_becomes_standard_output,
    each_sandbox_is_fresh,
    a_sandbox_shows_nothing_of_those_before_it,
    each_kind_of_state_is_fresh,
    memory_is_fresh_whichever_pages_were_written,
    sandboxes_do_not_see_each_other,
    only_the_grant_and_the_request_are_visible,
    random_bytes_differ,
    an_exit_code_is_a_fault,
    a_trap_is_a_fault,
    endless_recursion_overflows_the_stack,
    an_endless_loop_is_preempted_and_can_be_dropped,
    a_guest_that_is_asked_for_its_core_gives_it_back,
    a_preempted_computation_comes_out_right,
    who_is_called_by_a_table_sees_globals_and_memory,
    an_endless_start_section_is_preempted,
    memory_grows_to_its_limit_and_no_further,
    a_failure_after_refused_memory_says_so,
    memory_beyond_the_limit_from_the_beginning_is_refused,
    endless_output_is_ended,
    a_closed_output_stays_closed,
    standard_error_reaches_the_log,
    a_cgi_response_is_told_apart,
    hostile_pointers_are_answered,
    a_sleeping_guest_leaves_its_core,
    a_sandbox_can_be_dropped_at_any_step,
    many_sandboxes_live_at_once,
    an_image_serves_several_threads,
    a_renewed_sandbox_keeps_its_memory,
    usage_is_told,
    code_that_cannot_run_is_refused,
    compiled_code_loads_and_other_bytes_do_not,
    a_pure_function_has_its_sets_in_its_memory,
    a_memory_with_sets_is_fresh,
    a_hostile_structure_is_a_fault,
    inputs_beyond_the_limit_are_refused,
    a_structure_without_a_place_is_refused,
    nans_are_canonical,
    nans_in_vectors_are_canonical,
}

/// Runs every case, printing its name before it begins.
///
/// # Panics
/// At the end, with the names of the cases that are broken.
pub fn run_all(engine: &dyn Engine) {
    let mut broken = Vec::new();
    for (name, case) in CASES {
        println!("engine {}: {name}", engine.name());
        if panic::catch_unwind(AssertUnwindSafe(|| case(engine))).is_err() {
            broken.push(*name);
        }
    }
    assert!(
        broken.is_empty(),
        "engine {} breaks its contract: {broken:?}",
        engine.name()
    );
}

/// What the suite's guests import, and two helpers. Memory up to 64 is scratch.
const PRELUDE: &str = r#"
    (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "environ_get" (func $environ_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
    (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))

    ;; Writes to a descriptor; the error number.
    (func $write (param $fd i32) (param $address i32) (param $length i32) (result i32)
        (i32.store (i32.const 0) (local.get $address))
        (i32.store (i32.const 4) (local.get $length))
        (call $fd_write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8)))
    (func $print (param $address i32) (param $length i32)
        (drop (call $write (i32.const 1) (local.get $address) (local.get $length))))
    ;; Reads from standard input; how many bytes came.
    (func $read (param $address i32) (param $length i32) (result i32)
        (i32.store (i32.const 0) (local.get $address))
        (i32.store (i32.const 4) (local.get $length))
        (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
        (i32.load (i32.const 8)))
    ;; The first byte of standard input.
    (func $letter (result i32)
        (drop (call $read (i32.const 16) (i32.const 1)))
        (i32.load8_u (i32.const 16)))
    ;; A number in decimal and a space, to a descriptor.
    (func $number (param $fd i32) (param $n i64)
        (local $at i32)
        (local.set $at (i32.const 62))
        (i32.store8 (local.get $at) (i32.const 32))
        (loop $digit
            (local.set $at (i32.sub (local.get $at) (i32.const 1)))
            (i32.store8 (local.get $at)
                (i32.add (i32.const 48) (i32.wrap_i64 (i64.rem_u (local.get $n) (i64.const 10)))))
            (local.set $n (i64.div_u (local.get $n) (i64.const 10)))
            (br_if $digit (i64.ne (local.get $n) (i64.const 0))))
        (drop (call $write (local.get $fd) (local.get $at) (i32.sub (i32.const 63) (local.get $at)))))
    (func $say (param $n i32) (call $number (i32.const 1) (i64.extend_i32_u (local.get $n))))
"#;

/// A command: the prelude, a memory of two pages, and what the case adds.
fn command(body: &str) -> Vec<u8> {
    with_memory(r#"(memory (export "memory") 2)"#, body)
}

fn with_memory(memory: &str, body: &str) -> Vec<u8> {
    wasm(&format!("(module {PRELUDE} {memory} {body})"))
}

/// A command whose `_start` is this.
fn start(body: &str) -> Vec<u8> {
    command(&format!(r#"(func (export "_start") {body})"#))
}

/// Runs one request to its end: how it ended and what it answered.
fn serve(image: &Arc<dyn Image>, grant: &Grant, body: &[u8]) -> (Ended, String) {
    let mut running = Running::spawn(image, grant, body);
    let ended = running.finish();
    if let Err((fault, _)) = &ended {
        assert!(
            running.said().record().head.is_none(),
            "a sandbox that failed ({fault}) has not answered"
        );
    }
    let text = running.said().text();
    (ended, text)
}

/// The answer to a request that must succeed.
fn answer(image: &Arc<dyn Image>, grant: &Grant, body: &[u8]) -> String {
    match serve(image, grant, body) {
        (Ok(_), text) => text,
        (Err((fault, _)), _) => panic!("it should answer, but: {fault}"),
    }
}

/// The fault of a request that must fail.
fn fault(image: &Arc<dyn Image>, grant: &Grant, body: &[u8]) -> Fault {
    match serve(image, grant, body) {
        (Err((fault, _)), _) => fault,
        (Ok(_), text) => panic!("it should fail, but it answered {text:?}"),
    }
}

/// Runs a sandbox until it was preempted this often.
fn preempt(running: &mut Running, times: u32) {
    let times = running.preempted + times;
    while running.preempted < times {
        let step = running.step();
        assert!(
            matches!(step, Step::Preempted),
            "it should be preempted, but: {step:?}"
        );
    }
}

fn echo(engine: &dyn Engine) -> Arc<dyn Image> {
    image(
        engine,
        &start(
            "(local $count i32)
            (loop $more
                (local.set $count (call $read (i32.const 1024) (i32.const 100000)))
                (call $print (i32.const 1024) (local.get $count))
                (br_if $more (local.get $count)))",
        ),
    )
}

/// A guest that never ends.
const SPIN: &str = "(loop $spin (br $spin))";

/// Empty, small and large bodies come back byte for byte, with the grant's content type.
pub fn standard_input_becomes_standard_output(engine: &dyn Engine) {
    let image = echo(engine);
    ticking(engine, || {
        for size in [0, 1, 1000, 100_000, 100_001, 3 << 20] {
            let body: Vec<u8> = (0..size)
                .map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
                .collect();
            let mut running = Running::spawn(&image, &grant(), &body);
            running.finish().expect("it answers");
            let record = running.said().record();
            let head = record.head.as_ref().expect("a head");
            assert_eq!((head.status, head.headers.len()), (200, 1));
            assert!(head.headers[0].0.eq_ignore_ascii_case("content-type"));
            assert_eq!(head.headers[0].1, "text/plain");
            assert!(record.body == body, "{size} bytes come back as they were");
        }
    });
}

/// A counter in a global, in memory and in memory that was zero reads 1 in every sandbox.
pub fn each_sandbox_is_fresh(engine: &dyn Engine) {
    let image = image(
        engine,
        &command(
            r#"(global $counter (mut i32) (i32.const 0))
            (data (i32.const 4096) "\00\01\00\00")
            (func (export "_start")
                (global.set $counter (i32.add (global.get $counter) (i32.const 1)))
                (i32.store (i32.const 4096) (i32.add (i32.load (i32.const 4096)) (i32.const 1)))
                (i32.store (i32.const 70000) (i32.add (i32.load (i32.const 70000)) (i32.const 1)))
                (call $say (global.get $counter))
                (call $say (i32.load (i32.const 4096)))
                (call $say (i32.load (i32.const 70000))))"#,
        ),
    );
    ticking(engine, || {
        for _ in 0..300 {
            assert_eq!(answer(&image, &grant(), b""), "1 257 1 ");
        }
        let mut kept: Vec<_> = (0..20).map(|_| Running::spawn(&image, &grant(), b"")).collect();
        for running in &mut kept {
            running.finish().expect("it answers");
            assert_eq!(running.said().text(), "1 257 1 ");
        }
    });
}

/// A guest that dirties all it can and then fails, or that looks for dirt.
fn dirty(engine: &dyn Engine) -> Arc<dyn Image> {
    image(
        engine,
        &command(
            r#"(table $table 8 funcref)
            (elem (table $table) (i32.const 0) func $zero)
            (elem declare func $one)
            (type $number (func (result i32)))
            (global $global (mut i64) (i64.const 42))
            (global $float (mut f64) (f64.const 0.5))
            (data (i32.const 4096) "clean")
            (data $passive "passive")
            (func $zero (result i32) (i32.const 0))
            (func $one (result i32) (i32.const 1))
            (func $deep (result i32) (i32.add (call $deep) (i32.const 1)))
            ;; Where memory from an address on is not zero, or its end.
            (func $zeros (param $at i32) (result i32)
                (local $end i32)
                (local.set $end (i32.mul (memory.size) (i32.const 65536)))
                (loop $next
                    (if (i32.lt_u (local.get $at) (local.get $end)) (then
                        (if (i64.eqz (i64.load (local.get $at))) (then
                            (local.set $at (i32.add (local.get $at) (i32.const 8)))
                            (br $next))))))
                (local.get $at))
            (func $dirty
                (drop (memory.grow (i32.const 62)))
                (memory.fill (i32.const 128) (i32.const 0xaa)
                    (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 128)))
                (global.set $global (i64.const 0xaaaa))
                (global.set $float (f64.const 1.5))
                (table.set $table (i32.const 0) (ref.func $one))
                (table.set $table (i32.const 7) (ref.func $one))
                (data.drop $passive))
            (func (export "_start")
                (local $letter i32)
                (local.set $letter (call $letter))
                (if (i32.ne (local.get $letter) (i32.const 99)) (then (call $dirty)))
                (if (i32.eq (local.get $letter) (i32.const 116)) (then (unreachable)))
                (if (i32.eq (local.get $letter) (i32.const 111)) (then (drop (call $deep))))
                (if (i32.eq (local.get $letter) (i32.const 115)) (then (loop $spin (br $spin))))
                (if (i32.eq (local.get $letter) (i32.const 101)) (then (call $proc_exit (i32.const 9))))
                (if (i32.eq (local.get $letter) (i32.const 114)) (then (return)))
                (call $say (memory.size))
                (call $say (call $zeros (i32.const 5000)))
                (call $say (memory.grow (i32.const 62)))
                (call $say (call $zeros (i32.const 5000)))
                (call $print (i32.const 4096) (i32.const 5))
                (memory.init $passive (i32.const 4096) (i32.const 0) (i32.const 7))
                (call $print (i32.const 4096) (i32.const 7))
                (call $number (i32.const 1) (global.get $global))
                (call $say (i32.trunc_f64_u (f64.mul (global.get $float) (f64.const 2))))
                (call $say (call_indirect $table (type $number) (i32.const 0)))
                (call $say (ref.is_null (table.get $table (i32.const 7)))))"#,
        ),
    )
}

const CLEAN: &str = "2 131072 2 4194304 cleanpassive42 1 0 1 ";

/// After sandboxes that filled memory, globals and tables and then answered, failed or were dropped, the next is as
/// the module says: also in pages that it grows, and also when it is another module's.
pub fn a_sandbox_shows_nothing_of_those_before_it(engine: &dyn Engine) {
    let (first, second) = (dirty(engine), dirty(engine));
    ticking(engine, || {
        for round in 0..15 {
            for ending in [b't', b'o', b'e', b'r', b's'] {
                let mut running = Running::spawn(&first, &grant(), &[ending]);
                match ending {
                    b's' => preempt(&mut running, 2),
                    _ => drop(running.finish()),
                }
                drop(running);
                let next = if round % 2 == 0 { &first } else { &second };
                assert_eq!(
                    answer(next, &grant(), b"c"),
                    CLEAN,
                    "after {:?}",
                    char::from(ending)
                );
            }
        }
    });
}

/// Each kind of state that a module can change, alone: what it declares, how it reads it, how it changes it.
const STATES: &[(&str, &str, &str)] = &[
    (
        "(global $g (mut i32) (i32.const -7))",
        "(call $say (global.get $g))",
        "(global.set $g (i32.const 1))",
    ),
    (
        "(global $g (mut i64) (i64.const 0x123456789abcdef0))",
        "(call $number (i32.const 1) (global.get $g))",
        "(global.set $g (i64.const 1))",
    ),
    (
        "(global $g (mut f32) (f32.const nan:0x200001))",
        "(call $say (i32.reinterpret_f32 (global.get $g)))",
        "(global.set $g (f32.const 1))",
    ),
    (
        "(global $g (mut f64) (f64.const -0))",
        "(call $number (i32.const 1) (i64.reinterpret_f64 (global.get $g)))",
        "(global.set $g (f64.const 1))",
    ),
    (
        "(global $other (mut i32) (i32.const 1)) (global $g (mut v128) (v128.const i64x2 3 4))",
        "(call $number (i32.const 1) (i64x2.extract_lane 1 (global.get $g))) (call $say (global.get $other))",
        "(global.set $g (v128.const i64x2 5 6)) (global.set $other (i32.const 2))",
    ),
    (
        "(global $g (mut funcref) (ref.null func))",
        "(call $say (ref.is_null (global.get $g)))",
        "(global.set $g (ref.func $one))",
    ),
    (
        r#"(data (i32.const 65530) "across a page's end")"#,
        "(call $print (i32.const 65530) (i32.const 19))",
        "(memory.fill (i32.const 65530) (i32.const 46) (i32.const 7))",
    ),
    (
        "",
        "(call $say (i32.load8_u (i32.const 131071)))",
        "(i32.store8 (i32.const 131071) (i32.const 1))",
    ),
    (
        "",
        "(call $say (memory.size))",
        "(drop (memory.grow (i32.const 1)))",
    ),
    (
        r#"(data (i32.const 1024) "first") (data $passive "second")"#,
        "(call $print (i32.const 1024) (i32.const 6))",
        "(memory.init $passive (i32.const 1024) (i32.const 0) (i32.const 6))",
    ),
    (
        r#"(data $passive "bytes")"#,
        "(memory.init $passive (i32.const 1024) (i32.const 0) (i32.const 5)) (call $print (i32.const 1024) (i32.const 5))",
        "(data.drop $passive)",
    ),
    (
        "",
        "(call $say (call_indirect $table (type $number) (i32.const 0)))",
        "(table.set $table (i32.const 0) (ref.func $one))",
    ),
    (
        "",
        "(call $say (table.size $table))",
        "(drop (table.grow $table (ref.func $one) (i32.const 2)))",
    ),
    (
        "",
        "(call $say (ref.is_null (table.get $table (i32.const 3))))",
        "(table.fill $table (i32.const 2) (ref.func $one) (i32.const 2))",
    ),
    (
        "",
        "(call $say (call_indirect $table (type $number) (i32.const 1)))",
        "(table.copy $table $table (i32.const 1) (i32.const 0) (i32.const 1))",
    ),
    (
        "(elem $segment func $one)",
        "(call $say (call_indirect $table (type $number) (i32.const 0)))",
        "(table.init $table $segment (i32.const 0) (i32.const 0) (i32.const 1))",
    ),
    (
        "(elem $segment func $one)",
        "(table.init $table $segment (i32.const 2) (i32.const 0) (i32.const 1))
        (call $say (call_indirect $table (type $number) (i32.const 2)))",
        "(elem.drop $segment)",
    ),
    (
        "(global $g (mut i32) (i32.const 0)) (func $begin (global.set $g (i32.const 5))) (start $begin)",
        "(call $say (global.get $g))",
        "(global.set $g (i32.const 6))",
    ),
];

/// Whatever a request changed, the next finds as the module says; also after a request that left by `proc_exit(0)`, and
/// also after one that wrote to much memory besides.
pub fn each_kind_of_state_is_fresh(engine: &dyn Engine) {
    for (declared, read, change) in STATES {
        let much = "(memory.fill (i32.const 2048) (i32.const 7) (i32.const 60000))
            (memory.fill (i32.const 65600) (i32.const 7) (i32.const 65000))";
        for more in ["", much, "(call $proc_exit (i32.const 0))"] {
            let bytes = command(&format!(
                r#"(type $number (func (result i32)))
                    (table $table 4 funcref)
                    (elem (table $table) (i32.const 0) func $zero $two)
                    (elem declare func $one)
                    (func $zero (result i32) (i32.const 0))
                    (func $one (result i32) (i32.const 1))
                    (func $two (result i32) (i32.const 2))
                    {declared}
                    (func (export "_start") {read} {change} {more})"#
            ));
            let compiled = compile(engine, &bytes);
            if let (Err(PrepareError::Unsupported(reason)), true) = (&compiled, declared.contains("v128")) {
                println!("skipped: a global of SIMD, by {}: {reason}", engine.name());
                continue;
            }
            let artefact = compiled.unwrap_or_else(|error| panic!("compiling failed: {error}"));
            let image = load(engine, &artefact).unwrap_or_else(|error| panic!("loading failed: {error}"));
            ticking(engine, || {
                let first = answer(&image, &grant(), b"");
                assert!(!first.is_empty(), "{read} says something");
                for _ in 0..5 {
                    assert_eq!(answer(&image, &grant(), b""), first, "after {change}");
                }
            });
        }
    }
}

/// A guest that adds up its memory, says the sum, and then writes where and how the request says.
const WRITES: &str = r#"
    (data (i32.const 20000) "\01\02\03\04 in a page of its own")
    (data (i32.const 300000) "and another")
    (func $sum (result i64) (local $at i32) (local $sum i64)
        (local.set $at (i32.const 64))
        (loop $next
            (local.set $sum (i64.add (i64.mul (local.get $sum) (i64.const 31)) (i64.load (local.get $at))))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (br_if $next (i32.lt_u (local.get $at) (i32.mul (memory.size) (i32.const 65536)))))
        (local.get $sum))
    (func (export "_start") (local $how i32) (local $at i32) (local $round i32)
        (call $number (i32.const 1) (call $sum))
        (drop (call $read (i32.const 16) (i32.const 2)))
        (local.set $how (i32.load8_u (i32.const 16)))
        ;; The pages from 16 KiB on: those before have written pages in every request.
        (local.set $at (i32.add (i32.const 17000) (i32.mul (i32.load8_u (i32.const 17)) (i32.const 4096))))
        (if (i32.eq (local.get $how) (i32.const 115)) ;; s: a store
            (then (i32.store (local.get $at) (i32.const -1))))
        (if (i32.eq (local.get $how) (i32.const 102)) ;; f: a fill of three pages
            (then (memory.fill (local.get $at) (i32.const 255) (i32.const 9000))))
        (if (i32.eq (local.get $how) (i32.const 99)) ;; c: a copy into the next page
            (then (memory.copy (i32.add (local.get $at) (i32.const 3000)) (i32.const 20000) (i32.const 4))
                (memory.copy (local.get $at) (i32.const 20000) (i32.const 4000))))
        (if (i32.eq (local.get $how) (i32.const 114)) ;; r: a host call
            (then (drop (call $random_get (local.get $at) (i32.const 5000)))))
        (if (i32.eq (local.get $how) (i32.const 105)) ;; i: another one
            (then (drop (call $read (local.get $at) (i32.const 5000)))))
        (if (i32.eq (local.get $how) (i32.const 103)) ;; g: a memory that grew
            (then (i32.store (local.get $at) (i32.const -1))
                (i32.store (i32.mul (memory.grow (i32.const 1)) (i32.const 65536)) (i32.const -1))))
        (if (i32.eq (local.get $how) (i32.const 97)) ;; a: all of it
            (then (memory.fill (i32.const 64) (i32.const 255) (i32.const 524000))))
        (if (i32.eq (local.get $how) (i32.const 116)) ;; t: before a trap
            (then (i32.store (local.get $at) (i32.const -1)) (unreachable)))
        (if (i32.eq (local.get $how) (i32.const 111)) ;; o: before a store beyond the end
            (then (i32.store (local.get $at) (i32.const -1)) (i32.store (i32.const -65536) (i32.const 1))))
        (if (i32.eq (local.get $how) (i32.const 119)) ;; w: before and after a wait
            (then (i32.store (local.get $at) (i32.const -1))
                (i32.store (i32.const 1040) (i32.const 1))
                (i64.store (i32.const 1048) (i64.const 2000000))
                (drop (call $poll_oneoff (i32.const 1024) (i32.const 1200) (i32.const 1) (i32.const 1300)))
                (i32.store (i32.add (local.get $at) (i32.const 4096)) (i32.const -1))))
        (if (i32.eq (local.get $how) (i32.const 98)) ;; b: all along, through several turns
            (then (loop $more
                (i32.store (i32.add (local.get $at) (i32.and (local.get $round) (i32.const 32764))) (i32.const -1))
                (local.set $round (i32.add (local.get $round) (i32.const 1)))
                (br_if $more (i32.lt_u (local.get $round) (i32.const 4000000)))))))
"#;

/// Requests that write to the same pages, and between them others that write elsewhere in one of the ways there are: each
/// finds the memory as the module says.
pub fn memory_is_fresh_whichever_pages_were_written(engine: &dyn Engine) {
    let code = with_memory(r#"(memory (export "memory") 8)"#, WRITES);
    ticking(engine, || {
        for (seed, ways) in [&b"sfcri"[..], b"sgatowb", b"ssssssssri", b"wsotf"]
            .iter()
            .enumerate()
        {
            let image = image(engine, &code);
            let first = answer(&image, &grant(), b"n");
            let mut state = seed as u32;
            let mut random = |below: usize| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 16) as usize % below
            };
            for request in 0..120 {
                // Runs of requests that write nothing unusual, of many lengths.
                let way = if random(4) == 0 {
                    ways[random(ways.len())]
                } else {
                    b'n'
                };
                let mut body = vec![way, random(100) as u8];
                body.resize(4_000, 0xee);
                let (ended, said) = serve(&image, &grant(), &body);
                match way {
                    b't' | b'o' => assert!(ended.is_err(), "{} traps", char::from(way)),
                    _ => {
                        ended.expect("it ends");
                        assert_eq!(
                            said,
                            first,
                            "request {request} of {}",
                            String::from_utf8_lossy(ways)
                        );
                    }
                }
            }
        }
    });
}

/// Sandboxes that take turns keep what they wrote, and read nothing that another wrote.
pub fn sandboxes_do_not_see_each_other(engine: &dyn Engine) {
    let image = image(
        engine,
        &start(
            "(local $letter i32) (local $round i32) (local $at i32)
            (local.set $letter (call $letter))
            (drop (memory.grow (i32.const 14)))
            (memory.fill (i32.const 1024) (local.get $letter) (i32.const 1047552))
            (loop $again
                (local.set $at (i32.const 1024))
                (loop $next
                    (if (i32.ne (i32.load8_u (local.get $at)) (local.get $letter)) (then (unreachable)))
                    (local.set $at (i32.add (local.get $at) (i32.const 1)))
                    (br_if $next (i32.lt_u (local.get $at) (i32.const 1048576))))
                (local.set $round (i32.add (local.get $round) (i32.const 1)))
                (br_if $again (i32.lt_u (local.get $round) (i32.const 20))))
            (call $print (i32.const 1048575) (i32.const 1))",
        ),
    );
    ticking(engine, || {
        let mut running: Vec<_> = (b'a'..b'i')
            .map(|letter| (letter, Running::spawn(&image, &grant(), &[letter])))
            .collect();
        let (mut ended, mut turns) = (0, 0);
        while !running.is_empty() {
            running.retain_mut(|(letter, running)| {
                turns += 1;
                let Some(end) = running.turn() else { return true };
                end.expect("it answers");
                assert_eq!(running.said().text(), char::from(*letter).to_string());
                ended += 1;
                false
            });
        }
        assert!(ended == 8 && turns > 8, "they took {turns} turns");
    });
}

/// Arguments and environment are the grant's and the request's; nothing of the host is there.
pub fn only_the_grant_and_the_request_are_visible(engine: &dyn Engine) {
    let image = image(
        engine,
        &start(
            r"(drop (call $args_sizes_get (i32.const 1024) (i32.const 1028)))
            (drop (call $args_get (i32.const 2048) (i32.const 4096)))
            (call $print (i32.const 4096) (i32.load (i32.const 1028)))
            (i32.store8 (i32.const 1100) (i32.const 10))
            (call $print (i32.const 1100) (i32.const 1))
            (drop (call $environ_sizes_get (i32.const 1024) (i32.const 1028)))
            (drop (call $environ_get (i32.const 2048) (i32.const 4096)))
            (call $print (i32.const 4096) (i32.load (i32.const 1028)))",
        ),
    );
    let grant = Grant {
        arguments: vec!["--fast".to_owned(), "two words".to_owned()],
        environment: vec![("LEVEL".to_owned(), "3".to_owned())],
        ..grant()
    };
    let text = ticking(engine, || answer(&image, &grant, b"body"));
    let (arguments, environment) = text.split_once('\n').expect("two lists");
    assert_eq!(arguments, "guest\0--fast\0two words\0");
    let variables: Vec<_> = environment
        .split_terminator('\0')
        .filter_map(|text| text.split_once('='))
        .collect();
    for expected in [
        ("LEVEL", "3"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("REQUEST_METHOD", "POST"),
        ("SCRIPT_NAME", "/function/guest"),
        ("PATH_INFO", "/path info"),
        ("QUERY_STRING", "query=1"),
        ("CONTENT_TYPE", "text/plain"),
        ("CONTENT_LENGTH", "4"),
        ("SERVER_NAME", "suite.example"),
        ("HTTP_X_SUITE", "yes"),
        ("MILLPOND_FUNCTION", "suite.guest"),
    ] {
        assert!(variables.contains(&expected), "{expected:?} is in {variables:?}");
    }
    let others: Vec<_> = variables
        .iter()
        .filter(|(name, _)| *name != "LEVEL" && !is_reserved_variable(name))
        .collect();
    assert!(
        others.is_empty(),
        "neither the manifest nor the request says {others:?}"
    );
}

/// No two sandboxes get the same random bytes.
pub fn random_bytes_differ(engine: &dyn Engine) {
    let image = image(
        engine,
        &start(
            "(drop (call $random_get (i32.const 1024) (i32.const 16)))
            (call $number (i32.const 1) (i64.load (i32.const 1024)))
            (call $number (i32.const 1) (i64.load (i32.const 1032)))",
        ),
    );
    ticking(engine, || {
        let seen: HashSet<_> = (0..50).map(|_| answer(&image, &grant(), b"")).collect();
        assert_eq!(seen.len(), 50);
    });
}

/// Leaving with a code other than 0 fails, also from deep inside; with 0 it answers what was written.
pub fn an_exit_code_is_a_fault(engine: &dyn Engine) {
    for (code, expected) in [(3, Some(3)), (0, None), (-1, Some(-1)), (256, Some(256))] {
        let image = image(
            engine,
            &command(&format!(
                r#"(func $inner (call $proc_exit (i32.const {code})) (unreachable))
                (func (export "_start") (call $say (i32.const 7)) (call $inner) (unreachable))"#
            )),
        );
        ticking(engine, || match expected {
            Some(code) => assert_eq!(fault(&image, &grant(), b""), Fault::Exit { code }),
            None => assert_eq!(answer(&image, &grant(), b""), "7 "),
        });
    }
}

/// What Wasm forbids ends the guest, not the host, and the next request finds all in order.
pub fn a_trap_is_a_fault(engine: &dyn Engine) {
    for body in [
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
    ] {
        let image = image(
            engine,
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
        ticking(engine, || {
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
pub fn endless_recursion_overflows_the_stack(engine: &dyn Engine) {
    let image = image(
        engine,
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
    ticking(engine, || {
        for _ in 0..10 {
            assert_eq!(fault(&image, &grant(), b"r"), Fault::StackOverflow);
            assert_eq!(answer(&image, &grant(), b"-"), "500500 ");
        }
    });
}

/// A loop without an end gives its core back again and again, others run in between, and dropping it is enough.
pub fn an_endless_loop_is_preempted_and_can_be_dropped(engine: &dyn Engine) {
    let (spin, echo) = (image(engine, &start(SPIN)), echo(engine));
    ticking(engine, || {
        let mut spinning: Vec<_> = (0..3).map(|_| Running::spawn(&spin, &grant(), b"")).collect();
        for round in 0..5 {
            for running in &mut spinning {
                preempt(running, 1);
                assert_eq!(
                    answer(&echo, &grant(), &[b'a' + round]),
                    char::from(b'a' + round).to_string()
                );
            }
        }
        drop(spinning);
        assert_eq!(answer(&echo, &grant(), b"after"), "after");
    });
}

/// Its quantum need not be over for that; and what was asked in another turn does not count.
pub fn a_guest_that_is_asked_for_its_core_gives_it_back(engine: &dyn Engine) {
    engine.seat(CoreId(0)).expect("a thread can be a core's");
    let mut running = Running::spawn(&image(engine, &start(SPIN)), &grant(), b"");
    let at = Instant::now() + Duration::from_secs(3600);
    for _ in 0..3 {
        let asked = AtomicBool::new(false);
        let until = Until { at, asked: &asked };
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                asked.store(true, Ordering::SeqCst);
                engine.preempt(CoreId(0));
            });
            let step = running.step_until(until);
            assert!(
                matches!(step, Step::Preempted),
                "it should be preempted, but: {step:?}"
            );
            assert!(asked.load(Ordering::SeqCst), "nobody asked for that");
        });
    }
}

/// A compiler must not think that a function that it does not know leaves a module's state alone.
pub fn who_is_called_by_a_table_sees_globals_and_memory(engine: &dyn Engine) {
    let image = image(
        engine,
        &command(
            r#"
            (type $unary (func (param i32) (result i32)))
            (table 4 funcref)
            (elem (i32.const 1) $twice $deeper)
            (global $depth (mut i32) (i32.const 4096))
            (func $twice (param $n i32) (result i32)
                (i32.store (global.get $depth) (local.get $n))
                (i32.mul (local.get $n) (i32.const 2)))
            ;; As code with a stack of its own in memory does.
            (func $deeper (param $n i32) (result i32)
                (local $frame i32)
                (global.set $depth (local.tee $frame (i32.sub (global.get $depth) (i32.const 16))))
                (i64.store offset=8 (local.get $frame) (i64.const 5))
                (local.set $n (call_indirect (type $unary)
                    (local.get $n)
                    (i32.add (i32.const 1) (i32.gt_u (local.get $n) (i32.const 100)))))
                (local.set $n (i32.add (local.get $n) (i32.load offset=8 (local.get $frame))))
                (global.set $depth (i32.add (local.get $frame) (i32.const 16)))
                (local.get $n))
            (func (export "_start")
                (local $n i32)
                (local.set $n (call_indirect (type $unary) (call $letter) (i32.const 2)))
                (call $say (local.get $n))
                (call $say (global.get $depth))
                (call $say (i32.load (i32.const 4080)))
                (call $say (i32.load (i32.const 4088))))
            "#,
        ),
    );
    assert_eq!(answer(&image, &grant(), b"a"), "199 4096 97 5 ");
}

/// Integers, floating-point numbers, locals and memory survive being preempted, among many that take turns.
pub fn a_preempted_computation_comes_out_right(engine: &dyn Engine) {
    const ROUNDS: u32 = 10_000_000;
    let image = image(
        engine,
        &start(&format!(
            "(local $n i32) (local $mix i64) (local $sum f64) (local $step f32)
            (local.set $mix (i64.extend_i32_u (call $letter)))
            (local.set $step (f32.convert_i64_u (local.get $mix)))
            (loop $next
                (local.set $mix (i64.add
                    (i64.mul (local.get $mix) (i64.const 6364136223846793005))
                    (i64.const 1442695040888963407)))
                (local.set $sum (f64.add
                    (f64.mul (local.get $sum) (f64.const 0.5))
                    (f64.promote_f32 (f32.mul (local.get $step) (f32.convert_i32_u (local.get $n))))))
                (i64.store (i32.const 2048) (i64.xor (i64.load (i32.const 2048)) (local.get $mix)))
                (local.set $n (i32.add (local.get $n) (i32.const 1)))
                (br_if $next (i32.lt_u (local.get $n) (i32.const {ROUNDS}))))
            (call $number (i32.const 1) (local.get $mix))
            (call $number (i32.const 1) (i64.reinterpret_f64 (local.get $sum)))
            (call $number (i32.const 1) (i64.load (i32.const 2048)))",
        )),
    );
    let expected = |letter: u8| {
        let (mut mix, mut sum, mut all) = (u64::from(letter), 0.0_f64, 0);
        for n in 0..ROUNDS {
            mix = mix
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            #[expect(clippy::cast_precision_loss, reason = "as f32.convert_i32_u does")]
            let n = n as f32;
            sum = sum * 0.5 + f64::from(f32::from(letter) * n);
            all ^= mix;
        }
        format!("{mix} {} {all} ", sum.to_bits())
    };
    ticking(engine, || {
        let mut running: Vec<_> = (b'a'..b'm')
            .map(|letter| (letter, Running::spawn(&image, &grant(), &[letter])))
            .collect();
        let mut preempted = 0;
        while !running.is_empty() {
            running.retain_mut(|(letter, running)| {
                let Some(end) = running.turn() else { return true };
                end.expect("it answers");
                assert_eq!(running.said().text(), expected(*letter));
                preempted += running.preempted;
                false
            });
        }
        assert!(preempted > 0, "120 million rounds take longer than a quantum");
    });
}

/// Code that runs before `_start` is untrusted, too.
pub fn an_endless_start_section_is_preempted(engine: &dyn Engine) {
    let section = |body: &str| {
        command(&format!(
            r#"(func $section {body}) (start $section) (func (export "_start") (call $say (i32.const 1)))"#
        ))
    };
    let spin = image(engine, &section(SPIN));
    let trap = image(engine, &section("(unreachable)"));
    let write = image(engine, &section("(call $say (i32.const 0))"));
    ticking(engine, || {
        let mut running = Running::spawn(&spin, &grant(), b"");
        preempt(&mut running, 3);
        drop(running);
        assert!(matches!(fault(&trap, &grant(), b""), Fault::Trap { .. }));
        assert_eq!(answer(&write, &grant(), b""), "0 1 ");
    });
}

/// Memory grows up to the grant's limit, page by page or at once; beyond it `memory.grow` answers -1.
pub fn memory_grows_to_its_limit_and_no_further(engine: &dyn Engine) {
    let growing = image(
        engine,
        &start(
            "(local $last i32)
            (loop $more (br_if $more (i32.ge_s (memory.grow (i32.const 1)) (i32.const 0))))
            (call $say (memory.size))
            (local.set $last (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 4)))
            (i32.store (local.get $last) (i32.const 5))
            (call $say (i32.load (local.get $last)))",
        ),
    );
    let greedy = image(
        engine,
        &start(
            "(call $say (i32.add (memory.grow (i32.const 65000)) (i32.const 1)))
            (call $say (i32.add (memory.grow (i32.const -1)) (i32.const 1)))
            (call $say (memory.size))
            (call $say (memory.grow (i32.const 62)))
            (call $say (memory.size))",
        ),
    );
    let modest = image(
        engine,
        &with_memory(
            r#"(memory (export "memory") 1 3)"#,
            r#"(func (export "_start")
                (call $say (memory.grow (i32.const 2)))
                (call $say (i32.add (memory.grow (i32.const 1)) (i32.const 1))))"#,
        ),
    );
    ticking(engine, || {
        for _ in 0..3 {
            assert_eq!(answer(&growing, &grant(), b""), "64 5 ");
            assert_eq!(answer(&greedy, &grant(), b""), "0 0 2 2 64 ");
            assert_eq!(answer(&modest, &grant(), b""), "1 0 ");
        }
        // The limit is the grant's, not the image's.
        let limits = Limits {
            memory: ByteSize(10 << 16),
            ..grant().limits
        };
        assert_eq!(answer(&growing, &Grant { limits, ..grant() }, b""), "10 5 ");
    });
}

/// A guest that was refused memory and then failed is told to its owner as out of memory.
pub fn a_failure_after_refused_memory_says_so(engine: &dyn Engine) {
    for (failure, grows) in [
        ("(unreachable)", true),
        ("(call $proc_exit (i32.const 1))", true),
        ("(unreachable)", false),
    ] {
        let grow = if grows {
            "(drop (memory.grow (i32.const 63)))"
        } else {
            "(drop (memory.grow (i32.const 62)))"
        };
        let image = image(engine, &start(&format!("{grow} {failure}")));
        ticking(engine, || match fault(&image, &grant(), b"") {
            Fault::OutOfMemory { limit, reason } if grows => {
                assert_eq!(limit, MEMORY);
                assert!(!reason.is_empty());
            }
            Fault::Trap { .. } if !grows => {}
            other => panic!("{grow} {failure} ended with: {other}"),
        });
    }
}

/// A module that needs more than its limit to begin with never runs, and whoever says so names the limit.
pub fn memory_beyond_the_limit_from_the_beginning_is_refused(engine: &dyn Engine) {
    let start = r#"(func (export "_start") (call $say (i32.const 1)))"#;
    for pages in [65, 4096, 65536] {
        let code = with_memory(&format!(r#"(memory (export "memory") {pages})"#), start);
        let image = match compile(engine, &code) {
            // Some engines have a limit of their own.
            Err(PrepareError::Unsupported(reason)) if pages == 65536 => {
                assert!(reason.contains("memory"), "{reason}");
                continue;
            }
            other => load(engine, &other.expect("it compiles")).expect("it loads"),
        };
        let (input, recorder) = input(b"");
        let limit = MEMORY.to_string();
        match image.spawn(&Arc::new(grant()), input) {
            Err(SpawnError::Failed { reason }) => assert!(reason.contains(&limit), "{reason} names {limit}"),
            Err(SpawnError::Exhausted(_)) => panic!("it is not the place that is missing"),
            Ok(sandbox) => match ticking(engine, || Running::new(sandbox, recorder.clone()).finish()) {
                Err((Fault::OutOfMemory { limit, .. }, _)) => assert_eq!(limit, MEMORY),
                other => panic!("{pages} pages at the beginning ended with: {other:?}"),
            },
        }
        assert!(recorder.record().head.is_none());
    }
}

/// Output ends at its limit, and not before.
pub fn endless_output_is_ended(engine: &dyn Engine) {
    let endless = image(
        engine,
        &start("(loop $more (call $print (i32.const 0) (i32.const 65536)) (br $more))"),
    );
    let echo = echo(engine);
    ticking(engine, || {
        assert_eq!(
            fault(&endless, &grant(), b""),
            Fault::OutputTooLarge { limit: RESPONSE_BODY }
        );
        let body = vec![b'x'; RESPONSE_BODY.bytes() + 1];
        assert_eq!(answer(&echo, &grant(), &body[1..]).len(), RESPONSE_BODY.bytes());
        assert_eq!(
            fault(&echo, &grant(), &body),
            Fault::OutputTooLarge { limit: RESPONSE_BODY }
        );
    });
}

/// What was written before `fd_close` is the response; later writes are told that the descriptor is bad.
pub fn a_closed_output_stays_closed(engine: &dyn Engine) {
    let image = image(
        engine,
        &start(
            "(call $say (i32.const 1))
            (call $number (i32.const 2) (i64.extend_i32_u (call $fd_close (i32.const 1))))
            (call $number (i32.const 2) (i64.extend_i32_u (call $write (i32.const 1) (i32.const 0) (i32.const 9))))
            (call $number (i32.const 2) (i64.extend_i32_u (call $fd_close (i32.const 1))))",
        ),
    );
    ticking(engine, || {
        let mut running = Running::spawn(&image, &grant(), b"");
        running.finish().expect("it answers");
        let record = running.said().record();
        assert_eq!(
            (record.body.as_slice(), record.log.as_slice()),
            (&b"1 "[..], &b"0 8 8 "[..])
        );
    });
}

/// Standard error goes to the log as it is written, whatever becomes of the guest.
pub fn standard_error_reaches_the_log(engine: &dyn Engine) {
    for end in ["", "(unreachable)", SPIN] {
        let image = image(
            engine,
            &start(&format!("(call $number (i32.const 2) (i64.const 12345)) {end}")),
        );
        ticking(engine, || {
            let mut running = Running::spawn(&image, &grant(), b"");
            if end == SPIN {
                preempt(&mut running, 1);
            } else {
                assert_eq!(running.finish().is_ok(), end.is_empty());
            }
            assert_eq!(running.said().record().log, b"12345 ");
        });
    }
}

/// With the CGI protocol, output begins with a header; output without one is a fault.
pub fn a_cgi_response_is_told_apart(engine: &dyn Engine) {
    let grant = Grant {
        protocol: Protocol::Cgi,
        ..grant()
    };
    let echo = echo(engine);
    ticking(engine, || {
        let mut running = Running::spawn(
            &echo,
            &grant,
            b"Status: 404 Not Found\nContent-Type: text/html\n\n<p>",
        );
        running.finish().expect("it answers");
        let record = running.said().record();
        let head = record.head.as_ref().expect("a head");
        assert_eq!((head.status, record.body.as_slice()), (404, &b"<p>"[..]));
        assert_eq!(head.headers, [("Content-Type".into(), "text/html".into())]);
        for wrong in [
            "",
            "hello",
            "Content-Type: text/plain\nTransfer-Encoding: chunked\n\n",
        ] {
            assert!(
                matches!(fault(&echo, &grant, wrong.as_bytes()), Fault::BadOutput { .. }),
                "{wrong}"
            );
        }
    });
}

/// Pointers outside of the guest's memory are answered with `EFAULT` (21), and the guest goes on.
pub fn hostile_pointers_are_answered(engine: &dyn Engine) {
    let calls = [
        "(call $write (i32.const 1) (i32.const -1) (i32.const 1))",
        "(call $write (i32.const 1) (i32.const 131071) (i32.const 2))",
        "(call $write (i32.const 1) (i32.const 1) (i32.const -1))",
        "(call $fd_write (i32.const 1) (i32.const 131069) (i32.const 1) (i32.const 8))",
        "(call $fd_write (i32.const 1) (i32.const -4) (i32.const -1) (i32.const 8))",
        "(call $fd_write (i32.const 1) (i32.const 64) (i32.const 0) (i32.const 131069))",
        "(call $fd_read (i32.const 0) (i32.const -8) (i32.const 1) (i32.const 8))",
        "(call $random_get (i32.const 131071) (i32.const 2))",
        "(call $environ_get (i32.const -1) (i32.const -1))",
        "(call $args_sizes_get (i32.const 131070) (i32.const 0))",
        "(call $poll_oneoff (i32.const -8) (i32.const 64) (i32.const 1) (i32.const 8))",
        "(call $poll_oneoff (i32.const 64) (i32.const -8) (i32.const 1) (i32.const 8))",
    ];
    let body: String = calls.iter().map(|call| format!("(call $say {call})")).collect();
    let image = image(engine, &start(&body));
    ticking(engine, || {
        assert_eq!(answer(&image, &grant(), b"input"), "21 ".repeat(calls.len()))
    });
}

/// A guest that sleeps for 20 ms, then says how many events there were.
fn sleeper(engine: &dyn Engine) -> Arc<dyn Image> {
    image(
        engine,
        &start(
            "(i32.store (i32.const 1040) (i32.const 1))
            (i64.store (i32.const 1048) (i64.const 20000000))
            (call $say (call $poll_oneoff (i32.const 1024) (i32.const 2048) (i32.const 1) (i32.const 3000)))
            (call $say (i32.load (i32.const 3000)))",
        ),
    )
}

/// Sleeping is [`Step::Waiting`]: others run meanwhile, running it early is harmless, and it ends in time.
pub fn a_sleeping_guest_leaves_its_core(engine: &dyn Engine) {
    let (sleeper, echo) = (sleeper(engine), echo(engine));
    ticking(engine, || {
        let before = Instant::now();
        let mut running = Running::spawn(&sleeper, &grant(), b"");
        while running.waited == 0 {
            let step = running.step();
            assert!(matches!(step, Step::Waiting { .. } | Step::Preempted), "{step:?}");
        }
        assert_eq!(answer(&echo, &grant(), b"meanwhile"), "meanwhile");
        let end = running.turn().unwrap_or_else(|| running.finish());
        end.expect("it answers");
        assert!(before.elapsed() >= Duration::from_millis(20), "it slept");
        assert_eq!(running.said().text(), "0 1 ");
        // Many at once, each woken on its own.
        let mut many: Vec<_> = (0..20).map(|_| Running::spawn(&sleeper, &grant(), b"")).collect();
        for running in &mut many {
            assert!(running.turn().is_none());
        }
        for running in &mut many {
            running.finish().expect("it answers");
            assert_eq!(running.said().text(), "0 1 ");
        }
    });
}

/// Dropped before its first turn, when preempted, waiting, done or failed, a sandbox gives all back.
pub fn a_sandbox_can_be_dropped_at_any_step(engine: &dyn Engine) {
    let (spin, echo, sleeper) = (image(engine, &start(SPIN)), echo(engine), sleeper(engine));
    let trap = image(engine, &start("(unreachable)"));
    ticking(engine, || {
        // More than an engine has places, so that one that is not given back is missed.
        for _ in 0..3000 {
            drop(Running::spawn(&echo, &grant(), b""));
        }
        for _ in 0..20 {
            preempt(&mut Running::spawn(&spin, &grant(), b""), 1);
        }
        for _ in 0..300 {
            let mut running = Running::spawn(&sleeper, &grant(), b"");
            while running.waited == 0 {
                let _ = running.step();
            }
            drop(running);
            assert!(matches!(fault(&trap, &grant(), b""), Fault::Trap { .. }));
            assert_eq!(answer(&echo, &grant(), b"x"), "x");
        }
    });
}

/// Sixty-four that are in the middle of something, and each goes on as if alone.
pub fn many_sandboxes_live_at_once(engine: &dyn Engine) {
    let (sleeper, echo) = (sleeper(engine), echo(engine));
    ticking(engine, || {
        let mut sleeping: Vec<_> = (0..64).map(|_| Running::spawn(&sleeper, &grant(), b"")).collect();
        for running in &mut sleeping {
            let _ = running.step();
        }
        for n in 0..64_u32 {
            assert_eq!(answer(&echo, &grant(), n.to_string().as_bytes()), n.to_string());
        }
        for running in &mut sleeping {
            running.finish().expect("it answers");
        }
    });
}

/// An image is spawned and run on several threads at once.
pub fn an_image_serves_several_threads(engine: &dyn Engine) {
    let echo = echo(engine);
    ticking(engine, || {
        thread::scope(|scope| {
            for thread in 0..4_u32 {
                let echo = &echo;
                scope.spawn(move || {
                    for n in 0..200_u32 {
                        let body = format!("{thread} {n}");
                        assert_eq!(answer(echo, &grant(), body.as_bytes()), body);
                    }
                });
            }
        });
    });
}

/// Where `reuse` is offered, the next request finds the memory of the last; where not, the input comes back whole.
pub fn a_renewed_sandbox_keeps_its_memory(engine: &dyn Engine) {
    let image = image(
        engine,
        &command(
            r#"(global $counter (mut i32) (i32.const 0))
            (func (export "_start")
                (global.set $counter (i32.add (global.get $counter) (i32.const 1)))
                (call $say (global.get $counter))
                (call $print (i32.const 1024) (call $read (i32.const 1024) (i32.const 100))))"#,
        ),
    );
    ticking(engine, || {
        let mut running = Running::spawn(&image, &grant(), b"first");
        running.finish().expect("it answers");
        assert_eq!(running.said().text(), "1 first");
        for (count, body) in [(2, "second"), (3, "third")] {
            match running.renew(body.as_bytes()) {
                Ok(()) => {
                    running.finish().expect("it answers");
                    assert_eq!(running.said().text(), format!("{count} {body}"));
                }
                Err(Input {
                    body: Body::Whole(back),
                    ..
                }) => assert_eq!(back, body.as_bytes()),
                Err(input) => panic!("it comes back as {input:?}"),
            }
        }
        // Whatever was kept is not kept for others.
        assert_eq!(answer(&image, &grant(), b"other"), "1 other");
    });
}

/// Usage tells when the code began and how large its memory became.
pub fn usage_is_told(engine: &dyn Engine) {
    let image = image(
        engine,
        &start(
            "(drop (memory.grow (i32.const 8))) (if (i32.eq (call $letter) (i32.const 116)) (then (unreachable)))",
        ),
    );
    ticking(engine, || {
        for body in [b"-", b"t"] {
            let before = Instant::now();
            let usage = match serve(&image, &grant(), body) {
                (Ok(usage), _) if body == b"-" => usage,
                (Err((Fault::Trap { .. }, usage)), _) if body == b"t" => usage,
                other => panic!("it ended with {other:?}"),
            };
            let started = usage.started.expect("it began");
            assert!((before..=Instant::now()).contains(&started));
            assert_eq!(usage.memory, 10 << 16);
        }
    });
}

/// What is not a module, or wants what is not offered, is refused when it is compiled, in words that name it.
pub fn code_that_cannot_run_is_refused(engine: &dyn Engine) {
    let good = start("(call $say (i32.const 1))");
    let malformed = |bytes: &[u8], what: &str| match compile(engine, bytes) {
        Err(PrepareError::Malformed(reason)) => assert!(!reason.is_empty()),
        other => panic!(
            "{what} should be malformed, but: {:?}",
            other.map(|artefact| artefact.len())
        ),
    };
    malformed(b"", "nothing");
    malformed(b"\x7fELF\x02\x01\x01", "an ELF header");
    malformed(b"#!/bin/sh\n", "a script");
    for length in [3, 4, 7, 9, good.len() / 2, good.len() - 1] {
        malformed(&good[..length], "a part of a module");
    }
    // Stack underflow, a type that is not there, a call to nothing.
    malformed(
        &wasm(r#"(module (func (export "_start") drop) (memory (export "memory") 1))"#),
        "an invalid function",
    );
    malformed(
        b"\0asm\x01\0\0\0\x03\x02\x01\x07\x0a\x04\x01\x02\0\x0b",
        "a function of a type that is not there",
    );

    let refused = |text: &str, named: &str| match compile(engine, &wasm(text)) {
        Err(PrepareError::Unsupported(reason) | PrepareError::Malformed(reason)) => {
            assert!(
                reason.to_lowercase().contains(named),
                "{text}: `{reason}` names {named}"
            );
        }
        Err(other) => panic!("{text} should be unsupported, but: {other}"),
        Ok(_) => panic!("{text} should be unsupported, but it compiled"),
    };
    const MEMORY: &str = r#"(memory (export "memory") 1)"#;
    const START: &str = r#"(func (export "_start"))"#;
    let wasi = r#"import "wasi_snapshot_preview1""#;
    refused("(component)", "component");
    refused(&format!("(module {MEMORY})"), "_start");
    refused(
        &format!(r#"(module {MEMORY} (func (export "_start") (param i32)))"#),
        "_start",
    );
    refused(
        &format!(r#"(module {MEMORY} (global (export "_start") i32 (i32.const 1)))"#),
        "_start",
    );
    refused(
        &format!(r#"(module (import "env" "thing" (func)) {MEMORY} {START})"#),
        "env",
    );
    refused(
        &format!(r#"(module ({wasi} "fd_teleport" (func)) {MEMORY} {START})"#),
        "fd_teleport",
    );
    refused(
        &format!(r#"(module ({wasi} "fd_close" (func)) {MEMORY} {START})"#),
        "fd_close",
    );
    refused(
        &format!(r#"(module ({wasi} "fd_close" (global i32)) {MEMORY} {START})"#),
        "fd_close",
    );
    refused(
        &format!(r#"(module (import "env" "memory" (memory 1)) {START})"#),
        "env",
    );
    refused(
        &format!(r#"(module (memory (export "memory") i64 1) {START})"#),
        "memory",
    );
}

/// Compiled code loads as often as asked; bytes that no engine made do not load.
pub fn compiled_code_loads_and_other_bytes_do_not(engine: &dyn Engine) {
    assert!(!engine.name().is_empty() && !engine.fingerprint().is_empty());
    let artefact = compile(engine, &start("(call $say (i32.const 1))")).expect("it compiles");
    ticking(engine, || {
        let images = [
            load(engine, &artefact).expect("it loads"),
            load(engine, &artefact).expect("it loads again"),
        ];
        for image in &images {
            assert_eq!(answer(image, &grant(), b""), "1 ");
        }
        // What runs outlives the image that it was spawned from.
        let mut running = Running::spawn(&images[0], &grant(), b"");
        drop(images);
        running.finish().expect("it answers");
    });
    for garbage in [
        &b""[..],
        b"garbage",
        &[0; 4096],
        b"\x7fELF\x02\x01\x01\0 and no more",
        b"\0asm\x01\0\0\0",
    ] {
        match load(engine, garbage) {
            Err(PrepareError::Artefact(reason)) => assert!(!reason.is_empty()),
            Err(other) => panic!("it should not load as an artefact, but: {other}"),
            Ok(_) => panic!("{} bytes of garbage load", garbage.len()),
        }
    }
}
