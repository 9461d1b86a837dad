//! `CompleteMultipartUpload` a second time, when nobody knows whether the first one was done. The upload may be gone, and what it was to become be there: then
//! it is no error. Or S3 may say that all is well: a server that takes the first one to be still at work says so (versitygw 1.8, "treat as success for
//! idempotency", `backend/posix`), even where that one ended with a server that was killed and will never make the object. Then it is no success. In both cases
//! the object itself is asked for.

use crate::{
    Asked, Shared,
    access::Kind,
    body::{Outgoing, gathered},
    checksum::{etag_of_parts, sha256_hex},
    document::{self, Document},
    reply::{Form, Refusal, document_reply},
    sign::{Content, Signer},
    target::Target,
    work::Stop,
};
use bytes::Bytes;
use contract::{Body, CallError, Reply};
use http::{HeaderMap, Method, StatusCode, header};
use serde_json::{Value, json};
use std::time::Duration;

/// A request's body, at most: 10,000 parts with a checksum each.
const MAXIMUM: usize = 8 << 20;

/// What S3 says of the object, and it says of an upload that has just become it.
const SAID: [&str; 2] = ["x-amz-version-id", "x-amz-server-side-encryption"];

/// The ETag that is expected of an object of the parts in this request; `None` if their own are no MD5s, so that nobody can tell.
fn expected(request: &[u8]) -> Option<String> {
    let document = Document::parse(request).ok()?;
    let etags = document.all("Part").iter().map(|part| part.get("ETag")?.as_str());
    let etags: Option<Vec<_>> = etags.collect();
    etag_of_parts(&etags?)
}

/// The end of an upload that may have come to it already.
pub(crate) struct End {
    /// The object's ETag, by those of the parts. `None` if nobody can tell: those are no MD5s, or there is a condition, which another's object may have met.
    etag: Option<String>,
}

impl Asked {
    /// Whether this is the end of an upload, and was asked before.
    pub(crate) async fn repeated_end(&mut self) -> Result<Option<End>, Stop> {
        let is_end = self.kind == Kind::Document
            && self.method == Method::POST
            && self.target.key.is_some()
            && self.target.value("uploadId").is_some();
        if !self.fields.is_repeated || !is_end {
            return Ok(None);
        }
        let body = std::mem::replace(&mut self.body, Body::Whole(Bytes::new()));
        let bytes = gathered(body, MAXIMUM, self.fields.length).await?;
        let bytes = bytes.ok_or_else(Refusal::malformed)?;
        self.body = Body::Whole(bytes.clone());
        let sent = &self.fields.sent;
        let is_conditional = sent.contains_key(header::IF_MATCH) || sent.contains_key(header::IF_NONE_MATCH);
        let etag = if is_conditional { None } else { expected(&bytes) };
        Ok(Some(End { etag }))
    }
}

/// Whom to ask about an upload's object, and in which form to tell of it.
pub(crate) struct Ends<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) upload: &'a Target,
    pub(crate) form: Form,
    pub(crate) signer: &'a Signer<'a>,
    pub(crate) patience: Duration,
}

impl Ends<'_> {
    /// What S3 would have said when the upload became its object, if that is the object that is there.
    pub(crate) async fn done(&self, end: &End) -> Result<Option<Reply>, Stop> {
        let Some(etag) = &end.etag else { return Ok(None) };
        let target = self.object(None);
        let (status, headers) = self.head(&target).await?;
        if status != StatusCode::OK || etag_of(&headers) != Some(etag) {
            return Ok(None);
        }
        let document = Document {
            root: "CompleteMultipartUploadResult".to_owned(),
            content: json!({
                "Location": self.shared.endpoint.url(&target),
                "Bucket": target.bucket,
                "Key": target.key,
                "ETag": format!("\"{etag}\""),
            }),
        };
        let mut reply = document_reply(200, &document, self.form);
        for name in SAID {
            if let Some(value) = headers.get(name) {
                let value = Bytes::copy_from_slice(value.as_bytes());
                reply.head.headers.push((name.into(), value));
            }
        }
        Ok(Some(reply))
    }

    /// S3's word that the upload has come to its end, if the object is there. Where it may not be looked at, the word has to do.
    pub(crate) async fn confirmed(&self, mut reply: Reply) -> Result<Reply, Stop> {
        let body = std::mem::replace(&mut reply.body, Body::Whole(Bytes::new()));
        let bytes = gathered(body, document::MAXIMUM, None).await;
        let bytes = bytes.map_err(|error| CallError::Broken(format!("S3's reply: {error}")))?;
        let bytes = bytes.ok_or_else(|| CallError::Broken("S3's reply is too long".to_owned()))?;
        reply.body = Body::Whole(bytes.clone());
        let said = match self.form {
            Form::Json => serde_json::from_slice(&bytes).ok(),
            _ => Document::parse(&bytes).ok().map(|document| document.content),
        };
        // A failure that comes with status 200 says of no ETag.
        let Some(said) = said.as_ref().and_then(|said: &Value| said.get("ETag")?.as_str()) else {
            return Ok(reply);
        };
        let version = reply
            .head
            .headers
            .iter()
            .find(|(name, _)| name == "x-amz-version-id");
        let version = version.and_then(|(_, value)| std::str::from_utf8(value).ok());
        let (status, headers) = self.head(&self.object(version)).await?;
        let is_there = match status {
            StatusCode::OK => etag_of(&headers) == Some(said.trim_matches('"')),
            // 400: it is encrypted with a key of the caller's.
            other => matches!(other, StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST),
        };
        match is_there {
            true => Ok(reply),
            false => Err(Refusal::unfinished().into()),
        }
    }

    /// The object that the upload becomes, in this version.
    fn object(&self, version: Option<&str>) -> Target {
        let version = version.map(|version| ("versionId".to_owned(), version.to_owned()));
        Target {
            query: version.into_iter().collect(),
            ..self.upload.clone()
        }
    }

    async fn head(&self, target: &Target) -> Result<(StatusCode, HeaderMap), Stop> {
        let mut request = http::Request::new(Outgoing::whole(Bytes::new()));
        *request.method_mut() = Method::HEAD;
        *request.uri_mut() = self
            .shared
            .endpoint
            .url(target)
            .parse()
            .map_err(|_| Refusal::target())?;
        self.signer
            .sign(&mut request, &Content::Hashed(sha256_hex(b"")))?;
        let progress = request.body().progress();
        let response = self.shared.client.send(request, &progress, self.patience).await?;
        let (parts, _) = response.into_parts();
        Ok((parts.status, parts.headers))
    }
}

/// Without its quotes.
fn etag_of(headers: &HeaderMap) -> Option<&str> {
    let etag = headers.get(header::ETAG)?.to_str().ok()?;
    Some(etag.trim_matches('"'))
}
