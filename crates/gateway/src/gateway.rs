//! The connections of one core.

use crate::{
    Listener,
    adoption::{self, Adopted, Departing, Departure},
    begin::not_kept,
    connection::{self, Connection, Phase, Reply},
    edge::Edge,
    later::Kept,
    options::Options,
    respond,
    streams::Download,
};
use contract::{CoreId, Origin, Party, Problem};
use dispatcher::Reader;
use rustix::{
    buffer::spare_capacity,
    fd::OwnedFd,
    io::Errno,
    net::{RecvFlags, recv},
};
use slab::Slab;
use std::{
    io, mem,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use telemetry::metrics::CoreMetrics;
use worker::{Answer, Front, Intake, Interest, Opening, Poller, Readiness, Trigger};

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

const LISTENER: u64 = u64::MAX - 1;
const SCRATCH: usize = 64 << 10;
/// Accepted in one go.
const ACCEPTED: usize = 64;
/// How much of pipelined requests is read ahead.
const AHEAD: usize = 64 << 10;
const UPKEEP: Duration = Duration::from_secs(1);

fn token(slot: usize, serial: u32) -> u64 {
    (u64::from(serial) << 32) | u64::from(u32::try_from(slot).unwrap_or(u32::MAX))
}

fn slot_of(token: u64) -> usize {
    usize::try_from(token & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

fn listening(input: bool) -> Interest {
    Interest { input, output: false }
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
        poller.add(&listener, LISTENER, Trigger::Level)?;
        let address = listener.address();
        Ok(Self {
            listener: Some(listener),
            address,
            paused: false,
            connections: Slab::new(),
            serial: 0,
            edge: Edge::new(core, boot, reader, metrics, options),
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
        if poller.add(&connection.socket, token, Trigger::Edge).is_ok() {
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
            self.paused = poller
                .modify(listener, LISTENER, listening(false), Trigger::Level)
                .is_ok();
        }
    }

    fn resume(&mut self, poller: &Poller) {
        if self.paused
            && self.connections.len() < self.edge.options.connections
            && let Some(listener) = &self.listener
        {
            self.paused = poller
                .modify(listener, LISTENER, listening(true), Trigger::Level)
                .is_err();
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

    /// Reads once, and takes what can be taken; `last` if the other end sends nothing more. `false` if the connection is to be
    /// closed.
    fn read(&mut self, token: u64, last: bool, intake: &mut Intake<'_>) -> bool {
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
            Ok((read, _)) => {
                edge.metrics.received_bytes.add(read as u64);
                connection.unread = last || read == scratch.capacity();
            }
            Err(Errno::AGAIN) => return true,
            Err(Errno::INTR) => {
                connection.unread = true;
                return true;
            }
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
            Ok(true) => connection.output.give_back(&mut edge.spare),
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
                // Half a request that came before the end stays half.
                !connection.ended || matches!(connection.phase, Phase::Working | Phase::Leaving(_))
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
        let wanted = Interest {
            input: !connection.ended && !full,
            output: !connection.output.is_empty(),
        };
        if (connection.unread && wanted.input || wanted != connection.watched)
            && poller
                .modify(&connection.socket, token, wanted, Trigger::Edge)
                .is_ok()
        {
            connection.watched = wanted;
            connection.unread = false;
        }
    }
}

impl Front for Gateway {
    fn prefetch(&self, token: u64) {
        if let Some(connection) = self.connections.get(slot_of(token)) {
            connection.prefetch();
        }
    }

    fn tenant(&self, token: u64) -> Option<Party> {
        let connection = self.connections.get(slot_of(token))?;
        connection.tenant.filter(|_| connection.token == token)
    }

    fn ready(&mut self, poller: &Poller, token: u64, readiness: Readiness, intake: &mut Intake<'_>) {
        if token == LISTENER {
            return self.accept(poller, intake.now);
        }
        let keep = !readiness.closed
            && (!readiness.readable || self.read(token, readiness.ended, intake))
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

    fn owes(&self) -> bool {
        !(self.dirty.is_empty() && self.edge.kept.is_empty())
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
            let tenant = if intake.is_shared() {
                self.tenant(token)
            } else {
                None
            };
            if self.write(token, intake) {
                self.watch(poller, token);
            } else {
                self.close(poller, slot_of(token));
            }
            intake.spent(tenant);
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
                    problem: problem.into(),
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
