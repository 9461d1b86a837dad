//! Tells servers the outcomes of calls, by a POST through the backend's service `http`.
//!
//! Which hosts may be told is the configuration's to say. It is asked when a call is accepted, and again here, by the service, at
//! each delivery: a host that is no longer listed is told nothing. No redirect is followed, and a name that leads to this machine
//! opens nothing; both as for functions.

use bytes::Bytes;
use calls::{Callback, Outcome, Request, Response};
use contract::{Body, Call, CallError, Caller, FunctionId, Grant, HttpGrant, Service, Session};
use std::{borrow::Cow, sync::Arc, time::Duration};
use tokio::runtime::Handle;

/// How long a server may take to begin its answer, from the attempt to reach it.
const PATIENCE: Duration = Duration::from_secs(30);
/// As whom the node asks the service. Nothing is added to its requests, so that an application of this name has nothing of it.
const NODE: &str = "node.callbacks";

/// Tells servers outcomes.
pub(crate) struct Courier {
    runtime: Handle,
    /// None if nobody may be told.
    session: Option<Arc<dyn Session>>,
}

impl Courier {
    /// May tell these hosts, by this service and on this runtime.
    pub(crate) fn new(runtime: Handle, service: &dyn Service, hosts: &[String]) -> Self {
        let node = NODE.parse().ok();
        Self {
            runtime,
            session: node.and_then(|node| service.bind(&grant(node, hosts))),
        }
    }

    /// Delivers, and says what came of it on a thread of the runtime, or at once. Does not wait.
    pub(crate) fn deliver(&self, request: Request, done: impl FnOnce(Outcome) + Send + 'static) {
        let server = server(&request.target);
        let Some(session) = self.session.clone() else {
            return done(outcome(&server, Err(CallError::Denied(String::new()))));
        };
        self.runtime.spawn(async move {
            let reply = session.call(call(request)).await;
            done(outcome(&server, reply.map(|reply| reply.head.status)));
        });
    }
}

fn grant(function: FunctionId, hosts: &[String]) -> Grant {
    let http = hosts.iter().map(|host| HttpGrant {
        host: host.clone(),
        headers: Vec::new(),
        clear_text: false,
    });
    Grant {
        http: http.collect(),
        ..Grant::nothing(function)
    }
}

fn call(request: Request) -> Call {
    let fields = request.headers.into_iter();
    let mut parameters: Vec<(Cow<'static, str>, Bytes)> =
        fields.map(|(name, value)| (name.into(), value.into())).collect();
    if request.body.is_empty() {
        // Servers wait for it after a POST (RFC 9110, section 8.6); of a body that there is, the service says it.
        parameters.push(("Content-Length".into(), "0".into()));
    }
    Call {
        operation: request.method,
        target: request.target,
        parameters,
        body: Body::Whole(request.body),
        patience: Some(PATIENCE),
        pause: None,
        caller: Caller::default(),
    }
}

/// A URL without what may be secret of it.
fn server(target: &str) -> String {
    let callback: Option<Callback> = target.parse().ok();
    callback
        .and_then(|callback| callback.server())
        .unwrap_or_default()
}

/// What a status, or its lack, means for the delivery. Whatever is not a success is tried again: servers are mended.
fn outcome(server: &str, came: Result<u16, CallError>) -> Outcome {
    let failed = |reason: String| Outcome::Failed { reason, retry: true };
    match came {
        Ok(status @ 200..=299) => Outcome::Succeeded(Response {
            status,
            ..Response::default()
        }),
        Ok(status) => failed(format!("{server} answered with status {status}")),
        Err(CallError::Busy) => Outcome::Refused {
            reason: CallError::Busy.to_string(),
        },
        Err(CallError::Denied(_)) => Outcome::Failed {
            reason: format!(
                "the host of {server} is not among `callbacks` of `calls` in the node's configuration"
            ),
            retry: false,
        },
        Err(error) => failed(format!("{server} was not told: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_success_ends_a_delivery_and_only_a_host_that_is_not_listed_ends_it_at_once() {
        let url = "http://example.org:81/done?token=secret";
        let server = server(url);
        assert_eq!(server, "http://example.org:81");
        assert!(matches!(outcome(&server, Ok(204)), Outcome::Succeeded(response) if response.status == 204));
        for status in [302, 404, 410, 429, 500] {
            let Outcome::Failed { reason, retry: true } = outcome(&server, Ok(status)) else {
                panic!("{status} is no success, and not the end");
            };
            assert!(
                reason.contains(&status.to_string()) && !reason.contains("secret"),
                "{reason}"
            );
        }
        let error = |error| outcome(&server, Err(error));
        assert!(matches!(error(CallError::Busy), Outcome::Refused { .. }));
        assert!(matches!(
            error(CallError::Timeout("it")),
            Outcome::Failed { retry: true, .. }
        ));
        let Outcome::Failed { reason, retry: false } = error(CallError::Denied("x".into())) else {
            panic!("it is the end");
        };
        assert!(reason.contains("callbacks"), "{reason}");
    }
}
