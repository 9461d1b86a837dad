//! What holds for any bytes whatever, checked against slow and simple readings of the grammar. Both the property tests
//! and the fuzz target call [`all`].

use crate::conversation::{BODY_LIMIT, converse};
use contract::RequestId;
use gateway::http1::{ChunkDecoder, Framing, Limits, Parsed, RequestHead, ResponseLine, parse, write_head};

/// Panics with what was broken.
pub(crate) fn all(input: &[u8]) {
    let limits = Limits::default();
    // Short inputs at every split, long ones at some.
    let step = 1 + input.len() / 256;
    verdicts_do_not_depend_on_splits(input, &limits, step);
    let whole = converse([input]);
    assert_eq!(whole, converse(input.chunks(step)), "in pieces of {step}");
    let (left, right) = input.split_at(input.len() / 2);
    assert_eq!(whole, converse([left, right]), "in halves");
    if let Ok(Parsed::Head(request)) = parse(input, &limits, "http", RequestId(1)) {
        an_accepted_head_is_strict(&input[..request.consumed], &request, &limits);
        responses_read_back(&request);
    }
    chunks_decode_as_the_oracle_says(input, step);
}

fn show(parsed: &Result<Parsed, gateway::http1::Reject>) -> String {
    format!("{parsed:?}")
}

/// A prefix is partial, or gets the verdict of the whole.
fn verdicts_do_not_depend_on_splits(input: &[u8], limits: &Limits, step: usize) {
    let whole = parse(input, limits, "http", RequestId(1));
    let expected = show(&whole);
    for length in (0..input.len()).step_by(step) {
        let prefix = parse(&input[..length], limits, "http", RequestId(1));
        match &prefix {
            Ok(Parsed::Partial) => {}
            _ => assert_eq!(show(&prefix), expected, "on the first {length} bytes"),
        }
    }
    if let Ok(Parsed::Head(request)) = &whole {
        // The head alone is enough, and less is not.
        assert_eq!(
            show(&parse(&input[..request.consumed], limits, "http", RequestId(1))),
            expected
        );
        assert!(matches!(
            parse(&input[..request.consumed - 1], limits, "http", RequestId(1)),
            Ok(Parsed::Partial)
        ));
    }
}

fn token(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

fn split(bytes: &[u8], at: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let start = bytes.windows(at.len()).position(|window| window == at)?;
    Some((bytes[..start].to_vec(), bytes[start + at.len()..].to_vec()))
}

/// Reads an accepted head again, by the letter of RFC 9112.
fn an_accepted_head_is_strict(bytes: &[u8], request: &RequestHead, limits: &Limits) {
    let bytes = bytes.strip_prefix(b"\r\n").unwrap_or(bytes);
    assert!(bytes.len() <= limits.head);
    let mut rest = bytes.to_vec();
    let mut lines = Vec::new();
    loop {
        let (line, after) = split(&rest, b"\r\n").expect("ends with CRLF");
        assert!(
            !line.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)),
            "a control character in a line"
        );
        rest = after;
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    assert!(rest.is_empty(), "bytes after the empty line");

    let words: Vec<&[u8]> = lines[0].split(|b| *b == b' ').collect();
    let [method, target, version] = words[..] else {
        panic!("not three words")
    };
    assert!(token(method) && method != b"CONNECT" && method != b"TRACE");
    assert_eq!(method, request.head.method().as_bytes());
    assert!(target.iter().all(|b| b.is_ascii_graphic() && *b != b'#') && target.len() <= limits.target);
    assert_eq!(version, if request.http10 { b"HTTP/1.0" } else { b"HTTP/1.1" });
    let absolute = !matches!(target, [b'/', ..] | b"*");
    assert!(absolute || target == request.head.target().as_bytes());
    assert!(request.head.target().starts_with('/') || method == b"OPTIONS" && request.head.target() == "*");

    let mut expected = Vec::new();
    let count = |known: &str| {
        let mut values = Vec::new();
        for line in &lines[1..] {
            let (name, value) = split(line, b":").expect("a colon");
            if String::from_utf8_lossy(&name).eq_ignore_ascii_case(known) {
                values.push(value.trim_ascii().to_vec());
            }
        }
        values
    };
    assert!(lines.len() - 1 <= limits.headers);
    for line in &lines[1..] {
        let (name, value) = split(line, b":").expect("a colon");
        assert!(token(&name), "a name that is no token");
        assert!(
            value.iter().all(|b| *b == b'\t' || (*b >= b' ' && *b != 0x7f)),
            "a control character in a value"
        );
        let name = String::from_utf8(name).expect("tokens are ASCII");
        let lower = name.to_ascii_lowercase();
        let replaced = absolute && lower == "host";
        if !(replaced || lower.contains('_') || lower == "proxy" || lower == "transfer-encoding") {
            expected.push((name, value.trim_ascii().to_vec()));
        }
    }
    let seen: Vec<_> = request
        .head
        .headers()
        .skip(usize::from(absolute))
        .map(|(name, value)| (name.to_owned(), value.to_vec()))
        .collect();
    assert_eq!(seen, expected);

    let hosts = count("host");
    assert!(hosts.len() <= 1 && (hosts.len() == 1 || request.http10));
    let (lengths, encodings) = (count("content-length"), count("transfer-encoding"));
    match (&lengths[..], &encodings[..], request.framing) {
        ([], [], Framing::None) => {}
        ([text], [], Framing::Length(length)) => {
            let text = std::str::from_utf8(text).expect("digits");
            assert!(text.bytes().all(|b| b.is_ascii_digit()));
            assert_eq!(text.parse(), Ok(length));
        }
        ([], [coding], Framing::Chunked) => {
            assert!(coding.eq_ignore_ascii_case(b"chunked") && !request.http10)
        }
        other => panic!("{other:?}"),
    }
}

/// A response with the request's own headers is one that a client reads, with nothing of them in its framing.
fn responses_read_back(request: &RequestHead) {
    for (status, to_head) in [
        (200, false),
        (200, true),
        (204, false),
        (304, false),
        (599, false),
    ] {
        let line = ResponseLine {
            status,
            length: Some(12345),
            to_head,
            keep_alive: request.keep_alive,
            http10: request.http10,
            date: None,
        };
        let mut out = Vec::new();
        let body =
            write_head(&mut out, &line, request.head.headers(), &[]).expect("request headers are sound");
        assert_eq!(body, !to_head && !matches!(status, 204 | 304));
        let mut headers = [httparse::EMPTY_HEADER; 128];
        let mut response = httparse::Response::new(&mut headers);
        assert_eq!(response.parse(&out), Ok(httparse::Status::Complete(out.len())));
        assert_eq!(response.code, Some(status));
        let values = |known: &str| -> Vec<&[u8]> {
            response
                .headers
                .iter()
                .filter(|h| h.name.eq_ignore_ascii_case(known))
                .map(|h| h.value)
                .collect()
        };
        let length: &[&[u8]] = if matches!(status, 204 | 304) {
            &[]
        } else {
            &[b"12345"]
        };
        assert_eq!(values("content-length"), length);
        assert!(values("transfer-encoding").is_empty());
        let connection: &[&[u8]] = match (request.keep_alive, request.http10) {
            (false, _) => &[b"close"],
            (true, true) => &[b"keep-alive"],
            (true, false) => &[],
        };
        assert_eq!(values("connection"), connection);
    }
}

#[derive(Debug, PartialEq)]
enum Chunks {
    Complete { body: Vec<u8>, consumed: usize },
    Incomplete,
    Wrong,
}

/// Reads chunks line by line, all at once.
fn oracle(input: &[u8]) -> Chunks {
    let (mut body, mut rest, mut extensions) = (Vec::new(), input.to_vec(), 0);
    loop {
        let Some((line, after)) = split(&rest, b"\r\n") else {
            return Chunks::Incomplete;
        };
        let (size, extension) = split(&line, b";").unwrap_or((line.clone(), Vec::new()));
        extensions += extension.len();
        let sound = (1..=16).contains(&size.len())
            && size.iter().all(u8::is_ascii_hexdigit)
            && extension
                .iter()
                .all(|b| *b == b'\t' || (*b >= b' ' && *b != 0x7f))
            && extensions <= 256;
        let size = std::str::from_utf8(&size)
            .ok()
            .and_then(|size| u64::from_str_radix(size, 16).ok());
        let Some(size) = size.filter(|_| sound) else {
            return Chunks::Wrong;
        };
        if u128::from(size) + body.len() as u128 > u128::from(BODY_LIMIT) {
            return Chunks::Wrong;
        }
        rest = after;
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).expect("below the limit");
        match rest.get(size..size + 2) {
            Some(b"\r\n") => {}
            Some(_) => return Chunks::Wrong,
            None => return Chunks::Incomplete,
        }
        body.extend_from_slice(&rest[..size]);
        rest.drain(..size + 2);
    }
    let mut trailers = 0;
    loop {
        let Some((line, after)) = split(&rest, b"\r\n") else {
            return Chunks::Incomplete;
        };
        rest = after;
        trailers += line.len() + 2;
        // The very last line feed is free.
        if trailers - usize::from(line.is_empty()) > 4096 {
            return Chunks::Wrong;
        }
        if line.is_empty() {
            return Chunks::Complete {
                body,
                consumed: input.len() - rest.len(),
            };
        }
        let Some((name, value)) = split(&line, b":") else {
            return Chunks::Wrong;
        };
        if !token(&name) || !value.iter().all(|b| *b == b'\t' || (*b >= b' ' && *b != 0x7f)) {
            return Chunks::Wrong;
        }
    }
}

fn chunks_decode_as_the_oracle_says(input: &[u8], step: usize) {
    let expected = oracle(input);
    for step in [input.len().max(1), step] {
        let (mut decoder, mut body, mut consumed) = (ChunkDecoder::new(), Vec::new(), 0);
        let mut found = Chunks::Incomplete;
        for piece in input.chunks(step) {
            match decoder.feed(piece, &mut body, BODY_LIMIT) {
                Ok(fed) => {
                    consumed += fed.consumed;
                    assert!(fed.done || fed.consumed == piece.len());
                    if fed.done {
                        found = Chunks::Complete {
                            body: body.clone(),
                            consumed,
                        };
                        break;
                    }
                }
                Err(reject) => {
                    found = Chunks::Wrong;
                    assert_eq!(
                        decoder.feed(b"0\r\n\r\n", &mut body, BODY_LIMIT),
                        Err(reject),
                        "it said so before"
                    );
                    break;
                }
            }
            assert!(body.len() as u64 <= BODY_LIMIT);
        }
        // The decoder may see that a line is wrong before it ends.
        let early = found == Chunks::Wrong && expected == Chunks::Incomplete;
        assert!(
            early || found == expected,
            "{found:?}, but the oracle says {expected:?}"
        );
    }
}
