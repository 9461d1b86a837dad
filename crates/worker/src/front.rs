//! What a core and its sockets ask of each other.

use crate::{Answer, Intake, Opening, Poller, Readiness};
use contract::Party;
use std::time::{Duration, Instant};

/// The sockets of a core, and what they speak.
///
/// All calls come from the core's own thread, between two guests. None may block.
pub trait Front {
    /// Reads what it needs for this descriptor: [`Front::ready`] follows when this was called for all that are ready. What many of them need is
    /// fetched from memory at once then, where it would be waited for one after another.
    fn prefetch(&self, token: u64);
    /// Whose requests come by this descriptor: the tenant of the last one that had a tenant.
    fn tenant(&self, token: u64) -> Option<Party>;
    /// A descriptor that this front gave the poller is ready. Requests that were read go to [`Intake::admit`] and
    /// [`Intake::put`]. It may be told late, or not any more once the descriptor is watched no longer.
    fn ready(&mut self, poller: &Poller, token: u64, readiness: Readiness, intake: &mut Intake<'_>);
    /// The response to a request with [`Invocation::streams`] has begun.
    fn open(&mut self, opening: Opening);
    /// A flow can go on whose waker came from [`Shared::stirrer`].
    fn stir(&mut self, token: u64);
    /// A submitted request has come to its end.
    fn answer(&mut self, answer: Answer);
    /// Whether something waits to be written.
    fn owes(&self) -> bool;
    /// Everything has been read and run that was ready, or what comes next takes long: write. Requests that were read meanwhile (pipelined ones, whose
    /// predecessors are answered now) go to `intake`, and after each answer it says to [`Intake::spent`] whose that was.
    fn flush(&mut self, poller: &Poller, intake: &mut Intake<'_>);
    /// Closes what has waited too long; says when to ask again.
    fn expire(&mut self, poller: &Poller, now: Instant) -> Option<Instant>;
    /// Whether every request was answered and written. Once [`Shared::is_draining`], the front takes no new connections.
    fn is_quiet(&self) -> bool;
}

/// What a core is made of.
#[derive(Clone, Debug)]
pub struct CoreOptions {
    /// Responses are written at the latest this long after they became ready, though more requests wait.
    pub flush_after: Duration,
    /// Sockets handled before responses are written. Batching saves the wake-ups of clients; too large a batch leaves
    /// them with nothing to do meanwhile.
    pub batch: usize,
}

impl Default for CoreOptions {
    fn default() -> Self {
        Self {
            flush_after: Duration::from_micros(500),
            batch: 64,
        }
    }
}
