//! Properties of the HTTP/1.1 parser, on bytes that resemble requests.

extern crate millpond_gateway as gateway;

#[path = "http1/conversation.rs"]
mod conversation;
#[path = "http1/invariants.rs"]
mod invariants;
#[path = "http1/smuggling.rs"]
mod smuggling;

use proptest::{collection::vec, prelude::*, sample::select};

const PIECES: &[&[u8]] = &[
    b"GET ",
    b"POST ",
    b"OPTIONS ",
    b"/",
    b"*",
    b"/a?b",
    b"http://i",
    b" HTTP/1.1\r\n",
    b" HTTP/1.0\r\n",
    b" HTTP/2.0\r\n",
    b"Host: h\r\n",
    b"Host: h\r\n",
    b"Host: h\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding",
    b": ",
    b":",
    b"chunked",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"Expect: 100-continue\r\n",
    b"X: y\r\n",
    b"X_Y: z\r\n",
    b"Proxy: p\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b"\0",
    b",",
    b";",
    b"0",
    b"5",
    b"hello",
    b"5\r\nhello\r\n",
    b"5;a=b\r\nhello\r\n",
    b"0\r\n\r\n",
    b"0\r\nX: y\r\n\r\n",
    b"fff",
    b"\x16\x03",
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
];

const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n";

fn likely() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => select(PIECES).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 1..4),
    ];
    vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// Some bytes of `input` replaced, removed or put in.
fn mutated(input: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let edit = (
        any::<prop::sample::Index>(),
        0..3u8,
        prop_oneof![any::<u8>(), select(&b"\r\n\t :;,0aA\0\x7f\xff"[..])],
    );
    (input, vec(edit, 0..4)).prop_map(|(mut bytes, edits)| {
        for (index, kind, byte) in edits {
            let at = index.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                _ if at < bytes.len() => drop(bytes.remove(at)),
                _ => {}
            }
        }
        bytes
    })
}

fn corpus() -> impl Strategy<Value = Vec<u8>> {
    select(smuggling::CASES).prop_map(|(_, input, _)| [input, NEXT].concat())
}

fn chunks() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    vec(vec(any::<u8>(), 1..40), 0..8).prop_map(|chunks| {
        let mut wire = Vec::new();
        for chunk in &chunks {
            wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0;a=b\r\nX: y\r\n\r\n");
        (chunks.concat(), wire)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn likely_bytes_keep_the_invariants(input in likely()) {
        invariants::all(&input);
    }

    #[test]
    fn mutated_requests_keep_the_invariants(input in mutated(corpus())) {
        invariants::all(&input);
    }

    #[test]
    fn mutated_chunks_keep_the_invariants(input in mutated(chunks().prop_map(|(_, wire)| wire))) {
        invariants::all(&input);
    }

    #[test]
    fn any_bytes_keep_the_invariants(input in vec(any::<u8>(), 0..200)) {
        invariants::all(&input);
    }

    #[test]
    fn chunks_come_out_as_they_went_in((body, wire) in chunks(), cut in any::<prop::sample::Index>()) {
        let mut input = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        input.extend_from_slice(&wire);
        input.extend_from_slice(NEXT);
        let (left, right) = input.split_at(cut.index(input.len()));
        let expected = format!("POST / {{{}}} | GET /next", body.escape_ascii());
        prop_assert_eq!(conversation::converse([left, right]), expected);
    }

    #[test]
    fn two_requests_are_two(first in 0..100usize, second in 0..100usize) {
        let post = |length: usize| {
            format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{}", "G".repeat(length))
        };
        let input = post(first) + &post(second);
        let expected = format!("POST / [{}] | POST / [{}]", "G".repeat(first), "G".repeat(second));
        prop_assert_eq!(conversation::converse([input.as_bytes()]), expected);
    }
}

#[test]
fn the_corpus_keeps_the_invariants() {
    for (_, input, _) in smuggling::CASES {
        invariants::all(input);
    }
}
