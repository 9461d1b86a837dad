//! An engine that costs next to nothing until code is loaded into it.

use crate::{Layout, Options, Wasmtime};
use contract::{Artefact, Code, CoreId, Engine, Image, PrepareError};
use std::sync::{Arc, OnceLock};

/// A [`Wasmtime`] whose pool is reserved when it is first asked to compile or load something: a pool takes two maps of the
/// process for each of its places, used or not.
pub struct OnDemand {
    options: Options,
    layout: Layout,
    fingerprint: String,
    made: OnceLock<Result<Wasmtime, PrepareError>>,
}

impl OnDemand {
    /// Reserves nothing that lasts. Fails if the host could not run such an engine at all.
    pub fn new(options: Options) -> Result<Self, PrepareError> {
        // The size of a pool is no part of the fingerprint: compilers, whose pools have one place, rely on it too.
        let smallest = Wasmtime::new(&Options {
            sandboxes: 1,
            ..options.clone()
        })?;
        Ok(Self {
            layout: options.layout,
            fingerprint: smallest.fingerprint().to_owned(),
            made: OnceLock::new(),
            options,
        })
    }

    fn made(&self) -> Result<&Wasmtime, PrepareError> {
        let made = self.made.get_or_init(|| Wasmtime::new(&self.options));
        made.as_ref().map_err(Clone::clone)
    }
}

impl Engine for OnDemand {
    fn name(&self) -> &'static str {
        self.layout.name()
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn compile(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        self.made()?.compile(code)
    }

    fn load(&self, artefact: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        self.made()?.load(artefact)
    }

    fn preempt(&self, core: CoreId) {
        if let Some(Ok(made)) = self.made.get() {
            made.preempt(core);
        }
    }
}
