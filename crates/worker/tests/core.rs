//! One core, turned by hand: what it promises about every request, case by case.

mod harness;

use contract::{CoreId, Fault, Refusal, RequestId};
use harness::{Act, Cluster, End, Function, HOUR, Options, Outcome, Script, Seen, Solo};
use millpond_worker::Failure;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use telemetry::metrics::Start;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Whether a refusal says that the queue is full.
fn is_full(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused(Refusal::QueueFull { .. }))
}

fn begun(solo: &Solo) -> usize {
    solo.world().seen(|seen| seen.began.len())
}

// --- ends ------------------------------------------------------------------------------------------------------------

#[test]
fn a_request_is_answered_in_the_turn_that_reads_it() {
    let mut solo = Solo::new("in the turn that reads it", 8);
    let function = solo.functions.make(Options::default());
    let id = solo.submit(&function, Script::done());
    solo.turn();
    let ends = solo.client.ends();
    assert_eq!(ends.len(), 1);
    assert_eq!(
        (ends[0].id, &ends[0].outcome, ends[0].start),
        (id, &Outcome::Done, Start::Sandbox)
    );
    assert_eq!(solo.world().places(), 8, "its sandbox is gone");
}

/// What lies ready for other cores and is taken by none costs no turn of its own. That a turn ends early because the machine
/// halted in it is not the rule.
#[test]
fn what_no_other_core_takes_is_answered_in_that_turn_too() {
    let mut solo = Solo::among("that no other core takes", 2, 8);
    let function = solo.functions.make(Options::default());
    let mut at_once = 0;
    for _ in 0..100 {
        let three = vec![(function.clone(), Script::done(), Duration::ZERO); 3];
        let ids = solo.client.submit_all(0, three);
        solo.turn();
        let mut ends = solo.client.ends();
        at_once += u32::from(ends.len() == 3);
        while ends.len() < 3 {
            solo.turn();
            ends.extend(solo.client.ends());
        }
        let ended: Vec<_> = ends.iter().map(|end| end.id).collect();
        assert_eq!(ended, ids, "in the order of their arrival");
    }
    assert!(at_once >= 50, "{at_once} of 100");
}

#[test]
fn each_end_is_told_as_what_it_is() {
    let mut solo = Solo::new("each end", 8);
    let function = solo.functions.make(Options::default());
    solo.submit(&function, Script::of([Act::Compute(MILLISECOND), Act::Fail]));
    assert_eq!(solo.one().outcome, Outcome::Fault(Fault::Exit { code: 1 }));
    solo.submit(&function, Script::ending(End::Unspawned));
    let end = solo.one();
    assert_eq!(end.outcome, Outcome::Platform("as the script says".into()));
    assert_eq!(end.start, Start::None);
    assert_eq!(solo.world().places(), 8);
}

/// The harness asserts for every answer that its phases add up; here, that time lands in the right one.
#[test]
fn each_phase_holds_its_own_time() {
    let mut solo = Solo::new("each phase", 8);
    let function = solo.functions.make(Options::default());
    let age = Duration::from_secs(5);
    solo.client.submit_aged(
        0,
        &function,
        Script::of([Act::Compute(MILLISECOND), Act::Compute(MILLISECOND)]),
        age,
    );
    let [queue, _, run, cpu] = solo.one().phases;
    assert!(queue >= age, "it came {age:?} ago and has queued for {queue:?}");
    assert!(
        run >= 2 * MILLISECOND && cpu >= 2 * MILLISECOND,
        "two turns of a millisecond: {run:?}, {cpu:?}"
    );
    assert!(cpu < age, "queueing is not computing");
    let sleeps = [
        Act::Sleep(3 * MILLISECOND),
        Act::Compute(MILLISECOND),
        Act::Sleep(3 * MILLISECOND),
    ];
    solo.submit(&function, Script::of(sleeps));
    let [_, _, run, cpu] = solo.one().phases;
    assert!(run >= 7 * MILLISECOND, "its waits are its own time: {run:?}");
    assert!(
        cpu + 6 * MILLISECOND <= run,
        "but not on a core: {cpu:?} of {run:?}"
    );
}

/// The harness asserts that the phases of what was stolen add up, too.
#[test]
fn what_another_core_has_just_read_has_no_time_before_it_came() {
    let mut solo = Solo::new("just read", 8);
    let function = solo.functions.make(Options::default());
    let script = Script::of([Act::Compute(3 * MILLISECOND)]);
    solo.client.submit_ahead(0, &function, script, 2 * MILLISECOND);
    assert_eq!(solo.one().outcome, Outcome::Done);
}

#[test]
fn the_order_is_first_come_first_served() {
    let mut solo = Solo::new("the order", 64);
    let function = solo.functions.make(Options::default());
    let ids: Vec<_> = (0..20).map(|_| solo.submit(&function, Script::done())).collect();
    let ends: Vec<_> = solo.take(20).iter().map(|end| end.id).collect();
    assert_eq!(ends, ids);
}

#[test]
fn a_long_request_lets_short_ones_pass() {
    let mut solo = Solo::new("short ones pass", 64);
    let function = solo.functions.make(Options::default());
    let long = solo.submit(&function, Script::of(vec![Act::Compute(MILLISECOND / 10); 50]));
    solo.turn();
    let short = solo.submit(&function, Script::done());
    let ends: Vec<_> = solo.take(2).iter().map(|end| end.id).collect();
    assert_eq!(ends, [short, long]);
}

/// A core that runs a guest for 30 ms does not see who comes meanwhile. What has run so long is thought to take as long again, so whoever
/// is found then and may have come at the begin cannot be answered in 45 ms.
#[test]
fn a_deadline_counts_from_when_a_request_can_have_come() {
    let mut solo = Solo::new("a deadline", 8);
    let function = solo.functions.make(Options::default());
    let hurried = solo.functions.make(Options {
        deadline: Some(45 * MILLISECOND),
        ..Options::default()
    });
    let acts = [30 * MILLISECOND, Duration::ZERO].map(Act::Compute);
    let long = solo.submit(&function, Script::of(acts));
    solo.turn();
    let late = solo.submit(&hurried, Script::done());
    let ends = solo.take(2);
    for end in ends {
        match end.outcome {
            Outcome::Done => assert_eq!(end.id, long),
            Outcome::Refused(Refusal::TooLate { .. }) => assert_eq!(end.id, late),
            other => panic!("{other:?}"),
        }
    }
}

/// A tenth of a deadline is left for the client, and who was let in may use half of it: refused when the turn comes is refused late.
#[test]
fn whose_turn_comes_a_little_late_is_served() {
    let mut solo = Solo::new("a little late", 8);
    let hurried = solo.functions.make(Options {
        deadline: Some(Duration::from_secs(20)),
        ..Options::default()
    });
    let age = 17_800 * MILLISECOND;
    for script in [Script::of([Act::Compute(300 * MILLISECOND)]), Script::done()] {
        solo.client.submit_aged(0, &hurried, script, age);
    }
    let ends = solo.take(2);
    assert!(ends.iter().all(|end| end.outcome == Outcome::Done), "{ends:?}");
}

// --- limits ----------------------------------------------------------------------------------------------------------

#[test]
fn concurrency_holds_requests_until_others_end() {
    let mut solo = Solo::new("concurrency", 64);
    let function = solo.functions.make(Options {
        concurrency: 2,
        ..Options::default()
    });
    let ids: Vec<_> = (0..6)
        .map(|_| solo.submit(&function, Script::of([Act::Wait])))
        .collect();
    solo.turns(4);
    assert_eq!(begun(&solo), 2, "two run, four are held");
    for (n, id) in ids.iter().enumerate() {
        solo.world().wake(*id);
        assert_eq!(solo.one().id, *id);
        solo.turns(2);
        assert_eq!(begun(&solo), (n + 3).min(6), "each end lets the next begin");
    }
    assert_eq!(function.gauge.most.load(Ordering::SeqCst), 2);
    assert!(solo.core.drained());
}

#[test]
fn one_function_at_its_limit_holds_up_no_other() {
    let mut solo = Solo::new("no other", 64);
    let narrow = solo.functions.make(Options {
        concurrency: 1,
        ..Options::default()
    });
    let other = solo.functions.make(Options::default());
    let first = solo.submit(&narrow, Script::of([Act::Wait]));
    let held = solo.submit(&narrow, Script::done());
    let free = solo.submit(&other, Script::done());
    assert_eq!(solo.one().id, free);
    solo.world().wake(first);
    let ends: Vec<_> = solo.take(2).iter().map(|end| end.id).collect();
    assert_eq!(ends, [first, held]);
}

#[test]
fn a_full_queue_refuses() {
    let mut solo = Solo::new("a full queue", 64);
    let function = solo.functions.make(Options {
        concurrency: 1,
        queue: 2,
        ..Options::default()
    });
    let all = (0..7)
        .map(|_| (function.clone(), Script::of([Act::Wait]), Duration::ZERO))
        .collect();
    let ids = solo.client.submit_all(0, all);
    solo.turn();
    let refused = solo.client.ends();
    assert_eq!(
        refused.iter().map(|end| end.id).collect::<Vec<_>>(),
        ids[3..],
        "one runs and two wait"
    );
    assert!(refused.iter().all(|end| is_full(&end.outcome)));
    for id in &ids[..3] {
        solo.world().wake(*id);
    }
    assert!(solo.take(3).iter().all(|end| end.outcome == Outcome::Done));
    solo.submit(&function, Script::done());
    assert_eq!(solo.one().outcome, Outcome::Done, "there is room again");
}

/// A client that is refused does not wait for the guest that its core goes on with.
#[test]
fn who_is_refused_hears_of_it_before_a_long_turn() {
    let mut solo = Solo::new("refused before a long turn", 8);
    let long = solo.functions.make(Options::default());
    let full = solo.functions.make(Options {
        concurrency: 1,
        queue: 1,
        ..Options::default()
    });
    let release = Arc::new(AtomicBool::new(false));
    let acts = [Act::Compute(MILLISECOND), Act::Wait, Act::Stick(release.clone())];
    let stuck = solo.submit(&long, Script::of(acts));
    let first = solo.submit(&full, Script::of([Act::Wait]));
    let held = solo.submit(&full, Script::done());
    solo.turns(3);
    assert_eq!(begun(&solo), 2, "one of the two is held");
    solo.world().wake(stuck);
    let refused = solo.submit(&full, Script::done());
    let Solo {
        mut core,
        client,
        functions,
        ..
    } = solo;
    let client = thread::spawn(move || {
        let end = client.next();
        release.store(true, Ordering::SeqCst);
        (client, end)
    });
    core.turn(Duration::ZERO).expect("a turn");
    let (client, end) = client.join().expect("the client was answered");
    assert!(end.id == refused && is_full(&end.outcome), "{end:?}");
    functions.world.wake(first);
    while !core.drained() {
        core.turn(HOUR).expect("a turn");
    }
    let mut ends: Vec<_> = client.take(3).iter().map(|end| end.id).collect();
    ends.sort_unstable();
    assert_eq!(ends, [stuck, first, held]);
}

fn timing_out(solo: &Solo, timeout: Duration, concurrency: u32) -> (Function, Outcome) {
    let function = solo.functions.make(Options {
        timeout,
        concurrency,
        ..Options::default()
    });
    (function, Outcome::Fault(Fault::Timeout { limit: timeout }))
}

#[test]
fn a_queued_request_times_out_without_a_sandbox() {
    let mut solo = Solo::new("queued", 8);
    let (function, timeout) = timing_out(&solo, Duration::from_secs(1), 8);
    solo.client
        .submit_aged(0, &function, Script::done(), Duration::from_secs(2));
    assert_eq!(solo.one().outcome, timeout);
    assert_eq!(solo.world().seen(|seen| seen.attempts), 0);
    solo.submit(&function, Script::done());
    assert_eq!(solo.one().outcome, Outcome::Done, "its place was given back");
}

#[test]
fn held_and_parked_requests_time_out() {
    let mut solo = Solo::new("held and parked", 8);
    let (function, timeout) = timing_out(&solo, 20 * MILLISECOND, 1);
    // The one that is parked has the longer to go, so its end does not free the held ones.
    let held = Duration::from_millis(10);
    let parked = solo.submit(&function, Script::of([Act::Wait]));
    solo.turn();
    for _ in 0..3 {
        solo.client.submit_aged(0, &function, Script::done(), held);
    }
    let ends = solo.take(4);
    assert_eq!(ends[3].id, parked);
    assert!(ends.iter().all(|end| end.outcome == timeout), "{ends:?}");
    assert_eq!(begun(&solo), 1);
    assert!(solo.core.drained());
    assert_eq!(solo.world().places(), 8);
    solo.submit(&function, Script::done());
    assert_eq!(solo.one().outcome, Outcome::Done, "the place is free");
}

/// Of the refusal, when it is decided: a core that waits for the next event first would say it only then.
#[test]
fn who_is_held_until_it_is_too_late_hears_of_it() {
    let mut solo = Solo::new("held until it is too late", 8);
    let function = solo.functions.make(Options {
        concurrency: 1,
        deadline: Some(20 * MILLISECOND),
        ..Options::default()
    });
    let parked = solo.submit(&function, Script::of([Act::Wait]));
    solo.turn();
    let late = solo.submit(&function, Script::done());
    let end = solo.one();
    assert_eq!(end.id, late);
    assert!(
        matches!(end.outcome, Outcome::Refused(Refusal::TooLate { .. })),
        "{end:?}"
    );
    solo.world().wake(parked);
    assert_eq!(solo.one().id, parked);
}

#[test]
fn a_running_request_times_out() {
    let mut solo = Solo::new("running", 8);
    let (function, timeout) = timing_out(&solo, 20 * MILLISECOND, 8);
    solo.submit(&function, Script::of(vec![Act::Compute(MILLISECOND); 10_000]));
    assert_eq!(solo.one().outcome, timeout);
    assert_eq!(solo.world().places(), 8);
}

#[test]
fn a_request_that_found_no_sandbox_times_out() {
    let mut solo = Solo::new("starved and timed out", 1);
    let (function, timeout) = timing_out(&solo, 20 * MILLISECOND, 8);
    let patient = solo.functions.make(Options::default());
    let holder = solo.submit(&patient, Script::of([Act::Wait]));
    solo.turn();
    for _ in 0..3 {
        solo.submit(&function, Script::done());
    }
    assert!(solo.take(3).iter().all(|end| end.outcome == timeout));
    solo.world().wake(holder);
    assert_eq!(solo.one().outcome, Outcome::Done);
}

#[test]
fn time_on_a_core_is_limited_and_waiting_is_none() {
    let mut solo = Solo::new("cpu time", 8);
    let cpu_time = 5 * MILLISECOND;
    let function = solo.functions.make(Options {
        cpu_time,
        ..Options::default()
    });
    solo.submit(&function, Script::of(vec![Act::Compute(MILLISECOND); 10_000]));
    let end = solo.one();
    assert_eq!(end.outcome, Outcome::Fault(Fault::CpuTime { limit: cpu_time }));
    let turns = solo.world().seen(|seen| seen.turns);
    assert!(turns <= 5, "{turns} turns of a millisecond each");
    let generous = solo.functions.make(Options {
        cpu_time: 100 * MILLISECOND,
        ..Options::default()
    });
    solo.submit(&generous, Script::of([Act::Sleep(150 * MILLISECOND)]));
    assert_eq!(solo.one().outcome, Outcome::Done);
}

// --- sandboxes are scarce --------------------------------------------------------------------------------------------

#[test]
fn requests_without_a_sandbox_wait_for_one() {
    let mut solo = Solo::new("wait for one", 2);
    let one = solo.functions.make(Options::default());
    let other = solo.functions.make(Options {
        concurrency: 2,
        ..Options::default()
    });
    let first: Vec<_> = (0..2)
        .map(|_| solo.submit(&one, Script::of([Act::Wait])))
        .collect();
    solo.turn();
    let starved: Vec<_> = (0..5)
        .map(|n| {
            let script = Script::of([Act::Compute(MILLISECOND)]);
            solo.client.submit_aged(0, &other, script, (5 - n) * MILLISECOND)
        })
        .collect();
    solo.turns(20);
    assert_eq!(solo.client.ends().len(), 0);
    assert!(!solo.core.drained());
    solo.world().wake(first[0]);
    let ends: Vec<_> = solo.take(6).iter().map(|end| end.id).collect();
    assert_eq!(ends[0], first[0]);
    assert_eq!(ends[1..], starved, "in their order");
    solo.world().wake(first[1]);
    solo.one();
}

/// A request that finds no sandbox ranks before everything that has run already: that must go on nevertheless.
#[test]
fn what_has_a_sandbox_goes_on_while_others_starve() {
    let mut solo = Solo::new("goes on", 2);
    let function = solo.functions.make(Options {
        concurrency: 3,
        ..Options::default()
    });
    let script = Script::of(vec![Act::Compute(MILLISECOND / 10); 40]);
    let running: Vec<_> = (0..2).map(|_| solo.submit(&function, script.clone())).collect();
    solo.turn();
    for _ in 0..10 {
        solo.submit(&function, Script::done());
    }
    let ends: Vec<_> = solo.take(12).iter().map(|end| end.id).collect();
    assert!(
        running.contains(&ends[0]),
        "one of those that run ends first: {ends:?}"
    );
    assert!(function.gauge.most.load(Ordering::SeqCst) <= 2);
}

#[test]
fn a_core_whose_requests_starve_is_not_busy() {
    let mut solo = Solo::new("not busy", 1);
    let function = solo.functions.make(Options::default());
    let holder = solo.submit(&function, Script::of([Act::Wait]));
    solo.turn();
    for _ in 0..4 {
        solo.submit(&function, Script::done());
    }
    let begun = Instant::now();
    for _ in 0..40 {
        solo.core.turn(HOUR).expect("a turn");
    }
    // How long that took depends on the machine; but each attempt must have waited its millisecond.
    let attempts = solo.world().seen(|seen| seen.attempts) - 1;
    let waited = u32::try_from(begun.elapsed().as_millis()).unwrap_or(u32::MAX);
    assert!(
        attempts <= 4 + waited,
        "{attempts} attempts in {waited} ms: it spins"
    );
    solo.world().wake(holder);
    solo.take(5);
}

/// Sandboxes kept for `reuse` are an advance on later requests: they yield to those that have none now.
#[test]
fn warm_sandboxes_give_way() {
    let mut solo = Solo::new("give way", 2);
    let reusing = solo.functions.make(Options {
        reuse: 100,
        ..Options::default()
    });
    let both: Vec<_> = (0..2)
        .map(|_| solo.submit(&reusing, Script::of([Act::Wait])))
        .collect();
    solo.turn();
    for id in both {
        solo.world().wake(id);
    }
    solo.take(2);
    assert_eq!(solo.world().places(), 0, "both are kept");
    let other = solo.functions.make(Options::default());
    solo.submit(&other, Script::done());
    assert_eq!(solo.one().outcome, Outcome::Done);
}

#[test]
fn warm_sandboxes_of_another_core_give_way() {
    let cluster = Cluster::new("of another core", 2, 1);
    let reusing = cluster.functions.make(Options {
        reuse: 100,
        ..Options::default()
    });
    let other = cluster.functions.make(Options::default());
    for core in [0, 1, 0, 1] {
        cluster.client.submit(core, &reusing, Script::done());
        cluster.client.next();
        cluster.client.submit(1 - core, &other, Script::done());
        assert_eq!(cluster.client.next().outcome, Outcome::Done);
    }
    cluster.drain();
}

// --- waiting ---------------------------------------------------------------------------------------------------------

#[test]
fn a_sandbox_waits_for_a_moment_or_a_wake_up() {
    let mut solo = Solo::new("waits", 8);
    let function = solo.functions.make(Options::default());
    let acts = [
        Act::Sleep(MILLISECOND),
        Act::WokenAfter,
        Act::Sleep(MILLISECOND),
        Act::WokenAfter,
    ];
    solo.submit(&function, Script::of(acts));
    assert_eq!(solo.one().outcome, Outcome::Done);
    assert_eq!(
        solo.world().seen(|seen| seen.turns),
        5,
        "it runs when there is something to run for"
    );
}

#[test]
fn a_wake_up_before_the_turn_is_over_counts() {
    let mut solo = Solo::new("a wake-up before", 8);
    let function = solo.functions.make(Options::default());
    solo.submit(&function, Script::of(vec![Act::WokenBefore; 5]));
    assert_eq!(solo.one().outcome, Outcome::Done);
}

#[test]
fn a_wake_up_while_the_core_sleeps_counts() {
    let cluster = Cluster::new("while the core sleeps", 1, 8);
    let function = cluster.functions.make(Options::default());
    for _ in 0..200 {
        let id = cluster.client.submit(
            0,
            &function,
            Script::of([Act::WokenAfter, Act::Wait, Act::WokenAfter]),
        );
        cluster.world().wake(id);
        assert_eq!(cluster.client.next().outcome, Outcome::Done);
    }
    cluster.drain();
}

/// Wake-ups name a place, and places are taken again: one that comes late finds another sandbox there.
#[test]
fn a_late_wake_up_harms_nobody() {
    let mut solo = Solo::new("a late wake-up", 8);
    let function = solo.functions.make(Options::default());
    // Two wake-ups for one wait: the second is for whoever comes next.
    solo.submit(
        &function,
        Script::of([Act::WokenAfter, Act::WokenBefore, Act::Compute(MILLISECOND)]),
    );
    solo.submit(&function, Script::of([Act::WokenBefore]));
    let last = solo.submit(&function, Script::of([Act::Wait]));
    assert_eq!(solo.take(2).len(), 2);
    solo.turns(5);
    assert_eq!(solo.client.ends().len(), 0, "it waits for its own");
    solo.world().wake(last);
    assert_eq!(solo.one().id, last);
}

// --- reuse -----------------------------------------------------------------------------------------------------------

#[test]
fn a_sandbox_serves_as_many_requests_as_it_may() {
    let mut solo = Solo::new("as many as it may", 8);
    let function = solo.functions.make(Options {
        reuse: 3,
        ..Options::default()
    });
    let starts: Vec<_> = (0..7)
        .map(|_| {
            solo.submit(&function, Script::done());
            solo.one().start
        })
        .collect();
    use Start::{Reused, Sandbox};
    assert_eq!(
        starts,
        [Sandbox, Reused, Reused, Sandbox, Reused, Reused, Sandbox]
    );
    assert_eq!(
        solo.world()
            .seen(|seen| (seen.spawned, seen.renewed, seen.dropped)),
        (3, 4, 2)
    );
}

#[test]
fn a_sandbox_that_cannot_be_reused_is_replaced() {
    let mut solo = Solo::new("replaced", 8);
    let stubborn = solo.functions.make(Options {
        reuse: 3,
        renews: false,
        ..Options::default()
    });
    for _ in 0..4 {
        solo.submit(&stubborn, Script::done());
        let end = solo.one();
        assert_eq!((end.outcome, end.start), (Outcome::Done, Start::Sandbox));
    }
    let failing = solo.functions.make(Options {
        reuse: 3,
        ..Options::default()
    });
    for _ in 0..2 {
        solo.submit(&failing, Script::ending(End::Fault));
        assert_eq!(
            solo.one().start,
            Start::Sandbox,
            "nothing of a failed one is used again"
        );
    }
}

#[test]
fn functions_do_not_share_warm_sandboxes() {
    let mut solo = Solo::new("do not share", 8);
    let functions: Vec<_> = (0..2)
        .map(|_| {
            solo.functions.make(Options {
                reuse: 9,
                ..Options::default()
            })
        })
        .collect();
    for (n, function) in [0, 1, 1, 0].map(|f| &functions[f]).into_iter().enumerate() {
        solo.submit(function, Script::done());
        assert_eq!(solo.one().start == Start::Reused, n >= 2);
    }
}

#[test]
fn a_retired_version_keeps_no_sandbox() {
    let mut solo = Solo::new("retired", 8);
    let function = solo.functions.make(Options {
        reuse: 9,
        ..Options::default()
    });
    let waiting = solo.submit(&function, Script::of([Act::Wait]));
    solo.submit(&function, Script::done());
    solo.one();
    assert_eq!(solo.world().seen(Seen::alive), 2);
    function.targets.retire();
    solo.shared.retired_some();
    // Published between two turns: the core must notice though it is told to wait.
    solo.core.turn(HOUR).expect("a turn");
    assert_eq!(
        solo.world().seen(Seen::alive),
        1,
        "the warm one is dropped, the running one is not"
    );
    solo.world().wake(waiting);
    assert_eq!(
        solo.one().outcome,
        Outcome::Done,
        "who is in flight ends on the old version"
    );
    assert_eq!(solo.world().seen(Seen::alive), 0, "and is not kept");
}

// --- tenants that are ahead ------------------------------------------------------------------------------------------

/// How many sockets are set aside, and how often one was.
fn aside(solo: &Solo) -> (i64, u64) {
    let metrics = solo
        .functions
        .metrics
        .core(CoreId(0))
        .expect("a core has metrics");
    (metrics.aside.get(), metrics.set_aside.get())
}

#[test]
fn who_is_ahead_is_read_later() {
    let mut solo = Solo::new("who is ahead", 8);
    let function = solo.functions.make(Options::default());
    solo.world().ahead.store(true, Ordering::Relaxed);
    solo.submit(&function, Script::done());
    solo.turns(3);
    assert_eq!((solo.client.ends().len(), aside(&solo)), (0, (1, 1)));
    assert!(!solo.core.drained(), "it is owed an answer");
    solo.world().ahead.store(false, Ordering::Relaxed);
    // Nothing new makes the core look again.
    assert_eq!(solo.one().outcome, Outcome::Done);
    assert_eq!(aside(&solo), (0, 1));
    assert!(solo.core.drained());
}

#[test]
fn a_core_that_drains_reads_what_was_set_aside() {
    let mut solo = Solo::new("reads what was set aside", 8);
    let function = solo.functions.make(Options::default());
    solo.world().ahead.store(true, Ordering::Relaxed);
    solo.submit(&function, Script::done());
    solo.turn();
    solo.shared.drain();
    assert_eq!(solo.one().outcome, Outcome::Refused(Refusal::Draining));
    assert!(solo.core.drained());
}

/// The policy is told once for each socket that was read, and of time that has passed.
#[test]
fn reading_is_told() {
    let mut solo = Solo::new("reading is told", 8);
    let function = solo.functions.make(Options::default());
    let begun = Instant::now();
    for n in 1..=10 {
        solo.submit(&function, Script::of([Act::Compute(MILLISECOND)]));
        assert_eq!(solo.one().outcome, Outcome::Done);
        assert_eq!(solo.world().spent[0].load(Ordering::Relaxed), n);
    }
    let spent = Duration::from_nanos(solo.world().spent[1].load(Ordering::Relaxed));
    assert!(
        !spent.is_zero() && spent + 10 * MILLISECOND <= begun.elapsed(),
        "{spent:?} beside the turns"
    );
}

// --- the end of a node -----------------------------------------------------------------------------------------------

#[test]
fn draining_answers_what_was_admitted_and_refuses_the_rest() {
    let mut solo = Solo::new("draining", 8);
    let function = solo.functions.make(Options {
        concurrency: 1,
        ..Options::default()
    });
    let first = solo.submit(&function, Script::of([Act::Wait]));
    let held = solo.submit(&function, Script::done());
    solo.turn();
    solo.shared.drain();
    let late = solo.submit(&function, Script::done());
    solo.turn();
    let end = solo.one();
    assert_eq!((end.id, end.outcome), (late, Outcome::Refused(Refusal::Draining)));
    assert!(!solo.core.drained());
    solo.world().wake(first);
    let ends = solo.take(2);
    assert_eq!(ends.iter().map(|end| end.id).collect::<Vec<_>>(), [first, held]);
    assert!(ends.iter().all(|end| end.outcome == Outcome::Done));
    assert!(solo.core.drained());
}

#[test]
fn draining_is_noticed_by_a_core_that_is_about_to_wait() {
    let mut solo = Solo::new("about to wait", 8);
    solo.turn();
    // The core has found that it is not draining, and now:
    solo.shared.drain();
    solo.core.turn(HOUR).expect("a turn");
}

#[test]
fn what_is_abandoned_is_answered() {
    let mut solo = Solo::new("abandoned", 3);
    let held = solo.functions.make(Options {
        concurrency: 1,
        ..Options::default()
    });
    let starved = solo.functions.make(Options::default());
    solo.submit(&held, Script::of([Act::Wait]));
    solo.submit(&held, Script::done());
    solo.submit(&starved, Script::of([Act::Wait]));
    solo.submit(&starved, Script::of(vec![Act::Compute(MILLISECOND); 10_000]));
    solo.submit(&starved, Script::done());
    solo.submit(&starved, Script::done());
    solo.turns(5);
    solo.submit(&starved, Script::done());
    solo.turn();
    solo.shared.drain();
    solo.turn();
    solo.core.abandon().expect("it ends");
    let ends = solo.client.ends();
    assert_eq!(ends.len(), 7);
    assert!(
        ends.iter()
            .all(|end| end.outcome == Outcome::Refused(Refusal::Draining)),
        "{ends:?}"
    );
    assert_eq!(solo.world().seen(Seen::alive), 0);
}

#[test]
fn what_waits_for_its_image_is_abandoned_too() {
    let mut solo = Solo::new("abandoned at the loader", 3);
    let (release, released) = mpsc::channel::<()>();
    let released = parking_lot::Mutex::new(released);
    let (asked, was_asked) = mpsc::channel();
    let load = Box::new(move || {
        let _ = asked.send(());
        let _ = released.lock().recv();
        Ok(())
    });
    let function = solo.functions.cold(Options::default(), load);
    solo.submit(&function, Script::done());
    solo.turn();
    was_asked.recv().expect("the loader is asked");
    solo.shared.drain();
    // Loaded after the drain's limit: there is no time left to run it.
    let loading = std::thread::spawn(move || drop(release));
    solo.core.abandon().expect("it ends");
    loading.join().expect("it releases");
    let ends = solo.client.ends();
    assert!(
        matches!(&ends[..], [end] if matches!(end.outcome, Outcome::Refused(Refusal::Draining))),
        "{ends:?}"
    );
}

// --- images ----------------------------------------------------------------------------------------------------------

#[test]
fn cold_requests_wait_for_their_image() {
    let mut solo = Solo::new("cold", 8);
    let (release, released) = mpsc::channel::<()>();
    let released = parking_lot::Mutex::new(released);
    let loads = Arc::new(AtomicU32::new(0));
    let counted = loads.clone();
    let load = Box::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let _ = released.lock().recv();
        Ok(())
    });
    let cold = solo.functions.cold(Options::default(), load);
    let warm = solo.functions.make(Options::default());
    for _ in 0..3 {
        solo.submit(&cold, Script::done());
    }
    let other = solo.submit(&warm, Script::done());
    assert_eq!(solo.one().id, other, "nobody else waits");
    assert!(!solo.core.drained());
    drop(release);
    let ends = solo.take(3);
    assert!(ends.iter().all(|end| end.outcome == Outcome::Done));
    assert_eq!(ends[0].start, Start::Image);
    assert_eq!(loads.load(Ordering::SeqCst), 1);
    solo.submit(&cold, Script::done());
    assert_eq!(solo.one().start, Start::Sandbox, "from now on it is there");
}

#[test]
fn an_image_that_does_not_load_is_the_platforms_failure() {
    let mut solo = Solo::new("does not load", 8);
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = attempts.clone();
    let load = Box::new(move || match counted.fetch_add(1, Ordering::SeqCst) {
        0 => Err("the disk is gone".to_owned()),
        _ => Ok(()),
    });
    let function = solo.functions.cold(
        Options {
            concurrency: 1,
            ..Options::default()
        },
        load,
    );
    solo.submit(&function, Script::done());
    let end = solo.one();
    assert_eq!(
        (end.outcome, end.start),
        (Outcome::Platform("the disk is gone".into()), Start::None)
    );
    solo.submit(&function, Script::done());
    assert_eq!(solo.one().outcome, Outcome::Done, "the next one tries again");
    assert!(solo.core.drained());
}

#[test]
fn a_loader_that_panics_is_the_platforms_failure() {
    let mut solo = Solo::new("a loader that panics", 8);
    let broken = solo
        .functions
        .cold(Options::default(), Box::new(|| panic!("a bug in the engine")));
    let cold = solo.functions.cold(Options::default(), Box::new(|| Ok(())));
    solo.submit(&broken, Script::done());
    assert!(matches!(solo.one().outcome, Outcome::Platform(_)));
    solo.submit(&cold, Script::done());
    assert_eq!(solo.one().outcome, Outcome::Done, "others load as ever");
}

// --- several cores ---------------------------------------------------------------------------------------------------

/// The core 0 of two, stuck with a request of its own while others of its home wait behind it. The other core is kept
/// busy until that is so, or it might take the wrong one.
fn stick(cluster: &Cluster, others: Vec<(Function, Script)>) -> (Arc<AtomicBool>, Vec<RequestId>) {
    let function = cluster.functions.make(Options::default());
    let (elsewhere, here) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let sticking = |until: &Arc<AtomicBool>| Script::of([Act::Stick(until.clone())]);
    let began = |id, core| {
        cluster
            .world()
            .wait_until(|seen| seen.began.contains(&(id, core)));
    };
    let kept = cluster.client.submit(1, &function, sticking(&elsewhere));
    began(kept, 1);
    let mut all = vec![(function.clone(), sticking(&here), Duration::ZERO)];
    all.extend(
        others
            .into_iter()
            .map(|(function, script)| (function, script, Duration::ZERO)),
    );
    let ids = cluster.client.submit_all(0, all);
    began(ids[0], 0);
    elsewhere.store(true, Ordering::SeqCst);
    assert_eq!(cluster.client.next().id, kept);
    (here, ids)
}

#[test]
fn an_idle_core_takes_work_from_a_stuck_one() {
    let cluster = Cluster::new("takes work", 2, 64);
    let function = cluster.functions.make(Options::default());
    let quick = Script::of([Act::Compute(MILLISECOND), Act::WokenAfter]);
    let (release, ids) = stick(&cluster, vec![(function, quick); 8]);
    // All begin though the stuck one still runs: the ticker has seen that its core does not come to them.
    cluster.world().wait_until(|seen| {
        let elsewhere = |id: &RequestId| seen.began.contains(&(*id, 1));
        ids[1..].iter().all(elsewhere)
    });
    assert_eq!(cluster.client.ends().len(), 0, "their home is busy");
    release.store(true, Ordering::SeqCst);
    for end in cluster.client.take(9) {
        assert_eq!((end.core.0, end.outcome), (0, Outcome::Done), "answers come home");
    }
    assert_eq!(cluster.drain().len(), 0);
}

#[test]
fn a_cold_request_may_be_taken_too() {
    let cluster = Cluster::new("cold and taken", 2, 64);
    let (asked, was_asked) = mpsc::channel();
    let asked = parking_lot::Mutex::new(asked);
    let load = Box::new(move || asked.lock().send(()).map_err(|_| "nobody listens".to_owned()));
    let cold = cluster.functions.cold(Options::default(), load);
    let (release, _) = stick(&cluster, vec![(cold, Script::done()); 2]);
    was_asked.recv().expect("the other core asks for the image");
    release.store(true, Ordering::SeqCst);
    for end in cluster.client.take(3) {
        assert_eq!((end.core.0, end.outcome), (0, Outcome::Done));
    }
    cluster.drain();
}

/// A function's limit holds over all cores, and a place that one core gives back is another's.
#[test]
fn a_place_that_is_free_elsewhere_is_found() {
    let cluster = Cluster::new("free elsewhere", 2, 64);
    let function = cluster.functions.make(Options {
        concurrency: 1,
        ..Options::default()
    });
    for round in 0..100 {
        let first = cluster
            .client
            .submit(round % 2, &function, Script::of([Act::Wait]));
        cluster
            .world()
            .wait_until(|seen| seen.began.iter().any(|(id, _)| *id == first));
        let held = cluster.client.submit((round + 1) % 2, &function, Script::done());
        cluster.world().wake(first);
        let mut ends: Vec<_> = cluster.client.take(2).iter().map(|end| end.id).collect();
        ends.sort();
        assert_eq!(ends, [first, held]);
    }
    assert_eq!(function.gauge.most.load(Ordering::SeqCst), 1);
    cluster.drain();
}

#[test]
fn an_endless_guest_is_preempted_by_the_ticker() {
    let cluster = Cluster::new("preempted", 1, 8);
    let function = cluster.functions.make(Options {
        timeout: 50 * MILLISECOND,
        ..Options::default()
    });
    let patient = cluster.functions.make(Options::default());
    cluster
        .client
        .submit(0, &function, Script::of(vec![Act::Spin; 100_000]));
    for _ in 0..3 {
        cluster.client.submit(0, &patient, Script::of(vec![Act::Spin; 2]));
    }
    let outcomes: Vec<_> = cluster
        .client
        .take(4)
        .into_iter()
        .map(|end| end.outcome)
        .collect();
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| **outcome == Outcome::Done)
            .count(),
        3
    );
    assert!(outcomes.contains(&Outcome::Fault(Fault::Timeout {
        limit: 50 * MILLISECOND
    })));
    cluster.drain();
}

#[test]
fn whose_code_runs_elsewhere_is_not_asked_for_its_core() {
    let cluster = Cluster::new("elsewhere", 1, 8);
    let function = cluster.functions.make(Options::default());
    for _ in 0..3 {
        let script = Script::of([Act::Elsewhere(10 * MILLISECOND)]);
        cluster.client.submit(0, &function, script);
    }
    let ends = cluster.client.take(3);
    assert!(ends.iter().all(|end| end.outcome == Outcome::Done), "{ends:?}");
    cluster.drain();
}

#[test]
fn cores_that_wait_notice_the_drain() {
    for _ in 0..200 {
        assert_eq!(Cluster::new("notice the drain", 3, 1).drain().len(), 0);
    }
}

// --- from outside ------------------------------------------------------------------------------------------------------

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn requests_from_outside_are_answered_there() {
    let cluster = Cluster::new("from outside", 2, 8);
    let function = cluster.functions.make(Options::default());
    let scripts = (0..100).map(|n| match n % 3 {
        0 => Script::done(),
        1 => Script::of([Act::Sleep(MILLISECOND)]),
        _ => Script::of([Act::Fail]),
    });
    let asked: Vec<_> = scripts
        .map(|script| cluster.client.submit_outside(&cluster.shared, &function, script))
        .collect();
    for (n, (id, answer)) in asked.into_iter().enumerate() {
        let answer = answer.recv_timeout(PATIENCE).expect("an answer");
        assert_eq!(answer.id, id);
        assert_eq!(answer.result.is_err(), n % 3 == 2, "{:?}", answer.result);
    }
    assert!(cluster.drain().is_empty(), "no front hears of them");
}

#[test]
fn what_each_core_finds_counts_for_the_node() {
    let cluster = Cluster::new("what each core finds", 2, 8);
    let function = cluster.functions.make(Options::default());
    for core in [0, 1] {
        let before = cluster.shared.found();
        // A core that is awake need not be woken, and finds nothing then.
        while cluster.shared.found() == before {
            cluster.client.submit(core, &function, Script::done());
            cluster.client.take(1);
        }
    }
    cluster.drain();
}

#[test]
fn requests_from_outside_are_refused_like_others() {
    let mut solo = Solo::new("refused from outside", 8);
    let function = solo.functions.make(Options {
        concurrency: 1,
        queue: 0,
        ..Options::default()
    });
    solo.submit(&function, Script::of([Act::Sleep(HOUR)]));
    solo.turn();
    let (_, answer) = solo
        .client
        .submit_outside(&solo.shared, &function, Script::done());
    solo.turns(2);
    let answer = answer.try_recv().expect("an answer");
    assert!(matches!(
        answer.result,
        Err(Failure::Refused(Refusal::QueueFull { .. }))
    ));
    solo.shared.drain();
    let (_, answer) = solo
        .client
        .submit_outside(&solo.shared, &function, Script::done());
    assert!(!solo.core.drained(), "an answer is owed");
    solo.turns(2);
    let answer = answer.try_recv().expect("an answer");
    assert!(matches!(answer.result, Err(Failure::Refused(Refusal::Draining))));
}
