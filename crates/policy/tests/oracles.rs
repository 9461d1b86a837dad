//! The policies against what theory says of them.

use contract::{Admission, Job, Load, Party, Policy, Refusal, Stop, Ticket, Time};
use millpond_policy::{
    Deadline, Kind, Ordered, QUANTUM, RoundRobin, Shortest,
    simulation::{self, Arrival, Costs, Outcome},
};
use proptest::{collection::vec, prelude::*};
use rand::{SeedableRng as _, rngs::StdRng};
use rand_distr::{Distribution as _, Exp, LogNormal};
use std::time::Duration;

fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}

fn at(micros: u64) -> Time {
    Time(micros * 1000)
}

const AT_ONCE: Costs = Costs {
    request: Duration::ZERO,
    turn: Duration::ZERO,
    notice: Some(Duration::ZERO),
    queue: None,
};

fn arrival(at_micros: u64, length: u64) -> Arrival {
    Arrival {
        at: at(at_micros),
        length: micros(length),
        estimate: micros(length),
        spread: Duration::ZERO,
        tenant: Party::default(),
        deadline: None,
        priority: 0,
    }
}

fn arrivals(most: usize) -> impl Strategy<Value = Vec<Arrival>> {
    let one = (0u64..20_000, 1u64..4_000, 0u32..4, 1u32..8, 0u64..3, -2i8..3);
    vec(one, 1..most).prop_map(|all| {
        let mut all: Vec<_> = all
            .into_iter()
            .map(|(begin, length, tenant, weight, known, priority)| Arrival {
                estimate: micros(length * known),
                tenant: Party {
                    index: tenant,
                    weight,
                },
                priority,
                ..arrival(begin, length)
            })
            .collect();
        all.sort_by_key(|arrival| arrival.at);
        all
    })
}

fn ends(arrivals: &[Arrival], costs: Costs, policy: impl FnMut() -> Box<dyn Policy>) -> Vec<Time> {
    let report = simulation::run(arrivals, 1, costs, policy);
    let end = |outcome: &Outcome| match outcome {
        Outcome::Ended(end) => *end,
        Outcome::Refused => panic!("it was refused"),
    };
    report.outcomes.iter().map(end).collect()
}

/// Jobs of this kind can all meet their deadlines on one core if and only if no interval between an arrival and a deadline
/// is asked for more than it has (Baruah, Rosier, Howell 1990).
fn is_feasible(arrivals: &[Arrival]) -> bool {
    let deadline = |arrival: &Arrival| arrival.at.after(arrival.deadline.unwrap_or(Duration::MAX));
    arrivals.iter().all(|first| {
        arrivals.iter().all(|last| {
            let inside = arrivals
                .iter()
                .filter(|its| its.at >= first.at && deadline(its) <= deadline(last));
            let demand: Duration = inside.map(|its| its.length).sum();
            deadline(last) <= first.at || demand <= deadline(last).since(first.at)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    /// The simulation asserts that nothing is lost and nothing ends twice; here, that nothing is done twice or not at all.
    #[test]
    fn each_job_ends_once(arrivals in arrivals(60), cores in 1usize..4, notice in 0u64..3, quantum in 50u64..5000) {
        let costs = Costs { notice: (notice > 0).then(|| micros(notice * 100)), ..AT_ONCE };
        for kind in Kind::ALL {
            let report = simulation::run(&arrivals, cores, costs, || kind.policy(micros(quantum)));
            let mut last = Time::default();
            for (arrival, outcome) in arrivals.iter().zip(&report.outcomes) {
                let Outcome::Ended(end) = outcome else { panic!("{kind} refused one") };
                prop_assert!(end.since(arrival.at) >= arrival.length, "{kind}");
                last = last.max(*end);
            }
            // Work-conserving: the cores are never idle while there is work that could be theirs.
            if cores == 1 {
                let mut free = Time::default();
                for arrival in &arrivals {
                    free = free.max(arrival.at).after(arrival.length);
                }
                prop_assert_eq!(last, free, "{}", kind);
            }
        }
    }

    /// Earliest deadline first meets every deadline that can be met (Liu, Layland 1973; Dertouzos 1974), and admission,
    /// which knows all lengths here, refuses none of them.
    #[test]
    fn deadlines_are_met_if_they_can_be(
        all in vec((0u64..5_000, 1u64..500, 1u64..20), 1..12),
    ) {
        let mut arrivals: Vec<_> = all
            .into_iter()
            .map(|(begin, length, slack)| Arrival {
                deadline: Some(micros(length * slack)),
                ..arrival(begin, length)
            })
            .collect();
        arrivals.sort_by_key(|arrival| arrival.at);
        prop_assume!(is_feasible(&arrivals));
        let ends = ends(&arrivals, AT_ONCE, || Box::new(Ordered::new(Deadline, QUANTUM)));
        for (arrival, end) in arrivals.iter().zip(ends) {
            prop_assert!(end.since(arrival.at) <= arrival.deadline.unwrap(), "{arrivals:?}");
        }
    }

    /// What admission lets in on an idle core, knowing all lengths, meets its deadline, however much more is asked for later
    /// with later deadlines.
    #[test]
    fn what_is_admitted_is_in_time(lengths in vec(100u64..1000, 1..60), deadline in 1u64..20) {
        let arrivals: Vec<_> = (0..)
            .zip(lengths)
            .map(|(n, length)| Arrival { deadline: Some(micros(deadline * 1000)), ..arrival(n * 100, length) })
            .collect();
        let report = simulation::run(&arrivals, 1, AT_ONCE, || Kind::Deadline.policy(QUANTUM));
        for (arrival, outcome) in arrivals.iter().zip(&report.outcomes) {
            if let Outcome::Ended(end) = outcome {
                prop_assert!(end.since(arrival.at) <= micros(deadline * 1000));
            }
        }
    }

    /// No order has a smaller sum of response times than the shortest remaining time first (Schrage 1968).
    #[test]
    fn the_shortest_first_is_best_on_average(arrivals in arrivals(30)) {
        let known = |its: &Arrival| Arrival { estimate: its.length, tenant: Party::default(), priority: 0, ..*its };
        let arrivals: Vec<_> = arrivals.iter().map(known).collect();
        let sum = |policy: &dyn Fn() -> Box<dyn Policy>| -> Duration {
            let ends = ends(&arrivals, AT_ONCE, policy);
            ends.iter().zip(&arrivals).map(|(end, its)| end.since(its.at)).sum()
        };
        let shortest = sum(&|| Box::new(Ordered::new(Shortest, Duration::MAX)));
        prop_assert!(shortest <= sum(&|| Box::new(Ordered::new(RoundRobin, QUANTUM))));
        prop_assert!(shortest <= sum(&|| Box::new(Ordered::new(RoundRobin, Duration::MAX))));
        prop_assert!(shortest <= sum(&|| Box::new(Ordered::new(Deadline, QUANTUM))));
    }

    /// First come, first served: nobody ends before one who came earlier, whatever either claims.
    #[test]
    fn who_comes_first_ends_first(arrivals in arrivals(40), quantum in 100u64..5_000) {
        let of_one = |its: &Arrival| Arrival { tenant: Party::default(), ..*its };
        let arrivals: Vec<_> = arrivals.iter().map(of_one).collect();
        let ends = ends(&arrivals, AT_ONCE, || Kind::FirstCome.policy(micros(quantum)));
        for (one, its) in arrivals.iter().zip(&ends) {
            for (other, end) in arrivals.iter().zip(&ends) {
                prop_assert!(one.at >= other.at || its <= end);
            }
        }
    }

    /// Round robin: between two turns of a job, every other that has not ended has one.
    #[test]
    fn round_robin_is_round(lengths in vec(1u64..40, 1..12), quantum in 1u64..10) {
        let quantum = Duration::from_nanos(quantum);
        let mut policy = Ordered::new(RoundRobin, quantum);
        let mut jobs: Vec<Job> = lengths.iter().zip(0..).map(|(_, n)| job(Time(n), Party::default())).collect();
        for (job, n) in jobs.iter().zip(0..) {
            policy.put(Time(0), job, Ticket::Fresh(n));
        }
        let mut left = lengths.clone();
        let (mut now, mut order) = (Time(lengths.len() as u64), Vec::new());
        while let Some(turn) = policy.take(now) {
            let (Ticket::Fresh(n) | Ticket::Begun(n)) = turn.ticket;
            let index = n as usize;
            let ran = left[index].min(u64::try_from(turn.quantum.as_nanos()).unwrap());
            left[index] -= ran;
            now = Time(now.0 + ran);
            let stop = if left[index] == 0 { Stop::Ended } else { Stop::Preempted };
            policy.charge(now, &mut jobs[index], Duration::from_nanos(ran), stop);
            if stop != Stop::Ended {
                policy.put(now, &jobs[index], Ticket::Begun(n));
            }
            order.push(index);
        }
        let quantum = u64::try_from(quantum.as_nanos()).unwrap();
        for (n, length) in lengths.iter().enumerate() {
            prop_assert_eq!(jobs[n].ran, Duration::from_nanos(*length));
            let turns: Vec<_> = (0..order.len()).filter(|turn| order[*turn] == n).collect();
            prop_assert_eq!(turns.len() as u64, length.div_ceil(quantum));
            for pair in turns.windows(2) {
                let between = &order[pair[0] + 1..pair[1]];
                for (other, length) in lengths.iter().enumerate() {
                    let had = order[..pair[0]].iter().filter(|its| **its == other).count() as u64;
                    if other != n && had < length.div_ceil(quantum) {
                        prop_assert!(between.contains(&other));
                    }
                }
            }
        }
    }

    /// Tenants that always have work run in proportion to their weights, whatever they claim (start-time fair queueing).
    #[test]
    fn shares_are_fair_at_any_time(
        tenants in vec((1u32..6, vec((1u64..30_000, -3i8..4, 0u64..2), 1..6)), 2..5),
        quantum in 100u64..5_000,
    ) {
        for kind in Kind::ALL {
            fair(kind, &tenants, micros(quantum))?;
        }
    }

    /// Who asks for what is refused, however often, has no more of a core than its weight's part: it pays for that, and waits.
    #[test]
    fn asking_is_work_of_ones_own(
        (asking, working) in (1u32..6, 1u32..6),
        costs in vec(1u64..100, 1..20),
        quantum in 100u64..5_000,
        has_job in any::<bool>(),
    ) {
        for kind in Kind::ALL {
            flood(kind, (asking, working), &costs, micros(quantum), has_job)?;
        }
    }

    /// What is refused, and why.
    #[test]
    fn admission_keeps_both_bounds(running in 0u32..8, queued in 0u32..8, concurrency in 1u32..8, queue in 0u32..8) {
        let load = Load { running, queued, concurrency, queue, ..idle() };
        for kind in Kind::ALL {
            match kind.policy(QUANTUM).admit(Time(0), &job(Time(0), Party::default()), &load) {
                Admission::Run => prop_assert!(running + queued < concurrency),
                Admission::Wait => {
                    prop_assert!(running + queued >= concurrency && running + queued < concurrency + queue);
                }
                Admission::Refuse(_) => prop_assert!(running + queued >= concurrency + queue),
            }
        }
    }
}

fn cases() -> u32 {
    if std::env::var_os("MILLPOND_TEST_LONG").is_some() {
        20_000
    } else {
        256
    }
}

fn idle() -> Load {
    Load {
        running: 0,
        queued: 0,
        concurrency: 1,
        queue: 0,
        held: 0,
        share: 1.0,
        draining: false,
    }
}

fn job(arrived: Time, tenant: Party) -> Job {
    Job {
        arrived,
        enqueued: arrived,
        expires: Time(u64::MAX),
        ran: Duration::ZERO,
        estimate: Duration::ZERO,
        waits: Duration::ZERO,
        spread: Duration::ZERO,
        deadline: None,
        priority: 0,
        tenant,
    }
}

type Claims = (u64, i8, u64);

fn fair(kind: Kind, tenants: &[(u32, Vec<Claims>)], quantum: Duration) -> Result<(), TestCaseError> {
    let mut policy = kind.policy(quantum);
    let mut jobs = Vec::new();
    for (index, (weight, its)) in (0..).zip(tenants) {
        for (estimate, priority, deadline) in its {
            jobs.push(Job {
                estimate: micros(*estimate),
                priority: *priority,
                deadline: (*deadline > 0).then_some(Time(0)),
                ..job(
                    Time(0),
                    Party {
                        index,
                        weight: *weight,
                    },
                )
            });
        }
    }
    for (job, n) in jobs.iter().zip(0..) {
        policy.put(Time(0), job, Ticket::Begun(n));
    }
    let mut served = vec![Duration::ZERO; tenants.len()];
    let mut now = Time(0);
    for _ in 0..400 {
        let turn = policy.take(now).expect("there is always work");
        let (Ticket::Fresh(n) | Ticket::Begun(n)) = turn.ticket;
        prop_assert!(turn.quantum <= quantum);
        now = now.after(turn.quantum);
        let job = &mut jobs[n as usize];
        policy.charge(now, job, turn.quantum, Stop::Preempted);
        policy.put(now, job, Ticket::Begun(n));
        served[job.tenant.index as usize] += turn.quantum;
        let shares: Vec<f64> = served
            .iter()
            .zip(tenants)
            .map(|(served, (weight, _))| served.as_secs_f64() / f64::from(*weight))
            .collect();
        let most = shares.iter().copied().fold(0.0, f64::max);
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        prop_assert!(most - least <= quantum.as_secs_f64() * 1.01, "{kind}: {shares:?}");
    }
    Ok(())
}

/// One tenant asks and is refused whenever it may, at these costs, and has perhaps a job that never ends; another has one.
fn flood(
    kind: Kind,
    (asking, working): (u32, u32),
    costs: &[u64],
    quantum: Duration,
    has_job: bool,
) -> Result<(), TestCaseError> {
    let mut policy = kind.policy(quantum);
    let asks = Party {
        index: 1,
        weight: asking,
    };
    let works = Party {
        index: 2,
        weight: working,
    };
    let mut jobs = [job(Time(0), asks), job(Time(0), works)];
    prop_assert!(
        !policy.is_contended(Some(asks)) && !policy.is_ahead(asks),
        "{kind}: nobody else is there"
    );
    for n in u32::from(!has_job)..2 {
        policy.put(Time(0), &jobs[n as usize], Ticket::Begun(n));
    }
    prop_assert!(policy.is_contended(Some(asks)) && policy.is_contended(None));
    prop_assert_eq!(policy.is_contended(Some(works)), has_job);
    let mut took = [Duration::ZERO; 2];
    let (mut now, mut cost) = (Time(0), costs.iter().cycle());
    while now < at(1_000_000) {
        while !policy.is_ahead(asks) && now < at(1_000_000) {
            let spent = micros(*cost.next().expect("they begin anew"));
            policy.spend(asks, spent);
            took[0] += spent;
            now = now.after(spent);
        }
        let turn = policy.take(now).expect("there is always work");
        let (Ticket::Fresh(n) | Ticket::Begun(n)) = turn.ticket;
        now = now.after(turn.quantum);
        policy.charge(now, &mut jobs[n as usize], turn.quantum, Stop::Preempted);
        policy.put(now, &jobs[n as usize], Ticket::Begun(n));
        took[n as usize] += turn.quantum;
    }
    let [asked, worked] = took.map(|time| time.as_secs_f64());
    let apart = (asked / f64::from(asking) - worked / f64::from(working)).abs();
    // A turn of each, what one may be ahead, and what one may ask back.
    prop_assert!(
        apart <= quantum.as_secs_f64() * 2.0 + 0.012,
        "{kind}: {asked} and {worked}"
    );
    Ok(())
}

#[test]
fn who_waits_for_nobody_is_never_ahead() {
    for kind in Kind::ALL {
        let mut policy = kind.policy(QUANTUM);
        let tenants = [0, 1].map(|index| Party { index, weight: 1 });
        for tenant in tenants {
            policy.spend(tenant, micros(1_000_000));
            assert!(!policy.is_ahead(tenant), "{kind}: nobody has work");
        }
        let one = job(Time(0), tenants[0]);
        policy.put(Time(0), &one, Ticket::Begun(0));
        policy.spend(tenants[0], micros(1_000_000));
        assert!(!policy.is_ahead(tenants[0]), "{kind}: its own work");
        assert!(!policy.is_ahead(tenants[1]), "{kind}: as much as the other");
        policy.spend(tenants[1], micros(5_000_000));
        assert!(policy.is_ahead(tenants[1]), "{kind}: more than the other");
        assert!(policy.take(Time(0)).is_some());
        assert!(
            !policy.is_ahead(tenants[1]),
            "{kind}: the other runs, and none waits"
        );
    }
}

#[test]
fn a_draining_node_takes_nothing() {
    let load = Load {
        draining: true,
        ..idle()
    };
    let admission = Kind::Deadline
        .policy(QUANTUM)
        .admit(Time(0), &job(Time(0), Party::default()), &load);
    assert_eq!(admission, Admission::Refuse(Refusal::Draining));
}

#[test]
fn what_cannot_be_in_time_is_refused_with_the_time_it_would_take() {
    let mut policy = Kind::Deadline.policy(QUANTUM);
    let wanted = Job {
        estimate: micros(300),
        deadline: Some(at(1000)),
        ..job(Time(0), Party::default())
    };
    for n in 0..3 {
        assert_eq!(policy.admit(Time(0), &wanted, &idle()), Admission::Run);
        policy.put(Time(0), &wanted, Ticket::Fresh(n));
    }
    let refusal = Refusal::TooLate {
        retry_after: micros(200),
    };
    assert_eq!(
        policy.admit(Time(0), &wanted, &idle()),
        Admission::Refuse(refusal)
    );
    // Another tenant has half of the core, and nothing before it.
    let other = Job {
        tenant: Party { index: 1, weight: 1 },
        ..wanted
    };
    assert_eq!(policy.admit(Time(0), &other, &idle()), Admission::Run);
}

#[test]
fn a_tenant_that_lies_harms_itself_alone() {
    // One spins and says that it is in a hurry; another has a job of 1 ms every 4 ms.
    let spinning = (0..20).map(|n| Arrival {
        deadline: Some(micros(100)),
        estimate: Duration::ZERO,
        priority: 127,
        tenant: Party { index: 1, weight: 1 },
        ..arrival(n, 1_000_000)
    });
    let honest = (0..1000).map(|n| arrival(100_000 + n * 4000, 1000));
    let mut arrivals: Vec<_> = spinning.chain(honest).collect();
    arrivals.sort_by_key(|arrival| arrival.at);
    for kind in Kind::ALL {
        let report = simulation::run(&arrivals, 1, AT_ONCE, || kind.policy(QUANTUM));
        for (arrival, outcome) in arrivals.iter().zip(&report.outcomes) {
            if let (Outcome::Ended(end), 0) = (outcome, arrival.tenant.index) {
                assert!(
                    end.since(arrival.at) <= micros(1200),
                    "{kind}: {:?}",
                    end.since(arrival.at)
                );
            }
        }
    }
}

/// Has jobs that never end run in turn for what they are given, from `now` on, until `over` says so of what each has had.
fn endless(
    policy: &mut dyn Policy,
    jobs: &mut [Job],
    mut now: Time,
    mut over: impl FnMut(&mut dyn Policy, Time, &[Duration]) -> bool,
) -> Vec<Duration> {
    let mut served = vec![Duration::ZERO; jobs.len()];
    while !over(policy, now, &served) {
        let turn = policy.take(now).expect("there is always work");
        let (Ticket::Fresh(n) | Ticket::Begun(n)) = turn.ticket;
        now = now.after(turn.quantum);
        let job = &mut jobs[n as usize];
        policy.charge(now, job, turn.quantum, Stop::Preempted);
        policy.put(now, job, Ticket::Begun(n));
        served[n as usize] += turn.quantum;
    }
    served
}

#[test]
fn who_comes_back_has_its_own_credit_and_no_other() {
    let credit = micros(10_000);
    for kind in Kind::ALL {
        let mut policy = kind.policy(QUANTUM);
        let mut jobs: Vec<_> = (0..6)
            .map(|index| job(Time(0), Party { index, weight: 1 }))
            .collect();
        policy.put(Time(0), &jobs[0], Ticket::Begun(0));
        endless(&mut *policy, &mut jobs, Time(0), |_, now, _| now >= at(1_000_000));
        // The others come one after another, each when the one before it has had a turn.
        let mut come = 1;
        let (copies, begun) = (jobs.clone(), at(1_000_000));
        let served = endless(&mut *policy, &mut jobs, begun, |policy, now, served| {
            if come < copies.len() && (come == 1 || served[come - 1] > Duration::ZERO) {
                let n = u32::try_from(come).unwrap();
                policy.put(now, &copies[come], Ticket::Begun(n));
                come += 1;
            }
            served[0] > QUANTUM
        });
        for its in &served[1..] {
            assert!(*its <= credit + 3 * QUANTUM, "{kind}: {served:?}");
        }
    }
}

#[test]
fn a_weight_holds_at_once() {
    let mut policy = Kind::Deadline.policy(QUANTUM);
    let mut jobs: Vec<_> = [0, 0, 1, 1]
        .map(|index| job(Time(0), Party { index, weight: 1 }))
        .into();
    for (n, job) in (0..).zip(&jobs) {
        policy.put(Time(0), job, Ticket::Begun(n));
    }
    let second = |_: &mut dyn Policy, _: Time, served: &[Duration]| {
        served.iter().sum::<Duration>() >= micros(1_000_000)
    };
    let of = |served: &[Duration], tenant: usize| served[2 * tenant] + served[2 * tenant + 1];
    let equal = endless(&mut *policy, &mut jobs, Time(0), second);
    assert!(of(&equal, 0).abs_diff(of(&equal, 1)) <= 2 * QUANTUM, "{equal:?}");
    // None of them ever has no work.
    jobs[2..].iter_mut().for_each(|job| job.tenant.weight = 4);
    let lighter = endless(&mut *policy, &mut jobs, at(1_000_000), second);
    assert!(
        of(&lighter, 1).abs_diff(4 * of(&lighter, 0)) <= 10 * QUANTUM,
        "{lighter:?}"
    );
    // What is admitted counts on it, too.
    let asked = Job {
        estimate: micros(1_000),
        deadline: Some(at(4_000)),
        ..job(Time(0), Party { index: 0, weight: 1 })
    };
    assert!(
        policy.overdue(Time(0), &asked, 1.0).is_some(),
        "a fifth of a core is its"
    );
    let asked = Job {
        tenant: Party { index: 1, weight: 4 },
        ..asked
    };
    assert_eq!(policy.overdue(Time(0), &asked, 1.0), None);
    assert!(policy.overdue(Time(0), &asked, 0.25).is_some());
}

/// Requests that come at random, `load` times as many as a core can serve, of log-normal lengths whose standard deviation is half of their mean.
fn overload(load: f64, seconds: f64, mean: Duration, deadline: Duration) -> Vec<Arrival> {
    let mut random = StdRng::seed_from_u64(7);
    let sigma = 1.25f64.ln().sqrt();
    let length = LogNormal::new(mean.as_secs_f64().ln() - sigma * sigma / 2.0, sigma).unwrap();
    let gap = Exp::new(load / mean.as_secs_f64()).unwrap();
    let mut now = 0.0;
    let mut arrivals = Vec::new();
    while now < seconds {
        now += gap.sample(&mut random);
        arrivals.push(Arrival {
            at: Time::default().after(Duration::from_secs_f64(now)),
            length: Duration::from_secs_f64(length.sample(&mut random)),
            estimate: mean,
            spread: mean * 3 / 2,
            tenant: Party::default(),
            deadline: Some(deadline),
            priority: 0,
        });
    }
    arrivals
}

/// Past saturation as much is served in time as at the peak, and nearly all that is served is in time: what comes too much is
/// refused when it comes, for a few microseconds each.
#[test]
fn goodput_is_flat_past_saturation() {
    const SECONDS: f64 = 20.0;
    let (mean, deadline) = (micros(2000), micros(50_000));
    let costs = Costs {
        request: micros(5),
        turn: micros(1),
        notice: Some(micros(50)),
        queue: Some(4096),
    };
    let served = |load: f64| {
        let arrivals = overload(load, SECONDS, mean, deadline);
        let report = simulation::run(&arrivals, 1, costs, || Kind::Deadline.policy(QUANTUM));
        let mut took: Vec<_> = arrivals
            .iter()
            .zip(&report.outcomes)
            .filter_map(|(arrival, outcome)| match outcome {
                Outcome::Ended(end) => Some(end.since(arrival.at)),
                Outcome::Refused => None,
            })
            .collect();
        took.sort_unstable();
        let in_time = took.partition_point(|took| *took <= deadline);
        let slowest = took[took.len() * 99 / 100];
        (in_time as f64 / SECONDS, slowest)
    };
    let loads = [0.5, 0.8, 0.9, 1.0, 1.2, 2.0, 5.0, 10.0].map(|load| (load, served(load)));
    let peak = loads.iter().map(|(_, (goodput, _))| *goodput).fold(0.0, f64::max);
    for (load, (goodput, slowest)) in loads {
        println!("load {load}: {goodput:.0} in time each second, p99 {slowest:?}");
        assert!(slowest <= deadline, "load {load}: {slowest:?}");
        assert!(
            load < 1.0 || goodput >= 0.95 * peak,
            "load {load}: {goodput} of {peak}"
        );
    }
}

/// A function that seems to take longer than its deadline is tried now and then, and never crowded.
#[test]
fn what_seems_hopeless_is_tried_one_at_a_time() {
    let mut policy = Kind::Deadline.policy(QUANTUM);
    let hopeless = Job {
        estimate: micros(2000),
        deadline: Some(at(1000)),
        ..job(Time(0), Party::default())
    };
    assert_eq!(policy.admit(Time(0), &hopeless, &idle()), Admission::Run);
    assert_eq!(policy.overdue(at(999), &hopeless, 1.0), None);
    assert!(policy.overdue(at(1001), &hopeless, 1.0).is_some());
    let busy = Load {
        running: 1,
        concurrency: 8,
        ..idle()
    };
    let refused = Refusal::TooLate {
        retry_after: micros(1000),
    };
    assert_eq!(
        policy.admit(Time(0), &hopeless, &busy),
        Admission::Refuse(refused)
    );
}

/// What varies is begun as long as nearly all of its kind would be in time.
#[test]
fn what_varies_gets_a_reserve() {
    let mut policy = Kind::Deadline.policy(QUANTUM);
    let wanted = |spread| Job {
        estimate: micros(100),
        spread: micros(spread),
        deadline: Some(at(1000)),
        ..job(Time(0), Party::default())
    };
    assert_eq!(policy.overdue(at(900), &wanted(0), 1.0), None);
    let late = |micros_late| {
        Some(Refusal::TooLate {
            retry_after: micros(micros_late),
        })
    };
    assert_eq!(policy.overdue(at(900), &wanted(200), 1.0), late(200));
    // A core that has half of its time for guests takes twice as long.
    assert_eq!(policy.overdue(at(800), &wanted(0), 0.5), None);
    assert_eq!(policy.overdue(at(900), &wanted(0), 0.5), late(100));
    // However much it varies, half of what is left of its deadline is there to wait in.
    assert_eq!(policy.overdue(at(450), &wanted(100_000), 1.0), None);
    assert_eq!(policy.overdue(at(451), &wanted(100_000), 1.0), late(1));
    assert_eq!(policy.admit(at(450), &wanted(100_000), &idle()), Admission::Run);
    assert_eq!(
        policy.overdue(
            at(900),
            &Job {
                deadline: None,
                ..wanted(200)
            },
            1.0
        ),
        None
    );
    // A core that has only half of its time for guests needs twice as long for what comes before.
    policy.put(Time(0), &wanted(0), Ticket::Fresh(0));
    policy.put(Time(0), &wanted(0), Ticket::Fresh(1));
    let half = |share| Load {
        share,
        concurrency: 8,
        ..idle()
    };
    assert_eq!(policy.admit(at(600), &wanted(0), &half(1.0)), Admission::Run);
    let refused = Refusal::TooLate {
        retry_after: micros(200),
    };
    assert_eq!(
        policy.admit(at(600), &wanted(0), &half(0.5)),
        Admission::Refuse(refused)
    );
}
