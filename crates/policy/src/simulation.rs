//! A discrete-event simulation of a node's workers, with the policies that they use: jobs of known lengths on cores that
//! read, run for a quantum, and give to others what they have not begun, as `worker::Core` does.

use crate::Pace;
use contract::{Admission, Job, Load, Party, Policy, Stop, Ticket, Time};
use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

/// A request that will come.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When.
    pub at: Time,
    /// How long it runs.
    pub length: Duration,
    /// What is known of its length when it comes; zero if nothing is.
    pub estimate: Duration,
    /// How much longer it may take.
    pub spread: Duration,
    /// Whose it is.
    pub tenant: Party,
    /// How soon it wants its answer.
    pub deadline: Option<Duration>,
    /// How urgent it says to be.
    pub priority: i8,
}

/// What a worker's own work takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// To read a request and to answer it, if only with a refusal.
    pub request: Duration,
    /// To run one after another: the begin of a turn.
    pub turn: Duration,
    /// A guest is interrupted so long after a request has come; none: only its quantum ends its turn.
    pub notice: Option<Duration>,
    /// Requests that may wait in each core's queue.
    pub queue: Option<u32>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was refused when it came, or when its turn came too late.
    Refused,
    /// It ended then.
    Ended(Time),
}

struct Core {
    policy: Box<dyn Policy>,
    /// Requests that have come and are not read.
    inbox: Vec<u32>,
    running: Option<Running>,
    pace: Pace,
    /// Since when, and what has been done for no job since.
    noted: Time,
    other: Duration,
    /// Distinguishes the end of a turn from that which was planned before an interruption.
    turn: u64,
}

struct Running {
    job: u32,
    begun: Time,
    ends: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    TurnEnds { core: usize, turn: u64 },
    Comes(u32),
}

struct Simulation {
    costs: Costs,
    cores: Vec<Core>,
    jobs: Vec<Job>,
    left: Vec<Duration>,
    outcomes: Vec<Option<Outcome>>,
    events: BinaryHeap<Reverse<(Time, Event)>>,
    preemptions: u64,
}

/// What came out of a simulation.
#[derive(Clone, Debug)]
pub struct Report {
    /// For each arrival.
    pub outcomes: Vec<Outcome>,
    /// Turns that did not end their job.
    pub preemptions: u64,
}

/// Has the requests come to `cores` cores in turn, each with a policy of its own, until all have ended.
///
/// # Panics
///
/// If a policy loses a job, or names one that it does not have.
pub fn run(
    arrivals: &[Arrival],
    cores: usize,
    costs: Costs,
    mut policy: impl FnMut() -> Box<dyn Policy>,
) -> Report {
    let new = |_| Core {
        policy: policy(),
        inbox: Vec::new(),
        running: None,
        pace: Pace::default(),
        noted: Time::default(),
        other: Duration::ZERO,
        turn: 0,
    };
    let mut simulation = Simulation {
        costs,
        cores: (0..cores).map(new).collect(),
        jobs: arrivals.iter().map(job).collect(),
        left: arrivals.iter().map(|arrival| arrival.length).collect(),
        outcomes: vec![None; arrivals.len()],
        events: (0..)
            .zip(arrivals)
            .map(|(n, arrival)| Reverse((arrival.at, Event::Comes(n))))
            .collect(),
        preemptions: 0,
    };
    while let Some(Reverse((now, event))) = simulation.events.pop() {
        match event {
            Event::Comes(n) => simulation.comes(now, n),
            Event::TurnEnds { core, turn } => simulation.turn_ends(now, core, turn),
        }
    }
    let outcome = |outcome: Option<Outcome>| outcome.expect("a policy has lost a job");
    Report {
        outcomes: simulation.outcomes.into_iter().map(outcome).collect(),
        preemptions: simulation.preemptions,
    }
}

fn job(arrival: &Arrival) -> Job {
    Job {
        arrived: arrival.at,
        enqueued: arrival.at,
        expires: Time(u64::MAX),
        ran: Duration::ZERO,
        estimate: arrival.estimate,
        waits: Duration::ZERO,
        spread: arrival.spread,
        deadline: arrival.deadline.map(|deadline| arrival.at.after(deadline)),
        priority: arrival.priority,
        tenant: arrival.tenant,
    }
}

impl Simulation {
    fn comes(&mut self, now: Time, n: u32) {
        let index = n as usize % self.cores.len();
        let core = &mut self.cores[index];
        core.inbox.push(n);
        match (&mut core.running, self.costs.notice) {
            (None, _) => self.act(now, index),
            (Some(running), Some(notice)) => {
                let ends = now.after(notice).max(running.begun);
                if ends < running.ends {
                    running.ends = ends;
                    core.turn += 1;
                    let turn = core.turn;
                    self.events
                        .push(Reverse((ends, Event::TurnEnds { core: index, turn })));
                }
            }
            (Some(_), None) => {}
        }
    }

    fn turn_ends(&mut self, now: Time, index: usize, turn: u64) {
        let core = &mut self.cores[index];
        if core.turn != turn {
            return;
        }
        if let Some(Running { job: n, begun, .. }) = core.running.take() {
            let (job, left) = (&mut self.jobs[n as usize], &mut self.left[n as usize]);
            let ran = now.since(begun);
            *left -= ran;
            if left.is_zero() {
                core.policy.charge(now, job, ran, Stop::Ended);
                let twice = self.outcomes[n as usize].replace(Outcome::Ended(now));
                assert_eq!(twice, None, "a policy has run a job twice");
            } else {
                core.policy.charge(now, job, ran, Stop::Preempted);
                core.policy.put(now, job, Ticket::Begun(n));
                self.preemptions += 1;
            }
        }
        self.act(now, index);
    }

    /// A core that runs nothing reads, and begins a turn if there is one to begin.
    fn act(&mut self, now: Time, index: usize) {
        let mut free = now;
        let core = &mut self.cores[index];
        let wanted = !core.policy.is_empty();
        core.pace
            .note(now.since(core.noted), std::mem::take(&mut core.other), wanted);
        core.noted = now;
        for n in std::mem::take(&mut core.inbox) {
            free = free.after(self.costs.request);
            let job = &self.jobs[n as usize];
            let load = Load {
                running: 0,
                queued: u32::try_from(core.policy.len()).unwrap_or(u32::MAX),
                concurrency: u32::MAX / 2,
                queue: 0,
                held: 0,
                share: core.pace.share(),
                draining: false,
            };
            let full = self.costs.queue.is_some_and(|queue| load.queued >= queue);
            if full || matches!(core.policy.admit(now, job, &load), Admission::Refuse(_)) {
                self.outcomes[n as usize] = Some(Outcome::Refused);
            } else {
                core.policy.put(now, job, Ticket::Fresh(n));
            }
        }
        let mut next;
        loop {
            next = self.cores[index]
                .policy
                .take(free)
                .map(|turn| (turn.ticket, turn.quantum));
            next = next.or_else(|| self.steal(free, index));
            let Some((Ticket::Fresh(n), _)) = next else { break };
            let share = self.cores[index].pace.share();
            let (policy, job) = (&mut self.cores[index].policy, &mut self.jobs[n as usize]);
            if policy.overdue(free, job, share).is_none() {
                break;
            }
            policy.charge(free, job, Duration::ZERO, Stop::Ended);
            self.outcomes[n as usize] = Some(Outcome::Refused);
        }
        self.cores[index].other = free.since(now) + self.costs.turn;
        if let Some((Ticket::Fresh(n) | Ticket::Begun(n), quantum)) = next {
            let begun = free.after(self.costs.turn);
            let ends = begun.after(quantum.min(self.left[n as usize]));
            let core = &mut self.cores[index];
            core.running = Some(Running { job: n, begun, ends });
            core.turn += 1;
            let turn = core.turn;
            self.events
                .push(Reverse((ends, Event::TurnEnds { core: index, turn })));
            self.offer(now, index);
        }
    }

    /// The most urgent of another's jobs that can move. It is this core's from now on.
    fn steal(&mut self, now: Time, index: usize) -> Option<(Ticket, Duration)> {
        let cores = self.cores.len();
        let victims = (1..cores).map(|offset| (index + offset) % cores);
        let stolen = victims
            .into_iter()
            .find_map(|victim| self.cores[victim].policy.give())?;
        let Ticket::Fresh(n) = stolen else {
            panic!("a policy gives away what has begun");
        };
        let core = &mut self.cores[index];
        core.policy.put(now, &self.jobs[n as usize], stolen);
        let turn = core.policy.take(now)?;
        Some((turn.ticket, turn.quantum))
    }

    /// Idle cores help one that has more than it runs.
    fn offer(&mut self, now: Time, index: usize) {
        for helper in 0..self.cores.len() {
            if helper != index && self.cores[helper].running.is_none() && !self.cores[index].policy.is_empty()
            {
                self.act(now, helper);
            }
        }
    }
}
