//! Sandboxes of Wasm that was compiled ahead of time, whoever compiled it.
//!
//! A [`Compiler`] makes a shared object of a module, for a context whose [`layout`] all of them share; [`Native`] is the engine around it.
//! It maps the object with a loader of its own, makes instances, and runs them on fibers, whose thread a signal interrupts wherever it
//! is, so that neither loops nor calls contain a check of whose turn it is.

pub mod arena;
mod guest;
mod image;
mod instance;
pub mod layout;
mod memory;
pub mod module;
pub mod object;
mod plan;
mod pool;
mod sandbox;
mod table;
pub mod tools;
mod types;
mod wasi_host;

#[cfg(feature = "escape")]
pub mod escape;
#[cfg(feature = "machine")]
pub mod machine;
#[cfg(feature = "spec")]
pub mod spec;

pub use layout::Outside;
pub use module::{Module, Refusal};
pub use pool::{Options, Pool};

use contract::{Artefact, Code, CodeKind, CoreId, Engine, Image, PrepareError};
use image::{Loaded, Ready};
use plan::Plan;
use sha2::{Digest as _, Sha256};
use std::{fs, io, sync::Arc};

/// Makes native code of Wasm.
pub trait Compiler: Send + Sync {
    /// The name of the engine that has it.
    fn name(&self) -> &'static str;

    /// All that decides what it makes, beside the processor and this crate's version.
    fn version(&self) -> String;

    /// What its code relies on around a memory.
    fn outside(&self) -> Outside;

    /// A shared object whose symbol `millpond` leads to a library of three functions, the module's functions that are referred to by
    /// their places, and an entry for each type of those, in the order of the types: [`object`] says what else it may have, [`layout`] what
    /// its code finds and what it does where it cannot go on.
    fn compile(&self, module: &Module<'_>) -> Result<Vec<u8>, PrepareError>;
}

/// Maps of the process that guests take which wait for their image's next request: each has two of its stack and four of its memory,
/// and those that the protection of pages takes.
pub fn kept_maps() -> u64 {
    const MAPS: u64 = 6;
    fresh::most(fresh::threads()) as u64 * (MAPS + fresh::MOST_MAPS)
}

/// See the crate's introduction.
pub struct Native {
    compiler: Box<dyn Compiler>,
    fingerprint: String,
    pool: Arc<Pool>,
    /// Another engine has the same pool, and sees to the cores.
    second: bool,
}

impl Native {
    /// The first with this pool. Fails if the process cannot have the handlers of signals that it needs.
    pub fn new(compiler: Box<dyn Compiler>, pool: Arc<Pool>) -> Result<Self, PrepareError> {
        fiber::install().map_err(|error| PrepareError::Compiler(format!("handling signals: {error}")))?;
        Ok(Self::with(compiler, pool, false))
    }

    /// Another engine that shares the sandboxes of this one.
    pub fn beside(&self, compiler: Box<dyn Compiler>) -> Self {
        Self::with(compiler, self.pool.clone(), true)
    }

    fn with(compiler: Box<dyn Compiler>, pool: Arc<Pool>, second: bool) -> Self {
        let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let features = processor
            .lines()
            .find(|line| line.starts_with("flags") || line.starts_with("Features"))
            .unwrap_or_default();
        let version = env!("CARGO_PKG_VERSION");
        let what = format!(
            "{version}\n{features}\n{}\n{}",
            purify::VERSION,
            compiler.version()
        );
        Self {
            fingerprint: format!("6-{}", contract::Digest(Sha256::digest(what.as_bytes()).into())),
            compiler,
            pool,
            second,
        }
    }

    fn prepare(&self, bytes: &[u8]) -> Result<Vec<u8>, PrepareError> {
        check_kind(bytes)?;
        let module = Module::read(bytes)?;
        let plan = Plan::new(&module)?;
        image::command(&plan).map_err(PrepareError::Unsupported)?;
        let object = self.compiler.compile(&module)?;
        image::pack(&plan, &object)
    }
}

impl From<Refusal> for PrepareError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed(reason) => Self::Malformed(reason),
            Refusal::Unsupported(reason) => Self::Unsupported(reason),
        }
    }
}

fn check_kind(bytes: &[u8]) -> Result<(), PrepareError> {
    if !bytes.starts_with(b"\0asm") {
        return Err(PrepareError::Malformed("it does not begin with `\\0asm`".into()));
    }
    if bytes.get(6) == Some(&1) {
        let reason = "it is a component, and this engine runs core modules: leave `engine` out for it";
        return Err(PrepareError::Unsupported(reason.into()));
    }
    Ok(())
}

impl Engine for Native {
    fn name(&self) -> &'static str {
        self.compiler.name()
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn compile(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        match code.kind {
            CodeKind::Wasm => self.prepare(code.bytes),
            CodeKind::PureWasm => self.prepare(&purify::prepare(code.bytes)?),
            other => Err(PrepareError::Unsupported(format!(
                "it is {other}, which this engine does not run"
            ))),
        }
    }

    fn load(&self, artefact: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        let loaded = Loaded::new(&self.pool, &artefact.file, self.compiler.outside())?;
        Ok(Arc::new(Ready(Arc::new(Arc::new(loaded)))))
    }

    fn seat(&self, core: CoreId) -> io::Result<()> {
        match self.second {
            true => Ok(()),
            false => self.pool.seat(core),
        }
    }

    fn preempt(&self, core: CoreId) {
        if !self.second {
            self.pool.preempt(core);
        }
    }
}
