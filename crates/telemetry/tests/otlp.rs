//! The exporter against a collector that decodes what comes with OpenTelemetry's own messages.

use contract::{Caller, CoreId, FunctionId, Head, HeadBuilder, RequestId, VersionNumber};
use millpond_telemetry::{
    logs::{LogOptions, Logs, Stream},
    metrics::{Metrics, Outcome, Sample, Start},
    otlp::{Exporter, Options, Tracer},
};
use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
        trace::v1::ExportTraceServiceRequest,
    },
    common::v1::{KeyValue, any_value::Value},
    logs::v1::LogRecord,
    metrics::v1::{Metric, metric::Data, number_data_point},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use prost::Message;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    num::NonZeroU32,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU16, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// A collector: what it was posted, by path.
struct Collector {
    address: SocketAddr,
    state: Arc<State>,
}

/// A message: its path, the lines of its head, its body.
type Posted = (String, Vec<String>, Vec<u8>);

#[derive(Default)]
struct State {
    taken: Mutex<Vec<Posted>>,
    changed: Condvar,
    /// What it answers.
    status: AtomicU16,
    /// Messages with spans that it did not take.
    refused: AtomicU16,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = Arc::new(State {
            status: AtomicU16::new(200),
            ..State::default()
        });
        let address = listener.local_addr().unwrap();
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = shared.clone();
                thread::spawn(move || serve(stream.unwrap(), &shared));
            }
        });
        Self { address, state }
    }

    fn options(&self, more: &[(&str, &str)]) -> Options {
        options(&format!("http://{}", self.address), more)
    }

    /// What `find` makes of everything that was posted to `path`, as soon as it makes something.
    fn until<T>(&self, path: &str, find: impl Fn(&[&[u8]]) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut taken = self.state.taken.lock().unwrap();
        loop {
            let bodies: Vec<&[u8]> = taken
                .iter()
                .filter(|(at, ..)| at == path)
                .map(|(.., body)| &body[..])
                .collect();
            if let Some(found) = find(&bodies) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "it never came to {path}: {} messages",
                bodies.len()
            );
            taken = self.state.changed.wait_timeout(taken, left).unwrap().0;
        }
    }

    fn spans(&self, at_least: usize) -> Vec<Span> {
        self.until("/v1/traces", |bodies| {
            let spans = decode_spans(bodies);
            (spans.len() >= at_least).then_some(spans)
        })
    }

    fn posted(&self) -> usize {
        self.state.taken.lock().unwrap().len()
    }
}

fn serve(stream: TcpStream, state: &State) {
    let mut output = stream.try_clone().unwrap();
    let mut input = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if input.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let length = lines
            .iter()
            .find_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length:")?
                    .trim()
                    .parse()
                    .ok()
            })
            .unwrap();
        let mut body = vec![0; length];
        input.read_exact(&mut body).unwrap();
        let path = lines[0].split(' ').nth(1).unwrap().to_owned();
        let status = state.status.load(SeqCst);
        if status == 200 {
            state.taken.lock().unwrap().push((path, lines, body));
            state.changed.notify_all();
        } else if path == "/v1/traces" {
            let _taken = state.taken.lock().unwrap();
            state.refused.fetch_add(1, SeqCst);
            state.changed.notify_all();
        }
        if write!(output, "HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

fn options(endpoint: &str, more: &[(&str, &str)]) -> Options {
    Options::from_variables(|name| {
        let defaults = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
            ("OTEL_BSP_SCHEDULE_DELAY", "20"),
            ("OTEL_BLRP_SCHEDULE_DELAY", "20"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
        ];
        let mut all = more.iter().chain(&defaults);
        all.find(|(variable, _)| *variable == name)
            .map(|(_, value)| (*value).to_owned())
    })
    .unwrap()
    .unwrap()
}

fn decode_spans(bodies: &[&[u8]]) -> Vec<Span> {
    bodies
        .iter()
        .flat_map(|body| ExportTraceServiceRequest::decode(*body).unwrap().resource_spans)
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .collect()
}

fn decode_logs(bodies: &[&[u8]]) -> Vec<LogRecord> {
    bodies
        .iter()
        .flat_map(|body| ExportLogsServiceRequest::decode(*body).unwrap().resource_logs)
        .flat_map(|resource| resource.scope_logs)
        .flat_map(|scope| scope.log_records)
        .collect()
}

fn decode_metrics(body: &[u8]) -> Vec<Metric> {
    let message = ExportMetricsServiceRequest::decode(body).unwrap();
    let resources = message.resource_metrics.into_iter();
    resources
        .flat_map(|resource| resource.scope_metrics)
        .flat_map(|scope| scope.metrics)
        .collect()
}

fn value(attributes: &[KeyValue], key: &str) -> Option<Value> {
    let mut found = attributes.iter().filter(|attribute| attribute.key == key);
    let value = found.next()?.value.clone()?.value;
    assert!(found.next().is_none(), "{key} is there twice");
    value
}

fn said(attributes: &[KeyValue], key: &str) -> String {
    match value(attributes, key) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?}"),
    }
}

fn function() -> FunctionId {
    "shop.resize".parse().unwrap()
}

const VERSION: VersionNumber = VersionNumber(NonZeroU32::MIN);
const REQUEST: RequestId = RequestId(0xabc);
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn head(headers: &[(&str, &str)]) -> Box<Head> {
    let mut builder = HeadBuilder::new("POST", "/function/shop.resize/a?secret=1", 256);
    for (name, value) in headers {
        builder.header(name, value.as_bytes());
    }
    builder.build(REQUEST)
}

const SAMPLE: Sample = Sample {
    queue: Duration::from_micros(100),
    boot: Duration::from_micros(20),
    run: Duration::from_micros(3_000),
    write: Duration::from_micros(7),
    cpu: Duration::from_micros(2_000),
    outcome: Outcome::Ok,
    start: Start::Sandbox,
    request_bytes: 5,
    response_bytes: 7,
    memory_bytes: 65_536,
};

fn invoke(tracer: &Tracer, headers: &[(&str, &str)], sample: &Sample, status: u16) -> Box<Head> {
    let mut head = head(headers);
    if let Some(span) = tracer.begin(&mut head, &function(), VERSION) {
        tracer.end(span, sample, Some(status));
    }
    head
}

fn header<'a>(head: &'a Head, name: &str) -> &'a str {
    std::str::from_utf8(head.header(name).unwrap()).unwrap()
}

#[test]
fn an_invocation_is_a_span_and_its_phases_fill_it() {
    let collector = Collector::start();
    let exporter = Exporter::start(collector.options(&[
        ("OTEL_SERVICE_NAME", "mill"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-scope=a%20b"),
    ]))
    .unwrap();
    let tracer = exporter.tracer().unwrap();
    let seen = invoke(
        &tracer,
        &[
            ("Traceparent", PARENT),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
        ],
        &SAMPLE,
        201,
    );
    let spans = collector.spans(5);
    assert_eq!(spans.len(), 5);
    let root = &spans[0];
    assert_eq!(root.name, "shop.resize");
    assert_eq!(root.kind(), SpanKind::Server);
    assert_eq!(hex(&root.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(hex(&root.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(root.trace_state, "a=1,b=2");
    assert_eq!(
        header(&seen, "traceparent"),
        format!("00-{}-{}-01", hex(&root.trace_id), hex(&root.span_id)),
        "the guest is called by this span"
    );
    assert_eq!(header(&seen, "tracestate"), "a=1");
    for (key, expected) in [
        ("faas.name", "shop.resize"),
        ("faas.version", "1"),
        ("faas.invocation_id", "00000000000000000000000000000abc"),
        ("faas.trigger", "http"),
        ("http.request.method", "POST"),
        ("url.path", "/function/shop.resize/a"),
    ] {
        assert_eq!(said(&root.attributes, key), expected, "{key}");
    }
    assert_eq!(
        value(&root.attributes, "http.response.status_code"),
        Some(Value::IntValue(201))
    );
    assert_eq!(
        value(&root.attributes, "faas.coldstart"),
        Some(Value::BoolValue(false))
    );
    assert_eq!(value(&root.attributes, "error.type"), None);
    assert_eq!(root.status, None);

    let mut at = root.start_time_unix_nano;
    for (span, (name, time)) in spans[1..].iter().zip([
        ("queue", SAMPLE.queue),
        ("boot", SAMPLE.boot),
        ("run", SAMPLE.run),
        ("write", SAMPLE.write),
    ]) {
        assert_eq!(span.name, name);
        assert_eq!(span.kind(), SpanKind::Internal);
        assert_eq!(
            (&span.trace_id, &span.parent_span_id),
            (&root.trace_id, &root.span_id)
        );
        assert_eq!(
            span.start_time_unix_nano, at,
            "{name} begins where the one before ended"
        );
        at = span.end_time_unix_nano;
        assert_eq!(u128::from(at - span.start_time_unix_nano), time.as_nanos());
    }
    assert_eq!(at, root.end_time_unix_nano, "the phases fill the whole");
    let mut ids: Vec<_> = spans.iter().map(|span| &span.span_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5);

    let taken = collector.state.taken.lock().unwrap();
    let (_, lines, body) = taken.iter().find(|(path, ..)| path == "/v1/traces").unwrap();
    let line = |text: &str| lines.iter().any(|line| line.eq_ignore_ascii_case(text));
    assert!(
        line("content-type: application/x-protobuf") && line("x-scope: a b"),
        "{lines:?}"
    );
    let message = ExportTraceServiceRequest::decode(&body[..]).unwrap();
    let resource = message.resource_spans[0].resource.as_ref().unwrap();
    assert_eq!(said(&resource.attributes, "service.name"), "mill");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_bad_parent_is_no_parent() {
    let collector = Collector::start();
    let exporter = Exporter::start(collector.options(&[])).unwrap();
    let tracer = exporter.tracer().unwrap();
    let bad = PARENT.to_uppercase();
    let seen = invoke(
        &tracer,
        &[("traceparent", &bad), ("tracestate", "a=1")],
        &SAMPLE,
        200,
    );
    let root = collector.spans(5).remove(0);
    assert_eq!(root.parent_span_id, Vec::<u8>::new());
    assert_eq!(root.trace_state, "");
    assert_ne!(hex(&root.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert!(header(&seen, "traceparent").contains(&hex(&root.trace_id)));
    assert_eq!(seen.header("tracestate"), None);
}

#[test]
fn the_callers_word_decides_whether_a_trace_is_taken() {
    let collector = Collector::start();
    let exporter = Exporter::start(collector.options(&[("OTEL_METRICS_EXPORTER", "none")])).unwrap();
    let tracer = exporter.tracer().unwrap();
    let not_sampled = PARENT.replace("-01", "-00");
    let seen = invoke(&tracer, &[("traceparent", &not_sampled)], &SAMPLE, 200);
    assert!(
        header(&seen, "traceparent").ends_with("-00"),
        "and it is passed on"
    );
    assert!(header(&seen, "traceparent").starts_with(&PARENT[..36]));
    assert!(!header(&seen, "traceparent").contains("00f067aa0ba902b7"));
    invoke(&tracer, &[("traceparent", PARENT)], &SAMPLE, 200);
    exporter.close();
    assert_eq!(collector.spans(5).len(), 5, "of one of the two");

    let collector = Collector::start();
    let off = [
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
    ];
    let exporter = Exporter::start(collector.options(&off)).unwrap();
    let tracer = exporter.tracer().unwrap();
    for _ in 0..50 {
        invoke(&tracer, &[("traceparent", PARENT)], &SAMPLE, 200);
    }
    exporter.close();
    assert_eq!(collector.posted(), 0);
}

#[test]
fn errors_have_their_type_and_refusals_no_phases() {
    let collector = Collector::start();
    let exporter = Exporter::start(collector.options(&[])).unwrap();
    let tracer = exporter.tracer().unwrap();
    for (outcome, start, status, kind, spans) in [
        (
            Outcome::Fault("limit-timeout"),
            Start::Image,
            504,
            Some("limit-timeout"),
            5,
        ),
        (
            Outcome::Refused("refused-queue"),
            Start::None,
            429,
            Some("refused-queue"),
            1,
        ),
        (Outcome::Left, Start::Sandbox, 200, Some("client-closed"), 5),
        (Outcome::Ok, Start::Reused, 503, Some("503"), 5),
        (Outcome::Ok, Start::Sandbox, 404, None, 5),
    ] {
        let before = collector.spans(0).len();
        let sample = Sample {
            outcome,
            start,
            ..SAMPLE
        };
        invoke(&tracer, &[], &sample, status);
        let all = collector.spans(before + spans);
        assert_eq!(all.len(), before + spans);
        let root = &all[before];
        let failed = root
            .status
            .as_ref()
            .is_some_and(|status| status.code() == StatusCode::Error);
        assert_eq!(failed, kind.is_some());
        let error = value(&root.attributes, "error.type");
        assert_eq!(error, kind.map(|kind| Value::StringValue(kind.to_owned())));
        let cold = value(&root.attributes, "faas.coldstart");
        assert_eq!(cold, Some(Value::BoolValue(start == Start::Image)));
    }
}

#[test]
fn the_numbers_are_those_of_the_page() {
    let collector = Collector::start();
    let exporter = Exporter::start(collector.options(&[])).unwrap();
    let (metrics, folder) = (Arc::new(Metrics::new(2)), tempfile::tempdir().unwrap());
    let logs = Logs::open(folder.path(), LogOptions::default()).unwrap();
    for core in [CoreId(0), CoreId(1), CoreId(1)] {
        metrics.function(&function()).record(core, &SAMPLE);
    }
    metrics.core(CoreId(0)).unwrap().sandboxes.set(4);
    metrics.core(CoreId(1)).unwrap().busy(Duration::from_millis(1500));
    exporter.attach(&metrics, &logs);
    let all = collector.until("/v1/metrics", |bodies| {
        bodies.last().map(|body| decode_metrics(body))
    });
    let find = |name: &str| all.iter().find(|metric| metric.name == name).unwrap();

    let Some(Data::Sum(invocations)) = &find("faas.invocations").data else {
        panic!("a counter is a sum");
    };
    assert!(invocations.is_monotonic && invocations.aggregation_temporality == 2);
    assert_eq!(
        said(&invocations.data_points[0].attributes, "faas.name"),
        "shop.resize"
    );
    assert_eq!(
        invocations.data_points[0].value,
        Some(number_data_point::Value::AsInt(3))
    );
    let Some(Data::Gauge(sandboxes)) = &find("millpond.sandboxes").data else {
        panic!("a gauge is a gauge");
    };
    assert_eq!(sandboxes.data_points.len(), 2);
    assert_eq!(
        sandboxes.data_points[0].value,
        Some(number_data_point::Value::AsInt(4))
    );
    let busy = find("millpond.core_busy");
    assert_eq!(busy.unit, "s");
    let Some(Data::Sum(busy)) = &busy.data else {
        panic!("a counter is a sum");
    };
    assert_eq!(
        busy.data_points[1].value,
        Some(number_data_point::Value::AsDouble(1.5))
    );
    let run = find("faas.invoke_duration");
    assert_eq!(run.unit, "s");
    let Some(Data::Histogram(run)) = &run.data else {
        panic!("a histogram is a histogram");
    };
    let run = &run.data_points[0];
    assert_eq!((run.count, run.sum), (3, Some(0.009)));
    assert_eq!(run.bucket_counts.len(), run.explicit_bounds.len() + 1);
    let bucket = run.bucket_counts.iter().position(|count| *count == 3).unwrap();
    assert!(run.explicit_bounds[bucket - 1] < 0.003 && 0.003 <= run.explicit_bounds[bucket]);
    let page = metrics.render();
    assert!(
        page.contains("millpond_telemetry_dropped_total{signal=\"traces\",reason=\"queue\"} 0\n"),
        "{page}"
    );
    logs.close();
}

#[test]
fn a_guests_lines_know_their_trace() {
    let collector = Collector::start();
    let exporter = Exporter::start(collector.options(&[])).unwrap();
    let (metrics, folder) = (Arc::new(Metrics::new(1)), tempfile::tempdir().unwrap());
    let logs = Logs::open(folder.path(), LogOptions::default()).unwrap();
    exporter.attach(&metrics, &logs);
    let tracer = exporter.tracer().unwrap();
    let log = logs.function(&function(), VERSION);
    let mut head = head(&[("traceparent", PARENT)]);
    let span = tracer.begin(&mut head, &function(), VERSION).unwrap();
    log.lines(REQUEST, Stream::Stderr).write(b"hello\n");
    log.platform(None, "about all");
    logs.close();
    let lines = collector.until("/v1/logs", |bodies| {
        let lines = decode_logs(bodies);
        (lines.len() >= 2).then_some(lines)
    });
    let seen = header(&head, "traceparent").to_owned();
    let line = &lines[0];
    let body = line.body.clone().unwrap().value;
    assert_eq!(body, Some(Value::StringValue("hello".to_owned())));
    assert_eq!(
        seen,
        format!("00-{}-{}-01", hex(&line.trace_id), hex(&line.span_id))
    );
    assert_eq!(said(&line.attributes, "log.iostream"), "stderr");
    assert_eq!(said(&line.attributes, "faas.name"), "shop.resize");
    assert_eq!(said(&line.attributes, "faas.invocation_id"), REQUEST.to_string());
    assert!(lines[1].trace_id.is_empty());
    tracer.end(span, &SAMPLE, Some(200));
    let root = collector.spans(1).remove(0);
    assert_eq!((&root.trace_id, &root.span_id), (&line.trace_id, &line.span_id));
}

/// Drops of traces, by reason.
fn lost(metrics: &Metrics, reason: &str) -> u64 {
    let page = metrics.render();
    let line = format!("millpond_telemetry_dropped_total{{signal=\"traces\",reason=\"{reason}\"}} ");
    let found = page.lines().find_map(|of| of.strip_prefix(&line));
    found.unwrap().parse().unwrap()
}

fn attached(exporter: &Exporter) -> (Arc<Metrics>, Logs, tempfile::TempDir) {
    let (metrics, folder) = (Arc::new(Metrics::new(1)), tempfile::tempdir().unwrap());
    let logs = Logs::open(folder.path(), LogOptions::default()).unwrap();
    exporter.attach(&metrics, &logs);
    (metrics, logs, folder)
}

#[test]
fn a_collector_that_says_nothing_blocks_nobody_and_what_is_lost_is_counted() {
    // Connections are accepted by the kernel, and never answered.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let exporter = Exporter::start(options(
        &endpoint,
        &[
            ("OTEL_BSP_MAX_QUEUE_SIZE", "64"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000"),
        ],
    ))
    .unwrap();
    let (metrics, logs, _folder) = attached(&exporter);
    let tracer = exporter.tracer().unwrap();
    const INVOCATIONS: u64 = 10_000;
    for _ in 0..INVOCATIONS {
        invoke(&tracer, &[], &SAMPLE, 200);
    }
    let dropped = lost(&metrics, "queue");
    assert!(dropped >= INVOCATIONS - 64 - 16, "{dropped}");
    assert!(dropped < INVOCATIONS);
    logs.close();
    // Ends although the collector would be waited for for ten minutes; the test's watchdog would bark.
    exporter.close();
    drop(listener);
}

#[test]
fn what_the_collector_never_takes_is_counted() {
    let collector = Collector::start();
    collector.state.status.store(400, SeqCst);
    let exporter = Exporter::start(collector.options(&[])).unwrap();
    let (metrics, logs, _folder) = attached(&exporter);
    let tracer = exporter.tracer().unwrap();
    invoke(&tracer, &[], &SAMPLE, 200);
    invoke(&tracer, &[], &SAMPLE, 200);
    exporter.close();
    assert_eq!(lost(&metrics, "export"), 2);
    assert_eq!(lost(&metrics, "queue"), 0);
    logs.close();
}

#[test]
fn a_batch_is_tried_again_until_the_collector_is_back() {
    let collector = Collector::start();
    collector.state.status.store(503, SeqCst);
    let exporter = Exporter::start(collector.options(&[])).unwrap();
    let (metrics, logs, _folder) = attached(&exporter);
    let tracer = exporter.tracer().unwrap();
    let seen = invoke(&tracer, &[], &SAMPLE, 200);
    let refused = || (collector.state.refused.load(SeqCst) > 0).then_some(());
    collector.until("/v1/traces", |_| refused());
    collector.state.status.store(200, SeqCst);
    let spans = collector.spans(5);
    assert!(header(&seen, "traceparent").contains(&hex(&spans[0].span_id)));
    assert_eq!(lost(&metrics, "export"), 0);
    logs.close();
}

#[test]
fn closing_sends_what_waits() {
    let collector = Collector::start();
    let exporter = Exporter::start(collector.options(&[
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
        ("OTEL_BLRP_SCHEDULE_DELAY", "3600000"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "3600000"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512"),
    ]))
    .unwrap();
    let (_metrics, logs, _folder) = attached(&exporter);
    let tracer = exporter.tracer().unwrap();
    for _ in 0..100 {
        invoke(&tracer, &[], &SAMPLE, 200);
    }
    logs.function(&function(), VERSION)
        .platform(Some(REQUEST), "last words");
    logs.close();
    assert_eq!(collector.posted(), 0);
    exporter.close();
    assert_eq!(collector.spans(0).len(), 500);
    collector.until("/v1/logs", |bodies| {
        (decode_logs(bodies).len() == 1).then_some(())
    });
    collector.until("/v1/metrics", |bodies| (bodies.len() == 1).then_some(()));
    exporter.close();
}

fn caller(head: &Head) -> Caller {
    let header = |name| head.header(name).map(|value| value.to_vec().into());
    Caller {
        traceparent: header("traceparent"),
        tracestate: header("tracestate"),
        ..Caller::default()
    }
}

#[test]
fn a_call_to_a_service_is_a_client_span_below_run() {
    let collector = Collector::start();
    let exporter = Exporter::start(collector.options(&[])).unwrap();
    let tracer = exporter.tracer().unwrap();
    let mut head = head(&[("traceparent", PARENT), ("tracestate", "a=1")]);
    let invocation = tracer.begin(&mut head, &function(), VERSION).unwrap();
    let caller = caller(&head);
    let target = ("https", "api.example.org", None, "/a/b");
    let call = tracer.call(&caller, "PUT", target).unwrap();
    let told = call.traceparent();
    call.end(Ok(201));
    tracer
        .call(&caller, "GET", ("http", "[::1]", Some(81), "/"))
        .unwrap()
        .end(Ok(404));
    tracer.call(&caller, "FROB", target).unwrap().end(Err("timeout"));
    drop(tracer.call(&caller, "GET", target).unwrap());
    tracer.call(&caller, "GET", target).unwrap().forget();
    tracer.end(invocation, &SAMPLE, Some(200));

    let spans = collector.spans(9);
    let run = spans.iter().find(|span| span.name == "run").unwrap();
    let calls: Vec<_> = spans
        .iter()
        .filter(|span| span.kind() == SpanKind::Client)
        .collect();
    for call in &calls {
        assert_eq!(
            (&call.trace_id, &call.parent_span_id),
            (&run.trace_id, &run.span_id)
        );
        assert_eq!(call.trace_state, "a=1");
        assert!(call.start_time_unix_nano <= call.end_time_unix_nano);
    }
    let mut ids: Vec<_> = spans.iter().map(|span| &span.span_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 9);
    let [put, get, frob, given_up] = &calls[..] else {
        panic!("four calls")
    };
    assert_eq!(
        told,
        format!("00-{}-{}-01", hex(&put.trace_id), hex(&put.span_id)),
        "the other side is called by the call"
    );
    assert_eq!((&put.name[..], &put.status), ("PUT", &None));
    for (span, key, expected) in [
        (put, "http.request.method", "PUT"),
        (put, "server.address", "api.example.org"),
        (put, "url.full", "https://api.example.org/a/b"),
        (get, "server.address", "::1"),
        (get, "url.full", "http://[::1]:81/"),
        (get, "error.type", "404"),
        (frob, "http.request.method", "_OTHER"),
        (frob, "http.request.method_original", "FROB"),
        (frob, "error.type", "timeout"),
        (given_up, "error.type", "cancelled"),
    ] {
        assert_eq!(said(&span.attributes, key), expected, "{key}");
    }
    let number = |span: &Span, key| match value(&span.attributes, key) {
        Some(Value::IntValue(number)) => Some(number),
        _ => None,
    };
    assert_eq!(number(put, "http.response.status_code"), Some(201));
    assert_eq!(
        (number(put, "server.port"), number(get, "server.port")),
        (Some(443), Some(81))
    );
    assert_eq!(number(frob, "http.response.status_code"), None);
    assert_eq!(value(&put.attributes, "error.type"), None);
    for failed in [get, frob, given_up] {
        assert_eq!(failed.status.as_ref().unwrap().code(), StatusCode::Error);
    }
    assert_eq!(frob.name, "HTTP");
}

#[test]
fn a_call_of_a_trace_that_is_not_sampled_passes_the_context_on() {
    let collector = Collector::start();
    let exporter = Exporter::start(collector.options(&[])).unwrap();
    let tracer = exporter.tracer().unwrap();
    let mut head = head(&[("traceparent", &PARENT.replace("-01", "-00"))]);
    assert!(tracer.begin(&mut head, &function(), VERSION).is_none());
    let target = ("https", "api.example.org", None, "/");
    let call = tracer.call(&caller(&head), "GET", target).unwrap();
    assert_eq!(call.traceparent(), header(&head, "traceparent"));
    call.end(Ok(200));
    assert!(tracer.call(&Caller::default(), "GET", target).is_none());
    exporter.close();
    assert!(collector.spans(0).is_empty());
}
