//! What a request's head means: whom it asks, for what, and whether it may.

use crate::{
    connection::{Connection, Goal, Header, Incoming, Phase, Reply},
    edge::{Asked, Edge},
    events,
    http1::{CONTINUE, Framing},
    later::{self, Later, Order, callback},
};
use bytes::Bytes;
use calls::SubmitError;
use contract::{FunctionRef, Head, Name, NameError, Problem, Quota, Refusal, RequestId};
use dispatcher::{Unrouted, Whose};
use lambda::{Invoke, Kind, MAX_PAYLOAD, Rejection};
use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};
use worker::{Intake, Target};

/// Problems of requests that led to no function, as they are counted.
const COUNTED: [&str; 20] = [
    "route-unknown",
    "route-method",
    "route-changing",
    "function-name",
    "function-unknown",
    "function-ambiguous",
    "application-unknown",
    "version-unknown",
    "callback-malformed",
    "callback-host",
    "event-malformed",
    "event-unwanted",
    "event-loop",
    "event-fanout",
    "calls-size",
    "token-invalid",
    "token-expired",
    "token-missing",
    "role-missing",
    "quota-rate",
];

/// What a client is answered whose call was not kept.
pub(crate) fn not_kept(
    connection: &mut Connection,
    error: &SubmitError,
    id: RequestId,
    arrived: Instant,
) -> Reply {
    let problem = later::problem(error);
    match connection.invoke.take() {
        Some(_) => Reply::Rejection {
            rejection: Rejection::of_problem(&problem).into(),
            id,
            arrived,
        },
        None => Reply::Problem {
            header: (problem.status == 429).then(|| ("Retry-After", "1".into())),
            problem: problem.into(),
            id,
            arrived,
        },
    }
}

/// Lets a tenant's request in that may ask for what it asks for, and is within the tenant's rate.
fn admitted(whose: Whose, is_route: bool, now: Instant) -> Result<Whose, Problem> {
    whose.may_ask(is_route)?;
    if let Some(tenant) = whose.tenant()
        && let Err(retry_after) = tenant.allowance.request(now)
    {
        return Err(Problem::of_refusal(over_rate(retry_after)));
    }
    Ok(whose)
}

/// The same of an invocation by Lambda's API, which is counted once its signature was checked.
pub(crate) fn within_rate(target: &Target, now: Instant) -> Result<(), Rejection> {
    let counted = target
        .allowance()
        .map_or(Ok(()), |allowance| allowance.request(now));
    counted.map_err(|retry_after| Rejection::of_refusal(over_rate(retry_after)))
}

fn over_rate(retry_after: Duration) -> Refusal {
    Refusal::Quota {
        quota: Quota::Rate,
        retry_after,
    }
}

/// What the status of such a problem asks for beside it.
fn challenge(problem: &Problem) -> Option<Header> {
    match problem.status {
        401 => Some(("WWW-Authenticate", "Bearer".into())),
        // A bucket of a second's requests is never emptier than that.
        429 => Some(("Retry-After", "1".into())),
        _ => None,
    }
}

impl Edge {
    /// A head is here: finds out what it means.
    pub(crate) fn begin(
        &mut self,
        connection: &mut Connection,
        mut asked: Asked,
        intake: &mut Intake<'_>,
        dirty: &mut Vec<u64>,
    ) {
        let (id, framing, path) = (asked.head.id, asked.framing, asked.head.path());
        let own = match path {
            "/healthz" => Some((200, "ok\n")),
            "/readyz" if intake.is_draining() => Some((503, "draining\n")),
            "/readyz" if self.reader.is_ready() => Some((200, "ready\n")),
            "/readyz" => Some((503, "loading\n")),
            _ => None,
        };
        if let Some((status, text)) = own {
            let reply = Reply::Text {
                status,
                text,
                arrived: intake.now,
            };
            return self.reply(connection, reply, framing, dirty);
        }
        let whose = self.reader.whose(&mut asked.head);
        if lambda::is_invoke(asked.head.path()) {
            return self.begin_invoke(connection, (whose, asked), intake, dirty);
        }
        if let Ok(whose) = &whose {
            connection.tenant = Some(whose.party());
        }
        let is_later = later::name(asked.head.path()).is_some() && self.options.later.is_some();
        let is_event = events::is_events(asked.head.path()) && self.options.later.is_some();
        let is_route = !is_later && !is_event && !asked.head.path().starts_with("/function/");
        let whose = match whose.and_then(|whose| admitted(whose, is_route, intake.now)) {
            Ok(whose) => whose,
            Err(problem) => {
                self.count(&problem);
                let reply = Reply::Problem {
                    header: challenge(&problem),
                    problem: problem.into(),
                    id,
                    arrived: intake.now,
                };
                return self.reply(connection, reply, framing, dirty);
            }
        };
        let tenant = whose.name();
        if is_later {
            return self.begin_later(connection, (tenant, asked), intake, dirty);
        }
        if is_event {
            return self.begin_events(connection, (tenant, asked), intake, dirty);
        }
        match self.reader.route(tenant, &mut asked.head) {
            Err(unrouted) => {
                let Unrouted { problem, allow } = *unrouted;
                self.count(&problem);
                let reply = Reply::Problem {
                    problem: problem.into(),
                    id,
                    arrived: intake.now,
                    header: allow.map(|allow| ("Allow", allow.into())),
                };
                self.reply(connection, reply, framing, dirty);
            }
            Ok(target) => self.take_body(connection, target, asked, intake, dirty),
        }
    }

    /// A request in the words of Lambda's API.
    fn begin_invoke(
        &mut self,
        connection: &mut Connection,
        (whose, asked): (Result<Whose, Problem>, Asked),
        intake: &mut Intake<'_>,
        dirty: &mut Vec<u64>,
    ) {
        let Asked {
            mut head,
            framing,
            waits,
        } = asked;
        let id = head.id;
        let known = whose.map_err(|problem| Rejection::of_problem(&problem));
        // Who has shown a token needs no signature; a key's tenant goes before that of the host.
        let known = known.and_then(|whose| {
            let claim = match &whose {
                Whose::Token(_) => None,
                _ => self.options.keys.claim(&head, SystemTime::now())?,
            };
            match claim {
                Some(claim) => Ok((claim.tenant().cloned(), Some(claim))),
                None => match whose.may_ask(false) {
                    Ok(()) => Ok((whose.name().cloned(), None)),
                    Err(problem) => Err(Rejection::of_problem(&problem)),
                },
            }
        });
        let (tenant, claim) = match known {
            Ok(known) => known,
            Err(rejection) => return self.turn_away(connection, rejection, id, framing, intake, dirty),
        };
        if claim.is_some() {
            // It was meant for this node: no function reads it, and no call that is kept has it.
            head.remove_header("authorization");
        }
        let found = Invoke::read(&head).and_then(|invoke| {
            if invoke.kind == Kind::Event && self.options.later.is_none() {
                return Err(Rejection::no_events());
            }
            let rejected = |problem: Problem| Rejection::of_problem(&problem);
            let target = self
                .reader
                .named(tenant.as_ref(), &invoke.function.to_string())
                .map_err(rejected)?;
            let order = match invoke.kind {
                Kind::Event => Some(Order {
                    function: invoke.function.clone().of(tenant.clone()),
                    callback: callback(
                        self.options.later.as_ref(),
                        tenant.as_ref(),
                        &head,
                        &mut self.reader,
                    )
                    .map_err(rejected)?,
                }),
                _ => None,
            };
            Ok((target, order, invoke))
        });
        let (goal, limit, most) = match (found, claim) {
            (Ok((target, order, mut invoke)), claim) => {
                head.set_script(head.path().len());
                connection.tenant = Some(target.party());
                let most = invoke.largest_payload();
                let limit = most.min(target.grant().limits.request_body.0);
                connection.later = order.map(Box::new);
                invoke.claim = claim;
                connection.invoke = Some(Box::new(invoke));
                (Goal::Run(target), limit, most)
            }
            (Err(rejection), Some(claim)) => {
                (Goal::Tell(Box::new((claim, rejection))), MAX_PAYLOAD, MAX_PAYLOAD)
            }
            (Err(rejection), None) => {
                return self.turn_away(connection, rejection, id, framing, intake, dirty);
            }
        };
        match Incoming::new(goal, head, framing, limit) {
            Ok(incoming) if framing == Framing::None => {
                self.pass(connection, incoming, true, false, intake, dirty);
            }
            Ok(incoming) => Self::collect(connection, incoming, waits, dirty),
            Err(_) => {
                let rejection = Rejection::too_large(limit, most);
                self.turn_away(connection, rejection, id, framing, intake, dirty);
            }
        }
    }

    /// The answer to a request of Lambda's API that invokes nothing.
    pub(crate) fn turn_away(
        &mut self,
        connection: &mut Connection,
        rejection: Rejection,
        id: RequestId,
        framing: Framing,
        intake: &Intake<'_>,
        dirty: &mut Vec<u64>,
    ) {
        self.metrics.reject(rejection.error);
        connection.invoke = None;
        connection.later = None;
        let reply = Reply::Rejection {
            rejection: rejection.into(),
            id,
            arrived: intake.now,
        };
        self.reply(connection, reply, framing, dirty);
    }

    /// A request to be kept and run later.
    fn begin_later(
        &mut self,
        connection: &mut Connection,
        (tenant, mut asked): (Option<&Name>, Asked),
        intake: &mut Intake<'_>,
        dirty: &mut Vec<u64>,
    ) {
        let head = &mut asked.head;
        let name = later::name(head.path()).unwrap_or_default().to_owned();
        let reader = &mut self.reader;
        let found = reader.named(tenant, &name).and_then(|target| {
            let function: FunctionRef = name
                .parse()
                .map_err(|error: NameError| Problem::new(404, "function-name", error.to_string(), ""))?;
            let order = Order {
                function: function.of(tenant.cloned()),
                callback: callback(self.options.later.as_ref(), tenant, head, reader)?,
            };
            Ok((target, order))
        });
        match found {
            Ok((target, order)) => {
                head.set_script(later::script(&name));
                connection.later = Some(Box::new(order));
                self.take_body(connection, target, asked, intake, dirty);
            }
            Err(problem) => {
                self.count(&problem);
                let reply = Reply::Problem {
                    problem: problem.into(),
                    id: head.id,
                    arrived: intake.now,
                    header: None,
                };
                self.reply(connection, reply, asked.framing, dirty);
            }
        }
    }

    /// A request with events.
    fn begin_events(
        &mut self,
        connection: &mut Connection,
        (tenant, asked): (Option<&Name>, Asked),
        intake: &mut Intake<'_>,
        dirty: &mut Vec<u64>,
    ) {
        let Asked { head, framing, waits } = asked;
        let (id, arrived) = (head.id, intake.now);
        let (problem, header) = if head.method() == "POST" {
            match Incoming::new(Goal::Publish(tenant.cloned()), head, framing, events::LARGEST) {
                Ok(incoming) if framing == Framing::None => {
                    return self.pass(connection, incoming, true, false, intake, dirty);
                }
                Ok(incoming) => return Self::collect(connection, incoming, waits, dirty),
                Err(length) => (events::too_large(length), None),
            }
        } else {
            (events::method(&head), Some(("Allow", "POST".into())))
        };
        self.count(&problem);
        let reply = Reply::Problem {
            problem: problem.into(),
            id,
            header,
            arrived,
        };
        self.reply(connection, reply, framing, dirty);
    }

    /// Has the calls kept that events make. Their client is answered when they are.
    pub(crate) fn publish(
        &mut self,
        connection: &mut Connection,
        message: (Option<&Name>, &Head, &Bytes),
        intake: &Intake<'_>,
        dirty: &mut Vec<u64>,
    ) {
        let Some(later) = self.options.later.clone() else {
            return;
        };
        connection.phase = Phase::Working;
        let (id, arrived) = (message.1.id, intake.now);
        let (here, client) = ((self.core, &self.kept), (connection.token, arrived));
        match later.publish(message, &mut self.reader, here, client) {
            Ok(()) => connection.in_work = true,
            Err(problem) => {
                self.count(&problem);
                let reply = Reply::Problem {
                    header: (problem.status == 429).then(|| ("Retry-After", "1".into())),
                    problem: problem.into(),
                    id,
                    arrived,
                };
                self.reply(connection, reply, Framing::None, dirty);
            }
        }
    }

    /// Submits a request that has no body, or waits for the body.
    fn take_body(
        &mut self,
        connection: &mut Connection,
        target: Arc<Target>,
        asked: Asked,
        intake: &mut Intake<'_>,
        dirty: &mut Vec<u64>,
    ) {
        let Asked { head, framing, waits } = asked;
        if framing == Framing::None {
            return self.submit(connection, target, head, Bytes::new().into(), intake, dirty);
        }
        let (id, limit) = (head.id, target.grant().limits.request_body);
        match Incoming::new(Goal::Run(target), head, framing, limit.0) {
            Ok(incoming) => Self::collect(connection, incoming, waits, dirty),
            Err(length) => {
                const CODE: &str = "limit-request-body";
                self.metrics.reject(CODE);
                connection.later = None;
                let problem = Problem::new(
                    413,
                    CODE,
                    format!("the body of {length} bytes is larger than this function's limit of {limit}"),
                    "raise `request_body` of this function in millpond.toml, or send less",
                );
                let reply = Reply::Problem {
                    problem: problem.into(),
                    id,
                    arrived: intake.now,
                    header: None,
                };
                self.reply(connection, reply, framing, dirty);
            }
        }
    }

    /// Waits for a request's body.
    fn collect(connection: &mut Connection, incoming: Incoming, waits: bool, dirty: &mut Vec<u64>) {
        if waits {
            connection.output.head().extend_from_slice(CONTINUE);
            dirty.push(connection.token);
        }
        connection.phase = Phase::Body(Box::new(incoming));
    }

    /// Has a complete request kept. Its client is answered when it is.
    pub(crate) fn keep(
        &mut self,
        connection: &mut Connection,
        later: &Later,
        target: &Target,
        (order, head, mut body): (Order, Box<Head>, Bytes),
        intake: &Intake<'_>,
        dirty: &mut Vec<u64>,
    ) {
        connection.phase = Phase::Working;
        let (id, arrived) = (head.id, intake.now);
        if let Some(invoke) = &connection.invoke {
            let checked = invoke
                .check_payload(&body)
                .and_then(|()| within_rate(target, arrived));
            if let Err(rejection) = checked {
                return self.turn_away(connection, rejection, id, Framing::None, intake, dirty);
            }
            if body.is_empty() {
                body = Bytes::from_static(b"{}");
            }
        }
        let here = (self.core, &self.kept);
        match later.keep(order, &head, body, here, (connection.token, arrived)) {
            Ok(()) => connection.in_work = true,
            Err(error) => {
                let reply = not_kept(connection, &error, id, arrived);
                self.reply(connection, reply, Framing::None, dirty);
            }
        }
    }

    /// Counts a problem of a request that led to no function.
    fn count(&self, problem: &Problem) {
        if let Some(code) = COUNTED.iter().find(|code| **code == problem.code) {
            self.metrics.reject(code);
        }
    }
}
