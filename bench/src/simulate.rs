//! Scheduling policies in the simulated worker ([`policy::simulation`]), over arrivals of known kinds.
//!
//! What is asked is who has to wait and for how long: the *slowdown* of a request is its time from arrival to end over the
//! time that it runs. A policy is told of a request's length what a node would know: the mean of its function.

use anyhow::Result;
use clap::Args;
use contract::{Party, Policy, Time};
use policy::{
    Kind, QUANTUM,
    simulation::{self, Arrival, Costs, Outcome},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rand_distr::{Distribution, Exp, LogNormal, Pareto, Zipf};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

#[derive(Args)]
pub(crate) struct Options {
    /// Everything that is drawn by lot follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests of each kind of arrivals.
    #[arg(long, default_value_t = 200_000)]
    requests: usize,
    /// The part of its time that the core is busy.
    #[arg(long, default_value_t = 0.7)]
    load: f64,
}

/// What a worker's own work is taken to cost: of the magnitude that `make bench-node` shows, not a measurement.
const COSTS: Costs = Costs {
    request: Duration::from_micros(3),
    turn: Duration::from_micros(1),
    notice: Some(Duration::from_micros(20)),
    queue: None,
};

/// One request's function, and how long it runs, in seconds.
struct Drawn {
    function: usize,
    length: f64,
}

/// For each percentile, in hundredths of a percent.
type Slowdowns = BTreeMap<u32, f64>;

#[derive(Serialize)]
pub(crate) struct Report {
    /// By kind of arrivals, policy, and "all" or the tenth of the shortest.
    slowdown: BTreeMap<&'static str, BTreeMap<&'static str, BTreeMap<&'static str, Slowdowns>>>,
}

pub(crate) fn run(options: &Options) -> Result<Report> {
    let mut slowdown = BTreeMap::new();
    for (name, draw) in [
        ("bimodal", bimodal as fn(&mut StdRng, usize) -> Result<Vec<Drawn>>),
        ("lognormal", lognormal),
        ("pareto", pareto),
        ("bursts", bimodal),
        ("mix", mix),
    ] {
        let mut random = StdRng::seed_from_u64(options.seed);
        let drawn = draw(&mut random, options.requests)?;
        let arrivals = arrive(&mut random, &drawn, options.load, name == "bursts")?;
        slowdown.insert(name, by_policy(&arrivals));
    }
    Ok(Report { slowdown })
}

/// 99 of 100 requests run 0.1 ms, one 50 ms.
fn bimodal(random: &mut StdRng, requests: usize) -> Result<Vec<Drawn>> {
    let one = || {
        let long = random.random_bool(0.01);
        Drawn {
            function: long.into(),
            length: if long { 0.05 } else { 0.0001 },
        }
    };
    Ok(std::iter::repeat_with(one).take(requests).collect())
}

/// One function whose median is 1 ms, and of which one in six requests takes seven times as long, or more.
fn lognormal(random: &mut StdRng, requests: usize) -> Result<Vec<Drawn>> {
    let lengths = LogNormal::new((0.001_f64).ln(), 2.0)?;
    Ok(one_function(random, requests, |random| lengths.sample(random)))
}

/// One function with a tail so heavy that its variance is that of its longest request.
fn pareto(random: &mut StdRng, requests: usize) -> Result<Vec<Drawn>> {
    let lengths = Pareto::new(0.0001, 1.3)?;
    Ok(one_function(random, requests, |random| lengths.sample(random)))
}

fn one_function(random: &mut StdRng, requests: usize, length: impl Fn(&mut StdRng) -> f64) -> Vec<Drawn> {
    let one = || Drawn {
        function: 0,
        length: length(random).min(2.0),
    };
    std::iter::repeat_with(one).take(requests).collect()
}

/// Functions as Azure's users had them (Shahrad et al., "Serverless in the Wild", ATC 2020): their mean lengths are log-normal
/// (figure 7: location -0.38, scale 2.36, in seconds), here a thousandth of that, which is what a node for short functions is
/// for; a few are called most of the time, by Zipf's law; a function's own requests differ less.
fn mix(random: &mut StdRng, requests: usize) -> Result<Vec<Drawn>> {
    const FUNCTIONS: usize = 200;
    let (means, own) = (LogNormal::new(-0.38, 2.36)?, LogNormal::new(0.0, 0.4)?);
    let means: Vec<f64> = (0..FUNCTIONS).map(|_| means.sample(random) / 1000.0).collect();
    let popularity = Zipf::new(FUNCTIONS as f64, 1.1)?;
    let mut one = || {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is 1 to 200"
        )]
        let function = popularity.sample(random) as usize - 1;
        Drawn {
            function,
            length: (means[function] * own.sample(random)).clamp(0.000_005, 2.0),
        }
    };
    Ok(std::iter::repeat_with(&mut one).take(requests).collect())
}

/// At random times that make a core so busy; in bursts, ten times as often for a tenth of the time.
fn arrive(random: &mut StdRng, drawn: &[Drawn], load: f64, bursts: bool) -> Result<Vec<Arrival>> {
    let total: f64 = drawn.iter().map(|one| one.length).sum();
    let rate = drawn.len() as f64 * load / total;
    let means = means(drawn);
    let (mut now, mut at) = (0.0, Vec::with_capacity(drawn.len()));
    let (often, period) = (Exp::new(rate * if bursts { 10.0 } else { 1.0 })?, 0.1);
    for one in drawn {
        now += often.sample(random);
        // The clock runs in bursts only; between two of them nothing comes.
        let shown = if bursts {
            (now / (period / 10.0)).floor() * period + now % (period / 10.0)
        } else {
            now
        };
        at.push(Arrival {
            at: Time::default().after(Duration::from_secs_f64(shown)),
            length: Duration::from_secs_f64(one.length).max(Duration::from_nanos(1)),
            estimate: Duration::from_secs_f64(means[&one.function]),
            spread: Duration::ZERO,
            tenant: Party::default(),
            deadline: None,
            priority: 0,
        });
    }
    Ok(at)
}

fn means(drawn: &[Drawn]) -> BTreeMap<usize, f64> {
    let mut sums = BTreeMap::new();
    for one in drawn {
        let (sum, count) = sums.entry(one.function).or_insert((0.0, 0.0));
        *sum += one.length;
        *count += 1.0;
    }
    sums.into_iter()
        .map(|(function, (sum, count))| (function, sum / count))
        .collect()
}

fn by_policy(arrivals: &[Arrival]) -> BTreeMap<&'static str, BTreeMap<&'static str, Slowdowns>> {
    let served = |costs, policy: &dyn Fn() -> Box<dyn Policy>| slowdowns(arrivals, costs, policy);
    let all = Kind::ALL.map(|kind| match kind {
        // To the end without an interruption, as a server without preemption does.
        Kind::FirstCome => {
            let costs = Costs {
                notice: None,
                ..COSTS
            };
            (
                "first come, first served",
                served(costs, &|| kind.policy(Duration::MAX)),
            )
        }
        _ => (kind.name(), served(COSTS, &|| kind.policy(QUANTUM))),
    });
    all.into()
}

fn slowdowns(
    arrivals: &[Arrival],
    costs: Costs,
    policy: &dyn Fn() -> Box<dyn Policy>,
) -> BTreeMap<&'static str, Slowdowns> {
    let report = simulation::run(arrivals, 1, costs, policy);
    let mut lengths: Vec<_> = arrivals.iter().map(|arrival| arrival.length).collect();
    lengths.sort();
    let short = lengths[lengths.len() / 10];
    let mut all = Vec::with_capacity(arrivals.len());
    let mut of_short = Vec::new();
    for (arrival, outcome) in arrivals.iter().zip(report.outcomes) {
        let Outcome::Ended(end) = outcome else { continue };
        let slowdown = end.since(arrival.at).as_secs_f64() / arrival.length.as_secs_f64();
        all.push(slowdown);
        if arrival.length <= short {
            of_short.push(slowdown);
        }
    }
    BTreeMap::from([
        ("all", percentiles(all)),
        ("the shortest tenth", percentiles(of_short)),
    ])
}

fn percentiles(mut values: Vec<f64>) -> Slowdowns {
    values.sort_by(f64::total_cmp);
    let at = |hundredths: u32| values[(values.len() - 1) * hundredths as usize / 10_000];
    [5000, 9000, 9900, 9990]
        .map(|hundredths| (hundredths, at(hundredths)))
        .into()
}
