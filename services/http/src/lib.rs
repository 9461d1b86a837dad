//! HTTP requests of sandboxes to hosts that their version was granted.
//!
//! A sandbox has no network: it hands its request to [`Session::call`], and what is granted is decided here, on every call.
//! Connections are pooled among all functions; requests are HTTP/1.1, by TLS where the URI says `https`, with the roots that
//! this machine trusts. Nothing is followed, cached or decoded: a redirect is a reply like any other.
//!
//! A grant names a host and opens all its ports. A *name* that leads to this machine itself, or to link-local addresses (where
//! clouds tell machines their secrets), opens nothing: whoever owns a name decides where it leads. To reach such a place the
//! manifest must name the address, or `localhost`.

#![forbid(unsafe_code)]

mod connect;

use bytes::Bytes;
use connect::Connector;
use contract::{
    Body, BodyError, BodyStream, Call, CallError, Calling, Grant, Reply, ResponseHead, Service, Session,
    Trailers,
};
use http::{HeaderMap, Uri, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, Client},
    rt::{TokioExecutor, TokioTimer},
};
use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    task::AbortHandle,
    time,
};

/// Calls of one node under way, replies that are still being read included.
const MOST_CALLS: usize = 4096;
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
    places: Arc<Semaphore>,
}

struct HttpSession {
    hosts: Vec<String>,
    shared: Arc<Shared>,
}

impl Http {
    /// Does its work on this runtime.
    pub fn new(runtime: Handle) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(IDLE)
            .pool_idle_timeout(IDLE_TIME)
            .pool_timer(TokioTimer::new())
            .build(Connector::default());
        Self {
            shared: Arc::new(Shared {
                client,
                runtime,
                places: Arc::new(Semaphore::new(MOST_CALLS)),
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
            Arc::new(HttpSession {
                hosts: grant.http.clone(),
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
        let (answer, answered) = oneshot::channel();
        let shared = self.shared.clone();
        let task = self.shared.runtime.spawn(async move {
            // Nobody hears it only if the call was given up.
            let _ = answer.send(shared.send(request, place).await);
        });
        let task = Abandoned(task.abort_handle());
        Box::pin(async move {
            let reply = answered.await;
            drop(task);
            reply.unwrap_or_else(|_| Err(CallError::Broken("the node is shutting down".into())))
        })
    }
}

/// Ends a call that nobody waits for. A call that has its reply is over already.
struct Abandoned(AbortHandle);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Request {
    request: http::Request<Outgoing>,
    patience: Duration,
}

impl HttpSession {
    /// What is to be sent, if it may be.
    fn request(&self, call: Call) -> Result<Request, CallError> {
        let target = || CallError::Target(call.target.clone());
        let uri: Uri = call.target.parse().map_err(|_| target())?;
        let host = uri
            .host()
            .ok_or_else(target)?
            .trim_matches(['[', ']'])
            .to_ascii_lowercase();
        if !self.hosts.contains(&host) {
            return Err(CallError::Denied(format!("the host {host}")));
        }
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(target());
        }
        let method = http::Method::from_bytes(call.operation.as_bytes()).map_err(|_| target())?;
        let mut request = http::Request::new(Outgoing(call.body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        for (name, value) in call.parameters {
            let name = header::HeaderName::from_bytes(name.as_bytes());
            let value = header::HeaderValue::from_maybe_shared(value);
            if let (Ok(name), Ok(value)) = (name, value) {
                request.headers_mut().append(name, value);
            }
        }
        Ok(Request {
            request,
            patience: call.patience.unwrap_or(PATIENCE),
        })
    }
}

impl Shared {
    async fn send(&self, request: Request, place: OwnedSemaphorePermit) -> Result<Reply, CallError> {
        let Request { request, patience } = request;
        let sent = time::timeout(patience, self.client.request(request)).await;
        let response = sent
            .map_err(|_| CallError::Timeout("the beginning of a reply"))?
            .map_err(|error| explain(&error))?;
        let (parts, body) = response.into_parts();
        Ok(Reply {
            head: ResponseHead {
                status: parts.status.as_u16(),
                headers: fields(&parts.headers),
            },
            body: Body::Stream(Box::new(Coming {
                body,
                trailers: Trailers::new(),
                end: None,
                _place: place,
            })),
        })
    }
}

fn fields(headers: &HeaderMap) -> Trailers {
    let all = headers.iter();
    all.map(|(name, value)| {
        (
            name.as_str().to_owned().into(),
            Bytes::copy_from_slice(value.as_bytes()),
        )
    })
    .collect()
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

/// A request's body, as hyper takes it.
struct Outgoing(Body);

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Body::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Body::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Body::Stream(stream) => match std::task::ready!(stream.poll_next(context.waker())) {
                Ok(Some(piece)) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                Err(error) => Poll::Ready(Some(Err(error))),
                Ok(None) => {
                    let mut trailers = HeaderMap::new();
                    for (name, value) in stream.trailers() {
                        let name = header::HeaderName::from_bytes(name.as_bytes());
                        let value = header::HeaderValue::from_maybe_shared(value);
                        if let (Ok(name), Ok(value)) = (name, value) {
                            trailers.append(name, value);
                        }
                    }
                    let trailers = (!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers)));
                    Poll::Ready(trailers)
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.known_length() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.0
            .known_length()
            .map_or_else(SizeHint::default, |length| SizeHint::with_exact(length as u64))
    }
}

/// A reply's body, as a sandbox reads it.
struct Coming {
    body: Incoming,
    trailers: Trailers,
    end: Option<Result<(), BodyError>>,
    _place: OwnedSemaphorePermit,
}

impl BodyStream for Coming {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            if let Some(end) = self.end {
                return Poll::Ready(end.map(|()| None));
            }
            let frame =
                http_body::Body::poll_frame(Pin::new(&mut self.body), &mut Context::from_waker(waker));
            match std::task::ready!(frame) {
                None => self.end = Some(Ok(())),
                Some(Err(_)) => self.end = Some(Err(BodyError::Gone)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) if piece.is_empty() => {}
                    Ok(piece) => return Poll::Ready(Ok(Some(piece))),
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            self.trailers = fields(&trailers);
                        }
                    }
                },
            }
        }
    }

    fn trailers(&mut self) -> Trailers {
        match self.end {
            Some(Ok(())) => std::mem::take(&mut self.trailers),
            _ => Trailers::new(),
        }
    }
}
