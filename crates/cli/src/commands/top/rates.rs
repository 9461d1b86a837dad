//! What happened between two readings of a node's counters: rates, and percentiles of that time alone.

use admin::wire::{CoreCounters, Counters, FunctionCounters, NodeCounters, Times};
use contract::Name;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    ops::{AddAssign, Sub},
};

/// The node's own tenant, where the tenants of a node are listed.
pub(super) const DEFAULT: &str = "(default)";

/// What happened in a time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Interval {
    /// When it ended.
    pub(super) time: String,
    /// How long it was.
    pub(super) seconds: f64,
    /// It began when the node did.
    pub(super) since_start: bool,
    /// Of the node; none for a tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<Node>,
    /// By name; none on a node where all is the node's own, and for a tenant.
    pub(super) tenants: Vec<Row>,
    /// By name.
    pub(super) functions: Vec<Row>,
}

/// A node in a time. Rates are for each second, gauges those of its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Node {
    /// The share of the time in which each core was not asleep, 0 to 1.
    pub(super) busy: Vec<f64>,
    pub(super) sandboxes: i64,
    pub(super) parked: i64,
    pub(super) runnable: i64,
    pub(super) connections: i64,
    /// Bytes.
    pub(super) resident: Option<u64>,
    pub(super) requests: f64,
    pub(super) rejected: f64,
    pub(super) preemptions: f64,
    pub(super) steals: f64,
}

/// A function or a tenant in a time. Rates are for each second, times in seconds, gauges those of its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    /// Invocations that ended, but for those refused.
    pub(super) rate: f64,
    /// Of these, those that failed.
    pub(super) failed: f64,
    pub(super) refused: f64,
    /// Cores that they had.
    pub(super) cpu: f64,
    pub(super) running: u64,
    pub(super) queued: u64,
    pub(super) preemptions: f64,
    pub(super) steals: f64,
    pub(super) queue: Percentiles,
    pub(super) run: Percentiles,
    pub(super) total: Percentiles,
}

/// Of a distribution; none if nothing ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
}

impl Interval {
    /// What happened between two readings; since the node's start where there is no earlier one, or the node was started
    /// between them.
    pub(super) fn between(before: Option<&Counters>, after: &Counters) -> Self {
        let before = before.filter(|before| before.started == after.started);
        let begun = before.map_or(0.0, |before| before.uptime);
        // Never 0, which no rate could be divided by.
        let seconds = (after.uptime - begun).max(1e-6);
        let known: BTreeMap<_, _> = before
            .iter()
            .flat_map(|before| &before.functions)
            .map(|function| (&function.function, function))
            .collect();
        let mut tenants: BTreeMap<Option<&Name>, Work> = BTreeMap::new();
        let mut functions = Vec::new();
        for function in &after.functions {
            let work = Work::between(known.get(&function.function).copied(), function);
            functions.push(work.row(function.function.to_string(), seconds, &after.bounds));
            *tenants.entry(function.function.tenant()).or_default() += &work;
        }
        // Who sees no more than one sees it in the functions.
        let are_shared = after.node.is_some() && tenants.keys().any(Option::is_some);
        let tenants = tenants.iter().filter(|_| are_shared).map(|(tenant, work)| {
            let name = tenant.map_or(DEFAULT.to_owned(), Name::to_string);
            work.row(name, seconds, &after.bounds)
        });
        Self {
            time: after.time.clone(),
            seconds,
            since_start: before.is_none(),
            node: after
                .node
                .as_ref()
                .map(|node| Node::between(before.and_then(|before| before.node.as_ref()), node, seconds)),
            tenants: tenants.collect(),
            functions,
        }
    }
}

impl Node {
    fn between(before: Option<&NodeCounters>, after: &NodeCounters, seconds: f64) -> Self {
        let none = NodeCounters::default();
        let before = before.unwrap_or(&none);
        let gauge = |of: fn(&CoreCounters) -> i64| after.cores.iter().map(of).fold(0, i64::saturating_add);
        let rate = |of: fn(&CoreCounters) -> u64| {
            let all = |node: &NodeCounters| sum(node.cores.iter().map(of));
            since(all(before), all(after)) as f64 / seconds
        };
        let begun = |core: usize| before.cores.get(core).map_or(0.0, |core| core.busy);
        let busy = after.cores.iter().enumerate();
        Self {
            // A core that is busy all the time may be read a turn later than the clock.
            busy: busy
                .map(|(n, core)| (since(begun(n), core.busy) / seconds).min(1.0))
                .collect(),
            sandboxes: gauge(|core| core.sandboxes),
            parked: gauge(|core| core.parked),
            runnable: gauge(|core| core.runnable),
            connections: gauge(|core| core.connections),
            resident: after.resident,
            requests: rate(|core| core.requests),
            rejected: rate(|core| core.rejected),
            preemptions: rate(|core| core.preemptions),
            steals: rate(|core| core.steals),
        }
    }
}

/// How far a counter came. One that is lower than before began again.
fn since<N: PartialOrd + Sub<Output = N>>(before: N, after: N) -> N {
    if after < before { after } else { after - before }
}

/// The sum of what a node said, however large that is.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// What was counted between two readings.
#[derive(Debug, Default)]
struct Work {
    succeeded: u64,
    failed: u64,
    refused: u64,
    running: u64,
    queued: u64,
    preemptions: u64,
    steals: u64,
    cpu: f64,
    queue: Vec<u64>,
    run: Vec<u64>,
    total: Vec<u64>,
}

impl AddAssign<&Self> for Work {
    fn add_assign(&mut self, other: &Self) {
        for (into, from) in [
            (&mut self.succeeded, other.succeeded),
            (&mut self.failed, other.failed),
            (&mut self.refused, other.refused),
            (&mut self.running, other.running),
            (&mut self.queued, other.queued),
            (&mut self.preemptions, other.preemptions),
            (&mut self.steals, other.steals),
        ] {
            *into = into.saturating_add(from);
        }
        self.cpu += other.cpu;
        for (into, from) in [
            (&mut self.queue, &other.queue),
            (&mut self.run, &other.run),
            (&mut self.total, &other.total),
        ] {
            into.resize(into.len().max(from.len()), 0);
            for (into, from) in into.iter_mut().zip(from) {
                *into = into.saturating_add(*from);
            }
        }
    }
}

impl Work {
    fn between(before: Option<&FunctionCounters>, after: &FunctionCounters) -> Self {
        let all = |function: &FunctionCounters| {
            sum(function.failed.values().copied()).saturating_add(function.succeeded)
        };
        // A function that was deleted and came back began at 0, in all its numbers at once.
        let before = before.filter(|before| all(before) <= all(after) && before.cpu <= after.cpu);
        let count = |of: fn(&FunctionCounters) -> u64| since(before.map_or(0, of), of(after));
        let failed = |refused: bool| {
            let kinds = after
                .failed
                .iter()
                .filter(|(kind, _)| (*kind == "refused") == refused);
            sum(kinds.map(|(kind, count)| {
                let begun = before.and_then(|before| before.failed.get(kind));
                since(begun.copied().unwrap_or(0), *count)
            }))
        };
        let times = |of: fn(&FunctionCounters) -> &Times| {
            let begun = before
                .map(|before| of(before).counts.as_slice())
                .unwrap_or_default();
            let counts = of(after).counts.iter().enumerate();
            counts
                .map(|(n, count)| since(begun.get(n).copied().unwrap_or(0), *count))
                .collect()
        };
        Self {
            succeeded: count(|function| function.succeeded),
            failed: failed(false),
            refused: failed(true),
            running: after.running,
            queued: after.queued,
            preemptions: count(|function| function.preemptions),
            steals: count(|function| function.steals),
            cpu: since(before.map_or(0.0, |before| before.cpu), after.cpu),
            queue: times(|function| &function.queue),
            run: times(|function| &function.run),
            total: times(|function| &function.total),
        }
    }

    fn row(&self, name: String, seconds: f64, bounds: &[f64]) -> Row {
        let rate = |count: u64| count as f64 / seconds;
        let percentiles = |counts: &[u64]| Percentiles {
            p50: quantile(bounds, counts, 0.5),
            p99: quantile(bounds, counts, 0.99),
        };
        Row {
            name,
            rate: rate(self.succeeded.saturating_add(self.failed)),
            failed: rate(self.failed),
            refused: rate(self.refused),
            cpu: self.cpu / seconds,
            running: self.running,
            queued: self.queued,
            preemptions: rate(self.preemptions),
            steals: rate(self.steals),
            queue: percentiles(&self.queue),
            run: percentiles(&self.run),
            total: percentiles(&self.total),
        }
    }
}

/// A quantile by the buckets, which hold values up to their bound, the last without one: as Prometheus' `histogram_quantile`
/// has it, evenly within a bucket, and the last bound for what lies beyond it.
fn quantile(bounds: &[f64], counts: &[u64], quantile: f64) -> Option<f64> {
    let all = sum(counts.iter().copied());
    if all == 0 {
        return None;
    }
    let rank = quantile * all as f64;
    let (mut below, mut from) = (0.0, 0.0);
    for (bound, count) in bounds.iter().zip(counts) {
        let count = *count as f64;
        if count > 0.0 && below + count >= rank {
            return Some(from + (bound - from) * (rank - below) / count);
        }
        below += count;
        from = *bound;
    }
    bounds.last().copied()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const BOUNDS: [f64; 4] = [0.001, 0.002, 0.005, 0.01];

    pub(in super::super) fn counters(uptime: f64, functions: Vec<FunctionCounters>) -> Counters {
        Counters {
            time: format!("2026-11-21T08:00:{uptime:02}.000Z"),
            started: "2026-11-21T08:00:00.000Z".to_owned(),
            uptime,
            bounds: BOUNDS.to_vec(),
            node: Some(NodeCounters {
                resident: Some(64 << 20),
                cores: vec![CoreCounters {
                    busy: uptime / 2.0,
                    connections: 3,
                    sandboxes: 5,
                    parked: 4,
                    runnable: 1,
                    requests: uptime as u64 * 100,
                    ..CoreCounters::default()
                }],
            }),
            functions,
        }
    }

    /// `n` invocations of 1 to 2 ms, one of which failed, one more refused.
    pub(in super::super) fn function(name: &str, n: u64) -> FunctionCounters {
        let times = || Times {
            counts: vec![0, n, 0, 0, 0],
            sum: n as f64 * 0.0015,
        };
        FunctionCounters {
            function: name.parse().unwrap(),
            succeeded: n.saturating_sub(1),
            failed: [
                ("function".to_owned(), n.min(1)),
                ("refused".to_owned(), n.min(1)),
            ]
            .into(),
            running: 2,
            queued: 1,
            preemptions: n / 10,
            steals: n / 20,
            cpu: n as f64 / 1000.0,
            queue: times(),
            run: times(),
            total: times(),
        }
    }

    #[test]
    fn a_quantile_lies_within_its_bucket() {
        let of = |counts: &[u64], q| quantile(&BOUNDS, counts, q);
        assert_eq!(of(&[], 0.5), None);
        assert_eq!(of(&[0, 0, 0, 0, 0], 0.5), None);
        // Half of one bucket, evenly.
        assert_eq!(of(&[0, 10, 0, 0, 0], 0.5), Some(0.0015));
        assert_eq!(of(&[10, 0, 0, 0, 0], 0.5), Some(0.0005));
        // Empty buckets in between have nothing of it.
        assert_eq!(of(&[50, 0, 0, 50, 0], 0.5), Some(0.001));
        let p99 = of(&[98, 0, 0, 2, 0], 0.99).unwrap();
        assert!((p99 - 0.0075).abs() < 1e-9, "{p99}");
        // Beyond all bounds nothing more is known.
        assert_eq!(of(&[0, 0, 0, 0, 7], 0.5), Some(0.01));
        // A node that says less or more than it promised.
        assert_eq!(quantile(&[], &[3], 0.5), None);
        assert_eq!(of(&[0, 1], 1.0), Some(0.002));
    }

    #[test]
    fn rates_and_percentiles_are_those_of_the_interval_alone() {
        let mut slow = function("a.f", 1000);
        let before = counters(10.0, vec![slow.clone()]);
        // In two seconds 40 that took 2 to 5 ms; those before were faster.
        slow.succeeded += 30;
        slow.failed.insert("platform".to_owned(), 10);
        slow.failed.insert("refused".to_owned(), 5);
        slow.total.counts[2] += 40;
        slow.preemptions += 6;
        slow.steals += 2;
        slow.cpu += 0.5;
        let row = &Interval::between(Some(&before), &counters(12.0, vec![slow])).functions[0];
        assert_eq!((row.rate, row.failed, row.refused), (20.0, 5.0, 2.0));
        assert_eq!((row.preemptions, row.steals), (3.0, 1.0));
        assert!((row.cpu - 0.25).abs() < 1e-9);
        assert_eq!(row.total.p50, Some(0.0035));
        assert_eq!(row.run, Percentiles::default());
        assert_eq!((row.running, row.queued), (2, 1));
    }

    #[test]
    fn the_first_interval_began_with_the_node() {
        let first = Interval::between(None, &counters(10.0, vec![function("a.f", 100)]));
        assert!(first.since_start);
        assert_eq!((first.seconds, first.functions[0].rate), (10.0, 10.0));
        let node = first.node.unwrap();
        assert_eq!((node.busy.as_slice(), node.requests), (&[0.5][..], 100.0));
        assert_eq!(
            (node.sandboxes, node.parked, node.runnable, node.connections),
            (5, 4, 1, 3)
        );
    }

    #[test]
    fn what_began_again_is_counted_from_zero() {
        let before = counters(10.0, vec![function("a.f", 1000), function("a.gone", 10)]);
        // Deleted and deployed anew: fewer than before, though some bucket may hold more.
        let mut anew = function("a.f", 4);
        anew.total.counts = vec![0, 0, 4, 0, 0];
        let interval = Interval::between(Some(&before), &counters(12.0, vec![anew, function("a.new", 6)]));
        let rates: Vec<_> = interval
            .functions
            .iter()
            .map(|row| (row.name.as_str(), row.rate))
            .collect();
        assert_eq!(rates, [("a.f", 2.0), ("a.new", 3.0)]);
        assert_eq!(interval.functions[0].total.p50, Some(0.0035));
        // A node that was started again.
        let after = Counters {
            started: "2026-11-21T09:00:00.000Z".to_owned(),
            ..counters(4.0, vec![function("a.f", 2000)])
        };
        let interval = Interval::between(Some(&before), &after);
        assert!(interval.since_start);
        assert_eq!((interval.seconds, interval.functions[0].rate), (4.0, 500.0));
    }

    #[test]
    fn tenants_are_the_sums_of_their_functions() {
        let names = ["a.f", "acme/a.f", "acme/a.g"];
        let functions = |n| names.iter().map(|name| function(name, n)).collect::<Vec<_>>();
        let before = counters(1.0, functions(100));
        let interval = Interval::between(Some(&before), &counters(2.0, functions(150)));
        let rates: Vec<_> = interval
            .tenants
            .iter()
            .map(|row| (row.name.as_str(), row.rate))
            .collect();
        assert_eq!(rates, [(DEFAULT, 50.0), ("acme", 100.0)]);
        assert_eq!((interval.tenants[1].running, interval.tenants[1].queued), (4, 2));
        assert_eq!(interval.tenants[1].total, interval.functions[1].total);
        // Without tenants there is nothing to add up, nor for a tenant itself.
        let alone = Interval::between(None, &counters(1.0, vec![function("a.f", 1)]));
        assert_eq!(alone.tenants, []);
        let own = Counters {
            node: None,
            ..counters(2.0, vec![function("a.f", 1)])
        };
        let own = Interval::between(None, &own);
        assert_eq!((own.node, own.tenants.len()), (None, 0));
    }

    #[test]
    fn two_readings_at_once_divide_by_nothing() {
        let one = counters(10.0, vec![function("a.f", 100)]);
        let row = &Interval::between(Some(&one), &one).functions[0];
        assert_eq!((row.rate, row.total.p99), (0.0, None));
    }
}
