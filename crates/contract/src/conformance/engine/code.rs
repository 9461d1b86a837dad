//! Code that runs, and code that does not.

use super::*;

/// What is not a module, or wants what is not offered, is refused when it is compiled, in words that name it.
pub(super) fn code_that_cannot_run_is_refused(subject: &Subject<'_>) {
    if subject.is_native() {
        return executables_that_cannot_run_are_refused(subject);
    }
    let engine = subject.engine;
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
    refused(
        &format!(r#"(module (table 100000 funcref) {MEMORY} {START})"#),
        "table",
    );
}

fn executables_that_cannot_run_are_refused(subject: &Subject<'_>) {
    let good = subject.code("says", 0, &[]);
    let refused = |bytes: &[u8], what: &str| match subject.compile(bytes) {
        Err(PrepareError::Malformed(reason) | PrepareError::Unsupported(reason)) => reason,
        Err(other) => panic!("{what} should be refused, but: {other}"),
        Ok(_) => panic!("{what} should be refused, but it is taken"),
    };
    for (bytes, what) in [
        (&b""[..], "nothing"),
        (b"\0asm\x01\0\0\0", "a module"),
        (b"#!/bin/sh\n", "a script"),
        (b"\x7fELF\x02\x01\x01", "an ELF header"),
    ] {
        assert!(!refused(bytes, what).is_empty());
    }
    // Its sections lie at the end.
    for length in [4, 16, 63, 64, 100, good.len() / 2, good.len() - 1] {
        refused(&good[..length], "a part of an executable");
    }
    let changed = |at: usize, to: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    refused(&changed(4, &[1]), "one of 32 bits");
    refused(&changed(5, &[2]), "one of the other byte order");
    assert!(refused(&changed(18, &[8, 0]), "one of another machine").contains("processor"));
    assert!(refused(&changed(16, &[1, 0]), "an object").contains("object"));
    refused(&changed(32, &[0xff; 8]), "one with its segments nowhere");
    refused(&changed(40, &[0xff; 8]), "one with its sections nowhere");
    let library = good.windows(9).position(|text| text == b"libc.so.6");
    let missing = changed(library.expect("it asks for a library"), b"libd.so.6");
    assert!(refused(&missing, "one without its library").contains("libd.so.6"));
}

/// Compiled code loads as often as asked; bytes that no engine made do not load.
pub(super) fn compiled_code_loads_and_other_bytes_do_not(subject: &Subject<'_>) {
    assert!(!subject.engine.name().is_empty() && !subject.engine.fingerprint().is_empty());
    let engine = subject.engine;
    let code = subject.code("says", 0, &start("(call $say (i32.const 1))"));
    let artefact = subject.compile(&code).expect("it compiles");
    ticking(subject.engine, || {
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
    let refused = |bytes: &[u8], what: &str| match load(engine, bytes) {
        Err(PrepareError::Artefact(reason)) => assert!(!reason.is_empty()),
        Err(other) => panic!("{what} should not load as an artefact, but: {other}"),
        Ok(_) => panic!("{what} loads"),
    };
    for garbage in [
        &b""[..],
        b"garbage",
        &[0; 4096],
        b"\x7fELF\x02\x01\x01\0 and no more",
        b"\0asm\x01\0\0\0",
    ] {
        refused(garbage, &format!("{} bytes of garbage", garbage.len()));
    }
    let whole = artefact.len();
    for length in [8, 16, 24, 32, 100, whole / 2, whole - 1] {
        refused(&artefact[..length], &format!("{length} bytes of {whole}"));
    }
}
