//! Requests and responses of one guest, and the bodies of both.

use super::{
    ErrorCode, Fields, FutureIncomingResponse, FutureTrailers, Headers, IncomingBody, IncomingRequest,
    IncomingResponse, Method, OutgoingBody, OutgoingRequestHandle, OutgoingResponseHandle, RequestOptions,
    ResponseOutparam, Scheme,
};
use crate::component::{
    host::Host,
    io::{InputStream, OutputStream},
    table::{Object, Source, Target, mark, mistaken},
};
use bytes::Bytes;
use contract::{Fault, ResponseHead};
use std::{
    mem,
    task::{Poll, Waker},
};
use wasi::Stop;
use wasmtime::{Error, Result, component::Resource};

/// A request's method, path or authority, in bytes.
pub(super) const LONGEST_PART: usize = 8 << 10;

/// What `outgoing-request` stands for.
#[derive(Default)]
pub(crate) struct OutgoingRequest {
    pub(crate) method: Method,
    pub(crate) path: Option<String>,
    pub(crate) scheme: Option<Scheme>,
    pub(crate) authority: Option<String>,
    pub(crate) headers: Headers,
    /// Which of the guest's exchanges its body is, once the guest has taken it.
    pub(crate) body: Option<usize>,
}

impl OutgoingRequest {
    pub(crate) fn bytes(&self) -> usize {
        let method = match &self.method {
            Method::Other(name) => name.len(),
            _ => 0,
        };
        let scheme = match &self.scheme {
            Some(Scheme::Other(name)) => name.len(),
            _ => 0,
        };
        let parts = [&self.path, &self.authority].map(|part| part.as_ref().map_or(0, String::len));
        method + scheme + parts.iter().sum::<usize>() + self.headers.bytes()
    }
}

pub(super) fn is_path(path: &str) -> bool {
    path.len() <= LONGEST_PART && path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What `outgoing-response` stands for.
pub(crate) struct OutgoingResponse {
    pub(super) status: u16,
    pub(crate) headers: Headers,
    /// Which of [`Bodies`] is its body.
    body: usize,
    body_taken: bool,
}

/// The bodies of the responses that a guest has made, and which of them is the answer.
#[derive(Default)]
pub(crate) struct Bodies {
    bodies: Vec<Body>,
    /// Bytes of all of them.
    written: usize,
    answer: Option<Result<usize, String>>,
}

/// Responses that a guest makes at most; one is sent.
const MOST_RESPONSES: usize = 64;

/// Shorter pieces of a body are sent together: each costs the host more than its bytes.
const PIECE: usize = 64 << 10;

#[derive(Default)]
struct Body {
    /// Not sent: its response is not set, or too short to go alone.
    waiting: Vec<u8>,
    length: u64,
    declared: Option<u64>,
    begun: bool,
    finished: bool,
    trailers: Headers,
}

fn bad(reason: impl Into<String>) -> Fault {
    Fault::BadOutput {
        reason: reason.into(),
    }
}

fn stop(fault: Fault) -> Error {
    Error::new(Stop::Fault(fault))
}

impl Host {
    /// The request and the place for its response, as the handler's arguments.
    pub(crate) fn arguments(&mut self) -> Result<(Resource<IncomingRequest>, Resource<ResponseOutparam>)> {
        let request = self.table.push(Object::IncomingRequest { consumed: false })?;
        Ok((request, self.table.push(Object::ResponseOutparam)?))
    }

    /// Whether the response that the handler has left is one.
    pub(crate) fn concluded(&self) -> Result<(), Fault> {
        let body = match &self.bodies.answer {
            None => return Err(bad("it returned without setting a response")),
            Some(Err(reason)) => return Err(bad(format!("it answered with the error {reason}"))),
            Some(Ok(number)) => self.bodies.bodies.get(*number),
        };
        match body {
            Some(body) if body.begun && !body.finished => Err(bad("its body was begun and not finished")),
            // Answers to HEAD, and of some statuses, tell the length of the body that they leave out.
            Some(Body {
                length,
                declared: Some(declared),
                ..
            }) if length != declared && *length > 0 => Err(bad(format!(
                "its `Content-Length` is {declared}, but its body has {length} bytes"
            ))),
            _ => Ok(()),
        }
    }

    pub(crate) fn write_response(&mut self, number: usize, bytes: Bytes) -> Result<()> {
        let limit = self.command()?.grant().limits.response_body;
        let body = self.bodies.bodies.get_mut(number).ok_or_else(mistaken)?;
        body.length += bytes.len() as u64;
        self.bodies.written = self.bodies.written.saturating_add(bytes.len());
        if self.bodies.written > limit.bytes() {
            return Err(stop(Fault::OutputTooLarge { limit }));
        }
        if body.waiting.is_empty() {
            body.waiting = bytes.into();
        } else {
            body.waiting.extend_from_slice(&bytes);
        }
        if body.waiting.len() >= PIECE {
            self.flush_response(number)
        } else {
            Ok(())
        }
    }

    /// Whether this body is that of the answer.
    pub(crate) fn is_answer(&self, number: usize) -> bool {
        matches!(self.bodies.answer, Some(Ok(answer)) if answer == number)
    }

    /// Sends what waits of a body, if it is the answer's.
    pub(crate) fn flush_response(&mut self, number: usize) -> Result<()> {
        if !self.is_answer(number) {
            return Ok(());
        }
        let body = self.bodies.bodies.get_mut(number).ok_or_else(mistaken)?;
        let bytes = mem::take(&mut body.waiting);
        let trailers = mem::take(&mut body.trailers);
        self.command()?.send(bytes.into()).map_err(stop)?;
        if !trailers.entries.is_empty() {
            self.command()?.trail(trailers.listed());
        }
        Ok(())
    }

    /// The guest is about to wait: its client should not wait for what it has written already.
    pub(crate) fn flush_answer(&mut self) -> Result<()> {
        match self.bodies.answer {
            Some(Ok(number)) => self.flush_response(number),
            _ => Ok(()),
        }
    }

    pub(super) fn set(
        &mut self,
        response: Result<Resource<OutgoingResponseHandle>, ErrorCode>,
    ) -> Result<()> {
        let response = match response {
            Ok(response) => response,
            Err(error) => {
                self.bodies.answer = Some(Err(format!("{error:?}")));
                return Ok(());
            }
        };
        let Object::OutgoingResponse(response) = self.table.take(&response)? else {
            return Err(mistaken());
        };
        let declared = response.headers.content_length();
        self.command()?.answer(ResponseHead {
            status: response.status,
            headers: response.headers.listed(),
        });
        self.bodies.answer = Some(Ok(response.body));
        let body = self.bodies.bodies.get_mut(response.body).ok_or_else(mistaken)?;
        body.declared = declared;
        // A body may have been finished before.
        self.flush_response(response.body)
    }

    pub(super) fn finish(
        &mut self,
        body: &Resource<OutgoingBody>,
        trailers: Option<&Resource<Fields>>,
    ) -> Result<Result<(), ErrorCode>> {
        // In the order in which the guest's handles of them become free.
        let Object::OutgoingBody { to, .. } = self.table.take(body)? else {
            return Err(mistaken());
        };
        let trailers = trailers.map(|trailers| self.take_headers(trailers)).transpose()?;
        let trailers = trailers.unwrap_or_default();
        let number = match to {
            Target::Response(number) => number,
            Target::Request(number) => {
                self.exchanges.end(number, trailers.listed());
                return Ok(Ok(()));
            }
            _ => return Ok(Ok(())),
        };
        let body = self.bodies.bodies.get_mut(number).ok_or_else(mistaken)?;
        body.finished = true;
        body.trailers = trailers;
        let length = body.length;
        let differs = body.declared.is_some_and(|declared| declared != length);
        self.flush_response(number)?;
        // The answer to HEAD tells the length of the body that it leaves out (RFC 9110, section 9.3.2).
        let differs = differs && !(length == 0 && self.command()?.head().method() == "HEAD");
        Ok(if differs {
            Err(ErrorCode::HttpResponseBodySize(Some(length)))
        } else {
            Ok(())
        })
    }

    pub(super) fn fields(&mut self, headers: Headers) -> Result<Resource<Fields>> {
        self.table.push(Object::Headers(headers))
    }

    pub(super) fn headers(&self, of: &Resource<Fields>) -> Result<&Headers> {
        match self.table.get(of)? {
            Object::Headers(headers) => Ok(headers),
            _ => Err(mistaken()),
        }
    }

    pub(super) fn change<R>(
        &mut self,
        of: &Resource<Fields>,
        change: impl FnOnce(&mut Headers) -> Result<R>,
    ) -> Result<R> {
        self.table.change(of, |object| match object {
            Object::Headers(headers) => change(headers),
            _ => Err(mistaken()),
        })
    }

    pub(super) fn take_headers(&mut self, of: &Resource<Fields>) -> Result<Headers> {
        match self.table.take(of)? {
            Object::Headers(headers) => Ok(headers),
            _ => Err(mistaken()),
        }
    }

    /// What a message's `headers` shows: a copy that cannot be changed.
    pub(super) fn shown(&mut self, mut headers: Headers) -> Result<Resource<Fields>> {
        headers.immutable = true;
        self.fields(headers)
    }

    pub(super) fn response(&mut self, of: &Resource<OutgoingResponseHandle>) -> Result<&OutgoingResponse> {
        match self.table.get(of)? {
            Object::OutgoingResponse(response) => Ok(response),
            _ => Err(mistaken()),
        }
    }

    pub(super) fn request(&mut self, of: &Resource<OutgoingRequestHandle>) -> Result<&OutgoingRequest> {
        match self.table.get(of)? {
            Object::OutgoingRequest(request) => Ok(request),
            _ => Err(mistaken()),
        }
    }

    /// Changes a request if it can be sent so.
    pub(super) fn part(
        &mut self,
        of: &Resource<OutgoingRequestHandle>,
        good: bool,
        change: impl FnOnce(&mut OutgoingRequest),
    ) -> Result<Result<(), ()>> {
        self.table.change(of, |object| match object {
            Object::OutgoingRequest(request) if good => {
                change(request);
                Ok(Ok(()))
            }
            Object::OutgoingRequest(_) => Ok(Err(())),
            _ => Err(mistaken()),
        })
    }

    pub(super) fn option(&mut self, of: &Resource<RequestOptions>, which: usize) -> Result<&mut Option<u64>> {
        let Object::RequestOptions(options) = self.table.get_mut(of)? else {
            return Err(mistaken());
        };
        options.get_mut(which).ok_or_else(mistaken)
    }

    pub(super) fn new_response(
        &mut self,
        headers: &Resource<Fields>,
    ) -> Result<Resource<OutgoingResponseHandle>> {
        let headers = self.take_headers(headers)?;
        let body = self.bodies.bodies.len();
        if body >= MOST_RESPONSES {
            return Err(Error::msg("it makes too many responses"));
        }
        self.bodies.bodies.push(Body::default());
        self.table.push(Object::OutgoingResponse(OutgoingResponse {
            status: 200,
            headers,
            body,
            body_taken: false,
        }))
    }

    pub(super) fn response_body(
        &mut self,
        of: &Resource<OutgoingResponseHandle>,
    ) -> Result<Result<Resource<OutgoingBody>, ()>> {
        let Object::OutgoingResponse(response) = self.table.get_mut(of)? else {
            return Err(mistaken());
        };
        if mark(&mut response.body_taken) {
            return Ok(Err(()));
        }
        let (number, declared) = (response.body, response.headers.content_length());
        let body = self.bodies.bodies.get_mut(number).ok_or_else(mistaken)?;
        (body.begun, body.declared) = (true, declared);
        let to = Target::Response(number);
        self.table.push(Object::OutgoingBody { to, taken: false }).map(Ok)
    }

    pub(super) fn request_body(
        &mut self,
        of: &Resource<OutgoingRequestHandle>,
    ) -> Result<Result<Resource<OutgoingBody>, ()>> {
        if self.request(of)?.body.is_some() {
            return Ok(Err(()));
        }
        let number = self.exchanges.begin()?;
        self.table.change(of, |object| match object {
            Object::OutgoingRequest(request) => {
                request.body = Some(number);
                Ok(())
            }
            _ => Err(mistaken()),
        })?;
        let to = Target::Request(number);
        self.table.push(Object::OutgoingBody { to, taken: false }).map(Ok)
    }

    pub(super) fn consume(
        &mut self,
        request: &Resource<IncomingRequest>,
    ) -> Result<Result<Resource<IncomingBody>, ()>> {
        let Object::IncomingRequest { consumed } = self.table.get_mut(request)? else {
            return Err(mistaken());
        };
        if mark(consumed) {
            return Ok(Err(()));
        }
        let of = Source::Body;
        self.table.push(Object::IncomingBody { of, taken: false }).map(Ok)
    }

    pub(super) fn consume_reply(
        &mut self,
        reply: &Resource<IncomingResponse>,
    ) -> Result<Result<Resource<IncomingBody>, ()>> {
        let Object::IncomingResponse { consumed, body, .. } = self.table.get_mut(reply)? else {
            return Err(mistaken());
        };
        if mark(consumed) {
            return Ok(Err(()));
        }
        let of = Source::Reply(*body);
        self.table.push(Object::IncomingBody { of, taken: false }).map(Ok)
    }

    pub(super) fn reply(&self, reply: &Resource<IncomingResponse>) -> Result<(u16, &Headers)> {
        match self.table.get(reply)? {
            Object::IncomingResponse { status, headers, .. } => Ok((*status, headers)),
            _ => Err(mistaken()),
        }
    }

    #[expect(clippy::type_complexity, reason = "as WASI has it")]
    pub(super) fn await_reply(
        &mut self,
        of: &Resource<FutureIncomingResponse>,
    ) -> Result<Option<Result<Result<Resource<IncomingResponse>, ErrorCode>, ()>>> {
        Ok(match self.take_reply(of.rep())? {
            None => None,
            Some(Err(())) => Some(Err(())),
            Some(Ok(Err(error))) => Some(Ok(Err(error))),
            Some(Ok(Ok(reply))) => Some(Ok(Ok(self.table.push(reply)?))),
        })
    }

    pub(super) fn body_stream(
        &mut self,
        body: &Resource<IncomingBody>,
    ) -> Result<Result<Resource<InputStream>, ()>> {
        let Object::IncomingBody { of, taken } = self.table.get_mut(body)? else {
            return Err(mistaken());
        };
        if mark(taken) {
            return Ok(Err(()));
        }
        let of = *of;
        self.table.push(Object::Input(of)).map(Ok)
    }

    pub(super) fn body_writer(
        &mut self,
        body: &Resource<OutgoingBody>,
    ) -> Result<Result<Resource<OutputStream>, ()>> {
        let Object::OutgoingBody { to, taken } = self.table.get_mut(body)? else {
            return Err(mistaken());
        };
        if mark(taken) {
            return Ok(Err(()));
        }
        let target = *to;
        self.table.push(Object::Output(target)).map(Ok)
    }

    #[expect(clippy::type_complexity, reason = "as WASI has it")]
    pub(super) fn trailers(
        &mut self,
        of: &Resource<FutureTrailers>,
    ) -> Result<Option<Result<Result<Option<Resource<Fields>>, ErrorCode>, ()>>> {
        let Object::FutureTrailers { of: source, .. } = *self.table.get(of)? else {
            return Err(mistaken());
        };
        let Poll::Ready(end) = self.poll_body_end(source, Waker::noop()) else {
            return Ok(None);
        };
        let Object::FutureTrailers { taken, .. } = self.table.get_mut(of)? else {
            return Err(mistaken());
        };
        if mark(taken) {
            return Ok(Some(Err(())));
        }
        if let Err(error) = end {
            return Ok(Some(Ok(Err(ErrorCode::of(error)))));
        }
        let mut headers = Headers::default();
        let body = self.incoming(source);
        for (name, value) in body.map_or_else(contract::Trailers::new, |body| body.trailers()) {
            headers.push(name.into_owned(), value);
        }
        if headers.entries.is_empty() {
            return Ok(Some(Ok(Ok(None))));
        }
        Ok(Some(Ok(Ok(Some(self.shown(headers)?)))))
    }

    pub(super) fn method(&mut self) -> Result<Method> {
        Ok(match self.command()?.head().method() {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "CONNECT" => Method::Connect,
            "OPTIONS" => Method::Options,
            "TRACE" => Method::Trace,
            "PATCH" => Method::Patch,
            other => Method::Other(other.to_owned()),
        })
    }
}
