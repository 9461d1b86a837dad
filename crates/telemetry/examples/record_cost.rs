//! What recording one invocation costs: `cargo run --release -p millpond-telemetry --example record_cost`.

use contract::CoreId;
use millpond_telemetry::metrics::{Metrics, Outcome, Sample, Start};
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

fn main() {
    const ROUNDS: u32 = 2_000_000;
    let metrics = Metrics::new(2);
    for count in [1, 8, 64] {
        let functions: Vec<_> = (0..count)
            .filter_map(|n| format!("bench.f{n}").parse().ok())
            .map(|id| metrics.function(&id))
            .collect();
        for (name, outcome) in [("ok", Outcome::Ok), ("fault", Outcome::Fault("function-exit"))] {
            let mut best = Duration::MAX;
            for _ in 0..5 {
                let begin = Instant::now();
                for round in 0..ROUNDS {
                    let time = Duration::from_nanos(u64::from(black_box(round) % 50_000));
                    let sample = Sample {
                        queue: time,
                        boot: time / 4,
                        run: time * 3,
                        write: time / 2,
                        cpu: time * 2,
                        outcome,
                        start: Start::Sandbox,
                        request_bytes: u64::from(round % 1_000),
                        response_bytes: u64::from(round % 5_000),
                        memory_bytes: 1 << 20,
                    };
                    functions[round as usize % functions.len()].record(CoreId(0), black_box(&sample));
                }
                best = best.min(begin.elapsed());
            }
            println!(
                "{count:3} functions, {name:5}: {:5.1} ns",
                best.as_nanos() as f64 / f64::from(ROUNDS)
            );
        }
    }
}
