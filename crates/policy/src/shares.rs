//! A core's time shared among tenants by their weights: start-time fair queueing, of which each tenant is a flow.
//!
//! Every tenant has a virtual time, which grows by what its jobs ran over its weight, and by what its requests took of the core
//! beside that: reading, refusing, answering. The tenant whose is least has the next turn. Between two tenants that have work all
//! the time, what they took over their weights differs by no more than one turn of each and the credit (Goyal, Vin, Cheng 1996,
//! theorem 1); who takes more by requests alone is [ahead](Policy::is_ahead), and they wait as well.
//!
//! A tenant that had no work comes back where it was, or [`Shares::CREDIT`] behind whoever runs, whichever is later: what it left
//! to others is theirs, but for a short burst.

use crate::SHORTEST_QUANTUM;
use contract::{Admission, Job, Load, Party, Policy, Refusal, Stop, Ticket, Time, Turn};
use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

/// See the module's introduction.
#[derive(Clone, Debug)]
pub struct Shares<P> {
    /// What a tenant begins with.
    empty: P,
    tenants: Vec<Tenant<P>>,
    /// Tenants whose jobs can run, by virtual times that may be earlier than theirs are by now.
    ready: BinaryHeap<Reverse<(u64, u32)>>,
    /// The latest virtual time of a tenant at the begin of its turn.
    now: u64,
    /// The weights of those that have jobs.
    weights: u64,
    jobs: usize,
}

#[derive(Clone, Debug)]
struct Tenant<P> {
    policy: P,
    /// Nanoseconds over weight, in [`SCALE`]ths.
    time: u64,
    weight: u32,
    /// Jobs that are put, and the one that has been taken and not charged.
    jobs: u32,
    is_ready: bool,
}

/// Virtual times are fine enough for weights up to this many times another's.
const SCALE: u64 = 64;

impl<P> Shares<P> {
    /// How much of the past a tenant may ask back.
    pub const CREDIT: Duration = Duration::from_millis(10);
    /// By how much a tenant may get ahead of one that waits.
    pub const LEAD: Duration = Duration::from_millis(1);
}

impl<P: Policy + Clone> Shares<P> {
    /// Shares within each of which `empty` decides, a policy without jobs.
    pub fn new(empty: P) -> Self {
        Self {
            empty,
            tenants: Vec::new(),
            ready: BinaryHeap::new(),
            now: 0,
            weights: 0,
            jobs: 0,
        }
    }

    fn tenant(&mut self, party: Party) -> &mut Tenant<P> {
        let index = party.index as usize;
        while self.tenants.len() <= index {
            self.tenants.push(Tenant {
                policy: self.empty.clone(),
                time: 0,
                weight: 1,
                jobs: 0,
                is_ready: false,
            });
        }
        &mut self.tenants[index]
    }

    /// A tenant without jobs comes back to where others have got meanwhile.
    fn catch_up(&mut self, party: Party) -> &mut Tenant<P> {
        let (served, weight) = (self.now, party.weight.max(1));
        let tenant = self.tenant(party);
        tenant.weight = weight;
        tenant.time = tenant
            .time
            .max(served.saturating_sub(scaled(Self::CREDIT, weight)));
        tenant
    }

    fn give_of(&mut self, index: u32) -> Option<Ticket> {
        let tenant = &mut self.tenants[index as usize];
        let given = tenant.policy.give()?;
        tenant.jobs -= 1;
        self.jobs -= 1;
        if tenant.jobs == 0 {
            self.weights -= u64::from(tenant.weight);
        }
        Some(given)
    }

    /// The part of what a core gives that is a tenant's, of 1, if it has work: its weight of those of all that have.
    fn part(&self, party: Party) -> f32 {
        let own = u64::from(party.weight.max(1));
        let known = self.tenants.get(party.index as usize);
        let all = match known.filter(|tenant| tenant.jobs > 0) {
            Some(tenant) => self.weights.saturating_sub(tenant.weight.into()) + own,
            None => self.weights + own,
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "a share needs no more than seven digits"
        )]
        let part = own as f32 / all as f32;
        part
    }

    /// The tenant at the head of the queue, and how far it has come.
    fn first(&mut self) -> Option<(u64, u32)> {
        while let Some(Reverse((noted, index))) = self.ready.peek().copied() {
            let tenant = &mut self.tenants[index as usize];
            if tenant.policy.is_empty() {
                tenant.is_ready = false;
                self.ready.pop();
            } else if tenant.time > noted {
                self.ready.pop();
                self.ready.push(Reverse((tenant.time, index)));
            } else {
                return Some((noted, index));
            }
        }
        None
    }
}

/// What a run of this length adds to the virtual time of a tenant of this weight.
fn scaled(ran: Duration, weight: u32) -> u64 {
    let nanos = u64::try_from(ran.as_nanos()).unwrap_or(u64::MAX / SCALE);
    nanos.saturating_mul(SCALE) / u64::from(weight.max(1))
}

impl<P: Policy + Clone> Policy for Shares<P> {
    fn admit(&mut self, now: Time, job: &Job, load: &Load) -> Admission {
        let share = load.share * self.part(job.tenant);
        let load = Load { share, ..*load };
        self.tenant(job.tenant).policy.admit(now, job, &load)
    }

    fn put(&mut self, now: Time, job: &Job, ticket: Ticket) {
        let party = job.tenant;
        let tenant = self.tenant(party);
        let (weight, before) = (party.weight.max(1), tenant.weight);
        if tenant.jobs == 0 {
            self.catch_up(party);
            self.weights += u64::from(weight);
        } else if weight != before {
            // What it has run keeps its price.
            tenant.weight = weight;
            self.weights = self.weights.saturating_sub(before.into()) + u64::from(weight);
        }
        let tenant = self.tenant(party);
        tenant.jobs += 1;
        tenant.policy.put(now, job, ticket);
        let time = tenant.time;
        if !std::mem::replace(&mut tenant.is_ready, true) {
            self.ready.push(Reverse((time, party.index)));
        }
        self.jobs += 1;
    }

    fn take(&mut self, now: Time) -> Option<Turn> {
        let (time, index) = self.first()?;
        let turn = self.tenants[index as usize].policy.take(now)?;
        // One that comes back with credit must not give that to the next that does.
        self.now = self.now.max(time);
        self.jobs -= 1;
        // Behind whom it may not run ahead too far; it may be itself.
        self.ready.pop();
        let rival = self.first();
        let tenant = &mut self.tenants[index as usize];
        tenant.is_ready = !tenant.policy.is_empty();
        if tenant.is_ready {
            self.ready.push(Reverse((time, index)));
        }
        let quantum = rival.map_or(turn.quantum, |(other, _)| {
            let behind = (other - time) / SCALE * u64::from(tenant.weight);
            let fair = Duration::from_nanos(behind) + Self::LEAD;
            turn.quantum.min(fair).max(SHORTEST_QUANTUM)
        });
        Some(Turn { quantum, ..turn })
    }

    fn overdue(&self, now: Time, job: &Job, share: f32) -> Option<Refusal> {
        self.empty.overdue(now, job, share * self.part(job.tenant))
    }

    fn give(&mut self) -> Option<Ticket> {
        // Of the first tenant that has one: nearly always the first of all, and no other needs to be looked at.
        let mut asked = Vec::new();
        let mut given = None;
        while let Some((time, index)) = self.first() {
            given = self.give_of(index);
            if given.is_some() {
                break;
            }
            self.ready.pop();
            asked.push(Reverse((time, index)));
        }
        self.ready.extend(asked);
        given
    }

    fn charge(&mut self, now: Time, job: &mut Job, ran: Duration, stop: Stop) {
        let tenant = self.tenant(job.tenant);
        tenant.time = tenant.time.saturating_add(scaled(ran, tenant.weight));
        tenant.policy.charge(now, job, ran, stop);
        tenant.jobs = tenant.jobs.saturating_sub(1);
        if tenant.jobs == 0 {
            let weight = u64::from(tenant.weight);
            self.weights = self.weights.saturating_sub(weight);
        }
    }

    fn is_shared(&self) -> bool {
        self.tenants.len() > 1
    }

    fn is_contended(&self, tenant: Option<Party>) -> bool {
        let known = tenant.and_then(|party| self.tenants.get(party.index as usize));
        let own = known
            .filter(|tenant| tenant.jobs > 0)
            .map_or(0, |tenant| tenant.weight);
        self.weights > u64::from(own)
    }

    fn spend(&mut self, tenant: Party, spent: Duration) {
        let its = match self.tenant(tenant).jobs {
            0 => self.catch_up(tenant),
            _ => self.tenant(tenant),
        };
        its.time = its.time.saturating_add(scaled(spent, its.weight));
    }

    fn is_ahead(&mut self, tenant: Party) -> bool {
        if !self.is_contended(Some(tenant)) {
            return false;
        }
        let Some(its) = self.tenants.get(tenant.index as usize) else {
            return false;
        };
        let bound = its.time.saturating_sub(scaled(Self::LEAD, its.weight));
        self.first()
            .is_some_and(|(time, index)| index != tenant.index && time < bound)
    }

    fn len(&self) -> usize {
        self.jobs
    }
}
