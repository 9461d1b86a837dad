//! Turns of those who wait for a part of something: start-time fair queueing in two levels, of which the outer is weighted.
//!
//! [`crate::Shares`] shares a core's time among a node's few tenants, and learns what a turn has cost when it is over. Here flows come and go by the
//! thousand, costs are known before, and who is first may not be allowed to go yet. The bound is the same: of two flows that wait all the time, what they
//! were given over their weights differs by no more than one item of each (Goyal, Vin, Cheng 1996, theorem 1). What waits goes when all that came to
//! other flows has at most caught up with it, so nothing waits for ever.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::Hash,
};

/// Costs are fine enough for weights up to this many times another's.
const SCALE: u64 = 64;

/// A queue of flows by their keys, each of which is a queue itself.
#[derive(Debug)]
struct Level<K, Q> {
    flows: HashMap<K, Flow<Q>>,
    /// Those that have something, by virtual time and who came first.
    waiting: BTreeSet<(u64, u64, K)>,
    /// Those that have nothing, until the others have caught up with them.
    idle: BTreeSet<(u64, u64, K)>,
    now: u64,
    next: u64,
}

#[derive(Debug)]
struct Flow<Q> {
    time: u64,
    turn: u64,
    queue: Q,
}

impl<K: Clone + Eq + Hash + Ord, Q: Default> Level<K, Q> {
    fn new() -> Self {
        Self {
            flows: HashMap::new(),
            waiting: BTreeSet::new(),
            idle: BTreeSet::new(),
            now: 0,
            next: 0,
        }
    }

    /// The flow of this key, which will have something.
    fn join(&mut self, key: &K) -> &mut Q {
        self.next += 1;
        let (now, turn) = (self.now, self.next);
        let flow = self.flows.entry(key.clone()).or_insert_with(|| Flow {
            time: now,
            turn,
            queue: Q::default(),
        });
        let was_idle = self.idle.remove(&(flow.time, flow.turn, key.clone()));
        if was_idle || flow.turn == turn {
            flow.time = flow.time.max(now);
            flow.turn = turn;
            self.waiting.insert((flow.time, turn, key.clone()));
        }
        &mut flow.queue
    }

    /// It was given something of this cost over its weight, if of any, and has more or not.
    fn leave(&mut self, key: &K, cost: Option<u64>, has_more: bool) {
        let Some(flow) = self.flows.get_mut(key) else {
            return;
        };
        self.waiting.remove(&(flow.time, flow.turn, key.clone()));
        if let Some(cost) = cost {
            // One that was not allowed to go has saved nothing by that.
            self.now = self.now.max(flow.time);
            flow.time = self.now.saturating_add(cost);
            self.next += 1;
            flow.turn = self.next;
        }
        let place = (flow.time, flow.turn, key.clone());
        if has_more {
            self.waiting.insert(place);
        } else {
            self.idle.insert(place);
        }
        while let Some((time, _, _)) = self.idle.first()
            && *time <= self.now
        {
            if let Some((_, _, key)) = self.idle.pop_first() {
                self.flows.remove(&key);
            }
        }
    }
}

type Inner<S, T> = Level<S, VecDeque<(u64, T)>>;

#[derive(Debug)]
struct Tenant<S, T> {
    weight: u32,
    flows: Inner<S, T>,
}

impl<S: Clone + Eq + Hash + Ord, T> Default for Tenant<S, T> {
    fn default() -> Self {
        Self {
            weight: 1,
            flows: Level::new(),
        }
    }
}

/// Who waits: items of flows of tenants. A flow's own are in the order in which they came.
#[derive(Debug)]
pub struct Turns<P: Clone + Eq + Hash + Ord, S: Clone + Eq + Hash + Ord, T> {
    tenants: Level<P, Tenant<S, T>>,
    waiting: usize,
}

impl<P: Clone + Eq + Hash + Ord, S: Clone + Eq + Hash + Ord, T> Default for Turns<P, S, T> {
    fn default() -> Self {
        Self {
            tenants: Level::new(),
            waiting: 0,
        }
    }
}

/// What becomes of an item whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes.
    Go,
    /// Its flow may not go on; others may.
    Pass,
    /// There is not enough for it yet: nobody goes before it.
    Stop,
}

impl<P: Clone + Eq + Hash + Ord, S: Clone + Eq + Hash + Ord, T: PartialEq> Turns<P, S, T> {
    /// An item of this cost waits, in this flow of a tenant of this weight.
    pub fn put(&mut self, (tenant, weight): (&P, u32), flow: &S, cost: u64, item: T) {
        let tenant = self.tenants.join(tenant);
        tenant.weight = weight.max(1);
        tenant.flows.join(flow).push_back((cost, item));
        self.waiting += 1;
    }

    /// The item that goes next, if one may. Whether it may is asked of each flow's first, in the order of their turns.
    pub fn take(&mut self, mut may: impl FnMut(&P, &S, &T) -> Verdict) -> Option<(P, S, T)> {
        let mut found = None;
        'all: for (_, _, key) in &self.tenants.waiting {
            let Some(tenant) = self.tenants.flows.get(key) else {
                continue;
            };
            let flows = &tenant.queue.flows;
            for (_, _, flow) in &flows.waiting {
                let first = flows.flows.get(flow).and_then(|flow| flow.queue.front());
                match first.map(|(_, item)| may(key, flow, item)) {
                    Some(Verdict::Go) => {
                        found = Some((key.clone(), flow.clone()));
                        break 'all;
                    }
                    Some(Verdict::Stop) => break 'all,
                    Some(Verdict::Pass) | None => {}
                }
            }
        }
        let (key, flow) = found?;
        let item = self.remove(&key, &flow, |queue| queue.pop_front(), true)?;
        Some((key, flow, item))
    }

    /// It waits no more: whether it did.
    pub fn forget(&mut self, tenant: &P, flow: &S, item: &T) -> bool {
        let taken = self.remove(
            tenant,
            flow,
            |queue| {
                let at = queue.iter().position(|(_, its)| its == item)?;
                queue.remove(at)
            },
            false,
        );
        taken.is_some()
    }

    fn remove(
        &mut self,
        key: &P,
        flow: &S,
        remove: impl FnOnce(&mut VecDeque<(u64, T)>) -> Option<(u64, T)>,
        is_charged: bool,
    ) -> Option<T> {
        let tenant = self.tenants.flows.get_mut(key)?;
        let weight = u64::from(tenant.queue.weight);
        let flows = &mut tenant.queue.flows;
        let queue = &mut flows.flows.get_mut(flow)?.queue;
        let (cost, item) = remove(queue)?;
        let has_more = !queue.is_empty();
        // Nothing is for nothing, or a flow could go for ever.
        let cost = cost.max(1).saturating_mul(SCALE);
        flows.leave(flow, is_charged.then_some(cost), has_more);
        let has_more = !flows.waiting.is_empty();
        let share = (cost / weight).max(1);
        self.tenants.leave(key, is_charged.then_some(share), has_more);
        self.waiting -= 1;
        Some(item)
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}
