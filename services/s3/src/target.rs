//! What a call names: bucket, key, query. It is decoded here once, strictly, and what is sent is encoded anew from that: what was
//! checked is what leaves the node, however it was spelt.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::fmt::Write;

/// All but RFC 3986's unreserved characters, as Signature Version 4 wants it.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// A key's slashes stay.
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// A target, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) bucket: Option<String>,
    pub(crate) key: Option<String>,
    /// Names are there once.
    pub(crate) query: Vec<(String, String)>,
}

impl Target {
    /// `/`, `/bucket`, `/bucket/key`, each perhaps with a query; `None` if it is none of these, or can be read in two ways.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let path = path.strip_prefix('/')?;
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        if bucket.is_empty() && !key.is_empty() {
            return None;
        }
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            if pairs.iter().any(|(its, _)| *its == name) {
                return None;
            }
            // What SDKs call their operations; it means nothing to S3.
            if name != "x-id" {
                pairs.push((name, value));
            }
        }
        let bucket = named(bucket)?;
        if bucket.as_deref().is_some_and(|bucket| !is_bucket(bucket)) {
            return None;
        }
        Some(Self {
            bucket,
            key: named(key)?,
            query: pairs,
        })
    }

    /// The value of this part of the query.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(its, _)| its == name);
        found.map(|(_, value)| value.as_str())
    }

    /// As error documents name it: `/bucket/key`.
    pub(crate) fn resource(&self) -> String {
        let bucket = self.bucket.as_deref().unwrap_or_default();
        let key = self.key.as_deref();
        format!(
            "/{bucket}{}",
            key.map(|key| format!("/{key}")).unwrap_or_default()
        )
    }

    /// The path and query to be sent; without the bucket where the host's name has it.
    pub(crate) fn encoded(&self, has_bucket: bool) -> String {
        let mut text = String::from("/");
        if let (true, Some(bucket)) = (has_bucket, &self.bucket) {
            text.push_str(bucket);
            if self.key.is_some() {
                text.push('/');
            }
        }
        text.extend(self.key.iter().flat_map(|key| utf8_percent_encode(key, PATH)));
        for (i, (name, value)) in self.query.iter().enumerate() {
            let mark = if i == 0 { '?' } else { '&' };
            let (name, value) = (
                utf8_percent_encode(name, QUERY),
                utf8_percent_encode(value, QUERY),
            );
            // Writing into a string does not fail.
            let _ = write!(text, "{mark}{name}={value}");
        }
        text
    }
}

/// What a copy is made of: the field `x-amz-copy-source`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) bucket: String,
    pub(crate) key: String,
    version: Option<String>,
}

impl Source {
    /// `bucket/key` or `/bucket/key`, percent-encoded, perhaps with `?versionId=`. Access points, which are ARNs, are none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('/').unwrap_or(text);
        let (path, version) = match text.split_once('?') {
            Some((path, query)) => (path, Some(decoded(query.strip_prefix("versionId=")?)?)),
            None => (text, None),
        };
        // Some encode the first slash too.
        let path = decoded(path)?;
        let (bucket, key) = path.split_once('/')?;
        (is_bucket(bucket) && !key.is_empty()).then(|| Self {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            version,
        })
    }

    pub(crate) fn encoded(&self) -> String {
        let mut text = format!("{}/{}", self.bucket, utf8_percent_encode(&self.key, PATH));
        if let Some(version) = &self.version {
            let _ = write!(text, "?versionId={}", utf8_percent_encode(version, QUERY));
        }
        text
    }
}

/// Whether a key is the same to whoever reads it as a path: segments `.` and `..` are resolved by some servers and by what stands
/// before them, and would lead out of a prefix.
pub(crate) fn is_plain(key: &str) -> bool {
    !key.split(['/', '\\'])
        .any(|segment| matches!(segment, "." | ".."))
        && !key.contains('\0')
}

/// As the manifest has buckets' names. One may become part of a host's name.
/// Whether what this names as its bucket is a name, but none that a bucket has: S3 has an error of its own for that.
pub(crate) fn misnames_bucket(text: &str) -> bool {
    let path = text.strip_prefix('/').unwrap_or_default();
    let name = path.split(['/', '?']).next().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !name.is_empty() && name.bytes().all(is_plain) && !is_bucket(name)
}

fn is_bucket(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (3..=63).contains(&name.len())
        && name
            .bytes()
            .all(|byte| inner(byte) || matches!(byte, b'-' | b'.'))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric())
        && !name.contains("..")
}

/// The inner part is `None` if there is nothing.
fn named(text: &str) -> Option<Option<String>> {
    match text {
        "" => Some(None),
        text => decoded(text).map(Some),
    }
}

/// Percent-decoded UTF-8. A `+` is a plus.
fn decoded(text: &str) -> Option<String> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('%') {
        let digits = after.as_bytes().get(..2)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        rest = &after[2..];
    }
    let is_text = |byte: u8| byte > b' ' && byte != 0x7f && byte != b'#';
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    text.bytes().all(is_text).then(|| decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ODD: &str =
        "/(buc|%62uc)?(/([a./%&=?+#é]|%2[efF5]|%0a|%c3%a9){0,12})?(\\?([ab=&%+/]|%3[dD]|%26){0,8})?";

    #[test]
    fn what_is_sent_is_what_was_understood() {
        for (said, sent) in [
            ("/", "/"),
            ("/bucket", "/bucket"),
            ("/bucket/", "/bucket"),
            ("/bucket/a/b", "/bucket/a/b"),
            ("/bucket/a%2Fb", "/bucket/a/b"),
            ("/bucket/a%2fb%20c+d", "/bucket/a/b%20c%2Bd"),
            ("/bucket//a//b/", "/bucket//a//b/"),
            ("/bucket/%252e%252e", "/bucket/%252e%252e"),
            ("/bucket/%c3%a9é", "/bucket/%C3%A9%C3%A9"),
            ("/%62ucket/k", "/bucket/k"),
            ("/bucket/k?uploads", "/bucket/k?uploads="),
            (
                "/bucket?prefix=a%2F&list-type=2&",
                "/bucket?prefix=a%2F&list-type=2",
            ),
            ("/bucket/k?x-id=GetObject&versionId=1", "/bucket/k?versionId=1"),
            ("/bucket/k%3Facl", "/bucket/k%3Facl"),
            ("/bucket?prefix=a+b", "/bucket?prefix=a%2Bb"),
            ("/bucket/k?a?b=c=d", "/bucket/k?a%3Fb=c%3Dd"),
        ] {
            let target = Target::parse(said).unwrap_or_else(|| panic!("{said}"));
            assert_eq!(target.encoded(true), sent);
        }
        let target = Target::parse("/bucket/a/b?acl").unwrap();
        assert_eq!(target.encoded(false), "/a/b?acl=");
        assert_eq!(target.resource(), "/bucket/a/b");
    }

    proptest! {
        #[test]
        fn whatever_is_understood_is_sent_as_it_was_understood(text in ODD) {
            if let Some(target) = Target::parse(&text) {
                let sent = target.encoded(true);
                prop_assert_eq!(Target::parse(&sent), Some(target.clone()));
                // And nothing on the way makes it another.
                let uri: http::Uri = format!("http://h:1{sent}").parse().unwrap();
                let path = uri.path_and_query().map(http::uri::PathAndQuery::as_str);
                prop_assert_eq!(path, Some(&sent[..]));
                prop_assert_eq!(uri.host(), Some("h"));
                prop_assert!(target.key.as_deref() != Some(""));
            }
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_no_target() {
        for bad in [
            "",
            "bucket/key",
            "//key",
            "//bucket/key",
            "http://host/bucket/key",
            "/../bucket/key",
            "/bu%2Fcket/key",
            "/bucket%2Fkey",
            "/Bucket/key",
            "/bu/key",
            "/bucket@host/key",
            "/bucket:80/key",
            "/a..b/key",
            "/bucket/%",
            "/bucket/%4",
            "/bucket/%zz",
            "/bucket/%ff",
            "/bucket/a b",
            "/bucket/a\r\nHost: b",
            "/bucket/a#b",
            "/bucket?prefix=a&prefix=b",
            "/bucket?prefix=a&%70refix=b",
            "/bucket/k?uploadId=1&uploadId=2",
            "*",
        ] {
            assert_eq!(Target::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_that_no_bucket_has() {
        for bad in [
            "/Bucket/key",
            "/bu/key",
            "/my_bucket?uploads",
            "/a..b",
            "/../bucket/key",
        ] {
            assert!(misnames_bucket(bad), "{bad}");
        }
        for other in [
            "",
            "/",
            "/?prefix=A",
            "//key",
            "/bucket/%zz",
            "/bu%2Fcket/key",
            "*",
        ] {
            assert!(!misnames_bucket(other), "{other}");
        }
    }

    #[test]
    fn sources_of_copies() {
        for (said, sent) in [
            ("bucket/key", "bucket/key"),
            ("/bucket/a%20b", "bucket/a%20b"),
            ("bucket%2Fa%2Fb", "bucket/a/b"),
            ("bucket/k?versionId=a%2Bb", "bucket/k?versionId=a%2Bb"),
            ("bucket/k%3FversionId=1", "bucket/k%3FversionId%3D1"),
        ] {
            let source = Source::parse(said).unwrap_or_else(|| panic!("{said}"));
            assert_eq!(source.encoded(), sent);
        }
        for bad in [
            "",
            "bucket",
            "bucket/",
            "//key",
            "//bucket/key",
            "bucket/k?x=1",
            "bucket/k?versionId=1?versionId=2 ",
            "arn:aws:s3:us-east-1:1:accesspoint/a/object/k",
            "bucket/%zz",
        ] {
            assert_eq!(Source::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn segments_that_lead_elsewhere() {
        for bad in ["..", ".", "a/../b", "a/..", "../a", "a/./b", "a\\..\\b", "a\0b"] {
            assert!(!is_plain(bad), "{bad}");
        }
        for good in ["", "a", "a..b", "...", "a/..b/c..", ".a", "a//b", "/a"] {
            assert!(is_plain(good), "{good}");
        }
    }
}
