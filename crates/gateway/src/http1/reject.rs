//! Why a request is refused. Every text is fixed: nothing a client sent is said back to it.

use contract::{Problem, RequestId};
use std::fmt;

/// A request that breaks the protocol or a limit of the edge. After it the connection's framing is unknown: answer with
/// `Connection: close`, and close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The HTTP status.
    pub status: u16,
    /// A stable code, as in [`Problem::code`].
    pub code: &'static str,
    /// What is wrong.
    pub detail: &'static str,
    /// What to try.
    pub hint: &'static str,
}

impl Reject {
    /// As a response's body.
    pub fn problem(&self, id: Option<RequestId>) -> Problem {
        Problem {
            request_id: id,
            ..Problem::new(self.status, self.code, self.detail, self.hint)
        }
    }

    const fn new(status: u16, code: &'static str, detail: &'static str, hint: &'static str) -> Self {
        Self {
            status,
            code,
            detail,
            hint,
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} {})", self.detail, self.status, self.code)
    }
}

impl std::error::Error for Reject {}

macro_rules! rejects {
    ($($name:ident = $status:literal $code:literal $detail:literal $hint:literal;)*) => {
        $(pub(super) const $name: Reject = Reject::new($status, $code, $detail, $hint);)*
    };
}

rejects! {
    TLS = 400 "http-tls"
        "a TLS handshake arrived at a port that speaks clear text HTTP"
        "use http:// instead of https://, or the port of --tls-listen";
    LINE_ENDING = 400 "http-line-ending"
        "a line of the request does not end in carriage return and line feed"
        "end every line with \\r\\n";
    FOLDING = 400 "http-folding"
        "a line of the request's head begins with white space"
        "write each header on one line of its own";
    REQUEST_LINE = 400 "http-request-line"
        "the request line is malformed"
        "it is `METHOD TARGET HTTP/1.1`, with single spaces";
    VERSION = 505 "http-version"
        "the request is not HTTP/1.1 or HTTP/1.0"
        "use HTTP/1.1";
    PREFACE = 505 "http-version"
        "the preface of HTTP/2 came where HTTP/1.1 is spoken already"
        "begin a connection with it; through TLS, offer `h2` by ALPN";
    METHOD_UNKNOWN = 501 "http-method"
        "this method is not implemented here"
        "CONNECT is for proxies; other methods have at most 32 characters";
    METHOD_TRACE = 405 "http-method"
        "TRACE is not allowed here"
        "use another method";
    TARGET = 400 "http-target"
        "the request's target is malformed"
        "it begins with `/` or is a URL; percent-encode all but visible ASCII, and send no fragment";
    TARGET_LONG = 414 "limit-request-target"
        "the request's target is longer than this node takes"
        "send what is long in the body";
    SCHEME = 421 "http-scheme"
        "the request's target has a scheme that this port does not serve"
        "use the URL by which you came, or only its path and query";
    HEAD_LARGE = 431 "limit-request-head"
        "the request's head is larger than this node takes"
        "send fewer or shorter headers";
    HEADERS_MANY = 431 "limit-request-headers"
        "the request has more headers than this node takes"
        "send fewer headers";
    HEADER_NAME = 400 "http-header-name"
        "a header's name is malformed"
        "it is letters, digits and !#$%&'*+-.^_`|~, followed at once by a colon";
    HEADER_VALUE = 400 "http-header-value"
        "a header's value has a control character"
        "encode it";
    HOST = 400 "http-host"
        "the request does not have exactly one well-formed Host header"
        "send one, with a name or address and perhaps a port";
    LENGTH = 400 "http-content-length"
        "Content-Length is not exactly one decimal number"
        "send it once, with digits only";
    LENGTH_LARGE = 413 "limit-request-body"
        "Content-Length is larger than any body could be"
        "send less";
    ENCODING = 400 "http-transfer-encoding"
        "Transfer-Encoding is malformed, repeated, or not allowed in this version"
        "the only one known here is `chunked`, once, in HTTP/1.1";
    ENCODING_UNKNOWN = 501 "http-transfer-encoding"
        "this Transfer-Encoding is not implemented here"
        "the only one known here is `chunked`";
    FRAMING = 400 "http-framing"
        "the request has both Content-Length and Transfer-Encoding"
        "send one of them";
    EXPECTATION = 417 "http-expectation"
        "this expectation is not known here"
        "the only one known here is `Expect: 100-continue`";
    CHUNK = 400 "http-chunk"
        "the chunked body is malformed"
        "a chunk is its size in at most 16 hexadecimal digits, \\r\\n, its bytes, \\r\\n; the last one has size 0";
    CHUNK_EXTENSION = 400 "http-chunk-extension"
        "the chunked body has more extensions than this node takes"
        "send no chunk extensions";
    TRAILER = 400 "http-trailer"
        "the chunked body's trailer section is malformed"
        "trailers have the form of headers";
    TRAILER_LARGE = 431 "limit-request-trailers"
        "the chunked body's trailer section is larger than this node takes"
        "send fewer or shorter trailers";
    BODY_LARGE = 413 "limit-request-body"
        "the request's body is larger than this function takes"
        "raise `request_body` of this function in millpond.toml, or send less";
}
