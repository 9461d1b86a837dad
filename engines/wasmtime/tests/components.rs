//! Components of WASI 0.2, made by real compilers: `make guests` builds them.

use contract::{
    ByteSize, Fault, Grant, Image, Limits, PrepareError, Protocol,
    conformance::guest::{self, Running},
};
use millpond_engine_wasmtime::{Options, Wasmtime};
use std::{fs, path::Path, sync::Arc};

fn engine(sandboxes: u32) -> Wasmtime {
    Wasmtime::new(&Options {
        sandboxes,
        ..Options::default()
    })
    .expect("the pool can be reserved")
}

fn code(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../build/guests/{name}.wasm"));
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; `make guests` builds it", path.display()))
}

fn grant() -> Grant {
    let limits = Limits {
        memory: ByteSize::mib(8),
        response_body: ByteSize::mib(4),
        ..Limits::default()
    };
    Grant {
        limits,
        ..guest::grant()
    }
}

/// Runs one request; the guest itself when it has ended.
fn run(image: &Arc<dyn Image>, body: &str) -> (Result<(), Fault>, Running) {
    let mut running = Running::spawn(image, &grant(), body.as_bytes());
    let ended = running.finish().map(drop).map_err(|(fault, _)| fault);
    (ended, running)
}

/// The text of a response that must be good.
fn answer(image: &Arc<dyn Image>, body: &str) -> String {
    let (ended, running) = run(image, body);
    ended.unwrap_or_else(|fault| panic!("`{body}`: {fault}; log: {:?}", running.said().record().log));
    running.said().text()
}

fn fault(image: &Arc<dyn Image>, body: &str) -> Fault {
    let (ended, running) = run(image, body);
    ended.expect_err(&format!("`{body}` answered `{}`", running.said().text()))
}

#[test]
fn a_command_reads_its_input_and_answers() {
    let image = guest::image(&engine(2), &code("command-component"));
    for _ in 0..3 {
        let (ended, running) = run(&image, "some text");
        ended.expect("it answers");
        assert_eq!(running.said().text(), "1 POST SOME TEXT", "each run is the first");
        assert_eq!(running.said().record().log, b"run 1\n");
    }
    assert_eq!(
        answer(&image, &"a".repeat(300_000)).len(),
        "1 POST ".len() + 300_000
    );
    assert_eq!(fault(&image, "exit"), Fault::Exit { code: 1 });
    assert_eq!(answer(&image, "connect"), "PermissionDenied 1 POST CONNECT");
    assert!(answer(&image, "open").ends_with("1 POST OPEN"));
}

#[test]
fn a_command_answers_as_its_protocol_says() {
    let image = guest::image(&engine(1), &code("command-component"));
    let grant = Grant {
        protocol: Protocol::Cgi,
        ..grant()
    };
    let mut running = Running::spawn(&image, &grant, b"no header");
    assert!(matches!(running.finish(), Err((Fault::BadOutput { .. }, _))));
}

#[test]
fn one_that_sleeps_parks_its_sandbox() {
    let engine = engine(2);
    for name in ["command-component", "http-component"] {
        let image = guest::image(&engine, &code(name));
        let (ended, running) = run(&image, "sleep");
        ended.expect("it wakes up");
        assert!(running.waited > 0, "{name} did not park");
    }
}

#[test]
fn a_handler_reads_its_request_and_answers() {
    let image = guest::image(&engine(2), &code("http-component"));
    let (ended, running) = run(&image, "describe");
    ended.expect("it answers");
    assert_eq!(
        running.said().text(),
        r#"Method::Post Some(Scheme::Http) Some("/function/guest/path%20info?query=1") Some("suite.example") [[121, 101, 115]]"#
    );
    let head = running.said().record().head.clone().expect("its head");
    assert_eq!(head.status, 201);
    let headers: Vec<_> = head
        .headers
        .iter()
        .map(|(name, value)| (&**name, &value[..]))
        .collect();
    assert_eq!(
        headers,
        [("content-type", &b"text/plain"[..]), ("x-guest", b"yes")]
    );
    let long = format!("echo {}", "x".repeat(1 << 20));
    assert_eq!(answer(&image, &long), long);
    assert_eq!(answer(&image, "late"), "written early");
    assert_eq!(answer(&image, "crumbs"), "0123456789".repeat(20_000));
    assert_eq!(answer(&image, "random"), "32");
    assert_eq!(answer(&image, "fields").matches("HeaderError").count(), 3);
}

#[test]
fn every_request_has_a_fresh_instance() {
    let image = guest::image(&engine(1), &code("http-component"));
    for _ in 0..3 {
        assert_eq!(answer(&image, "count"), "1");
        assert!(matches!(fault(&image, "trap"), Fault::Trap { .. }));
        assert_eq!(answer(&image, "count"), "1");
    }
    let mut running = Running::spawn(&image, &grant(), b"count");
    running.finish().expect("it answers");
    assert!(
        running.renew(&grant(), b"count").is_err(),
        "a component serves one request"
    );
}

#[test]
fn an_instance_that_is_kept_shows_nothing_of_earlier_requests() {
    let image = guest::image(&engine(1), &code("http-component"));
    let first = answer(&image, "trace 0");
    for number in 0..400 {
        assert_eq!(
            answer(&image, &format!("trace {number}")),
            first,
            "before {number}"
        );
        match number % 29 {
            5 => assert!(matches!(fault(&image, "trap"), Fault::Trap { .. })),
            6 => drop(Running::spawn(&image, &grant(), b"trace 3")),
            7 => {
                let mut dropped = Running::spawn(&image, &grant(), b"sleep");
                assert!(dropped.turn().is_none(), "it sleeps");
            }
            _ => {}
        }
    }
}

#[test]
fn several_instances_are_kept_apart() {
    let image = guest::image(&engine(8), &code("http-component"));
    let first = answer(&image, "trace 0");
    for round in 0..50 {
        let mut all: Vec<_> = (0..8)
            .map(|n| Running::spawn(&image, &grant(), format!("trace {}", round * 8 + n).as_bytes()))
            .collect();
        for running in &mut all {
            running.finish().expect("it answers");
            assert_eq!(running.said().text(), first);
        }
    }
}

#[test]
fn a_request_to_another_host_is_denied() {
    let image = guest::image(&engine(1), &code("http-component"));
    assert_eq!(answer(&image, "outgoing"), "ErrorCode::HttpRequestDenied");
}

#[test]
fn an_endless_component_is_preempted() {
    let engine = engine(2);
    let image = guest::image(&engine, &code("http-component"));
    guest::ticking(&engine, || {
        let mut endless = Running::spawn(&image, &grant(), b"endless");
        while endless.preempted < 3 {
            assert!(endless.turn().is_none(), "it has no end");
        }
        assert_eq!(answer(&image, "count"), "1", "others run between its turns");
    });
}

#[test]
fn limits_hold() {
    let image = guest::image(&engine(1), &code("http-component"));
    assert!(matches!(
        fault(&image, "grow"),
        Fault::OutOfMemory { limit, .. } if limit == ByteSize::mib(8)
    ));
    assert!(matches!(fault(&image, "flood"), Fault::OutputTooLarge { .. }));
    for (body, part) in [("hoard", "handles"), ("fatten", "header fields")] {
        let Fault::Trap { reason } = fault(&image, body) else {
            panic!("`{body}` is stopped by the host")
        };
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(answer(&image, "count"), "1");
}

#[test]
fn what_is_no_response_is_a_fault_that_says_so() {
    let image = guest::image(&engine(1), &code("http-component"));
    for (body, part) in [
        ("nothing", "without setting a response"),
        ("error", "ConfigurationError"),
        ("unfinished", "not finished"),
        ("short", "`Content-Length` is 10, but its body has 4 bytes"),
    ] {
        let fault = fault(&image, body);
        assert!(matches!(fault, Fault::BadOutput { .. }), "{body}: {fault}");
        assert!(fault.to_string().contains(part), "{body}: {fault}");
    }
}

#[test]
fn one_that_cannot_run_here_is_refused_in_its_authors_words() {
    let engine = engine(1);
    let import = |name: &str| format!(r#"(component (import "{name}" (instance)))"#);
    for (text, part) in [
        ("(component)".to_owned(), "exports neither `wasi:cli/run` nor `wasi:http/incoming-handler`"),
        (import("acme:queue/send@1.0.0"), "it imports `acme:queue/send@1.0.0`; a component may import"),
        (import("wasi:keyvalue/store@0.2.0"), "`wasi:keyvalue/store@0.2.0`"),
        (import("wasi:cli/stdin@0.3.0"), "asynchronous"),
        (
            r#"(component (component $c) (instance $i (instantiate $c)) (export "wasi:cli/run@0.3.0" (instance $i)))"#
                .to_owned(),
            "asynchronous",
        ),
        (
            r#"(component (component $c) (instance $i (instantiate $c)) (export "wasi:cli/run@0.2.0" (instance $i)))"#
                .to_owned(),
            "has no function `run`",
        ),
        (
            format!(
                r#"(component {}
                    (component $c) (instance $i (instantiate $c)) (export "wasi:cli/run@0.2.0" (instance $i)))"#,
                r#"(import "wasi:clocks/monotonic-clock@0.2.0" (instance (export "later" (func))))"#
            ),
            "later",
        ),
    ] {
        match guest::compile(&engine, &guest::wasm(&text)) {
            Err(PrepareError::Unsupported(reason)) => assert!(reason.contains(part), "{text}: {reason}"),
            other => panic!("{text}: {:?}", other.map(|artefact| artefact.len())),
        }
    }
}

/// A command whose core instances have this many memories.
fn with_memories(count: usize) -> Vec<u8> {
    let memories: String = (0..count)
        .map(|n| format!("(core module $m{n} (memory 16)) (core instance (instantiate $m{n}))"))
        .collect();
    guest::wasm(&format!(
        r#"(component {memories}
            (core module $m (func (export "run") (result i32) i32.const 0))
            (core instance $i (instantiate $m))
            (func $run (result (result)) (canon lift (core func $i "run")))
            (instance $e (export "run" (func $run)))
            (export "wasi:cli/run@0.2.3" (instance $e)))"#
    ))
}

#[test]
fn the_limit_of_memory_is_of_all_memories_together() {
    let engine = engine(4);
    let image = guest::image(&engine, &with_memories(3));
    assert_eq!(answer(&image, ""), "", "3 MiB are within the limit");
    let small = Grant {
        limits: Limits {
            memory: ByteSize::mib(2),
            ..grant().limits
        },
        ..grant()
    };
    let mut running = Running::spawn(&image, &small, b"");
    let ended = running.finish().map_err(|(fault, _)| fault);
    assert!(matches!(ended, Err(Fault::OutOfMemory { .. })), "{ended:?}");
}

#[test]
fn a_component_takes_a_place_for_each_memory() {
    let engine = engine(4);
    let image = guest::image(&engine, &with_memories(3));
    let first = Running::spawn(&image, &grant(), b"");
    assert!(image.spawn(&Arc::new(grant()), guest::input(b"").0).is_err());
    drop(first);
    assert_eq!(answer(&image, ""), "");
    match guest::compile(&engine, &with_memories(9)) {
        Err(PrepareError::Unsupported(reason)) => assert!(reason.contains("memories"), "{reason}"),
        other => panic!("{:?}", other.map(|artefact| artefact.len())),
    }
}
