//! What is kept in memory: the state of each call and the orders in which calls are looked for. Pure.

use crate::{
    CallId, State, Timestamp,
    event::{Event, Progress, RequestHead},
};
use contract::{FunctionRef, Position};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Deliveries that are under way at once, and the bytes of their records.
const DELIVERIES: Tally = Tally {
    calls: 64,
    bytes: 64 << 20,
};
/// Those of them that go to one server.
const DELIVERIES_TO_ONE: Tally = Tally {
    calls: 8,
    bytes: 8 << 20,
};

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) function: FunctionRef,
    pub(crate) accepted: Timestamp,
    pub(crate) attempts: u32,
    pub(crate) maximum_age: Duration,
    pub(crate) progress: Progress,
    /// The record without which the call could not be known; while it is being accepted, a position before it.
    pub(crate) anchor: Position,
    /// Bytes of that record.
    pub(crate) bytes: u64,
    /// An event of it is on its way to the disk: nobody else may begin another.
    pub(crate) busy: bool,
    /// Somebody is told its outcome.
    pub(crate) calls_back: bool,
    /// The call whose outcome it tells.
    pub(crate) tells: Option<CallId>,
    /// The server that is told an outcome, now by this call or later by another. None once it has a result.
    pub(crate) server: Option<Arc<str>>,
}

impl Entry {
    /// Whether it tells an outcome to a server.
    pub(crate) fn is_delivery(&self) -> bool {
        self.tells.is_some() && self.server.is_some()
    }
}

/// Calls and bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) calls: usize,
    pub(crate) bytes: u64,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.calls += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: u64) {
        self.calls -= 1;
        self.bytes -= bytes;
    }

    /// Whether one more of so many bytes is within a limit. A first one always is.
    fn has_room(self, limit: Tally, bytes: u64) -> bool {
        self.calls == 0 || (self.calls < limit.calls && self.bytes + bytes <= limit.bytes)
    }
}

/// A server that is told outcomes.
#[derive(Debug, Default)]
pub(crate) struct Server {
    /// Calls without an outcome of which it is to hear, and deliveries to it without one.
    pub(crate) pending: usize,
    /// Bytes of those deliveries.
    pub(crate) bytes: u64,
    running: Tally,
    /// Deliveries that wait and are not busy, with their bytes.
    due: BTreeMap<(Timestamp, CallId), u64>,
}

impl Server {
    /// When it is to be told something, and the bytes of that; `None` if nothing waits, or what is under way must end first.
    fn next(&self) -> Option<(Timestamp, u64)> {
        let ((due, _), bytes) = self.due.first_key_value()?;
        self.running
            .has_room(DELIVERIES_TO_ONE, *bytes)
            .then_some((*due, *bytes))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    calls: BTreeMap<CallId, Entry>,
    /// Those that wait and are not busy, but for deliveries.
    due: BTreeSet<(Timestamp, CallId)>,
    /// Servers of which something that is pending speaks.
    servers: BTreeMap<Arc<str>, Server>,
    /// Those that can be told something, by the time when that is due.
    ready: BTreeSet<(Timestamp, Arc<str>)>,
    /// Deliveries that run.
    delivering: Tally,
    anchors: BTreeSet<(Position, CallId)>,
    succeeded: BTreeSet<(Timestamp, CallId)>,
    dead: BTreeSet<(Timestamp, CallId)>,
    pub(crate) pending: Tally,
    pub(crate) results: Tally,
    pub(crate) dead_letters: Tally,
    /// The log ends here or later.
    end: Position,
}

impl Index {
    pub(crate) fn get(&self, id: CallId) -> Option<&Entry> {
        self.calls.get(&id)
    }

    /// Calls after this one, in the order of their ids.
    pub(crate) fn after(&self, id: Option<CallId>) -> impl Iterator<Item = (CallId, &Entry)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = id.map_or(Unbounded, Excluded);
        self.calls
            .range((from, Unbounded))
            .map(|(id, entry)| (*id, entry))
    }

    pub(crate) fn end(&self) -> Position {
        self.end
    }

    pub(crate) fn reached(&mut self, end: Position) {
        self.end = self.end.max(end);
    }

    /// Everything that is to be known lies here or later.
    pub(crate) fn lowest(&self) -> Position {
        self.anchors.first().map_or(self.end, |(position, _)| *position)
    }

    /// Calls in the order of their anchors.
    pub(crate) fn oldest(&self) -> impl Iterator<Item = (CallId, &Entry)> {
        self.anchors
            .iter()
            .filter_map(|(_, id)| Some((*id, self.calls.get(id)?)))
    }

    /// Bytes of all anchors.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.pending.bytes + self.results.bytes + self.dead_letters.bytes
    }

    pub(crate) fn due(&self, now: Timestamp) -> impl Iterator<Item = CallId> {
        self.due
            .iter()
            .take_while(move |(due, _)| *due <= now)
            .map(|(_, id)| *id)
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    pub(crate) fn server(&self, name: &str) -> Option<&Server> {
        self.servers.get(name)
    }

    /// Deliveries that are due and for which there is room.
    pub(crate) fn deliveries(&self, now: Timestamp) -> Vec<CallId> {
        let mut found = Vec::new();
        let mut all = self.delivering;
        for (_, name) in self.ready.iter().take_while(|(due, _)| *due <= now) {
            let Some(server) = self.servers.get(name) else {
                continue;
            };
            let mut running = server.running;
            for ((_, id), bytes) in server.due.iter().take_while(|((due, _), _)| *due <= now) {
                if !all.has_room(DELIVERIES, *bytes) {
                    return found;
                }
                if !running.has_room(DELIVERIES_TO_ONE, *bytes) {
                    break;
                }
                all.add(*bytes);
                running.add(*bytes);
                found.push(*id);
            }
        }
        found
    }

    /// When [`Index::deliveries`] will find something, if nothing ends before.
    pub(crate) fn next_delivery(&self) -> Option<Timestamp> {
        let (_, name) = self.ready.first()?;
        let (due, bytes) = self.servers.get(name)?.next()?;
        self.delivering.has_room(DELIVERIES, bytes).then_some(due)
    }

    /// The entry of a call that was accepted just now and is to be run at once.
    pub(crate) fn entry(&self, request: &RequestHead, accepted: Timestamp) -> Entry {
        // All that speak of one server share its name.
        let server = request.server().map(|name| {
            let known = self.servers.get_key_value(&name[..]);
            known.map_or_else(|| name.into(), |(known, _)| known.clone())
        });
        Entry {
            function: request.function.clone(),
            accepted,
            attempts: request.attempts,
            maximum_age: request.maximum_age(),
            progress: Progress::new(accepted, 0),
            anchor: Position::default(),
            bytes: 0,
            busy: false,
            calls_back: request.callback.is_some(),
            tells: request.tells,
            server,
        }
    }

    fn change_server(&mut self, name: &Arc<str>, change: impl FnOnce(&mut Server)) {
        let server = self.servers.entry(name.clone()).or_default();
        let before = server.next();
        change(server);
        let (after, idle) = (server.next(), server.pending == 0);
        if let Some((due, _)) = before {
            self.ready.remove(&(due, name.clone()));
        }
        if let Some((due, _)) = after {
            self.ready.insert((due, name.clone()));
        }
        if idle {
            self.servers.remove(name);
        }
    }

    pub(crate) fn insert(&mut self, id: CallId, entry: Entry) {
        self.remove(id);
        self.track(id, &entry);
        self.calls.insert(id, entry);
    }

    pub(crate) fn remove(&mut self, id: CallId) -> Option<Entry> {
        let entry = self.calls.remove(&id)?;
        self.untrack(id, &entry);
        Some(entry)
    }

    /// Changes an entry, if there is one.
    pub(crate) fn update(&mut self, id: CallId, change: impl FnOnce(&mut Entry)) {
        if let Some(mut entry) = self.remove(id) {
            change(&mut entry);
            self.insert(id, entry);
        }
    }

    fn tally(&mut self, state: State) -> &mut Tally {
        match state {
            State::Accepting | State::Waiting { .. } | State::Running => &mut self.pending,
            State::Succeeded { .. } => &mut self.results,
            State::Dead { .. } => &mut self.dead_letters,
        }
    }

    fn track(&mut self, id: CallId, entry: &Entry) {
        self.anchors.insert((entry.anchor, id));
        match entry.progress.state {
            State::Waiting { due } if !entry.busy && !entry.is_delivery() => self.due.insert((due, id)),
            State::Succeeded { at, .. } => self.succeeded.insert((at, id)),
            State::Dead { at, .. } => self.dead.insert((at, id)),
            State::Waiting { .. } | State::Accepting | State::Running => true,
        };
        self.tally(entry.progress.state).add(entry.bytes);
        let state = entry.progress.state;
        let Some(name) = entry.server.as_ref().filter(|_| state.is_pending()) else {
            return;
        };
        let delivery = entry.is_delivery();
        if delivery && state == State::Running {
            self.delivering.add(entry.bytes);
        }
        self.change_server(name, |server| {
            server.pending += 1;
            if delivery {
                server.bytes += entry.bytes;
                match state {
                    State::Running => server.running.add(entry.bytes),
                    State::Waiting { due } if !entry.busy => drop(server.due.insert((due, id), entry.bytes)),
                    _ => {}
                }
            }
        });
    }

    fn untrack(&mut self, id: CallId, entry: &Entry) {
        self.anchors.remove(&(entry.anchor, id));
        match entry.progress.state {
            State::Waiting { due } => self.due.remove(&(due, id)),
            State::Succeeded { at, .. } => self.succeeded.remove(&(at, id)),
            State::Dead { at, .. } => self.dead.remove(&(at, id)),
            State::Accepting | State::Running => true,
        };
        self.tally(entry.progress.state).remove(entry.bytes);
        let state = entry.progress.state;
        let Some(name) = entry.server.as_ref().filter(|_| state.is_pending()) else {
            return;
        };
        let delivery = entry.is_delivery();
        if delivery && state == State::Running {
            self.delivering.remove(entry.bytes);
        }
        self.change_server(name, |server| {
            server.pending -= 1;
            if delivery {
                server.bytes -= entry.bytes;
                match state {
                    State::Running => server.running.remove(entry.bytes),
                    State::Waiting { due } => drop(server.due.remove(&(due, id))),
                    _ => {}
                }
            }
        });
    }

    /// An event that is in the log, at this position and with so many bytes. Its call is not busy any more.
    pub(crate) fn apply(&mut self, position: Position, bytes: u64, event: &Event) {
        self.reached(Position(position.0 + 1));
        let id = event.id();
        match event {
            Event::Held {
                accepted,
                request,
                progress,
                ..
            } => {
                let held = self.entry(request, *accepted);
                self.insert(
                    id,
                    Entry {
                        progress: progress.clone(),
                        anchor: position,
                        bytes,
                        ..held
                    },
                );
            }
            Event::Succeeded {
                at,
                accepted,
                function,
                begun,
                status,
                callback,
                tells,
                ..
            } => {
                let mut progress = Progress::new(*accepted, *begun);
                progress.state = State::Succeeded {
                    at: *at,
                    status: *status,
                };
                self.insert(
                    id,
                    Entry {
                        function: function.clone(),
                        accepted: *accepted,
                        attempts: 0,
                        maximum_age: Duration::ZERO,
                        progress,
                        anchor: position,
                        bytes,
                        busy: false,
                        calls_back: callback.is_some(),
                        tells: *tells,
                        server: None,
                    },
                );
            }
            Event::Discarded { .. } => drop(self.remove(id)),
            Event::Begun { .. } => self.advance(id, |progress| {
                if progress.state == State::Running {
                    progress.interruptions += 1;
                }
                progress.begun += 1;
                progress.state = State::Running;
            }),
            Event::Failed { due, reason, .. } => self.advance(id, |progress| {
                progress.failures += 1;
                progress.interruptions = 0;
                progress.reason = Some(reason.clone());
                progress.state = State::Waiting { due: *due };
            }),
            Event::Postponed { due, reason, .. } => self.advance(id, |progress| {
                progress.interruptions = 0;
                progress.reason = Some(reason.clone());
                progress.state = State::Waiting { due: *due };
            }),
            Event::Died {
                at,
                cause,
                failures,
                reason,
                ..
            } => self.advance(id, |progress| {
                progress.failures = *failures;
                progress.reason = reason.clone();
                progress.state = State::Dead {
                    at: *at,
                    cause: *cause,
                };
            }),
        }
    }

    /// A result is final: what follows it in the log comes from a result of which it was not known that it was stored.
    fn advance(&mut self, id: CallId, change: impl FnOnce(&mut Progress)) {
        self.update(id, |entry| {
            entry.busy = false;
            if !matches!(entry.progress.state, State::Succeeded { .. }) {
                change(&mut entry.progress);
            }
        });
    }

    /// After a replay: what was running was interrupted, and nothing waits longer than the longest delay, even if the
    /// clock was set back.
    pub(crate) fn recover(&mut self, now: Timestamp, longest: Duration) {
        let pending: Vec<_> = self
            .after(None)
            .filter(|(_, entry)| entry.progress.state.is_pending())
            .map(|(id, _)| id)
            .collect();
        for id in pending {
            self.update(id, |entry| match &mut entry.progress.state {
                State::Waiting { due } => *due = (*due).min(now.after(longest)),
                state => {
                    *state = State::Waiting { due: now };
                    entry.progress.interruptions += 1;
                }
            });
        }
    }

    /// Forgets results and dead letters that are too old or too many, the oldest first; not those that are busy.
    pub(crate) fn expire(&mut self, now: Timestamp, results: &Keep, dead_letters: &Keep) {
        for dead in [false, true] {
            loop {
                let (order, tally, keep) = if dead {
                    (&self.dead, self.dead_letters, dead_letters)
                } else {
                    (&self.succeeded, self.results, results)
                };
                let Some((at, id)) = order.first().copied() else {
                    break;
                };
                let over = tally.calls > keep.calls || tally.bytes > keep.bytes;
                let busy = self.get(id).is_some_and(|entry| entry.busy);
                if busy || !(over || now.since(at) > keep.time) {
                    break;
                }
                self.remove(id);
            }
        }
    }
}

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    pub(crate) calls: usize,
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
}
