//! The shell: events go to the log, and then to the index.

use crate::{
    Attempt, Call, CallId, Callback, Cause, Error, Finished, Outcome, Request, Response, State, SubmitError,
    Telling, Timestamp, Verdict,
    callback::{self, End, Ended, Patience},
    event::{self, Event, Progress, RequestHead},
    index::{Entry, Index, Keep, Tally},
    retry::{self, Terms},
};
use bytes::Bytes;
use contract::{Appended, FunctionRef, Log, LogError, Position};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};

/// The name of the log.
const LOG: &str = "calls";
/// Bytes of a request or response beside its body. As JSON text they can become six times as many.
const HEAD_LIMIT: usize = 256 << 10;
/// Bytes of a failure's reason that are kept.
const REASON_LIMIT: usize = 256;
/// Bytes of events in one append, give or take one.
const APPEND_BYTES: usize = 8 << 20;
/// Calls that are looked at in one go while somebody looks for some.
const PASSED: usize = 4096;
/// Records that are read at a time in a replay, or carried forward.
const STRIDE: usize = 64;
/// Appends of carried records in one call of [`Calls::maintain`].
const CARRIES: usize = 16;
/// One server may be what this part of all pending calls, or of their bytes, waits for.
const SHARE: usize = 2;

/// How much is taken, how often it is tried, and how long it is kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// Calls that may be pending (accepted and without an outcome).
    pub pending: usize,
    /// Bytes of pending calls' requests in the log.
    pub pending_bytes: u64,
    /// Bytes of one request's body; at most 6 MiB, so that it is one record.
    pub body: usize,
    /// Bytes of one response's body that are kept; at most 6 MiB. A larger one is omitted.
    pub response_body: usize,
    /// Results that are kept; the oldest give way.
    pub results: usize,
    /// Bytes of results that are kept; the oldest give way.
    pub result_bytes: u64,
    /// How long a result is kept.
    pub retention: Duration,
    /// Dead letters that are kept; the oldest give way.
    pub dead_letters: usize,
    /// Bytes of dead letters that are kept; the oldest give way.
    pub dead_letter_bytes: u64,
    /// How long a dead letter is kept.
    pub dead_letter_retention: Duration,
    /// The delay after a call's first failure, doubled after each further one.
    pub first_delay: Duration,
    /// No delay is longer.
    pub longest_delay: Duration,
    /// How often the delivery of an outcome may fail before it is a dead letter.
    pub callback_attempts: u32,
    /// Attempts one after the other that the node's end may interrupt, before the call is taken for its cause.
    pub interruptions: u32,
    /// Bytes of garbage in the log that are not worth carrying what is among them.
    pub garbage: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pending: 100_000,
            pending_bytes: 1 << 30,
            body: 6 << 20,
            response_body: 6 << 20,
            results: 100_000,
            result_bytes: 1 << 30,
            retention: Duration::from_hours(1),
            dead_letters: 10_000,
            dead_letter_bytes: 256 << 20,
            dead_letter_retention: Duration::from_hours(14 * 24),
            first_delay: Duration::from_secs(1),
            longest_delay: Duration::from_mins(5),
            callback_attempts: 16,
            interruptions: 5,
            garbage: 16 << 20,
        }
    }
}

/// Which calls a list is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All of them.
    All,
    /// Those without an outcome.
    Pending,
    /// Those with a result.
    Succeeded,
    /// Dead letters.
    Dead,
}

impl Kind {
    fn holds(self, state: State) -> bool {
        match self {
            Self::All => true,
            Self::Pending => state.is_pending(),
            Self::Succeeded => matches!(state, State::Succeeded { .. }),
            Self::Dead => matches!(state, State::Dead { .. }),
        }
    }
}

/// How many calls there are, and the bytes of what is kept of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Calls without an outcome.
    pub pending: usize,
    /// Bytes of their requests.
    pub pending_bytes: u64,
    /// Results.
    pub results: usize,
    /// Their bytes.
    pub result_bytes: u64,
    /// Dead letters.
    pub dead_letters: usize,
    /// Bytes of their requests.
    pub dead_letter_bytes: u64,
}

/// All asynchronous calls of a node. Clones are the same calls. Every method but [`Calls::submit_then`] and those that
/// only look at the index may block on the disk.
#[derive(Clone)]
pub struct Calls(Arc<Shared>);

struct Shared {
    log: Arc<dyn Log>,
    options: Options,
    bell: Box<dyn Fn() + Send + Sync>,
    /// Held for lookups and updates only, never across a wait.
    index: Mutex<Index>,
}

impl Calls {
    /// Reads what is in the log. What was running when the last owner ended is due again.
    ///
    /// `bell` is rung, on any thread, when a call has become due because of somebody other than the driver: by a
    /// submission or a retry by hand. It must be quick.
    pub fn open(
        log: Arc<dyn Log>,
        options: Options,
        now: Timestamp,
        bell: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let mut index = Index::default();
        index.reached(log.extent(LOG)?.first);
        loop {
            let records = log.read(LOG, index.end(), STRIDE)?;
            if records.is_empty() {
                break;
            }
            for record in records {
                let bytes = record.data.len() as u64;
                let (event, _) = decode(record.position, record.data)?;
                index.apply(record.position, bytes, &event);
            }
        }
        index.recover(now, options.longest_delay);
        Ok(Self(Arc::new(Shared {
            log,
            options,
            bell: Box::new(bell),
            index: Mutex::new(index),
        })))
    }

    /// Accepts a call; when this has returned, it is durable. The id must be new.
    pub fn submit(&self, id: CallId, request: &Request, now: Timestamp) -> Result<CallId, SubmitError> {
        let (event, record) = self.0.admit(id, request, now)?;
        let size = record.len() as u64;
        let appended = self.0.log.append(LOG, vec![record]);
        self.0.settle(&event, size, appended)
    }

    /// Accepts a call without waiting: after `Ok`, `done` is told once it is durable or has failed, on a thread of the
    /// log's own; after `Err`, it was not accepted and `done` is dropped.
    pub fn submit_then(
        &self,
        id: CallId,
        request: &Request,
        now: Timestamp,
        done: impl FnOnce(Result<CallId, SubmitError>) + Send + 'static,
    ) -> Result<(), SubmitError> {
        let (event, record) = self.0.admit(id, request, now)?;
        let size = record.len() as u64;
        let shared = Arc::clone(&self.0);
        let appended = move |appended: Appended| done(shared.settle(&event, size, appended));
        self.0
            .log
            .append_then(LOG, vec![record], Box::new(appended))
            .map_err(|error| {
                self.0.index.lock().remove(id);
                refused(error)
            })
    }

    /// Accepts all of these calls or none, with one append; when this has returned, they are durable. Those whose id is
    /// known are left out: whoever derives ids from a cause may submit what it leads to again.
    pub fn submit_all(&self, calls: &[(CallId, Request)], now: Timestamp) -> Result<(), SubmitError> {
        let (events, records) = self.0.admit_all(calls, now)?;
        if records.is_empty() {
            return Ok(());
        }
        let appended = self.0.log.append(LOG, records);
        self.0.settle_all(&events, appended)
    }

    /// As [`Calls::submit_all`], without waiting: as [`Calls::submit_then`].
    pub fn submit_all_then(
        &self,
        calls: &[(CallId, Request)],
        now: Timestamp,
        done: impl FnOnce(Result<(), SubmitError>) + Send + 'static,
    ) -> Result<(), SubmitError> {
        let (events, records) = self.0.admit_all(calls, now)?;
        if records.is_empty() {
            done(Ok(()));
            return Ok(());
        }
        let admitted: Vec<_> = events.iter().map(|(event, _)| event.id()).collect();
        let shared = Arc::clone(&self.0);
        let appended = move |appended: Appended| done(shared.settle_all(&events, appended));
        self.0
            .log
            .append_then(LOG, records, Box::new(appended))
            .map_err(|error| {
                self.0.withdraw(&admitted);
                refused(error)
            })
    }

    /// Calls of functions that are to be run now, `most` of them, those that waited longest first.
    pub fn due(&self, now: Timestamp, most: usize) -> Vec<CallId> {
        self.0.index.lock().due(now).take(most).collect()
    }

    /// When the next call of a function that waits will be due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.0.index.lock().next_due()
    }

    /// Deliveries that are to be made now: as many as may be under way, to each server and in all, beside those that are.
    pub fn deliveries(&self, now: Timestamp) -> Vec<CallId> {
        self.0.index.lock().deliveries(now)
    }

    /// When the next delivery will be due for which there is room now.
    pub fn next_delivery(&self) -> Option<Timestamp> {
        self.0.index.lock().next_delivery()
    }

    /// Begins attempts at these calls, as far as they are due; what has become too old or was interrupted too often
    /// becomes a dead letter instead. All share one append. After an error no attempt was begun.
    pub fn begin(&self, ids: &[CallId], now: Timestamp) -> Result<Vec<Attempt>, Error> {
        let mut events = Vec::new();
        let mut begun = Vec::new();
        let mut hopeless = Vec::new();
        {
            let mut index = self.0.index.lock();
            for id in ids {
                let Some(entry) = index.get(*id) else { continue };
                let is_due = matches!(entry.progress.state, State::Waiting { due } if due <= now);
                if !is_due || entry.busy {
                    continue;
                }
                if let Some(cause) = self.0.hopeless(entry, now) {
                    hopeless.push((*id, cause, entry.clone()));
                } else {
                    begun.push((*id, entry.progress.begun + 1));
                    events.push((Event::Begun { id: *id }, Bytes::new()));
                }
                index.update(*id, |entry| entry.busy = true);
            }
        }
        for (id, cause, entry) in &hopeless {
            let died = Event::Died {
                id: *id,
                at: now,
                cause: *cause,
                failures: entry.progress.failures,
                reason: entry.progress.reason.clone(),
            };
            match self.0.told(entry, None, died, Bytes::new(), now) {
                Ok(told) => events.extend(told),
                Err(error) => {
                    let hopeless = hopeless.iter().map(|(id, ..)| *id);
                    self.0.release(begun.iter().map(|(id, _)| *id).chain(hopeless));
                    return Err(error);
                }
            }
        }
        self.0.commit(events)?;
        let mut attempts = Vec::with_capacity(begun.len());
        for (id, number) in begun {
            match self.request(id) {
                Ok(request) => attempts.push(Attempt { id, number, request }),
                Err(error) => {
                    let outcome = Outcome::Failed {
                        reason: format!("its request cannot be read: {error}"),
                        retry: true,
                    };
                    let took = Duration::ZERO;
                    let finished = Finished {
                        id,
                        number,
                        outcome,
                        took,
                    };
                    self.finish(&[finished], now)?;
                }
            }
        }
        Ok(attempts)
    }

    /// Says what came of attempts; when this has returned, it is durable. After an error, hand in the same again: what
    /// was stored already is [`Verdict::Stale`] then.
    pub fn finish(&self, finished: &[Finished], now: Timestamp) -> Result<Vec<Verdict>, Error> {
        let mut verdicts = Vec::with_capacity(finished.len());
        let mut rest = finished;
        while !rest.is_empty() {
            let mut bytes = 0;
            let count = rest
                .iter()
                .take_while(|one| {
                    let fits = bytes < APPEND_BYTES;
                    bytes += match &one.outcome {
                        Outcome::Succeeded(response) => response.body.len(),
                        Outcome::Failed { .. } | Outcome::Refused { .. } => 0,
                    };
                    fits
                })
                .count();
            let (now_stored, later) = rest.split_at(count);
            rest = later;
            let mut taken = Vec::new();
            {
                let mut index = self.0.index.lock();
                for one in now_stored {
                    verdicts.push(Verdict::Stale);
                    let waits = index.get(one.id).filter(|entry| {
                        entry.progress.state == State::Running
                            && entry.progress.begun == one.number
                            && !entry.busy
                    });
                    if let Some(entry) = waits {
                        taken.push((verdicts.len() - 1, one, entry.clone()));
                        index.update(one.id, |entry| entry.busy = true);
                    }
                }
            }
            let mut events = Vec::new();
            for (place, one, entry) in &taken {
                match self.0.conclude(entry, one, now) {
                    Ok((verdict, concluded)) => {
                        verdicts[*place] = verdict;
                        events.extend(concluded);
                    }
                    Err(error) => {
                        self.0.release(taken.iter().map(|(_, one, _)| one.id));
                        return Err(error);
                    }
                }
            }
            self.0.commit(events)?;
        }
        Ok(verdicts)
    }

    /// What is known of a call, without reading the log.
    pub fn get(&self, id: CallId) -> Option<Call> {
        let index = self.0.index.lock();
        index.get(id).map(|entry| call(&index, id, entry))
    }

    /// Whom the outcome of a call is told; of a callback, whom it tells.
    pub fn told_to(&self, id: CallId) -> Result<Option<String>, Error> {
        match self.0.read(id)?.0 {
            Event::Held { request, .. } if request.tells.is_some() => Ok(Some(request.target)),
            Event::Held { request, .. } => Ok(request.callback.map(String::from)),
            // Only the other knows, as long as it is kept.
            Event::Succeeded {
                tells: Some(other), ..
            } => match self.told_to(other) {
                Err(Error::Unknown(_)) => Ok(None),
                found => found,
            },
            Event::Succeeded { callback, .. } => Ok(callback.map(String::from)),
            _ => Ok(None),
        }
    }

    /// Calls of a kind, in the order of their ids: `most` of them, after this one.
    pub fn list(&self, kind: Kind, after: Option<CallId>, most: usize) -> Vec<Call> {
        self.list_where(kind, after, most, |_| true)
    }

    /// The same of the functions that are asked for. Nobody waits for long while others' calls are passed over.
    pub fn list_where(
        &self,
        kind: Kind,
        mut after: Option<CallId>,
        most: usize,
        wanted: impl Fn(&FunctionRef) -> bool,
    ) -> Vec<Call> {
        let mut found = Vec::new();
        if most == 0 {
            return found;
        }
        loop {
            let index = self.0.index.lock();
            let mut seen = 0;
            for (id, entry) in index.after(after).take(PASSED) {
                (seen, after) = (seen + 1, Some(id));
                if kind.holds(entry.progress.state) && wanted(&entry.function) {
                    found.push(call(&index, id, entry));
                    if found.len() == most {
                        return found;
                    }
                }
            }
            if seen < PASSED {
                return found;
            }
        }
    }

    /// Dead letters, as [`Calls::list`] gives them.
    pub fn dead_letters(&self, after: Option<CallId>, most: usize) -> Vec<Call> {
        self.list(Kind::Dead, after, most)
    }

    /// How much there is.
    pub fn counts(&self) -> Counts {
        let index = self.0.index.lock();
        Counts {
            pending: index.pending.calls,
            pending_bytes: index.pending.bytes,
            results: index.results.calls,
            result_bytes: index.results.bytes,
            dead_letters: index.dead_letters.calls,
            dead_letter_bytes: index.dead_letters.bytes,
        }
    }

    /// The request of a call that has no result.
    pub fn request(&self, id: CallId) -> Result<Request, Error> {
        match self.0.read(id)? {
            (Event::Held { request, .. }, body) => Ok(request.unpack(body)),
            _ => Err(Error::Unknown(id)),
        }
    }

    /// The result of a call; `None` if it has none yet, or is a dead letter.
    pub fn result(&self, id: CallId) -> Result<Option<Response>, Error> {
        let call = self.get(id).ok_or(Error::Unknown(id))?;
        if !Kind::Succeeded.holds(call.state) {
            return Ok(None);
        }
        let (event, body) = self.0.read(id)?;
        Ok(event::response(event, body))
    }

    /// Makes a dead letter a call that is due now, as if it had just been accepted.
    pub fn retry(&self, id: CallId, now: Timestamp) -> Result<(), Error> {
        let anchor = {
            let mut index = self.0.index.lock();
            let tally = index.pending;
            let entry = dead_letter(&index, id)?;
            let full = self.0.is_full(tally, entry.bytes).is_some();
            if full {
                return Err(Error::Full(id));
            }
            let anchor = entry.anchor;
            index.update(id, |entry| entry.busy = true);
            anchor
        };
        self.0.carry(vec![(id, anchor)], |progress| {
            *progress = Progress::new(now, progress.begun);
        })?;
        (self.0.bell)();
        Ok(())
    }

    /// Forgets a dead letter.
    pub fn discard(&self, id: CallId) -> Result<(), Error> {
        {
            let mut index = self.0.index.lock();
            dead_letter(&index, id)?;
            index.update(id, |entry| entry.busy = true);
        }
        self.0.commit(vec![(Event::Discarded { id }, Bytes::new())])
    }

    /// Forgets what is kept no longer, and shortens the log. To be called every second or so.
    pub fn maintain(&self, now: Timestamp) -> Result<(), Error> {
        let shared = &self.0;
        let options = &shared.options;
        let results = Keep {
            calls: options.results,
            bytes: options.result_bytes,
            time: options.retention,
        };
        let dead_letters = Keep {
            calls: options.dead_letters,
            bytes: options.dead_letter_bytes,
            time: options.dead_letter_retention,
        };
        shared.index.lock().expire(now, &results, &dead_letters);
        for _ in 0..CARRIES {
            shared.trim()?;
            let held = shared.log.extent(LOG)?.bytes;
            let oldest = {
                let mut index = shared.index.lock();
                if held
                    <= index
                        .live_bytes()
                        .saturating_mul(2)
                        .saturating_add(options.garbage)
                {
                    break;
                }
                let mut bytes = 0;
                let oldest: Vec<_> = index
                    .oldest()
                    .take_while(|(_, entry)| {
                        let fits = bytes < APPEND_BYTES as u64;
                        bytes += entry.bytes;
                        let moves = !matches!(entry.progress.state, State::Accepting | State::Running);
                        fits && moves && !entry.busy
                    })
                    .take(STRIDE)
                    .map(|(id, entry)| (id, entry.anchor))
                    .collect();
                for (id, _) in &oldest {
                    index.update(*id, |entry| entry.busy = true);
                }
                oldest
            };
            if oldest.is_empty() {
                break;
            }
            shared.carry(oldest, |_| {})?;
        }
        shared.trim()
    }
}

fn dead_letter(index: &Index, id: CallId) -> Result<&Entry, Error> {
    let entry = index.get(id).ok_or(Error::Unknown(id))?;
    if !Kind::Dead.holds(entry.progress.state) {
        return Err(Error::NotDead(id));
    }
    if entry.busy {
        return Err(Error::Changing(id));
    }
    Ok(entry)
}

fn call(index: &Index, id: CallId, entry: &Entry) -> Call {
    let callback = entry.calls_back.then(|| {
        let ended = !entry.progress.state.is_pending();
        let teller = ended.then(|| callback::id(id, entry.progress.begun));
        let state = teller.and_then(|id| Some(index.get(id)?.progress.state));
        Telling { id: teller, state }
    });
    Call {
        id,
        function: entry.function.clone(),
        accepted: entry.accepted,
        begun: entry.progress.begun,
        state: entry.progress.state,
        reason: entry.progress.reason.as_deref().map(str::to_owned),
        callback,
        tells: entry.tells,
    }
}

fn refused(error: LogError) -> SubmitError {
    match error {
        LogError::Busy => SubmitError::Busy,
        other => SubmitError::Log(other),
    }
}

fn unreadable(position: Position, reason: String) -> Error {
    Error::Unreadable {
        log: LOG,
        position,
        reason,
    }
}

fn decode(position: Position, data: Vec<u8>) -> Result<(Event, Bytes), Error> {
    Event::decode(data).map_err(|reason| unreadable(position, reason))
}

fn died(id: CallId, at: Timestamp, cause: Cause, failures: u32, reason: Box<str>) -> (Verdict, Event, Bytes) {
    let reason = Some(reason);
    let event = Event::Died {
        id,
        at,
        cause,
        failures,
        reason,
    };
    (Verdict::Dead(cause), event, Bytes::new())
}

fn headers_size(headers: &[(String, Vec<u8>)]) -> usize {
    headers.iter().map(|(name, value)| name.len() + value.len()).sum()
}

fn shortened(reason: &str) -> Box<str> {
    reason[..reason.floor_char_boundary(REASON_LIMIT)].into()
}

impl Shared {
    fn is_full(&self, pending: Tally, more: u64) -> Option<SubmitError> {
        if pending.calls >= self.options.pending {
            return Some(SubmitError::Full {
                what: "calls",
                limit: self.options.pending as u64,
            });
        }
        (pending.bytes.saturating_add(more) > self.options.pending_bytes).then_some(SubmitError::Full {
            what: "bytes of calls",
            limit: self.options.pending_bytes,
        })
    }

    /// Takes a place for a call; it is given back by [`Shared::settle`].
    fn admit(&self, id: CallId, request: &Request, now: Timestamp) -> Result<(Event, Vec<u8>), SubmitError> {
        let head = request.method.len()
            + request.target.len()
            + request.callback.as_ref().map_or(0, |to| to.to_string().len())
            + headers_size(&request.headers);
        for (part, size, limit) in [
            ("body", request.body.len(), self.options.body),
            ("head", head, HEAD_LIMIT),
        ] {
            if size > limit {
                return Err(SubmitError::TooLarge { part, size, limit });
            }
        }
        let head = RequestHead::pack(request);
        let mut entry = self.index.lock().entry(&head, now);
        let event = Event::Held {
            id,
            accepted: now,
            request: head,
            progress: entry.progress.clone(),
        };
        let record = event
            .encode(&request.body)
            .map_err(|error| SubmitError::Log(LogError::storage("write a call", error)))?;
        entry.progress.state = State::Accepting;
        entry.bytes = record.len() as u64;
        entry.busy = true;

        let mut index = self.index.lock();
        if index.get(id).is_some() {
            return Err(SubmitError::Duplicate(id));
        }
        if let Some(full) = self.is_full(index.pending, entry.bytes) {
            return Err(full);
        }
        if let Some(server) = &entry.server {
            let limit = (self.options.pending / SHARE).max(1);
            if index.server(server).is_some_and(|server| server.pending >= limit) {
                let server = server.to_string();
                return Err(SubmitError::Untold { server, limit });
            }
        }
        // Wherever its record will be, it is not before what is known to be the end now.
        entry.anchor = index.end();
        index.insert(id, entry);
        Ok((event, record))
    }

    fn settle(&self, event: &Event, size: u64, appended: Appended) -> Result<CallId, SubmitError> {
        let id = event.id();
        let mut index = self.index.lock();
        match appended {
            Ok(position) => index.apply(position, size, event),
            Err(error) => {
                index.remove(id);
                return Err(refused(error));
            }
        }
        drop(index);
        (self.bell)();
        Ok(id)
    }

    /// Takes places for those of the calls that are not known, or for none; they are given back by
    /// [`Shared::settle_all`].
    #[expect(
        clippy::type_complexity,
        reason = "events with their sizes, and their records"
    )]
    fn admit_all(
        &self,
        calls: &[(CallId, Request)],
        now: Timestamp,
    ) -> Result<(Vec<(Event, u64)>, Vec<Vec<u8>>), SubmitError> {
        let (mut events, mut records) = (Vec::new(), Vec::new());
        for (id, request) in calls {
            match self.admit(*id, request, now) {
                Ok((event, record)) => {
                    events.push((event, record.len() as u64));
                    records.push(record);
                }
                Err(SubmitError::Duplicate(_)) => {}
                Err(error) => {
                    let admitted: Vec<_> = events.iter().map(|(event, _)| event.id()).collect();
                    self.withdraw(&admitted);
                    return Err(error);
                }
            }
        }
        Ok((events, records))
    }

    fn withdraw(&self, ids: &[CallId]) {
        let mut index = self.index.lock();
        for id in ids {
            index.remove(*id);
        }
    }

    fn settle_all(&self, events: &[(Event, u64)], appended: Appended) -> Result<(), SubmitError> {
        match appended {
            Ok(position) => {
                let mut index = self.index.lock();
                for (at, (event, size)) in (position.0..).zip(events) {
                    index.apply(Position(at), *size, event);
                }
            }
            Err(error) => {
                let ids: Vec<_> = events.iter().map(|(event, _)| event.id()).collect();
                self.withdraw(&ids);
                return Err(refused(error));
            }
        }
        (self.bell)();
        Ok(())
    }

    /// Why a call that is due is not to be run any more.
    fn hopeless(&self, entry: &Entry, now: Timestamp) -> Option<Cause> {
        if retry::is_too_old(now, entry.progress.since, entry.maximum_age) {
            Some(Cause::Age)
        } else if entry.progress.interruptions > self.options.interruptions && !entry.is_delivery() {
            // What is delivered is no code: it was not that which took the node down.
            Some(Cause::Interrupted)
        } else {
            None
        }
    }

    /// What an attempt's end means for its call, and what is to be stored of that.
    fn conclude(
        &self,
        entry: &Entry,
        one: &Finished,
        now: Timestamp,
    ) -> Result<(Verdict, Vec<(Event, Bytes)>), Error> {
        let (mut verdict, mut event, mut body) = self.judge(entry, one, now);
        if verdict == Verdict::Succeeded && entry.calls_back && entry.server.is_none() {
            // A function is not told half of it: where there is no room for the answer, it is asked for again.
            let full = self.is_full(
                Tally {
                    calls: 0,
                    ..self.index.lock().pending
                },
                body.len() as u64,
            );
            if let Some(full) = full {
                let refused = Finished {
                    outcome: Outcome::Refused {
                        reason: format!("its callback was not accepted: {full}"),
                    },
                    ..one.clone()
                };
                (verdict, event, body) = self.judge(entry, &refused, now);
            }
        }
        Ok((verdict, self.told(entry, Some(one.took), event, body, now)?))
    }

    /// An event, and before it that of the call that tells of it, if it is an end of which somebody is to hear.
    fn told(
        &self,
        entry: &Entry,
        took: Option<Duration>,
        mut event: Event,
        body: Bytes,
        now: Timestamp,
    ) -> Result<Vec<(Event, Bytes)>, Error> {
        let is_end = matches!(event, Event::Succeeded { .. } | Event::Died { .. });
        let callback = match entry.calls_back && is_end {
            true => self.callback(event.id())?,
            false => None,
        };
        let Some(callback) = callback else {
            return Ok(vec![(event, body)]);
        };
        let response;
        let end = match &event {
            Event::Died { cause, reason, .. } => End::Dead(*cause, reason.as_deref()),
            _ => {
                response = event::response(event.clone(), body.clone()).unwrap_or_default();
                End::Succeeded(&response)
            }
        };
        let begun = entry.progress.begun;
        let ended = Ended {
            id: event.id(),
            function: &entry.function,
            begun,
            took,
            end,
        };
        let patience = Patience {
            attempts: match callback {
                Callback::Function { .. } => entry.attempts,
                Callback::Url(_) => self.options.callback_attempts,
            },
            maximum_age: entry.maximum_age,
        };
        let mut request = callback::request(&callback, &ended, &patience);
        if let Some(server) = &entry.server {
            let index = self.index.lock();
            let bytes = request.body.len() as u64;
            let held = index.server(server).map_or(0, |server| server.bytes);
            let pending = Tally {
                calls: 0,
                ..index.pending
            };
            if held + bytes > self.options.pending_bytes / SHARE as u64
                || self.is_full(pending, bytes).is_some()
            {
                callback::omit(&mut request);
            }
        }
        let tells = Event::Held {
            id: callback::id(event.id(), begun),
            accepted: now,
            request: RequestHead::pack(&request),
            progress: Progress::new(now, 0),
        };
        if let Event::Succeeded { callback: told, .. } = &mut event {
            *told = Some(callback);
        }
        Ok(vec![(tells, request.body), (event, body)])
    }

    /// Whom the outcome of a call is told that is busy and has none yet. What cannot be read tells nobody: its attempts end so,
    /// too.
    fn callback(&self, id: CallId) -> Result<Option<Callback>, Error> {
        match self.read(id) {
            Ok((Event::Held { request, .. }, _)) => Ok(request.callback),
            Err(Error::Log(error)) => Err(error.into()),
            _ => Ok(None),
        }
    }

    /// These calls are not busy any more, though nothing became of them.
    fn release(&self, ids: impl Iterator<Item = CallId>) {
        let mut index = self.index.lock();
        for id in ids {
            index.update(id, |entry| entry.busy = false);
        }
    }

    /// What an attempt's end means for its call, and the event that says so.
    fn judge(&self, entry: &Entry, one: &Finished, now: Timestamp) -> (Verdict, Event, Bytes) {
        let id = one.id;
        match &one.outcome {
            Outcome::Succeeded(response) => {
                let head = headers_size(&response.headers);
                let too_large = response.body.len() > self.options.response_body || head > HEAD_LIMIT;
                let kept = if too_large {
                    Response {
                        status: response.status,
                        omitted: Some((response.body.len() + head) as u64),
                        ..Response::default()
                    }
                } else {
                    response.clone()
                };
                let event = Event::succeeded(id, now, entry, &kept);
                (Verdict::Succeeded, event, kept.body)
            }
            Outcome::Failed { reason, retry } => {
                let failures = entry.progress.failures + 1;
                let next = retry::after_failure(
                    self.terms(entry),
                    failures,
                    *retry,
                    entry.progress.since,
                    now,
                    retry::jitter(id, one.number),
                );
                let reason = shortened(reason);
                match next {
                    Ok(due) => (
                        Verdict::RetryAt(due),
                        Event::Failed { id, due, reason },
                        Bytes::new(),
                    ),
                    Err(cause) => died(id, now, cause, failures, reason),
                }
            }
            Outcome::Refused { reason } => {
                let progress = &entry.progress;
                // What was begun and did not fail was refused, or nearly: only the delay rests on it.
                let refusals = progress.begun.saturating_sub(progress.failures);
                let terms = Terms {
                    attempts: u32::MAX,
                    ..self.terms(entry)
                };
                let jitter = retry::jitter(id, one.number);
                let reason = shortened(reason);
                match retry::after_failure(terms, refusals, true, progress.since, now, jitter) {
                    Ok(due) => (
                        Verdict::RetryAt(due),
                        Event::Postponed { id, due, reason },
                        Bytes::new(),
                    ),
                    Err(cause) => died(id, now, cause, progress.failures, reason),
                }
            }
        }
    }

    fn terms(&self, entry: &Entry) -> Terms {
        Terms {
            first: self.options.first_delay,
            longest: self.options.longest_delay,
            attempts: entry.attempts,
            maximum_age: entry.maximum_age,
        }
    }

    /// Stores events of calls that are busy, and applies them. None of the calls is busy afterwards.
    fn commit(&self, events: Vec<(Event, Bytes)>) -> Result<(), Error> {
        if events.is_empty() {
            return Ok(());
        }
        let records: Result<Vec<_>, _> = events.iter().map(|(event, body)| event.encode(body)).collect();
        let sizes_and_position = records
            .map_err(|error| LogError::storage("write what became of calls", error))
            .and_then(|records| {
                let sizes: Vec<_> = records.iter().map(|record| record.len() as u64).collect();
                Ok((sizes, self.log.append(LOG, records)?))
            });
        let mut index = self.index.lock();
        match sizes_and_position {
            Ok((sizes, position)) => {
                for (at, ((event, _), size)) in (position.0..).zip(events.iter().zip(sizes)) {
                    index.apply(Position(at), size, event);
                }
                Ok(())
            }
            Err(error) => {
                for (event, _) in &events {
                    index.update(event.id(), |entry| entry.busy = false);
                }
                Err(error.into())
            }
        }
    }

    /// Copies the records of calls that are busy to the log's end, requests with the progress that they have now.
    fn carry(&self, calls: Vec<(CallId, Position)>, change: impl Fn(&mut Progress)) -> Result<(), Error> {
        let mut events = Vec::with_capacity(calls.len());
        let mut failed = None;
        let mut progress: HashMap<CallId, Progress> = {
            let index = self.index.lock();
            let of = |id| Some((id, index.get(id)?.progress.clone()));
            calls.iter().filter_map(|(id, _)| of(*id)).collect()
        };
        for (id, anchor) in &calls {
            match self.read_at(*id, *anchor) {
                Ok((mut event, body)) => {
                    if let (Event::Held { progress: held, .. }, Some(mut now)) =
                        (&mut event, progress.remove(id))
                    {
                        change(&mut now);
                        *held = now;
                    }
                    events.push((event, body));
                }
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            self.release(calls.iter().map(|(id, _)| *id));
            return Err(error);
        }
        self.commit(events)
    }

    /// The record at a call's anchor.
    fn read(&self, id: CallId) -> Result<(Event, Bytes), Error> {
        loop {
            let anchor = || {
                let index = self.index.lock();
                index
                    .get(id)
                    .filter(|entry| entry.progress.state != State::Accepting)
                    .map(|entry| entry.anchor)
            };
            let before = anchor().ok_or(Error::Unknown(id))?;
            let found = self.read_at(id, before);
            // Meanwhile it may have been carried, or have got its result, and the log trimmed.
            if found.is_ok() || anchor() == Some(before) {
                return found;
            }
        }
    }

    fn read_at(&self, id: CallId, anchor: Position) -> Result<(Event, Bytes), Error> {
        let missing = || unreadable(anchor, format!("it does not hold the call {id}"));
        let record = self.log.read(LOG, anchor, 1)?.pop();
        let record = record
            .filter(|record| record.position == anchor)
            .ok_or_else(missing)?;
        let (event, body) = decode(anchor, record.data)?;
        if event.id() == id {
            Ok((event, body))
        } else {
            Err(missing())
        }
    }

    fn trim(&self) -> Result<(), Error> {
        let lowest = self.index.lock().lowest();
        if self.log.extent(LOG)?.first < lowest {
            self.log.trim(LOG, lowest)?;
        }
        Ok(())
    }
}
