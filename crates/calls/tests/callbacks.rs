//! Who is to hear of a call's outcome does, once for each outcome, whatever crashes in between.

mod memory;

use calls::{
    Attempt, Call, CallId, Calls, Cause, Finished, Kind, Options, Outcome, Request, Response, State,
    SubmitError, Timestamp, Verdict,
};
use contract::{Log, RequestId};
use memory::Memory;
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

const HOUR: Duration = Duration::from_hours(1);

fn id(number: u32) -> CallId {
    CallId(RequestId(u128::from(number)))
}

/// Nobody, a function and two servers hear of them, by turns.
fn callback(number: u32) -> Option<&'static str> {
    [
        None,
        Some("/function/shop.next/a?b=c"),
        Some("http://one.org/done"),
        Some("https://two.org:8443/done?token=x"),
    ][number as usize % 4]
}

fn request(number: u32, size: usize) -> Request {
    Request {
        function: "shop.resize".parse().unwrap(),
        method: "POST".to_owned(),
        target: "/function/shop.resize".to_owned(),
        headers: Vec::new(),
        body: vec![7; size].into(),
        callback: callback(number).map(|text| text.parse().unwrap()),
        tells: None,
        attempts: 2,
        maximum_age: HOUR,
    }
}

fn options() -> Options {
    Options {
        pending: 60,
        garbage: 2000,
        callback_attempts: 3,
        interruptions: 1,
        ..Options::default()
    }
}

fn open(log: &Arc<Memory>, options: Options, now: Timestamp) -> Calls {
    Calls::open(Arc::clone(log) as Arc<dyn Log>, options, now, || {}).unwrap()
}

fn finished(attempt: &Attempt, outcome: Outcome) -> Finished {
    Finished {
        id: attempt.id,
        number: attempt.number,
        outcome,
        took: Duration::from_millis(250),
    }
}

fn succeeded(attempt: &Attempt, body: &'static [u8]) -> Finished {
    let response = Response {
        status: 200,
        body: body.into(),
        ..Response::default()
    };
    finished(attempt, Outcome::Succeeded(response))
}

fn failed(attempt: &Attempt, retry: bool) -> Finished {
    let reason = "it fell over".to_owned();
    finished(attempt, Outcome::Failed { reason, retry })
}

fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let (_, value) = request.headers.iter().find(|(its, _)| its == name)?;
    Some(std::str::from_utf8(value).unwrap())
}

/// All calls that tell, and which call each tells of.
fn tellers(calls: &Calls) -> BTreeMap<CallId, CallId> {
    let all = calls.list(Kind::All, None, 10_000);
    all.into_iter()
        .filter_map(|call| Some((call.id, call.tells?)))
        .collect()
}

fn telling(calls: &Calls, id: CallId) -> Call {
    let teller = calls.get(id).unwrap().callback.unwrap().id.unwrap();
    calls.get(teller).unwrap()
}

#[test]
fn an_outcome_is_told_by_a_call_that_is_stored_with_it() {
    let log = Arc::new(Memory::default());
    let now = Timestamp(5_000);
    let mut calls = open(&log, options(), now);
    for number in 0..4 {
        calls.submit(id(number), &request(number, 10), now).unwrap();
        let wanted = calls.get(id(number)).unwrap().callback;
        assert_eq!(wanted.map(|telling| telling.id), callback(number).map(|_| None));
    }
    assert_eq!((calls.deliveries(now), calls.next_delivery()), (Vec::new(), None));
    let ended: Vec<_> = calls.begin(&calls.due(now, 9), now).unwrap();
    let ended: Vec<_> = ended.iter().map(|attempt| succeeded(attempt, b"made")).collect();
    assert_eq!(calls.finish(&ended, now).unwrap(), [Verdict::Succeeded; 4]);

    for crashed in [false, true] {
        if crashed {
            calls = open(&log, options(), now);
        }
        assert_eq!(tellers(&calls).len(), 3);
        assert_eq!(calls.get(id(0)).unwrap().callback, None);
        for number in 1..4 {
            let teller = telling(&calls, id(number));
            assert_eq!(
                (teller.tells, teller.callback),
                (Some(id(number)), None),
                "chains end"
            );
            assert_eq!(calls.told_to(teller.id).unwrap().as_deref(), callback(number));
            assert_eq!(calls.told_to(id(number)).unwrap().as_deref(), callback(number));
            let told = calls.request(teller.id).unwrap();
            assert_eq!(told.is_delivery(), number > 1);
            assert_eq!((told.method.as_str(), &told.body[..]), ("POST", &b"made"[..]));
            assert_eq!(header(&told, "X-Call-Id"), Some(&*id(number).to_string()));
            assert_eq!(header(&told, "X-Call-Status"), Some("succeeded"));
            assert_eq!(header(&told, "X-Function-Status"), Some("200"));
            assert_eq!(header(&told, "X-Duration-Seconds"), Some("0.250000"));
        }
        assert_eq!(
            calls.due(now, 9),
            [telling(&calls, id(1)).id],
            "a function, as any call"
        );
        assert_eq!(calls.deliveries(now).len(), 2);
        assert_eq!(calls.next_delivery(), Some(now));
    }
    // A function that is told is no different from one that was asked.
    let attempt = calls.begin(&calls.due(now, 9), now).unwrap().remove(0);
    assert_eq!(attempt.request.function.to_string(), "shop.next");
    assert_eq!(attempt.request.target, "/function/shop.next/a?b=c");
    calls.finish(&[succeeded(&attempt, b"thanks")], now).unwrap();
    assert_eq!(calls.result(attempt.id).unwrap().unwrap().body, b"thanks"[..]);
    assert_eq!(calls.due(now, 9), []);
}

#[test]
fn a_dead_letter_is_told_too_and_so_is_what_its_retry_comes_to() {
    let log = Arc::new(Memory::default());
    let mut now = Timestamp(5_000);
    let mut calls = open(&log, options(), now);
    let (fails, ages, kills) = (id(2), id(6), id(10));
    for number in [2, 6, 10] {
        calls.submit(id(number), &request(number, 10), now).unwrap();
    }
    let attempts = calls.begin(&[fails], now).unwrap();
    let verdict = calls.finish(&[failed(&attempts[0], false)], now).unwrap();
    assert_eq!(verdict, [Verdict::Dead(Cause::Final)]);
    let first = telling(&calls, fails).id;
    let told = calls.request(first).unwrap();
    assert_eq!(header(&told, "X-Call-Status"), Some("dead"));
    assert_eq!(header(&told, "Content-Type"), Some("application/problem+json"));
    let text = String::from_utf8(told.body.to_vec()).unwrap();
    assert!(
        text.contains("call-dead") && text.contains("it fell over"),
        "{text}"
    );

    // It takes the node down twice, and is not asked a third time.
    for _ in 0..2 {
        assert_eq!(calls.begin(&[kills], now).unwrap().len(), 1);
        calls = open(&log, options(), now);
    }
    assert_eq!(calls.begin(&[kills], now).unwrap(), []);
    let told = calls.request(telling(&calls, kills).id).unwrap();
    assert_eq!(
        header(&told, "X-Duration-Seconds"),
        None,
        "no attempt has led to this"
    );

    calls.retry(fails, now).unwrap();
    assert_eq!(
        calls.get(fails).unwrap().callback.unwrap().id,
        None,
        "it has no outcome now"
    );
    let attempts = calls.begin(&[fails], now).unwrap();
    calls.finish(&[succeeded(&attempts[0], b"at last")], now).unwrap();
    let second = telling(&calls, fails).id;
    assert_ne!(first, second);
    assert_eq!(calls.request(second).unwrap().body, b"at last"[..]);

    now = now.after(HOUR + Duration::from_secs(1));
    assert_eq!(calls.begin(&[ages], now).unwrap(), []);
    assert!(telling(&calls, ages).state.is_pending());
}

#[test]
fn a_delivery_is_tried_again_and_ends_as_a_dead_letter_that_can_be_retried() {
    let log = Arc::new(Memory::default());
    let mut now = Timestamp(5_000);
    let mut calls = open(&log, options(), now);
    calls.submit(id(2), &request(2, 10), now).unwrap();
    let attempts = calls.begin(&[id(2)], now).unwrap();
    calls.finish(&[succeeded(&attempts[0], b"made")], now).unwrap();
    let teller = telling(&calls, id(2)).id;
    // A node that ends again and again is not the server's fault, and no failure of the delivery.
    for _ in 0..5 {
        assert_eq!(calls.begin(&calls.deliveries(now), now).unwrap().len(), 1);
        calls = open(&log, options(), now);
    }
    for number in 1..=3 {
        let attempt = calls.begin(&calls.deliveries(now), now).unwrap().remove(0);
        assert!(calls.deliveries(now).is_empty() && calls.next_delivery().is_none());
        match calls.finish(&[failed(&attempt, true)], now).unwrap()[..] {
            [Verdict::RetryAt(due)] if number < 3 => {
                assert_eq!(
                    (calls.deliveries(now), calls.next_delivery()),
                    (Vec::new(), Some(due))
                );
                now = due;
            }
            [Verdict::Dead(Cause::Attempts)] if number == 3 => {}
            ref other => panic!("{number}: {other:?}"),
        }
    }
    assert!(matches!(telling(&calls, id(2)).state, State::Dead { .. }));
    assert_eq!(calls.dead_letters(None, 9).len(), 1);
    assert_eq!(tellers(&calls).len(), 1, "nobody is told that nobody was told");
    calls.retry(teller, now).unwrap();
    let attempt = calls.begin(&calls.deliveries(now), now).unwrap().remove(0);
    assert_eq!(attempt.request.body, b"made"[..]);
    calls.finish(&[succeeded(&attempt, b"")], now).unwrap();
    assert!(matches!(telling(&calls, id(2)).state, State::Succeeded { .. }));
}

#[test]
fn a_server_that_hangs_holds_back_neither_others_nor_calls() {
    let log = Arc::new(Memory::default());
    let now = Timestamp(5_000);
    let many = Options {
        pending: 1_000,
        ..options()
    };
    let calls = open(&log, many, now);
    // 100 for the first server, and behind them 3 for the second.
    let numbers = (0..100).map(|n| 4 * n + 2).chain((0..3).map(|n| 4 * n + 3));
    for number in numbers {
        calls.submit(id(number), &request(number, 10), now).unwrap();
        let attempts = calls.begin(&[id(number)], now).unwrap();
        calls.finish(&[succeeded(&attempts[0], b"made")], now).unwrap();
    }
    calls.submit(id(0), &request(0, 10), now).unwrap();
    assert_eq!(calls.due(now, 999), [id(0)], "deliveries are not among the calls");
    let begun = calls.begin(&calls.deliveries(now), now).unwrap();
    let to = |server: &str| begun.iter().filter(|a| a.request.target.contains(server)).count();
    assert_eq!((to("one.org"), to("two.org")), (8, 3));
    assert!(calls.deliveries(now).is_empty() && calls.next_delivery().is_none());
    // It answers one: it gets one more.
    let slow = begun
        .iter()
        .find(|a| a.request.target.contains("one.org"))
        .unwrap();
    calls.finish(&[succeeded(slow, b"")], now).unwrap();
    assert_eq!(calls.next_delivery(), Some(now));
    assert_eq!(calls.begin(&calls.deliveries(now), now).unwrap().len(), 1);
}

#[test]
fn all_deliveries_together_are_bounded_in_number_and_bytes() {
    let now = Timestamp(5_000);
    let many = Options {
        pending: 10_000,
        ..options()
    };
    let large = vec![1; 3 << 20].leak();
    for (body, all, one) in [(&b"small"[..], 64, 8), (&*large, 20, 2)] {
        let log = Arc::new(Memory::default());
        let calls = open(&log, many.clone(), now);
        for number in 0..200 {
            let request = Request {
                callback: Some(format!("http://s{}.org/", number % 20).parse().unwrap()),
                ..request(0, 1)
            };
            calls.submit(id(number), &request, now).unwrap();
            let attempts = calls.begin(&[id(number)], now).unwrap();
            calls.finish(&[succeeded(&attempts[0], body)], now).unwrap();
        }
        let begun = calls.begin(&calls.deliveries(now), now).unwrap();
        assert!(calls.deliveries(now).is_empty() && calls.next_delivery().is_none());
        assert!((all - 4..=all + 1).contains(&begun.len()), "{}", begun.len());
        let mut each = BTreeMap::<_, usize>::new();
        begun
            .iter()
            .for_each(|a| *each.entry(a.request.target.clone()).or_default() += 1);
        assert!(each.values().all(|count| *count <= one), "{each:?}");
    }
}

#[test]
fn what_waits_for_one_server_is_bounded() {
    let log = Arc::new(Memory::default());
    let now = Timestamp(5_000);
    let few = Options {
        pending: 8,
        pending_bytes: 20_000,
        ..options()
    };
    let calls = open(&log, few, now);
    let submit = |number| calls.submit(id(number), &request(number, 10), now);
    for number in [2, 6, 10, 14] {
        submit(number).unwrap();
    }
    assert!(matches!(
        submit(18),
        Err(SubmitError::Untold { server, limit: 4 }) if server == "http://one.org"
    ));
    submit(3).unwrap();
    submit(0).unwrap();
    // A half of the bytes is the server's share: what is beyond it is told without its body.
    let attempts = calls.begin(&calls.due(now, 9), now).unwrap();
    for attempt in &attempts {
        calls.finish(&[succeeded(attempt, &[b'x'; 3000])], now).unwrap();
    }
    let bodies: Vec<_> = [2, 6, 10, 14]
        .map(|number| calls.request(telling(&calls, id(number)).id).unwrap())
        .iter()
        .map(|told| (told.body.len(), header(told, "X-Call-Omitted").map(str::to_owned)))
        .collect();
    let kept = bodies.iter().filter(|told| **told == (3000, None)).count();
    let omitted = (0, Some("3000".to_owned()));
    assert_eq!(
        bodies.iter().filter(|told| **told == omitted).count(),
        4 - kept,
        "{bodies:?}"
    );
    assert!((1..=3).contains(&kept), "{bodies:?}");
    // Deliveries count, too, until they have ended.
    assert!(matches!(submit(18), Err(SubmitError::Untold { .. })));
    let begun = calls.begin(&calls.deliveries(now), now).unwrap();
    let ended: Vec<_> = begun.iter().map(|attempt| succeeded(attempt, b"")).collect();
    calls.finish(&ended, now).unwrap();
    submit(18).unwrap();
}

#[test]
fn a_function_is_not_told_half_of_an_answer() {
    let log = Arc::new(Memory::default());
    let mut now = Timestamp(5_000);
    let little = Options {
        pending_bytes: 4_000,
        ..options()
    };
    let calls = open(&log, little, now);
    calls.submit(id(1), &request(1, 10), now).unwrap();
    calls.submit(id(0), &request(0, 2_000), now).unwrap();
    let attempts = calls.begin(&[id(1)], now).unwrap();
    let verdicts = calls
        .finish(&[succeeded(&attempts[0], &[b'x'; 3000])], now)
        .unwrap();
    let [Verdict::RetryAt(due)] = verdicts[..] else {
        panic!("there is no room for the callback: {verdicts:?}");
    };
    assert!(calls.get(id(1)).unwrap().reason.unwrap().contains("callback"));
    let other = calls.begin(&[id(0)], now).unwrap();
    calls.finish(&[succeeded(&other[0], b"")], now).unwrap();
    now = due;
    let attempts = calls.begin(&[id(1)], now).unwrap();
    calls
        .finish(&[succeeded(&attempts[0], &[b'x'; 3000])], now)
        .unwrap();
    assert_eq!(calls.request(telling(&calls, id(1)).id).unwrap().body.len(), 3000);
}

#[derive(Clone, Debug)]
enum Step {
    Submit,
    Run,
    Deliver,
    Succeed,
    Fail { retry: bool },
    Wait { milliseconds: u64 },
    Maintain,
    Crash,
    Power { changes: u32 },
    Retry,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Submit),
        5 => Just(Step::Run),
        4 => Just(Step::Deliver),
        5 => Just(Step::Succeed),
        4 => prop::bool::weighted(0.6).prop_map(|retry| Step::Fail { retry }),
        3 => (0..400_000_u64).prop_map(|milliseconds| Step::Wait { milliseconds }),
        2 => Just(Step::Maintain),
        2 => Just(Step::Crash),
        1 => (0..4_u32).prop_map(|changes| Step::Power { changes }),
        1 => Just(Step::Retry),
    ]
}

/// All that is so at any time.
fn check(calls: &Calls) {
    for call in calls.list(Kind::All, None, 10_000) {
        let Some(telling) = call.callback else { continue };
        assert_eq!(call.tells, None, "a callback has none");
        match telling.id {
            Some(teller) => {
                assert!(!call.state.is_pending());
                let teller = calls
                    .get(teller)
                    .expect("an outcome is never without who tells it");
                assert_eq!(teller.tells, Some(call.id));
            }
            None => assert!(call.state.is_pending()),
        }
    }
}

fn play(steps: Vec<Step>) {
    let log = Arc::new(Memory::default());
    let mut now = Timestamp(1_000_000);
    // Nothing is forgotten, so that what is missing was lost.
    let kept = Options {
        retention: Duration::from_hours(10_000),
        dead_letter_retention: Duration::from_hours(10_000),
        pending: 1_000,
        interruptions: 1_000,
        ..options()
    };
    let mut calls = open(&log, kept.clone(), now);
    let mut running: Vec<Attempt> = Vec::new();
    let mut next = 0;
    let mut retried = BTreeSet::new();
    for step in steps {
        match step {
            Step::Submit => {
                next += 1;
                let _ = calls.submit(id(next), &request(next, 40), now);
            }
            Step::Run => running.extend(calls.begin(&calls.due(now, 3), now).unwrap_or_default()),
            Step::Deliver => {
                let begun = calls.begin(&calls.deliveries(now), now).unwrap_or_default();
                assert!(begun.iter().all(|attempt| attempt.request.is_delivery()));
                running.extend(begun);
            }
            Step::Succeed | Step::Fail { .. } => {
                let Some(attempt) = running.pop() else { continue };
                let ended = match step {
                    Step::Fail { retry } => failed(&attempt, retry),
                    _ => succeeded(&attempt, b"made"),
                };
                if calls.finish(&[ended], now).is_err() {
                    running.push(attempt);
                }
            }
            Step::Wait { milliseconds } => now.0 += milliseconds,
            Step::Maintain => drop(calls.maintain(now)),
            Step::Crash => {
                drop(calls);
                log.power(None);
                running.clear();
                calls = open(&log, kept.clone(), now);
            }
            Step::Power { changes } => log.power(Some(changes)),
            Step::Retry => {
                if let Some(call) = calls.dead_letters(None, 1).pop()
                    && calls.retry(call.id, now).is_ok()
                {
                    retried.insert(call.id);
                }
            }
        }
        check(&calls);
    }

    // In the end everybody has heard of everything, though the node ends once more.
    drop(calls);
    log.power(None);
    let calls = open(&log, kept, now);
    for _ in 0..1_000 {
        let due = [calls.due(now, 1_000), calls.deliveries(now)].concat();
        let begun = calls.begin(&due, now).unwrap();
        let ended: Vec<_> = begun.iter().map(|attempt| succeeded(attempt, b"made")).collect();
        calls.finish(&ended, now).unwrap();
        check(&calls);
        match [calls.next_due(), calls.next_delivery()]
            .into_iter()
            .flatten()
            .min()
        {
            Some(due) => now = now.max(due),
            None => break,
        }
    }
    assert_eq!(calls.counts().pending, 0);
    let mut told = BTreeMap::<_, u32>::new();
    for (_, of) in tellers(&calls) {
        *told.entry(of).or_default() += 1;
    }
    for call in calls.list(Kind::All, None, 10_000) {
        let count = told.get(&call.id).copied().unwrap_or_default();
        match call.callback {
            Some(_) if retried.contains(&call.id) => assert!(count >= 1),
            Some(_) => assert_eq!(count, 1, "{call:?}"),
            None => assert_eq!(count, 0, "{call:?}"),
        }
    }
    // And once nothing is kept any more, nothing is left of it.
    now = now.after(Duration::from_hours(20_000));
    calls.maintain(now).unwrap();
    let extent = log.extent("calls").unwrap();
    assert_eq!((extent.bytes, extent.first), (0, extent.end));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn nobody_is_forgotten_and_nobody_is_told_twice(steps in prop::collection::vec(step(), 1..150)) {
        play(steps);
    }
}
