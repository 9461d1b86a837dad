//! `CompleteMultipartUpload` a second time, when nobody knows whether the first one was done: the upload is not there any more then, and what it was to
//! become may be there. The one is no error if the other is so.

use crate::{
    Asked, Shared,
    access::Kind,
    body::{Outgoing, gathered},
    checksum::{etag_of_parts, sha256_hex},
    document::Document,
    reply::{Form, Refusal, document_reply},
    sign::{Content, Signer},
    target::Target,
    work::Stop,
};
use bytes::Bytes;
use contract::{Body, Reply};
use http::{Method, StatusCode, header};
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

impl Asked {
    /// The ETag of what is to be there, if this is the end of an upload that may have come to it already. On a condition, nobody can tell: who else may have met it?
    pub(crate) async fn completed(&mut self) -> Result<Option<String>, Stop> {
        let sent = &self.fields.sent;
        let is_conditional = sent.contains_key(header::IF_MATCH) || sent.contains_key(header::IF_NONE_MATCH);
        let is_end = self.kind == Kind::Document
            && self.method == Method::POST
            && self.target.key.is_some()
            && self.target.value("uploadId").is_some();
        if !self.fields.is_repeated || !is_end || is_conditional {
            return Ok(None);
        }
        let body = std::mem::replace(&mut self.body, Body::Whole(Bytes::new()));
        let bytes = gathered(body, MAXIMUM, self.fields.length).await?;
        let bytes = bytes.ok_or_else(Refusal::malformed)?;
        self.body = Body::Whole(bytes.clone());
        Ok(expected(&bytes))
    }
}

impl Shared {
    /// What S3 would have said when the upload became its object, if that is the object that is there.
    pub(crate) async fn done(
        &self,
        (upload, form): (&Target, Form),
        signer: &Signer<'_>,
        etag: &str,
        patience: Duration,
    ) -> Result<Option<Reply>, Stop> {
        let target = Target {
            query: Vec::new(),
            ..upload.clone()
        };
        let url = self.endpoint.url(&target);
        let mut request = http::Request::new(Outgoing::whole(Bytes::new()));
        *request.method_mut() = Method::HEAD;
        *request.uri_mut() = url.parse().map_err(|_| Refusal::target())?;
        signer.sign(&mut request, &Content::Hashed(sha256_hex(b"")))?;
        let progress = request.body().progress();
        let response = self.client.send(request, &progress, patience).await?;
        let quoted = format!("\"{etag}\"");
        let found = response.headers().get(header::ETAG);
        if response.status() != StatusCode::OK
            || found.is_none_or(|found| found.as_bytes() != quoted.as_bytes())
        {
            return Ok(None);
        }
        let document = Document {
            root: "CompleteMultipartUploadResult".to_owned(),
            content: json!({
                "Location": Value::from(url),
                "Bucket": target.bucket,
                "Key": target.key,
                "ETag": quoted,
            }),
        };
        let mut reply = document_reply(200, &document, form);
        for name in SAID {
            if let Some(value) = response.headers().get(name) {
                let value = Bytes::copy_from_slice(value.as_bytes());
                reply.head.headers.push((name.into(), value));
            }
        }
        Ok(Some(reply))
    }
}
