//! The response of a CGI program (RFC 3875, section 6): header lines, an empty line, the body.
//!
//! Strict where leniency would let a function say something to the client's connection: names are tokens, values
//! hold no control characters, lines are not folded, and what frames the message is the server's to say. Two
//! decisions of our own: a `Location` without `Status` is a 302 even where it names a path of this server
//! (section 6.2.2 would run that request here), and `X-CGI-` fields, all of which are for the server, are dropped.

use bytes::Bytes;
use contract::ResponseHead;

/// Header lines, with their ends, are at most this long, in bytes.
pub(crate) const MAX_HEAD: usize = 64 << 10;

/// And at most this many.
const MAX_FIELDS: usize = 128;

/// Fields that say how a message travels on one connection (RFC 9110, section 7.6.1), which is not the function's: it neither sees
/// them in requests nor sends them.
pub const CONNECTION_FIELDS: [&str; 9] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Takes a program's output apart. The error says what is wrong, for the function's owner.
pub(crate) fn parse(output: Bytes, method: &str) -> Result<(ResponseHead, Bytes), String> {
    let mut status = None;
    let mut location = false;
    let mut content_type = false;
    let mut content_length: Option<u64> = None;
    let mut headers = Vec::new();
    let mut fields = 0;
    let mut at = 0;
    loop {
        let rest = &output[at..output.len().min(MAX_HEAD)];
        let Some(end) = memchr::memchr(b'\n', rest) else {
            return Err(match output.len() {
                0 => "it is empty".to_owned(),
                1..MAX_HEAD => "it ends before the empty line that ends the header".to_owned(),
                _ => format!("no empty line ends the header within {MAX_HEAD} bytes"),
            });
        };
        at += end + 1;
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        if line.is_empty() {
            break;
        }
        fields += 1;
        if fields > MAX_FIELDS {
            return Err(format!("its header has more than {MAX_FIELDS} lines"));
        }
        let (name, value) = field(line).map_err(|reason| {
            let shown: String = line
                .iter()
                .take(40)
                .flat_map(|byte| byte.escape_ascii())
                .map(char::from)
                .collect();
            format!("header line {fields}, `{shown}`, {reason}")
        })?;
        let again = || format!("`{name}` is there twice");
        match name.to_ascii_lowercase().as_str() {
            "status" => {
                let code =
                    parse_status(value).ok_or("`Status` is not a number from 200 to 599 and a reason")?;
                if status.replace(code).is_some() {
                    return Err(again());
                }
            }
            "content-length" => {
                let digits = std::str::from_utf8(value)
                    .ok()
                    .filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
                let length = digits
                    .and_then(|text| text.parse().ok())
                    .ok_or("`Content-Length` is not a number")?;
                if content_length.replace(length).is_some() {
                    return Err(again());
                }
            }
            lower if CONNECTION_FIELDS.contains(&lower) => {
                return Err(format!("`{name}` is the server's to send, not the function's"));
            }
            lower if lower.starts_with("x-cgi-") => {}
            lower => {
                let seen = match lower {
                    "location" => &mut location,
                    "content-type" => &mut content_type,
                    _ => &mut false,
                };
                if std::mem::replace(seen, true) {
                    return Err(again());
                }
                headers.push((name.to_owned().into(), output.slice_ref(value)));
            }
        }
    }
    let body = output.slice(at..);

    if status.is_none() && !location && !content_type {
        return Err("its header has none of `Content-Type`, `Location` and `Status`".to_owned());
    }
    if !body.is_empty() && !content_type {
        return Err("it has a body but no `Content-Type`".to_owned());
    }
    let status = status.unwrap_or(if location { 302 } else { 200 });
    if matches!(status, 204 | 205 | 304) && !body.is_empty() {
        return Err(format!("a response of status {status} has no body"));
    }
    // Answers to HEAD and 304 may tell the length of the body that they leave out.
    let left_out = body.is_empty() && (method == "HEAD" || status == 304);
    if let Some(length) = content_length
        && length != body.len() as u64
        && !left_out
    {
        return Err(format!(
            "its `Content-Length` is {length}, but its body has {} bytes",
            body.len()
        ));
    }
    Ok((ResponseHead { status, headers }, body))
}

/// A header line's name and value.
fn field(line: &[u8]) -> Result<(&str, &[u8]), &'static str> {
    if matches!(line[0], b' ' | b'\t') {
        return Err("begins with a space: lines cannot be folded");
    }
    let colon = memchr::memchr(b':', line).ok_or("has no colon")?;
    let name = std::str::from_utf8(&line[..colon])
        .ok()
        .filter(|name| !name.is_empty() && name.bytes().all(is_token))
        .ok_or("has a name that HTTP does not allow")?;
    let value = line[colon + 1..].trim_ascii();
    if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err("has a control character in its value");
    }
    Ok((name, value))
}

/// Whether a byte may be part of a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// `404 Not Found`, or `404` alone.
fn parse_status(value: &[u8]) -> Option<u16> {
    let (code, reason) = value.split_at_checked(3)?;
    if !code.iter().all(u8::is_ascii_digit) || !(reason.is_empty() || reason[0] == b' ') {
        return None;
    }
    let code = code
        .iter()
        .fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    (200..600).contains(&code).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Parsed = Result<(u16, Vec<(String, String)>, Vec<u8>), String>;

    fn parse_as(method: &str, output: &[u8]) -> Parsed {
        let (head, body) = parse(Bytes::copy_from_slice(output), method)?;
        let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
        Ok((
            head.status,
            head.headers
                .into_iter()
                .map(|(n, v)| (n.into_owned(), text(v.into())))
                .collect(),
            body.to_vec(),
        ))
    }

    fn get(output: &str) -> Parsed {
        parse_as("GET", output.as_bytes())
    }

    fn header(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_document() {
        let expected = Ok((
            200,
            vec![header("Content-Type", "text/html")],
            b"<p>\r\n\n".to_vec(),
        ));
        assert_eq!(get("Content-Type: text/html\n\n<p>\r\n\n"), expected);
        assert_eq!(get("Content-Type:text/html \t\r\n\r\n<p>\r\n\n"), expected);
        assert_eq!(
            get("Content-Type: text/html\r\nContent-Length: 6\n\r\n<p>\r\n\n"),
            expected
        );
        assert_eq!(
            get("Content-Type: text/html\nX-CGI-Pragma: x\n\n<p>\r\n\n"),
            expected
        );
    }

    #[test]
    fn a_status_and_other_fields() {
        assert_eq!(
            get(
                "Status: 404 Not Found\nContent-Type: text/plain\nSet-Cookie: a=1\nSet-Cookie: b=2\nX-Empty:\n\nno"
            ),
            Ok((
                404,
                vec![
                    header("Content-Type", "text/plain"),
                    header("Set-Cookie", "a=1"),
                    header("Set-Cookie", "b=2"),
                    header("X-Empty", "")
                ],
                b"no".to_vec()
            ))
        );
        assert_eq!(get("Status: 204\n\n"), Ok((204, vec![], vec![])));
    }

    #[test]
    fn a_location_redirects() {
        let to = |status, to: &str| Ok((status, vec![header("Location", to)], vec![]));
        assert_eq!(
            get("Location: https://example.org/\n\n"),
            to(302, "https://example.org/")
        );
        assert_eq!(get("Location: /here\n\n"), to(302, "/here"));
        assert_eq!(get("Status: 301 Moved\nLocation: /here\n\n"), to(301, "/here"));
    }

    #[test]
    fn what_is_no_response_is_refused_with_its_reason() {
        for (output, reason) in [
            ("", "empty"),
            ("hello", "ends before"),
            ("Content-Type: text/plain\n", "ends before"),
            ("\n", "none of"),
            ("X: y\n\n", "none of"),
            ("Status: 200\n\nbody", "no `Content-Type`"),
            ("HTTP/1.1 200 OK\nContent-Type: a\n\n", "no colon"),
            ("Content-Type : a\n\n", "does not allow"),
            (": a\n\n", "does not allow"),
            ("Ünï: a\n\n", "does not allow"),
            ("Content-Type: a\n b\n\n", "folded"),
            ("Content-Type: a\rb\n\n", "control character"),
            ("Content-Type: a\0\n\n", "control character"),
            ("Content-Type: a\nContent-Type: b\n\n", "twice"),
            ("Location: a\nLOCATION: b\n\n", "twice"),
            ("Status: 200\nStatus: 200\n\n", "twice"),
            ("Content-Length: 0\nContent-Length: 0\nStatus: 200\n\n", "twice"),
            ("Status: 100\n\n", "`Status`"),
            ("Status: 2000\n\n", "`Status`"),
            ("Status: +20\n\n", "`Status`"),
            ("Status: 20\n\n", "`Status`"),
            ("Status:\n\n", "`Status`"),
            ("Status: 600 x\n\n", "`Status`"),
            ("Status: 204\nContent-Type: a\n\nx", "has no body"),
            ("Content-Type: a\nContent-Length: 4\n\nxyz", "3 bytes"),
            ("Content-Type: a\nContent-Length: 4\n\n", "0 bytes"),
            ("Content-Type: a\nContent-Length: +3\n\nxyz", "not a number"),
            (
                "Content-Type: a\nContent-Length: 99999999999999999999\n\nxyz",
                "not a number",
            ),
            ("Content-Type: a\nTransfer-Encoding: chunked\n\n", "server's"),
            ("Content-Type: a\nconnection: close\n\n", "server's"),
            ("Content-Type: a\nUpgrade: h2c\n\n", "server's"),
            ("Content-Type: a\nKeep-Alive: 1\n\n", "server's"),
        ] {
            let error = get(output).expect_err(output);
            assert!(error.contains(reason), "{output:?} → {error}");
        }
    }

    #[test]
    fn a_header_is_bounded() {
        let long = format!("Content-Type: {}\n\n", "a".repeat(MAX_HEAD));
        assert!(get(&long).unwrap_err().contains("within"));
        let many = format!("Content-Type: a\n{}\n", "X: y\n".repeat(MAX_FIELDS));
        assert!(get(&many).unwrap_err().contains("more than"));
        let body = format!("Content-Type: a\n\n{}", "\n".repeat(3 * MAX_HEAD));
        assert_eq!(get(&body).unwrap().2.len(), 3 * MAX_HEAD);
    }

    #[test]
    fn a_body_may_be_left_out_where_http_leaves_it_out() {
        assert!(parse_as("HEAD", b"Content-Type: a\nContent-Length: 4\n\n").is_ok());
        assert!(get("Status: 304\nContent-Length: 4\n\n").is_ok());
        assert!(parse_as("HEAD", b"Content-Type: a\nContent-Length: 4\n\nx").is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_can_be_sent(
            lines in proptest::collection::vec(
                prop_oneof![
                    Just("Content-Type: a\n".to_owned()),
                    "(Status|Location|X-[a-z:\\- ]{0,3}): ?[ -~\\x00\\t\r]{0,6}\r?\n",
                    "[\\x00-\\xff]{0,10}\n",
                ],
                0..6,
            ),
            body in proptest::collection::vec(any::<u8>(), 0..9),
        ) {
            let mut output = lines.concat().into_bytes();
            output.push(b'\n');
            output.extend(&body);
            if let Ok((head, _)) = parse(Bytes::from(output), "GET") {
                prop_assert!((200..600).contains(&head.status));
                for (name, value) in head.headers {
                    prop_assert!(!name.is_empty() && name.bytes().all(is_token), "{name:?}");
                    prop_assert!(!value.iter().any(|b| matches!(b, 0..=8 | 10..=31 | 127)), "{value:?}");
                }
            }
        }
    }
}
