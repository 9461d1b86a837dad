//! The engine of safe code: core Wasm to Rust without `unsafe`, which rustc makes native.
//!
//! That a guest keeps to its memory is rustc's word: what [`translate`] makes of a module forbids `unsafe`, and stands on a wrapper of a few
//! hundred lines that is the same for all modules. All else (contexts, fibers, the loader) this engine has in common with the one of LLVM.

mod toolchain;
mod translate;

#[cfg(test)]
mod spec;

pub use toolchain::Toolchain;
pub use translate::Bounds;

use contract::{Artefact, Code, CoreId, Engine, Image, PrepareError};
use native::{Compiler, Module, Native, Outside};
use std::{io, sync::Arc};
use toolchain::ToolError;

/// What the engine may use of the host.
pub type Options = native::Options<Bounds>;

/// rustc as the compiler of modules.
#[derive(Clone, Debug)]
pub struct Rustc {
    toolchain: Toolchain,
    bounds: Bounds,
}

impl Rustc {
    /// With this compiler of Rust, for the processor of this process.
    pub fn new(toolchain: Toolchain, bounds: Bounds) -> Self {
        Self { toolchain, bounds }
    }
}

impl Compiler for Rustc {
    fn name(&self) -> &'static str {
        match self.bounds {
            Bounds::Checked => "rwasm",
            Bounds::Mask => "rwasm-mask",
        }
    }

    fn version(&self) -> String {
        format!("{}\n{}", self.toolchain.version(), self.bounds.name())
    }

    fn outside(&self) -> Outside {
        match self.bounds {
            Bounds::Checked => Outside::Faults,
            Bounds::Mask => Outside::Zeros,
        }
    }

    fn compile(&self, module: &Module<'_>) -> Result<Vec<u8>, PrepareError> {
        let code = translate::translate(module)?;
        let folder = tempfile::tempdir().map_err(|error| PrepareError::Compiler(error.to_string()))?;
        Ok(self.toolchain.compile(&code, self.bounds, folder.path())?)
    }
}

/// See the crate's introduction.
pub struct Rwasm(Native);

impl Rwasm {
    /// With this compiler. Fails if the process cannot have the handlers of signals that it needs.
    pub fn new(toolchain: Toolchain, options: &Options) -> Result<Self, PrepareError> {
        let rustc = Rustc::new(toolchain, options.bounds);
        Ok(Self(Native::new(Box::new(rustc), options.pool())?))
    }

    /// Shares the sandboxes of another engine.
    pub fn beside(native: &Native, toolchain: Toolchain, bounds: Bounds) -> Self {
        Self(native.beside(Box::new(Rustc::new(toolchain, bounds))))
    }

    /// What it has in common with engines of other compilers.
    pub fn native(&self) -> &Native {
        &self.0
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

impl Engine for Rwasm {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn fingerprint(&self) -> &str {
        self.0.fingerprint()
    }

    fn compile(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        self.0.compile(code)
    }

    fn load(&self, artefact: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        self.0.load(artefact)
    }

    fn seat(&self, core: CoreId) -> io::Result<()> {
        self.0.seat(core)
    }

    fn preempt(&self, core: CoreId) {
        self.0.preempt(core);
    }
}
