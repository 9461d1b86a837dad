//! How the engine suite, and an engine's own tests and benches, get a guest from text to its end.

use crate::{
    Artefact, ByteSize, Code, CodeKind, CoreId, Digest, Engine, Fault, Grant, HeadBuilder, Image, Input,
    Limits, PrepareError, Protocol, RequestId, ResponseHead, ResponseSink, Sandbox, Step, Until, Usage,
};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use std::{
    io::{Seek as _, Write as _},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Wake, Waker},
    thread,
    time::{Duration, Instant},
};

/// How long a guest of the suite may run at a time.
pub const QUANTUM: Duration = Duration::from_millis(1);

/// A wake-up that has not come by then will not.
const PATIENCE: Duration = Duration::from_secs(60);

/// The memory limit of [`grant`]: 64 Wasm pages.
pub const MEMORY: ByteSize = ByteSize::mib(4);

/// The response limit of [`grant`].
pub const RESPONSE_BODY: ByteSize = ByteSize::mib(4);

/// A grant with small limits and nothing else.
pub fn grant() -> Grant {
    Grant {
        limits: Limits {
            memory: MEMORY,
            response_body: RESPONSE_BODY,
            ..Limits::default()
        },
        protocol: Protocol::Raw {
            content_type: "text/plain".into(),
        },
        ..Grant::nothing("suite.guest".parse().expect("a name"))
    }
}

/// Remembers what a sandbox said, and holds it to [`ResponseSink`]'s protocol.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Record>>);

/// What a sandbox said.
#[derive(Debug, Default)]
pub struct Record {
    /// The response's head, if it came.
    pub head: Option<ResponseHead>,
    /// The response's body.
    pub body: Vec<u8>,
    /// The log.
    pub log: Vec<u8>,
}

impl Recorder {
    /// What was said so far.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.record().body).into_owned()
    }
}

impl ResponseSink for Recorder {
    fn head(&mut self, head: ResponseHead) {
        assert!(
            self.record().head.replace(head).is_none(),
            "a response has one head"
        );
    }
    fn body(&mut self, chunk: Bytes) {
        let mut record = self.record();
        assert!(record.head.is_some(), "the head comes before the body");
        record.body.extend_from_slice(&chunk);
    }
    fn log(&mut self, bytes: &[u8]) {
        self.record().log.extend_from_slice(bytes);
    }
}

/// A request with this body, and where its response goes. No two have the same id.
pub fn input(body: &[u8]) -> (Input, Recorder) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let recorder = Recorder::default();
    let id = RequestId(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)));
    let mut head = HeadBuilder::new("POST", "/function/guest/path%20info?query=1", 256);
    head.header("Host", b"suite.example")
        .header("X-Suite", b"yes")
        .header("Content-Type", b"text/plain");
    let mut head = head.build(id);
    head.set_script("/function/guest".len());
    (
        Input {
            head,
            body: Bytes::copy_from_slice(body).into(),
            response: Box::new(recorder.clone()),
            services: None,
        },
        recorder,
    )
}

/// Compiles code, or says why not.
pub fn compile(engine: &dyn Engine, bytes: &[u8]) -> Result<Vec<u8>, PrepareError> {
    compile_as(engine, CodeKind::Wasm, bytes)
}

/// The same, of code of this kind.
pub fn compile_as(engine: &dyn Engine, kind: CodeKind, bytes: &[u8]) -> Result<Vec<u8>, PrepareError> {
    engine.compile(&Code {
        kind,
        bytes,
        pieces: None,
        background: None,
    })
}

/// Loads compiled code from a file of its own.
pub fn load(engine: &dyn Engine, artefact: &[u8]) -> Result<Arc<dyn Image>, PrepareError> {
    let mut file = tempfile::tempfile().expect("a temporary file can be made");
    file.write_all(artefact)
        .and_then(|()| file.rewind())
        .expect("a temporary file can be written");
    engine.load(Artefact {
        file,
        digest: Digest(Sha256::digest(artefact).into()),
    })
}

/// A module's binary from its text.
///
/// # Panics
/// If the text is not a module's.
pub fn wasm(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_else(|error| panic!("the suite's text is wrong: {error}\n{text}"))
}

/// Compiles and loads a module that must be accepted.
pub fn image(engine: &dyn Engine, bytes: &[u8]) -> Arc<dyn Image> {
    let artefact = compile(engine, bytes).unwrap_or_else(|error| panic!("compiling failed: {error}"));
    load(engine, &artefact).unwrap_or_else(|error| panic!("loading failed: {error}"))
}

/// Wakes whoever waits in [`Running::step`].
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

impl Bell {
    /// Waits for a wake-up, or until a moment.
    fn wait(&self, until: Option<Instant>) {
        let patience = Instant::now() + PATIENCE;
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !*rung {
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                break;
            }
            assert!(now < patience, "the sandbox waits and is never woken");
            let end = until.unwrap_or(patience).min(patience);
            rung = self
                .changed
                .wait_timeout(rung, end - now)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        *rung = false;
    }
}

/// One sandbox and what it has done.
pub struct Running {
    sandbox: Box<dyn Sandbox>,
    bell: Arc<Bell>,
    waker: Waker,
    recorder: Recorder,
    /// Turns that ended with [`Step::Preempted`].
    pub preempted: u32,
    /// Turns that ended with [`Step::Waiting`].
    pub waited: u32,
}

/// How a sandbox ended.
pub type Ended = Result<Usage, (Fault, Usage)>;

impl Running {
    /// Spawns a sandbox that must be had.
    pub fn spawn(image: &Arc<dyn Image>, grant: &Grant, body: &[u8]) -> Self {
        let (input, recorder) = input(body);
        let sandbox = image
            .spawn(&Arc::new(grant.clone()), input)
            .expect("a sandbox can be spawned");
        Self::new(sandbox, recorder)
    }

    /// Wraps a sandbox that has not run.
    pub fn new(sandbox: Box<dyn Sandbox>, recorder: Recorder) -> Self {
        let bell = Arc::<Bell>::default();
        let waker = bell.clone().into();
        Self {
            sandbox,
            bell,
            waker,
            recorder,
            preempted: 0,
            waited: 0,
        }
    }

    /// What it said so far.
    pub fn said(&self) -> &Recorder {
        &self.recorder
    }

    /// One turn; `Some` at its end.
    pub fn turn(&mut self) -> Option<Ended> {
        match self.step() {
            Step::Done(usage) => {
                assert!(
                    self.recorder.record().head.is_some(),
                    "a sandbox that is done has answered"
                );
                Some(Ok(usage))
            }
            Step::Fault(fault, usage) => Some(Err((fault, usage))),
            Step::Preempted | Step::Waiting { .. } => None,
        }
    }

    /// One turn.
    pub fn step(&mut self) -> Step {
        self.step_until(Until {
            at: Instant::now() + QUANTUM,
            asked: &AtomicBool::new(false),
        })
    }

    /// One turn that ends so.
    pub fn step_until(&mut self, until: Until<'_>) -> Step {
        let step = self.sandbox.run(&self.waker, until);
        match step {
            Step::Preempted => self.preempted += 1,
            Step::Waiting { .. } => self.waited += 1,
            Step::Done(_) | Step::Fault(..) => {}
        }
        step
    }

    /// Runs to the end, sleeping where the sandbox waits.
    pub fn finish(&mut self) -> Ended {
        loop {
            match self.step() {
                Step::Done(usage) => {
                    assert!(
                        self.recorder.record().head.is_some(),
                        "a sandbox that is done has answered"
                    );
                    return Ok(usage);
                }
                Step::Fault(fault, usage) => return Err((fault, usage)),
                Step::Preempted => {}
                Step::Waiting { until } => self.bell.wait(until),
            }
        }
    }

    /// What it has used so far.
    pub fn usage(&self) -> Usage {
        self.sandbox.usage()
    }

    /// Sleeps until it is woken, or for a moment.
    pub fn rest(&self) {
        self.bell.wait(Some(Instant::now() + QUANTUM));
    }

    /// Gives it another request, if it takes one.
    pub fn renew(&mut self, grant: &Grant, body: &[u8]) -> Result<(), Input> {
        let (input, recorder) = input(body);
        self.sandbox.renew(&Arc::new(grant.clone()), input)?;
        self.recorder = recorder;
        Ok(())
    }
}

/// Calls [`Engine::preempt`] for core 0, which this thread is, every millisecond while `run` does.
pub fn ticking<T>(engine: &dyn Engine, run: impl FnOnce() -> T) -> T {
    engine.seat(CoreId(0)).expect("a thread can be a core's");
    /// Ends the ticker also when `run` panics: a scope waits for its threads.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
                engine.preempt(CoreId(0));
            }
        });
        let _stop = Stop(&stopped);
        run()
    })
}
