//! The ahead-of-time engine: Wasm at native speed, without checks in loops.
//!
//! [`Aot`] translates a module to LLVM IR, has clang make an object of it, and maps that with a loader of its own. Code runs on
//! fibers, whose thread a signal interrupts wherever it is, so that neither loops nor calls contain a check of whose turn it is; and
//! accesses of linear memory are kept inside it by what can be mapped there ([`Bounds`]).

mod guest;
mod image;
mod instance;
mod layout;
mod memory;
mod object;
mod plan;
mod pool;
mod sandbox;
mod table;
mod toolchain;
mod translate;
mod wasi_host;

/// For tests and fuzz targets, with the feature `machine`.
#[cfg(any(test, feature = "machine"))]
pub mod machine;
#[cfg(test)]
mod spec;

pub use toolchain::Toolchain;
pub use translate::{Bounds, Target};

use contract::{Artefact, Code, CodeKind, CoreId, Engine, Image, PrepareError};
use fresh::Places;
use image::{Loaded, Ready};
use plan::Plan;
use pool::Pool;
use sha2::{Digest as _, Sha256};
use std::{fs, io, sync::Arc};
use toolchain::ToolError;
use translate::{Module, Refusal, Settings, Translation};

/// What the engine may use of the host.
#[derive(Clone)]
pub struct Options {
    /// How guests are kept in their memories.
    pub bounds: Bounds,
    /// Those of sandboxes alive at once. Each takes of the host no more than one of Wasmtime's whose memory has guard pages, so both
    /// engines can have the same.
    pub places: Arc<Places>,
    /// Bytes of a linear memory that a finished sandbox leaves resident, as they were at first, for the next.
    pub keep_resident: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bounds: Bounds::default(),
            places: Places::new(1_000, None, Arc::default()),
            keep_resident: 128 << 10,
        }
    }
}

/// Maps of the process that guests take which wait for their image's next request: each has two of its stack and four of its memory,
/// and those that the protection of pages takes.
pub fn kept_maps() -> u64 {
    const MAPS: u64 = 6;
    fresh::most(fresh::threads()) as u64 * (MAPS + fresh::MOST_MAPS)
}

/// See the crate's introduction.
pub struct Aot {
    toolchain: Toolchain,
    bounds: Bounds,
    fingerprint: String,
    pool: Arc<Pool>,
    /// Another engine has the same pool, and sees to the cores.
    second: bool,
}

impl Aot {
    /// With this compiler. Fails if the process cannot have the handlers of signals that it needs.
    pub fn new(toolchain: Toolchain, options: &Options) -> Result<Self, PrepareError> {
        fiber::install().map_err(|error| PrepareError::Compiler(format!("handling signals: {error}")))?;
        let pool = Pool::new(options.places.clone(), options.keep_resident);
        Ok(Self::with(toolchain, options.bounds, Arc::new(pool), false))
    }

    /// Another engine, with other bounds, that shares the sandboxes of this one.
    pub fn beside(&self, bounds: Bounds) -> Self {
        Self::with(self.toolchain.clone(), bounds, self.pool.clone(), true)
    }

    fn with(toolchain: Toolchain, bounds: Bounds, pool: Arc<Pool>, second: bool) -> Self {
        let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let features = processor
            .lines()
            .find(|line| line.starts_with("flags") || line.starts_with("Features"))
            .unwrap_or_default();
        let version = env!("CARGO_PKG_VERSION");
        let what = format!(
            "{version}\n{}\n{features}\n{}",
            toolchain.version(),
            bounds.name()
        );
        Self {
            fingerprint: format!("3-{}", contract::Digest(Sha256::digest(what.as_bytes()).into())),
            toolchain,
            bounds,
            pool,
            second,
        }
    }

    fn prepare(&self, bytes: &[u8]) -> Result<Vec<u8>, PrepareError> {
        check_kind(bytes)?;
        let module = Module::read(bytes)?;
        let plan = Plan::new(&module)?;
        image::command(&plan).map_err(PrepareError::Unsupported)?;
        let object = native(&module, Settings::here(self.bounds), &self.toolchain)?;
        Ok(image::pack(bytes, &object)?)
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

impl From<ToolError> for PrepareError {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Code(refusal) => refusal.into(),
            other => Self::Compiler(other.to_string()),
        }
    }
}

/// A module's code: a shared object.
fn native(module: &Module<'_>, settings: Settings, toolchain: &Toolchain) -> Result<Vec<u8>, PrepareError> {
    let translation = Translation::new(module, settings)?;
    let folder = tempfile::tempdir().map_err(|error| PrepareError::Compiler(error.to_string()))?;
    Ok(toolchain.compile(&translation, folder.path())?)
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

impl Engine for Aot {
    fn name(&self) -> &'static str {
        match self.bounds {
            Bounds::Guard => "aot",
            Bounds::Software => "aot-software",
            Bounds::Mask => "aot-mask",
            Bounds::None => "aot-none",
        }
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn compile(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        match code.kind {
            CodeKind::Wasm => self.prepare(code.bytes),
            other => Err(PrepareError::Unsupported(format!(
                "{other:?} is not a kind that this engine runs"
            ))),
        }
    }

    fn load(&self, artefact: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        let loaded = Loaded::new(self, &artefact.file, self.bounds)?;
        Ok(Arc::new(Ready(Arc::new(loaded))))
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
