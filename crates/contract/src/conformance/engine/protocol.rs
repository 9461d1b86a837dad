//! What goes in and out: body, words, log.

use super::*;

/// Empty, small and large bodies come back byte for byte, with the grant's content type.
pub(super) fn standard_input_becomes_standard_output(subject: &Subject<'_>) {
    let image = echo(subject);
    ticking(subject.engine, || {
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

/// Arguments and environment are the grant's and the request's; nothing of the host is there.
pub(super) fn only_the_grant_and_the_request_are_visible(subject: &Subject<'_>) {
    let image = subject.image(
        "words",
        0,
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
    let text = ticking(subject.engine, || answer(&image, &grant, b"body"));
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
pub(super) fn random_bytes_differ(subject: &Subject<'_>) {
    let image = subject.image(
        "random",
        0,
        &start(
            "(drop (call $random_get (i32.const 1024) (i32.const 16)))
            (call $number (i32.const 1) (i64.load (i32.const 1024)))
            (call $number (i32.const 1) (i64.load (i32.const 1032)))",
        ),
    );
    ticking(subject.engine, || {
        let seen: HashSet<_> = (0..50).map(|_| answer(&image, &grant(), b"")).collect();
        assert_eq!(seen.len(), 50);
    });
}

/// What was written before `fd_close` is the response; later writes are told that the descriptor is bad.
pub(super) fn a_closed_output_stays_closed(subject: &Subject<'_>) {
    let image = subject.image("closes", 0, &start(
            "(call $say (i32.const 1))
            (call $number (i32.const 2) (i64.extend_i32_u (call $fd_close (i32.const 1))))
            (call $number (i32.const 2) (i64.extend_i32_u (call $write (i32.const 1) (i32.const 0) (i32.const 9))))
            (call $number (i32.const 2) (i64.extend_i32_u (call $fd_close (i32.const 1))))",
        ),
    );
    ticking(subject.engine, || {
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
pub(super) fn standard_error_reaches_the_log(subject: &Subject<'_>) {
    for (end, variant) in ["", "(unreachable)", SPIN].into_iter().zip(0..) {
        let image = subject.image(
            "logs",
            variant,
            &start(&format!("(call $number (i32.const 2) (i64.const 12345)) {end}")),
        );
        ticking(subject.engine, || {
            let mut running = Running::spawn(&image, &grant(), b"");
            if end == SPIN {
                subject.preempt(&mut running, 1);
                while running.said().record().log.is_empty() {
                    running.rest();
                    assert!(running.turn().is_none());
                }
            } else {
                assert_eq!(running.finish().is_ok(), end.is_empty());
            }
            assert_eq!(running.said().record().log, b"12345 ");
        });
    }
}

/// With the CGI protocol, output begins with a header; output without one is a fault.
pub(super) fn a_cgi_response_is_told_apart(subject: &Subject<'_>) {
    let grant = Grant {
        protocol: Protocol::Cgi,
        ..grant()
    };
    let echo = echo(subject);
    ticking(subject.engine, || {
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
pub(super) fn hostile_pointers_are_answered(engine: &dyn Engine) {
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
