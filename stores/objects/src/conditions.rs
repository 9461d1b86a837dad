//! Conditions on what is there: pure decisions.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-requests.html>, RFC 9110 section 13.2.2.

use crate::{
    fault,
    record::{Millis, Record},
};
use s3s::{
    S3Error, S3Result,
    dto::{ETag, ETagCondition, Timestamp, TimestampFormat},
    s3_error,
};

/// A time of a condition, which has no more than seconds.
pub(crate) fn seconds(time: &Timestamp) -> Option<i64> {
    let mut text = Vec::new();
    time.format(TimestampFormat::EpochSeconds, &mut text).ok()?;
    let text = String::from_utf8(text).ok()?;
    text.split('.').next()?.parse().ok()
}

/// What a read, or a copy of its source, makes depend on the object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) matches: Option<ETagCondition>,
    pub(crate) none_matches: Option<ETagCondition>,
    /// Seconds since 1970, as the next one.
    pub(crate) modified_since: Option<i64>,
    pub(crate) unmodified_since: Option<i64>,
}

/// What comes of a condition that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The object is not what the client wants to have.
    Precondition,
    /// The client has it.
    NotModified,
}

impl Reading {
    /// Whether the object may be read.
    pub(crate) fn check(&self, etag: &str, modified: Millis) -> Result<(), Failed> {
        let modified = i64::try_from(modified / 1000).unwrap_or(i64::MAX);
        match (&self.matches, self.unmodified_since) {
            (Some(condition), _) if !is(condition, etag) => return Err(Failed::Precondition),
            // With If-Match, If-Unmodified-Since says nothing.
            (None, Some(since)) if modified > since => return Err(Failed::Precondition),
            _ => {}
        }
        match (&self.none_matches, self.modified_since) {
            (Some(condition), _) if is(condition, etag) => Err(Failed::NotModified),
            // With If-None-Match, If-Modified-Since says nothing.
            (None, Some(since)) if modified <= since => Err(Failed::NotModified),
            _ => Ok(()),
        }
    }
}

fn is(condition: &ETagCondition, etag: &str) -> bool {
    match condition {
        ETagCondition::Any => true,
        // Weak ones are written by proxies that changed the encoding; the data is the same.
        ETagCondition::ETag(ETag::Strong(one) | ETag::Weak(one)) => one == etag,
    }
}

/// What a write makes depend on the object that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Writing {
    #[default]
    Always,
    /// Nothing is there.
    Absent,
    /// Something is there.
    Present,
    /// This ETag is there.
    Is(String),
}

impl Writing {
    pub(crate) fn new(matches: Option<ETagCondition>, none_matches: Option<ETagCondition>) -> S3Result<Self> {
        match (matches, none_matches) {
            (None, None) => Ok(Self::Always),
            (None, Some(ETagCondition::Any)) => Ok(Self::Absent),
            (Some(ETagCondition::Any), None) => Ok(Self::Present),
            (Some(ETagCondition::ETag(etag)), None) => Ok(Self::Is(etag.into_value())),
            (None, Some(ETagCondition::ETag(_))) => Err(s3_error!(
                NotImplemented,
                "A header you provided implies functionality that is not implemented"
            )),
            (Some(_), Some(_)) => Err(s3_error!(
                NotImplemented,
                "If-Match and If-None-Match exclude each other"
            )),
        }
    }

    /// Whether it may be written.
    pub(crate) fn check(&self, found: Option<&Record>) -> Result<(), S3Error> {
        match (self, found) {
            (Self::Always, _) | (Self::Absent, None) | (Self::Present, Some(_)) => Ok(()),
            (Self::Is(etag), Some(found)) if *etag == found.etag => Ok(()),
            (Self::Present | Self::Is(_), None) => Err(fault::no_such_key()),
            (Self::Absent | Self::Is(_), Some(_)) => Err(fault::precondition()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etag(text: &str) -> Option<ETagCondition> {
        Some(text.parse().unwrap())
    }

    /// AWS's own table, of GetObject's `If-Match` and `If-None-Match`.
    #[test]
    fn conditions_of_etags_go_first() {
        let at = 10_500;
        let reading = |matches, unmodified_since, none_matches, modified_since| Reading {
            matches,
            none_matches,
            modified_since,
            unmodified_since,
        };
        let ok = Ok(());
        assert_eq!(reading(etag("\"a\""), Some(5), None, None).check("a", at), ok);
        assert_eq!(
            reading(etag("\"b\""), Some(50), None, None).check("a", at),
            Err(Failed::Precondition)
        );
        assert_eq!(
            reading(None, Some(9), None, None).check("a", at),
            Err(Failed::Precondition)
        );
        // The half second that HTTP cannot say is no modification.
        assert_eq!(reading(None, Some(10), None, None).check("a", at), ok);
        assert_eq!(
            reading(None, None, etag("\"a\""), Some(5)).check("a", at),
            Err(Failed::NotModified)
        );
        assert_eq!(reading(None, None, etag("\"b\""), Some(50)).check("a", at), ok);
        assert_eq!(
            reading(None, None, None, Some(10)).check("a", at),
            Err(Failed::NotModified)
        );
        assert_eq!(
            reading(None, None, etag("*"), None).check("a", at),
            Err(Failed::NotModified)
        );
    }
}
