//! The page of metrics, read as Prometheus would.

mod page;

use contract::{CoreId, Fault, FunctionId};
use millpond_telemetry::metrics::{ImagePhase, Kind, Metrics, Occupancy, Outcome, Reading, Sample, Start};
use page::Page;
use proptest::prelude::*;
use std::{sync::Arc, thread, time::Duration};

fn id(name: &str) -> FunctionId {
    name.parse().unwrap()
}

const SAMPLE: Sample = Sample {
    queue: Duration::from_micros(3),
    boot: Duration::from_micros(2),
    run: Duration::from_micros(40),
    write: Duration::from_micros(5),
    cpu: Duration::from_micros(30),
    outcome: Outcome::Ok,
    start: Start::Sandbox,
    request_bytes: 100,
    response_bytes: 200,
    memory_bytes: 1 << 20,
};

fn sample() -> impl Strategy<Value = Sample> {
    let time = || (0u32..38, 0u64..1 << 38).prop_map(|(shift, n)| Duration::from_nanos(n >> shift));
    let outcome = prop_oneof![
        4 => Just(Outcome::Ok),
        1 => Just(Outcome::Fault("function-trap")),
        1 => Just(Outcome::Fault("limit-timeout")),
        1 => Just(Outcome::Left),
        1 => Just(Outcome::Refused("limit-queue")),
        1 => Just(Outcome::Platform("spawn-failed")),
    ];
    let start = prop_oneof![
        Just(Start::None),
        Just(Start::Reused),
        Just(Start::Sandbox),
        Just(Start::Image)
    ];
    let bytes = || (0u32..40, 0u64..1 << 40).prop_map(|(shift, n)| n >> shift);
    (
        [time(), time(), time(), time(), time()],
        outcome,
        start,
        [bytes(), bytes(), bytes()],
    )
        .prop_map(
            |(
                [queue, boot, run, write, cpu],
                outcome,
                start,
                [request_bytes, response_bytes, memory_bytes],
            )| Sample {
                queue,
                boot,
                run,
                write,
                cpu,
                outcome,
                start,
                request_bytes,
                response_bytes,
                memory_bytes,
            },
        )
}

/// A sum of seconds as the page shows it.
fn seconds(times: impl Iterator<Item = Duration>) -> Option<String> {
    let times: Vec<_> = times.collect();
    let sum: Duration = times.iter().sum();
    let text = format!("{}.{:09}", sum.as_secs(), sum.subsec_nanos());
    (!times.is_empty()).then(|| text.trim_end_matches('0').trim_end_matches('.').to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_page_says_what_was_recorded(samples in prop::collection::vec((0u16..3, sample()), 0..60)) {
        let metrics = Metrics::new(3);
        let function = metrics.function(&id("shop.resize"));
        for (core, sample) in &samples {
            function.record(CoreId(*core), sample);
        }
        let page = Page::parse(&metrics.render());
        let name = ("faas_name", "shop.resize");
        let all: Vec<_> = samples.iter().map(|(_, sample)| *sample).collect();
        let taken = || all.iter().filter(|s| !matches!(s.outcome, Outcome::Refused(_)));
        let started = || taken().filter(|s| s.start != Start::None);
        let of = |outcome| all.iter().filter(|s| s.outcome == outcome).count() as u64;
        let errors = |kind, code| page.count("faas_errors_total", &[name, ("kind", kind), ("code", code)]);

        prop_assert_eq!(page.count("faas_invocations_total", &[name]), of(Outcome::Ok));
        prop_assert_eq!(errors("function", "function-trap"), of(Outcome::Fault("function-trap")));
        prop_assert_eq!(errors("client", "client-closed"), of(Outcome::Left));
        prop_assert_eq!(errors("refused", "limit-queue"), of(Outcome::Refused("limit-queue")));
        prop_assert_eq!(errors("platform", "spawn-failed"), of(Outcome::Platform("spawn-failed")));
        prop_assert_eq!(page.count("faas_timeouts_total", &[name]), of(Outcome::Fault("limit-timeout")));
        for (kind, start) in [("sandbox", Start::Sandbox), ("image", Start::Image)] {
            let cold = || taken().filter(|s| s.start == start);
            let labels = [name, ("kind", kind)];
            prop_assert_eq!(page.count("faas_coldstarts_total", &labels), cold().count() as u64);
            let sum = page.get("faas_init_duration_seconds_sum", &labels).map(str::to_owned);
            prop_assert_eq!(sum, seconds(cold().map(|s| s.boot)));
        }
        let sum = |metric: &str, labels: &[(&str, &str)]| page.get(metric, labels).map(str::to_owned);
        let phase = |phase| sum("millpond_phase_seconds_sum", &[name, ("phase", phase)]);
        let fresh = || taken().filter(|s| matches!(s.start, Start::Sandbox | Start::Image));
        prop_assert_eq!(phase("queue"), seconds(taken().map(|s| s.queue)));
        prop_assert_eq!(phase("boot"), seconds(fresh().map(|s| s.boot)));
        prop_assert_eq!(phase("run"), seconds(started().map(|s| s.run)));
        prop_assert_eq!(phase("write"), seconds(taken().map(|s| s.write)));
        prop_assert_eq!(sum("faas_invoke_duration_seconds_sum", &[name]), seconds(started().map(|s| s.run)));
        prop_assert_eq!(sum("faas_cpu_usage_seconds_sum", &[name]), seconds(started().map(|s| s.cpu)));
        let total = taken().map(|s| {
            let boot = if matches!(s.start, Start::Sandbox | Start::Image) { s.boot } else { Duration::ZERO };
            let run = if s.start == Start::None { Duration::ZERO } else { s.run };
            s.queue + boot + run + s.write
        });
        prop_assert_eq!(sum("millpond_request_seconds_sum", &[name]), seconds(total));
        prop_assert_eq!(page.count("faas_mem_usage_bytes_sum", &[name]), started().map(|s| s.memory_bytes).sum::<u64>());
        let bytes = taken().map(|s| s.request_bytes + s.response_bytes).sum::<u64>();
        prop_assert_eq!(page.count("faas_net_io_bytes_sum", &[name]), bytes);
        prop_assert_eq!(page.count("faas_net_io_bytes_count", &[name]), taken().count() as u64);
        for within in [1_000u64, 50_000, 2_000_000_000] {
            let labels = [name, ("le", &seconds([Duration::from_nanos(within)].into_iter()).unwrap())];
            let expected = started().filter(|s| s.run.as_nanos() <= u128::from(within)).count() as u64;
            prop_assert_eq!(page.count("faas_invoke_duration_seconds_bucket", &labels), expected);
        }
    }
}

#[test]
fn readers_see_whole_pages_that_never_go_backwards() {
    const CORES: u16 = 3;
    const EACH: u64 = 30_000;
    let metrics = Metrics::new(usize::from(CORES));
    let function = metrics.function(&id("shop.resize"));
    let read = |before: &mut Vec<u64>| {
        let page = Page::parse(&metrics.render());
        let name = ("faas_name", "shop.resize");
        let now = vec![
            page.count("faas_invocations_total", &[name]),
            page.count(
                "faas_errors_total",
                &[name, ("kind", "function"), ("code", "function-exit")],
            ),
            page.count("millpond_request_seconds_count", &[name]),
            page.count("millpond_http_requests_total", &[("core", "2")]),
        ];
        assert!(
            before.iter().zip(&now).all(|(before, now)| before <= now),
            "{before:?} {now:?}"
        );
        *before = now;
    };
    let mut counts = Vec::new();
    thread::scope(|scope| {
        let cores: Vec<_> = (0..CORES)
            .map(|core| {
                let (function, node) = (function.clone(), metrics.core(CoreId(core)).unwrap());
                scope.spawn(move || {
                    for n in 0..EACH {
                        let outcome = if n % 3 == 0 {
                            Outcome::Fault("function-exit")
                        } else {
                            Outcome::Ok
                        };
                        function.record(CoreId(core), &Sample { outcome, ..SAMPLE });
                        node.requests.add(1);
                    }
                })
            })
            .collect();
        while !cores.iter().all(|core| core.is_finished()) {
            read(&mut counts);
        }
    });
    read(&mut counts);
    let all = u64::from(CORES) * EACH;
    assert_eq!(counts, [all / 3 * 2, all / 3, all, EACH]);
}

#[test]
fn a_function_keeps_its_numbers_until_it_is_forgotten() {
    let metrics = Metrics::new(1);
    let name = ("faas_name", "shop.resize");
    let read = || {
        Page::parse(&metrics.render())
            .get("faas_invocations_total", &[name])
            .map(str::to_owned)
    };
    assert_eq!(read(), None);
    for n in 1..=3 {
        // Each deploy asks anew and drops what it had before.
        metrics.function(&id("shop.resize")).record(CoreId(0), &SAMPLE);
        assert_eq!(read(), Some(n.to_string()));
    }
    let in_flight = metrics.function(&id("shop.resize"));
    metrics.forget(&id("shop.resize"));
    in_flight.record(CoreId(0), &SAMPLE);
    assert_eq!(read(), None);
    metrics.function(&id("shop.resize"));
    assert_eq!(read(), Some("0".to_owned()));
}

#[test]
fn every_fault_keeps_its_code() {
    let (limit, reason) = (contract::ByteSize(1), String::new());
    let faults = [
        Fault::Exit { code: 1 },
        Fault::Trap {
            reason: reason.clone(),
        },
        Fault::StackOverflow,
        Fault::OutOfMemory {
            limit,
            reason: reason.clone(),
        },
        Fault::OutputTooLarge { limit },
        Fault::Timeout {
            limit: Duration::ZERO,
        },
        Fault::CpuTime {
            limit: Duration::ZERO,
        },
        Fault::BadOutput { reason },
    ];
    let metrics = Metrics::new(1);
    let function = metrics.function(&id("a.b"));
    for fault in &faults {
        function.record(
            CoreId(0),
            &Sample {
                outcome: Outcome::Fault(fault.code()),
                ..SAMPLE
            },
        );
    }
    let page = Page::parse(&metrics.render());
    for fault in &faults {
        let labels = [("faas_name", "a.b"), ("kind", "function"), ("code", fault.code())];
        assert_eq!(page.count("faas_errors_total", &labels), 1, "{fault}");
    }
    assert_eq!(page.count("faas_timeouts_total", &[("faas_name", "a.b")]), 1);
}

#[test]
fn what_is_read_is_what_was_counted() {
    let metrics = Metrics::new(2);
    let (function, other) = (
        metrics.function(&id("shop.resize")),
        metrics.function(&id("acme/shop.f")),
    );
    let start = |outcome| Sample { outcome, ..SAMPLE };
    for (core, outcome) in [
        (0, Outcome::Ok),
        (1, Outcome::Ok),
        (1, Outcome::Fault("function-trap")),
        (0, Outcome::Fault("function-exit")),
        (0, Outcome::Refused("limit-queue")),
    ] {
        function.record(CoreId(core), &start(outcome));
    }
    other.record(CoreId(0), &SAMPLE);
    for core in [0, 1, 1, 7] {
        function.preempted(CoreId(core));
    }
    function.stolen(CoreId(1));
    metrics.core(CoreId(1)).unwrap().busy(Duration::from_millis(5));
    metrics.core(CoreId(1)).unwrap().reject("route-unknown");
    let version = Arc::new(Occupancy {
        running: 3,
        queued: 2,
    });
    for weak in [Arc::downgrade(&version), Arc::downgrade(&Arc::new(*version))] {
        function.watch(move || weak.upgrade().map(|now| *now));
    }

    let reading = metrics.read(|id| id.tenant().is_none());
    assert_eq!(reading.cores.len(), 2);
    assert_eq!(
        (reading.cores[1].busy, reading.cores[1].rejected),
        (Duration::from_millis(5), 1)
    );
    let [(name, read)] = &reading.functions[..] else {
        panic!("one is shown");
    };
    assert_eq!(name, &id("shop.resize"));
    assert_eq!(read.succeeded, 2);
    assert_eq!(read.failed, [("function", 2), ("refused", 1)].into());
    assert_eq!((read.preemptions, read.steals), (3, 1));
    // A version that is gone is counted no more.
    assert_eq!(read.occupancy, *version);
    assert_eq!(read.cpu, SAMPLE.cpu * 4);
    for (times, each) in [(&read.queue, SAMPLE.queue), (&read.run, SAMPLE.run)] {
        assert_eq!(times.sum, each * 4);
        let bucket = Reading::bounds().position(|bound| each <= bound).unwrap();
        assert_eq!((times.counts[bucket], times.counts.iter().sum::<u64>()), (4, 4));
        assert_eq!(times.counts.len(), Reading::bounds().count() + 1);
    }
    assert_eq!(metrics.read(|_| true).functions.len(), 2);
    assert!(metrics.read(|_| false).uptime >= reading.uptime);

    let page = Page::parse(&metrics.render());
    let name = [("faas_name", "shop.resize")];
    for (series, value) in [
        ("millpond_invocation_preemptions_total", 3),
        ("millpond_invocation_steals_total", 1),
        ("millpond_invocations_running", 3),
        ("millpond_invocations_queued", 2),
    ] {
        assert_eq!(page.count(series, &name), value, "{series}");
    }
    drop(version);
    assert_eq!(
        metrics.read(|_| true).functions[0].1.occupancy,
        Occupancy::default()
    );
}

#[test]
fn cores_images_and_others_are_on_the_page() {
    let metrics = Metrics::new(2);
    let core = metrics.core(CoreId(1)).unwrap();
    core.connections_open.add(3);
    core.connections_open.add(-1);
    core.parked.set(7);
    core.busy(Duration::from_millis(1_500));
    core.reject("bad-request");
    core.reject("bad-request");
    metrics.image(ImagePhase::Compile, Duration::from_millis(20));
    metrics.add_source(|page| {
        page.family(Kind::Gauge, "odd", "A \\ and a\nline.")
            .sample(&[("text", "a\\b\"c\"\nd{e=\"f\"} ,")], 1_i64);
    });
    // Cores that do not exist are nobody's.
    metrics.function(&id("a.b")).record(CoreId(2), &SAMPLE);
    assert!(metrics.core(CoreId(2)).is_none());

    let text = metrics.render();
    assert!(text.contains("# HELP odd A \\\\ and a\\nline.\n"));
    let page = Page::parse(&text);
    assert_eq!(page.get("odd", &[("text", "a\\b\"c\"\nd{e=\"f\"} ,")]), Some("1"));
    for (name, core, value) in [
        ("millpond_connections_open", "1", "2"),
        ("millpond_connections_open", "0", "0"),
        ("millpond_parked", "1", "7"),
        ("millpond_core_busy_seconds_total", "1", "1.5"),
    ] {
        assert_eq!(page.get(name, &[("core", core)]), Some(value), "{name}");
    }
    assert_eq!(
        page.count("millpond_rejected_requests_total", &[("code", "bad-request")]),
        2
    );
    assert_eq!(
        page.get("millpond_image_seconds_sum", &[("phase", "compile")]),
        Some("0.02")
    );
    assert_eq!(
        page.get(
            "millpond_image_seconds_bucket",
            &[("phase", "compile"), ("le", "0.01")]
        ),
        Some("0")
    );
    assert_eq!(page.count("faas_invocations_total", &[("faas_name", "a.b")]), 0);
    #[cfg(target_os = "linux")]
    assert!(page.count("process_resident_memory_bytes", &[]) > 1 << 20);
}
