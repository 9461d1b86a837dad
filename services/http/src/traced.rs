//! Calls by HTTP as spans of their invocations' traces, whoever makes them.
//!
//! A call of an invocation that is traced is a span, and its `traceparent` goes out unless the function has set one. What never was to be sent
//! is no call.

use bytes::Bytes;
use contract::{Attachment, Call, CallError, Caller, Calling, Grant, Service, Session};
use http::{Uri, header};
use std::sync::Arc;
use telemetry::otlp::{CallSpan, Tracer};

/// A service whose calls are HTTP requests, with their spans.
pub struct Traced {
    service: Arc<dyn Service>,
    tracer: Tracer,
}

struct TracedSession {
    session: Arc<dyn Session>,
    tracer: Tracer,
}

impl Traced {
    /// Of this service, for this tracer.
    pub fn new(service: Arc<dyn Service>, tracer: Tracer) -> Self {
        Self { service, tracer }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Service for Traced {
    fn name(&self) -> &'static str {
        self.service.name()
    }

    fn bind(&self, grant: &Grant) -> Option<Arc<dyn Session>> {
        let session = self.service.bind(grant)?;
        Some(Arc::new(TracedSession {
            session,
            tracer: self.tracer.clone(),
        }))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Session for TracedSession {
    fn call(&self, mut call: Call) -> Calling {
        let Some(span) = begin(&self.tracer, &mut call) else {
            return self.session.call(call);
        };
        let calling = self.session.call(call);
        Box::pin(async move {
            let reply = calling.await;
            match &reply {
                Err(CallError::Denied(_) | CallError::Target(_) | CallError::Busy) => span.forget(),
                Err(error) => span.end(Err(kind(error))),
                Ok(reply) => span.end(Ok(reply.head.status)),
            }
            reply
        })
    }

    fn attach(&self, caller: &Caller) -> Result<Attachment, CallError> {
        self.session.attach(caller)
    }
}

/// Begins a call's span, if its invocation is traced, and tells the other side of it.
fn begin(tracer: &Tracer, call: &mut Call) -> Option<CallSpan> {
    let uri: Uri = call.target.parse().ok()?;
    let place = (uri.scheme_str()?, uri.host()?, uri.port_u16(), uri.path());
    let span = tracer.call(&call.caller, &call.operation, place)?;
    let is = |name: &str, wanted: &header::HeaderName| name.eq_ignore_ascii_case(wanted.as_str());
    if !call.parameters.iter().any(|(name, _)| is(name, &TRACEPARENT)) {
        call.parameters.retain(|(name, _)| !is(name, &TRACESTATE));
        let state = call.caller.tracestate.clone();
        let fields = [
            (TRACEPARENT, Some(Bytes::from(span.traceparent()))),
            (TRACESTATE, state),
        ];
        let fields = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        call.parameters
            .extend(fields.map(|(name, value)| (name.as_str().to_owned().into(), value)));
    }
    Some(span)
}

const TRACEPARENT: header::HeaderName = header::HeaderName::from_static("traceparent");
const TRACESTATE: header::HeaderName = header::HeaderName::from_static("tracestate");

/// What went wrong, as a span's `error.type`.
fn kind(error: &CallError) -> &'static str {
    match error {
        CallError::Unset(_) => "secret_unset",
        CallError::Name(_) => "name_resolution",
        CallError::Address(_) => "address_prohibited",
        CallError::Refused(_) => "connection_refused",
        CallError::Timeout(_) => "timeout",
        CallError::Secure(_) => "tls",
        _ => "connection_broken",
    }
}
