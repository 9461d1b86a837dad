//! Create + run + destroy of a sandbox, over and over: what a worker does with each request, on one thread, through the
//! engine seam and nothing above it. The request is made before the clock starts and its answer is checked after it
//! stops.

use crate::{
    machine,
    statistics::{Summary, Times},
};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use contract::{
    Artefact, ByteSize, Code, CodeKind, CoreId, Digest, Engine, Grant, Head, HeadBuilder, Image, Input,
    Limits, Protocol, RequestId, ResponseHead, ResponseSink, Sandbox, Step, Until, Usage,
};
use engine_aot::{Aot, Bounds};
use engine_rwasm::Rwasm;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::{
    fs,
    io::{Seek, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    task::{Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The request's body.
    #[arg(long)]
    input: Option<PathBuf>,
    /// The answer's body.
    #[arg(long)]
    expect: Option<PathBuf>,
    /// The core to run on.
    #[arg(long)]
    core: Option<usize>,
    /// How often.
    #[arg(long, default_value_t = 10_000)]
    iterations: u64,
    /// Runs before the first that counts.
    #[arg(long, default_value_t = 100)]
    warm: u64,
    /// Ends after this many seconds, however often it ran.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// The sandbox's memory.
    #[arg(long, default_value = "64MiB")]
    memory: ByteSize,
    /// What isolates it.
    #[arg(long, default_value = "wasmtime")]
    engine: Isolation,
    /// It is a pure function, whose request and answer are the only items of its sets.
    #[arg(long)]
    pure: bool,
    /// The module or the executable.
    module: PathBuf,
}

/// An engine by its name.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Isolation {
    Wasmtime,
    Aot,
    AotSoftware,
    AotMask,
    AotNone,
    Rwasm,
    RwasmMask,
    Process,
}

impl Isolation {
    /// With room for so many sandboxes at once.
    pub(crate) fn engine(self, sandboxes: u32) -> Result<Arc<dyn Engine>> {
        let places = || fresh::Places::new(sandboxes, None, Arc::default());
        let aot = |bounds| -> Result<Arc<dyn Engine>> {
            let toolchain = engine_aot::Toolchain::find().map_err(anyhow::Error::msg)?;
            let options = engine_aot::Options {
                bounds,
                places: places(),
                ..engine_aot::Options::default()
            };
            Ok(Arc::new(Aot::new(toolchain, &options)?))
        };
        let rwasm = |bounds| -> Result<Arc<dyn Engine>> {
            let toolchain = engine_rwasm::Toolchain::find().map_err(anyhow::Error::msg)?;
            let options = engine_rwasm::Options {
                bounds,
                places: places(),
                ..engine_rwasm::Options::default()
            };
            Ok(Arc::new(Rwasm::new(toolchain, &options)?))
        };
        match self {
            Self::Wasmtime => {
                let options = engine_wasmtime::Options {
                    sandboxes,
                    ..engine_wasmtime::Options::default()
                };
                Ok(Arc::new(engine_wasmtime::Wasmtime::new(&options)?))
            }
            Self::Aot => aot(Bounds::Guard),
            Self::AotSoftware => aot(Bounds::Software),
            Self::AotMask => aot(Bounds::Mask),
            Self::AotNone => aot(Bounds::None),
            Self::Rwasm => rwasm(engine_rwasm::Bounds::Checked),
            Self::RwasmMask => rwasm(engine_rwasm::Bounds::Mask),
            Self::Process => {
                let options = engine_process::Options {
                    sandboxes,
                    // What is measured does not depend on it.
                    allow_uncounted: true,
                    ..engine_process::Options::default()
                };
                Ok(Arc::new(engine_process::Process::new(&options)?))
            }
        }
    }
}

/// What was measured.
#[derive(Serialize)]
pub(crate) struct Report {
    iterations: u64,
    /// From before `spawn` until the sandbox is gone.
    latency_us: Summary,
    /// From before `spawn` until the code begins to run.
    boot_us: Summary,
    /// The code alone.
    run_us: Summary,
    cpu_us: f64,
    /// Checking and compiling the module, and loading it, each once.
    compile_us: f64,
    load_us: f64,
}

/// The body that a sandbox wrote, and whether it began one.
#[derive(Default)]
pub(crate) struct Answer {
    heads: u32,
    pub(crate) body: Vec<u8>,
}

/// Collects an answer for whoever else holds it.
pub(crate) struct Sink(pub(crate) Arc<Mutex<Answer>>);

impl ResponseSink for Sink {
    fn head(&mut self, _: ResponseHead) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).heads += 1;
    }
    fn body(&mut self, chunk: Bytes) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .body
            .extend_from_slice(&chunk);
    }
    fn log(&mut self, _: &[u8]) {}
}

pub(crate) fn run(options: &Options) -> Result<Report> {
    let read = |path: &PathBuf| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let body = Bytes::from(options.input.as_ref().map(read).transpose()?.unwrap_or_default());
    let expected = options.expect.as_ref().map(read).transpose()?;
    let Module {
        image, compile, load, ..
    } = Module::load_as(&options.module, options.engine, options.pure, SANDBOXES)?;
    // Compiling used every core; what runs from here on runs on one.
    if let Some(core) = options.core {
        machine::pin(core)?;
    }

    let grant = match options.pure {
        true => pure_grant(options.memory)?,
        false => grant(options.memory)?,
    };
    let method = if body.is_empty() { "GET" } else { "POST" };
    let waker = waker();
    let answer = Arc::new(Mutex::new(Answer::default()));
    let (mut times, mut boots, mut runs) = (Times::new()?, Times::new()?, Times::new()?);
    let mut cpu = machine::own_cpu_time();
    let end = Instant::now() + Duration::from_secs_f64(options.seconds);
    for iteration in 0..options.warm + options.iterations {
        if iteration == options.warm {
            cpu = machine::own_cpu_time();
        }
        let input = Input {
            head: head(method, iteration),
            body: body.clone().into(),
            response: Box::new(Sink(answer.clone())),
            services: None,
        };
        let one = once(image.as_ref(), &grant, input, &waker)?;
        if iteration >= options.warm {
            times.record(one.total);
            boots.record(one.boot);
            runs.record(one.run);
        }
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(
            answer.heads == 1,
            "the sandbox answered with {} heads",
            answer.heads
        );
        if let Some(expected) = &expected {
            let length = answer.body.len();
            ensure!(
                answer.body == *expected,
                "the answer is not the expected one: {length} bytes, not {}",
                expected.len()
            );
        }
        answer.heads = 0;
        answer.body.clear();
        if Instant::now() >= end && times.count() > 0 {
            break;
        }
    }
    let cpu = machine::own_cpu_time().saturating_sub(cpu);
    Ok(Report {
        iterations: times.count(),
        latency_us: times.summary(),
        boot_us: boots.summary(),
        run_us: runs.summary(),
        cpu_us: cpu.as_secs_f64() * 1e6 / (times.count().max(1) as f64),
        compile_us: compile.as_secs_f64() * 1e6,
        load_us: load.as_secs_f64() * 1e6,
    })
}

/// As many as an engine has room for if nobody says otherwise.
const SANDBOXES: u32 = 1_000;

/// A module that can run.
pub(crate) struct Module {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) image: Arc<dyn Image>,
    /// What it was loaded from.
    pub(crate) compiled: Vec<u8>,
    compile: Duration,
    load: Duration,
}

impl Module {
    /// Compiles a command and loads it. That uses every core that there is.
    pub(crate) fn load(path: &Path, engine: Isolation) -> Result<Self> {
        Self::load_as(path, engine, false, SANDBOXES)
    }

    /// The same, of a command or a pure function.
    pub(crate) fn load_as(path: &Path, engine: Isolation, pure: bool, sandboxes: u32) -> Result<Self> {
        Self::load_on(engine.engine(sandboxes)?, path, pure)
    }

    /// The same, by an engine that is there.
    pub(crate) fn load_on(engine: Arc<dyn Engine>, path: &Path, pure: bool) -> Result<Self> {
        let module = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        engine.seat(CoreId(0))?;
        let begin = Instant::now();
        let compiled = engine.compile(&Code {
            kind: match CodeKind::of(&module) {
                CodeKind::Wasm if pure => CodeKind::PureWasm,
                kind => kind,
            },
            bytes: &module,
            pieces: None,
            background: None,
        })?;
        let compile = begin.elapsed();
        let mut file = tempfile::tempfile()?;
        file.write_all(&compiled)?;
        file.rewind()?;
        let digest = Digest(Sha256::digest(&compiled).into());
        let begin = Instant::now();
        let image = engine.load(Artefact { file, digest })?;
        Ok(Self {
            engine,
            image,
            compiled,
            compile,
            load: begin.elapsed(),
        })
    }
}

/// A grant of a pure function with one set each way, as bench/engines/millpond.toml has it.
pub(crate) fn pure_grant(memory: ByteSize) -> Result<Arc<Grant>> {
    let grant = grant(memory)?;
    Ok(Arc::new(Grant {
        protocol: Protocol::Pure {
            inputs: vec!["matrix".into()],
            outputs: vec!["product".into()],
            content_type: "application/octet-stream".into(),
        },
        ..Grant::clone(&grant)
    }))
}

/// What a function may use of which nothing but its memory is asked.
pub(crate) fn grant(memory: ByteSize) -> Result<Arc<Grant>> {
    Ok(Arc::new(Grant {
        limits: Limits {
            memory,
            ..Limits::default()
        },
        protocol: Protocol::Raw {
            content_type: "text/plain".into(),
        },
        ..Grant::nothing("bench.function".parse()?)
    }))
}

/// A request's head as a client might send it.
pub(crate) fn head(method: &str, id: u64) -> Box<Head> {
    let mut head = HeadBuilder::new(method, "/function/bench", 256);
    head.header("Host", b"127.0.0.1:8080")
        .header("Content-Type", b"application/octet-stream");
    head.build(RequestId(u128::from(id)))
}

struct One {
    total: Duration,
    boot: Duration,
    run: Duration,
}

/// Nothing that is measured here runs for so long.
pub(crate) const QUANTUM: Duration = Duration::from_secs(10);

/// Wakes the thread that waits for a sandbox.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Of this thread.
pub(crate) fn waker() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

/// Runs a sandbox to its end, and waits while it does.
pub(crate) fn finish(sandbox: &mut dyn Sandbox, waker: &Waker) -> Result<Usage> {
    loop {
        let until = Until {
            at: Instant::now() + QUANTUM,
            asked: &AtomicBool::new(false),
        };
        match sandbox.run(waker, until) {
            Step::Done(usage) => return Ok(usage),
            Step::Preempted => {}
            Step::Waiting { until: Some(until) } => {
                thread::park_timeout(until.saturating_duration_since(Instant::now()));
            }
            Step::Waiting { until: None } => thread::park(),
            Step::Fault(fault, _) => bail!("{fault}"),
        }
    }
}

fn once(image: &dyn Image, grant: &Arc<Grant>, input: Input, waker: &Waker) -> Result<One> {
    let begin = Instant::now();
    let mut sandbox = image
        .spawn(grant, input)
        .map_err(|error| anyhow::anyhow!("cannot make a sandbox: {error:?}"))?;
    let usage = finish(&mut *sandbox, waker)?;
    let ended = Instant::now();
    drop(sandbox);
    let gone = Instant::now();
    let started = usage.started.unwrap_or(begin);
    Ok(One {
        total: gone - begin,
        boot: started - begin,
        run: ended - started,
    })
}
