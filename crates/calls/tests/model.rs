//! Calls against a model: whatever is submitted, run, failed, cut off and begun anew, nothing that was accepted is lost,
//! and nothing that has an outcome is run again.

mod memory;

use calls::{
    Attempt, CallId, Calls, Cause, Error, Finished, Kind, Options, Outcome, Request, Response, State,
    SubmitError, Timestamp, Verdict,
};
use contract::{Log, RequestId};
use memory::Memory;
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

fn id(number: u32) -> CallId {
    CallId(RequestId(u128::from(number)))
}

/// A request that shows whose it is.
fn request(number: u32, size: usize) -> Request {
    Request {
        function: "shop.resize".parse().unwrap(),
        method: "POST".to_owned(),
        target: format!("/resize?{number}"),
        headers: vec![("x-bytes".to_owned(), vec![0, 255, 13])],
        body: number
            .to_string()
            .into_bytes()
            .into_iter()
            .cycle()
            .take(size)
            .collect(),
        callback: None,
        tells: None,
        attempts: 3,
        maximum_age: Duration::from_hours(1),
    }
}

fn response(number: u32) -> Response {
    Response {
        status: 200,
        headers: vec![("content-type".to_owned(), b"text/plain".to_vec())],
        body: format!("result of {number}").into(),
        omitted: None,
    }
}

fn options() -> Options {
    Options {
        pending: 20,
        interruptions: 1000,
        garbage: 2000,
        retention: Duration::from_mins(10),
        ..Options::default()
    }
}

fn open(log: &Arc<Memory>, options: Options, now: Timestamp) -> Calls {
    let log: Arc<dyn Log> = Arc::clone(log) as _;
    Calls::open(log, options, now, || {}).unwrap()
}

fn succeeded(attempt: &Attempt, result: u32) -> Finished {
    Finished {
        id: attempt.id,
        number: attempt.number,
        outcome: Outcome::Succeeded(response(result)),
        took: Duration::from_secs(1),
    }
}

fn failed(attempt: &Attempt, retry: bool) -> Finished {
    Finished {
        id: attempt.id,
        number: attempt.number,
        outcome: Outcome::Failed {
            reason: "it fell over".to_owned(),
            retry,
        },
        took: Duration::from_secs(1),
    }
}

fn refused(attempt: &Attempt) -> Finished {
    Finished {
        id: attempt.id,
        number: attempt.number,
        outcome: Outcome::Refused {
            reason: "there was no room".to_owned(),
        },
        took: Duration::from_secs(1),
    }
}

#[test]
fn the_log_in_memory_conforms() {
    let log = Arc::new(Memory::default());
    contract::conformance::log::run(&mut || Arc::clone(&log) as Arc<dyn Log>);
}

#[derive(Clone, Debug)]
enum Step {
    Submit {
        size: usize,
    },
    Begin {
        most: usize,
    },
    Succeed,
    Fail {
        retry: bool,
    },
    Refuse,
    Wait {
        milliseconds: u64,
    },
    Maintain,
    Crash,
    /// After so many more changes of the log nothing succeeds until the next crash.
    Power {
        changes: u32,
    },
    RetryDead,
    DiscardDead,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..400_usize).prop_map(|size| Step::Submit { size }),
        5 => (1..5_usize).prop_map(|most| Step::Begin { most }),
        4 => Just(Step::Succeed),
        4 => prop::bool::weighted(0.8).prop_map(|retry| Step::Fail { retry }),
        2 => Just(Step::Refuse),
        3 => (0..400_000_u64).prop_map(|milliseconds| Step::Wait { milliseconds }),
        3 => Just(Step::Maintain),
        1 => Just(Step::Crash),
        1 => (0..4_u32).prop_map(|changes| Step::Power { changes }),
        1 => Just(Step::RetryDead),
        1 => Just(Step::DiscardDead),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pending,
    Succeeded(Timestamp),
    Dead,
    Discarded,
    /// A change of it failed: it may be or not.
    Unsure,
}

#[derive(Default)]
struct Model {
    calls: BTreeMap<u32, (usize, Fate)>,
    running: Vec<(u32, Attempt)>,
}

impl Model {
    fn number(attempt: &Attempt) -> u32 {
        u32::try_from(attempt.id.0.0).unwrap()
    }

    fn set(&mut self, number: u32, fate: Fate) {
        self.calls.get_mut(&number).unwrap().1 = fate;
    }

    /// All that the model is sure of is so.
    fn check(&self, calls: &Calls, now: Timestamp) {
        for (number, (size, fate)) in &self.calls {
            let found = calls.get(id(*number));
            let state = found.as_ref().map(|call| call.state);
            match fate {
                Fate::Pending => {
                    assert!(
                        state.is_some_and(State::is_pending),
                        "{number} is pending, not {state:?}"
                    );
                    assert_eq!(calls.request(id(*number)).unwrap(), request(*number, *size));
                }
                Fate::Succeeded(at) if now.since(*at) <= options().retention => {
                    assert!(
                        matches!(state, Some(State::Succeeded { .. })),
                        "{number} is {state:?}"
                    );
                    assert_eq!(calls.result(id(*number)).unwrap(), Some(response(*number)));
                }
                Fate::Succeeded(_) => {
                    assert!(
                        matches!(state, None | Some(State::Succeeded { .. })),
                        "{number} is {state:?}"
                    );
                }
                Fate::Dead => {
                    assert!(matches!(state, Some(State::Dead { .. })), "{number} is {state:?}");
                    assert_eq!(calls.request(id(*number)).unwrap(), request(*number, *size));
                }
                Fate::Discarded => assert_eq!(state, None),
                Fate::Unsure => {}
            }
        }
    }
}

fn play(steps: Vec<Step>) {
    let log = Arc::new(Memory::default());
    let mut now = Timestamp(1_000_000);
    let mut calls = open(&log, options(), now);
    let mut model = Model::default();
    let mut next = 0;
    for step in steps {
        match step {
            Step::Submit { size } => {
                next += 1;
                let pending = calls.counts().pending;
                match calls.submit(id(next), &request(next, size), now) {
                    Ok(_) => drop(model.calls.insert(next, (size, Fate::Pending))),
                    Err(SubmitError::Full { .. }) => assert_eq!(pending, options().pending),
                    Err(SubmitError::Log(_)) => drop(model.calls.insert(next, (size, Fate::Unsure))),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Begin { most } => {
                for attempt in calls.begin(&calls.due(now, most), now).unwrap_or_default() {
                    let number = Model::number(&attempt);
                    let (size, fate) = model.calls[&number];
                    assert!(
                        matches!(fate, Fate::Pending | Fate::Unsure),
                        "{number} is {fate:?} and begun"
                    );
                    assert_eq!(attempt.request, request(number, size));
                    assert!(
                        model.running.iter().all(|(other, _)| *other != number),
                        "begun twice"
                    );
                    model.running.push((number, attempt));
                }
                for call in calls.dead_letters(None, 1000) {
                    let number = u32::try_from(call.id.0.0).unwrap();
                    if model.calls[&number].1 == Fate::Pending {
                        assert!(matches!(
                            call.state,
                            State::Dead {
                                cause: Cause::Age,
                                ..
                            }
                        ));
                        assert!(now.since(call.accepted) > Duration::from_hours(1));
                        model.set(number, Fate::Dead);
                    }
                }
            }
            Step::Succeed | Step::Fail { .. } | Step::Refuse => {
                let Some((number, attempt)) = model.running.pop() else {
                    continue;
                };
                let finished = match step {
                    Step::Fail { retry } => failed(&attempt, retry),
                    Step::Refuse => refused(&attempt),
                    _ => succeeded(&attempt, number),
                };
                match calls.finish(std::slice::from_ref(&finished), now).as_deref() {
                    Ok([Verdict::Succeeded]) => model.set(number, Fate::Succeeded(now)),
                    Ok([Verdict::RetryAt(due)]) => assert!(*due > now),
                    Ok([Verdict::Dead(_)]) => model.set(number, Fate::Dead),
                    Ok(other) => panic!("{other:?}"),
                    // It runs on, until it is handed in again or the node ends.
                    Err(_) => model.running.push((number, attempt)),
                }
                if model.running.iter().all(|(other, _)| *other != number) {
                    assert_eq!(calls.finish(&[finished], now).unwrap(), [Verdict::Stale]);
                }
            }
            Step::Wait { milliseconds } => now.0 += milliseconds,
            Step::Maintain => {
                if calls.maintain(now).is_ok() {
                    let counts = calls.counts();
                    let live = counts.pending_bytes + counts.result_bytes + counts.dead_letter_bytes;
                    let held = log.extent("calls").unwrap().bytes;
                    // What runs cannot be carried, and holds back what lies behind it.
                    assert!(
                        !model.running.is_empty() || held <= 2 * live + options().garbage,
                        "{held} bytes for {live}"
                    );
                }
            }
            Step::Crash => {
                drop(calls);
                log.power(None);
                model.running.clear();
                calls = open(&log, options(), now);
            }
            Step::Power { changes } => log.power(Some(changes)),
            Step::RetryDead => {
                let Some(call) = calls.dead_letters(None, 1).pop() else {
                    continue;
                };
                let number = u32::try_from(call.id.0.0).unwrap();
                match calls.retry(call.id, now) {
                    Ok(()) => {
                        model.set(number, Fate::Pending);
                        assert!(calls.due(now, 1000).contains(&call.id), "it is due at once");
                        // Its age counts anew, which the model does not follow.
                        model.set(number, Fate::Unsure);
                    }
                    Err(Error::Full(_) | Error::Log(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Step::DiscardDead => {
                let Some(call) = calls.dead_letters(None, 1).pop() else {
                    continue;
                };
                if calls.discard(call.id).is_ok() {
                    model.set(u32::try_from(call.id.0.0).unwrap(), Fate::Discarded);
                }
            }
        }
        model.check(&calls, now);
    }

    // In the end everything that has no outcome is run, though the node ends once more.
    drop(calls);
    log.power(None);
    let calls = open(&log, options(), now);
    model.running.clear();
    let expected: BTreeSet<_> = calls
        .list(Kind::Pending, None, 1000)
        .iter()
        .map(|call| call.id)
        .collect();
    for (number, (_, fate)) in &model.calls {
        assert!(*fate != Fate::Pending || expected.contains(&id(*number)));
    }
    let mut ran = BTreeSet::new();
    for _ in 0..100 {
        let attempts = calls.begin(&calls.due(now, 1000), now).unwrap();
        let finished: Vec<_> = attempts
            .iter()
            .map(|attempt| succeeded(attempt, Model::number(attempt)))
            .collect();
        ran.extend(attempts.iter().map(|attempt| attempt.id));
        calls.finish(&finished, now).unwrap();
        match calls.next_due() {
            Some(due) => now = now.max(due),
            None => break,
        }
    }
    assert_eq!(calls.counts().pending, 0);
    for id in &expected {
        let aged = calls.get(*id).is_some_and(|call| {
            matches!(
                call.state,
                State::Dead {
                    cause: Cause::Age,
                    ..
                }
            )
        });
        assert!(ran.contains(id) || aged, "{id} was never run");
    }
    for (number, (_, fate)) in &model.calls {
        let ended = matches!(fate, Fate::Succeeded(_) | Fate::Dead | Fate::Discarded);
        assert!(
            !(ended && ran.contains(&id(*number))),
            "{number} is {fate:?} and ran again"
        );
    }
    // And once nothing is kept any more, nothing is left of it.
    now = now.after(Duration::from_hours(24 * 15));
    calls.maintain(now).unwrap();
    let extent = log.extent("calls").unwrap();
    assert_eq!((extent.bytes, extent.first), (0, extent.end));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn nothing_is_lost_and_nothing_finished_runs_again(steps in prop::collection::vec(step(), 1..150)) {
        play(steps);
    }
}

#[test]
fn a_call_fails_until_it_is_a_dead_letter_that_can_be_retried() {
    let log = Arc::new(Memory::default());
    let mut now = Timestamp(5_000);
    let mut calls = open(&log, options(), now);
    calls.submit(id(1), &request(1, 10), now).unwrap();
    for number in 1..=3 {
        let attempts = calls.begin(&calls.due(now, 9), now).unwrap();
        assert_eq!((attempts.len(), attempts[0].number), (1, number));
        match calls.finish(&[failed(&attempts[0], true)], now).unwrap()[..] {
            [Verdict::RetryAt(due)] if number < 3 => {
                assert_eq!(calls.due(Timestamp(due.0 - 1), 9), [], "not before its time");
                assert_eq!(calls.next_due(), Some(due));
                now = due;
            }
            [Verdict::Dead(Cause::Attempts)] if number == 3 => {}
            ref other => panic!("attempt {number}: {other:?}"),
        }
        calls = open(&log, options(), now);
    }
    let dead = calls.dead_letters(None, 9);
    assert_eq!(
        (dead.len(), dead[0].begun, dead[0].reason.as_deref()),
        (1, 3, Some("it fell over"))
    );
    assert!(matches!(calls.retry(id(2), now), Err(Error::Unknown(_))));
    calls.retry(id(1), now).unwrap();
    assert!(matches!(calls.retry(id(1), now), Err(Error::NotDead(_))));
    assert!(matches!(calls.discard(id(1)), Err(Error::NotDead(_))));
    calls = open(&log, options(), now);
    let attempts = calls.begin(&calls.due(now, 9), now).unwrap();
    assert_eq!(attempts[0].number, 4, "numbers go on");
    assert_eq!(calls.result(id(1)).unwrap(), None);
    calls.finish(&[succeeded(&attempts[0], 1)], now).unwrap();
    assert_eq!(calls.result(id(1)).unwrap(), Some(response(1)));
    assert!(
        matches!(calls.request(id(1)), Err(Error::Unknown(_))),
        "only the result is kept"
    );
}

#[test]
fn a_refusal_is_no_failure_and_ends_with_age_alone() {
    let log = Arc::new(Memory::default());
    let mut now = Timestamp(5_000);
    let calls = open(&log, options(), now);
    let once = Request {
        attempts: 1,
        ..request(1, 10)
    };
    calls.submit(id(1), &once, now).unwrap();
    let mut delays = Vec::new();
    loop {
        let attempts = calls.begin(&calls.due(now, 9), now).unwrap();
        match calls.finish(&[refused(&attempts[0])], now).unwrap()[..] {
            [Verdict::RetryAt(due)] => delays.push(due.since(now)),
            [Verdict::Dead(Cause::Age)] => break,
            ref other => panic!("{other:?}"),
        }
        now = calls.next_due().unwrap();
    }
    assert!(now.since(Timestamp(5_000)) <= once.maximum_age);
    assert!(delays.len() > 10, "it was given up after {}", delays.len());
    assert!(
        delays[5] > delays[0] * 2,
        "it is tried ever less often: {delays:?}"
    );
    let reason = calls.get(id(1)).unwrap().reason;
    assert_eq!(reason.as_deref(), Some("there was no room"));
}

#[test]
fn a_call_that_takes_the_node_down_ends_as_a_dead_letter() {
    let log = Arc::new(Memory::default());
    let now = Timestamp(5_000);
    let limited = Options {
        interruptions: 2,
        ..options()
    };
    open(&log, limited.clone(), now)
        .submit(id(1), &request(1, 1), now)
        .unwrap();
    for number in 1..=3 {
        let calls = open(&log, limited.clone(), now);
        let attempts = calls.begin(&calls.due(now, 9), now).unwrap();
        assert_eq!(attempts[0].number, number);
    }
    let calls = open(&log, limited, now);
    assert_eq!(calls.begin(&calls.due(now, 9), now).unwrap(), []);
    assert!(matches!(
        calls.get(id(1)).unwrap().state,
        State::Dead {
            cause: Cause::Interrupted,
            ..
        }
    ));
}

#[test]
fn what_is_too_much_is_refused_or_omitted() {
    let log = Arc::new(Memory::default());
    let now = Timestamp(5_000);
    let small = Options {
        pending: 2,
        body: 100,
        response_body: 5,
        pending_bytes: 1000,
        ..options()
    };
    let calls = open(&log, small.clone(), now);
    calls.submit(id(1), &request(1, 100), now).unwrap();
    assert!(matches!(
        calls.submit(id(1), &request(1, 1), now),
        Err(SubmitError::Duplicate(_))
    ));
    assert!(matches!(
        calls.submit(id(2), &request(2, 101), now),
        Err(SubmitError::TooLarge {
            part: "body",
            size: 101,
            limit: 100
        })
    ));
    let mut head = request(2, 1);
    head.target = "/".repeat(300_000);
    assert!(matches!(
        calls.submit(id(2), &head, now),
        Err(SubmitError::TooLarge { part: "head", .. })
    ));
    calls.submit(id(2), &request(2, 1), now).unwrap();
    assert!(matches!(
        calls.submit(id(3), &request(3, 1), now),
        Err(SubmitError::Full {
            what: "calls",
            limit: 2
        })
    ));
    let attempts = calls.begin(&[id(1)], now).unwrap();
    calls.finish(&[succeeded(&attempts[0], 1)], now).unwrap();
    let kept = calls.result(id(1)).unwrap().unwrap();
    assert_eq!((kept.status, kept.body.len(), kept.headers.len()), (200, 0, 0));
    assert!(kept.omitted.is_some_and(|bytes| bytes > 5));
    calls.submit(id(3), &request(3, 1), now).unwrap();

    let calls = open(
        &log,
        Options {
            pending: 9,
            pending_bytes: 700,
            ..small
        },
        now,
    );
    assert!(matches!(
        calls.submit(id(4), &request(4, 100), now),
        Err(SubmitError::Full {
            what: "bytes of calls",
            ..
        })
    ));
}

#[test]
fn the_oldest_results_give_way_and_the_log_shrinks() {
    let log = Arc::new(Memory::default());
    let mut now = Timestamp(5_000);
    let few = Options {
        results: 3,
        pending: 1000,
        ..options()
    };
    let calls = open(&log, few, now);
    // A call that waits for ever holds the log's beginning, until it is carried forward.
    calls.submit(id(0), &request(0, 300), now).unwrap();
    let attempts = calls.begin(&[id(0)], now).unwrap();
    calls.finish(&[failed(&attempts[0], false)], now).unwrap();
    for number in 1..=500 {
        now.0 += 1;
        calls.submit(id(number), &request(number, 300), now).unwrap();
        let attempts = calls.begin(&calls.due(now, 9), now).unwrap();
        calls.finish(&[succeeded(&attempts[0], number)], now).unwrap();
        calls.maintain(now).unwrap();
        assert!(log.extent("calls").unwrap().bytes < 8000);
    }
    let kept: Vec<_> = calls
        .list(Kind::Succeeded, None, 99)
        .iter()
        .map(|call| call.id)
        .collect();
    assert_eq!(kept, [id(498), id(499), id(500)]);
    assert_eq!(
        calls.list(Kind::All, Some(id(498)), 1)[0].id,
        id(499),
        "a list goes on after an id"
    );
    assert_eq!(calls.request(id(0)).unwrap(), request(0, 300));
    calls.discard(id(0)).unwrap();
    assert_eq!(calls.get(id(0)), None);
}

#[test]
fn a_submission_without_waiting_tells_when_it_is_durable() {
    let log = Arc::new(Memory::default());
    let now = Timestamp(5_000);
    let rung = Arc::new(AtomicU32::new(0));
    let bell = {
        let rung = Arc::clone(&rung);
        move || {
            rung.fetch_add(1, Ordering::SeqCst);
        }
    };
    let calls = Calls::open(Arc::clone(&log) as Arc<dyn Log>, options(), now, bell).unwrap();
    let (told, tell) = mpsc::channel();
    let submit = |number| {
        let told = told.clone();
        calls
            .submit_then(id(number), &request(number, 5), now, move |result| {
                told.send(result).unwrap()
            })
            .unwrap();
        tell.recv_timeout(Duration::from_secs(60)).unwrap()
    };
    assert_eq!(submit(1).unwrap(), id(1));
    assert_eq!((calls.due(now, 9), rung.load(Ordering::SeqCst)), (vec![id(1)], 1));
    log.power(Some(0));
    assert!(matches!(submit(2), Err(SubmitError::Log(_))));
    assert_eq!(calls.get(id(2)), None, "its place is free again");
}

#[test]
fn calls_are_accepted_together_or_not_at_all() {
    let log = Arc::new(Memory::default());
    let now = Timestamp(5_000);
    let calls = open(&log, options(), now);
    let some = |numbers: std::ops::Range<u32>| -> Vec<_> {
        numbers.map(|number| (id(number), request(number, 5))).collect()
    };
    calls.submit_all(&some(0..3), now).unwrap();
    assert_eq!(calls.due(now, 99), [id(0), id(1), id(2)]);
    let size = log.extent("calls").unwrap().end;
    // Those that are known are left out, twice the same too.
    calls.submit_all(&some(0..3), now).unwrap();
    calls.submit_all(&[], now).unwrap();
    assert_eq!(log.extent("calls").unwrap().end, size);
    calls.submit_all(&[some(1..4), some(3..4)].concat(), now).unwrap();
    assert_eq!(calls.due(now, 99).len(), 4);
    // Too many, or one that is too large.
    assert!(matches!(
        calls.submit_all(&some(3..50), now),
        Err(SubmitError::Full { .. })
    ));
    let large = [some(4..6), vec![(id(6), request(6, 7 << 20))]].concat();
    assert!(matches!(
        calls.submit_all(&large, now),
        Err(SubmitError::TooLarge { .. })
    ));
    // The disk fails, with and without waiting: all places are free again.
    log.power(Some(0));
    assert!(matches!(
        calls.submit_all(&some(4..9), now),
        Err(SubmitError::Log(_))
    ));
    let (told, tell) = mpsc::channel();
    let submit = |numbers| {
        let told = told.clone();
        let done = move |result| told.send(result).unwrap();
        calls.submit_all_then(&some(numbers), now, done).unwrap();
        tell.recv_timeout(Duration::from_secs(60)).unwrap()
    };
    assert!(matches!(submit(4..9), Err(SubmitError::Log(_))));
    assert_eq!(calls.counts().pending, 4);
    log.power(None);
    submit(3..20).unwrap();
    submit(0..20).unwrap();
    assert_eq!(calls.due(now, 99).len(), 20);
    // And so it is after a crash; whoever submits again doubles nothing.
    drop(calls);
    let calls = open(&log, options(), now);
    calls.submit_all(&some(0..20), now).unwrap();
    assert_eq!(calls.due(now, 99).len(), 20);
}

#[test]
fn a_record_from_elsewhere_is_an_error() {
    let log = Arc::new(Memory::default());
    log.append("calls", vec![b"\x02\0\0\0{}".to_vec()]).unwrap();
    let Err(error) = Calls::open(Arc::clone(&log) as Arc<dyn Log>, options(), Timestamp(0), || {}) else {
        panic!("it must not open");
    };
    assert!(
        error.to_string().contains("record 0 of the log `calls`"),
        "{error}"
    );
}
