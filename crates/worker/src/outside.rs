//! Requests that no core's front has read: they come from other threads (calls that were accepted earlier, other protocols) and
//! their answers go back there.

use crate::Answer;
use contract::CoreId;
use parking_lot::Mutex;
use slab::Slab;

/// What is done with an answer. Called on the core that has it: it must not block.
pub(crate) type Reply = Box<dyn FnOnce(CoreId, Answer) + Send>;

/// The home of these requests: no core.
pub(crate) const OUTSIDE: CoreId = CoreId(u16::MAX);

/// Who waits for which answer.
#[derive(Default)]
pub(crate) struct Outside(Mutex<Slab<Reply>>);

impl Outside {
    /// A token for a request whose answer goes there.
    pub(crate) fn expect(&self, reply: Reply) -> u64 {
        self.0.lock().insert(reply) as u64
    }

    pub(crate) fn answer(&self, core: CoreId, answer: Answer) {
        let slot = usize::try_from(answer.token).unwrap_or(usize::MAX);
        let reply = self.0.lock().try_remove(slot);
        if let Some(reply) = reply {
            reply(core, answer);
        }
    }

    /// Whether somebody waits.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.0.lock().is_empty()
    }
}
