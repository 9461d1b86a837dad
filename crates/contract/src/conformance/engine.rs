//! The suite of [`Engine`], [`Image`] and [`Sandbox`](crate::Sandbox), for engines of WASI 0.1 commands and for those of native executables.
//!
//! Wasm guests are text, so an engine of these needs no toolchain. The calling thread is core 0; a ticker thread calls
//! [`Engine::preempt`] for it every millisecond, as a worker's does. Nothing here depends on how fast the engine is:
//! a case that waits for a preemption runs until it comes.
//!
//! ```ignore
//! #[test]
//! fn conformance() {
//!     contract::conformance::engine::run_all(&Wasmtime::new(&Options::default()).unwrap());
//! }
//! ```
//!
//! # Native code
//!
//! An engine of native code runs the same cases ([`NATIVE`]) with guests that do the same: whoever calls the suite makes an executable
//! from the name of a guest and a variant ([`Guests::Native`]). Where a case expects something else of native code, it says so. Of Wasm alone are
//!
//! - `each_kind_of_state_is_fresh` and `memory_is_fresh_whichever_pages_were_written`: tables, globals, segments, and pages that an engine restores
//!   by itself. A process has what the kernel gives it;
//! - `a_guest_that_is_asked_for_its_core_gives_it_back`, `a_preempted_computation_comes_out_right`, `an_endless_start_section_is_preempted`: native
//!   code runs on no core of ours, and the kernel preempts it;
//! - `who_is_called_by_a_table_sees_globals_and_memory`: that is a compiler's, and here nobody compiles;
//! - `memory_grows_to_its_limit_and_no_further` and `memory_beyond_the_limit_from_the_beginning_is_refused`: the kernel gives memory when it is touched, and
//!   ends who touches too much (`a_failure_after_refused_memory_says_so`);
//! - `hostile_pointers_are_answered`: these are the kernel's to answer;
//! - `nans_are_canonical`, and in vectors: native code gives the bits that the processor does, so of equal inputs two kinds of processors can make
//!   different outputs. That does *not* hold natively.

mod code;
mod faults;
mod fresh;
mod limits;
mod protocol;
mod pure;
mod turns;

use super::guest::{
    Ended, MEMORY, RESPONSE_BODY, Running, compile, compile_as, grant, input, load, ticking, wasm,
};
use crate::{
    Body, ByteSize, CodeKind, CoreId, Engine, Fault, Grant, Image, Input, Limits, PrepareError, Protocol,
    SpawnError, Step, Until, is_reserved_variable,
};
use code::*;
use faults::*;
use fresh::*;
use limits::*;
use protocol::*;
use pure::*;
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
use turns::*;

/// An engine, and where the guests come from that it is tested with.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The engine.
    pub engine: &'a dyn Engine,
    /// The guests.
    pub guests: Guests<'a>,
}

/// See the module.
#[derive(Clone, Copy)]
pub enum Guests<'a> {
    /// The cases' own text.
    Wasm,
    /// An executable, for the name of a guest and its variant.
    Native(&'a dyn Fn(&str, i32) -> Vec<u8>),
}

impl<'a> Subject<'a> {
    /// An engine of WebAssembly.
    pub fn wasm(engine: &'a dyn Engine) -> Self {
        let guests = Guests::Wasm;
        Self { engine, guests }
    }

    fn is_native(&self) -> bool {
        matches!(self.guests, Guests::Native(_))
    }

    /// What there is to be compiled: this module, or the executable of this name and variant.
    fn code(&self, name: &str, variant: i32, module: &[u8]) -> Vec<u8> {
        match self.guests {
            Guests::Wasm => module.to_vec(),
            Guests::Native(find) => find(name, variant),
        }
    }

    fn compile(&self, bytes: &[u8]) -> Result<Vec<u8>, PrepareError> {
        compile_as(self.engine, CodeKind::of(bytes), bytes)
    }

    /// Compiles and loads what must be accepted.
    fn image(&self, name: &str, variant: i32, module: &[u8]) -> Arc<dyn Image> {
        let artefact = self
            .compile(&self.code(name, variant, module))
            .unwrap_or_else(|error| panic!("compiling failed: {error}"));
        load(self.engine, &artefact).unwrap_or_else(|error| panic!("loading failed: {error}"))
    }

    /// Runs a sandbox until it was preempted this often; or, where the kernel preempts, until its code has begun.
    fn preempt(&self, running: &mut Running, times: u32) {
        let times = running.preempted + times;
        while running.preempted < times {
            match running.step() {
                Step::Preempted => {}
                Step::Waiting { .. } if self.is_native() => {
                    if running.usage().started.is_some() {
                        return;
                    }
                    running.rest();
                }
                step => panic!("it should be preempted, but: {step:?}"),
            }
        }
    }
}

/// What some cases take, and what others do: an engine of WebAssembly is a subject, too.
macro_rules! cases {
    (both: $($both:ident),* ; wasm: $($wasm:ident),* $(;)?) => {
        /// All cases, by name, for an engine of WebAssembly.
        pub const CASES: &[(&str, fn(&dyn Engine))] = &[
            $((stringify!($both), |engine| $both(&Subject::wasm(engine))),)*
            $((stringify!($wasm), $wasm),)*
        ];

        /// The cases that native code is held to as well, by name.
        pub const NATIVE: &[(&str, fn(&Subject<'_>))] = &[$((stringify!($both), $both)),*];
    };
}

cases! {
    both: standard_input_becomes_standard_output,
    each_sandbox_is_fresh,
    a_sandbox_shows_nothing_of_those_before_it,
    sandboxes_do_not_see_each_other,
    only_the_grant_and_the_request_are_visible,
    random_bytes_differ,
    an_exit_code_is_a_fault,
    a_trap_is_a_fault,
    endless_recursion_overflows_the_stack,
    an_endless_loop_is_preempted_and_can_be_dropped,
    a_failure_after_refused_memory_says_so,
    endless_output_is_ended,
    a_closed_output_stays_closed,
    standard_error_reaches_the_log,
    a_cgi_response_is_told_apart,
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
    a_structure_without_a_place_is_refused;
    wasm: each_kind_of_state_is_fresh,
    memory_is_fresh_whichever_pages_were_written,
    a_guest_that_is_asked_for_its_core_gives_it_back,
    a_preempted_computation_comes_out_right,
    who_is_called_by_a_table_sees_globals_and_memory,
    an_endless_start_section_is_preempted,
    memory_grows_to_its_limit_and_no_further,
    memory_beyond_the_limit_from_the_beginning_is_refused,
    hostile_pointers_are_answered,
    nans_are_canonical,
    nans_in_vectors_are_canonical;
}

/// Runs every case, printing its name before it begins.
///
/// # Panics
/// At the end, with the names of the cases that are broken.
pub fn run_all(engine: &dyn Engine) {
    let names = CASES.iter().map(|(name, case)| (*name, || case(engine)));
    run(engine, names);
}

/// The same, of native code, but for the cases that `skipped` says something about: why.
///
/// # Panics
/// As [`run_all`].
pub fn run_native(subject: &Subject<'_>, skipped: impl Fn(&str) -> Option<String>) {
    let wanted = NATIVE.iter().filter(|(name, _)| match skipped(name) {
        Some(reason) => {
            println!("skipped: {name}: {reason}");
            false
        }
        None => true,
    });
    run(
        subject.engine,
        wanted.map(|(name, case)| (*name, || case(subject))),
    );
}

fn run<F: FnOnce()>(engine: &dyn Engine, cases: impl Iterator<Item = (&'static str, F)>) {
    let mut broken = Vec::new();
    for (name, case) in cases {
        println!("engine {}: {name}", engine.name());
        if panic::catch_unwind(AssertUnwindSafe(case)).is_err() {
            broken.push(name);
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

fn echo(subject: &Subject<'_>) -> Arc<dyn Image> {
    subject.image(
        "echo",
        0,
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

/// Of a case of Wasm alone.
fn image(engine: &dyn Engine, module: &[u8]) -> Arc<dyn Image> {
    Subject::wasm(engine).image("", 0, module)
}
