//! Which engine a version runs on where the node chooses, over the real store.

use super::*;
use crate::{Next, NextState, Tier, Tiers};
use parking_lot::{Condvar, Mutex};
use std::{sync::mpsc, thread, time::Duration};
use telemetry::metrics::Metrics;

/// An engine that takes over. Its compiler waits until it may go on.
#[derive(Default)]
struct Fast {
    tiny: TinyEngine,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Fast {
    fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }
}

impl Engine for Fast {
    fn name(&self) -> &'static str {
        "aot"
    }
    fn fingerprint(&self) -> &str {
        "fast"
    }
    fn compile(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        assert!(code.background.is_some(), "nobody waits for it");
        let mut open = self.open.lock();
        while !*open {
            let stopped = code.background.is_some_and(|stop| stop.load(Ordering::Relaxed));
            if stopped {
                return Err(PrepareError::Compiler("nobody wants it any more".to_owned()));
            }
            self.opened.wait_for(&mut open, Duration::from_millis(1));
        }
        match code.bytes {
            b"stubborn" => Err(PrepareError::Unsupported("it is stubborn".to_owned())),
            _ => self
                .tiny
                .compile(code)
                .map(|compiled| [&compiled, &b", fast"[..]].concat()),
        }
    }
    fn load(&self, artefact: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        self.tiny.load(artefact)
    }
    fn preempt(&self, _: CoreId) {}
}

struct Tiered {
    folder: TempDir,
    fast: Arc<Fast>,
    registry: Option<Registry>,
}

impl Tiered {
    fn new() -> Self {
        let mut node = Self {
            folder: tempfile::tempdir().unwrap(),
            fast: Arc::default(),
            registry: None,
        };
        node.open();
        node
    }

    fn open(&mut self) {
        self.registry = None;
        self.fast = Arc::default();
        let store = Embedded::open(&self.folder.path().join("store.redb")).unwrap();
        let engines: Vec<Arc<dyn Engine>> = vec![Arc::new(TinyEngine::default()), self.fast.clone()];
        let options = Options {
            metrics: Some(Arc::new(Metrics::new(1))),
            tiers: Tiers {
                then: Some("aot"),
                ..Tiers::default()
            },
            ..Options::default()
        };
        self.registry = Some(Registry::open(Arc::new(store), self.folder.path(), engines, options).unwrap());
    }

    fn registry(&self) -> &Registry {
        self.registry.as_ref().unwrap()
    }

    fn version(&self) -> Arc<Version> {
        let snapshot = self.registry().snapshot();
        Arc::clone(snapshot.version(&parse("resize")).unwrap())
    }

    /// Its requests have been on a core for so long, and the registry has learned of it.
    fn run(&self, run: Duration) {
        ran(&self.version(), run);
        self.registry().learn().unwrap();
    }

    /// What takes over, when it has.
    fn taken_over(&self) -> String {
        let (send, taken) = mpsc::channel();
        let version = self.version();
        version.when_better(move |image| send.send(image).unwrap());
        let image = taken.recv_timeout(Duration::from_secs(60)).unwrap();
        code_of(&image, &version.grant)
    }

    /// Waits until what takes over is in this state.
    fn until(&self, state: &NextState) {
        let next = || self.version().tier().next.map(|next| next.state);
        let mut patience = 60_000;
        while next().as_ref() != Some(state) && patience > 0 {
            thread::sleep(Duration::from_millis(1));
            patience -= 1;
        }
        assert_eq!(next().as_ref(), Some(state));
    }
}

const WAITING: NextState = NextState::After(Duration::from_secs(1));
const HALF: Duration = Duration::from_millis(500);

fn tier(engine: &'static str, next: Option<NextState>) -> Tier {
    let next = next.map(|state| Next { engine: "aot", state });
    Tier {
        engine: Some(engine),
        origin: None,
        kept: None,
        next,
    }
}

#[test]
fn what_has_run_for_long_is_taken_over() {
    let mut node = Tiered::new();
    deploy(node.registry(), SHOP, &[("resize", "one")]).unwrap();
    assert_eq!(node.version().tier(), tier("wasmtime", Some(WAITING)));
    node.run(HALF);
    assert_eq!(node.version().tier(), tier("wasmtime", Some(WAITING)));
    node.run(HALF);
    assert_eq!(
        node.version().tier(),
        tier("wasmtime", Some(NextState::Compiling))
    );
    assert_eq!(runs(&node.version()), "one", "the first engine goes on meanwhile");
    node.fast.open();
    assert_eq!(node.taken_over(), "one, fast");
    assert_eq!(node.version().tier(), tier("aot", None));
    assert_eq!(runs(&node.version()), "one, fast");
    // It is compiled once, whatever comes after.
    node.run(HALF);
    assert_eq!(node.fast.tiny.compiled.load(Ordering::SeqCst), 1);
    // What was compiled serves from the begin after a restart.
    node.open();
    assert_eq!(runs(&node.version()), "one, fast");
    assert_eq!(node.version().tier(), tier("aot", None));
    assert_eq!(node.fast.tiny.compiled.load(Ordering::SeqCst), 0);
}

#[test]
fn what_cannot_be_compiled_stays_where_it_is_and_says_why() {
    let node = Tiered::new();
    node.fast.open();
    deploy(node.registry(), SHOP, &[("resize", "stubborn")]).unwrap();
    node.run(2 * HALF);
    let failed = NextState::Failed("this module cannot run here: it is stubborn".to_owned());
    node.until(&failed);
    assert_eq!(node.version().tier(), tier("wasmtime", Some(failed.clone())));
    assert_eq!(runs(&node.version()), "stubborn");
    // Nor is it tried again.
    node.run(2 * HALF);
    assert_eq!(node.version().tier(), tier("wasmtime", Some(failed)));
    assert_eq!(node.fast.tiny.compiled.load(Ordering::SeqCst), 0);
}

#[test]
fn who_names_an_engine_has_it() {
    let node = Tiered::new();
    node.fast.open();
    let named = SHOP.replace("source", "engine = \"wasmtime\"\nsource");
    deploy(node.registry(), &named, &[("resize", "one")]).unwrap();
    node.run(4 * HALF);
    assert_eq!(node.version().tier(), tier("wasmtime", None));
    assert_eq!(node.version().settings.engine, "wasmtime");
}

#[test]
fn a_registry_that_ends_waits_for_no_compiler() {
    let node = Tiered::new();
    deploy(node.registry(), SHOP, &[("resize", "one")]).unwrap();
    node.run(2 * HALF);
    node.until(&NextState::Compiling);
    drop(node);
}
