//! A request's head.

use super::{
    reject::{self, Reject},
    syntax,
};
use contract::{Head, HeadBuilder, RequestId};
use std::{borrow::Cow, mem::MaybeUninit};

/// The most headers that [`Limits::headers`] can allow.
const MOST_HEADERS: usize = 128;
/// The longest method of any registry has 17 characters.
const LONGEST_METHOD: usize = 32;
/// Settings in an `HTTP2-Settings` header. There are eight in the registry.
const MOST_SETTINGS: usize = 32;
/// Of a request line, all but the target: the method, two spaces, the version and CRLF.
const LINE_WITHOUT_TARGET: usize = LONGEST_METHOD + 2 + "HTTP/1.1\r\n".len();

/// How much a request's head may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All of it, in bytes.
    pub head: usize,
    /// The number of headers; 128 at most.
    pub headers: usize,
    /// The target, in bytes.
    pub target: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: 16 << 10,
            headers: 100,
            target: 8 << 10,
        }
    }
}

/// How a connection begins on which HTTP/2 is spoken (RFC 9113, section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What [`parse`] found.
#[derive(Debug)]
pub enum Parsed {
    /// The head is not complete; call again with more.
    Partial,
    /// A head.
    Head(RequestHead),
}

/// A request's head, and what it says about the connection.
#[derive(Debug)]
pub struct RequestHead {
    /// How many bytes of the buffer it took. The body, or the next request, begins there.
    pub consumed: usize,
    /// Method, target and headers, for the function.
    pub head: Box<Head>,
    /// Where the body ends.
    pub framing: Framing,
    /// Whether another request may follow on this connection.
    pub keep_alive: bool,
    /// Whether the client waits for [`super::CONTINUE`] before it sends the body. Only if there is a body.
    pub expect_continue: bool,
    /// Whether the client speaks HTTP/1.0.
    pub http10: bool,
    /// Whether the client reads trailers (`TE: trailers`).
    pub trailers: bool,
    /// Whether the client asks, as RFC 7540 (section 3.2) says, to go on in HTTP/2 without TLS.
    pub upgrade: bool,
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// After so many bytes.
    Length(u64),
    /// Where a [`super::ChunkDecoder`] says.
    Chunked,
}

/// Looks for a request's head at the start of `buffer`. It becomes a [`Head`] with this id. A target in absolute-form must
/// have the scheme by which the client came.
///
/// Costs time in proportion to the head, each time: with a client that sends byte by byte, `limits.head` bounds it.
pub fn parse(buffer: &[u8], limits: &Limits, scheme: &str, id: RequestId) -> Result<Parsed, Reject> {
    parse_again(buffer, limits, scheme, id, &mut None)
}

/// [`parse`] that takes a head that nobody needs any more, if there is one, in the place of new memory.
pub(crate) fn parse_again(
    buffer: &[u8],
    limits: &Limits,
    scheme: &str,
    id: RequestId,
    spare: &mut Option<Box<Head>>,
) -> Result<Parsed, Reject> {
    let Some(skipped) = leading(buffer)? else {
        return Ok(Parsed::Partial);
    };
    let window = &buffer[skipped..];
    let window = &window[..window.len().min(limits.head)];

    let mut lines = Lines {
        bytes: window,
        start: 0,
    };
    let longest_line = limits.head.min(limits.target.saturating_add(LINE_WITHOUT_TARGET));
    let Some(first) = lines.first(longest_line)? else {
        return Ok(Parsed::Partial);
    };
    let end = lines.head_end();
    let Ok(Some(end)) = end else {
        // Before anything is said about the lines that follow, the request line itself must be in order.
        check_line(first, limits, scheme)?;
        return match end {
            Err(reject) => Err(reject),
            Ok(_) if window.len() == limits.head => Err(reject::HEAD_LARGE),
            Ok(_) => Ok(Parsed::Partial),
        };
    };

    let bytes = &window[..end];
    let mut places = [const { MaybeUninit::uninit() }; MOST_HEADERS];
    let places = &mut places[..limits.headers.min(MOST_HEADERS)];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, places) {
        Ok(httparse::Status::Complete(length)) if length == end => {}
        Ok(_) => return Err(reject::LINE_ENDING),
        Err(error) => {
            check_line(first, limits, scheme)?;
            return Err(header_error(error));
        }
    }
    let line = Line::check(&request, limits, scheme)?;
    let fields = Fields::read(request.headers, &line)?;
    let framing = fields.framing();
    Ok(Parsed::Head(RequestHead {
        consumed: skipped + end,
        framing,
        keep_alive: !fields.close && (!line.http10 || fields.keep_alive),
        expect_continue: fields.expect_continue && !line.http10 && framing != Framing::None,
        http10: line.http10,
        trailers: fields.trailers && !line.http10,
        upgrade: fields.is_upgrade() && !line.http10,
        head: fields.build(&line, request.headers, id, spare.take().unwrap_or_default()),
    }))
}

/// How many bytes lie before the request line (RFC 9112, section 2.2, allows an empty line); `None` if that cannot be
/// said yet.
fn leading(buffer: &[u8]) -> Result<Option<usize>, Reject> {
    let (skipped, first) = match buffer {
        [b'\r', b'\n', first, ..] => (2, first),
        [] | [b'\r'] | [b'\r', b'\n'] => return Ok(None),
        [b'\r' | b'\n', ..] => return Err(reject::LINE_ENDING),
        [first, ..] => (0, first),
    };
    match *first {
        // The record type of a handshake (RFC 8446, section 5.1).
        0x16 => Err(reject::TLS),
        byte if syntax::is_token_byte(byte) => Ok(Some(skipped)),
        _ => Err(reject::REQUEST_LINE),
    }
}

/// The head's lines, by their line feeds alone.
struct Lines<'a> {
    bytes: &'a [u8],
    start: usize,
}

impl<'a> Lines<'a> {
    /// The request line with its CRLF, or `None` if more is needed.
    fn first(&mut self, longest: usize) -> Result<Option<&'a [u8]>, Reject> {
        let window = &self.bytes[..self.bytes.len().min(longest)];
        match memchr::memchr(b'\n', window) {
            Some(at) => {
                self.start = at + 1;
                if window[..at].ends_with(b"\r") {
                    Ok(Some(&window[..=at]))
                } else {
                    Err(reject::LINE_ENDING)
                }
            }
            None if window.len() == longest => Err(reject::TARGET_LONG),
            None => Ok(None),
        }
    }

    /// Where the empty line ends that ends the head, or `None` if more is needed.
    fn head_end(&self) -> Result<Option<usize>, Reject> {
        let mut start = self.start;
        for at in memchr::memchr_iter(b'\n', &self.bytes[self.start..]) {
            let at = self.start + at;
            match &self.bytes[start..at] {
                b"\r" => return Ok(Some(at + 1)),
                [b' ' | b'\t', ..] => return Err(reject::FOLDING),
                [.., b'\r'] => start = at + 1,
                _ => return Err(reject::LINE_ENDING),
            }
        }
        Ok(None)
    }
}

/// Whether a request line, with its CRLF, is in order.
fn check_line(bytes: &[u8], limits: &Limits, scheme: &str) -> Result<(), Reject> {
    let mut request = httparse::Request::new(&mut []);
    match request.parse(bytes) {
        Ok(_) => Line::check(&request, limits, scheme).map(drop),
        Err(error) => Err(line_error(error, bytes)),
    }
}

fn line_error(error: httparse::Error, line: &[u8]) -> Reject {
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    let mut words = line.split(|b| *b == b' ');
    match (error, words.next(), words.next(), words.next(), words.next()) {
        // HTTP/0.9 had no version.
        (_, Some(method), Some([b'/', ..]), None, _) if syntax::is_token(method) => reject::VERSION,
        (httparse::Error::Version, Some(b"PRI"), Some(b"*"), Some(b"HTTP/2.0"), None) => reject::PREFACE,
        (httparse::Error::Version, _, _, Some(word), None) if is_version(word) => reject::VERSION,
        _ => reject::REQUEST_LINE,
    }
}

fn is_version(word: &[u8]) -> bool {
    matches!(
        word.strip_prefix(b"HTTP/"),
        Some([b'0'..=b'9'] | [b'0'..=b'9', b'.', b'0'..=b'9'])
    )
}

fn header_error(error: httparse::Error) -> Reject {
    match error {
        httparse::Error::HeaderValue => reject::HEADER_VALUE,
        httparse::Error::TooManyHeaders => reject::HEADERS_MANY,
        httparse::Error::NewLine => reject::LINE_ENDING,
        _ => reject::HEADER_NAME,
    }
}

/// A request line in order.
struct Line<'a> {
    method: &'a str,
    /// In origin-form, or `*`.
    target: Cow<'a, str>,
    /// From a target in absolute-form.
    authority: Option<&'a str>,
    http10: bool,
}

impl<'a> Line<'a> {
    fn check(request: &httparse::Request<'_, 'a>, limits: &Limits, scheme: &str) -> Result<Self, Reject> {
        let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version)
        else {
            return Err(reject::REQUEST_LINE);
        };
        match method {
            "CONNECT" => return Err(reject::METHOD_UNKNOWN),
            "TRACE" => return Err(reject::METHOD_TRACE),
            _ if method.len() > LONGEST_METHOD => return Err(reject::METHOD_UNKNOWN),
            _ => {}
        }
        if target.len() > limits.target {
            return Err(reject::TARGET_LONG);
        }
        if !syntax::is_target(target.as_bytes()) {
            return Err(reject::TARGET);
        }
        let (target, authority) = match target.as_bytes() {
            [b'/', ..] => (Cow::Borrowed(target), None),
            b"*" if method == "OPTIONS" => (Cow::Borrowed(target), None),
            _ => {
                let (authority, target) = absolute(target, method, scheme)?;
                (target, Some(authority))
            }
        };
        let bytes = target.as_bytes();
        let path = &bytes[..memchr::memchr(b'?', bytes).unwrap_or(bytes.len())];
        if !syntax::has_sound_escapes(path) {
            return Err(reject::TARGET);
        }
        Ok(Self {
            method,
            target,
            authority,
            http10: version == 0,
        })
    }
}

/// Splits an absolute-form target into its authority and the same in origin-form (RFC 9112, section 3.2).
fn absolute<'a>(target: &'a str, method: &str, scheme: &str) -> Result<(&'a str, Cow<'a, str>), Reject> {
    let (its, rest) = target.split_once("://").ok_or(reject::TARGET)?;
    if !its.eq_ignore_ascii_case(scheme) {
        let is_scheme = its
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        return Err(if is_scheme && !its.is_empty() {
            reject::SCHEME
        } else {
            reject::TARGET
        });
    }
    let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if !syntax::is_host(authority.as_bytes()) {
        return Err(reject::TARGET);
    }
    let target = match target.as_bytes() {
        [] if method == "OPTIONS" => Cow::Borrowed("*"),
        [] => Cow::Borrowed("/"),
        [b'?', ..] => Cow::Owned(format!("/{target}")),
        _ => Cow::Borrowed(target),
    };
    Ok((authority, target))
}

/// What the headers mean, and which of them the function sees.
#[derive(Default)]
struct Fields {
    has_host: bool,
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    expect_continue: bool,
    /// `TE` names `trailers`.
    trailers: bool,
    /// `Upgrade` offers HTTP/2 without TLS.
    h2c: bool,
    /// `Connection` names `Upgrade` and `HTTP2-Settings`.
    names_upgrade: bool,
    names_settings: bool,
    /// How many `HTTP2-Settings` there are, and whether all are well-formed.
    settings: (usize, bool),
    /// The kept headers, by their index.
    kept: u128,
    /// How long they are together.
    bytes: usize,
}

impl Fields {
    fn read(headers: &[httparse::Header<'_>], line: &Line<'_>) -> Result<Self, Reject> {
        let mut fields = Self::default();
        for (index, header) in headers.iter().enumerate() {
            if fields.read_one(header, line)? {
                fields.kept |= 1 << index;
                fields.bytes += header.name.len() + header.value.len();
            }
        }
        if !fields.has_host && !line.http10 {
            return Err(reject::HOST);
        }
        if fields.length.is_some() && fields.chunked {
            return Err(reject::FRAMING);
        }
        Ok(fields)
    }

    /// Reads a header and says whether the function sees it.
    fn read_one(&mut self, header: &httparse::Header<'_>, line: &Line<'_>) -> Result<bool, Reject> {
        let (name, value) = (header.name, header.value);
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        // The length tells nearly all other names apart, at the price of one jump.
        match name.len() {
            2 if is("te") => {
                self.trailers |= syntax::list(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
            }
            4 if is("host") => {
                if self.has_host || !syntax::is_host(value) {
                    return Err(reject::HOST);
                }
                self.has_host = true;
                // An absolute-form target's authority takes its place.
                return Ok(line.authority.is_none());
            }
            5 if is("proxy") => return Ok(false),
            6 if is("expect") && !line.http10 => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(reject::EXPECTATION);
                }
                self.expect_continue = true;
            }
            7 if is("upgrade") => {
                // The token for TLS, `h2`, is no offer here.
                self.h2c |= syntax::list(value).any(|offer| offer == b"h2c");
            }
            10 if is("connection") => {
                for option in syntax::list(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    self.names_upgrade |= option.eq_ignore_ascii_case(b"upgrade");
                    self.names_settings |= option.eq_ignore_ascii_case(b"http2-settings");
                }
            }
            14 if is("content-length") => {
                if self.length.is_some() {
                    return Err(reject::LENGTH);
                }
                self.length = Some(length(value)?);
            }
            14 if is("http2-settings") => {
                self.settings = match self.settings {
                    (0, _) => (1, is_settings(value)),
                    (count, _) => (count + 1, false),
                };
            }
            17 if is("transfer-encoding") => {
                if self.chunked || line.http10 {
                    return Err(reject::ENCODING);
                }
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(unknown_encoding(value));
                }
                self.chunked = true;
                return Ok(false);
            }
            _ => {}
        }
        Ok(!name.as_bytes().contains(&b'_'))
    }

    fn is_upgrade(&self) -> bool {
        self.h2c && self.names_upgrade && self.names_settings && self.settings == (1, true)
    }

    fn framing(&self) -> Framing {
        match (self.chunked, self.length) {
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::None,
        }
    }

    fn build(
        &self,
        line: &Line<'_>,
        headers: &[httparse::Header<'_>],
        id: RequestId,
        place: Box<Head>,
    ) -> Box<Head> {
        let authority = line
            .authority
            .map_or(0, |authority| "Host".len() + authority.len());
        let capacity = self.bytes + authority;
        let mut builder = HeadBuilder::in_place_of(place, line.method, &line.target, capacity);
        if let Some(authority) = line.authority {
            builder.header("Host", authority.as_bytes());
        }
        for (index, header) in headers.iter().enumerate() {
            if self.kept & (1 << index) != 0 {
                builder.header(header.name, header.value);
            }
        }
        builder.build(id)
    }
}

/// Whether this is the payload of a SETTINGS frame in base64url without padding, of no more settings than make sense: each
/// has six bytes, which are eight characters.
fn is_settings(value: &[u8]) -> bool {
    value.len().is_multiple_of(8)
        && value.len() <= 8 * MOST_SETTINGS
        && value
            .iter()
            .all(|c| c.is_ascii_alphanumeric() || b"-_".contains(c))
}

fn length(value: &[u8]) -> Result<u64, Reject> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(reject::LENGTH);
    }
    value
        .iter()
        .try_fold(0u64, |sum, digit| {
            sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })
        .ok_or(reject::LENGTH_LARGE)
}

/// Tells a coding that is not implemented (RFC 9112, section 6.1) from nonsense: known nonsense aside, all are tokens
/// and `chunked`, if it is there, is there once and last.
fn unknown_encoding(value: &[u8]) -> Reject {
    let mut chunked = false;
    for coding in syntax::list(value) {
        if chunked || !syntax::is_token(coding) {
            return reject::ENCODING;
        }
        chunked = coding.eq_ignore_ascii_case(b"chunked");
    }
    reject::ENCODING_UNKNOWN
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*, sample::select};

    /// Bytes that are mostly a request, of sizes that differ much.
    fn request() -> impl Strategy<Value = Vec<u8>> {
        let target = prop_oneof![
            select(vec![
                "/",
                "/a/b?c=d",
                "http://other.example:8080/a?b",
                "*",
                "nonsense"
            ])
            .prop_map(String::from),
            "/[a-z]{0,300}",
        ];
        let field = prop_oneof![
            select(vec![
                "Content-Length: 5",
                "Connection: close",
                "Expect: 100-continue",
                "TE: trailers",
                "Broken"
            ])
            .prop_map(String::from),
            "X-[A-Za-z]{1,12}: [ -~]{0,120}",
        ];
        let version = select(vec!["1.1", "1.1", "1.1", "1.0", "3.0"]);
        (
            select(vec!["GET", "PUT", "OPTIONS", "G("]),
            target,
            version,
            vec(field, 0..8),
        )
            .prop_map(|(method, target, version, fields)| {
                let mut text = format!("{method} {target} HTTP/{version}\r\nHost: h\r\n");
                for field in fields {
                    text += &field;
                    text += "\r\n";
                }
                (text + "\r\n").into_bytes()
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever came before in the same memory, a request is what it says itself.
        #[test]
        fn of_an_earlier_request_nothing_is_seen(requests in vec((request(), any::<bool>()), 2..8)) {
            let limits = Limits::default();
            let mut spare = None;
            for (id, (bytes, refused)) in (0..).map(RequestId).zip(&requests) {
                let had = spare.is_some();
                let again = parse_again(bytes, &limits, "http", id, &mut spare);
                let new = parse(bytes, &limits, "http", id);
                prop_assert_eq!(format!("{again:?}"), format!("{new:?}"));
                if let Ok(Parsed::Head(mut request)) = again {
                    prop_assert!(spare.is_none(), "the memory is in use");
                    if *refused {
                        request.head.set_script(1);
                        spare = Some(request.head);
                    }
                } else {
                    prop_assert_eq!(spare.is_some(), had, "what is not used is kept");
                }
            }
        }
    }
}
