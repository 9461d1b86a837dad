//! The requests of a connection: from bytes to the worker, and from what it answers to bytes.

use crate::{
    adoption,
    connection::{self, Connection, Goal, Incoming, Manner, Phase, Reply},
    http1::{self, Framing, PREFACE, Parsed, imf_date},
    invoke,
    later::Inbox,
    options::Options,
    refusals::Refusals,
    respond,
    streams::{Download, Upload},
};
use bytes::Bytes;
use contract::{Body, CoreId, Head, RequestId};
use dispatcher::Reader;
use lambda::{MAX_PAYLOAD, Rejection};
use std::{
    collections::HashMap,
    mem,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use telemetry::{metrics::CoreMetrics, otlp::Span};
use worker::{Failure, Intake, Invocation, Target};

/// What handling a request needs beside its connection.
pub(crate) struct Edge {
    pub(crate) core: CoreId,
    pub(crate) options: Options,
    pub(crate) reader: Reader,
    pub(crate) metrics: Arc<CoreMetrics>,
    pub(crate) ids: Ids,
    pub(crate) clock: Date,
    /// What became of calls that are being kept.
    pub(crate) kept: Inbox,
    pub(crate) adopted: Option<adoption::Intake>,
    /// Spans of requests in work whose connection has gone, by its token.
    pub(crate) orphans: HashMap<u64, Box<Span>>,
    refusals: Refusals,
    /// For the next response.
    pub(crate) spare: Vec<u8>,
    /// Of a request that was refused, for the next one.
    spare_head: Option<Box<Head>>,
}

/// A request whose head is here and whose body may not be.
pub(crate) struct Asked {
    pub(crate) head: Box<Head>,
    pub(crate) framing: Framing,
    /// The client waits to be told to send the body.
    pub(crate) waits: bool,
}

/// Request ids: half of one says which node start, the rest which core and which request.
pub(crate) struct Ids {
    prefix: u128,
    next: u64,
}

impl Ids {
    pub(crate) fn next(&mut self) -> RequestId {
        self.next += 1;
        RequestId(self.prefix | u128::from(self.next))
    }
}

/// The `Date` header, made once a second.
pub(crate) struct Date {
    text: [u8; 29],
    until: Instant,
}

impl Date {
    fn at(&mut self, now: Instant) -> [u8; 29] {
        if now >= self.until {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.text = imf_date(since.as_secs());
            self.until = now + Duration::from_millis(1_000 - u64::from(since.subsec_millis()));
        }
        self.text
    }
}

impl Edge {
    /// `boot` distinguishes this start of the node in request ids.
    pub(crate) fn new(
        core: CoreId,
        boot: u64,
        reader: Reader,
        metrics: Arc<CoreMetrics>,
        options: Options,
    ) -> Self {
        let adopted = options.adoption.as_ref().and_then(|adoption| adoption.door(core));
        let prefix = (u128::from(boot) << 64) | (u128::from(core.0) << 48);
        Self {
            core,
            options,
            reader,
            metrics,
            ids: Ids { prefix, next: 0 },
            clock: Date {
                text: imf_date(0),
                until: Instant::now(),
            },
            kept: Inbox::default(),
            adopted,
            orphans: HashMap::new(),
            refusals: Refusals::default(),
            spare: Vec::new(),
            spare_head: None,
        }
    }

    pub(crate) fn take_buffered(
        &mut self,
        connection: &mut Connection,
        intake: &mut Intake<'_>,
        dirty: &mut Vec<u64>,
    ) {
        if connection.input.is_empty() {
            return;
        }
        let mut input = mem::take(&mut connection.input);
        let taken = self.take(connection, &input, intake, dirty);
        if taken == input.len() {
            // An idle connection keeps no buffer.
            return;
        }
        input.drain(..taken);
        connection.input = input;
    }

    /// Takes requests out of the bytes until one is in work or more bytes are needed. Returns how many it took.
    pub(crate) fn take(
        &mut self,
        connection: &mut Connection,
        bytes: &[u8],
        intake: &mut Intake<'_>,
        dirty: &mut Vec<u64>,
    ) -> usize {
        let mut at = 0;
        loop {
            match &mut connection.phase {
                Phase::Leaving(_) => return at,
                Phase::Lingering => return bytes.len(),
                Phase::Working => {
                    let upload = connection.upload.as_mut();
                    let Some(upload) = upload.filter(|upload| at < bytes.len() && !upload.is_full()) else {
                        return at;
                    };
                    connection.since = intake.now;
                    match upload.take(&bytes[at..], &intake.stirrer(connection.token)) {
                        Ok((fed, length)) => {
                            at += fed.consumed;
                            connection.uploaded += length as u64;
                            if fed.done {
                                connection.upload = None;
                            }
                        }
                        Err(reject) => {
                            let id = self.ids.next();
                            self.disown(connection);
                            self.reject(connection, &reject, id, intake.now, dirty);
                            return bytes.len();
                        }
                    }
                }
                Phase::Body(incoming) => {
                    connection.since = intake.now;
                    let (id, fed) = (incoming.head.id, incoming.take(&bytes[at..]));
                    match fed {
                        Ok(fed) => {
                            at += fed.consumed;
                            if !self.pass_on(connection, fed.done, intake, dirty) {
                                return at;
                            }
                        }
                        Err(reject) => {
                            self.reject(connection, &reject, id, intake.now, dirty);
                            return bytes.len();
                        }
                    }
                }
                Phase::Skipping(leftover) => match leftover.take(&bytes[at..]) {
                    Ok(fed) => {
                        at += fed.consumed;
                        connection.since = intake.now;
                        if !fed.done {
                            return at;
                        }
                        connection.phase = Phase::Head;
                    }
                    Err(reject) => {
                        // Its request has been answered; where the next one would begin is not known.
                        self.metrics.reject(reject.code);
                        connection.linger();
                        return bytes.len();
                    }
                },
                Phase::Head => {
                    if at == bytes.len() {
                        return at;
                    }
                    if connection.kind == connection::Kind::New && self.options.departure.is_some() {
                        if bytes.starts_with(PREFACE) {
                            connection.phase = Phase::Leaving(None);
                            return 0;
                        }
                        if PREFACE.starts_with(bytes) {
                            return 0;
                        }
                    }
                    let id = self.ids.next();
                    let (limits, scheme) = (&self.options.head, connection.origin.scheme());
                    match http1::parse_again(&bytes[at..], limits, scheme, id, &mut self.spare_head) {
                        Ok(Parsed::Partial) => return at,
                        Ok(Parsed::Head(mut request))
                            if request.upgrade
                                && request.framing == Framing::None
                                && connection.kind != connection::Kind::Adopted
                                && connection.output.is_empty()
                                && !intake.is_draining()
                                && self.options.departure.is_some() =>
                        {
                            request.head.origin = connection.origin;
                            connection.phase = Phase::Leaving(Some(request.head));
                            return at + request.consumed;
                        }
                        Ok(Parsed::Head(request)) => {
                            at += request.consumed;
                            if connection.kind == connection::Kind::New {
                                connection.kind = connection::Kind::Known;
                            }
                            self.metrics.requests.add(1);
                            connection.manner = Manner {
                                keep_alive: request.keep_alive,
                                http10: request.http10,
                                to_head: request.head.method() == "HEAD",
                                trailers: request.trailers,
                            };
                            let mut head = request.head;
                            head.origin = connection.origin;
                            let asked = Asked {
                                head,
                                framing: request.framing,
                                // Who has sent the body already does not wait to be asked for it.
                                waits: request.expect_continue && at == bytes.len(),
                            };
                            self.begin(connection, asked, intake, dirty);
                        }
                        Err(reject) => {
                            self.reject(connection, &reject, id, intake.now, dirty);
                            return bytes.len();
                        }
                    }
                }
            }
        }
    }

    /// Has a request whose body is being taken go on, if that is complete or its function takes it before. `false` if it waits for
    /// more.
    pub(crate) fn pass_on(
        &mut self,
        connection: &mut Connection,
        done: bool,
        intake: &mut Intake<'_>,
        dirty: &mut Vec<u64>,
    ) -> bool {
        let streams = connection.streams(done);
        let Some(incoming) = connection.take_incoming_if(done || streams) else {
            return false;
        };
        self.pass(connection, *incoming, done, streams, intake, dirty);
        true
    }

    /// Submits a request whose body is complete, or as much of it as has come before it is streamed.
    pub(crate) fn pass(
        &mut self,
        connection: &mut Connection,
        incoming: Incoming,
        done: bool,
        streams: bool,
        intake: &mut Intake<'_>,
        dirty: &mut Vec<u64>,
    ) {
        let limit = incoming.limit;
        let (goal, head, body, rest) = incoming.split();
        let target = match goal {
            Goal::Run(target) => target,
            Goal::Tell(told) => {
                let (claim, rejection) = *told;
                let rejection = claim.check(&body).err().unwrap_or(rejection);
                return self.turn_away(connection, rejection, head.id, Framing::None, intake, dirty);
            }
            Goal::Publish(tenant) => {
                let message = (tenant.as_ref(), &*head, &Bytes::from(body));
                return self.publish(connection, message, intake, dirty);
            }
        };
        if !streams {
            return self.submit(connection, target, head, Bytes::from(body).into(), intake, dirty);
        }
        connection.uploaded = body.len() as u64;
        let (sender, receiver) = flow::flow();
        if done {
            sender.send(body.into());
            sender.end(rest.trailers());
        } else {
            connection.upload = Some(Box::new(Upload::new(sender, body, rest, limit)));
        }
        let body = Body::Stream(Box::new(receiver));
        self.submit(connection, target, head, body, intake, dirty);
    }

    pub(crate) fn submit(
        &mut self,
        connection: &mut Connection,
        target: Arc<Target>,
        mut head: Box<Head>,
        mut body: Body,
        intake: &mut Intake<'_>,
        dirty: &mut Vec<u64>,
    ) {
        if let Some(order) = connection.later.take()
            && let (Some(later), Body::Whole(body)) = (self.options.later.clone(), &body)
        {
            let kept = (*order, head, body.clone());
            return self.keep(connection, &later, &target, kept, intake, dirty);
        }
        connection.phase = Phase::Working;
        let (id, arrived) = (head.id, intake.now);
        let prepared = connection.invoke.as_ref().map_or(Ok(0), |invoke| {
            invoke::prepare(invoke, &target, (id, arrived), &mut body)
        });
        let log_tail = match prepared {
            Ok(log_tail) => log_tail,
            Err(reply) => {
                connection.invoke = None;
                if let Reply::Rejection { rejection, .. } = &*reply {
                    self.metrics.reject(rejection.error);
                }
                return self.reply(connection, *reply, Framing::None, dirty);
            }
        };
        if let Some(tracer) = &self.options.tracer {
            connection.span = tracer.begin(&mut head, &target.grant().function, target.grant().version);
        }
        match intake.admit(&target, arrived, head.until) {
            Ok(admitted) => {
                let token = connection.token;
                let mut invocation = Box::new(Invocation::new(target, head, body, arrived, self.core, token));
                invocation.streams = connection.invoke.is_none() && invocation.target.streams();
                invocation.log_tail = log_tail;
                intake.put(admitted, invocation);
                connection.in_work = true;
            }
            Err(refusal) => {
                let length = body.known_length().unwrap_or(0) as u64;
                let sample = respond::record_refused(&target, self.core, refusal, length);
                if connection.span.is_some() {
                    connection.refused = Some(Box::new(sample));
                }
                let reply = match connection.invoke.take() {
                    Some(_) => Reply::Rejection {
                        rejection: Rejection::of_refusal(refusal).into(),
                        id,
                        arrived,
                    },
                    None => Reply::Refused { refusal, id, arrived },
                };
                self.reply(connection, reply, Framing::None, dirty);
                self.spare_head = Some(head);
            }
        }
    }

    /// Puts what the request has come to into the output. `false` if the connection is to be closed.
    pub(crate) fn produce(&mut self, connection: &mut Connection, intake: &Intake<'_>) -> bool {
        connection.output.borrow(&mut self.spare);
        if let Some(download) = &mut connection.download {
            let date = self.clock.at(intake.now);
            if intake.is_draining() && download.is_unsaid() {
                connection.manner.keep_alive = false;
            }
            let (output, manner) = (&mut connection.output, &mut connection.manner);
            if let Err(fault) = download.pump(output, manner, date, &intake.stirrer(connection.token)) {
                // Its function is told so by the end of its flow; its answer is this.
                connection.download = None;
                connection.fault = Some(fault);
            } else if download.is_broken() && !download.is_unsaid() {
                return false;
            }
        }
        let is_over = |download: &Download| download.is_ended() || download.is_broken();
        let over = connection.download.as_deref().is_none_or(is_over);
        let ready = |reply: &mut Reply| over || !matches!(reply, Reply::Answer(_));
        let Some(mut reply) = connection.reply.take_if(ready) else {
            return true;
        };
        let now = Instant::now();
        let goes_on = |upload: &Upload| upload.is_short();
        if intake.is_draining() || !connection.upload.as_deref().is_none_or(goes_on) {
            connection.manner.keep_alive = false;
        }
        let date = self.clock.at(now);
        if let Reply::Answer(answer) = &mut reply {
            answer.request_bytes += mem::take(&mut connection.uploaded);
            if let Some(fault) = connection.fault.take() {
                answer.result = Err(Failure::Fault(fault));
            }
        }
        let (sample, complete) = match (connection.download.take(), reply) {
            (Some(download), Reply::Answer(answer)) if !download.is_unsaid() => {
                respond::conclude(connection, *download, &answer, self.core, now)
            }
            // Too late to say anything but that it broke off.
            (Some(download), _) if !download.is_unsaid() => (None, false),
            (_, reply) => {
                let made = respond::respond(connection, reply, &mut self.refusals, self.core, date, now);
                (made, true)
            }
        };
        if let (Some(span), Some(sample), Some(tracer)) =
            (connection.span.take(), sample, &self.options.tracer)
        {
            tracer.end(span, &sample, Some(connection.status));
        }
        complete
    }

    /// What the request in work will answer is not wanted any more.
    pub(crate) fn disown(&mut self, connection: &mut Connection) {
        connection.disowned = connection.in_work;
        connection.in_work = false;
        if let Some(mut upload) = connection.upload.take() {
            upload.fail();
        }
        if let Some(span) = connection.span.take() {
            self.orphans.insert(connection.token, span);
        }
    }

    /// An answer of our own to a request whose body was not read.
    pub(crate) fn reply(
        &mut self,
        connection: &mut Connection,
        reply: Reply,
        framing: Framing,
        dirty: &mut Vec<u64>,
    ) {
        if framing != Framing::None {
            // What follows is a body that nobody wants.
            connection.manner.keep_alive = false;
        }
        connection.phase = Phase::Working;
        connection.reply = Some(reply);
        dirty.push(connection.token);
    }

    fn reject(
        &mut self,
        connection: &mut Connection,
        reject: &http1::Reject,
        id: RequestId,
        arrived: Instant,
        dirty: &mut Vec<u64>,
    ) {
        self.metrics.reject(reject.code);
        connection.manner.keep_alive = false;
        connection.later = None;
        let most = match (connection.invoke.take(), &connection.phase) {
            (Some(invoke), _) => Some(invoke.largest_payload()),
            (None, Phase::Body(incoming)) if matches!(incoming.goal, Goal::Tell(_)) => Some(MAX_PAYLOAD),
            _ => None,
        };
        connection.reply = Some(match (most, &connection.phase) {
            (Some(most), Phase::Body(incoming)) if reject.status == 413 => Reply::Rejection {
                rejection: Rejection::too_large(incoming.limit, most).into(),
                id,
                arrived,
            },
            _ => Reply::Problem {
                problem: reject.problem(Some(id)).into(),
                id,
                header: None,
                arrived,
            },
        });
        connection.phase = Phase::Working;
        dirty.push(connection.token);
    }
}
