//! The program's arguments and environment, made when the guest first asks.
//!
//! The environment is the manifest's variables, then the request as CGI/1.1 meta-variables (RFC 3875, section 4.1).
//! The two cannot clash: names that a request can make are reserved ([`contract::is_reserved_variable`]), and a
//! manifest's variable of such a name is left out. Of a request's headers
//!
//! - `Content-Type` and `Content-Length` have variables of their own and no `HTTP_` one;
//! - those that concern one connection only (`Connection`, `Transfer-Encoding`, …) say nothing to a function;
//! - `Proxy` would become `HTTP_PROXY`, which HTTP clients obey ("httpoxy");
//! - names with anything but letters, digits and `-` are left out: `X_User` would pass for `X-User`;
//! - `Authorization` is passed on, although section 4.1.18 would rather not: its reason is that the server has
//!   already authenticated the caller, and here nobody but the function does;
//! - those that come more than once are joined with `, ` (`Cookie` with `; `).
//!
//! A value with a NUL byte cannot be a variable, and is left out.

use crate::cgi::CONNECTION_FIELDS;
use contract::{Grant, Head, is_reserved_variable};
use std::net::IpAddr;

/// Strings as a guest reads them: each ends with a NUL byte.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Strings {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where each string begins.
    pub(crate) fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// Each string, without its NUL byte.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.starts.iter().skip(1).copied().chain([self.bytes.len()]);
        let spans = self.starts.iter().copied().zip(ends);
        spans.filter_map(|(start, end)| self.bytes.get(start..end)?.split_last().map(|(_, text)| text))
    }

    /// Adds a string, unless it has a NUL byte.
    fn push(&mut self, parts: &[&[u8]]) {
        if parts.iter().any(|part| memchr::memchr(0, part).is_some()) {
            return;
        }
        self.starts.push(self.bytes.len());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.push(0);
    }

    fn variable(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.push(&[name.as_bytes(), b"=", value.as_ref()]);
    }
}

/// The function's name, then what the manifest says.
pub(crate) fn arguments(grant: &Grant) -> Strings {
    let mut strings = Strings::default();
    strings.push(&[grant.function.function.as_str().as_bytes()]);
    for argument in &grant.arguments {
        strings.push(&[argument.as_bytes()]);
    }
    strings
}

/// The manifest's variables, then the request's.
pub(crate) fn environment(grant: &Grant, head: &Head, content_length: usize) -> Strings {
    let mut strings = Strings {
        bytes: Vec::with_capacity(1024),
        starts: Vec::with_capacity(40),
    };
    for (name, value) in &grant.environment {
        if !is_reserved_variable(name) && !name.is_empty() && !name.contains('=') {
            strings.variable(name, value);
        }
    }

    if let contract::Protocol::Pure { .. } = grant.protocol {
        // Its inputs are its items.
        return strings;
    }
    strings.variable("GATEWAY_INTERFACE", "CGI/1.1");
    strings.variable("SERVER_PROTOCOL", head.origin.protocol());
    strings.variable("SERVER_SOFTWARE", concat!("millpond/", env!("CARGO_PKG_VERSION")));
    server(&mut strings, head);
    strings.variable("REQUEST_METHOD", head.method());
    // Not the standard's, but what scripts look for.
    strings.variable("REQUEST_SCHEME", head.origin.scheme());
    if head.origin.secure {
        strings.variable("HTTPS", "on");
    }
    strings.variable("SCRIPT_NAME", percent_decoded(head.script_name()));
    strings.variable("PATH_INFO", percent_decoded(head.path_info()));
    strings.variable("QUERY_STRING", head.query());
    if let Some(remote) = head.origin.remote {
        let address = remote.ip().to_canonical().to_string();
        strings.variable("REMOTE_ADDR", &address);
        // Section 4.1.9: the address may stand for a name that would have to be looked up.
        strings.variable("REMOTE_HOST", &address);
    }
    if let Some(content_type) = head.header("content-type") {
        strings.variable("CONTENT_TYPE", content_type);
    }
    if content_length > 0 || head.header("content-length").is_some() {
        strings.variable("CONTENT_LENGTH", content_length.to_string());
    }
    headers(&mut strings, head);
    strings.variable("MILLPOND_REQUEST_ID", head.id.hex());
    strings.variable("MILLPOND_FUNCTION", grant.function.local().to_string());
    strings.variable("MILLPOND_VERSION", grant.version.to_string());
    strings
}

/// `SERVER_NAME` and `SERVER_PORT`: the name that the client used, as long as it looks like one, or the address that
/// it came to.
fn server(strings: &mut Strings, head: &Head) {
    let host = head
        .header("host")
        .and_then(|host| std::str::from_utf8(host).ok())
        .unwrap_or_default();
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port.parse::<u16>().ok()),
        _ => (host, None),
    };
    let is_name = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_' | b'[' | b']' | b':');
    if !name.is_empty() && name.bytes().all(is_name) {
        strings.variable("SERVER_NAME", name);
    } else {
        strings.variable(
            "SERVER_NAME",
            match head.origin.local.map(|local| local.ip().to_canonical()) {
                Some(IpAddr::V4(address)) => address.to_string(),
                Some(IpAddr::V6(address)) => format!("[{address}]"),
                None => "localhost".to_owned(),
            },
        );
    }
    let port = head.origin.local.map(|local| local.port()).or(port).unwrap_or(80);
    strings.variable("SERVER_PORT", port.to_string());
}

/// Headers that make no variable, beside those of the connection; see the module's introduction.
const WITHHELD: [&str; 4] = ["content-length", "content-type", "proxy", "proxy-authorization"];

fn headers(strings: &mut Strings, head: &Head) {
    let passed = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !WITHHELD
                .iter()
                .chain(&CONNECTION_FIELDS)
                .any(|withheld| name.eq_ignore_ascii_case(withheld))
    };
    for (index, (name, value)) in head.headers().enumerate() {
        if !passed(name)
            || head
                .headers()
                .take(index)
                .any(|(earlier, _)| earlier.eq_ignore_ascii_case(name))
        {
            continue;
        }
        let start = strings.bytes.len();
        strings.bytes.extend_from_slice(b"HTTP_");
        strings.bytes.extend(name.bytes().map(|byte| {
            if byte == b'-' {
                b'_'
            } else {
                byte.to_ascii_uppercase()
            }
        }));
        strings.bytes.push(b'=');
        strings.bytes.extend_from_slice(value);
        let separator: &[u8] = if name.eq_ignore_ascii_case("cookie") {
            b"; "
        } else {
            b", "
        };
        for (_, value) in head
            .headers()
            .skip(index + 1)
            .filter(|(later, _)| later.eq_ignore_ascii_case(name))
        {
            strings.bytes.extend_from_slice(separator);
            strings.bytes.extend_from_slice(value);
        }
        if memchr::memchr(0, &strings.bytes[start..]).is_some() {
            strings.bytes.truncate(start);
        } else {
            strings.starts.push(start);
            strings.bytes.push(0);
        }
    }
}

/// A path without its percent-encoding (sections 4.1.5 and 4.1.13). A `%` that begins no escape stays.
fn percent_decoded(path: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some(at) = memchr::memchr(b'%', rest) {
        decoded.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let digit = |index: usize| rest.get(index).and_then(|byte| char::from(*byte).to_digit(16));
        match (digit(1), digit(2)) {
            // Two hexadecimal digits make one byte.
            (Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                rest = &rest[3..];
            }
            _ => {
                decoded.push(b'%');
                rest = &rest[1..];
            }
        }
    }
    decoded.extend_from_slice(rest);
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;
    use contract::{HeadBuilder, RequestId};

    fn texts(strings: &Strings) -> Vec<String> {
        let texts: Vec<String> = strings
            .bytes()
            .split(|byte| *byte == 0)
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect();
        assert_eq!(
            texts.len(),
            strings.starts().len() + 1,
            "each string ends with NUL"
        );
        texts[..texts.len() - 1].to_vec()
    }

    fn head(target: &str, script: usize, headers: &[(&str, &[u8])]) -> Box<Head> {
        let mut builder = HeadBuilder::new("GET", target, 256);
        for (name, value) in headers {
            builder.header(name, value);
        }
        let mut head = builder.build(RequestId(42));
        head.set_script(script);
        head
    }

    fn value<'a>(texts: &'a [String], name: &str) -> Option<&'a str> {
        let mut found = texts
            .iter()
            .filter_map(|text| text.strip_prefix(name)?.strip_prefix('='));
        let value = found.next();
        assert!(found.next().is_none(), "{name} is there twice");
        value
    }

    #[test]
    fn the_request_is_told_as_rfc_3875_says() {
        let mut head = head(
            "/function/shop.resize/a%20b/%C3%A9?x=%20&y",
            "/function/shop.resize".len(),
            &[
                ("Host", b"shop.example.org:8080"),
                ("Content-Type", b"text/plain"),
                ("Content-Length", b"3"),
                ("Accept", b"text/html"),
                ("accept", b"image/png"),
                ("Cookie", b"a=1"),
                ("Cookie", b"b=2"),
                ("Authorization", b"Bearer x"),
                ("X-Forwarded-For", b"\xff"),
            ],
        );
        head.origin.remote = Some("192.0.2.7:999".parse().unwrap());
        head.origin.local = Some("127.0.0.1:8081".parse().unwrap());
        let mut grant = test::grant();
        grant.environment = vec![("LEVEL".into(), "3".into()), ("EMPTY".into(), String::new())];
        let texts = texts(&environment(&grant, &head, 3));
        assert_eq!(texts[0], "LEVEL=3");
        assert_eq!(texts[1], "EMPTY=");
        for (name, expected) in [
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("SERVER_NAME", "shop.example.org"),
            ("SERVER_PORT", "8081"),
            ("REQUEST_METHOD", "GET"),
            ("REQUEST_SCHEME", "http"),
            ("SCRIPT_NAME", "/function/shop.resize"),
            ("PATH_INFO", "/a b/é"),
            ("QUERY_STRING", "x=%20&y"),
            ("REMOTE_ADDR", "192.0.2.7"),
            ("REMOTE_HOST", "192.0.2.7"),
            ("CONTENT_TYPE", "text/plain"),
            ("CONTENT_LENGTH", "3"),
            ("HTTP_HOST", "shop.example.org:8080"),
            ("HTTP_ACCEPT", "text/html, image/png"),
            ("HTTP_COOKIE", "a=1; b=2"),
            ("HTTP_AUTHORIZATION", "Bearer x"),
            ("HTTP_X_FORWARDED_FOR", "\u{fffd}"),
            ("MILLPOND_REQUEST_ID", "0000000000000000000000000000002a"),
            ("MILLPOND_FUNCTION", "shop.echo"),
            ("MILLPOND_VERSION", "1"),
        ] {
            assert_eq!(value(&texts, name), Some(expected), "{name}");
        }
        assert!(value(&texts, "SERVER_SOFTWARE").unwrap().starts_with("millpond/"));
        assert_eq!(texts.len(), 24, "and nothing else: {texts:?}");
    }

    #[test]
    fn headers_cannot_pass_for_what_they_are_not() {
        let head = head(
            "/",
            0,
            &[
                ("Proxy", b"http://evil.example"),
                ("X-User", b"alice"),
                ("X_User", b"mallory"),
                ("Content_Length", b"9"),
                ("Connection", b"close"),
                ("Transfer-Encoding", b"chunked"),
                ("X-Nul", b"a\0LEVEL=9"),
                ("X!", b"x"),
            ],
        );
        let mut grant = test::grant();
        for name in [
            "HTTP_X_ROLE",
            "PATH_INFO",
            "MILLPOND_FUNCTION",
            "",
            "A=B",
            "REQUEST_METHOD",
        ] {
            grant.environment.push((name.into(), "manifest".into()));
        }
        grant.environment.push(("NUL".into(), "a\0b".into()));
        let texts = texts(&environment(&grant, &head, 0));
        assert_eq!(value(&texts, "HTTP_X_USER"), Some("alice"));
        for absent in [
            "HTTP_PROXY",
            "HTTP_CONTENT_LENGTH",
            "CONTENT_LENGTH",
            "CONTENT_TYPE",
            "HTTP_CONNECTION",
            "HTTP_TRANSFER_ENCODING",
            "HTTP_X_NUL",
            "LEVEL",
            "HTTP_X_ROLE",
            "NUL",
            "REMOTE_ADDR",
        ] {
            assert_eq!(value(&texts, absent), None, "{absent}");
        }
        assert!(
            !texts
                .iter()
                .any(|text| text.contains("manifest") || text.contains("evil")),
            "{texts:?}"
        );
    }

    #[test]
    fn a_host_is_a_name_or_it_is_not_used() {
        for (host, local, name, port) in [
            ("example.org", None, "example.org", "80"),
            ("example.org:81", None, "example.org", "81"),
            ("[::1]:81", None, "[::1]", "81"),
            ("[::1]", None, "[::1]", "80"),
            ("a b", Some("10.0.0.1:8080"), "10.0.0.1", "8080"),
            ("", Some("[2001:db8::1]:8080"), "[2001:db8::1]", "8080"),
            ("evil\"<x>", None, "localhost", "80"),
        ] {
            let mut head = head("/", 0, &[("host", host.as_bytes())]);
            head.origin.local = local.map(|local| local.parse().unwrap());
            let texts = texts(&environment(&test::grant(), &head, 0));
            assert_eq!(value(&texts, "SERVER_NAME"), Some(name), "{host}");
            assert_eq!(value(&texts, "SERVER_PORT"), Some(port), "{host}");
        }
    }

    #[test]
    fn percent_signs_that_escape_nothing_stay() {
        for (path, decoded) in [
            ("/a%2Fb", &b"/a/b"[..]),
            ("%", b"%"),
            ("%4", b"%4"),
            ("%zz%41", b"%zzA"),
            ("%%41", b"%A"),
            ("%+1", b"%+1"),
            ("/%ff", b"/\xff"),
        ] {
            assert_eq!(percent_decoded(path), decoded, "{path}");
        }
    }

    #[test]
    fn arguments_begin_with_the_functions_name() {
        let mut grant = test::grant();
        grant.arguments = vec!["--fast".into(), String::new()];
        assert_eq!(texts(&arguments(&grant)), ["echo", "--fast", ""]);
    }
}
