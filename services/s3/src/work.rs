//! What is done for a call that is granted: its body made ready, its head signed, its reply put into the form that is wanted.

use crate::{
    Asked, Shared,
    access::{Kind, lists},
    body::{Outgoing, Verified, gathered},
    checksum::{Checksum, md5, sha256_hex},
    chunks::Chunked,
    complete::Ends,
    delete::{self, Deletion},
    document::{self, Document},
    fields::Unfit,
    policy,
    reply::{Refusal, document_reply, fields, is_document, may_be_document, show_buckets, whole},
    sign::{Content, Signer},
};
use aws::Credentials;
use bytes::Bytes;
use contract::{Body, BodyError, BodyStream, CallError, Reply, ResponseHead, S3Grant};
use egress::Coming;
use http::{HeaderName, HeaderValue, Method, header};
use hyper::body::Incoming;
use serde_json::json;
use std::{
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{sync::OwnedSemaphorePermit, time};

/// What is kept in memory of a body in pieces, where its length must become known or its content be signed.
const KEPT: u64 = 8 << 20;
/// What is summed where it is; more would keep others waiting.
const SUMMED_HERE: usize = 256 << 10;

/// A call that ends without S3's reply.
pub(crate) enum Stop {
    Refused(Refusal),
    Failed(CallError),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

impl From<BodyError> for Stop {
    fn from(error: BodyError) -> Self {
        Self::Failed(CallError::Broken(format!("the request's body: {error}")))
    }
}

impl Shared {
    /// Does what is asked, and signs as who is given.
    pub(crate) async fn serve(
        self: &Arc<Self>,
        mut asked: Asked,
        credentials: &Arc<Credentials>,
        grants: &[S3Grant],
        place: OwnedSemaphorePermit,
    ) -> Result<Reply, CallError> {
        let (resource, form) = (asked.target.resource(), asked.form());
        match self.work(&mut asked, credentials, grants, place).await {
            Ok(reply) => Ok(reply),
            Err(Stop::Refused(refusal)) => Ok(refusal.reply(&resource, form)),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    async fn work(
        self: &Arc<Self>,
        asked: &mut Asked,
        credentials: &Arc<Credentials>,
        grants: &[S3Grant],
        place: OwnedSemaphorePermit,
    ) -> Result<Reply, Stop> {
        let patience = asked.patience.unwrap_or(self.patience);
        let deletion = within(patience, BODY, asked.deletion(grants)).await?;
        if let Some(deletion) = &deletion {
            for key in deletion.denied_keys() {
                asked.log_denied(self, "Delete", Some(key));
            }
            let Some(request) = deletion.request() else {
                let mut result = Deletion::nothing();
                deletion.complete(&mut result);
                return Ok(document_reply(200, &result, asked.form()));
            };
            asked.body = Body::Whole(request.into());
        }
        let identity = within(patience, "the credentials for S3", credentials.identity()).await?;
        let signer = Signer {
            identity: identity.as_ref(),
            region: &self.endpoint.region,
            time: SystemTime::now(),
        };
        if let Some(lifetime) = asked.fields.form {
            return within(patience, BODY, self.form(asked, &signer, lifetime)).await;
        }
        let url = self.endpoint.url(&asked.target);
        if let Some(lifetime) = asked.fields.presign {
            let url = signer.presign(&asked.method, &url, &asked.fields.sent, lifetime)?;
            return Ok(whole(200, "text/plain; charset=utf-8", url.into()));
        }
        let end = within(patience, BODY, asked.repeated_end()).await?;
        let (body, content) = within(patience, BODY, self.outgoing(asked, &signer)).await?;
        if body.length() > 0 || matches!(asked.method, Method::PUT | Method::POST) {
            asked
                .fields
                .sent
                .insert(header::CONTENT_LENGTH, body.length().into());
        }
        let mut request = http::Request::new(body);
        *request.method_mut() = asked.method.clone();
        *request.uri_mut() = url.parse().map_err(|_| Refusal::target())?;
        *request.headers_mut() = std::mem::take(&mut asked.fields.sent);
        signer.sign(&mut request, &content)?;
        if content.is_chunks()
            && let Some(chain) = signer.chain(&request)
        {
            request.body_mut().sign(chain);
        }
        let progress = request.body().progress();
        let response = self.client.send(request, &progress, patience).await?;
        let Some(end) = end else {
            return self.reply(asked, response, grants, deletion, place).await;
        };
        let (upload, form, status) = (asked.target.clone(), asked.form(), response.status());
        let ends = Ends {
            shared: self,
            upload: &upload,
            form,
            signer: &signer,
            patience,
        };
        if status.is_client_error()
            && let Some(reply) = ends.done(&end).await?
        {
            return Ok(reply);
        }
        let reply = self.reply(asked, response, grants, deletion, place).await?;
        match status.is_success() {
            true => ends.confirmed(reply).await,
            false => Ok(reply),
        }
    }

    /// Where a form goes, and what it says.
    async fn form(&self, asked: &mut Asked, signer: &Signer<'_>, lifetime: Duration) -> Result<Reply, Stop> {
        let body = std::mem::replace(&mut asked.body, Body::Whole(Bytes::new()));
        let text = gathered(body, policy::LONGEST, asked.fields.length).await?;
        let text = text.ok_or_else(|| Refusal::invalid("The conditions of a form have at most 16 KiB."))?;
        let conditions = policy::conditions(&text).map_err(|unfit| match unfit {
            Unfit::Invalid(message) => Refusal::invalid(message),
            Unfit::Denied(field) => {
                asked.log_denied(self, &field, None);
                Refusal::denied()
            }
        })?;
        let mut bucket = asked.target.clone();
        let key = bucket.key.take().unwrap_or_default();
        let name = bucket.bucket.clone().unwrap_or_default();
        let fields = policy::fields(signer, (&name, &key), conditions, lifetime);
        let fields = fields.ok_or_else(|| CallError::Broken("the form cannot be signed".to_owned()))?;
        let form = json!({ "url": self.endpoint.url(&bucket), "fields": fields });
        Ok(whole(200, "application/json", form.to_string().into()))
    }

    /// The body as it is sent, and what the signature says of it. Fields that go with it are added.
    async fn outgoing(&self, asked: &mut Asked, signer: &Signer<'_>) -> Result<(Outgoing, Content), Stop> {
        let body = std::mem::replace(&mut asked.body, Body::Whole(Bytes::new()));
        let known = asked.fields.length;
        let bytes = match (body, known) {
            (Body::Whole(bytes), _) => bytes,
            (Body::Stream(stream), Some(length)) if length > KEPT || !self.keeps(asked) => {
                let is_signed = self.signs_streams && signer.keys().is_some();
                return Ok(asked.streamed(stream, length, is_signed));
            }
            (stream, known) => {
                let all = gathered(stream, KEPT as usize, known).await?;
                let too_long = || match known {
                    None => Refusal::lengthless(),
                    Some(_) => Refusal::incomplete(),
                };
                let all = all.ok_or_else(too_long)?;
                if known.is_some_and(|length| length != all.len() as u64) {
                    return Err(Refusal::incomplete().into());
                }
                all
            }
        };
        let sums = Wanted {
            checksum: asked.fields.checksum,
            md5: asked.fields.md5,
            hash: self.signs_bodies,
        };
        let sums = sums.over(&bytes).await?;
        for (name, value) in sums.fields {
            asked.fields.sent.insert(name, value);
        }
        let content = sums.hash.map_or(Content::Unsigned, Content::Hashed);
        Ok((Outgoing::whole(bytes), content))
    }

    /// Whether what comes in pieces is put together, if it is not too long.
    fn keeps(&self, asked: &Asked) -> bool {
        self.signs_streams || asked.fields.md5 || asked.fields.length == Some(0)
    }

    async fn reply(
        self: &Arc<Self>,
        asked: &mut Asked,
        response: http::Response<Incoming>,
        grants: &[S3Grant],
        deletion: Option<Deletion>,
        place: OwnedSemaphorePermit,
    ) -> Result<Reply, Stop> {
        let (parts, body) = response.into_parts();
        let mut head = ResponseHead {
            status: parts.status.as_u16(),
            headers: fields(&parts.headers),
        };
        let is_success = parts.status.is_success();
        let told = (is_success && asked.is_verified)
            .then(|| Checksum::told(&parts.headers))
            .flatten();
        let is_empty = http_body::Body::is_end_stream(&body) && told.is_none();
        if asked.method == Method::HEAD || is_empty {
            let body = Body::Whole(Bytes::new());
            return Ok(Reply { head, body });
        }
        let pause = asked.pause.unwrap_or(self.pause);
        let coming = Coming::new(body, &self.runtime, Some(pause), place);
        let body: Box<dyn BodyStream> = match told {
            Some(told) => Box::new(Verified::new(coming, told)),
            None => Box::new(coming),
        };
        let body = Body::Stream(body);
        let denied = deletion.filter(|deletion| !deletion.denied.is_empty());
        let is_changed = is_success && (asked.kind == Kind::Buckets || denied.is_some());
        let is_converted = asked.fields.json && (asked.kind != Kind::Object || !is_success);
        if !(is_changed || is_converted) || !may_be_document(&parts.headers) {
            // What must be changed is not shown as it is.
            return match is_changed {
                true => Err(CallError::Broken("S3's reply is no document".to_owned()).into()),
                false => Ok(Reply { head, body }),
            };
        }
        let broken = |reason: String| CallError::Broken(format!("S3's reply: {reason}"));
        let all = gathered(body, document::MAXIMUM, None).await;
        let all = all.map_err(|error| broken(error.to_string()))?;
        let mut bytes = all.ok_or_else(|| broken("its document is too long".to_owned()))?;
        if is_changed || is_document(&bytes) {
            let document = Document::parse(&bytes);
            let mut document = document.map_err(|error| broken(error.to_string()))?;
            if asked.kind == Kind::Buckets {
                show_buckets(&mut document, |bucket| lists(grants, Some(bucket)));
            }
            if let Some(denied) = &denied {
                denied.complete(&mut document);
            }
            bytes = asked.form().bytes(&document);
            let length = bytes.len().to_string();
            set(&mut head, "content-type", asked.form().media_type().to_owned());
            set(&mut head, "content-length", length);
        }
        let body = Body::Whole(bytes);
        Ok(Reply { head, body })
    }
}

const BODY: &str = "the request's body";

/// What comes of this, if it comes in time.
async fn within<T, E: Into<Stop>>(
    patience: Duration,
    what: &'static str,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, Stop> {
    match time::timeout(patience, future).await {
        Ok(came) => came.map_err(Into::into),
        Err(_) => Err(CallError::Timeout(what).into()),
    }
}

fn set(head: &mut ResponseHead, name: &'static str, value: String) {
    head.headers.retain(|(its, _)| its != name);
    head.headers.push((name.into(), value.into()));
}

impl Asked {
    /// The keys in the body, if that is what it is.
    async fn deletion(&mut self, grants: &[S3Grant]) -> Result<Option<Deletion>, Stop> {
        let (Kind::DeleteMany, Some(bucket)) = (self.kind, &self.target.bucket) else {
            return Ok(None);
        };
        let body = std::mem::replace(&mut self.body, Body::Whole(Bytes::new()));
        let bytes = gathered(body, delete::MAXIMUM, None).await?;
        let deletion = bytes.and_then(|bytes| Deletion::parse(&bytes, bucket, grants));
        // What is sent is another body than the one that was summed. S3 wants a sum of it.
        for name in self.fields.sent.clone().keys() {
            if name == "content-md5" || name.as_str().starts_with("x-amz-checksum-") {
                self.fields.sent.remove(name);
            }
        }
        self.fields.sent.remove("x-amz-sdk-checksum-algorithm");
        self.fields.md5 = true;
        deletion.ok_or_else(|| Refusal::malformed().into()).map(Some)
    }

    /// A body that goes as it comes.
    fn streamed(&mut self, stream: Box<dyn BodyStream>, length: u64, is_signed: bool) -> (Outgoing, Content) {
        let sent = &mut self.fields.sent;
        let (chunked, content) = match (self.fields.checksum, is_signed) {
            (None, false) => return (Outgoing::stream(stream, length), Content::Unsigned),
            (Some(checksum), false) => (Chunked::trailed(stream, length, checksum), Content::Trailed),
            (None, true) => (Chunked::signed(stream, length, None), Content::Chunks),
            (checksum, true) => (Chunked::signed(stream, length, checksum), Content::TrailedChunks),
        };
        // `content-encoding: aws-chunked` is left out. S3 goes by the signature, and servers like S3 keep it as the object's own:
        // https://github.com/versity/versitygw/issues/2398.
        sent.insert("x-amz-decoded-content-length", length.into());
        if let Some(checksum) = self.fields.checksum {
            sent.insert("x-amz-trailer", HeaderValue::from_static(checksum.field()));
            sent.insert(ALGORITHM, HeaderValue::from_static(checksum.name()));
        }
        (Outgoing::chunked(chunked), content)
    }
}

const ALGORITHM: HeaderName = HeaderName::from_static("x-amz-sdk-checksum-algorithm");

/// What is to be known of a body.
#[derive(Clone, Copy)]
struct Wanted {
    checksum: Option<Checksum>,
    md5: bool,
    hash: bool,
}

#[derive(Default)]
struct Sums {
    fields: Vec<(HeaderName, HeaderValue)>,
    hash: Option<String>,
}

impl Wanted {
    async fn over(self, bytes: &Bytes) -> Result<Sums, CallError> {
        if bytes.len() <= SUMMED_HERE {
            return Ok(self.sum(bytes));
        }
        let bytes = bytes.clone();
        let summed = tokio::task::spawn_blocking(move || self.sum(&bytes)).await;
        summed.map_err(|_| CallError::Broken("the node is shutting down".to_owned()))
    }

    fn sum(self, bytes: &[u8]) -> Sums {
        let mut sums = Sums::default();
        let mut add = |name: HeaderName, value: String| {
            if let Ok(value) = HeaderValue::from_str(&value) {
                sums.fields.push((name, value));
            }
        };
        if let Some(checksum) = self.checksum {
            add(HeaderName::from_static(checksum.field()), checksum.of(bytes));
            add(ALGORITHM, checksum.name().to_owned());
        }
        if self.md5 {
            add(HeaderName::from_static("content-md5"), md5(bytes));
        }
        sums.hash = self.hash.then(|| sha256_hex(bytes));
        sums
    }
}
