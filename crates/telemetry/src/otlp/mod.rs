//! Traces, metrics and logs, sent to an OpenTelemetry collector by OTLP over HTTP.
//!
//! ```text
//! core: Tracer::begin, end ──▶ bounded queue ─┐
//! log's writer, tracing ─────▶ bounded queue ─┼─▶ thread "otlp": batch, encode, post ──▶ collector
//!                  Metrics ◀── read each interval ┘
//! ```
//!
//! Off unless the environment names an endpoint ([`Options::from_variables`]); a request then costs one branch. Nobody who
//! records ever waits: queues are lock-free and bounded, what does not fit is dropped and counted
//! (`millpond_telemetry_dropped_total`). A collector that is away or slow is reported once, when it fails first, and once
//! when it takes data again; a batch is tried again with growing pauses for as long as `OTEL_BSP_EXPORT_TIMEOUT` says.
//!
//! The messages are those of the `opentelemetry-proto` crate. Why not the SDK and its exporters: their histograms are
//! recorded value by value and cannot be read from shards that exist, so each number would be kept twice; spans are known
//! here only when they are over, with ids that the guest has seen; and the SDK runs a thread for each signal and reads the
//! process's environment wherever it is used.
//!
//! # Traces
//! A trace context comes in by `traceparent`, parsed strictly; whoever sends none, or a bad one, begins a trace.
//! The guest sees the context of its own invocation instead, so that what it calls becomes that invocation's child.
//! The response carries none: `traceresponse` is a draft that few read, and `X-Request-Id` is the span's
//! `faas.invocation_id`. One span stands for the invocation, from the request's last byte to its response's, and
//! one for each phase; phases meet at their boundaries and fill the whole. A call of an invocation to a service is a span
//! below its phase `run`, whose id follows from the invocation's.
//!
//! # Shutdown
//! [`Exporter::close`] sends what was recorded before it, and gives up after a few seconds; the thread ends with it.

mod context;
mod encode;
mod options;
mod send;

pub use options::{Options, OptionsError};

use crate::{
    logs::{Logs, Record},
    metrics::{Exposition, Kind, Metrics, Sample},
};
use context::{Context, TRACEPARENT, TRACESTATE};
use contract::{Caller, FunctionId, Head, RequestId, VersionNumber};
use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;
use send::Sender;
use std::{
    cell::Cell,
    fmt, io,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
        mpsc,
    },
    thread::{self, Thread},
    time::{Duration, SystemTime},
};
use tracing::{Event, Subscriber, field};
use tracing_subscriber::layer;

/// How long [`Exporter::close`] may take.
const CLOSING: Duration = Duration::from_secs(5);

/// How much of a request waits for the thread, in characters: a client says it, and many may wait. A longer `tracestate` is
/// left out, as the Recommendation allows.
const METHOD: usize = 32;
const PATH: usize = 1024;
const STATE: usize = 512;

/// Contexts of requests on their way to the thread.
const BEGUN: usize = 1 << 14;

/// Sends a node's telemetry. Cloning gives another handle; the last one that is dropped closes it.
#[derive(Clone)]
pub struct Exporter {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// Says when the thread has ended.
    ended: Mutex<Option<mpsc::Receiver<()>>>,
}

/// What recorders and the thread share.
struct Shared {
    options: Options,
    spans: ArrayQueue<Recorded>,
    records: ArrayQueue<LogRecord>,
    /// Requests that may log, and where in which trace they are.
    begun: ArrayQueue<(RequestId, Context)>,
    metrics: OnceLock<Arc<Metrics>>,
    counts: Arc<Counts>,
    thread: OnceLock<Thread>,
    woken: AtomicBool,
    closing: AtomicBool,
}

/// What became of records.
#[derive(Debug, Default)]
struct Counts {
    spans: Fate,
    records: Fate,
}

#[derive(Debug, Default)]
struct Fate {
    exported: AtomicU64,
    /// The queue was full.
    dropped: AtomicU64,
    /// The collector did not take them.
    failed: AtomicU64,
}

/// A line of a log.
enum LogRecord {
    /// A guest's, or the platform's about a function.
    Function(Arc<Record>),
    /// The node's own.
    Node(NodeRecord),
}

/// A `tracing` event.
struct NodeRecord {
    time: SystemTime,
    level: tracing::Level,
    target: &'static str,
    message: String,
    fields: Vec<(&'static str, String)>,
}

/// An invocation that is under way and will be exported.
#[derive(Debug)]
pub struct Span {
    context: Context,
    /// The caller's span.
    parent: Option<u64>,
    /// The caller's `tracestate`, as it came.
    state: String,
    function: FunctionId,
    version: VersionNumber,
    request: RequestId,
    method: String,
    path: String,
    scheme: &'static str,
}

/// What becomes spans.
enum Recorded {
    Invocation(Finished),
    Call(Box<Call>),
}

/// An invocation that is over.
struct Finished {
    span: Box<Span>,
    sample: Sample,
    status: Option<u16>,
    ended: SystemTime,
}

/// A call to a service that is over.
struct Call {
    context: Context,
    /// Of the invocation.
    parent: Context,
    state: String,
    method: String,
    scheme: String,
    host: String,
    port: Option<u16>,
    path: String,
    started: SystemTime,
    ended: SystemTime,
    /// The reply's status, or what went wrong.
    outcome: Result<u16, &'static str>,
}

/// The span of a call to a service that is under way. Dropping it says that the call was given up.
pub struct CallSpan {
    tracer: Tracer,
    /// Where the other side is in the trace.
    context: Context,
    /// None if the trace is not sampled.
    call: Option<Box<Call>>,
}

/// Begins and ends invocations' spans. Cloning gives another handle; none of its methods blocks.
#[derive(Clone)]
pub struct Tracer {
    shared: Arc<Shared>,
}

thread_local! {
    /// Whether this is the exporting thread, whose own events it must not export: each would be the cause of the next.
    static EXPORTING: Cell<bool> = const { Cell::new(false) };
}

impl Exporter {
    /// Starts the thread that sends.
    pub fn start(options: Options) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            spans: ArrayQueue::new(options.spans.queue),
            records: ArrayQueue::new(options.records.queue),
            begun: ArrayQueue::new(BEGUN),
            options,
            metrics: OnceLock::new(),
            counts: Arc::default(),
            thread: OnceLock::new(),
            woken: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        });
        let (end, ended) = mpsc::channel();
        let sender = Sender::new(shared.clone());
        let thread = thread::Builder::new().name("otlp".to_owned()).spawn(move || {
            EXPORTING.set(true);
            sender.run();
            // Nobody waits any more when the node gave up.
            let _ = end.send(());
        })?;
        // Only this sets it.
        let _ = shared.thread.set(thread.thread().clone());
        let inner = Inner {
            shared,
            ended: Mutex::new(Some(ended)),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Exports a node's numbers and the lines of its functions from now on, and puts the exporter's own counts among the
    /// numbers. Says in the node's log what in the environment was not understood.
    pub fn attach(&self, metrics: &Arc<Metrics>, logs: &Logs) {
        let shared = &self.inner.shared;
        for ignored in &shared.options.ignored {
            tracing::warn!("a variable of OpenTelemetry is ignored: {ignored}");
        }
        let counts = shared.counts.clone();
        metrics.add_source(move |page| counts.render(page));
        // A second node of this process would not be exported; there is none.
        let _ = shared.metrics.set(metrics.clone());
        if shared.options.logs.is_some() {
            let tap = shared.clone();
            logs.tap(move |record| tap.log(LogRecord::Function(record.clone())));
        }
    }

    /// Makes spans; `None` if traces are not exported.
    pub fn tracer(&self) -> Option<Tracer> {
        let shared = &self.inner.shared;
        shared.options.traces.as_ref().map(|_| Tracer {
            shared: shared.clone(),
        })
    }

    /// Takes the node's own log; `None` if logs are not exported.
    pub(crate) fn layer(&self) -> Option<Layer> {
        let shared = &self.inner.shared;
        shared.options.logs.as_ref().map(|_| Layer(shared.clone()))
    }

    /// Sends what was recorded before, and ends. Takes some seconds at most. Does nothing the second time.
    pub fn close(&self) {
        self.inner.close();
    }
}

impl Inner {
    fn close(&self) {
        let Some(ended) = self.ended.lock().take() else {
            return;
        };
        self.shared.closing.store(true, SeqCst);
        self.shared.wake();
        // Disconnected without a word: the thread panicked, and is over too.
        if let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(CLOSING + CLOSING / 5) {
            tracing::warn!("the last telemetry is lost: the collector did not take it in time");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Wakes the thread unless somebody did.
    fn wake_once(&self) {
        if !self.woken.load(Relaxed) && !self.woken.swap(true, SeqCst) {
            self.wake();
        }
    }

    fn push<T>(&self, queue: &ArrayQueue<T>, size: usize, fate: &Fate, record: T) {
        if queue.push(record).is_err() {
            fate.dropped.fetch_add(1, Relaxed);
        }
        if queue.len() >= size {
            self.wake_once();
        }
    }

    fn log(&self, record: LogRecord) {
        self.push(
            &self.records,
            self.options.records.size,
            &self.counts.records,
            record,
        );
    }
}

impl Counts {
    fn render(&self, page: &mut Exposition) {
        let signals = [("traces", &self.spans), ("logs", &self.records)];
        let family = page.family(
            Kind::Counter,
            "millpond_telemetry_exported_total",
            "Invocations, calls to services and log lines that a collector took.",
        );
        for (signal, fate) in signals {
            family.sample(&[("signal", signal)], fate.exported.load(Relaxed));
        }
        let family = page.family(
            Kind::Counter,
            "millpond_telemetry_dropped_total",
            "Invocations, calls to services and log lines that were not exported because the queue was full (reason queue) or the collector \
             did not take them (reason export).",
        );
        for (signal, fate) in signals {
            for (reason, count) in [("queue", &fate.dropped), ("export", &fate.failed)] {
                family.sample(&[("signal", signal), ("reason", reason)], count.load(Relaxed));
            }
        }
    }
}

impl Tracer {
    /// A request is about to become an invocation: replaces its `traceparent` by the invocation's own. `None` if its
    /// trace is not sampled.
    pub fn begin(&self, head: &mut Head, function: &FunctionId, version: VersionNumber) -> Option<Box<Span>> {
        let parent = Context::of(head);
        let trace = parent.map_or_else(not_zero, |parent| parent.trace);
        let context = Context {
            trace,
            span: not_zero(),
            sampled: self.shared.options.sampler.decide(parent.as_ref(), trace),
        };
        if parent.is_none() {
            // The state belongs to the context that was not there.
            head.remove_header(TRACESTATE);
        }
        head.set_header(TRACEPARENT, context.header().as_bytes());
        if self.shared.options.logs.is_some() {
            // When it is full, the oldest goes: a line of that request will not know its trace.
            self.shared.begun.force_push((head.id, context));
            if self.shared.begun.len() >= BEGUN / 2 {
                self.shared.wake_once();
            }
        }
        if !context.sampled {
            return None;
        }
        let state = head
            .headers()
            .filter(|(name, _)| name.eq_ignore_ascii_case(TRACESTATE))
            .filter_map(|(_, value)| std::str::from_utf8(value).ok());
        Some(Box::new(Span {
            context,
            parent: parent.map(|parent| parent.span),
            state: Some(state.collect::<Vec<_>>().join(","))
                .filter(|state| state.len() <= STATE)
                .unwrap_or_default(),
            function: function.clone(),
            version,
            request: head.id,
            method: head.method().chars().take(METHOD).collect(),
            path: head.path().chars().take(PATH).collect(),
            scheme: head.origin.scheme(),
        }))
    }

    /// An invocation is over, now. `status` is that of the response, if there was anybody to send one to.
    pub fn end(&self, span: Box<Span>, sample: &Sample, status: Option<u16>) {
        let finished = Finished {
            span,
            sample: *sample,
            status,
            ended: SystemTime::now(),
        };
        let Shared {
            spans,
            options,
            counts,
            ..
        } = &*self.shared;
        let recorded = Recorded::Invocation(finished);
        self.shared
            .push(spans, options.spans.size, &counts.spans, recorded);
    }

    /// An invocation begins a call to a service: this method, and this scheme, host, port and path. `None` if it is not known in
    /// which trace that is.
    pub fn call(
        &self,
        caller: &Caller,
        method: &str,
        (scheme, host, port, path): (&str, &str, Option<u16>, &str),
    ) -> Option<CallSpan> {
        let parent = Context::parse(caller.traceparent.as_ref()?)?;
        let mut span = CallSpan {
            tracer: self.clone(),
            context: parent,
            call: None,
        };
        if !parent.sampled {
            return Some(span);
        }
        span.context.span = not_zero();
        let state = caller.tracestate.as_ref();
        let state = state.and_then(|state| std::str::from_utf8(state).ok());
        let now = SystemTime::now();
        span.call = Some(Box::new(Call {
            context: span.context,
            parent,
            state: state
                .filter(|state| state.len() <= STATE)
                .unwrap_or_default()
                .to_owned(),
            method: method.chars().take(METHOD).collect(),
            scheme: scheme.to_owned(),
            host: host.to_owned(),
            port,
            path: path.chars().take(PATH).collect(),
            started: now,
            ended: now,
            outcome: Err(GIVEN_UP),
        }));
        Some(span)
    }
}

/// The `error.type` of a call that nobody waited for.
const GIVEN_UP: &str = "cancelled";

impl CallSpan {
    /// What the other side is to be told: the `traceparent` of this call, or of its invocation if the trace is not sampled.
    pub fn traceparent(&self) -> String {
        self.context.header()
    }

    /// The reply has begun, with this status, or will not come, for this reason.
    pub fn end(mut self, outcome: Result<u16, &'static str>) {
        if let Some(call) = &mut self.call {
            call.outcome = outcome;
        }
    }

    /// It was no call: nothing of it is recorded.
    pub fn forget(mut self) {
        self.call = None;
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        let Some(mut call) = self.call.take() else {
            return;
        };
        call.ended = SystemTime::now();
        let Shared {
            spans,
            options,
            counts,
            ..
        } = &*self.tracer.shared;
        self.tracer
            .shared
            .push(spans, options.spans.size, &counts.spans, Recorded::Call(call));
    }
}

/// Zero is no id.
fn not_zero<T: Default + PartialEq>() -> T
where
    rand::distr::StandardUniform: rand::distr::Distribution<T>,
{
    loop {
        let id: T = rand::random();
        if id != T::default() {
            return id;
        }
    }
}

/// Takes the node's own log.
pub(crate) struct Layer(Arc<Shared>);

impl<S: Subscriber> layer::Layer<S> for Layer {
    fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
        if EXPORTING.get() {
            return;
        }
        let metadata = event.metadata();
        let mut record = NodeRecord {
            time: SystemTime::now(),
            level: *metadata.level(),
            target: metadata.target(),
            message: String::new(),
            fields: Vec::new(),
        };
        event.record(&mut record);
        self.0.log(LogRecord::Node(record));
    }
}

impl field::Visit for NodeRecord {
    fn record_str(&mut self, field: &field::Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            name => self.fields.push((name, value.to_owned())),
        }
    }

    fn record_debug(&mut self, field: &field::Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter")
            .field("options", &self.inner.shared.options)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").finish_non_exhaustive()
    }
}
