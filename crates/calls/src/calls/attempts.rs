//! Attempts: what is due, begun, and what its end means for the call, and for whoever is told of it.

use super::{APPEND_BYTES, Calls, HEAD_LIMIT, SHARE, Shared, headers_size};
use crate::{
    Attempt, CallId, Callback, Cause, Error, Finished, Outcome, Response, State, Timestamp, Verdict,
    callback::{self, End, Ended, Patience},
    event::{self, Event, Progress, RequestHead},
    index::{Entry, Tally},
    retry::{self, Terms},
};
use bytes::Bytes;
use std::time::Duration;

/// Bytes of a failure's reason that are kept.
const REASON_LIMIT: usize = 256;

impl Calls {
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
}

impl Shared {
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

fn shortened(reason: &str) -> Box<str> {
    reason[..reason.floor_char_boundary(REASON_LIMIT)].into()
}
