//! Upkeep: dead letters that somebody looks after, what is kept no longer, and a log that does not grow for ever.

use super::{APPEND_BYTES, Calls, LOG, STRIDE, Shared};
use crate::{
    CallId, Error, Kind, State, Timestamp,
    event::{Event, Progress},
    index::{Entry, Index, Keep},
};
use bytes::Bytes;
use contract::Position;
use std::collections::HashMap;

/// Appends of carried records in one call of [`Calls::maintain`].
const CARRIES: usize = 16;

impl Calls {
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

impl Shared {
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

    fn trim(&self) -> Result<(), Error> {
        let lowest = self.index.lock().lowest();
        if self.log.extent(LOG)?.first < lowest {
            self.log.trim(LOG, lowest)?;
        }
        Ok(())
    }
}
