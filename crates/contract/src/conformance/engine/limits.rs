//! What a grant limits, and what is told of it.

use super::*;

/// Memory grows up to the grant's limit, page by page or at once; beyond it `memory.grow` answers -1.
pub(super) fn memory_grows_to_its_limit_and_no_further(engine: &dyn Engine) {
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

/// A guest that was refused memory and then failed, or was ended for want of it, is told to its owner as out of memory.
pub(super) fn a_failure_after_refused_memory_says_so(subject: &Subject<'_>) {
    for (variant, failure, grows) in [
        (0, "(unreachable)", true),
        (1, "(call $proc_exit (i32.const 1))", true),
        (2, "(unreachable)", false),
    ] {
        let grow = if grows {
            "(drop (memory.grow (i32.const 63)))"
        } else {
            "(drop (memory.grow (i32.const 62)))"
        };
        let image = subject.image("greedy", variant, &start(&format!("{grow} {failure}")));
        ticking(subject.engine, || match fault(&image, &grant(), b"") {
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
pub(super) fn memory_beyond_the_limit_from_the_beginning_is_refused(engine: &dyn Engine) {
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
pub(super) fn endless_output_is_ended(subject: &Subject<'_>) {
    let endless = subject.image(
        "floods",
        0,
        &start("(loop $more (call $print (i32.const 0) (i32.const 65536)) (br $more))"),
    );
    let echo = echo(subject);
    ticking(subject.engine, || {
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

/// Usage tells when the code began and how large its memory became.
pub(super) fn usage_is_told(subject: &Subject<'_>) {
    let image = subject.image("uses", 0, &start(
            "(drop (memory.grow (i32.const 8))) (if (i32.eq (call $letter) (i32.const 116)) (then (unreachable)))",
        ),
    );
    ticking(subject.engine, || {
        for body in [b"-", b"t"] {
            let before = Instant::now();
            let usage = match serve(&image, &grant(), body) {
                (Ok(usage), _) if body == b"-" => usage,
                (Err((Fault::Trap { .. }, usage)), _) if body == b"t" => usage,
                other => panic!("it ended with {other:?}"),
            };
            let started = usage.started.expect("it began");
            assert_eq!(usage.elsewhere.is_zero(), !subject.is_native());
            assert!((before..=Instant::now()).contains(&started));
            // A process has more than its heap.
            assert!(usage.memory == 10 << 16 || subject.is_native() && usage.memory > 8 << 16);
        }
    });
}
