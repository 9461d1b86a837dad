//! HTTP requests of sandboxes to hosts that their version was granted.
//!
//! A sandbox has no network: it hands its request to [`Session::call`], and what is granted is decided here, on every call.
//! Connections are pooled among all functions; requests are HTTP/1.1, by TLS where the URI says `https`, with the roots that
//! this machine trusts. Nothing is followed, cached or decoded: a redirect is a reply like any other.
//!
//! A grant names a host and opens all its ports. A *name* that leads to this machine itself, or to link-local addresses (where
//! clouds tell machines their secrets), opens nothing: whoever owns a name decides where it leads. To reach such a place the
//! manifest must name the address, or `localhost`.
//!
//! A grant may have header fields added to its host's requests, with secrets in them: see the module `added`.
//! What the other side does not take of a body that nobody waits for is given up: see the module `upload`.
//!
//! All of that is the backend's process's. In the node's, which asks it, calls become spans of their invocations' traces: [`Traced`].

#![forbid(unsafe_code)]

mod added;
mod connect;
mod traced;
mod upload;

pub use traced::Traced;

use added::Added;
use bytes::Bytes;
use connect::Connector;
use contract::{
    ApplicationId, Body, BodyError, BodyStream, Call, CallError, Calling, Grant, Reply, ResponseHead,
    Service, Session, Trailers,
};
use egress::{Coming, fields};
use http::{Extensions, HeaderMap, Uri, header};
use http_body::{Frame, SizeHint};
use hyper_util::{
    client::legacy::{
        self, Client,
        connect::{CaptureConnection, capture_connection},
    },
    rt::{TokioExecutor, TokioTimer},
};
use secrets::Values;
use std::{
    collections::HashMap,
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};
use trailers::Slip;
use upload::{Berth, Upload, Waiting};

/// Idle connections that are kept to one host.
const IDLE: usize = 64;
/// How long they are kept.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// How long a reply may take to begin, if the sandbox has not said otherwise: Lambda's longest.
const PATIENCE: Duration = Duration::from_secs(900);

/// The service `http`.
pub struct Http {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client<Connector, Outgoing>,
    runtime: Handle,
    secrets: Values,
    places: Arc<Semaphore>,
}

struct HttpSession {
    application: ApplicationId,
    /// What is added to the requests to each host that is granted.
    hosts: HashMap<String, Arc<Added>>,
    shared: Arc<Shared>,
}

impl Http {
    /// Does its work on this runtime, and looks for secrets here, on each call. At most `calls` are under way at once, replies that
    /// are still being read included: each takes a descriptor.
    pub fn new(runtime: Handle, secrets: Values, calls: usize) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(IDLE)
            .pool_idle_timeout(IDLE_TIME)
            .pool_timer(TokioTimer::new())
            .build(Connector::default());
        Self {
            shared: Arc::new(Shared {
                client,
                runtime,
                secrets,
                places: Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS))),
            }),
        }
    }
}

impl Service for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn bind(&self, grant: &Grant) -> Option<Arc<dyn Session>> {
        (!grant.http.is_empty()).then(|| {
            let hosts = grant.http.iter();
            Arc::new(HttpSession {
                application: grant.function.application.clone(),
                hosts: hosts
                    .map(|grant| {
                        let host = grant.host.trim_matches(['[', ']']);
                        (host.to_owned(), Arc::new(Added::of(grant)))
                    })
                    .collect(),
                shared: self.shared.clone(),
            }) as Arc<dyn Session>
        })
    }
}

impl Session for HttpSession {
    fn call(&self, call: Call) -> Calling {
        let request = match self.request(call) {
            Ok(request) => request,
            Err(error) => return Box::pin(async move { Err(error) }),
        };
        let Ok(place) = self.shared.places.clone().try_acquire_owned() else {
            return Box::pin(async { Err(CallError::Busy) });
        };
        let shared = self.shared.clone();
        let application = self.application.clone();
        egress::call(&self.shared.runtime, async move {
            shared.send(&application, request, place).await
        })
    }
}

struct Request {
    request: http::Request<Outgoing>,
    waiting: Waiting,
    added: Arc<Added>,
    patience: Duration,
    pause: Option<Duration>,
}

impl HttpSession {
    /// What is to be sent, if it may be: all but the secrets.
    fn request(&self, call: Call) -> Result<Request, CallError> {
        let target = || CallError::Target(call.target.clone());
        let uri: Uri = call.target.parse().map_err(|_| target())?;
        let host = uri
            .host()
            .ok_or_else(target)?
            .trim_matches(['[', ']'])
            .to_ascii_lowercase();
        let added = self.hosts.get(&host);
        let added = added.ok_or_else(|| CallError::Denied(format!("the host {host}")))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(target());
        }
        let method = http::Method::from_bytes(call.operation.as_bytes()).map_err(|_| target())?;
        added.permit(&method, &uri, &host)?;
        let length = length(&call);
        let upload = Upload::default();
        let waiting = Waiting::of(&upload);
        let known = call.body.known_length();
        let mut request = http::Request::new(Outgoing {
            body: call.body,
            added: added.clone(),
            upload,
            connection: None,
            is_chunked: length.is_none() && known.is_none(),
            slip: None,
        });
        if known != Some(0) {
            request.body_mut().connection = Some(capture_connection(&mut request));
        }
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        for (name, value) in call.parameters {
            let name = header::HeaderName::from_bytes(name.as_bytes());
            let value = header::HeaderValue::from_maybe_shared(value);
            if let (Ok(name), Ok(value)) = (name, value)
                && !added.has(&name)
                && !FRAMING.contains(&name)
            {
                request.headers_mut().append(name, value);
            }
        }
        if let Some(length) = length {
            request
                .headers_mut()
                .insert(header::CONTENT_LENGTH, length.into());
        }
        Ok(Request {
            request,
            waiting,
            added: added.clone(),
            patience: call.patience.unwrap_or(PATIENCE),
            pause: call.pause,
        })
    }
}

/// Fields that say where a message ends, or what becomes of its connection, which others use after it: a request that was not as
/// long as it says would begin in the middle of the next, which may be another function's and have a secret.
const FRAMING: [header::HeaderName; 7] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::HeaderName::from_static("keep-alive"),
    header::HeaderName::from_static("proxy-connection"),
];

/// The length that a call says its body has, if it says one, and that can be kept: hyper sends of a streamed body no more than it,
/// and drops the connection when there is less.
fn length(call: &Call) -> Option<u64> {
    let mut said = call
        .parameters
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let ((_, value), None) = (said.next()?, said.next()) else {
        return None;
    };
    let digits = value.iter().all(u8::is_ascii_digit);
    let length = std::str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()?;
    match call.body.known_length() {
        Some(known) => (known as u64 == length).then_some(length),
        None => Some(length),
    }
}

impl Shared {
    async fn send(
        &self,
        application: &ApplicationId,
        request: Request,
        place: OwnedSemaphorePermit,
    ) -> Result<Reply, CallError> {
        let Request {
            mut request,
            waiting,
            added,
            patience,
            pause,
        } = request;
        let sent = async {
            for (name, value) in self.added(&added, application).await? {
                request.headers_mut().insert(name, value);
            }
            self.client
                .request(request)
                .await
                .map_err(|error| explain(&error))
        };
        let sent = time::timeout(patience, sent).await;
        let sent = sent.unwrap_or(Err(CallError::Timeout("the beginning of a reply")));
        let (parts, body) = sent?.into_parts();
        Ok(Reply {
            head: ResponseHead {
                status: parts.status.as_u16(),
                headers: fields(&parts.headers),
            },
            body: Body::Stream(Box::new(Awaited {
                coming: Coming::new(body, &self.runtime, pause, place),
                waiting,
            })),
        })
    }

    /// The fields that are added to a request.
    async fn added(
        &self,
        added: &Arc<Added>,
        application: &ApplicationId,
    ) -> Result<Vec<(header::HeaderName, header::HeaderValue)>, CallError> {
        if !added.has_secrets() {
            return added.fields(&self.secrets, application);
        }
        let (added, secrets, application) = (added.clone(), self.secrets.clone(), application.clone());
        let reading = self
            .runtime
            .spawn_blocking(move || added.fields(&secrets, &application));
        reading.await.unwrap_or_else(|_| Err(CallError::Busy))
    }
}

/// The reason of reasons: the connector says it in the contract's words.
fn explain(error: &legacy::Error) -> CallError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    let mut text = error.to_string();
    while let Some(one) = cause {
        if let Some(known) = one.downcast_ref::<CallError>() {
            return known.clone();
        }
        text = one.to_string();
        cause = one.source();
    }
    CallError::Broken(text)
}

/// A reply's body. If it is given up, so is what has not been sent of the request's.
struct Awaited {
    coming: Coming,
    waiting: Waiting,
}

impl BodyStream for Awaited {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        let next = self.coming.poll_next(waker);
        if matches!(next, Poll::Ready(Ok(None))) {
            self.waiting.leave();
        }
        next
    }

    fn trailers(&mut self) -> Trailers {
        self.coming.trailers()
    }
}

/// A request's body, as hyper takes it.
struct Outgoing {
    body: Body,
    /// Whose names the trailers may not have either.
    added: Arc<Added>,
    upload: Upload,
    /// Where it is sent, until its first piece is.
    connection: Option<CaptureConnection>,
    is_chunked: bool,
    /// For its trailers, if it can have some and has begun.
    slip: Option<Slip>,
}

impl Outgoing {
    /// Has the connection know what is sent on it.
    fn begin(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        let mut extras = Extensions::new();
        if let Some(connected) = &*connection.connection_metadata() {
            connected.get_extras(&mut extras);
        }
        if let Some(berth) = extras.get::<Berth>() {
            berth.put(&self.upload);
        }
        if self.is_chunked {
            self.slip = extras.remove();
        }
    }

    /// Has them sent behind the body, past hyper: it would drop those that the request's head has not named.
    fn trail(&self, trailers: Trailers) {
        let mut fields = HeaderMap::new();
        for (name, value) in trailers {
            let name = header::HeaderName::from_bytes(name.as_bytes());
            let value = header::HeaderValue::from_maybe_shared(value);
            if let (Ok(name), Ok(value)) = (name, value)
                && !self.added.has(&name)
            {
                fields.append(name, value);
            }
        }
        if let Some(slip) = &self.slip {
            slip.put(&fields);
        }
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.begin();
        match &mut self.body {
            Body::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Body::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Body::Stream(stream) => match std::task::ready!(stream.poll_next(context.waker())) {
                Ok(Some(piece)) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                Err(error) => {
                    self.upload.break_off();
                    Poll::Ready(Some(Err(error)))
                }
                Ok(None) => {
                    let trailers = stream.trailers();
                    if !trailers.is_empty() {
                        self.trail(trailers);
                    }
                    Poll::Ready(None)
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.known_length() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .known_length()
            .map_or_else(SizeHint::default, |length| SizeHint::with_exact(length as u64))
    }
}
