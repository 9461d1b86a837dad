//! Whatever requests come to whatever cores under whatever limits: each is answered once, as its script says.

mod harness;

use harness::{Act, Cluster, End, Options, Outcome, Script};
use proptest::prelude::*;
use std::{collections::HashMap, sync::atomic::Ordering, time::Duration};

/// `MILLPOND_TEST_LONG` multiplies the cases.
fn cases() -> u32 {
    if std::env::var_os("MILLPOND_TEST_LONG").is_some() {
        2_000
    } else {
        60
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0u64..200).prop_map(|us| Act::Compute(Duration::from_micros(us))),
        2 => (0u64..1500).prop_map(|us| Act::Sleep(Duration::from_micros(us))),
        2 => Just(Act::WokenBefore),
        2 => Just(Act::WokenAfter),
        1 => Just(Act::Spin),
    ]
}

fn script() -> impl Strategy<Value = Script> {
    let end = prop_oneof![8 => Just(End::Done), 1 => Just(End::Fault), 1 => Just(End::Unspawned)];
    (prop::collection::vec(act(), 0..4), end).prop_map(|(acts, end)| Script { acts, end })
}

fn function() -> impl Strategy<Value = (Options, bool)> {
    (
        1u32..5,
        0u32..30,
        1u32..4,
        any::<bool>(),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(concurrency, queue, reuse, renews, cold)| {
            (
                Options {
                    concurrency,
                    queue,
                    reuse,
                    renews,
                    ..Options::default()
                },
                cold,
            )
        })
}

#[derive(Debug, Clone)]
struct Plan {
    cores: u16,
    places: u32,
    functions: Vec<(Options, bool)>,
    /// Batches: to which core, and which function and script each.
    batches: Vec<(usize, Vec<(usize, Script)>)>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let batch = (0usize..3, prop::collection::vec((0usize..3, script()), 1..12));
    (
        1u16..=3,
        1u32..8,
        prop::collection::vec(function(), 3),
        prop::collection::vec(batch, 1..8),
    )
        .prop_map(|(cores, places, functions, batches)| Plan {
            cores,
            places,
            functions,
            batches,
        })
}

fn follow(plan: &Plan) -> Result<(), TestCaseError> {
    let cluster = Cluster::new("a plan", plan.cores, plan.places);
    let functions: Vec<_> = plan
        .functions
        .iter()
        .map(|(options, cold)| match cold {
            true => cluster.functions.cold(options.clone(), Box::new(|| Ok(()))),
            false => cluster.functions.make(options.clone()),
        })
        .collect();
    let mut expected = HashMap::new();
    let mut requests = vec![0usize; functions.len()];
    for (core, batch) in &plan.batches {
        let all = batch
            .iter()
            .map(|(f, script)| (functions[*f].clone(), script.clone(), Duration::ZERO))
            .collect();
        let ids = cluster.client.submit_all(core % usize::from(plan.cores), all);
        for (id, (f, script)) in ids.into_iter().zip(batch) {
            expected.insert(id, (*f, script.end));
            requests[*f] += 1;
        }
    }
    let mut ends = cluster.client.take(expected.len());
    ends.extend(cluster.drain());
    prop_assert_eq!(ends.len(), expected.len(), "each is answered once");
    for end in ends {
        let (f, told) = expected.remove(&end.id).expect("each is answered once");
        let fits = match &end.outcome {
            // A sandbox that is there already need not be spawned.
            Outcome::Done => told == End::Done || (told == End::Unspawned && plan.functions[f].0.reuse > 1),
            Outcome::Fault(_) => told == End::Fault,
            Outcome::Platform(_) => told == End::Unspawned,
            Outcome::Refused(_) => {
                let Options {
                    concurrency, queue, ..
                } = &plan.functions[f].0;
                requests[f] > (concurrency + queue) as usize
            }
        };
        prop_assert!(fits, "{:?} though it was told {:?}", end.outcome, told);
    }
    for (function, (options, _)) in functions.iter().zip(&plan.functions) {
        let most = function.gauge.most.load(Ordering::SeqCst);
        prop_assert!(
            most <= options.concurrency,
            "{} at once, of {}",
            most,
            options.concurrency
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_is_answered_once(plan in plan()) {
        follow(&plan)?;
    }
}
