//! S3's lists ([ListObjectsV2](https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html)), asked for and read.

use crate::Scope;
use bytes::Bytes;
use contract::{Body, Call, CallError, Caller, Reply, Session};
use jiff::{Timestamp, fmt::rfc2822};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use std::future::poll_fn;
use triggers::{Milliseconds, identity};

/// A list's page is shorter: S3 sends 1,000 objects in one.
const LONGEST: usize = 16 << 20;

/// An object that was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its key.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// Without quotes; none if S3 says none.
    pub etag: String,
    /// When it was changed, by S3's clock; most servers tell whole seconds.
    pub modified: Milliseconds,
}

impl Found {
    /// The same for what was not changed in between, whatever its key.
    pub fn version(&self) -> u128 {
        identity(&[
            self.etag.as_bytes(),
            &self.modified.to_le_bytes(),
            &self.size.to_le_bytes(),
        ])
    }
}

/// A list that could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// There was no answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The answer broke off.
    #[error("the list broke off: {0}")]
    Broken(#[from] contract::BodyError),
    /// S3 refused.
    #[error("S3 answered {status}: {code}: {message}")]
    Refused {
        /// Of HTTP.
        status: u16,
        /// As S3 has it: `NoSuchBucket`.
        code: String,
        /// In S3's words.
        message: String,
    },
    /// The answer is no list.
    #[error("S3's list cannot be read: {0}")]
    Malformed(String),
}

/// One page of a list.
pub(crate) struct Listed {
    pub(crate) found: Vec<Found>,
    /// Where the next page begins; this was the last one, when absent.
    pub(crate) next: Option<String>,
    /// What S3's clock said, if it did.
    pub(crate) at: Option<Milliseconds>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    #[serde(default, deserialize_with = "each")]
    contents: Vec<Entry>,
    #[serde(default)]
    is_truncated: String,
    next_continuation_token: Option<String>,
    encoding_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    key: String,
    size: String,
    #[serde(default, rename = "ETag")]
    etag: String,
    last_modified: String,
}

/// A single element of XML is not seen to be one of a list.
fn each<'a, D: Deserializer<'a>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let found = match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::Array(all) => all,
        one => vec![one],
    };
    let read = found.into_iter().map(serde_json::from_value);
    read.collect::<Result<_, _>>().map_err(serde::de::Error::custom)
}

/// Asks for a page.
pub(crate) async fn list(
    session: &dyn Session,
    scope: &Scope,
    from: Option<&str>,
) -> Result<Listed, ListError> {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut target = format!(
        "/{}?encoding-type=url&list-type=2&prefix={}",
        scope.bucket,
        encoded(&scope.prefix)
    );
    if let Some(token) = from {
        target += &format!("&continuation-token={}", encoded(token));
    }
    let reply = session.call(Call {
        operation: "GET".to_owned(),
        target,
        parameters: vec![("x-millpond-document".into(), Bytes::from_static(b"json"))],
        body: Bytes::new().into(),
        patience: None,
        pause: None,
        caller: Caller::default(),
    });
    let Reply { head, body } = reply.await?;
    let date = head
        .headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("date"));
    let at = date.and_then(|(_, date)| {
        let date = rfc2822::parse(std::str::from_utf8(date).ok()?).ok()?;
        milliseconds(date.timestamp())
    });
    let text = whole(body).await?;
    if head.status != 200 {
        return Err(refused(head.status, &text));
    }
    let document: Document =
        serde_json::from_slice(&text).map_err(|error| ListError::Malformed(error.to_string()))?;
    let is_encoded = document.encoding_type.as_deref() == Some("url");
    let found = document.contents.into_iter().map(|entry| entry.read(is_encoded));
    Ok(Listed {
        found: found.collect::<Result<_, _>>().map_err(ListError::Malformed)?,
        next: match document.is_truncated.as_str() {
            "true" => Some(
                document
                    .next_continuation_token
                    .ok_or_else(|| ListError::Malformed("it goes on, and does not say where".to_owned()))?,
            ),
            _ => None,
        },
        at,
    })
}

impl Entry {
    fn read(self, is_encoded: bool) -> Result<Found, String> {
        let key = match is_encoded {
            // As forms are.
            true => {
                let spaced = self.key.replace('+', " ");
                let decoded = percent_decode_str(&spaced).decode_utf8();
                decoded
                    .map_err(|_| format!("the key {:?} is not encoded in UTF-8", self.key))?
                    .into_owned()
            }
            false => self.key,
        };
        let size = self.size.parse();
        let modified = self.last_modified.parse().ok().and_then(milliseconds);
        Ok(Found {
            size: size.map_err(|_| format!("the size {:?} of {key:?} is none", self.size))?,
            modified: modified
                .ok_or_else(|| format!("the time {:?} of {key:?} is none", self.last_modified))?,
            etag: self.etag.trim_matches('"').to_owned(),
            key,
        })
    }
}

fn milliseconds(at: Timestamp) -> Option<Milliseconds> {
    Milliseconds::try_from(at.as_millisecond()).ok()
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Refusal {
    code: String,
    message: String,
}

fn refused(status: u16, text: &[u8]) -> ListError {
    let Refusal { code, message } = serde_json::from_slice(text).unwrap_or_default();
    ListError::Refused {
        status,
        code,
        message,
    }
}

async fn whole(body: Body) -> Result<Vec<u8>, ListError> {
    let mut stream = match body {
        Body::Whole(bytes) => return Ok(bytes.to_vec()),
        Body::Stream(stream) => stream,
    };
    let mut whole = Vec::new();
    while let Some(piece) = poll_fn(|context| stream.poll_next(context.waker())).await? {
        if whole.len() + piece.len() > LONGEST {
            return Err(ListError::Malformed(format!(
                "it has more than {} MiB",
                LONGEST >> 20
            )));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_were_encoded() {
        let entry = |key: &str| Entry {
            key: key.to_owned(),
            size: "5".to_owned(),
            etag: "\"5d41\"".to_owned(),
            last_modified: "2026-11-24T10:00:00.000Z".to_owned(),
        };
        let found = entry("a+b%2Bc/%C3%BC%0A").read(true).unwrap();
        assert_eq!((found.key.as_str(), found.etag.as_str()), ("a b+c/ü\n", "5d41"));
        assert_eq!(found.modified, 1_795_514_400_000);
        assert_eq!(entry("a+b%2B").read(false).unwrap().key, "a+b%2B");
        assert!(entry("%FF").read(true).unwrap_err().contains("UTF-8"));
    }
}
