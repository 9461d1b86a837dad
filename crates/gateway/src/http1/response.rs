//! A response's head.

use super::syntax;

/// The interim response that a client asks for with `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What a response's head says beside its own headers.
#[derive(Clone, Copy, Debug)]
pub struct ResponseLine {
    /// 200 to 999.
    pub status: u16,
    /// Bytes of the body, whether or not it will be sent. If they are not known, it comes in chunks, or to a client of
    /// HTTP/1.0 until the connection ends.
    pub length: Option<u64>,
    /// Whether it answers a `HEAD`.
    pub to_head: bool,
    /// Whether another request may follow.
    pub keep_alive: bool,
    /// Whether the client speaks HTTP/1.0.
    pub http10: bool,
    /// For the `Date` header, as [`imf_date`] writes it.
    pub date: Option<[u8; 29]>,
}

/// A response that cannot be said in HTTP. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadResponse {
    /// The status is not that of a final response.
    #[error("{0} is not the status of a final response: use 200 to 999")]
    Status(u16),
    /// A header's name is not a token.
    #[error("`{}` cannot be a header's name: use letters, digits and !#$%&'*+-.^_`|~", .0.escape_debug())]
    HeaderName(String),
    /// A header's value has a control character.
    #[error("the header `{0}` has a control character in its value: encode it")]
    HeaderValue(String),
}

/// Appends a response's head, and says whether the body follows it.
///
/// The framing is this function's business: `Content-Length`, `Transfer-Encoding`, `Connection`, `Keep-Alive`, `Trailer`
/// and `Upgrade` among the headers are left out; so is `Date` if one is given. A 204 or 304 has no length, and neither
/// they, a 205 nor the answer to a `HEAD` has a body (RFC 9110, sections 8.6 and 15).
///
/// `ours` are the gateway's own headers: known to be good, and no business of the framing.
pub fn write_head<'a>(
    out: &mut Vec<u8>,
    line: &ResponseLine,
    headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ours: &[(&str, &[u8])],
) -> Result<bool, BadResponse> {
    let start = out.len();
    let result = append(out, line, headers, ours);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

fn append<'a>(
    out: &mut Vec<u8>,
    line: &ResponseLine,
    headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ours: &[(&str, &[u8])],
) -> Result<bool, BadResponse> {
    if !(200..=999).contains(&line.status) {
        return Err(BadResponse::Status(line.status));
    }
    // Most heads are shorter.
    out.reserve(512);
    if line.status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        decimal(out, u64::from(line.status));
        out.push(b' ');
        out.extend_from_slice(reason(line.status).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in headers {
        if !syntax::is_token(name.as_bytes()) {
            return Err(BadResponse::HeaderName(name.to_owned()));
        }
        if !syntax::is_value(value) {
            return Err(BadResponse::HeaderValue(name.to_owned()));
        }
        if !is_ours(name, line) {
            header(out, name, value);
        }
    }
    for (name, value) in ours {
        header(out, name, value);
    }
    if let Some(date) = &line.date {
        header(out, "Date", date);
    }
    match (line.status, line.length) {
        (204 | 304, _) => {}
        (205, _) => header(out, "Content-Length", b"0"),
        (_, Some(length)) => {
            out.extend_from_slice(b"Content-Length: ");
            decimal(out, length);
            out.extend_from_slice(b"\r\n");
        }
        (_, None) if line.http10 => {}
        (_, None) => header(out, "Transfer-Encoding", b"chunked"),
    }
    match (line.keep_alive, line.http10) {
        (false, _) => header(out, "Connection", b"close"),
        (true, true) => header(out, "Connection", b"keep-alive"),
        (true, false) => {}
    }
    out.extend_from_slice(b"\r\n");
    Ok(!line.to_head && !matches!(line.status, 204 | 205 | 304))
}

fn is_ours(name: &str, line: &ResponseLine) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    match name.len() {
        4 => line.date.is_some() && is("date"),
        7 => is("upgrade") || is("trailer"),
        10 => is("connection") || is("keep-alive"),
        14 => is("content-length"),
        17 => is("transfer-encoding"),
        _ => false,
    }
}

fn header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] += u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// The words of RFC 9110, section 15, and of RFC 6585; clients ignore them. Empty if there are none.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        511 => "Network Authentication Required",
        _ => "",
    }
}

/// A `Date` (RFC 9110, section 5.6.7) from seconds since 1970. Years beyond 9999 are written as 9999.
pub fn imf_date(seconds: u64) -> [u8; 29] {
    const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
    const MONTHS: [&[u8; 3]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
    ];
    const LAST: u64 = 253_402_300_799;
    let seconds = seconds.min(LAST);
    let (days, second) = (seconds / 86_400, seconds % 86_400);

    let mut year = 1970;
    let mut rest = days;
    // Whole cycles of the calendar first, then at most 400 years.
    year += rest / 146_097 * 400;
    rest %= 146_097;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while rest >= 365 + u64::from(leap(year)) {
        rest -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 0;
    for length in [
        31,
        28 + u64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ] {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }

    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let mut two = |at: usize, number: u64| {
        for (place, digit) in [(at, number / 10 % 10), (at + 1, number % 10)] {
            text[place] = b'0' + u8::try_from(digit).unwrap_or_default();
        }
    };
    two(5, rest + 1);
    two(12, year / 100);
    two(14, year % 100);
    two(17, second / 3600);
    two(20, second / 60 % 60);
    two(23, second % 60);
    let day = usize::try_from(days % 7).unwrap_or_default();
    text[..3].copy_from_slice(DAYS[day]);
    text[8..11].copy_from_slice(MONTHS.get(month).copied().unwrap_or(b"Dec"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(line: &ResponseLine, headers: &[(&str, &str)]) -> (String, bool) {
        let mut out = b"before;".to_vec();
        let body = write_head(
            &mut out,
            line,
            headers.iter().map(|(n, v)| (*n, v.as_bytes())),
            &[],
        )
        .unwrap();
        (String::from_utf8(out).unwrap(), body)
    }

    const LINE: ResponseLine = ResponseLine {
        status: 200,
        length: Some(5),
        to_head: false,
        keep_alive: true,
        http10: false,
        date: None,
    };

    #[test]
    fn the_framing_is_ours() {
        let smuggled = [
            ("Content-Type", "text/plain"),
            ("content-length", "0"),
            ("Transfer-Encoding", "chunked"),
            ("CONNECTION", "x"),
            ("Keep-Alive", "x"),
            ("Upgrade", "x"),
            ("Trailer", "x"),
            ("Date", "x"),
        ];
        let (text, body) = written(
            &ResponseLine {
                date: Some(imf_date(0)),
                ..LINE
            },
            &smuggled,
        );
        assert_eq!(
            text,
            "before;HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
             Content-Length: 5\r\n\r\n"
        );
        assert!(body);
    }

    #[test]
    fn some_responses_have_no_body() {
        let (text, body) = written(
            &ResponseLine {
                to_head: true,
                ..LINE
            },
            &[],
        );
        assert_eq!(
            (text.as_str(), body),
            ("before;HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false)
        );
        for (status, expected) in [
            (204, "before;HTTP/1.1 204 No Content\r\n\r\n"),
            (
                205,
                "before;HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
            ),
            (304, "before;HTTP/1.1 304 Not Modified\r\n\r\n"),
        ] {
            assert_eq!(
                written(&ResponseLine { status, ..LINE }, &[]),
                (expected.to_owned(), false)
            );
        }
    }

    #[test]
    fn connections_end_as_said() {
        let (text, _) = written(
            &ResponseLine {
                keep_alive: false,
                ..LINE
            },
            &[],
        );
        assert!(text.ends_with("\r\nConnection: close\r\n\r\n"), "{text}");
        let (text, _) = written(&ResponseLine { http10: true, ..LINE }, &[]);
        assert!(text.ends_with("\r\nConnection: keep-alive\r\n\r\n"), "{text}");
    }

    #[test]
    fn a_split_response_is_refused_and_nothing_written() {
        let mut out = b"before;".to_vec();
        for (status, name, value) in [
            (200, "X", &b"a\r\nSet-Cookie: b"[..]),
            (200, "X", b"a\nb"),
            (200, "X", b"a\0"),
            (200, "X: y\r\nZ", b""),
            (200, "", b""),
            (200, "X ", b""),
            // Also where it would be left out.
            (200, "Connection", b"\r\n"),
            (101, "X", b""),
            (199, "X", b""),
            (1000, "X", b""),
        ] {
            assert!(write_head(&mut out, &ResponseLine { status, ..LINE }, [(name, value)], &[]).is_err());
            assert_eq!(out, b"before;");
        }
    }

    #[test]
    fn dates() {
        for (seconds, text) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_827_696, "Tue, 29 Feb 2000 12:34:56 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (1_798_761_599, "Thu, 31 Dec 2026 23:59:59 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(String::from_utf8_lossy(&imf_date(seconds)), text);
        }
    }
}
