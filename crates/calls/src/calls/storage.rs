//! The way to the log and back: events are stored and then applied to the index; records are found by their anchors.

use super::{LOG, Shared};
use crate::{CallId, Error, State, event::Event};
use bytes::Bytes;
use contract::{LogError, Position};

impl Shared {
    /// Stores events of calls that are busy, and applies them. None of the calls is busy afterwards.
    pub(super) fn commit(&self, events: Vec<(Event, Bytes)>) -> Result<(), Error> {
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

    /// These calls are not busy any more, though nothing became of them.
    pub(super) fn release(&self, ids: impl Iterator<Item = CallId>) {
        let mut index = self.index.lock();
        for id in ids {
            index.update(id, |entry| entry.busy = false);
        }
    }

    /// The record at a call's anchor.
    pub(super) fn read(&self, id: CallId) -> Result<(Event, Bytes), Error> {
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

    pub(super) fn read_at(&self, id: CallId, anchor: Position) -> Result<(Event, Bytes), Error> {
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
}

fn unreadable(position: Position, reason: String) -> Error {
    Error::Unreadable {
        log: LOG,
        position,
        reason,
    }
}

pub(super) fn decode(position: Position, data: Vec<u8>) -> Result<(Event, Bytes), Error> {
    Event::decode(data).map_err(|reason| unreadable(position, reason))
}
