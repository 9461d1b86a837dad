//! Places and memory for work of many: who begins next, when there is not enough for all.
//!
//! Work asks once for all that it will hold, and holds nothing while it waits. So whoever holds something waits for nobody, and ends; what it gives back is
//! enough for the next sooner or later, since work that finds nothing held may always begin. There is no deadlock, whatever the bounds are.

use crate::turns::{Turns, Verdict};
use std::{collections::HashMap, hash::Hash};

/// What is shared, and who waits for it: tenants by their weights, their flows alike.
#[derive(Debug)]
pub struct Pool<P: Clone + Eq + Hash + Ord, S: Clone + Eq + Hash + Ord> {
    places: usize,
    bytes: u64,
    share: u64,
    used: usize,
    held: u64,
    by_flow: HashMap<S, u64>,
    turns: Turns<P, S, Wanted>,
    next: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    ticket: u64,
    bytes: u64,
}

impl<P: Clone + Eq + Hash + Ord, S: Clone + Eq + Hash + Ord> Pool<P, S> {
    /// So many places, so many bytes, and of these no more than a share for one flow. What is larger than either bound begins when nobody else, or nothing
    /// else of its flow, holds any.
    pub fn new(places: usize, bytes: u64, share: u64) -> Self {
        Self {
            places: places.max(1),
            bytes,
            share,
            used: 0,
            held: 0,
            by_flow: HashMap::new(),
            turns: Turns::default(),
            next: 0,
        }
    }

    /// Work waits for a place and so many bytes, in this flow of a tenant of this weight: its ticket.
    pub fn ask(&mut self, tenant: (&P, u32), flow: &S, bytes: u64) -> u64 {
        let ticket = self.next;
        self.next += 1;
        self.turns.put(tenant, flow, bytes, Wanted { ticket, bytes });
        ticket
    }

    /// The ticket of work that has what it waited for, if any can have it now. It is to be asked again after that.
    pub fn admit(&mut self) -> Option<u64> {
        let Self {
            turns,
            by_flow,
            used,
            held,
            ..
        } = self;
        let (places, all, share) = (self.places, self.bytes, self.share);
        let (_, flow, wanted) = turns.take(|_, flow, wanted| {
            let its = by_flow.get(flow).copied().unwrap_or(0);
            if *used >= places || (*held > 0 && held.saturating_add(wanted.bytes) > all) {
                Verdict::Stop
            } else if its > 0 && its.saturating_add(wanted.bytes) > share {
                Verdict::Pass
            } else {
                Verdict::Go
            }
        })?;
        *used += 1;
        *held = held.saturating_add(wanted.bytes);
        if wanted.bytes > 0 {
            *by_flow.entry(flow).or_default() += wanted.bytes;
        }
        Some(wanted.ticket)
    }

    /// It waits no more: whether it did.
    pub fn forget(&mut self, tenant: &P, flow: &S, ticket: u64, bytes: u64) -> bool {
        self.turns.forget(tenant, flow, &Wanted { ticket, bytes })
    }

    /// A place is free again.
    pub fn leave(&mut self) {
        self.used = self.used.saturating_sub(1);
    }

    /// What was admitted holds more than it asked for: nobody waits for that, but others wait the longer.
    pub fn grow(&mut self, flow: &S, bytes: u64) {
        if bytes > 0 {
            self.held = self.held.saturating_add(bytes);
            *self.by_flow.entry(flow.clone()).or_default() += bytes;
        }
    }

    /// Bytes of a flow are.
    pub fn give_back(&mut self, flow: &S, bytes: u64) {
        self.held = self.held.saturating_sub(bytes);
        if let Some(its) = self.by_flow.get_mut(flow) {
            *its = its.saturating_sub(bytes);
            if *its == 0 {
                self.by_flow.remove(flow);
            }
        }
    }

    /// Bytes that are held.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.turns.len()
    }
}
