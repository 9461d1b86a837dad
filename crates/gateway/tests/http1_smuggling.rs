//! The request-smuggling corpus: what other servers and proxies have been made to disagree about, and what this one
//! says. Each input goes in whole and byte by byte.

extern crate millpond_gateway as gateway;

#[path = "http1/conversation.rs"]
mod conversation;
#[path = "http1/smuggling.rs"]
mod smuggling;

use conversation::converse;
use gateway::http1::{Limits, Parsed, parse};
use std::collections::BTreeSet;

#[test]
fn every_case_has_its_verdict() {
    let mut wrong = Vec::new();
    for (name, input, expected) in smuggling::CASES {
        let whole = converse([*input]);
        let bytewise = converse(input.chunks(1));
        if whole != *expected || bytewise != *expected {
            wrong.push(format!(
                "{name}\n  expected  {expected}\n  whole     {whole}\n  bytewise  {bytewise}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_corpus_is_large_and_its_names_are_unique() {
    let names: BTreeSet<_> = smuggling::CASES.iter().map(|(name, ..)| name).collect();
    assert_eq!(names.len(), smuggling::CASES.len());
    assert!(names.len() >= 120, "{}", names.len());
}

fn verdict(input: &[u8]) -> String {
    let whole = converse([input]);
    assert_eq!(whole, converse(input.chunks(997)));
    whole
}

#[test]
fn heads_are_bounded() {
    let Limits {
        head,
        headers,
        target,
    } = Limits::default();
    let get =
        |target: &str, rest: &str| format!("GET {target} HTTP/1.1\r\nHost: h\r\n{rest}\r\n").into_bytes();
    let ok = |input: &[u8]| {
        let verdict = verdict(input);
        verdict.starts_with("GET /") && !verdict.contains('|')
    };

    let path = format!("/{}", "a".repeat(target - 1));
    assert!(ok(&get(&path, "")));
    assert_eq!(verdict(&get(&format!("{path}a"), "")), "414 limit-request-target");
    // Nothing but a target, for ever.
    assert_eq!(
        verdict(format!("GET /{}", "a".repeat(2 * target)).as_bytes()),
        "414 limit-request-target"
    );
    assert_eq!(
        verdict("A".repeat(2 * target).as_bytes()),
        "414 limit-request-target"
    );

    let fill = head - get("/", "X: \r\n").len();
    assert!(ok(&get("/", &format!("X: {}\r\n", "a".repeat(fill)))));
    assert_eq!(
        verdict(&get("/", &format!("X: {}\r\n", "a".repeat(fill + 1)))),
        "431 limit-request-head"
    );
    let endless = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(head));
    assert_eq!(verdict(endless.as_bytes()), "431 limit-request-head");

    assert!(ok(&get("/", &"X: y\r\n".repeat(headers - 1))));
    assert_eq!(
        verdict(&get("/", &"X: y\r\n".repeat(headers))),
        "431 limit-request-headers"
    );
}

#[test]
fn chunk_extensions_and_trailers_are_bounded() {
    let post = |body: &str| {
        format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{body}").into_bytes()
    };
    let extension = "e".repeat(256);
    assert_eq!(
        verdict(&post(&format!("1;{extension}\r\nx\r\n0\r\n\r\n"))),
        "POST / {x}"
    );
    assert_eq!(
        verdict(&post(&format!("1;{extension}e\r\nx\r\n0\r\n\r\n"))),
        "400 http-chunk-extension"
    );
    // All extensions of a body count together.
    assert_eq!(
        verdict(&post(&"1;a\r\nx\r\n".repeat(257))),
        "400 http-chunk-extension"
    );

    let trailer = "t".repeat(4096 - "X:\r\n\r".len());
    assert_eq!(verdict(&post(&format!("0\r\nX:{trailer}\r\n\r\n"))), "POST / {}");
    assert_eq!(
        verdict(&post(&format!("0\r\nX:{trailer}t\r\n\r\n"))),
        "431 limit-request-trailers"
    );
    assert_eq!(
        verdict(&post(&format!("0\r\n{}", "X:y\r\n".repeat(1000)))),
        "431 limit-request-trailers"
    );
}

#[test]
fn the_function_sees_what_it_should() {
    let input = b"POST http://real.example:81?q HTTP/1.1\r\nHost: fake\r\nTransfer-Encoding: chunked\r\nX-A:  b \t\r\n\
                  X_A: c\r\nProxy: http://evil\r\nEmpty:\r\nx-a: \xff\r\n\r\n";
    let Ok(Parsed::Head(request)) = parse(input, &Limits::default(), "http", contract::RequestId(7)) else {
        panic!("refused")
    };
    let headers: Vec<_> = request.head.headers().collect();
    assert_eq!(
        headers,
        [
            ("Host", &b"real.example:81"[..]),
            ("X-A", b"b"),
            ("Empty", b""),
            ("x-a", b"\xff")
        ]
    );
    assert_eq!((request.head.path(), request.head.query()), ("/", "q"));
    assert_eq!(request.head.id, contract::RequestId(7));
    assert_eq!(request.consumed, input.len());
}
