//! The ahead-of-time engine: Wasm at native speed, without checks in loops.
//!
//! [`Aot`] translates a module to LLVM IR, has clang make an object of it, and maps that with a loader of its own. Code runs on
//! fibers, whose thread a signal interrupts wherever it is, so that neither loops nor calls contain a check of whose turn it is; and
//! accesses of linear memory are kept inside it by what can be mapped there ([`Bounds`]).

mod toolchain;
mod translate;

#[cfg(test)]
mod objects;
#[cfg(test)]
mod spec;

pub use toolchain::Toolchain;
pub use translate::{Bounds, Target};

use contract::{Artefact, Code, CoreId, Engine, Image, PrepareError};
use native::{Compiler, Module, Native, Outside};
use std::{io, sync::Arc};
use toolchain::ToolError;
use translate::{Settings, Translation};

/// What the engine may use of the host.
pub type Options = native::Options<Bounds>;

/// LLVM as the compiler of modules.
#[derive(Clone, Debug)]
pub struct Clang {
    toolchain: Toolchain,
    settings: Settings,
}

impl Clang {
    /// With this compiler of LLVM's IR, for the processor of this process.
    pub fn new(toolchain: Toolchain, bounds: Bounds) -> Self {
        let settings = Settings::here(bounds);
        Self { toolchain, settings }
    }
}

impl Compiler for Clang {
    fn name(&self) -> &'static str {
        match self.settings.bounds {
            Bounds::Guard => "aot",
            Bounds::Software => "aot-software",
            Bounds::Mask => "aot-mask",
            Bounds::None => "aot-none",
        }
    }

    fn version(&self) -> String {
        format!("{}\n{}", self.toolchain.version(), self.settings.bounds.name())
    }

    fn outside(&self) -> Outside {
        match self.settings.bounds {
            Bounds::Mask => Outside::Inside,
            Bounds::Guard | Bounds::Software | Bounds::None => Outside::Faults,
        }
    }

    fn compile(&self, module: &Module<'_>) -> Result<Vec<u8>, PrepareError> {
        let translation = Translation::new(module, self.settings)?;
        let folder = tempfile::tempdir().map_err(|error| PrepareError::Compiler(error.to_string()))?;
        Ok(self.toolchain.compile(&translation, folder.path())?)
    }
}

/// See the crate's introduction.
pub struct Aot {
    native: Native,
    toolchain: Toolchain,
}

impl Aot {
    /// With this compiler. Fails if the process cannot have the handlers of signals that it needs.
    pub fn new(toolchain: Toolchain, options: &Options) -> Result<Self, PrepareError> {
        let clang = Clang::new(toolchain.clone(), options.bounds);
        let native = Native::new(Box::new(clang), options.pool())?;
        Ok(Self { native, toolchain })
    }

    /// Another engine, with other bounds, that shares the sandboxes of this one.
    pub fn beside(&self, bounds: Bounds) -> Self {
        let toolchain = self.toolchain.clone();
        let native = self
            .native
            .beside(Box::new(Clang::new(toolchain.clone(), bounds)));
        Self { native, toolchain }
    }

    /// What it has in common with engines of other compilers.
    pub fn native(&self) -> &Native {
        &self.native
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

impl Engine for Aot {
    fn name(&self) -> &'static str {
        self.native.name()
    }

    fn fingerprint(&self) -> &str {
        self.native.fingerprint()
    }

    fn compile(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        self.native.compile(code)
    }

    fn load(&self, artefact: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        self.native.load(artefact)
    }

    fn seat(&self, core: CoreId) -> io::Result<()> {
        self.native.seat(core)
    }

    fn preempt(&self, core: CoreId) {
        self.native.preempt(core);
    }
}

/// What tests compile with. `None`, and said so, if there is no LLVM.
#[cfg(test)]
pub(crate) fn toolchain() -> Option<Toolchain> {
    Toolchain::find()
        .inspect_err(|reason| println!("skipped: {reason}"))
        .ok()
}
