//! Requests of a guest to others: they go to a service, which decides what is granted and holds the connections.

use super::{
    Host,
    http::{ErrorCode, Headers, Method, OutgoingRequest, Scheme},
    table::{Object, Sent, mistaken},
};
use bytes::Bytes;
use contract::{Body, Call, CallError, Caller, Reply};
use flow::Sender;
use std::{
    mem,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use wasi::Incoming;
use wasmtime::{Error, Result};

/// Requests that a guest makes at most.
const MOST_REQUESTS: usize = 1024;

/// To whom a request goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remote {
    /// The host that it names (`wasi:http/outgoing-handler`).
    Http,
    /// S3, as the node knows it: the request's path is the bucket's and the object's (`millpond:s3/objects`).
    Objects,
}

/// Bodies of requests that go out, and of replies that come in.
#[derive(Default)]
pub(crate) struct Exchanges {
    uploads: Vec<Option<Upload>>,
    replies: Vec<Option<Incoming>>,
}

/// The body of a request to somebody else.
struct Upload {
    sender: Sender,
    /// Until the request is sent.
    receiver: Option<flow::Receiver>,
}

impl Exchanges {
    /// The body of a new request.
    pub(crate) fn begin(&mut self) -> Result<usize> {
        if self.uploads.len() >= MOST_REQUESTS {
            return Err(Error::msg("it makes too many requests"));
        }
        let (sender, receiver) = flow::flow();
        self.uploads.push(Some(Upload {
            sender,
            receiver: Some(receiver),
        }));
        Ok(self.uploads.len() - 1)
    }

    pub(crate) fn upload(&self, number: usize) -> Option<&Sender> {
        self.uploads.get(number)?.as_ref().map(|upload| &upload.sender)
    }

    /// The guest has written all of it.
    pub(crate) fn end(&mut self, number: usize, trailers: contract::Trailers) {
        if let Some(upload) = self.uploads.get_mut(number).and_then(Option::take) {
            upload.sender.end(trailers);
            // A request that is not sent yet still needs its other end.
            if let (Some(receiver), Some(slot)) = (upload.receiver, self.uploads.get_mut(number)) {
                let (sender, _) = flow::flow();
                *slot = Some(Upload {
                    sender,
                    receiver: Some(receiver),
                });
            }
        }
    }

    /// The guest has let go of it before its end.
    pub(crate) fn abandon(&mut self, number: usize) {
        if let Some(slot) = self.uploads.get_mut(number) {
            *slot = None;
        }
    }

    pub(crate) fn reply(&mut self, number: usize) -> Option<&mut Incoming> {
        self.replies.get_mut(number)?.as_mut()
    }

    /// Nobody will read it.
    pub(crate) fn close(&mut self, number: usize) {
        if let Some(slot) = self.replies.get_mut(number) {
            *slot = None;
        }
    }

    fn push(&mut self, body: Body) -> usize {
        self.replies.push(Some(Incoming::new(body)));
        self.replies.len() - 1
    }
}

impl Host {
    /// Sends a request, if that is granted to the function at all.
    pub(crate) fn send(
        &mut self,
        to: Remote,
        request: OutgoingRequest,
        patience: [Option<u64>; 3],
    ) -> Result<Result<Sent, ErrorCode>> {
        let services = self.command()?.services();
        let (service, what) = match to {
            Remote::Http => ("http", "host"),
            Remote::Objects => ("s3", "objects in S3"),
        };
        let Some(session) = services.and_then(|services| services.get(service)).cloned() else {
            self.command()?
                .note(&format!("a request was not sent: the manifest grants no {what}"));
            return Ok(Err(ErrorCode::HttpRequestDenied));
        };
        let body = match request.body {
            None => Body::Whole(Bytes::new()),
            Some(number) => {
                let upload = self.exchanges.uploads.get_mut(number).and_then(Option::as_mut);
                let receiver = upload.and_then(|upload| upload.receiver.take());
                Body::Stream(Box::new(receiver.ok_or_else(mistaken)?))
            }
        };
        let path = request.path.as_deref().unwrap_or("/");
        let slash = if path.starts_with('/') { "" } else { "/" };
        let target = match (to, request.scheme, request.authority) {
            (Remote::Http, Some(Scheme::Other(_)), _) => return Ok(Err(ErrorCode::HttpProtocolError)),
            (Remote::Http, Some(Scheme::Http), Some(authority)) => {
                format!("http://{authority}{slash}{path}")
            }
            (Remote::Http, None | Some(Scheme::Https), Some(authority)) => {
                format!("https://{authority}{slash}{path}")
            }
            (Remote::Objects, None, None) => format!("{slash}{path}"),
            // An address of S3's is for the node to know.
            (Remote::Http, _, None) | (Remote::Objects, ..) => {
                return Ok(Err(ErrorCode::HttpRequestUriInvalid));
            }
        };
        let [connect, first_byte, between_bytes] = patience;
        let call = Call {
            operation: method(request.method),
            target,
            parameters: request.headers.listed(),
            body,
            patience: first_byte
                .map(|first_byte| Duration::from_nanos(first_byte.saturating_add(connect.unwrap_or(0)))),
            pause: between_bytes.map(Duration::from_nanos),
            caller: Caller::of(self.command()?.head()),
        };
        Ok(Ok(Sent::Calling(session.call(call))))
    }

    /// Whether the reply to a request is here, or never will be.
    pub(crate) fn poll_reply(&mut self, number: u32, waker: &Waker) -> Result<Poll<()>> {
        let sent = self.table.sent(number)?;
        if let Sent::Calling(calling) = sent {
            let Poll::Ready(result) = calling.as_mut().poll(&mut Context::from_waker(waker)) else {
                return Ok(Poll::Pending);
            };
            if let Err(error @ (CallError::Denied(_) | CallError::Unset(_))) = &result
                && let Some(command) = &mut self.command
            {
                // Whoever can mend it does not see what the guest sees.
                command.note(&format!("a request was not sent: {error}"));
            }
            *sent = Sent::Over(Box::new(result));
        }
        Ok(Poll::Ready(()))
    }

    /// The reply to a request: none yet, told already, an error, or what stands for it.
    pub(crate) fn take_reply(
        &mut self,
        number: u32,
    ) -> Result<Option<Result<Result<Object, ErrorCode>, ()>>> {
        if self.poll_reply(number, Waker::noop())?.is_pending() {
            return Ok(None);
        }
        Ok(Some(match mem::replace(self.table.sent(number)?, Sent::Told) {
            Sent::Calling(_) | Sent::Told => Err(()),
            Sent::Over(result) => {
                Ok((*result)
                    .map_err(|error| ErrorCode::of_call(&error))
                    .map(|Reply { head, body }| Object::IncomingResponse {
                        status: head.status,
                        headers: Headers::shown_of(head.headers),
                        body: self.exchanges.push(body),
                        consumed: false,
                    }))
            }
        }))
    }

    /// Reads a body to its end.
    pub(crate) fn poll_body_end(
        &mut self,
        source: super::table::Source,
        waker: &Waker,
    ) -> Poll<Result<(), contract::BodyError>> {
        match self.incoming(source) {
            None => Poll::Ready(Ok(())),
            Some(body) => Poll::Ready(ready!(body.poll_end(waker))),
        }
    }
}

fn method(method: Method) -> String {
    match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Patch => "PATCH",
        Method::Other(name) => return name,
    }
    .to_owned()
}

impl ErrorCode {
    fn of_call(error: &CallError) -> Self {
        match error {
            CallError::Denied(_) => Self::HttpRequestDenied,
            CallError::Unset(_) => Self::ConfigurationError,
            CallError::Target(_) => Self::HttpRequestUriInvalid,
            CallError::Name(_) => Self::dns(),
            CallError::Address(_) => Self::DestinationIpProhibited,
            CallError::Refused(_) => Self::ConnectionRefused,
            CallError::Timeout(what) if what.contains("reply") => Self::HttpResponseTimeout,
            CallError::Timeout(_) => Self::ConnectionTimeout,
            CallError::Secure(_) => Self::TlsProtocolError,
            CallError::Busy => Self::ConnectionLimitReached,
            CallError::Broken(reason) => Self::InternalError(Some(reason.clone())),
            other => Self::InternalError(Some(other.to_string())),
        }
    }
}
