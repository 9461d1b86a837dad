//! The registry over the real store and disk. The engine is a tiny one whose images say what they were made of: what
//! isolates code is no business of this crate.

mod crashes;
mod deployments;
mod durability;
mod pieces;
mod tiers;
mod usage;

use crate::{Error, Options, Plan, Registry, Stored, Version, disk::digest_of};
use bytes::Bytes;
use contract::{
    Artefact, Code, CoreId, Digest, Engine, FunctionRef, Grant, HeadBuilder, Image, Input, Limits, NameError,
    PrepareError, Protocol, RequestId, ResponseHead, ResponseSink, Sandbox, SpawnError, Store, VersionNumber,
};
use manifest::Manifest;
use std::{
    collections::BTreeMap,
    io::Read,
    num::NonZeroU32,
    path::Path,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use store_embedded::Embedded;
use telemetry::metrics::{Outcome, Sample, Start};
use tempfile::TempDir;

#[derive(Default)]
struct TinyEngine {
    fingerprint: String,
    compiled: AtomicUsize,
    /// How often there were pieces.
    with_pieces: AtomicUsize,
    loaded: AtomicUsize,
}

struct TinyImage(String);

const COMPILED: &str = "compiled from ";

impl Engine for TinyEngine {
    fn name(&self) -> &'static str {
        "wasmtime"
    }
    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
    fn compile(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        self.compiled.fetch_add(1, Ordering::SeqCst);
        if let Some(path) = code.pieces {
            if path.exists() {
                self.with_pieces.fetch_add(1, Ordering::SeqCst);
            }
            std::fs::write(path, "pieces").map_err(|error| PrepareError::Compiler(error.to_string()))?;
            if code.bytes.starts_with(b"deleted") {
                std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
            }
        }
        match code.bytes {
            b"poison" => panic!("this compiler has a fault"),
            b"malformed" => Err(PrepareError::Malformed("it is not code".to_owned())),
            bytes => Ok([COMPILED.as_bytes(), bytes].concat()),
        }
    }
    fn load(&self, mut artefact: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        let mut text = String::new();
        artefact
            .file
            .read_to_string(&mut text)
            .map_err(|error| PrepareError::Artefact(error.to_string()))?;
        assert_eq!(
            digest(text.as_bytes()),
            artefact.digest,
            "an engine is only given what was verified"
        );
        self.loaded.fetch_add(1, Ordering::SeqCst);
        match text.strip_prefix(COMPILED) {
            Some(code) => Ok(Arc::new(TinyImage(code.to_owned()))),
            None => Err(PrepareError::Artefact("it was not compiled here".to_owned())),
        }
    }
    fn preempt(&self, _: CoreId) {}
}

impl Image for TinyImage {
    fn pure(&self) -> Result<(), String> {
        Ok(())
    }

    fn keeps(&self, limits: &Limits, _: &Protocol) -> Result<(), String> {
        match limits.demanded.cpus {
            true if self.0 == "uncounted" => Err("this host counts no cores".to_owned()),
            _ => Ok(()),
        }
    }

    fn kept(&self, grant: &Grant) -> Option<String> {
        (self.0 == "uncounted").then(|| format!("all but {} cores", grant.limits.cpus))
    }

    fn spawn(&self, _: &Arc<Grant>, _: Input) -> Result<Box<dyn Sandbox>, SpawnError> {
        Err(SpawnError::Failed {
            reason: self.0.clone(),
        })
    }
}

struct Nowhere;
impl ResponseSink for Nowhere {
    fn head(&mut self, _: ResponseHead) {}
    fn body(&mut self, _: Bytes) {}
    fn log(&mut self, _: &[u8]) {}
}

/// The code that an image was made of.
fn code_of(image: &Arc<dyn Image>, grant: &Arc<Grant>) -> String {
    let head = HeadBuilder::new("GET", "/", 0).build(RequestId(0));
    match image.spawn(
        grant,
        Input {
            head,
            body: Bytes::new().into(),
            response: Box::new(Nowhere),
            services: None,
        },
    ) {
        Err(SpawnError::Failed { reason }) => reason,
        _ => panic!("a tiny image does not spawn"),
    }
}

/// A request of it was on a core for so long.
fn ran(version: &Version, run: Duration) {
    let sample = Sample {
        queue: Duration::ZERO,
        boot: Duration::ZERO,
        run,
        write: Duration::ZERO,
        cpu: run,
        outcome: Outcome::Ok,
        start: Start::Sandbox,
        request_bytes: 1,
        response_bytes: 2,
        memory_bytes: 3,
    };
    version.usage.recorder().record(CoreId(0), &sample);
}

fn runs(version: &Version) -> String {
    code_of(version.image().unwrap(), &version.grant)
}

struct Node {
    folder: TempDir,
    engine: Arc<TinyEngine>,
    options: Options,
    registry: Option<Registry>,
}

impl Node {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let mut node = Self {
            folder: tempfile::tempdir().unwrap(),
            engine: Arc::default(),
            options,
            registry: None,
        };
        node.open().unwrap();
        node
    }

    fn data(&self) -> &Path {
        self.folder.path()
    }

    fn open(&mut self) -> Result<(), Error> {
        self.registry = None;
        let store: Arc<dyn Store> = Arc::new(Embedded::open(&self.data().join("store.redb")).unwrap());
        self.engine = Arc::new(TinyEngine {
            fingerprint: self.engine.fingerprint.clone(),
            ..TinyEngine::default()
        });
        let engine: Arc<dyn Engine> = Arc::clone(&self.engine) as _;
        self.registry = Some(Registry::open(
            store,
            self.data(),
            vec![engine],
            self.options.clone(),
        )?);
        Ok(())
    }

    fn registry(&self) -> &Registry {
        self.registry.as_ref().unwrap()
    }

    fn put(&self, code: &str) -> Digest {
        put(self.registry(), code)
    }

    fn deploy(&self, text: &str, code: &[(&str, &str)]) -> Result<Plan, Error> {
        deploy(self.registry(), text, code)
    }

    fn runs(&self, reference: &str) -> String {
        runs(self.registry().snapshot().version(&parse(reference)).unwrap())
    }
}

fn digest(bytes: &[u8]) -> Digest {
    digest_of(&mut &*bytes).unwrap()
}

fn put(registry: &Registry, code: &str) -> Digest {
    let digest = digest(code.as_bytes());
    let stored = registry.put_code(digest, &mut code.as_bytes()).unwrap();
    assert!(matches!(stored, Stored::New | Stored::Known));
    digest
}

fn deploy(registry: &Registry, text: &str, code: &[(&str, &str)]) -> Result<Plan, Error> {
    let code = code
        .iter()
        .map(|(function, code)| (name(function), put(registry, code)))
        .collect::<BTreeMap<_, _>>();
    registry.deploy(&manifest(text), &code)
}

fn manifest(text: &str) -> Manifest {
    manifest::parse(text).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn name<T: FromStr<Err = NameError>>(text: &str) -> T {
    text.parse().unwrap()
}

fn parse(reference: &str) -> FunctionRef {
    reference.parse().unwrap()
}

fn v(number: u32) -> VersionNumber {
    VersionNumber(NonZeroU32::new(number).unwrap())
}

const SHOP: &str = "[application]\nname = \"shop\"\n[function.resize]\nsource = \"resize.wasm\"\n";
