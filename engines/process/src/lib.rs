//! The engine of native executables: a process for each request, which is forked from a zygote that is confined already.
//!
//! ```text
//! node ──starts──▶ spawner ──forks──▶ zygote of an image ──forks──▶ guest, in namespaces of its own
//!   │                                     │  ▲                        │
//!   └───────────── orders, news ──────────┘  └──── its end ───────────┘
//!   └───────────────────── a region, or files in memory ──────────────┘
//! ```
//!
//! A guest is one of two kinds ([`executable`]):
//!
//! - A **pure function**: a static executable that defines `__dandelion_system_data`. Its inputs lie in its memory before its first
//!   instruction, its outputs are taken from there when it has ended, and it can do nothing else ([`pure_guest`]).
//! - A **program**: any other. It is started as usual, with the request as its standard input and environment and its standard output as the
//!   response (the same as a command of WASI 0.1), in an empty file system that holds itself, the libraries it asks for, and an empty
//!   folder `/tmp`.
//!
//! Functions in Python are a third: their zygote starts an interpreter, which imports the function's module, and guests are forked from that
//! ([`interpreter`], [`python`], [`call`]).
//!
//! A core never waits for a process: it writes an order, and is woken by a thread that listens to all zygotes ([`host`]). Processes are the kernel's to
//! schedule and to preempt.

mod ahead;
mod call;
mod counted;
mod executable;
mod files;
mod host;
mod image;
mod instructions;
mod interpreter;
mod libraries;
mod packages;
mod page;
#[cfg_attr(not(target_arch = "x86_64"), path = "no_pure_guest.rs")]
mod pure_guest;
mod python;
mod sandbox;
mod trace;
mod wire;
mod zygote;

use confine::{Controller, Support, Wall};
use contract::{Artefact, Code, CodeKind, CoreId, Digest, Engine, Image, PrepareError};
pub use counted::Counted;
use host::Host;
use packages::Packages;
pub use python::{Python, PythonOptions};
use std::{ffi::OsString, os::unix::fs::FileExt as _, path::PathBuf, process::ExitCode, sync::Arc};

/// How a ZIP file begins.
const PACKAGE: &[u8; 4] = b"PK\x03\x04";

/// The argument with which an engine starts its own program as a spawner.
const SPAWNER: &str = "spawn-guests";

/// What the engine may use of the host.
#[derive(Clone)]
pub struct Options {
    /// A program that calls [`answer`] first of all.
    pub program: PathBuf,
    /// Sandboxes alive at once.
    pub sandboxes: u32,
    /// Zygotes alive at once, but for those that have guests. Where another one is needed, that ends which was not used for the longest time.
    pub zygotes: u32,
    /// What control groups are to count, where this host has them count it.
    pub controllers: Vec<Controller>,
    /// Whether programs run that have less to keep them in their limits than their manifests demand: see [`Counted`].
    pub allow_uncounted: bool,
    /// For functions in Python. `Err` says why there are none.
    pub python: Result<PythonOptions, String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            // This very program, whatever has become of its file.
            program: "/proc/self/exe".into(),
            sandboxes: 256,
            zygotes: 64,
            controllers: Controller::ALL.into(),
            allow_uncounted: false,
            python: Err("no interpreter was named".to_owned()),
        }
    }
}

/// See the crate's introduction.
pub struct Process {
    host: Arc<Host>,
    python: Result<(PythonOptions, Arc<Packages>), String>,
}

impl Process {
    /// Starts the thread that listens; the first image starts the spawner.
    ///
    /// Fails if this process can have no such thread. Whether the host can confine guests, [`supported`] says.
    pub fn new(options: &Options) -> Result<Self, PrepareError> {
        let host = Host::new(options)
            .map_err(|error| PrepareError::Compiler(format!("cannot listen to processes: {error}")))?;
        Ok(Self {
            host,
            python: options.python.clone().map(|python| {
                let packages = Arc::new(Packages::new(python.packages.clone()));
                (python, packages)
            }),
        })
    }
}

impl Engine for Process {
    fn name(&self) -> &'static str {
        "process"
    }

    fn fingerprint(&self) -> &str {
        concat!("executables as they are, checked by ", env!("CARGO_PKG_VERSION"))
    }

    fn compile(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        match code.kind {
            CodeKind::Python => {
                let unsupported = |reason: &String| {
                    PrepareError::Unsupported(format!("this node runs no functions in Python: {reason}"))
                };
                self.python.as_ref().map_err(unsupported)?;
                python::check(code.bytes)
            }
            _ => image::check(code.bytes),
        }
    }

    fn load(&self, artefact: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        let mut begin = [0; 4];
        let is_package = artefact.file.read_exact_at(&mut begin, 0).is_ok() && begin == *PACKAGE;
        match &self.python {
            Ok((python, packages)) if is_package => python::load(&self.host, python, packages, artefact),
            Err(reason) if is_package => Err(PrepareError::Unsupported(reason.clone())),
            _ => image::load(&self.host, &artefact),
        }
    }

    /// Nothing: the kernel preempts processes.
    fn preempt(&self, _core: CoreId) {}

    fn collect(&self, used: &dyn Fn(Digest) -> bool) {
        if let Ok((_, packages)) = &self.python {
            packages.collect(used);
        }
    }
}

/// Whether this host has all that guests are kept in by. `Err` says what is missing: nothing runs with less.
pub fn supported() -> Result<(), String> {
    let support = Support::probe();
    let missing: Vec<_> = WALLS
        .into_iter()
        .filter(|wall| !support.offers(*wall))
        .map(Wall::name)
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("this host offers no {}", missing.join(", no ")))
    }
}

/// What keeps a guest in.
const WALLS: [Wall; 8] = [
    Wall::User,
    Wall::Network,
    Wall::Ipc,
    Wall::Host,
    Wall::Processes,
    Wall::Mounts,
    Wall::Files,
    Wall::Calls,
];

/// What the program does if its arguments say that an engine started it: to be called first of all, while there is one thread.
pub fn answer(arguments: &[OsString]) -> Option<ExitCode> {
    if arguments != [SPAWNER] {
        return None;
    }
    Some(match zygote::spawner() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("millpond: {reason}");
            ExitCode::FAILURE
        }
    })
}
