//! A loaded module: everything about it that does not change from request to request.

use crate::{Places, host::Host, sandbox};
use contract::{ByteSize, Grant, Image, Input, Sandbox, SpawnError};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use wasmtime::{InstancePre, Linker, MemoryType, Module, ModuleExport};

pub(crate) struct Loaded {
    inner: Arc<Inner>,
    initial_memory: ByteSize,
}

pub(crate) struct Inner {
    pub(crate) instance: InstancePre<Host>,
    pub(crate) start: ModuleExport,
    pub(crate) memory: ModuleExport,
    pub(crate) places: Arc<Places>,
    /// Its libc refuses to be started twice in one memory: `reuse` is off from then on.
    once: AtomicBool,
}

impl Inner {
    pub(crate) fn refuses_reuse(&self) -> bool {
        self.once.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse_reuse(&self) {
        self.once.store(true, Ordering::Relaxed);
    }
}

impl Loaded {
    pub(crate) fn new(linker: &Linker<Host>, module: &Module, places: Arc<Places>) -> wasmtime::Result<Self> {
        let export = |name: &str| {
            module
                .get_export_index(name)
                .ok_or_else(|| wasmtime::Error::msg(format!("it does not export `{name}`")))
        };
        let (start, memory) = (export("_start")?, export("memory")?);
        let pages = module
            .get_export("memory")
            .and_then(|export| export.memory().map(MemoryType::minimum));
        let instance = linker.instantiate_pre(module)?;
        Ok(Self {
            initial_memory: ByteSize(pages.unwrap_or(0).saturating_mul(64 << 10)),
            inner: Arc::new(Inner {
                instance,
                start,
                memory,
                places,
                once: AtomicBool::new(false),
            }),
        })
    }
}

impl Image for Loaded {
    fn initial_memory(&self) -> ByteSize {
        self.initial_memory
    }

    fn spawn(&self, grant: &Arc<Grant>, input: Input) -> Result<Box<dyn Sandbox>, SpawnError> {
        match self.inner.places.take() {
            Some(place) => Ok(Box::new(sandbox::Running::new(&self.inner, grant, input, place))),
            None => Err(SpawnError::Exhausted(input)),
        }
    }
}
