//! `wasi:http`: the request that came in, the response that goes out, and [requests to others](super::outgoing).
//!
//! A response begins when the guest sets the outparam; what it wrote to the body before waits until then, what it writes
//! afterwards goes on in pieces of some size. A body is complete when the guest has finished it, perhaps with trailers.

use super::{
    functions,
    host::Host,
    io::{InputStream, IoError, OutputStream},
    table::{Event, Object, Source, Target, mark, mistaken},
};
use bytes::Bytes;
use contract::{BodyError, Fault, Head, ResponseHead};
use std::{
    mem,
    task::{Poll, Waker},
};
use wasi::Stop;
use wasmtime::{
    Error, Result,
    component::{ComponentType, Lift, Linker, Lower, Resource, ResourceType},
};

/// Marks of resource types.
pub(crate) struct Fields;
pub(crate) struct IncomingRequest;
struct OutgoingRequestHandle;
struct RequestOptions;
pub(crate) struct ResponseOutparam;
struct IncomingResponse;
struct IncomingBody;
struct FutureTrailers;
struct OutgoingResponseHandle;
struct OutgoingBody;
struct FutureIncomingResponse;

#[derive(ComponentType, Lift, Lower, Clone, Default)]
#[component(variant)]
pub(crate) enum Method {
    #[default]
    #[component(name = "get")]
    Get,
    #[component(name = "head")]
    Head,
    #[component(name = "post")]
    Post,
    #[component(name = "put")]
    Put,
    #[component(name = "delete")]
    Delete,
    #[component(name = "connect")]
    Connect,
    #[component(name = "options")]
    Options,
    #[component(name = "trace")]
    Trace,
    #[component(name = "patch")]
    Patch,
    #[component(name = "other")]
    Other(String),
}

#[derive(ComponentType, Lift, Lower, Clone)]
#[component(variant)]
pub(crate) enum Scheme {
    #[component(name = "HTTP")]
    Http,
    #[component(name = "HTTPS")]
    Https,
    #[component(name = "other")]
    Other(String),
}

#[derive(ComponentType, Lift, Lower, Debug)]
#[component(record)]
pub(crate) struct DnsError {
    rcode: Option<String>,
    #[component(name = "info-code")]
    info_code: Option<u16>,
}

#[derive(ComponentType, Lift, Lower, Debug)]
#[component(record)]
pub(crate) struct TlsAlert {
    #[component(name = "alert-id")]
    alert_id: Option<u8>,
    #[component(name = "alert-message")]
    alert_message: Option<String>,
}

#[derive(ComponentType, Lift, Lower, Debug)]
#[component(record)]
pub(crate) struct FieldSize {
    #[component(name = "field-name")]
    field_name: Option<String>,
    #[component(name = "field-size")]
    field_size: Option<u32>,
}

#[derive(ComponentType, Lift, Lower, Debug)]
#[component(variant)]
pub(crate) enum ErrorCode {
    #[component(name = "DNS-timeout")]
    DnsTimeout,
    #[component(name = "DNS-error")]
    DnsError(DnsError),
    #[component(name = "destination-not-found")]
    DestinationNotFound,
    #[component(name = "destination-unavailable")]
    DestinationUnavailable,
    #[component(name = "destination-IP-prohibited")]
    DestinationIpProhibited,
    #[component(name = "destination-IP-unroutable")]
    DestinationIpUnroutable,
    #[component(name = "connection-refused")]
    ConnectionRefused,
    #[component(name = "connection-terminated")]
    ConnectionTerminated,
    #[component(name = "connection-timeout")]
    ConnectionTimeout,
    #[component(name = "connection-read-timeout")]
    ConnectionReadTimeout,
    #[component(name = "connection-write-timeout")]
    ConnectionWriteTimeout,
    #[component(name = "connection-limit-reached")]
    ConnectionLimitReached,
    #[component(name = "TLS-protocol-error")]
    TlsProtocolError,
    #[component(name = "TLS-certificate-error")]
    TlsCertificateError,
    #[component(name = "TLS-alert-received")]
    TlsAlertReceived(TlsAlert),
    #[component(name = "HTTP-request-denied")]
    HttpRequestDenied,
    #[component(name = "HTTP-request-length-required")]
    HttpRequestLengthRequired,
    #[component(name = "HTTP-request-body-size")]
    HttpRequestBodySize(Option<u64>),
    #[component(name = "HTTP-request-method-invalid")]
    HttpRequestMethodInvalid,
    #[component(name = "HTTP-request-URI-invalid")]
    HttpRequestUriInvalid,
    #[component(name = "HTTP-request-URI-too-long")]
    HttpRequestUriTooLong,
    #[component(name = "HTTP-request-header-section-size")]
    HttpRequestHeaderSectionSize(Option<u32>),
    #[component(name = "HTTP-request-header-size")]
    HttpRequestHeaderSize(Option<FieldSize>),
    #[component(name = "HTTP-request-trailer-section-size")]
    HttpRequestTrailerSectionSize(Option<u32>),
    #[component(name = "HTTP-request-trailer-size")]
    HttpRequestTrailerSize(FieldSize),
    #[component(name = "HTTP-response-incomplete")]
    HttpResponseIncomplete,
    #[component(name = "HTTP-response-header-section-size")]
    HttpResponseHeaderSectionSize(Option<u32>),
    #[component(name = "HTTP-response-header-size")]
    HttpResponseHeaderSize(FieldSize),
    #[component(name = "HTTP-response-body-size")]
    HttpResponseBodySize(Option<u64>),
    #[component(name = "HTTP-response-trailer-section-size")]
    HttpResponseTrailerSectionSize(Option<u32>),
    #[component(name = "HTTP-response-trailer-size")]
    HttpResponseTrailerSize(FieldSize),
    #[component(name = "HTTP-response-transfer-coding")]
    HttpResponseTransferCoding(Option<String>),
    #[component(name = "HTTP-response-content-coding")]
    HttpResponseContentCoding(Option<String>),
    #[component(name = "HTTP-response-timeout")]
    HttpResponseTimeout,
    #[component(name = "HTTP-upgrade-failed")]
    HttpUpgradeFailed,
    #[component(name = "HTTP-protocol-error")]
    HttpProtocolError,
    #[component(name = "loop-detected")]
    LoopDetected,
    #[component(name = "configuration-error")]
    ConfigurationError,
    #[component(name = "internal-error")]
    InternalError(Option<String>),
}

impl ErrorCode {
    pub(crate) fn dns() -> Self {
        Self::DnsError(DnsError {
            rcode: None,
            info_code: None,
        })
    }

    fn of(error: BodyError) -> Self {
        match error {
            BodyError::Bad => Self::HttpProtocolError,
            BodyError::Slow => Self::ConnectionReadTimeout,
            _ => Self::ConnectionTerminated,
        }
    }
}

#[derive(ComponentType, Lift, Lower)]
#[component(variant)]
enum HeaderError {
    #[component(name = "invalid-syntax")]
    InvalidSyntax,
    #[component(name = "forbidden")]
    Forbidden,
    #[component(name = "immutable")]
    Immutable,
}

// --- header fields ---------------------------------------------------------------------------------------------------

/// Fields of one message at most.
const MOST_FIELDS: usize = 512;

/// A request's method, path or authority, in bytes.
const LONGEST_PART: usize = 8 << 10;

/// Fields that are the connection's, which a guest neither sees nor sets.
const FORBIDDEN: [&str; 10] = [
    "connection",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn forbidden(name: &str) -> bool {
    FORBIDDEN.iter().any(|its| name.eq_ignore_ascii_case(its))
}

/// A token (RFC 9110, section 5.6.2).
fn is_token(name: &str) -> bool {
    let special = |byte| b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || special(byte))
}

fn is_value(value: &[u8]) -> bool {
    let blank = |byte: Option<&u8>| byte.is_some_and(|byte| b" \t".contains(byte));
    !value.iter().any(|byte| matches!(byte, 0..=8 | 10..=31 | 127))
        && !blank(value.first())
        && !blank(value.last())
}

/// What `fields` stands for.
#[derive(Clone, Default)]
pub(crate) struct Headers {
    entries: Vec<(String, Bytes)>,
    bytes: usize,
    immutable: bool,
}

impl Headers {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The request's, without what concerns its connection only.
    fn of(head: &Head) -> Self {
        let mut headers = Self::default();
        for (name, value) in head.headers() {
            // Which host it was sent to is the request's authority, and a header that guests look for.
            if !forbidden(name) || name.eq_ignore_ascii_case("host") {
                headers.push(name.to_owned(), Bytes::copy_from_slice(value));
            }
        }
        headers.immutable = true;
        headers
    }

    fn push(&mut self, name: String, value: Bytes) {
        self.bytes += name.len() + value.len() + size_of::<(String, Bytes)>();
        self.entries.push((name, value));
    }

    /// Those of a message that came, without what concerns its connection only.
    pub(crate) fn shown_of(fields: contract::Trailers) -> Self {
        let mut headers = Self::default();
        for (name, value) in fields {
            if !forbidden(&name) {
                headers.push(name.into_owned(), value);
            }
        }
        headers.immutable = true;
        headers
    }

    /// As the contract has them.
    pub(crate) fn listed(self) -> contract::Trailers {
        let all = self.entries.into_iter();
        all.map(|(name, value)| (name.into(), value)).collect()
    }

    fn values(&self, name: &str) -> Vec<Bytes> {
        let its = self.entries.iter();
        let its = its.filter(|(its, _)| its.eq_ignore_ascii_case(name));
        its.map(|(_, value)| value.clone()).collect()
    }

    /// Whether a change to the fields of this name is allowed.
    fn changeable(&self, name: &str) -> Result<(), HeaderError> {
        match () {
            () if self.immutable => Err(HeaderError::Immutable),
            () if !is_token(name) => Err(HeaderError::InvalidSyntax),
            () if forbidden(name) => Err(HeaderError::Forbidden),
            () => Ok(()),
        }
    }

    fn append(&mut self, name: String, value: Vec<u8>) -> Result<Result<(), HeaderError>> {
        if let Err(error) = self.changeable(&name) {
            return Ok(Err(error));
        }
        if !is_value(&value) {
            return Ok(Err(HeaderError::InvalidSyntax));
        }
        if self.entries.len() >= MOST_FIELDS {
            return Err(Error::msg("it makes too many header fields"));
        }
        self.push(name, value.into());
        Ok(Ok(()))
    }

    fn delete(&mut self, name: &str) -> Result<(), HeaderError> {
        self.changeable(name)?;
        for (its, value) in mem::take(self).entries {
            if !its.eq_ignore_ascii_case(name) {
                self.push(its, value);
            }
        }
        Ok(())
    }

    fn set(&mut self, name: String, values: Vec<Vec<u8>>) -> Result<Result<(), HeaderError>> {
        if !values.iter().all(|value| is_value(value)) {
            return Ok(Err(HeaderError::InvalidSyntax));
        }
        if let Err(error) = self.delete(&name) {
            return Ok(Err(error));
        }
        for value in values {
            if let Err(error) = self.append(name.clone(), value)? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// What the fields say of the body's length.
    fn content_length(&self) -> Option<u64> {
        let values = self.values("content-length");
        std::str::from_utf8(values.first()?).ok()?.parse().ok()
    }
}

// --- messages --------------------------------------------------------------------------------------------------------

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

fn is_path(path: &str) -> bool {
    path.len() <= LONGEST_PART && path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What `outgoing-response` stands for.
pub(crate) struct OutgoingResponse {
    status: u16,
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

    fn set(&mut self, response: Result<Resource<OutgoingResponseHandle>, ErrorCode>) -> Result<()> {
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

    fn finish(&mut self, body: &Resource<OutgoingBody>, trailers: Headers) -> Result<Result<(), ErrorCode>> {
        let Object::OutgoingBody { to, .. } = self.table.take(body)? else {
            return Err(mistaken());
        };
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
        Ok(if differs {
            Err(ErrorCode::HttpResponseBodySize(Some(length)))
        } else {
            Ok(())
        })
    }

    fn fields(&mut self, headers: Headers) -> Result<Resource<Fields>> {
        self.table.push(Object::Headers(headers))
    }

    fn headers(&self, of: &Resource<Fields>) -> Result<&Headers> {
        match self.table.get(of)? {
            Object::Headers(headers) => Ok(headers),
            _ => Err(mistaken()),
        }
    }

    fn change<R>(
        &mut self,
        of: &Resource<Fields>,
        change: impl FnOnce(&mut Headers) -> Result<R>,
    ) -> Result<R> {
        self.table.change(of, |object| match object {
            Object::Headers(headers) => change(headers),
            _ => Err(mistaken()),
        })
    }

    fn take_headers(&mut self, of: &Resource<Fields>) -> Result<Headers> {
        match self.table.take(of)? {
            Object::Headers(headers) => Ok(headers),
            _ => Err(mistaken()),
        }
    }

    /// What a message's `headers` shows: a copy that cannot be changed.
    fn shown(&mut self, mut headers: Headers) -> Result<Resource<Fields>> {
        headers.immutable = true;
        self.fields(headers)
    }

    fn response(&mut self, of: &Resource<OutgoingResponseHandle>) -> Result<&OutgoingResponse> {
        match self.table.get(of)? {
            Object::OutgoingResponse(response) => Ok(response),
            _ => Err(mistaken()),
        }
    }

    fn request(&mut self, of: &Resource<OutgoingRequestHandle>) -> Result<&OutgoingRequest> {
        match self.table.get(of)? {
            Object::OutgoingRequest(request) => Ok(request),
            _ => Err(mistaken()),
        }
    }

    /// Changes a request if it can be sent so.
    fn part(
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

    fn option(&mut self, of: &Resource<RequestOptions>, which: usize) -> Result<&mut Option<u64>> {
        let Object::RequestOptions(options) = self.table.get_mut(of)? else {
            return Err(mistaken());
        };
        options.get_mut(which).ok_or_else(mistaken)
    }

    fn new_response(&mut self, headers: &Resource<Fields>) -> Result<Resource<OutgoingResponseHandle>> {
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

    fn response_body(
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

    fn request_body(
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

    fn consume(&mut self, request: &Resource<IncomingRequest>) -> Result<Result<Resource<IncomingBody>, ()>> {
        let Object::IncomingRequest { consumed } = self.table.get_mut(request)? else {
            return Err(mistaken());
        };
        if mark(consumed) {
            return Ok(Err(()));
        }
        let of = Source::Body;
        self.table.push(Object::IncomingBody { of, taken: false }).map(Ok)
    }

    fn consume_reply(
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

    fn reply(&self, reply: &Resource<IncomingResponse>) -> Result<(u16, &Headers)> {
        match self.table.get(reply)? {
            Object::IncomingResponse { status, headers, .. } => Ok((*status, headers)),
            _ => Err(mistaken()),
        }
    }

    #[expect(clippy::type_complexity, reason = "as WASI has it")]
    fn await_reply(
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

    fn body_stream(&mut self, body: &Resource<IncomingBody>) -> Result<Result<Resource<InputStream>, ()>> {
        let Object::IncomingBody { of, taken } = self.table.get_mut(body)? else {
            return Err(mistaken());
        };
        if mark(taken) {
            return Ok(Err(()));
        }
        let of = *of;
        self.table.push(Object::Input(of)).map(Ok)
    }

    fn body_writer(&mut self, body: &Resource<OutgoingBody>) -> Result<Result<Resource<OutputStream>, ()>> {
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
    fn trailers(
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

    fn method(&mut self) -> Result<Method> {
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

pub(crate) fn link(linker: &mut Linker<Host>) -> Result<()> {
    let mut types = linker.instance("wasi:http/types@0.2.0")?;
    for (name, resource) in [
        ("fields", ResourceType::host::<Fields>()),
        ("incoming-request", ResourceType::host::<IncomingRequest>()),
        ("outgoing-request", ResourceType::host::<OutgoingRequestHandle>()),
        ("request-options", ResourceType::host::<RequestOptions>()),
        ("response-outparam", ResourceType::host::<ResponseOutparam>()),
        ("incoming-response", ResourceType::host::<IncomingResponse>()),
        ("incoming-body", ResourceType::host::<IncomingBody>()),
        ("future-trailers", ResourceType::host::<FutureTrailers>()),
        (
            "outgoing-response",
            ResourceType::host::<OutgoingResponseHandle>(),
        ),
        ("outgoing-body", ResourceType::host::<OutgoingBody>()),
        (
            "future-incoming-response",
            ResourceType::host::<FutureIncomingResponse>(),
        ),
    ] {
        types.resource(name, resource, super::forget)?;
    }
    functions!(types {
        "http-error-code" => |host, error: Resource<IoError>| match host.table.get(&error)? {
            Object::Error(error) => Ok((Some(ErrorCode::of(*error)),)),
            _ => Err(mistaken()),
        };

        "[constructor]fields" => |host| Ok((host.fields(Headers::default())?,));
        "[static]fields.from-list" => |host, entries: Vec<(String, Vec<u8>)>| {
            let mut headers = Headers::default();
            for (name, value) in entries {
                if let Err(error) = headers.append(name, value)? {
                    return Ok((Err(error),));
                }
            }
            Ok((Ok::<_, HeaderError>(host.fields(headers)?),))
        };
        "[method]fields.get" => |host, this: Resource<Fields>, name: String|
            Ok((host.headers(&this)?.values(&name),));
        "[method]fields.has" => |host, this: Resource<Fields>, name: String|
            Ok((!host.headers(&this)?.values(&name).is_empty(),));
        "[method]fields.set" => |host, this: Resource<Fields>, name: String, values: Vec<Vec<u8>>|
            Ok((host.change(&this, |headers| headers.set(name, values))?,));
        "[method]fields.delete" => |host, this: Resource<Fields>, name: String|
            Ok((host.change(&this, |headers| Ok(headers.delete(&name)))?,));
        "[method]fields.append" => |host, this: Resource<Fields>, name: String, value: Vec<u8>|
            Ok((host.change(&this, |headers| headers.append(name, value))?,));
        "[method]fields.entries" => |host, this: Resource<Fields>|
            Ok((host.headers(&this)?.entries.clone(),));
        "[method]fields.clone" => |host, this: Resource<Fields>| {
            let headers = Headers { immutable: false, ..host.headers(&this)?.clone() };
            Ok((host.fields(headers)?,))
        };

        "[method]incoming-request.method" => |host, _this: Resource<IncomingRequest>| Ok((host.method()?,));
        "[method]incoming-request.path-with-query" => |host, _this: Resource<IncomingRequest>|
            Ok((Some(host.command()?.head().target().to_owned()),));
        "[method]incoming-request.scheme" => |host, _this: Resource<IncomingRequest>| {
            let secure = host.command()?.head().origin.secure;
            Ok((Some(if secure { Scheme::Https } else { Scheme::Http }),))
        };
        "[method]incoming-request.authority" => |host, _this: Resource<IncomingRequest>| {
            let authority = host.command()?.head().header("host");
            Ok((authority.map(|name| String::from_utf8_lossy(name).into_owned()),))
        };
        "[method]incoming-request.headers" => |host, _this: Resource<IncomingRequest>| {
            let headers = Headers::of(host.command()?.head());
            Ok((host.fields(headers)?,))
        };
        "[method]incoming-request.consume" => |host, this: Resource<IncomingRequest>| Ok((host.consume(&this)?,));
        "[method]incoming-body.stream" => |host, this: Resource<IncomingBody>| Ok((host.body_stream(&this)?,));
        "[static]incoming-body.finish" => |host, this: Resource<IncomingBody>| {
            let Object::IncomingBody { of, .. } = host.table.take(&this)? else {
                return Err(mistaken());
            };
            let trailers: Resource<FutureTrailers> = host.table.push(Object::FutureTrailers { of, taken: false })?;
            Ok((trailers,))
        };
        "[method]future-trailers.subscribe" => |host, this: Resource<FutureTrailers>| match *host.table.get(&this)? {
            Object::FutureTrailers { of, .. } => Ok((host.pollable(Event::Trailers(of))?,)),
            _ => Err(mistaken()),
        };
        "[method]future-trailers.get" => |host, this: Resource<FutureTrailers>| Ok((host.trailers(&this)?,));

        "[constructor]outgoing-response" => |host, headers: Resource<Fields>| Ok((host.new_response(&headers)?,));
        "[method]outgoing-response.status-code" => |host, this: Resource<OutgoingResponseHandle>|
            Ok((host.response(&this)?.status,));
        "[method]outgoing-response.set-status-code" => |host, this: Resource<OutgoingResponseHandle>, status: u16| {
            let Object::OutgoingResponse(response) = host.table.get_mut(&this)? else {
                return Err(mistaken());
            };
            let good = (200..1000).contains(&status);
            if good {
                response.status = status;
            }
            Ok((if good { Ok(()) } else { Err(()) },))
        };
        "[method]outgoing-response.headers" => |host, this: Resource<OutgoingResponseHandle>| {
            let headers = host.response(&this)?.headers.clone();
            Ok((host.shown(headers)?,))
        };
        "[method]outgoing-response.body" => |host, this: Resource<OutgoingResponseHandle>|
            Ok((host.response_body(&this)?,));
        "[method]outgoing-body.write" => |host, this: Resource<OutgoingBody>| Ok((host.body_writer(&this)?,));
        "[static]outgoing-body.finish" => |host, this: Resource<OutgoingBody>, trailers: Option<Resource<Fields>>| {
            let trailers = match trailers {
                Some(trailers) => host.take_headers(&trailers)?,
                None => Headers::default(),
            };
            Ok((host.finish(&this, trailers)?,))
        };
        "[static]response-outparam.set" =>
            |host, this: Resource<ResponseOutparam>, response: Result<Resource<OutgoingResponseHandle>, ErrorCode>| {
                host.table.take(&this)?;
                host.set(response)
            };

        "[constructor]outgoing-request" => |host, headers: Resource<Fields>| {
            let headers = host.take_headers(&headers)?;
            let request = OutgoingRequest { headers, ..OutgoingRequest::default() };
            let request: Resource<OutgoingRequestHandle> = host.table.push(Object::OutgoingRequest(request))?;
            Ok((request,))
        };
        "[method]outgoing-request.body" => |host, this: Resource<OutgoingRequestHandle>| Ok((host.request_body(&this)?,));
        "[method]outgoing-request.method" => |host, this: Resource<OutgoingRequestHandle>|
            Ok((host.request(&this)?.method.clone(),));
        "[method]outgoing-request.set-method" => |host, this: Resource<OutgoingRequestHandle>, method: Method| {
            let good = match &method {
                Method::Other(name) => is_token(name) && name.len() <= LONGEST_PART,
                _ => true,
            };
            Ok((host.part(&this, good, |request| request.method = method)?,))
        };
        "[method]outgoing-request.path-with-query" => |host, this: Resource<OutgoingRequestHandle>|
            Ok((host.request(&this)?.path.clone(),));
        "[method]outgoing-request.set-path-with-query" =>
            |host, this: Resource<OutgoingRequestHandle>, path: Option<String>| {
                let good = path.as_deref().is_none_or(is_path);
                Ok((host.part(&this, good, |request| request.path = path)?,))
            };
        "[method]outgoing-request.scheme" => |host, this: Resource<OutgoingRequestHandle>|
            Ok((host.request(&this)?.scheme.clone(),));
        "[method]outgoing-request.set-scheme" => |host, this: Resource<OutgoingRequestHandle>, scheme: Option<Scheme>| {
            let good = match &scheme {
                Some(Scheme::Other(name)) => is_path(name),
                _ => true,
            };
            Ok((host.part(&this, good, |request| request.scheme = scheme)?,))
        };
        "[method]outgoing-request.authority" => |host, this: Resource<OutgoingRequestHandle>|
            Ok((host.request(&this)?.authority.clone(),));
        "[method]outgoing-request.set-authority" =>
            |host, this: Resource<OutgoingRequestHandle>, authority: Option<String>| {
                let good = authority.as_deref().is_none_or(is_path);
                Ok((host.part(&this, good, |request| request.authority = authority)?,))
            };
        "[method]outgoing-request.headers" => |host, this: Resource<OutgoingRequestHandle>| {
            let headers = host.request(&this)?.headers.clone();
            Ok((host.shown(headers)?,))
        };

        "[constructor]request-options" => |host| {
            let options: Resource<RequestOptions> = host.table.push(Object::RequestOptions([None; 3]))?;
            Ok((options,))
        };
    });
    for (which, name) in ["connect-timeout", "first-byte-timeout", "between-bytes-timeout"]
        .into_iter()
        .enumerate()
    {
        functions!(types {
            &format!("[method]request-options.{name}") =>
                |host, this: Resource<RequestOptions>| Ok((*host.option(&this, which)?,));
            &format!("[method]request-options.set-{name}") =>
                |host, this: Resource<RequestOptions>, duration: Option<u64>| {
                    *host.option(&this, which)? = duration;
                    Ok((Ok::<(), ()>(()),))
                };
        });
    }
    functions!(types {
        "[method]incoming-response.status" => |host, this: Resource<IncomingResponse>| Ok((host.reply(&this)?.0,));
        "[method]incoming-response.headers" => |host, this: Resource<IncomingResponse>| {
            let headers = host.reply(&this)?.1.clone();
            Ok((host.shown(headers)?,))
        };
        "[method]incoming-response.consume" => |host, this: Resource<IncomingResponse>|
            Ok((host.consume_reply(&this)?,));
        "[method]future-incoming-response.subscribe" => |host, this: Resource<FutureIncomingResponse>|
            Ok((host.pollable(Event::Reply(this.rep()))?,));
        "[method]future-incoming-response.get" => |host, this: Resource<FutureIncomingResponse>|
            Ok((host.await_reply(&this)?,));
    });

    functions!(linker.instance("wasi:http/outgoing-handler@0.2.0")? {
        "handle" => |host, request: Resource<OutgoingRequestHandle>, options: Option<Resource<RequestOptions>>| {
            let Object::OutgoingRequest(request) = host.table.take(&request)? else {
                return Err(mistaken());
            };
            let patience = match options {
                Some(options) => match host.table.take(&options)? {
                    Object::RequestOptions(options) => options,
                    _ => return Err(mistaken()),
                },
                None => [None; 3],
            };
            Ok((match host.send(request, patience)? {
                Ok(sent) => {
                    let sent: Resource<FutureIncomingResponse> = host.table.push(Object::Sent(sent))?;
                    Ok(sent)
                }
                Err(error) => Err(error),
            },))
        };
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(of: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::default();
        for (name, value) in of {
            let appended = headers.append((*name).to_owned(), value.as_bytes().to_vec());
            assert!(matches!(appended, Ok(Ok(()))), "{name}: {value}");
        }
        headers
    }

    #[test]
    fn fields_are_counted_however_they_change() {
        let mut headers = fields(&[("A", "1"), ("b", "2"), ("a", "3")]);
        assert_eq!(headers.values("a"), ["1", "3"]);
        assert!(matches!(headers.set("a".into(), vec![b"4".to_vec()]), Ok(Ok(()))));
        assert_eq!(headers.values("A"), ["4"]);
        assert_eq!(headers.bytes(), fields(&[("b", "2"), ("a", "4")]).bytes());
        assert!(headers.delete("B").is_ok() && headers.delete("A").is_ok());
        assert_eq!((headers.bytes(), headers.entries.len()), (0, 0));
    }

    #[test]
    fn fields_that_could_speak_to_the_connection_are_refused() {
        let mut headers = Headers::default();
        for name in ["Connection", "HOST", "transfer-encoding", "Upgrade", "te"] {
            let refused = headers.append(name.to_owned(), b"x".to_vec());
            assert!(matches!(refused, Ok(Err(HeaderError::Forbidden))), "{name}");
        }
        for (name, value) in [
            ("", "x"),
            ("a b", "x"),
            ("ü", "x"),
            ("a", "x\r\ny: z"),
            ("a", "\0"),
            ("a", " x"),
        ] {
            let refused = headers.append(name.to_owned(), value.as_bytes().to_vec());
            assert!(
                matches!(refused, Ok(Err(HeaderError::InvalidSyntax))),
                "{name:?}: {value:?}"
            );
        }
        headers.immutable = true;
        let refused = headers.append("a".to_owned(), b"x".to_vec());
        assert!(matches!(refused, Ok(Err(HeaderError::Immutable))));
        assert!(headers.entries.is_empty());
    }
}
