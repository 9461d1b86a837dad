//! Accepting calls: a place is taken in the index, the request goes to the log, and the place is the call's, or free again.

use super::{Calls, HEAD_LIMIT, LOG, SHARE, Shared, headers_size};
use crate::{
    CallId, Request, State, SubmitError, Timestamp,
    event::{Event, RequestHead},
    index::Tally,
};
use contract::{Appended, LogError, Position};
use std::sync::Arc;

impl Calls {
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
}

impl Shared {
    pub(super) fn is_full(&self, pending: Tally, more: u64) -> Option<SubmitError> {
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
}

fn refused(error: LogError) -> SubmitError {
    match error {
        LogError::Busy => SubmitError::Busy,
        other => SubmitError::Log(other),
    }
}
