//! The connections of one core.

use crate::{
    Listener,
    adoption::{self, Adopted, Adoption, Departing, Departure},
    connection::{self, Connection, Goal, Incoming, Manner, Phase, Reply, Watched},
    events,
    http1::{self, CONTINUE, Framing, PREFACE, Parsed, imf_date},
    invoke,
    later::{self, Inbox, Kept, Later, Order, callback},
    respond,
    streams::{Download, Upload},
};
use bytes::Bytes;
use calls::SubmitError;
use contract::{
    Body, CoreId, FunctionRef, Head, Name, NameError, Origin, Problem, Quota, Refusal, RequestId,
};
use dispatcher::{Reader, Unrouted, Whose};
use lambda::{Invoke, Keys, Kind, MAX_PAYLOAD, Rejection};
use rustix::{
    buffer::spare_capacity,
    fd::OwnedFd,
    io::Errno,
    net::{RecvFlags, recv},
};
use slab::Slab;
use std::{
    collections::HashMap,
    io, mem,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use telemetry::{
    metrics::CoreMetrics,
    otlp::{Span, Tracer},
};
use worker::{Answer, Failure, Front, Intake, Invocation, Opening, Poller, Readiness, Target};

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

/// The [`Front`] of a core. See the crate's introduction.
pub struct Gateway {
    listener: Option<Listener>,
    address: SocketAddr,
    /// Connections wait in the kernel because there are too many, or no descriptors.
    paused: bool,
    connections: Slab<Connection>,
    serial: u32,
    edge: Edge,
    /// Connections with something to write.
    dirty: Vec<u64>,
    /// Where all reading goes first.
    scratch: Vec<u8>,
}

/// What handling a request needs beside its connection.
struct Edge {
    core: CoreId,
    options: Options,
    reader: Reader,
    metrics: Arc<CoreMetrics>,
    ids: Ids,
    clock: Date,
    /// What became of calls that are being kept.
    kept: Inbox,
    adopted: Option<adoption::Intake>,
    /// Spans of requests in work whose connection has gone, by its token.
    orphans: HashMap<u64, Box<Span>>,
}

/// A request whose head is here and whose body may not be.
struct Asked {
    head: Box<Head>,
    framing: Framing,
    /// The client waits to be told to send the body.
    waits: bool,
}

/// Request ids: half of one says which node start, the rest which core and which request.
struct Ids {
    prefix: u128,
    next: u64,
}

impl Ids {
    fn next(&mut self) -> RequestId {
        self.next += 1;
        RequestId(self.prefix | u128::from(self.next))
    }
}

/// The `Date` header, made once a second.
struct Date {
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

const LISTENER: u64 = u64::MAX - 1;
const SCRATCH: usize = 64 << 10;
/// Accepted in one go.
const ACCEPTED: usize = 64;
/// How much of pipelined requests is read ahead.
const AHEAD: usize = 64 << 10;
const UPKEEP: Duration = Duration::from_secs(1);

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
fn not_kept(connection: &mut Connection, error: &SubmitError, id: RequestId, arrived: Instant) -> Reply {
    let problem = later::problem(error);
    match connection.invoke.take() {
        Some(_) => Reply::Rejection {
            rejection: Rejection::of_problem(&problem),
            id,
            arrived,
        },
        None => Reply::Problem {
            header: (problem.status == 429).then(|| ("Retry-After", "1".to_owned())),
            problem,
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
fn within_rate(target: &Target, now: Instant) -> Result<(), Rejection> {
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
fn challenge(problem: &Problem) -> Option<(&'static str, String)> {
    match problem.status {
        401 => Some(("WWW-Authenticate", "Bearer".to_owned())),
        // A bucket of a second's requests is never emptier than that.
        429 => Some(("Retry-After", "1".to_owned())),
        _ => None,
    }
}

fn token(slot: usize, serial: u32) -> u64 {
    (u64::from(serial) << 32) | u64::from(u32::try_from(slot).unwrap_or(u32::MAX))
}

fn slot_of(token: u64) -> usize {
    usize::try_from(token & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

impl Gateway {
    /// Takes the core's listener and has the poller watch it. `boot` distinguishes this start of the node in request ids.
    pub fn new(
        poller: &Poller,
        listener: Listener,
        core: CoreId,
        boot: u64,
        reader: Reader,
        metrics: Arc<CoreMetrics>,
        options: Options,
    ) -> io::Result<Self> {
        poller.add(&listener, LISTENER, false)?;
        let address = listener.address();
        let adopted = options.adoption.as_ref().and_then(|adoption| adoption.door(core));
        let prefix = (u128::from(boot) << 64) | (u128::from(core.0) << 48);
        Ok(Self {
            listener: Some(listener),
            address,
            paused: false,
            connections: Slab::new(),
            serial: 0,
            edge: Edge {
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
            },
            dirty: Vec::new(),
            scratch: Vec::with_capacity(SCRATCH),
        })
    }

    fn accept(&mut self, poller: &Poller, now: Instant) {
        for _ in 0..ACCEPTED {
            let Some(listener) = &self.listener else { return };
            if self.connections.len() >= self.edge.options.connections {
                return self.pause(poller);
            }
            match listener.accept() {
                Ok(None) => return,
                Ok(Some((socket, remote))) => {
                    let origin = Origin {
                        remote,
                        local: Some(self.address),
                        ..Origin::default()
                    };
                    self.open(poller, socket, origin, connection::Kind::New, now);
                }
                // Out of descriptors or memory: those that wait may still be served later.
                Err(_) => return self.pause(poller),
            }
        }
    }

    /// Takes the connections that something else of the node brings. There is no room for more than the limit: what is over
    /// it is closed at once, for its other end to say so to the client.
    fn adopt(&mut self, poller: &Poller, now: Instant) {
        while let Some(Adopted { socket, origin }) =
            self.edge.adopted.as_ref().and_then(adoption::Intake::next)
        {
            if self.connections.len() < self.edge.options.connections {
                self.open(poller, socket, origin, connection::Kind::Adopted, now);
            }
        }
    }

    fn open(
        &mut self,
        poller: &Poller,
        socket: OwnedFd,
        origin: Origin,
        kind: connection::Kind,
        now: Instant,
    ) {
        self.serial = self.serial.wrapping_add(1) & (u32::MAX >> 1);
        let entry = self.connections.vacant_entry();
        let token = token(entry.key(), self.serial);
        let connection = Connection::new(socket, token, origin, kind, now);
        if poller.add(&connection.socket, token, false).is_ok() {
            entry.insert(connection);
            self.edge.metrics.connections_accepted.add(1);
            self.edge.metrics.connections_open.add(1);
        }
    }

    /// Lets a connection go that goes on in HTTP/2. `false` if it does not.
    fn leave(&mut self, poller: &Poller, token: u64) -> bool {
        let leaving = |connection: &Connection| matches!(connection.phase, Phase::Leaving(_));
        if !self
            .connection(token)
            .is_some_and(|connection| leaving(connection))
        {
            return false;
        }
        if let Some(connection) = self.connections.try_remove(slot_of(token)) {
            let _ = poller.delete(&connection.socket);
            self.edge.metrics.connections_open.add(-1);
            if let (Phase::Leaving(request), Some(Departure(depart))) =
                (connection.phase, &self.edge.options.departure)
            {
                depart(Departing {
                    socket: connection.socket,
                    origin: connection.origin,
                    read: connection.input,
                    request,
                });
            }
        }
        true
    }

    /// The node is shutting down: who waits to be accepted still is, idle connections are closed, and no more come.
    fn stop_accepting(&mut self, poller: &Poller, now: Instant) {
        if self.listener.is_some() {
            self.accept(poller, now);
            if let Some(listener) = self.listener.take() {
                let _ = poller.delete(&listener);
            }
        }
        let idle: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, c)| c.is_idle())
            .map(|(slot, _)| slot)
            .collect();
        idle.into_iter().for_each(|slot| self.close(poller, slot));
    }

    fn pause(&mut self, poller: &Poller) {
        if let Some(listener) = &self.listener {
            self.paused = poller.modify(listener, LISTENER, false, false).is_ok();
        }
    }

    fn resume(&mut self, poller: &Poller) {
        if self.paused
            && self.connections.len() < self.edge.options.connections
            && let Some(listener) = &self.listener
        {
            self.paused = poller.modify(listener, LISTENER, true, false).is_err();
        }
    }

    fn close(&mut self, poller: &Poller, slot: usize) {
        if let Some(connection) = self.connections.try_remove(slot) {
            let _ = poller.delete(&connection.socket);
            self.edge.metrics.connections_open.add(-1);
            if let (Some(span), true) = (connection.span, connection.in_work) {
                self.edge.orphans.insert(connection.token, span);
            }
        }
    }

    fn connection(&mut self, token: u64) -> Option<&mut Connection> {
        // An event of the same wait may have closed it, and another have taken its place.
        self.connections
            .get_mut(slot_of(token))
            .filter(|connection| connection.token == token)
    }

    /// Reads once, and takes what can be taken. `false` if the connection is to be closed.
    fn read(&mut self, token: u64, intake: &mut Intake<'_>) -> bool {
        let Self {
            connections,
            edge,
            scratch,
            dirty,
            ..
        } = self;
        let Some(connection) = connections.get_mut(slot_of(token)).filter(|c| c.token == token) else {
            return true;
        };
        scratch.clear();
        // Not `read`: that goes through the layer of files first.
        match recv(&connection.socket, spare_capacity(scratch), RecvFlags::empty()) {
            Ok((0, _)) => {
                connection.ended = true;
                return match connection.phase {
                    // Someone who has sent a whole request may close their side and still wait for the answer.
                    Phase::Working => connection.upload.is_none(),
                    Phase::Leaving(_) => true,
                    Phase::Head | Phase::Body(_) | Phase::Skipping(_) | Phase::Lingering => false,
                };
            }
            Ok((read, _)) => edge.metrics.received_bytes.add(read as u64),
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => return false,
        }
        if matches!(connection.phase, Phase::Lingering) {
            return true;
        }
        if connection.is_idle() {
            // A head's time runs from its first byte.
            connection.since = intake.now;
        }
        if connection.input.is_empty() {
            let taken = edge.take(connection, scratch, intake, dirty);
            connection.input.extend_from_slice(&scratch[taken..]);
        } else {
            connection.input.extend_from_slice(scratch);
            edge.take_buffered(connection, intake, dirty);
        }
        true
    }

    /// Writes what a connection owes, and goes on to its next request. `false` if it is to be closed.
    fn write(&mut self, token: u64, intake: &mut Intake<'_>) -> bool {
        let Self {
            connections,
            edge,
            dirty,
            ..
        } = self;
        let Some(connection) = connections.get_mut(slot_of(token)).filter(|c| c.token == token) else {
            return true;
        };
        if let Some(upload) = &mut connection.upload
            && upload.is_full()
            && upload.has_opened(&intake.stirrer(token))
        {
            edge.take_buffered(connection, intake, dirty);
        }
        if !edge.produce(connection, intake) {
            return false;
        }
        let mut sent = 0;
        let result = connection.output.write(&connection.socket, &mut sent);
        edge.metrics.sent_bytes.add(sent);
        if sent > 0 {
            connection.since = intake.now;
        }
        match result {
            Err(_) => return false,
            Ok(false) => return true,
            Ok(true) => {}
        }
        if connection
            .download
            .as_ref()
            .is_some_and(|download| download.is_busy())
        {
            // The next turn goes on with it: others come between.
            intake.stirrer(token).wake();
            return true;
        }
        match connection.phase {
            Phase::Working
                if !connection.in_work && connection.reply.is_none() && connection.download.is_none() =>
            {
                // Its function may have answered without reading all of its body.
                let next = match connection.upload.take() {
                    None => Some(Phase::Head),
                    Some(upload) => upload.forsake().map(Box::new).map(Phase::Skipping),
                };
                let Some(next) = next.filter(|_| connection.manner.keep_alive) else {
                    if connection.ended {
                        return false;
                    }
                    connection.linger();
                    return true;
                };
                connection.phase = next;
                connection.since = intake.now;
                edge.take_buffered(connection, intake, dirty);
                !(connection.ended && connection.is_idle())
            }
            Phase::Body(_) => {
                edge.pass_on(connection, false, intake, dirty);
                true
            }
            _ => true,
        }
    }

    /// Has epoll look for what the connection can use now.
    fn watch(&mut self, poller: &Poller, token: u64) {
        if self.leave(poller, token) {
            return;
        }
        let Some(connection) = self.connection(token) else {
            return;
        };
        let full = match &connection.upload {
            Some(upload) => upload.is_full(),
            None => connection.input.len() >= AHEAD && matches!(connection.phase, Phase::Working),
        };
        let wanted = Watched {
            input: !connection.ended && !full,
            output: !connection.output.is_empty(),
        };
        if wanted != connection.watched {
            let (input, output) = (wanted.input, wanted.output);
            if poller.modify(&connection.socket, token, input, output).is_ok() {
                connection.watched = wanted;
            }
        }
    }
}

impl Edge {
    fn take_buffered(&mut self, connection: &mut Connection, intake: &mut Intake<'_>, dirty: &mut Vec<u64>) {
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
    fn take(
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
                    match http1::parse(&bytes[at..], &self.options.head, connection.origin.scheme(), id) {
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
    fn pass_on(
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
    fn pass(
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

    /// What the request in work will answer is not wanted any more.
    fn disown(&mut self, connection: &mut Connection) {
        connection.disowned = connection.in_work;
        connection.in_work = false;
        if let Some(mut upload) = connection.upload.take() {
            upload.fail();
        }
        if let Some(span) = connection.span.take() {
            self.orphans.insert(connection.token, span);
        }
    }

    /// Puts what the request has come to into the output. `false` if the connection is to be closed.
    fn produce(&mut self, connection: &mut Connection, intake: &Intake<'_>) -> bool {
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
            (_, reply) => (respond::respond(connection, reply, self.core, date, now), true),
        };
        if let (Some(span), Some(sample), Some(tracer)) =
            (connection.span.take(), sample, &self.options.tracer)
        {
            tracer.end(span, &sample, Some(connection.status));
        }
        complete
    }

    /// A head is here: finds out what it means.
    fn begin(
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
        let is_later = later::name(asked.head.path()).is_some() && self.options.later.is_some();
        let is_event = events::is_events(asked.head.path()) && self.options.later.is_some();
        let is_route = !is_later && !is_event && !asked.head.path().starts_with("/function/");
        let whose = match whose.and_then(|whose| admitted(whose, is_route, intake.now)) {
            Ok(whose) => whose,
            Err(problem) => {
                self.count(&problem);
                let reply = Reply::Problem {
                    header: challenge(&problem),
                    problem,
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
                    problem,
                    id,
                    arrived: intake.now,
                    header: allow.map(|allow| ("Allow", allow)),
                };
                self.reply(connection, reply, framing, dirty);
            }
            Ok(target) => self.take_body(connection, target, asked, intake, dirty),
        }
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
                    problem,
                    id: head.id,
                    arrived: intake.now,
                    header: None,
                };
                self.reply(connection, reply, asked.framing, dirty);
            }
        }
    }

    /// Counts a problem of a request that led to no function.
    fn count(&self, problem: &Problem) {
        if let Some(code) = COUNTED.iter().find(|code| **code == problem.code) {
            self.metrics.reject(code);
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
            (events::method(&head), Some(("Allow", "POST".to_owned())))
        };
        self.count(&problem);
        let reply = Reply::Problem {
            problem,
            id,
            header,
            arrived,
        };
        self.reply(connection, reply, framing, dirty);
    }

    /// Has the calls kept that events make. Their client is answered when they are.
    fn publish(
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
                    header: (problem.status == 429).then(|| ("Retry-After", "1".to_owned())),
                    problem,
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
                    problem,
                    id,
                    arrived: intake.now,
                    header: None,
                };
                self.reply(connection, reply, framing, dirty);
            }
        }
    }

    /// Has a complete request kept. Its client is answered when it is.
    fn keep(
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

    /// Waits for a request's body.
    fn collect(connection: &mut Connection, incoming: Incoming, waits: bool, dirty: &mut Vec<u64>) {
        if waits {
            connection.output.head().extend_from_slice(CONTINUE);
            dirty.push(connection.token);
        }
        connection.phase = Phase::Body(Box::new(incoming));
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
    fn turn_away(
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
            rejection,
            id,
            arrived: intake.now,
        };
        self.reply(connection, reply, framing, dirty);
    }

    /// An answer of our own to a request whose body was not read.
    fn reply(&mut self, connection: &mut Connection, reply: Reply, framing: Framing, dirty: &mut Vec<u64>) {
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
                rejection: Rejection::too_large(incoming.limit, most),
                id,
                arrived,
            },
            _ => Reply::Problem {
                problem: reject.problem(Some(id)),
                id,
                header: None,
                arrived,
            },
        });
        connection.phase = Phase::Working;
        dirty.push(connection.token);
    }

    fn submit(
        &mut self,
        connection: &mut Connection,
        target: Arc<Target>,
        head: Box<Head>,
        body: Body,
        intake: &mut Intake<'_>,
        dirty: &mut Vec<u64>,
    ) {
        if let (Some(order), Some(later), Body::Whole(body)) =
            (connection.later.take(), self.options.later.clone(), &body)
        {
            let kept = (*order, head, body.clone());
            return self.keep(connection, &later, &target, kept, intake, dirty);
        }
        connection.phase = Phase::Working;
        let (id, arrived) = (head.id, intake.now);
        let mut request = Box::new(Invocation::new(
            target,
            head,
            body,
            arrived,
            self.core,
            connection.token,
        ));
        request.streams = connection.invoke.is_none() && request.target.streams();
        if let Some(invoke) = &connection.invoke
            && let Err(reply) = invoke::prepare(invoke, &mut request).and_then(|()| {
                within_rate(&request.target, arrived).map_err(|rejection| {
                    Box::new(Reply::Rejection {
                        rejection,
                        id,
                        arrived,
                    })
                })
            })
        {
            connection.invoke = None;
            if let Reply::Rejection { rejection, .. } = &*reply {
                self.metrics.reject(rejection.error);
            }
            return self.reply(connection, *reply, Framing::None, dirty);
        }
        if let Some(tracer) = &self.options.tracer {
            let Invocation { target, head, .. } = &mut *request;
            connection.span = tracer.begin(head, &target.grant().function, target.grant().version);
        }
        match intake.submit(request) {
            Ok(()) => connection.in_work = true,
            Err((invocation, refusal)) => {
                connection.refused = Some(respond::record_refused(
                    &invocation.target,
                    self.core,
                    refusal,
                    invocation.body.known_length().unwrap_or(0) as u64,
                ));
                let reply = match connection.invoke.take() {
                    Some(_) => Reply::Rejection {
                        rejection: Rejection::of_refusal(refusal),
                        id,
                        arrived,
                    },
                    None => Reply::Problem {
                        problem: Problem::of_refusal(refusal),
                        id,
                        header: Some(respond::retry(refusal)),
                        arrived,
                    },
                };
                self.reply(connection, reply, Framing::None, dirty);
            }
        }
    }
}

impl Front for Gateway {
    fn ready(&mut self, poller: &Poller, token: u64, readiness: Readiness, intake: &mut Intake<'_>) {
        if token == LISTENER {
            return self.accept(poller, intake.now);
        }
        let keep = !readiness.closed
            && (!readiness.readable || self.read(token, intake))
            && (!readiness.writable || self.write(token, intake));
        if keep {
            self.watch(poller, token);
        } else if self.connection(token).is_some() {
            self.close(poller, slot_of(token));
        }
    }

    fn open(&mut self, opening: Opening) {
        let token = opening.token;
        // A flow that is dropped tells its function that nobody is there.
        if let Some(connection) = self.connection(token)
            && !connection.disowned
        {
            connection.download = Some(Box::new(Download::new(opening)));
            self.dirty.push(token);
        }
    }

    fn stir(&mut self, token: u64) {
        self.dirty.push(token);
    }

    fn answer(&mut self, answer: Answer) {
        let token = answer.token;
        let found = self.connection(token);
        match found.and_then(|connection| (!mem::take(&mut connection.disowned)).then_some(connection)) {
            Some(connection) => {
                connection.in_work = false;
                connection.reply = Some(Reply::Answer(Box::new(answer)));
                self.dirty.push(token);
            }
            None => {
                let sample = respond::record_unread(&answer, self.edge.core);
                if let (Some(span), Some(tracer)) =
                    (self.edge.orphans.remove(&token), &self.edge.options.tracer)
                {
                    tracer.end(span, &sample, None);
                }
            }
        }
    }

    fn flush(&mut self, poller: &Poller, intake: &mut Intake<'_>) {
        while let Some(Kept {
            token,
            id,
            arrived,
            result,
            accepted,
        }) = self.edge.kept.pop()
        {
            // Who has gone meanwhile is not told; the call is kept all the same.
            if let Some(connection) = self.connection(token) {
                connection.in_work = false;
                connection.reply = Some(match (result, accepted) {
                    (Ok(_), Some(calls)) => Reply::Published { calls, id, arrived },
                    (Ok(_), None) => Reply::Accepted { id, arrived },
                    (Err(error), _) => not_kept(connection, &error, id, arrived),
                });
                self.dirty.push(token);
            }
        }
        self.adopt(poller, intake.now);
        // Pipelined requests that are answered at once add to the list while it is worked off.
        let mut next = 0;
        while let Some(token) = self.dirty.get(next).copied() {
            next += 1;
            if self.write(token, intake) {
                self.watch(poller, token);
            } else {
                self.close(poller, slot_of(token));
            }
        }
        self.dirty.clear();
        if intake.is_draining() {
            self.stop_accepting(poller, intake.now);
        }
    }

    fn expire(&mut self, poller: &Poller, now: Instant) -> Option<Instant> {
        let timeouts = self.edge.options.timeouts;
        let mut gone = Vec::new();
        for (slot, connection) in &mut self.connections {
            let waited = now.saturating_duration_since(connection.since);
            let over = match &connection.phase {
                Phase::Head if connection.input.is_empty() => waited >= timeouts.idle,
                Phase::Head => waited >= timeouts.head,
                Phase::Body(_) | Phase::Skipping(_) => waited >= timeouts.body,
                // Its client reads nothing. Until there is something to read, the function's own limits hold.
                Phase::Working => {
                    let stalls = connection.upload.as_ref().is_some_and(|upload| !upload.is_full());
                    (stalls || !connection.output.is_empty()) && waited >= timeouts.body
                }
                Phase::Lingering => waited >= timeouts.linger,
                // It has left already.
                Phase::Leaving(_) => false,
            };
            if !over {
                if let Phase::Body(incoming) = &mut connection.phase {
                    incoming.pauses = waited >= UPKEEP;
                }
                if connection.streams(false) {
                    // There may be a place for it now that there was not when it came.
                    self.dirty.push(connection.token);
                }
                continue;
            }
            let stalls = connection.upload.is_some() && connection.output.is_empty();
            if stalls && connection.download.is_none() {
                self.edge.disown(connection);
            }
            let unanswered = connection.download.is_none() && connection.output.is_empty();
            if unanswered
                && (stalls || matches!(connection.phase, Phase::Body(_)) || !connection.input.is_empty())
            {
                connection.manner.keep_alive = false;
                connection.phase = Phase::Working;
                connection.input = Vec::new();
                let problem = Problem::new(
                    408,
                    "http-timeout",
                    "the request did not arrive in time",
                    "send the head within 10 s, and let the body not pause for 30 s",
                );
                let id = self.edge.ids.next();
                connection.reply = Some(Reply::Problem {
                    problem,
                    id,
                    header: None,
                    arrived: now,
                });
                self.edge.metrics.reject("http-timeout");
                self.dirty.push(connection.token);
            } else {
                gone.push(slot);
            }
        }
        gone.into_iter().for_each(|slot| self.close(poller, slot));
        self.resume(poller);
        Some(now + UPKEEP)
    }

    fn is_quiet(&self) -> bool {
        self.connections
            .iter()
            .all(|(_, connection)| connection.is_quiet())
    }
}
