//! Modules that are broken, foreign, enormous or mean: each is refused in words that say why, or runs and harms nobody.
//!
//! Three sources: a table written by hand, in which every refusal's text is known; mutations of working commands, by
//! `wasm-mutate` and by flipping bits; and whatever `wasm-smith` makes up. All seeds are fixed. What is accepted is
//! loaded and run with small limits, and after each of them a good guest must still answer.

use contract::{
    ByteSize, Engine, Grant, Image, Limits, PrepareError,
    conformance::guest::{self, Running},
};
use millpond_engine_wasmtime::{Options, Wasmtime};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

/// No case may take this long, compiling included. It is no measure of speed: it turns a hang into a failure.
const WATCHDOG: Duration = Duration::from_secs(120);
/// Turns of a millisecond that an accepted guest gets before it is dropped, as a worker drops one at its `cpu_time`.
const TURNS: u32 = 20;

/// What must become of a module. The text is a part of the error's or the fault's.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// [`PrepareError::Malformed`].
    Malformed(&'static str),
    /// [`PrepareError::Unsupported`].
    Unsupported(&'static str),
    /// Accepted, and ends well.
    Runs,
    /// Accepted, and ends with this fault.
    Faults(&'static str),
    /// Accepted, and does not end.
    Loops,
    /// Refused or accepted, as it comes.
    Any,
}

struct Case {
    name: String,
    fate: Fate,
    bytes: Vec<u8>,
}

/// What did become of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Malformed,
    Unsupported,
    Done,
    Fault,
    Stopped,
}

// --- modules as bytes ------------------------------------------------------------------------------------------------

fn leb(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(n & 0x7f).expect("seven bits");
        n >>= 7;
        if n == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id][..], &leb(content.len() as u64), content].concat()
}

fn module(sections: &[Vec<u8>]) -> Vec<u8> {
    [b"\0asm\x01\0\0\0".to_vec(), sections.concat()].concat()
}

/// `() -> ()`.
fn types() -> Vec<u8> {
    section(1, b"\x01\x60\0\0")
}

/// One function of type 0.
fn functions() -> Vec<u8> {
    section(3, b"\x01\0")
}

fn memories() -> Vec<u8> {
    section(5, b"\x01\0\x01")
}

/// `_start` is function 0, `memory` is memory 0.
fn exports() -> Vec<u8> {
    section(7, b"\x02\x06_start\0\0\x06memory\x02\0")
}

/// One body, its locals included.
fn code(body: &[u8]) -> Vec<u8> {
    section(10, &[b"\x01", &leb(body.len() as u64)[..], body].concat())
}

/// A command whose `_start` has this body, its locals included.
fn command_of(body: &[u8]) -> Vec<u8> {
    module(&[types(), functions(), memories(), exports(), code(body)])
}

// --- modules as text -------------------------------------------------------------------------------------------------

/// A command of WASI 0.2 that calls the host, holds a handle and answers nothing.
const COMPONENT: &str = r#"(component
    (import "wasi:io/poll@0.2.0" (instance $poll (export "pollable" (type (sub resource)))))
    (alias export $poll "pollable" (type $pollable))
    (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
        (alias outer 1 $pollable (type $its))
        (export "pollable" (type (eq $its)))
        (export "subscribe-duration" (func (param "when" u64) (result (own 1))))))
    (import "wasi:random/random@0.2.0" (instance $random (export "get-random-u64" (func (result u64)))))
    (core func $number (canon lower (func $random "get-random-u64")))
    (core func $after (canon lower (func $clock "subscribe-duration")))
    (core func $drop (canon resource.drop $pollable))
    (core module $module
        (import "host" "number" (func $number (result i64)))
        (import "host" "after" (func $after (param i64) (result i32)))
        (import "host" "drop" (func $drop (param i32)))
        (memory 1)
        (table 4 funcref)
        (func (export "run") (result i32)
            (i64.store (i32.const 8) (call $number))
            (call $drop (call $after (i64.const 1)))
            (i32.const 0)))
    (core instance $instance (instantiate $module (with "host" (instance
        (export "number" (func $number)) (export "after" (func $after)) (export "drop" (func $drop))))))
    (func $run (result (result)) (canon lift (core func $instance "run")))
    (instance $command (export "run" (func $run)))
    (export "wasi:cli/run@0.2.3" (instance $command)))"#;

/// A module with a good memory and `_start`, and these fields.
fn command(fields: &str) -> Vec<u8> {
    guest::wasm(&format!(
        r#"(module {fields} (memory (export "memory") 1) (func (export "_start")))"#
    ))
}

/// A command whose `_start` does this.
fn start(body: &str) -> Vec<u8> {
    guest::wasm(&format!(
        r#"(module (memory (export "memory") 1) (func (export "_start") {body}))"#
    ))
}

/// Answers `pong`: reads its memory, calls the host, has a table and a global.
const PING: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
    (memory (export "memory") 2)
    (table 4 funcref)
    (elem (i32.const 1) $print)
    (global $calls (mut i32) (i32.const 0))
    (data (i32.const 64) "pong")
    (func $print (param $address i32) (param $length i32) (result i32)
        (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
        (i32.store (i32.const 0) (local.get $address))
        (i32.store (i32.const 4) (local.get $length))
        (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
    (func $checksum (result i32) (local $at i32) (local $sum i32)
        (loop $next
            (local.set $sum (i32.add (i32.mul (local.get $sum) (i32.const 31)) (i32.load8_u (local.get $at))))
            (br_if $next (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 1))) (i32.const 256))))
        (local.get $sum))
    (func (export "_start")
        (if (call_indirect (param i32 i32) (result i32) (i32.const 64) (i32.const 4) (i32.const 1))
            (then (call $proc_exit (i32.const 3))))
        (if (i32.eqz (call $checksum)) (then (unreachable)))))"#;

/// Copies its input, and grows its memory meanwhile.
const ECHO: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data "passive")
    (func (export "_start") (local $n i32)
        (block $end (loop $more
            (i32.store (i32.const 0) (i32.const 256))
            (i32.store (i32.const 4) (i32.const 1024))
            (br_if $end (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
            (br_if $end (i32.eqz (local.tee $n (i32.load (i32.const 8)))))
            (i32.store (i32.const 4) (local.get $n))
            (br_if $end (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
            (drop (memory.grow (i32.const 1)))
            (memory.init 0 (i32.const 512) (i32.const 0) (i32.const 7))
            (br $more)))
        (drop (call $random_get (i32.const 512) (i32.const 16)))))"#;

// --- the table -------------------------------------------------------------------------------------------------------

fn by_hand() -> Vec<Case> {
    use Fate::{Faults, Loops, Malformed, Runs, Unsupported};
    let mut cases = Vec::new();
    let mut case = |name: &str, fate, bytes: Vec<u8>| {
        cases.push(Case {
            name: name.to_owned(),
            fate,
            bytes,
        })
    };
    let ping = guest::wasm(PING);

    // Not modules at all.
    case("nothing", Malformed("empty"), vec![]);
    case("half a magic number", Malformed(r"`\x00as`"), b"\0as".to_vec());
    case(
        "an ELF executable",
        Malformed(r"`\x7fELF"),
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec(),
    );
    case(
        "a shell script",
        Malformed("`#!/bin/sh"),
        b"#!/bin/sh\necho hello\n".to_vec(),
    );
    case(
        "Wasm text",
        Malformed("`(module"),
        b"(module (func (export \"_start\")))".to_vec(),
    );
    case(
        "HTML",
        Malformed("`<!DOCTYPE html>"),
        b"<!DOCTYPE html><html></html>".to_vec(),
    );
    case(
        "gzip",
        Malformed(r"`\x1f\x8b"),
        b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec(),
    );
    case(
        "a byte order mark",
        Malformed(r"`\xef\xbb\xbf"),
        b"\xef\xbb\xbf\0asm\x01\0\0\0".to_vec(),
    );
    case(
        "a shifted module",
        Malformed("instead of"),
        [b"\n", &ping[..]].concat(),
    );
    case(
        "a magic number alone",
        Malformed("unexpected end"),
        b"\0asm".to_vec(),
    );
    case(
        "half a version",
        Malformed("unexpected end"),
        b"\0asm\x01\0".to_vec(),
    );
    case("version 2", Malformed("version"), b"\0asm\x02\0\0\0".to_vec());
    case(
        "version of a draft",
        Malformed("version"),
        b"\0asm\x0b\0\0\0".to_vec(),
    );
    case(
        "two modules in a row",
        Malformed("section"),
        [&ping[..], &ping[..]].concat(),
    );
    case(
        "an empty component",
        Unsupported("component"),
        guest::wasm("(component)"),
    );
    case(
        "a component",
        Unsupported("component"),
        guest::wasm("(component (core module (func)))"),
    );
    case("a component that runs", Runs, guest::wasm(COMPONENT));
    case(
        "a broken component",
        Malformed("offset 0x"),
        b"\0asm\x0d\0\x01\0\xff\xff".to_vec(),
    );

    // Truncated.
    for cut in [9, 10, 20, 40, 80, ping.len() / 2, ping.len() - 30, ping.len() - 1] {
        case(
            &format!("cut after {cut} bytes"),
            Malformed("offset 0x"),
            ping[..cut].to_vec(),
        );
    }

    // Sections.
    case("no sections", Unsupported("_start"), module(&[]));
    case(
        "an unknown section",
        Malformed("section"),
        module(&[section(99, b"")]),
    );
    case("section 255", Malformed("section"), module(&[section(255, b"")]));
    case(
        "a section beyond the end",
        Malformed("unexpected end"),
        module(&[b"\x01\x7f".to_vec()]),
    );
    case(
        "a section of 4 GiB",
        Malformed("unexpected end"),
        module(&[b"\x01\xff\xff\xff\xff\x0f".to_vec()]),
    );
    case(
        "a size of 6 bytes",
        Malformed("too long"),
        module(&[b"\x01\x80\x80\x80\x80\x80\0".to_vec()]),
    );
    case(
        "a size of 2^35",
        Malformed("too large"),
        module(&[b"\x01\xff\xff\xff\xff\x7f".to_vec()]),
    );
    case(
        "an unfinished size",
        Malformed("unexpected end"),
        module(&[b"\x01\x80\x80".to_vec()]),
    );
    case(
        "sections out of order",
        Malformed("out of order"),
        module(&[types(), memories(), functions(), code(b"\0\x0b")]),
    );
    case(
        "a section twice",
        Malformed("out of order"),
        module(&[types(), types()]),
    );
    case(
        "functions without code",
        Malformed("code"),
        module(&[types(), functions()]),
    );
    case(
        "code without functions",
        Malformed("code"),
        module(&[types(), code(b"\0\x0b")]),
    );
    let two = section(3, b"\x02\0\0");
    case(
        "fewer bodies than functions",
        Malformed("inconsistent"),
        module(&[types(), two, code(b"\0\x0b")]),
    );
    case(
        "4 billion types",
        Malformed("types count"),
        module(&[section(1, b"\xff\xff\xff\xff\x0f")]),
    );
    case(
        "more types than there are",
        Malformed("unexpected end"),
        module(&[section(1, b"\x7f\x60\0\0")]),
    );
    case(
        "4 billion imports",
        Malformed("imports count"),
        module(&[section(2, b"\xff\xff\xff\xff\x0f")]),
    );
    case(
        "4 billion functions",
        Malformed("functions count"),
        module(&[types(), section(3, b"\xff\xff\xff\xff\x0f")]),
    );
    case(
        "4 billion exports",
        Malformed("exports count"),
        module(&[section(7, b"\xff\xff\xff\xff\x0f")]),
    );
    case(
        "4 billion segments",
        Malformed("segments count"),
        module(&[memories(), section(11, b"\xff\xff\xff\xff\x0f")]),
    );
    case(
        "a section longer than its content",
        Malformed("size mismatch"),
        module(&[section(1, b"\x01\x60\0\0\0")]),
    );
    case(
        "an empty type section",
        Malformed("unexpected end"),
        module(&[section(1, b"")]),
    );
    case(
        "a custom section without a name",
        Malformed("unexpected end"),
        module(&[section(0, b"")]),
    );
    case(
        "a custom section that is no UTF-8",
        Malformed("UTF-8"),
        module(&[section(0, b"\x02\xff\xfe")]),
    );
    case(
        "a custom name beyond its section",
        Malformed("unexpected end"),
        module(&[section(0, b"\x7fname")]),
    );

    // Types and indices.
    case(
        "an unknown type form",
        Malformed("type"),
        module(&[section(1, b"\x01\x20\0\0")]),
    );
    case(
        "an unknown value type",
        Malformed("value type"),
        module(&[section(1, b"\x01\x60\x01\x01\0")]),
    );
    case(
        "a function of no type",
        Malformed("unknown type 7"),
        module(&[types(), section(3, b"\x01\x07"), code(b"\0\x0b")]),
    );
    case(
        "an export of no function",
        Malformed("unknown function 9"),
        module(&[section(7, b"\x01\x01f\0\x09")]),
    );
    case(
        "an export of no memory",
        Malformed("unknown memory 0"),
        module(&[section(7, b"\x01\x01m\x02\0")]),
    );
    case(
        "an export of no kind",
        Malformed("external kind"),
        module(&[section(7, b"\x01\x01m\x09\0")]),
    );
    case(
        "an export twice",
        Malformed("duplicate export"),
        command(r#"(func (export "f")) (global (export "f") i32 (i32.const 1))"#),
    );
    case(
        "an export that is no UTF-8",
        Malformed("UTF-8"),
        module(&[memories(), section(7, b"\x01\x01\xff\x02\0")]),
    );
    case(
        "an import that is no UTF-8",
        Malformed("UTF-8"),
        module(&[types(), section(2, b"\x01\x01\xc0\x01f\0\0")]),
    );
    case(
        "a start function with a parameter",
        Malformed("start function"),
        command("(func $s (param i32)) (start $s)"),
    );
    case(
        "a start function that is none",
        Malformed("unknown function 77"),
        module(&[types(), section(8, b"\x4d")]),
    );
    case(
        "a global without a value",
        Malformed("type mismatch"),
        module(&[section(6, b"\x01\x7f\0\x0b")]),
    );
    case(
        "a global of another type",
        Malformed("type mismatch"),
        command("(global i32 (i64.const 1))"),
    );
    case(
        "a global that computes",
        Malformed("constant"),
        command("(func $f (result i32) unreachable) (global i32 (call $f))"),
    );
    case(
        "a mutability of 4",
        Malformed("global flags"),
        module(&[section(6, b"\x01\x7f\x04\x41\0\x0b")]),
    );
    case(
        "a memory that shrinks",
        Malformed("minimum must not be greater than maximum"),
        guest::wasm("(module (memory 2 1))"),
    );
    case(
        "a memory of 65537 pages",
        Malformed("memory size"),
        guest::wasm("(module (memory 65537))"),
    );
    case(
        "memory flags of 0x55",
        Malformed("memory"),
        module(&[section(5, b"\x01\x55\x01")]),
    );
    case(
        "a table that shrinks",
        Malformed("minimum must not be greater than maximum"),
        command("(table 2 1 funcref)"),
    );
    case(
        "data for no memory",
        Malformed("unknown memory"),
        guest::wasm("(module (data (i32.const 0) \"x\"))"),
    );
    case(
        "elements for no table",
        Malformed("unknown table"),
        command("(func $f) (elem (i32.const 0) $f)"),
    );
    case(
        "a count of data that is wrong",
        Malformed("data count"),
        module(&[memories(), section(12, b"\x02"), section(11, b"\x01\x01\x01x")]),
    );
    case(
        "1001 parameters",
        Malformed("params"),
        command(&format!("(func (param{}))", " i32".repeat(1001))),
    );

    // Code.
    case(
        "an unknown instruction",
        Malformed("illegal opcode"),
        command_of(b"\0\xff\x0b"),
    );
    case(
        "an unknown prefixed instruction",
        Malformed("unknown 0xfc subopcode"),
        command_of(b"\0\xfc\x7f\x0b"),
    );
    case(
        "an unknown vector instruction",
        Malformed("unknown 0xfd subopcode"),
        command_of(b"\0\xfd\xff\x7f\x0b"),
    );
    case(
        "a body without end",
        Malformed("offset 0x"),
        command_of(b"\0\x01\x01"),
    );
    case(
        "a body after its end",
        Malformed("offset 0x"),
        command_of(b"\0\x0b\x01"),
    );
    case("a body of no bytes", Malformed("unexpected end"), command_of(b""));
    case(
        "a body longer than its section",
        Malformed("offset 0x"),
        module(&[types(), functions(), section(10, b"\x01\x7f\0\x0b")]),
    );
    case(
        "an unfinished block",
        Malformed("offset 0x"),
        command_of(b"\0\x02\x40\x0b"),
    );
    case("an else without if", Malformed("else"), command_of(b"\0\x05\x0b"));
    case(
        "2^32 - 1 locals",
        Malformed("locals"),
        command_of(b"\x01\xff\xff\xff\xff\x0f\x7f\x0b"),
    );
    case(
        "locals twice 2^31",
        Malformed("locals"),
        command_of(b"\x02\x80\x80\x80\x80\x08\x7f\x80\x80\x80\x80\x08\x7f\x0b"),
    );
    case(
        "50,001 locals",
        Malformed("locals"),
        command_of(b"\x01\xd1\x86\x03\x7f\x0b"),
    );
    case(
        "4 billion groups of locals",
        Malformed("offset 0x"),
        command_of(b"\xff\xff\xff\xff\x0f\x01\x7f\x0b"),
    );
    case("an empty stack", Malformed("expected"), start("drop"));
    case(
        "a value too many",
        Malformed("values remaining on stack"),
        start("i32.const 1"),
    );
    case(
        "a wrong operand",
        Malformed("expected i32, found i64"),
        start("(drop (i32.eqz (i64.const 1)))"),
    );
    case(
        "branches of different types",
        Malformed("type mismatch"),
        start("(drop (if (result i32) (i32.const 1) (then (i32.const 1)) (else (f32.const 1))))"),
    );
    case(
        "no such local",
        Malformed("unknown local 5"),
        start("(drop (local.get 5))"),
    );
    case(
        "no such global",
        Malformed("unknown global"),
        start("(drop (global.get 5))"),
    );
    case(
        "no such function",
        Malformed("unknown function 42"),
        start("(call 42)"),
    );
    case("no such label", Malformed("unknown label"), start("(br 9)"));
    case(
        "no such table",
        Malformed("unknown table"),
        command_of(b"\0\x41\0\x11\0\x03\x0b"),
    );
    case(
        "no such type of block",
        Malformed("unknown type"),
        command_of(b"\0\x02\x3f\x0b\x0b"),
    );
    case(
        "an assignment to a constant",
        Malformed("immutable"),
        command("(global $g i32 (i32.const 1)) (func (global.set $g (i32.const 2)))"),
    );
    case(
        "an alignment beyond the access",
        Malformed("alignment"),
        command_of(b"\0\x41\0\x28\x05\0\x1a\x0b"),
    );
    case(
        "a constant of 6 bytes",
        Malformed("too long"),
        command_of(b"\0\x41\x80\x80\x80\x80\x80\0\x1a\x0b"),
    );
    case(
        "passive data without a count",
        Malformed("data count"),
        command_of(b"\0\x41\0\x41\0\x41\0\xfc\x08\0\0\x0b"),
    );
    case(
        "a jump table of 4 billion",
        Malformed("offset 0x"),
        command_of(b"\0\x41\0\x0e\xff\xff\xff\xff\x0f\0\0\x0b"),
    );
    case(
        "no lane 16",
        Malformed("SIMD index"),
        command_of(b"\0\xfd\x0c\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xfd\x15\x10\x1a\x0b"),
    );

    // Not commands.
    let memory = r#"(memory (export "memory") 1)"#;
    let wat = |fields: &str| guest::wasm(&format!("(module {fields})"));
    case(
        "a library",
        Unsupported("_start"),
        wat(&format!(
            r#"{memory} (func (export "add") (param i32 i32) (result i32) (i32.const 0))"#
        )),
    );
    case(
        "a reactor",
        Unsupported("_start"),
        wat(&format!(r#"{memory} (func (export "_initialize"))"#)),
    );
    case(
        "a `_start` that is a global",
        Unsupported("_start"),
        wat(&format!(
            r#"{memory} (global (export "_start") i32 (i32.const 0))"#
        )),
    );
    case(
        "a `_start` that is a memory",
        Unsupported("_start"),
        wat(r#"(memory (export "memory") (export "_start") 1)"#),
    );
    case(
        "an export of the platform's",
        Unsupported("`millpond:restorable`"),
        wat(&format!(
            r#"{memory} (func (export "_start") (export "millpond:restorable"))"#
        )),
    );
    case(
        "a `_start` that takes",
        Unsupported("takes and returns nothing"),
        wat(&format!(r#"{memory} (func (export "_start") (param i32))"#)),
    );
    case(
        "a `_start` that returns",
        Unsupported("takes and returns nothing"),
        wat(&format!(
            r#"{memory} (func (export "_start") (result i32) (i32.const 0))"#
        )),
    );
    case(
        "no memory",
        Unsupported("memory"),
        wat(r#"(func (export "_start"))"#),
    );
    case(
        "a memory of another name",
        Unsupported("`memory`"),
        wat(r#"(memory (export "heap") 1) (func (export "_start"))"#),
    );
    case(
        "a hidden memory",
        Unsupported("`memory`"),
        wat(r#"(memory 1) (func (export "_start"))"#),
    );
    case(
        "a `memory` that is a function",
        Unsupported("`memory`"),
        wat(r#"(memory 1) (func (export "_start") (export "memory"))"#),
    );

    // Imports.
    let import = |what: &str| command(what);
    case(
        "an import from `env`",
        Unsupported("`env.puts`"),
        import(r#"(import "env" "puts" (func (param i32) (result i32)))"#),
    );
    case(
        "a memory from `env`",
        Unsupported("`env.memory`"),
        wat(r#"(import "env" "memory" (memory 1)) (func (export "_start")) (export "memory" (memory 0))"#),
    );
    case(
        "the runtime of Emscripten",
        Unsupported("emscripten_"),
        import(r#"(import "env" "emscripten_notify_memory_growth" (func (param i32)))"#),
    );
    case(
        "the glue of wasm-bindgen",
        Unsupported("`__wbindgen_placeholder__.x`"),
        import(r#"(import "__wbindgen_placeholder__" "x" (func))"#),
    );
    case(
        "the glue of Go for browsers",
        Unsupported("`gojs."),
        import(r#"(import "gojs" "runtime.wasmExit" (func (param i32)))"#),
    );
    case(
        "an older WASI",
        Unsupported("`wasi_unstable.fd_write`"),
        import(r#"(import "wasi_unstable" "fd_write" (func (param i32 i32 i32 i32) (result i32)))"#),
    );
    case(
        "a newer WASI",
        Unsupported("wasi:cli/stdout"),
        import(r#"(import "wasi:cli/stdout@0.2.0" "get-stdout" (func (result i32)))"#),
    );
    case(
        "an empty module name",
        Unsupported("`.f`"),
        import(r#"(import "" "f" (func))"#),
    );
    case(
        "a function that WASI lacks",
        Unsupported("fd_teleport"),
        import(r#"(import "wasi_snapshot_preview1" "fd_teleport" (func))"#),
    );
    case(
        "a name in the wrong case",
        Unsupported("FD_WRITE"),
        import(r#"(import "wasi_snapshot_preview1" "FD_WRITE" (func (param i32 i32 i32 i32) (result i32)))"#),
    );
    case(
        "a wrong number of parameters",
        Unsupported("not its type"),
        import(r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32) (result i32)))"#),
    );
    case(
        "a wrong type of parameter",
        Unsupported("not its type"),
        import(r#"(import "wasi_snapshot_preview1" "fd_seek" (func (param i32 i32 i32 i32) (result i32)))"#),
    );
    case(
        "a wrong result",
        Unsupported("not its type"),
        import(r#"(import "wasi_snapshot_preview1" "proc_exit" (func (param i32) (result i32)))"#),
    );
    case(
        "a global from WASI",
        Unsupported("is a function there"),
        import(r#"(import "wasi_snapshot_preview1" "fd_write" (global i32))"#),
    );
    case(
        "a table from WASI",
        Unsupported("is a function there"),
        import(r#"(import "wasi_snapshot_preview1" "fd_write" (table 1 funcref))"#),
    );
    case(
        "a memory from WASI",
        Unsupported("is a function there"),
        wat(
            r#"(import "wasi_snapshot_preview1" "memory" (memory 1)) (func (export "_start")) (export "memory" (memory 0))"#,
        ),
    );
    case(
        "threads of WASI",
        Unsupported("`wasi.thread-spawn`"),
        import(r#"(import "wasi" "thread-spawn" (func (param i32) (result i32)))"#),
    );
    case(
        "a name with a line's end",
        Unsupported("env"),
        import("(import \"env\" \"a\\nb\\1b[31m\" (func))"),
    );

    // Proposals that this engine does not speak.
    case(
        "two memories",
        Unsupported("multiple memories"),
        command("(memory 1)"),
    );
    case(
        "a memory of 64 bits",
        Unsupported("memory64"),
        wat(r#"(memory (export "memory") i64 1) (func (export "_start"))"#),
    );
    case(
        "a table of 64 bits",
        Unsupported("64"),
        command("(table i64 1 funcref)"),
    );
    case(
        "a shared memory",
        Unsupported("threads"),
        wat(r#"(memory (export "memory") 1 2 shared) (func (export "_start"))"#),
    );
    case(
        "an atomic access",
        Unsupported("threads"),
        start("(drop (i32.atomic.load (i32.const 0)))"),
    );
    case(
        "pages of one byte",
        Unsupported("page size"),
        wat(r#"(memory (export "memory") 1 (pagesize 1)) (func (export "_start"))"#),
    );
    case(
        "exceptions",
        Unsupported("exception"),
        command("(tag $t) (func (throw $t))"),
    );
    case(
        "older exceptions",
        Unsupported("exception"),
        command_of(b"\0\x06\x40\x19\x0b\x0b"),
    );
    case(
        "structures",
        Unsupported("gc"),
        command("(type $s (struct (field i32))) (func (drop (struct.new $s (i32.const 1))))"),
    );
    case(
        "arrays",
        Unsupported("gc"),
        command("(type $a (array i8)) (func (drop (array.new_default $a (i32.const 9))))"),
    );
    case(
        "typed references",
        Runs,
        command("(type $f (func)) (func (param (ref $f)) (call_ref $f (local.get 0)))"),
    );
    case(
        "switched stacks",
        Unsupported("stack switching"),
        command(
            "(type $f (func)) (type $k (cont $f)) (func (param (ref null $k)) (resume $k (local.get 0)))",
        ),
    );
    case(
        "arithmetic of 128 bits",
        Unsupported("wide arithmetic"),
        start("(i64.add128 (i64.const 1) (i64.const 1) (i64.const 1) (i64.const 1)) drop drop"),
    );

    // More than a sandbox has.
    case(
        "two tables",
        Unsupported("table"),
        command("(table 1 funcref) (table 1 funcref)"),
    );
    case(
        "a table of 4 billion",
        Unsupported("table"),
        command("(table 4294967295 funcref)"),
    );
    case(
        "a table of 100,000",
        Unsupported("table"),
        command("(table 100000 funcref)"),
    );
    case(
        "200,000 globals",
        Unsupported("global"),
        command(&"(global i64 (i64.const 1))".repeat(200_000)),
    );
    case(
        "an enormous memory",
        Faults("memory"),
        wat(r#"(memory (export "memory") 65536) (func (export "_start"))"#),
    );
    case(
        "a memory of a page too many",
        Faults("memory"),
        wat(r#"(memory (export "memory") 65) (func (export "_start"))"#),
    );
    case(
        "a memory of just the limit",
        Runs,
        wat(r#"(memory (export "memory") 64) (func (export "_start"))"#),
    );

    // Valid, and mean.
    case("a trap", Faults("unreachable"), start("unreachable"));
    case(
        "a trap at the start",
        Faults("unreachable"),
        command("(func $s unreachable) (start $s)"),
    );
    case(
        "a loop at the start",
        Loops,
        command("(func $s (loop (br 0))) (start $s)"),
    );
    case("a loop", Loops, start("(loop (br 0))"));
    case("recursion", Faults("stack"), command_of(b"\0\x10\0\x0b"));
    case(
        "recursion at the start",
        Faults("stack"),
        command("(func $s (call $s)) (start $s)"),
    );
    case("a tail call for ever", Loops, command_of(b"\0\x12\0\x0b"));
    case(
        "data beyond the memory",
        Faults("memory"),
        command("(data (i32.const 65535) \"xy\")"),
    );
    case(
        "data at -1",
        Faults("memory"),
        command("(data (i32.const -1) \"x\")"),
    );
    case(
        "elements beyond the table",
        Faults("table"),
        command("(table 1 funcref) (func $f) (elem (i32.const 1) $f)"),
    );
    case(
        "a call of nothing",
        Faults("uninitialized"),
        command_of_table("(call_indirect (i32.const 0))"),
    );
    case(
        "a call beyond the table",
        Faults("undefined element"),
        command_of_table("(call_indirect (i32.const -1))"),
    );
    case(
        "a call of another type",
        Faults("type mismatch"),
        command_of_table("(call_indirect (param i64) (i64.const 1) (i32.const 1))"),
    );
    case(
        "a division by zero",
        Faults("divide by zero"),
        start("(drop (i32.div_s (i32.const 1) (i32.const 0)))"),
    );
    case(
        "a load beyond the memory",
        Faults("out of bounds"),
        start("(drop (i32.load (i32.const -1)))"),
    );
    case(
        "a load beyond 32 bits",
        Faults("out of bounds"),
        start("(drop (i64.load offset=4294967295 (i32.const -1)))"),
    );
    case(
        "a fill beyond the memory",
        Faults("out of bounds"),
        start("(memory.fill (i32.const 1) (i32.const 0) (i32.const -1))"),
    );
    case(
        "memory without end",
        Loops,
        start("(loop (drop (memory.grow (i32.const 1))) (br 0))"),
    );
    case(
        "a table without end",
        Loops,
        command(
            "(table $t 0 funcref) (func $s (loop (drop (table.grow $t (ref.null func) (i32.const 1000))) (br 0))) (start $s)",
        ),
    );
    case(
        "a fill without end",
        Loops,
        start("(loop (memory.fill (i32.const 0) (i32.const 0) (i32.const 65536)) (br 0))"),
    );

    // Valid, and large.
    case("no code at all", Runs, command(""));
    case(
        "garbage in a custom section",
        Runs,
        [
            command(""),
            section(0, &[b"\x06random", &[0xa5; 4096][..]].concat()),
        ]
        .concat(),
    );
    case(
        "garbage in the name section",
        Runs,
        [command(""), section(0, b"\x04name\x01\xff\xff\xff\xff\x0f\0\x07")].concat(),
    );
    case(
        "garbage in the debug information",
        Runs,
        [
            command(""),
            section(0, &[b"\x0b.debug_info", &[0xff; 512][..]].concat()),
        ]
        .concat(),
    );
    case(
        "a million empty custom sections",
        Runs,
        [command(""), b"\0\x01\0".repeat(1_000_000)].concat(),
    );
    case("100,000 functions", Runs, command(&"(func)".repeat(100_000)));
    case("a function too many", Malformed("functions count"), {
        let all = section(3, &[leb(1_000_001), b"\0".repeat(1_000_001)].concat());
        module(&[types(), all])
    });
    case("100,000 exports", Runs, {
        let mut names = String::new();
        for n in 0..100_000 {
            let _ = write!(names, r#"(export "f{n}" (func $f))"#);
        }
        command(&format!("(func $f) {names}"))
    });
    case("50,000 locals", Runs, command_of(b"\x01\xd0\x86\x03\x7f\x0b"));
    case(
        "1000 parameters",
        Runs,
        command(&format!("(func (param{}))", " i64".repeat(1000))),
    );
    case(
        "a jump table of 10,000",
        Runs,
        start(&format!(
            "(block (br_table {} (i32.const 1)))",
            "0 ".repeat(10_000)
        )),
    );
    case(
        "blocks in blocks",
        Runs,
        command_of(&[b"\0".to_vec(), b"\x02\x40".repeat(5_000), b"\x0b".repeat(5_001)].concat()),
    );
    case(
        "loops in loops",
        Runs,
        command_of(&[b"\0".to_vec(), b"\x03\x40".repeat(2_000), b"\x0b".repeat(2_001)].concat()),
    );
    case(
        "conditions in conditions",
        Runs,
        command_of(
            &[
                b"\0".to_vec(),
                b"\x41\0\x04\x40".repeat(5_000),
                b"\x0b".repeat(5_001),
            ]
            .concat(),
        ),
    );
    case("a very deep expression", Runs, {
        let (push, add) = (b"\x41\x01".repeat(20_000), b"\x6a".repeat(19_999));
        command_of(&[b"\0".to_vec(), push, add, b"\x1a\x0b".to_vec()].concat())
    });
    case(
        "60,000 no-operations",
        Runs,
        command_of(&[b"\0".to_vec(), b"\x01".repeat(60_000), b"\x0b".to_vec()].concat()),
    );
    case(
        "a mebibyte of data",
        Faults("memory"),
        command(&format!("(data (i32.const 0) \"{}\")", "x".repeat(1 << 20))),
    );
    case(
        "vectors",
        Runs,
        start("(drop (i8x16.add (v128.const i64x2 1 2) (v128.const i64x2 3 4)))"),
    );
    case(
        "a computed constant",
        Runs,
        command("(global i32 (i32.add (i32.const 1) (i32.const 2)))"),
    );
    cases
}

/// A command with a table whose element 1 is a function without parameters.
fn command_of_table(body: &str) -> Vec<u8> {
    guest::wasm(&format!(
        r#"(module (memory (export "memory") 1) (table 2 funcref) (func $f) (elem (i32.const 1) $f)
            (func (export "_start") {body}))"#
    ))
}

// --- made by machines ------------------------------------------------------------------------------------------------

/// Working commands with some of their bits flipped.
fn flipped(commands: &[Vec<u8>], count: usize) -> Vec<Case> {
    (0..count)
        .map(|n| {
            let mut random = StdRng::seed_from_u64(n as u64);
            let mut bytes = commands[n % commands.len()].clone();
            for _ in 0..random.random_range(1..=8) {
                let at = random.random_range(8..bytes.len());
                bytes[at] ^= 1 << random.random_range(0..8);
            }
            Case {
                name: format!("flipped bits {n}"),
                fate: Fate::Any,
                bytes,
            }
        })
        .collect()
}

/// Working commands with a stretch replaced by noise, doubled, or taken out.
fn spliced(commands: &[Vec<u8>], count: usize) -> Vec<Case> {
    (0..count)
        .map(|n| {
            let mut random = StdRng::seed_from_u64(1_000_000 + n as u64);
            let mut bytes = commands[n % commands.len()].clone();
            let from = random.random_range(8..bytes.len());
            let to = random.random_range(from..=bytes.len().min(from + 32));
            match n % 3 {
                0 => random.fill(&mut bytes[from..to]),
                1 => drop(bytes.splice(from..from, bytes[from..to].to_vec())),
                _ => drop(bytes.drain(from..to)),
            }
            Case {
                name: format!("spliced {n}"),
                fate: Fate::Any,
                bytes,
            }
        })
        .collect()
}

/// A working component, cut off after each of its bytes, or at as many places as asked for.
fn cut(component: &[u8], count: usize) -> Vec<Case> {
    let step = component.len().div_ceil(count).max(1);
    (8..component.len())
        .step_by(step)
        .map(|length| Case {
            name: format!("a component cut after {length} bytes"),
            fate: Fate::Any,
            bytes: component[..length].to_vec(),
        })
        .collect()
}

/// What `wasm-smith` makes of noise: components with interfaces of their own.
fn invented_components(count: usize) -> Vec<Case> {
    (0..count)
        .map(|n| {
            let mut random = StdRng::seed_from_u64(3_000_000 + n as u64);
            let mut noise = vec![0; 4096];
            random.fill(&mut noise[..]);
            let mut unstructured = arbitrary::Unstructured::new(&noise);
            let component = wasm_smith::Component::new(wasm_smith::Config::default(), &mut unstructured)
                .expect("noise suffices for a component");
            Case {
                name: format!("invented component {n}"),
                fate: Fate::Any,
                bytes: component.to_bytes(),
            }
        })
        .collect()
}

/// Working commands changed by `wasm-mutate`, several times over; they stay valid, and mean something else.
fn mutated(count: usize) -> Vec<Case> {
    let commands = [guest::wasm(PING), guest::wasm(ECHO)];
    (0..count)
        .map(|n| {
            let mut bytes = commands[n % commands.len()].clone();
            for round in 0..=(n % 4) {
                let mut mutate = wasm_mutate::WasmMutate::default();
                mutate
                    .seed((n * 16 + round) as u64)
                    .fuel(500)
                    .preserve_semantics(false);
                let next = mutate
                    .run(&bytes)
                    .ok()
                    .and_then(|mut all| all.find_map(Result::ok));
                bytes = next.unwrap_or(bytes);
            }
            Case {
                name: format!("mutated {n}"),
                fate: Fate::Any,
                bytes,
            }
        })
        .collect()
}

/// What `wasm-smith` makes of noise: modules with every proposal on; every second with a command's exports and WASI's
/// imports, and only the proposals that this engine speaks, so that their code runs.
fn invented(count: usize) -> Vec<Case> {
    let shape = guest::wasm(r#"(module (memory (export "memory") 1) (func (export "_start")))"#);
    (0..count)
        .map(|n| {
            let mut random = StdRng::seed_from_u64(2_000_000 + n as u64);
            let mut noise = vec![0; 4096];
            random.fill(&mut noise[..]);
            let command = n % 2 == 1;
            let config = wasm_smith::Config {
                exports: command.then(|| shape.clone()),
                max_imports: if command { 0 } else { 10 },
                max_memories: if command { 0 } else { 2 },
                max_memory32_bytes: 4 << 20,
                max_tables: 1,
                max_table_elements: if command { 1_000 } else { 1_000_000 },
                gc_enabled: !command,
                reference_types_enabled: !command,
                exceptions_enabled: !command,
                memory64_enabled: !command,
                threads_enabled: !command,
                wide_arithmetic_enabled: !command,
                ..wasm_smith::Config::default()
            };
            let mut unstructured = arbitrary::Unstructured::new(&noise);
            let module =
                wasm_smith::Module::new(config, &mut unstructured).expect("noise suffices for a module");
            Case {
                name: format!("invented {n}"),
                fate: Fate::Any,
                bytes: module.to_bytes(),
            }
        })
        .collect()
}

// --- what is done with them ------------------------------------------------------------------------------------------

struct Bench {
    engine: Wasmtime,
    ping: Arc<dyn Image>,
    grant: Grant,
}

impl Bench {
    fn new() -> Self {
        let engine = Wasmtime::new(&Options {
            sandboxes: 4,
            ..Options::default()
        })
        .expect("the pool can be reserved");
        let ping = guest::image(&engine, &guest::wasm(PING));
        let limits = Limits {
            memory: ByteSize::mib(4),
            response_body: ByteSize::mib(1),
            ..Limits::default()
        };
        Self {
            engine,
            ping,
            grant: Grant {
                limits,
                ..guest::grant()
            },
        }
    }

    fn engine(&self) -> &dyn Engine {
        &self.engine
    }

    /// Compiles, and runs what was accepted.
    fn put(&self, bytes: &[u8]) -> Result<(Outcome, String), PrepareError> {
        let artefact = guest::compile(self.engine(), bytes)?;
        let image = guest::load(self.engine(), &artefact)
            .unwrap_or_else(|error| panic!("what was compiled does not load: {error}"));
        let mut sandbox = Running::spawn(&image, &self.grant, b"some input for it");
        let ended = (0..TURNS).find_map(|_| sandbox.turn());
        drop(sandbox);
        self.check_the_host();
        Ok(match ended {
            None => (Outcome::Stopped, String::new()),
            Some(Ok(_)) => (Outcome::Done, String::new()),
            Some(Err((fault, _))) => (Outcome::Fault, fault.to_string()),
        })
    }

    /// Another guest still answers.
    fn check_the_host(&self) {
        let mut ping = Running::spawn(&self.ping, &self.grant, b"");
        assert!(ping.finish().is_ok(), "a good guest no longer runs");
        assert_eq!(ping.said().text(), "pong");
    }

    /// What became of a case, or what is wrong about it.
    fn judge(&self, case: &Case) -> Result<Outcome, String> {
        let put = panic::catch_unwind(AssertUnwindSafe(|| self.put(&case.bytes)));
        let put = put.map_err(|panic| format!("it panicked: {:?}", panic.downcast_ref::<String>()))?;
        let (outcome, text) = match &put {
            Ok((outcome, text)) => (outcome.clone(), text.clone()),
            Err(error) => {
                let outcome = match error {
                    PrepareError::Malformed(_) => Outcome::Malformed,
                    PrepareError::Unsupported(_) => Outcome::Unsupported,
                    other => return Err(format!("it is not the module's fault: {other}")),
                };
                (outcome, check_text(error)?)
            }
        };
        let (expected, part) = match case.fate {
            Fate::Any => return Ok(outcome),
            Fate::Malformed(part) => (Outcome::Malformed, part),
            Fate::Unsupported(part) => (Outcome::Unsupported, part),
            Fate::Runs => (Outcome::Done, ""),
            Fate::Faults(part) => (Outcome::Fault, part),
            Fate::Loops => (Outcome::Stopped, ""),
        };
        if outcome == expected && text.contains(part) {
            Ok(outcome)
        } else {
            Err(format!(
                "expected {:?}, but it was {outcome:?}: {text}",
                case.fate
            ))
        }
    }
}

/// What an error says, if a person can read it.
fn check_text(error: &PrepareError) -> Result<String, String> {
    let (PrepareError::Malformed(reason) | PrepareError::Unsupported(reason)) = error else {
        return Err(format!("another error: {error}"));
    };
    if reason.trim().is_empty() {
        return Err("the error says nothing".into());
    }
    let text = error.to_string();
    if text.chars().any(char::is_control) {
        return Err(format!("the error is more than a line of text: {text:?}"));
    }
    if text.len() > 400 {
        return Err(format!("the error is too long: {text}"));
    }
    Ok(text)
}

/// Judges all cases on a thread of their own, and gives up when one hangs.
fn judge_all(cases: Vec<Case>) -> BTreeMap<Outcome, usize> {
    let total = cases.len();
    let (begun, beginnings) = mpsc::channel();
    let (judged, judgements) = mpsc::channel();
    // Not joined when it hangs: the process ends with its failed test.
    thread::spawn(move || {
        let bench = Bench::new();
        guest::ticking(&bench.engine, || {
            for case in &cases {
                let _ = begun.send(case.name.clone());
                let _ = judged.send(bench.judge(case));
            }
        });
    });
    let (mut outcomes, mut wrong) = (BTreeMap::new(), Vec::new());
    for _ in 0..total {
        let name = beginnings.recv_timeout(WATCHDOG).expect("the judge is alive");
        match judgements.recv_timeout(WATCHDOG) {
            Ok(Ok(outcome)) => *outcomes.entry(outcome).or_default() += 1,
            Ok(Err(reason)) => wrong.push(format!("{name}: {reason}")),
            Err(error) => panic!("{name} hangs or kills its thread: {error}\nbefore it: {wrong:#?}"),
        }
    }
    println!(
        "{total} modules: {} refused, {} accepted: {outcomes:?}",
        of(&outcomes, &REFUSED),
        of(&outcomes, &ACCEPTED)
    );
    assert!(
        wrong.is_empty(),
        "{} of {total} modules:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    outcomes
}

fn of(outcomes: &BTreeMap<Outcome, usize>, which: &[Outcome]) -> usize {
    which.iter().filter_map(|outcome| outcomes.get(outcome)).sum()
}

const REFUSED: [Outcome; 2] = [Outcome::Malformed, Outcome::Unsupported];
const ACCEPTED: [Outcome; 3] = [Outcome::Done, Outcome::Fault, Outcome::Stopped];

#[test]
fn each_of_the_table_meets_its_fate() {
    let outcomes = judge_all(by_hand());
    assert!(of(&outcomes, &REFUSED) >= 120, "the table has shrunk");
}

#[test]
fn damaged_commands_are_refused_or_contained() {
    let commands = [guest::wasm(PING), guest::wasm(ECHO)];
    let spliced = spliced(&commands, 150);
    let outcomes = judge_all(flipped(&commands, 240).into_iter().chain(spliced).collect());
    assert!(
        of(&outcomes, &REFUSED) >= 200,
        "hardly any is refused: the damage misses"
    );
    assert!(
        of(&outcomes, &ACCEPTED) >= 20,
        "hardly any is accepted: the damage is too plain"
    );
}

#[test]
fn mutated_commands_are_refused_or_contained() {
    let outcomes = judge_all(mutated(120));
    assert!(of(&outcomes, &ACCEPTED) >= 60, "hardly any is accepted");
}

#[test]
fn invented_modules_are_refused_or_contained() {
    let outcomes = judge_all(invented(200));
    assert!(of(&outcomes, &REFUSED) >= 80, "hardly any is refused");
    assert!(of(&outcomes, &ACCEPTED) >= 60, "hardly any is accepted");
}

#[test]
fn damaged_components_are_refused_or_contained() {
    let component = [guest::wasm(COMPONENT)];
    let cases = flipped(&component, 240)
        .into_iter()
        .chain(spliced(&component, 150))
        .chain(cut(&component[0], 100));
    let outcomes = judge_all(cases.collect());
    assert!(
        of(&outcomes, &REFUSED) >= 300,
        "hardly any is refused: the damage misses"
    );
    assert!(
        of(&outcomes, &ACCEPTED) >= 20,
        "hardly any is accepted: the damage is too plain"
    );
}

#[test]
fn invented_components_are_refused() {
    let outcomes = judge_all(invented_components(100));
    assert_eq!(of(&outcomes, &REFUSED), 100, "nothing could call them");
}
