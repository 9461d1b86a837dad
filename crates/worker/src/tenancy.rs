//! A tenant as the worker sees it: what it may use, and its requests that wait until it may.

use crate::{
    Invocation,
    line::{Line, Waiting},
};
use contract::Quota;
use std::{fmt, sync::Arc, time::Instant};
use tenants::{Allowance, Share};

/// One tenant of a node, shared by all cores: [`crate::Shared::tenancy`] has it.
pub struct Tenancy {
    allowance: Arc<Allowance>,
    /// In the order of their arrival. Not more than the tenant's quota of them.
    line: Line<Box<Invocation>>,
}

impl fmt::Debug for Tenancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenancy")
            .field("allowance", &self.allowance)
            .finish_non_exhaustive()
    }
}

/// Those that try again at a time whenever the line is looked after.
const RETRIES: usize = 16;

impl Tenancy {
    pub(crate) fn new(allowance: Arc<Allowance>) -> Self {
        Self {
            allowance,
            line: Line::new(),
        }
    }

    pub(crate) fn allowance(&self) -> &Arc<Allowance> {
        &self.allowance
    }

    /// Takes part of the quotas for a sandbox of so many bytes; or keeps the request until another gives part of them back; or says
    /// which quota forbids even that.
    pub(crate) fn enter(
        &self,
        invocation: Box<Invocation>,
        memory: u64,
    ) -> Waiting<Box<Invocation>, Result<Share, Quota>> {
        let take = || match self.allowance.take(memory) {
            Ok(share) => Some(Ok(share)),
            // Nobody would ever give enough back.
            Err(_) => self.allowance.forbids(memory).map(Err),
        };
        match take() {
            Some(taken) => Waiting::Not(invocation, taken),
            None => {
                let most = self.allowance.queue();
                self.line
                    .wait(invocation, most, |one, other| one.arrived < other.arrived, take)
            }
        }
    }

    /// Part of the quotas was given back: one that waited for that tries again.
    pub(crate) fn next(&self) -> Option<Box<Invocation>> {
        self.line.next()
    }

    /// Some that try again, if there seems to be something to be had: quotas may have been raised.
    pub(crate) fn retry(&self) -> impl Iterator<Item = Box<Invocation>> {
        let some = if self.allowance.has_room() { RETRIES } else { 0 };
        std::iter::from_fn(|| self.line.next()).take(some)
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.line.is_holding()
    }

    /// Takes out requests whose time is over.
    #[expect(clippy::vec_box, reason = "they go on as boxes")]
    pub(crate) fn sweep(&self, now: Instant) -> Vec<Box<Invocation>> {
        self.line.sweep(|held| held.is_over(now))
    }

    /// Everything that waits, to be refused.
    #[expect(clippy::vec_box, reason = "they go on as boxes")]
    pub(crate) fn take_all(&self) -> Vec<Box<Invocation>> {
        self.line.sweep(|_| true)
    }
}
