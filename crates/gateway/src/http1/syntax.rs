//! The grammar's character classes, as one table.

use std::net::Ipv6Addr;

const TOKEN: u8 = 1;
const VALUE: u8 = 2;
const TARGET: u8 = 4;
const NAME_OF_HOST: u8 = 8;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte: u8 = 0;
    loop {
        let mut class = 0;
        if byte.is_ascii_alphanumeric() || in_set(byte, b"!#$%&'*+-.^_`|~") {
            class |= TOKEN;
        }
        if byte == b'\t' || (byte >= b' ' && byte != 0x7f) {
            class |= VALUE;
        }
        if byte.is_ascii_graphic() && !in_set(byte, b"#\\") {
            class |= TARGET;
        }
        if byte.is_ascii_alphanumeric() || in_set(byte, b"-._~") {
            class |= NAME_OF_HOST;
        }
        table[byte as usize] = class;
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

const fn in_set(byte: u8, set: &[u8]) -> bool {
    let mut i = 0;
    while i < set.len() {
        if set[i] == byte {
            return true;
        }
        i += 1;
    }
    false
}

fn has(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// Without a branch for each byte: nearly always all of them are.
fn all(bytes: &[u8], class: u8) -> bool {
    bytes
        .iter()
        .fold(class, |classes, byte| classes & CLASSES[usize::from(*byte)])
        != 0
}

/// `tchar` (RFC 9110, section 5.6.2).
pub(super) fn is_token_byte(byte: u8) -> bool {
    has(byte, TOKEN)
}

/// `token`.
pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

/// What a field value consists of (RFC 9110, section 5.5): visible, space, tab, and bytes above 0x7f.
pub(super) fn is_value_byte(byte: u8) -> bool {
    has(byte, VALUE)
}

/// All of a field value.
pub(super) fn is_value(bytes: &[u8]) -> bool {
    all(bytes, VALUE)
}

/// Visible ASCII but `#`, which begins a fragment, and `\`, which some URL parsers take for `/`.
pub(super) fn is_target(bytes: &[u8]) -> bool {
    all(bytes, TARGET)
}

/// Every `%` in a path begins an escape, and none of them is NUL.
pub(super) fn has_sound_escapes(path: &[u8]) -> bool {
    memchr::memchr_iter(b'%', path).all(|at| match path.get(at + 1..at + 3) {
        Some(digits) => digits.iter().all(u8::is_ascii_hexdigit) && digits != b"00",
        None => false,
    })
}

/// A name, an IPv4 address or an IPv6 address in brackets; perhaps a port. Narrower than RFC 3986: no escapes, none of
/// its sub-delimiters (a comma would be two hosts to some), no empty name, no empty port.
pub(super) fn is_host(bytes: &[u8]) -> bool {
    let rest = if let [b'[', rest @ ..] = bytes {
        let Some(end) = memchr::memchr(b']', rest) else {
            return false;
        };
        let address = std::str::from_utf8(&rest[..end])
            .ok()
            .and_then(|text| text.parse::<Ipv6Addr>().ok());
        if address.is_none() {
            return false;
        }
        &rest[end + 1..]
    } else {
        let end = bytes
            .iter()
            .position(|b| !has(*b, NAME_OF_HOST))
            .unwrap_or(bytes.len());
        if end == 0 {
            return false;
        }
        &bytes[end..]
    };
    match rest {
        [] => true,
        [b':', port @ ..] => {
            (1..=5).contains(&port.len())
                && port.iter().all(u8::is_ascii_digit)
                && port.iter().fold(0, |n, digit| n * 10 + u32::from(digit - b'0')) <= 0xffff
        }
        _ => false,
    }
}

/// The elements of a comma-separated list, without the white space around them.
pub(super) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|b| *b == b',').map(trim)
}

fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for good in [
            "a",
            "localhost:8080",
            "img.example.org",
            "127.0.0.1:0",
            "[::1]",
            "[2001:db8::7]:65535",
            "a_b~c",
        ] {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":80",
            "a:",
            "a:65536",
            "a:000080",
            "a:+80",
            "a:80:80",
            "a b",
            "a,b",
            "a/b",
            "u@a",
            "[::1",
            "::1",
            "[]",
            "[::1]x",
            "[::1%25lo]",
            "[v1.x]",
            "é",
            "a?b",
            "a#b",
            "a\tb",
            "[127.0.0.1]",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn escapes() {
        for good in ["", "/", "/%20", "/%c3%A9/%01"] {
            assert!(has_sound_escapes(good.as_bytes()), "{good}");
        }
        for bad in ["%", "/%", "/%2", "/%2x", "/%%20", "/a%00b"] {
            assert!(!has_sound_escapes(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn lists() {
        let elements: Vec<_> = list(b" a,b ,, \tc d\t").collect();
        assert_eq!(elements, [&b"a"[..], b"b", b"", b"c d"]);
    }
}
