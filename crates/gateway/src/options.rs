//! What a gateway is told.

use crate::{
    adoption::{Adoption, Departure},
    http1,
    later::Later,
};
use lambda::Keys;
use std::{sync::Arc, time::Duration};
use telemetry::otlp::Tracer;

/// What the edge takes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bounds of a request's head.
    pub head: http1::Limits,
    /// Connections of one core; more wait in the kernel.
    pub connections: usize,
    /// How long a client may take.
    pub timeouts: Timeouts,
    /// Makes a span of each invocation, if traces are exported.
    pub tracer: Option<Tracer>,
    /// Where asynchronous calls are kept; none are taken without it.
    pub later: Option<Later>,
    /// Who may sign requests of Lambda's API.
    pub keys: Arc<Keys>,
    /// What brings connections beside those that the listener accepts.
    pub adoption: Option<Adoption>,
    /// What takes connections that go on in HTTP/2; it is not spoken without it.
    pub departure: Option<Departure>,
}

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Without a request on an open connection.
    pub idle: Duration,
    /// For a whole head, from its first byte.
    pub head: Duration,
    /// Between two pieces of a body, in either direction.
    pub body: Duration,
    /// To read an answer after which we close.
    pub linger: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            head: http1::Limits::default(),
            connections: 8_000,
            timeouts: Timeouts {
                idle: Duration::from_secs(75),
                head: Duration::from_secs(10),
                body: Duration::from_secs(30),
                linger: Duration::from_secs(2),
            },
            tracer: None,
            later: None,
            keys: Arc::default(),
            adoption: None,
            departure: None,
        }
    }
}
