use super::*;
use contract::{HeadBuilder, Origin, RequestId};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn head(target: &str, headers: &[(&str, &[u8])]) -> Box<Head> {
    let mut builder = HeadBuilder::new("GET", target, 64);
    for (name, value) in headers {
        builder.header(name, value);
    }
    let mut head = builder.build(RequestId(1));
    head.origin = Origin::default();
    head
}

/// A client's first bytes: the preface, SETTINGS with this payload, then whatever.
fn beginning(payload: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, payload.len());
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(rest);
    bytes
}

const WINDOW: [u8; 6] = [0, 4, 0, 1, 0, 0];
const STREAMS: [u8; 6] = [0, 3, 0, 0, 0, 100];

#[test]
fn the_request_follows_the_first_settings() {
    let encoded = BASE64_URL_SAFE_NO_PAD.encode(WINDOW);
    let insert = Insert::new(&head(
        "/",
        &[("Host", b"h"), ("HTTP2-Settings", encoded.as_bytes())],
    ));
    let Spliced::Done(bytes) = splice(&beginning(&STREAMS, b"more"), &insert).unwrap() else {
        panic!("it is complete")
    };
    let mut expected = beginning(&[WINDOW, STREAMS].concat(), b"");
    // END_STREAM, END_HEADERS, stream 1.
    frame(&mut expected, HEADERS, 5, 1, insert.request.len() - FRAME_HEAD);
    expected
        .extend_from_slice(b"\0\x07:method\x03GET\0\x07:scheme\x04http\0\x05:path\x01/\0\x0a:authority\x01h");
    expected.extend_from_slice(b"more");
    assert_eq!(bytes, expected);
}

#[test]
fn what_is_the_connections_does_not_become_the_requests() {
    let insert = Insert::new(&head(
        "/",
        &[
            ("Host", b"h"),
            ("Connection", b"Upgrade, HTTP2-Settings"),
            ("Upgrade", b"h2c"),
            ("HTTP2-Settings", b""),
            ("TE", b"trailers"),
            ("X-Kept", b"1"),
        ],
    ));
    let text = String::from_utf8_lossy(&insert.request).to_lowercase();
    assert!(text.contains("x-kept"));
    for gone in ["connection", "upgrade", "settings", "trailers", "host"] {
        assert!(!text.contains(gone), "{text}");
    }
}

#[test]
fn what_begins_otherwise_is_refused() {
    let insert = Insert::new(&head("/", &[("Host", b"h")]));
    let with = |at: usize, byte: u8| {
        let mut bytes = beginning(&STREAMS, b"");
        bytes[at] = byte;
        bytes
    };
    let frame_at = PREFACE.len();
    for (what, bytes) in [
        ("no preface", b"GET / HTTP/1.1\r\n".to_vec()),
        ("another frame", with(frame_at + 3, HEADERS)),
        ("an acknowledgement", with(frame_at + 4, ACK)),
        ("of a stream", with(frame_at + 8, 1)),
        ("half a setting", with(frame_at + 2, 5)),
        ("too long", with(frame_at, 1)),
    ] {
        assert!(splice(&bytes, &insert).is_err(), "{what}");
    }
    assert!(
        splice(&with(frame_at + 5, 0x80), &insert).is_ok(),
        "the reserved bit is ignored"
    );
}

/// What [`Resumed`] gives when the client's bytes come in such pieces.
fn resumed(pieces: Vec<Vec<u8>>, first: usize, insert: Option<Insert>) -> io::Result<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut pieces = pieces.into_iter();
        let read: Vec<u8> = pieces.by_ref().take(first).flatten().collect();
        let (mut client, server) = tokio::io::duplex(64);
        let writing = tokio::spawn(async move {
            for piece in pieces {
                if client.write_all(&piece).await.is_err() {
                    return;
                }
            }
        });
        let mut out = Vec::new();
        let ended = Resumed::new(server, read, insert).read_to_end(&mut out).await;
        let _ = writing.await;
        ended.map(|_| out)
    })
}

fn pieces() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1_usize..40, 0..30)
}

fn cut(bytes: &[u8], lengths: &[usize]) -> Vec<Vec<u8>> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    for length in lengths {
        let (piece, others) = rest.split_at((*length).min(rest.len()));
        out.push(piece.to_vec());
        rest = others;
    }
    out.push(rest.to_vec());
    out
}

proptest! {
    /// However the bytes are cut, and however many of them the gateway had read.
    #[test]
    fn pieces_make_no_difference(
        lengths in pieces(),
        first in 0_usize..5,
        settings in prop::collection::vec(any::<[u8; 6]>(), 0..20),
        rest in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let insert = Insert::new(&head("/a?b", &[("Host", b"h"), ("X-A", b"b")]));
        let bytes = beginning(&settings.concat(), &rest);
        let Spliced::Done(whole) = splice(&bytes, &insert).unwrap() else {
            panic!("it is complete")
        };
        let got = resumed(cut(&bytes, &lengths), first, Some(insert)).unwrap();
        prop_assert_eq!(got, whole);
        let got = resumed(cut(&bytes, &lengths), first, None).unwrap();
        prop_assert_eq!(got, bytes);
    }

    /// Bytes of any kind are refused or waited for, and what is refused stays refused.
    #[test]
    fn nonsense_is_refused(
        right in 0_usize..40,
        mut wrong in prop::collection::vec(any::<u8>(), 0..60),
        flip in any::<(prop::sample::Index, u8)>(),
    ) {
        let insert = Insert::new(&head("/", &[("Host", b"h")]));
        let mut bytes = beginning(&STREAMS, b"");
        bytes.truncate(right);
        bytes.append(&mut wrong);
        if !bytes.is_empty() {
            let at = flip.0.index(bytes.len());
            bytes[at] ^= flip.1;
        }
        let refused = (0..=bytes.len()).map(|length| splice(&bytes[..length], &insert).is_err());
        let refused: Vec<_> = refused.collect();
        prop_assert!(refused.is_sorted(), "{:?}", refused);
        let _ = resumed(vec![bytes], 0, Some(insert));
    }

    /// The `h2` crate reads what was put in as the request that was given, and the client's own streams behind it.
    #[test]
    fn an_implementation_reads_it_as_one_request(
        path in "/[a-z0-9/]{0,40}",
        fields in prop::collection::vec(("[a-z][a-z0-9-]{0,20}", prop_oneof!["[!-~]{0,40}", "[!-~]{200,9000}"]), 0..6),
    ) {
        // Those that are the connection's, or that the crate checks for their meaning.
        let fields: Vec<_> = fields
            .into_iter()
            .map(|(name, value)| (format!("x-{name}"), value))
            .collect();
        let mut headers: Vec<(&str, &[u8])> = vec![("Host", b"example.org")];
        headers.extend(fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
        let insert = Insert::new(&head(&path, &headers));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let requests = runtime.block_on(read_three(insert)).unwrap();
        let first = &requests[0];
        prop_assert_eq!(first.uri().path(), path);
        prop_assert_eq!(first.uri().authority().unwrap().as_str(), "example.org");
        let got: Vec<_> = first
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        let by_name = |mut fields: Vec<(String, String)>| {
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            fields
        };
        prop_assert_eq!(by_name(got), by_name(fields));
        for theirs in &requests[1..] {
            prop_assert_eq!(&theirs.headers()["x-long"], "text");
            prop_assert_eq!(theirs.uri().authority().unwrap().as_str(), "h");
        }
    }
}

/// A client that was upgraded sends its second and third requests, whose heads are compressed; the server reads all three.
async fn read_three(
    insert: Insert,
) -> Result<Vec<http::Request<h2::RecvStream>>, Box<dyn std::error::Error>> {
    // Indexed fields of the static table (GET, http, /), then `:authority` and a field that goes into the dynamic table.
    let mut head = vec![0x82, 0x86, 0x84];
    head.extend_from_slice(b"\x41\x01h\x40\x06x-long\x04text");
    let mut rest = Vec::new();
    frame(&mut rest, HEADERS, END_STREAM | END_HEADERS, 3, head.len());
    rest.extend_from_slice(&head);
    // The same by the table: its last entry is 62, the one before 63.
    let head = [0x82, 0x86, 0x84, 0xbf, 0xbe];
    frame(&mut rest, HEADERS, END_STREAM | END_HEADERS, 5, head.len());
    rest.extend_from_slice(&head);
    let (mut theirs, ours) = tokio::io::duplex(1 << 20);
    theirs.write_all(&beginning(&STREAMS, &rest)).await?;
    let ours = Resumed::new(ours, Vec::new(), Some(insert));
    let mut builder = h2::server::Builder::new();
    let builder = builder.max_header_list_size(1 << 20);
    let mut server = builder.handshake::<_, bytes::Bytes>(ours).await?;
    let mut requests = Vec::new();
    while requests.len() < 3 {
        requests.push(server.accept().await.ok_or("it ended")??);
    }
    let ids: Vec<u32> = requests
        .iter()
        .map(|(_, respond)| respond.stream_id().into())
        .collect();
    if ids != [1, 3, 5] {
        return Err(format!("the streams are {ids:?}").into());
    }
    Ok(requests.into_iter().map(|(request, _)| request).collect())
}
