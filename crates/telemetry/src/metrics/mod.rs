//! Counters and histograms, sharded by core.
//!
//! A core answers a request every few microseconds, so recording one must cost tens of nanoseconds. Each function has one
//! block of numbers for each core ([`FunctionMetrics`]), as the node has ([`CoreMetrics`]). A block lies on cache lines
//! of its own and is written by its core's thread only, with plain loads and stores; readers add the blocks up.
//!
//! **One writer for each core**: [`FunctionMetrics::record`] and everything in [`CoreMetrics`] are called only by the
//! thread of the core that they name. A second writer is not unsound, but counts get lost.
//!
//! All versions of a function share its block, because series are labelled by function, not by version: a deploy neither
//! resets a counter nor adds a series. Numbers of one request are those of the version that served it.
//!
//! # Names
//! Those of OpenTelemetry's FaaS semantic conventions where they have one, with the label `faas_name` =
//! `application.function`; `millpond_…` for the rest. As the conventions have it, `faas_invocations_total` counts
//! *successful* invocations; `faas_errors_total` the others, and its `kind` says whose fault each was.
//!
//! # What a cold start is
//! The conventions count an invocation as cold when its environment had to be made for it. Here that is true of every
//! request that gets a fresh sandbox, which takes microseconds; what an operator means by the word is the rarer and
//! slower case that the function's image was not in memory. Both are told, and kept apart by the label `kind` of
//! `faas_coldstarts_total` and `faas_init_duration_seconds`:
//! - `sandbox`: a fresh sandbox of an image that was ready;
//! - `image`: the image had to be loaded first, and the request waited.
//!
//! A request served by a kept sandbox (`reuse` in the manifest) is neither. What loading consists of is in
//! `millpond_image_seconds{phase="compile"|"load"}`, recorded by whoever prepares images.

mod cell;
mod exposition;
mod histogram;
mod reading;

pub use cell::{Counter, Gauge};
pub use exposition::{Exposition, Family, Kind, Labels, Number};
pub(crate) use exposition::{Series, Value};
pub use reading::{CoreReading, FunctionReading, Reading, Times};

use cell::Tally;
use contract::{CoreId, FunctionId, Name};
pub(crate) use histogram::nanos;
use histogram::{Histogram, MEMORY, SharedHistogram, Shown, Snapshot, TIME, TRAFFIC, Unit};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeMap,
    fmt, fs,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// How an invocation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The function answered.
    Ok,
    /// The function failed; [`contract::Fault::code`] says how.
    Fault(&'static str),
    /// The client went away before there was an answer, or did not send its request to the end, and the function gave up.
    Left,
    /// The node did not take the request, for this reason (a [`contract::Problem`]'s code).
    Refused(&'static str),
    /// The platform failed, with this code.
    Platform(&'static str),
}

/// The code of [`Outcome::Left`]: what nginx counts as the status 499.
pub const CLIENT_CLOSED: &str = "client-closed";

/// What an invocation's sandbox was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It never had one.
    None,
    /// From an earlier request, as `reuse` allows.
    Reused,
    /// Fresh, from an image that was ready.
    Sandbox,
    /// Fresh, after its image had been loaded for it.
    Image,
}

/// One invocation, measured.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// From the request's last byte to the beginning of `boot`.
    pub queue: Duration,
    /// Making the sandbox. Counted when `start` is [`Start::Sandbox`] or [`Start::Image`].
    pub boot: Duration,
    /// From the guest's first instruction to its end, waiting included.
    pub run: Duration,
    /// Writing the response.
    pub write: Duration,
    /// Time that the guest had a core.
    pub cpu: Duration,
    /// How it ended.
    pub outcome: Outcome,
    /// What its sandbox was made from.
    pub start: Start,
    /// Size of the request's body.
    pub request_bytes: u64,
    /// Size of the response's body.
    pub response_bytes: u64,
    /// The sandbox's largest memory.
    pub memory_bytes: u64,
}

/// A piece of preparing an image, off the path of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImagePhase {
    /// From uploaded code to an artefact.
    Compile,
    /// From an artefact to an image.
    Load,
}

/// All numbers of a node.
pub struct Metrics {
    cores: Box<[Arc<CoreMetrics>]>,
    functions: RwLock<BTreeMap<FunctionId, Arc<FunctionMetrics>>>,
    compile: SharedHistogram,
    load: SharedHistogram,
    sources: Mutex<Vec<Source>>,
    started: SystemTime,
    /// The same moment on a clock that never jumps.
    begun: Instant,
}

type Source = Box<dyn Fn(&mut Exposition) + Send + Sync>;

/// What one core counts beyond single functions. Written by the core's thread only.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreMetrics {
    /// Connections that are open.
    pub connections_open: Gauge,
    /// Connections accepted.
    pub connections_accepted: Counter,
    /// Requests parsed.
    pub requests: Counter,
    /// Bytes read from connections.
    pub received_bytes: Counter,
    /// Bytes written to connections.
    pub sent_bytes: Counter,
    /// Requests taken from another core's queue.
    pub steals: Counter,
    /// Sandboxes preempted at the end of their quantum.
    pub preemptions: Counter,
    /// Sandboxes alive.
    pub sandboxes: Gauge,
    /// Sandboxes that can run, and requests that wait for one.
    pub runnable: Gauge,
    /// Sandboxes that wait for something.
    pub parked: Gauge,
    /// Times that a socket was set aside, because its tenant had had more than its share of a core that others waited for.
    pub set_aside: Counter,
    /// Sockets that are.
    pub aside: Gauge,
    /// 1 while the core has decided to let whoever runs on its processor go on when it is woken, else 0.
    pub patient: Gauge,
    busy: Counter,
    rejected: Tally<&'static str>,
}

impl CoreMetrics {
    /// Adds time in which the core was not asleep.
    #[inline]
    pub fn busy(&self, time: Duration) {
        self.busy.add(nanos(time));
    }

    /// Counts a request that was answered with a client's error before it reached a function: its head did not parse, no
    /// route matched. `code` is the code of the answer.
    pub fn reject(&self, code: &'static str) {
        self.rejected.count(code, OTHER);
    }
}

const OTHER: &str = "other";

/// How many invocations of a function there are at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Those that have a sandbox.
    pub running: u64,
    /// Those that were admitted and have none yet.
    pub queued: u64,
}

/// Says how many there are now; `None` once nobody can say any more.
type Watch = Box<dyn Fn() -> Option<Occupancy> + Send + Sync>;

/// The numbers of one function, all its versions together.
pub struct FunctionMetrics {
    shards: Box<[Shard]>,
    watches: Mutex<Vec<Watch>>,
}

impl fmt::Debug for FunctionMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionMetrics")
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

/// One core's part. The alignment is two cache lines, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    invocations: Counter,
    preemptions: Counter,
    steals: Counter,
    queue: Histogram,
    boot_sandbox: Histogram,
    boot_image: Histogram,
    run: Histogram,
    write: Histogram,
    total: Histogram,
    cpu: Histogram,
    memory: Histogram,
    traffic: Histogram,
    errors: Tally<(&'static str, &'static str)>,
}

impl FunctionMetrics {
    fn new(cores: usize) -> Self {
        Self {
            shards: (0..cores).map(|_| Shard::default()).collect(),
            watches: Mutex::default(),
        }
    }

    /// Asks `watch`, which counts for one of its versions, whenever somebody reads how many invocations there are now, until it
    /// says `None`. So the path of requests counts nothing twice.
    pub fn watch(&self, watch: impl Fn() -> Option<Occupancy> + Send + Sync + 'static) {
        let mut watches = self.watches.lock();
        watches.retain(|watch| watch().is_some());
        watches.push(Box::new(watch));
    }

    /// Counts an invocation's loss of its core at the end of its quantum. Only the thread of `core` may call this.
    pub fn preempted(&self, core: CoreId) {
        if let Some(shard) = self.shards.get(usize::from(core.0)) {
            shard.preemptions.add(1);
        }
    }

    /// Counts an invocation that `core` took from another's queue. Only the thread of `core` may call this.
    pub fn stolen(&self, core: CoreId) {
        if let Some(shard) = self.shards.get(usize::from(core.0)) {
            shard.steals.add(1);
        }
    }

    fn occupancy(&self) -> Occupancy {
        let mut sum = Occupancy::default();
        self.watches.lock().retain(|watch| {
            let now = watch();
            let Occupancy { running, queued } = now.unwrap_or_default();
            sum.running += running;
            sum.queued += queued;
            now.is_some()
        });
        sum
    }

    /// Records an invocation. Only the thread of `core` may call this; a core that [`Metrics::new`] was not told of is
    /// ignored.
    ///
    /// A refused request counts as an error and nothing else, since it would only blur the distributions. One that never
    /// had a sandbox has no `boot` and `run`.
    #[inline]
    pub fn record(&self, core: CoreId, sample: &Sample) {
        let Some(shard) = self.shards.get(usize::from(core.0)) else {
            return;
        };
        let error = match sample.outcome {
            Outcome::Ok => None,
            Outcome::Fault(code) => Some(("function", code)),
            Outcome::Left => Some(("client", CLIENT_CLOSED)),
            Outcome::Platform(code) => Some(("platform", code)),
            Outcome::Refused(code) => return shard.errors.count(("refused", code), ("refused", OTHER)),
        };
        match error {
            None => shard.invocations.add(1),
            Some((kind, code)) => shard.errors.count((kind, code), (kind, OTHER)),
        }
        let (queue, write) = (nanos(sample.queue), nanos(sample.write));
        shard.queue.observe(&TIME, queue);
        shard.write.observe(&TIME, write);
        let mut total = queue.saturating_add(write);
        let boot = match sample.start {
            Start::None | Start::Reused => None,
            Start::Sandbox => Some(&shard.boot_sandbox),
            Start::Image => Some(&shard.boot_image),
        };
        if let Some(histogram) = boot {
            let boot = nanos(sample.boot);
            histogram.observe(&TIME, boot);
            total = total.saturating_add(boot);
        }
        if sample.start != Start::None {
            let run = nanos(sample.run);
            shard.run.observe(&TIME, run);
            shard.cpu.observe(&TIME, nanos(sample.cpu));
            shard.memory.observe(&MEMORY, sample.memory_bytes);
            total = total.saturating_add(run);
        }
        shard.total.observe(&TIME, total);
        shard.traffic.observe(
            &TRAFFIC,
            sample.request_bytes.saturating_add(sample.response_bytes),
        );
    }

    fn snapshot(&self) -> Totals {
        let mut errors = BTreeMap::new();
        for (key, count) in self.shards.iter().flat_map(|shard| shard.errors.iter()) {
            *errors.entry(key).or_default() += count;
        }
        let merged = |scale, pick: fn(&Shard) -> &Histogram| {
            let mut snapshot = Snapshot::new(scale);
            self.shards.iter().for_each(|shard| snapshot.add(pick(shard)));
            snapshot
        };
        Totals {
            invocations: self.shards.iter().map(|shard| shard.invocations.get()).sum(),
            preemptions: self.shards.iter().map(|shard| shard.preemptions.get()).sum(),
            steals: self.shards.iter().map(|shard| shard.steals.get()).sum(),
            occupancy: self.occupancy(),
            errors,
            queue: merged(&TIME, |shard| &shard.queue),
            boot_sandbox: merged(&TIME, |shard| &shard.boot_sandbox),
            boot_image: merged(&TIME, |shard| &shard.boot_image),
            run: merged(&TIME, |shard| &shard.run),
            write: merged(&TIME, |shard| &shard.write),
            total: merged(&TIME, |shard| &shard.total),
            cpu: merged(&TIME, |shard| &shard.cpu),
            memory: merged(&MEMORY, |shard| &shard.memory),
            traffic: merged(&TRAFFIC, |shard| &shard.traffic),
        }
    }
}

/// A function's numbers, all cores together.
struct Totals {
    invocations: u64,
    preemptions: u64,
    steals: u64,
    occupancy: Occupancy,
    errors: BTreeMap<(&'static str, &'static str), u64>,
    queue: Snapshot,
    boot_sandbox: Snapshot,
    boot_image: Snapshot,
    run: Snapshot,
    write: Snapshot,
    total: Snapshot,
    cpu: Snapshot,
    memory: Snapshot,
    traffic: Snapshot,
}

impl Metrics {
    /// For a node of this many cores, numbered from 0.
    pub fn new(cores: usize) -> Self {
        Self {
            cores: (0..cores).map(|_| Arc::default()).collect(),
            functions: RwLock::default(),
            compile: SharedHistogram::default(),
            load: SharedHistogram::default(),
            sources: Mutex::default(),
            started: SystemTime::now(),
            begun: Instant::now(),
        }
    }

    /// The numbers of a function, made on first use. Takes a lock: keep what it returns beside the function's image.
    pub fn function(&self, function: &FunctionId) -> Arc<FunctionMetrics> {
        if let Some(metrics) = self.functions.read().get(function) {
            return metrics.clone();
        }
        let new = || Arc::new(FunctionMetrics::new(self.cores.len()));
        self.functions
            .write()
            .entry(function.clone())
            .or_insert_with(new)
            .clone()
    }

    /// Ends the series of a function that was deleted. If it comes back, it counts from 0, which readers of Prometheus
    /// counters know how to take.
    pub fn forget(&self, function: &FunctionId) {
        self.functions.write().remove(function);
    }

    /// How many cores it was made for.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// What a core counts; `None` for a core that [`Metrics::new`] was not told of.
    pub fn core(&self, core: CoreId) -> Option<Arc<CoreMetrics>> {
        self.cores.get(usize::from(core.0)).cloned()
    }

    /// Records a piece of preparing an image. Any thread may call this.
    pub fn image(&self, phase: ImagePhase, time: Duration) {
        let histogram = match phase {
            ImagePhase::Compile => &self.compile,
            ImagePhase::Load => &self.load,
        };
        histogram.observe(&TIME, nanos(time));
    }

    /// Adds families that somebody else counts; asked at each [`Metrics::render`].
    pub fn add_source(&self, source: impl Fn(&mut Exposition) + Send + Sync + 'static) {
        self.sources.lock().push(Box::new(source));
    }

    /// All numbers as a page of [`Exposition::MEDIA_TYPE`].
    pub fn render(&self) -> String {
        self.page().into_text()
    }

    /// The numbers of a tenant's functions, under the names that it knows.
    pub fn render_tenant(&self, tenant: &Name) -> String {
        let mut page = Exposition::default();
        self.render_functions(&mut page, |id| {
            (id.tenant() == Some(tenant)).then(|| id.local().to_string())
        });
        page.into_text()
    }

    /// What is counted now, as numbers; of the functions only those that are `shown`.
    pub fn read(&self, shown: impl Fn(&FunctionId) -> bool) -> Reading {
        let uptime = self.begun.elapsed();
        let functions = self.functions.read();
        let functions = functions.iter().filter(|(id, _)| shown(id));
        Reading {
            started: self.started,
            uptime,
            resident: resident_bytes(),
            cores: self.cores.iter().map(|core| CoreReading::of(core)).collect(),
            functions: functions
                .map(|(id, metrics)| (id.clone(), metrics.snapshot().into()))
                .collect(),
        }
    }

    /// When counting began.
    pub(crate) fn started(&self) -> SystemTime {
        self.started
    }

    /// All numbers.
    pub(crate) fn page(&self) -> Exposition {
        let mut page = Exposition::default();
        self.render_functions(&mut page, |id| Some(id.to_string()));
        self.render_cores(&mut page);
        page.family(
            Kind::Histogram,
            "millpond_image_seconds",
            "Time to prepare an image, by phase.",
        )
        .histogram(&[("phase", "compile")], &self.compile.snapshot(&TIME))
        .histogram(&[("phase", "load")], &self.load.snapshot(&TIME));
        self.render_process(&mut page);
        for source in self.sources.lock().iter() {
            source(&mut page);
        }
        page
    }

    fn render_functions(&self, page: &mut Exposition, shown: impl Fn(&FunctionId) -> Option<String>) {
        let functions: Vec<(String, Totals)> = self
            .functions
            .read()
            .iter()
            .filter_map(|(id, metrics)| Some((shown(id)?, metrics.snapshot())))
            .collect();

        let family = page.family(Kind::Counter, "faas_invocations_total", "Successful invocations.");
        for (name, totals) in &functions {
            family.sample(&[("faas_name", name)], totals.invocations);
        }
        let family = page.family(
            Kind::Counter,
            "faas_errors_total",
            "Failed invocations, by whose fault it was (kind: function, platform, refused) and the code of the answer.",
        );
        for (name, totals) in &functions {
            for ((kind, code), count) in &totals.errors {
                family.sample(&[("faas_name", name), ("kind", kind), ("code", code)], *count);
            }
        }
        let family = page.family(
            Kind::Counter,
            "faas_timeouts_total",
            "Invocations that exceeded the function's timeout; also counted in faas_errors_total.",
        );
        for (name, totals) in &functions {
            let timeouts = totals.errors.get(&("function", "limit-timeout")).unwrap_or(&0);
            family.sample(&[("faas_name", name)], *timeouts);
        }
        let family = page.family(
            Kind::Counter,
            "faas_coldstarts_total",
            "Invocations that got a fresh sandbox (kind sandbox), or for which the image was loaded first (kind image).",
        );
        for (name, totals) in &functions {
            for (kind, boot) in [("sandbox", &totals.boot_sandbox), ("image", &totals.boot_image)] {
                family.sample(&[("faas_name", name), ("kind", kind)], boot.count());
            }
        }
        type Count = fn(&Totals) -> u64;
        let counts: [(Kind, &str, &str, Count); 4] = [
            (
                Kind::Counter,
                "millpond_invocation_preemptions_total",
                "Times that an invocation lost its core at the end of a quantum.",
                |t| t.preemptions,
            ),
            (
                Kind::Counter,
                "millpond_invocation_steals_total",
                "Invocations that a core took from another's queue.",
                |t| t.steals,
            ),
            (
                Kind::Gauge,
                "millpond_invocations_running",
                "Invocations that have a sandbox.",
                |t| t.occupancy.running,
            ),
            (
                Kind::Gauge,
                "millpond_invocations_queued",
                "Invocations that were admitted and have no sandbox yet.",
                |t| t.occupancy.queued,
            ),
        ];
        for (kind, metric, help, count) in counts {
            let family = page.family(kind, metric, help);
            for (name, totals) in &functions {
                family.sample(&[("faas_name", name)], count(totals));
            }
        }
        let family = page.family(
            Kind::Histogram,
            "faas_init_duration_seconds",
            "Time to make a sandbox, by what it was made from, as in faas_coldstarts_total.",
        );
        for (name, totals) in &functions {
            for (kind, boot) in [("sandbox", &totals.boot_sandbox), ("image", &totals.boot_image)] {
                family.histogram(&[("faas_name", name), ("kind", kind)], boot);
            }
        }
        type Pick = fn(&Totals) -> &Snapshot;
        let plain: [(&str, &str, Pick); 5] = [
            (
                "faas_invoke_duration_seconds",
                "Time from the guest's first instruction to its end.",
                |t| &t.run,
            ),
            (
                "faas_cpu_usage_seconds",
                "Time that an invocation had a core.",
                |t| &t.cpu,
            ),
            (
                "faas_mem_usage_bytes",
                "Largest memory of an invocation's sandbox.",
                |t| &t.memory,
            ),
            (
                "faas_net_io_bytes",
                "Bodies of an invocation's request and response together.",
                |t| &t.traffic,
            ),
            (
                "millpond_request_seconds",
                "Time from a request's last byte to its response's: all phases.",
                |t| &t.total,
            ),
        ];
        for (metric, help, pick) in plain {
            let family = page.family(Kind::Histogram, metric, help);
            for (name, totals) in &functions {
                family.histogram(&[("faas_name", name)], pick(totals));
            }
        }
        let family = page.family(
            Kind::Histogram,
            "millpond_phase_seconds",
            "Time of an invocation by phase, as in the Server-Timing header: queue, boot, run, write.",
        );
        for (name, totals) in &functions {
            let boot = totals.boot_sandbox.clone().merge(&totals.boot_image);
            for (phase, times) in [
                ("queue", &totals.queue),
                ("boot", &boot),
                ("run", &totals.run),
                ("write", &totals.write),
            ] {
                family.histogram(&[("faas_name", name), ("phase", phase)], times);
            }
        }
    }

    fn render_cores(&self, page: &mut Exposition) {
        let cores: Vec<(String, &CoreMetrics)> = self
            .cores
            .iter()
            .enumerate()
            .map(|(i, core)| (i.to_string(), &**core))
            .collect();

        type Read<T> = fn(&CoreMetrics) -> &T;
        let counters: [(&str, &str, Read<Counter>); 8] = [
            (
                "millpond_connections_accepted_total",
                "Connections accepted.",
                |c| &c.connections_accepted,
            ),
            ("millpond_http_requests_total", "Requests parsed.", |c| {
                &c.requests
            }),
            (
                "millpond_received_bytes_total",
                "Bytes read from connections.",
                |c| &c.received_bytes,
            ),
            (
                "millpond_sent_bytes_total",
                "Bytes written to connections.",
                |c| &c.sent_bytes,
            ),
            (
                "millpond_steals_total",
                "Requests taken from another core's queue.",
                |c| &c.steals,
            ),
            (
                "millpond_preemptions_total",
                "Sandboxes preempted at the end of a quantum.",
                |c| &c.preemptions,
            ),
            (
                "millpond_set_aside_total",
                "Times that a connection was to wait, because its tenant was ahead of others.",
                |c| &c.set_aside,
            ),
            (
                "millpond_core_busy_seconds_total",
                "Time in which a core was not asleep.",
                |c| &c.busy,
            ),
        ];
        for (name, help, read) in counters {
            let unit = if name.contains("_seconds") {
                Unit::Seconds
            } else {
                Unit::Count
            };
            let family = page.family(Kind::Counter, name, help);
            for (core, metrics) in &cores {
                family.sample(&[("core", core)], Shown(read(metrics).get(), unit));
            }
        }
        let gauges: [(&str, &str, Read<Gauge>); 6] = [
            ("millpond_connections_open", "Connections that are open.", |c| {
                &c.connections_open
            }),
            ("millpond_sandboxes", "Sandboxes alive.", |c| &c.sandboxes),
            (
                "millpond_runnable",
                "Sandboxes that can run, and requests that wait for one.",
                |c| &c.runnable,
            ),
            ("millpond_parked", "Sandboxes that wait for something.", |c| {
                &c.parked
            }),
            (
                "millpond_aside",
                "Connections whose requests are read once other tenants have had their turns.",
                |c| &c.aside,
            ),
            (
                "millpond_core_patient",
                "1 while the core, when it is woken, lets whoever runs on its processor go on.",
                |c| &c.patient,
            ),
        ];
        for (name, help, read) in gauges {
            let family = page.family(Kind::Gauge, name, help);
            for (core, metrics) in &cores {
                family.sample(&[("core", core)], read(metrics).get());
            }
        }
        let mut rejected: BTreeMap<&str, u64> = BTreeMap::new();
        for (code, count) in self.cores.iter().flat_map(|core| core.rejected.iter()) {
            *rejected.entry(code).or_default() += count;
        }
        let family = page.family(
            Kind::Counter,
            "millpond_rejected_requests_total",
            "Requests answered with a client's error before they reached a function, by code.",
        );
        for (code, count) in rejected {
            family.sample(&[("code", code)], count);
        }
    }

    /// The process's own numbers, under the names that Prometheus' client libraries share.
    fn render_process(&self, page: &mut Exposition) {
        page.family(
            Kind::Gauge,
            "millpond_build_info",
            "1; the version is in the label.",
        )
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1_i64);
        let started = self
            .started
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        page.single(
            Kind::Gauge,
            "process_start_time_seconds",
            "When the process started, in seconds since 1970.",
            Shown(nanos(started), Unit::Seconds),
        );
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        if let Ok(cpu) = Duration::try_from(cpu) {
            page.single(
                Kind::Counter,
                "process_cpu_seconds_total",
                "Processor time of the process.",
                Shown(nanos(cpu), Unit::Seconds),
            );
        }
        if let Some(bytes) = resident_bytes() {
            page.single(
                Kind::Gauge,
                "process_resident_memory_bytes",
                "Memory that is resident.",
                bytes,
            );
        }
    }
}

/// The process's resident memory; `None` where there is no `/proc`.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?
        .trim()
        .strip_suffix("kB")?;
    kib.trim().parse::<u64>().ok()?.checked_mul(1024)
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("cores", &self.cores.len())
            .finish_non_exhaustive()
    }
}
