//! Looking: which calls there are, what was asked, and what came of it.

use super::Calls;
use crate::{
    Call, CallId, Error, Request, Response, State, Telling, callback,
    event::{self, Event},
    index::{Entry, Index},
};
use contract::FunctionRef;

/// Calls that are looked at in one go while somebody looks for some.
const PASSED: usize = 4096;

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
    pub(super) fn holds(self, state: State) -> bool {
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

impl Calls {
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
