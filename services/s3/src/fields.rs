//! The header fields of a call: those that go out, those that are for this service.

use crate::checksum::Checksum;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::{borrow::Cow, time::Duration};

/// Longer than S3 lets a presigned URL live: 7 days.
const LONGEST: u64 = 604_800;

/// What a call's fields say.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    /// What goes out.
    pub(crate) sent: HeaderMap,
    /// The body's length.
    pub(crate) length: Option<u64>,
    /// Documents are wanted as JSON.
    pub(crate) json: bool,
    /// The checksum to be added.
    pub(crate) checksum: Option<Checksum>,
    /// Whether `content-md5` is to be added.
    pub(crate) md5: bool,
    /// Whether the same was asked before, and may have been done.
    pub(crate) is_repeated: bool,
    /// Nothing is to be done but a URL signed, for so long.
    pub(crate) presign: Option<Duration>,
    /// Nothing is to be done but a form's fields signed, for so long.
    pub(crate) form: Option<Duration>,
}

/// Why a call's fields are not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// They are no fields, or contradict each other.
    Invalid(&'static str),
    /// They would do what no grant allows.
    Denied(String),
}

/// Fields of HTTP that mean something to S3.
const PLAIN: [HeaderName; 12] = [
    header::CACHE_CONTROL,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    HeaderName::from_static("content-md5"),
    header::CONTENT_TYPE,
    header::EXPIRES,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_UNMODIFIED_SINCE,
    header::RANGE,
];

/// S3's own that say what to store, what to ask for and on which condition.
const AMAZON: [&str; 17] = [
    "acl",
    "copy-source",
    "expected-bucket-owner",
    "if-match-initiated-time",
    "if-match-last-modified-time",
    "if-match-size",
    "max-parts",
    "metadata-directive",
    "mp-object-size",
    "object-attributes",
    "optional-object-attributes",
    "part-number-marker",
    "request-payer",
    "sdk-checksum-algorithm",
    "source-expected-bucket-owner",
    "storage-class",
    "website-redirect-location",
];
/// Families of them.
const FAMILIES: [&str; 5] = [
    "checksum-",
    "copy-source-",
    "meta-",
    "server-side-encryption",
    "tagging",
];
/// Those that the signature sets: a library in the sandbox may have signed in vain.
const SIGNED: [&str; 4] = ["content-sha256", "date", "security-token", "user-agent"];
/// Who else may use an object, of those whom its bucket belongs to: a grant does not reach beyond them.
pub(crate) const OWN: [&[u8]; 3] = [b"private", b"bucket-owner-read", b"bucket-owner-full-control"];

impl Fields {
    /// Takes them apart. What says how documents are wanted is there even if the rest is unfit.
    pub(crate) fn read(parameters: Vec<(Cow<'static, str>, Bytes)>) -> (Self, Result<(), Unfit>) {
        let mut fields = Self::default();
        let mut fit = Ok(());
        let mut seen = HeaderMap::<()>::default();
        for (name, value) in parameters {
            let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
                fit = fit.and(Err(Unfit::Invalid("A header field's name is none.")));
                continue;
            };
            let taken = match seen.insert(name.clone(), ()) {
                None => fields.take(name, value),
                // Who reads the first and who reads the last would not see the same request.
                Some(()) => Err(Unfit::Invalid("A header field is there twice.")),
            };
            fit = fit.and(taken);
        }
        (fields, fit)
    }

    fn take(&mut self, name: HeaderName, bytes: Bytes) -> Result<(), Unfit> {
        let value = HeaderValue::from_maybe_shared(bytes).ok();
        // S3 signs text, and no two sides agree on any but ASCII.
        let text = value.as_ref().and_then(|value| value.to_str().ok());
        let unfit = Unfit::Invalid("A header field's value is no text of visible ASCII characters.");
        let (Some(text), Some(value)) = (text, &value) else {
            return Err(unfit);
        };
        if let Some(ours) = name.as_str().strip_prefix("x-millpond-") {
            return self.wanted(ours, text);
        }
        if name == header::CONTENT_LENGTH {
            self.length = Some(number(text).ok_or(Unfit::Invalid("The content's length is no number."))?);
            return Ok(());
        }
        let is_sent = match name.as_str().strip_prefix("x-amz-") {
            // Others are HTTP's and the connection's, which are not the sandbox's.
            None => PLAIN.contains(&name),
            Some("acl") if !OWN.contains(&value.as_bytes()) => {
                return Err(Unfit::Denied(name.as_str().to_owned()));
            }
            Some(own) if AMAZON.contains(&own) || FAMILIES.iter().any(|family| own.starts_with(family)) => {
                true
            }
            Some(own) if SIGNED.contains(&own) => false,
            // To leave it out would be to do something else than was asked.
            Some(_) => return Err(Unfit::Denied(name.as_str().to_owned())),
        };
        if name == header::CONTENT_ENCODING && text.to_ascii_lowercase().contains("aws-chunked") {
            return Err(Unfit::Invalid(
                "The body's framing is not the caller's to choose.",
            ));
        }
        if is_sent {
            self.sent.insert(name, value.clone());
        }
        Ok(())
    }

    fn wanted(&mut self, name: &str, value: &str) -> Result<(), Unfit> {
        match (name, value) {
            ("document", "json") => self.json = true,
            ("md5", "1") => self.md5 = true,
            ("repeated", "1") => self.is_repeated = true,
            ("checksum", name) => {
                let known = Checksum::named(name);
                self.checksum = Some(known.ok_or(Unfit::Invalid("The checksum is of an unknown kind."))?);
            }
            ("presign", seconds) => self.presign = Some(lifetime(seconds)?),
            ("form", seconds) => self.form = Some(lifetime(seconds)?),
            _ => return Err(Unfit::Invalid("A field of the service is unknown.")),
        }
        Ok(())
    }
}

fn lifetime(seconds: &str) -> Result<Duration, Unfit> {
    let seconds = number(seconds).filter(|seconds| (1..=LONGEST).contains(seconds));
    let seconds = seconds.ok_or(Unfit::Invalid("What is presigned is for 1 to 604800 seconds."))?;
    Ok(Duration::from_secs(seconds))
}

fn number(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[(&'static str, &'static str)]) -> (Fields, Result<(), Unfit>) {
        let fields = fields.iter();
        Fields::read(
            fields
                .map(|(name, value)| ((*name).into(), value.as_bytes().into()))
                .collect(),
        )
    }

    #[test]
    fn what_means_something_to_s3_goes_out() {
        let sent = [
            ("Content-Type", "text/plain"),
            ("content-md5", "x"),
            ("range", "bytes=0-1"),
            ("if-none-match", "*"),
            ("x-amz-meta-a", "b  c"),
            ("x-amz-tagging", "a=b"),
            ("x-amz-tagging-directive", "COPY"),
            ("x-amz-copy-source", "b/k"),
            ("x-amz-copy-source-range", "bytes=0-1"),
            ("x-amz-server-side-encryption", "AES256"),
            ("x-amz-server-side-encryption-customer-key", "k"),
            ("x-amz-checksum-crc32", "x"),
            ("x-amz-checksum-mode", "ENABLED"),
            ("x-amz-acl", "private"),
            ("x-amz-storage-class", "STANDARD"),
        ];
        let (fields, fit) = read(&sent);
        assert_eq!((fit, fields.sent.len()), (Ok(()), sent.len()));
    }

    #[test]
    fn what_is_the_connections_or_the_signatures_stays() {
        let (fields, fit) = read(&[
            ("host", "elsewhere"),
            ("authorization", "AWS4-HMAC-SHA256 x"),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-security-token", "x"),
            ("x-amz-content-sha256", "x"),
            ("x-amz-user-agent", "x"),
            ("transfer-encoding", "chunked"),
            ("connection", "x-amz-date"),
            ("expect", "100-continue"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("upgrade", "x"),
            ("x-http-method-override", "DELETE"),
            ("x-forwarded-for", "x"),
            ("amz-sdk-request", "x"),
            ("accept-encoding", "gzip"),
            ("content-length", "7"),
        ]);
        assert_eq!((fit, fields.sent.len(), fields.length), (Ok(()), 0, Some(7)));
    }

    #[test]
    fn what_no_grant_allows_is_denied() {
        for (name, value) in [
            ("x-amz-acl", "public-read"),
            ("X-Amz-Acl", "authenticated-read"),
            ("x-amz-grant-read", "uri=all"),
            ("x-amz-bypass-governance-retention", "true"),
            ("x-amz-object-lock-mode", "COMPLIANCE"),
            ("x-amz-bucket-object-lock-enabled", "true"),
            ("x-amz-rename-source", "b/k"),
            ("x-amz-mfa", "x"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
            ("x-amz-decoded-content-length", "1"),
            ("x-amz-request-route", "x"),
            ("x-amz-write-offset-bytes", "1"),
        ] {
            let (_, fit) = read(&[(name, value)]);
            assert!(matches!(fit, Err(Unfit::Denied(_))), "{name}: {fit:?}");
        }
    }

    #[test]
    fn what_says_two_things_says_none() {
        for bad in [
            &[("x-amz-copy-source", "b/k"), ("X-Amz-Copy-Source", "b/l")][..],
            &[("content-length", "1"), ("content-length", "1")],
            &[("content-length", "+1")],
            &[("content-length", "1, 1")],
            &[("content-length", "")],
            &[("content-encoding", "gzip, AWS-chunked")],
            &[("x-amz-meta-a", "b\r\nhost: c")],
            &[("x-amz-meta-a", "é")],
            &[("a b", "c")],
            &[("x-millpond-document", "yaml")],
            &[("x-millpond-document", "json"), ("x-millpond-document", "json")],
            &[("x-millpond-checksum", "crc16")],
            &[("x-millpond-repeated", "0")],
            &[("x-millpond-presign", "0")],
            &[("x-millpond-presign", "604801")],
            &[("x-millpond-form", "0")],
            &[("x-millpond-other", "1")],
        ] {
            let (_, fit) = read(bad);
            assert!(matches!(fit, Err(Unfit::Invalid(_))), "{bad:?}: {fit:?}");
        }
    }

    #[test]
    fn what_is_for_the_service() {
        let (fields, fit) = read(&[
            ("a b", ""),
            ("x-millpond-document", "json"),
            ("x-millpond-checksum", "sha256"),
            ("X-Millpond-MD5", "1"),
            ("x-millpond-presign", "3600"),
        ]);
        assert!(fit.is_err() && fields.json && fields.md5 && fields.sent.is_empty());
        assert_eq!(fields.checksum, Checksum::named("SHA256"));
        assert_eq!(fields.presign, Some(Duration::from_secs(3600)));
    }
}
