//! A loaded module: everything about it that does not change from request to request.

use crate::{
    Wasmtime,
    exposed::{self, Exposed},
    host::Host,
    instance::Instance,
    pool::Pool,
    sandbox::Running,
};
use contract::{ByteSize, Grant, Image, Input, Sandbox, SpawnError};
use fresh::{ImageId, Restorer};
use pure::system_data::EXPORT;
use std::{
    future::Future,
    ops::Range,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};
use wasmtime::{InstancePre, MemoryType, Module, ModuleExport, Store, Val};

pub(crate) struct Loaded {
    inner: Arc<Shared>,
    initial_memory: ByteSize,
}

/// What all cores' images of a module have in common. Each has its own count of who has it.
pub(crate) type Shared = Arc<Inner>;

pub(crate) struct Inner {
    pub(crate) instance: InstancePre<Host>,
    pub(crate) start: ModuleExport,
    pub(crate) memory: ModuleExport,
    /// Has the address of the structure for its sets, if it has them in its memory.
    pub(crate) structure: Option<ModuleExport>,
    /// Bytes of its memory at first, and at most.
    pub(crate) initial: u64,
    pub(crate) most: u64,
    /// The mutable ones, if the module was prepared for being restored.
    pub(crate) globals: Box<[ModuleExport]>,
    /// Of modules that can be put back to it: noted when they are loaded, or of the first instance that serves, if looking through its
    /// memory takes no time.
    first_state: OnceLock<FirstState>,
    restorable: bool,
    id: ImageId,
    pool: Arc<Pool>,
    /// Its libc refuses to be started twice in one memory: `reuse` is off from then on.
    once: AtomicBool,
}

/// An instance before its code has run.
pub(crate) struct FirstState {
    pub(crate) globals: Box<[Val]>,
    /// Of the memory, in bytes.
    pub(crate) size: usize,
    /// What is not zero in it lies in here,
    pub(crate) image: Box<[u8]>,
    /// from here on.
    pub(crate) at: usize,
}

impl FirstState {
    pub(crate) fn new(memory: &[u8], globals: Box<[Val]>) -> Self {
        let Range { start, end } = not_zero(memory);
        Self {
            globals,
            size: memory.len(),
            image: memory.get(start..end).unwrap_or_default().into(),
            at: start,
        }
    }
}

/// Where all of these bytes lie that are not 0: to the line of the processor's cache, for who loads a module waits for this.
fn not_zero(memory: &[u8]) -> Range<usize> {
    const LINE: usize = 64;
    let is_something = |line: &[u8]| line.iter().fold(0, |all, byte| all | byte) != 0;
    let mut lines = memory.chunks(LINE);
    let Some(first) = lines.position(is_something) else {
        return 0..0;
    };
    let after = memory
        .chunks(LINE)
        .rposition(is_something)
        .map_or(0, |last| last + 1);
    first * LINE..(after * LINE).min(memory.len())
}

/// Memories up to this are looked through by whoever has the first request, which costs microseconds; others by whoever loads the module.
const SMALL_FIRST_MEMORY: u64 = 1 << 20;

/// Above this, first states are not kept: a second copy of so much data for each image is not worth two microseconds.
const LARGEST_FIRST_MEMORY: u64 = 32 << 20;

impl Inner {
    pub(crate) fn refuses_reuse(&self) -> bool {
        self.once.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse_reuse(&self) {
        self.once.store(true, Ordering::Relaxed);
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn store(&self) -> Store<Host> {
        Store::new(self.instance.module().engine(), Host::default())
    }

    /// An instance in its first state, if one is at hand.
    pub(crate) fn take(&self) -> Option<Box<Instance>> {
        self.first_state.get()?;
        self.pool.idle.take(self.id)
    }

    /// An instance that has ended well.
    pub(crate) fn put(&self, mut instance: Box<Instance>) {
        let (Some(first), Some(pages)) = (self.first_state.get(), &self.pool.pages) else {
            return;
        };
        if instance.was_looked_through() {
            return;
        }
        let restorer = Restorer {
            pages,
            guards: Some(&self.pool.guards).filter(|_| self.structure.is_none()),
            most: self.pool.keep_resident,
        };
        if instance.restore(first, &restorer) {
            drop(self.pool.idle.put(self.id, instance));
        }
    }

    /// Notes the first state of a new instance, if nobody has.
    pub(crate) fn note(&self, instance: &mut Instance) {
        if self.restorable && self.first_state.get().is_none() {
            // Somebody else may have been faster: it is the same.
            let _ = self.first_state.set(instance.first_state());
        }
    }

    /// Of an instance for this alone.
    fn first_state(&self) -> Option<FirstState> {
        let mut store = self.store();
        // Without a start section, nothing of the guest's runs that could wait.
        let mut context = Context::from_waker(Waker::noop());
        let made = match pin!(Instance::new(self, &mut store)).poll(&mut context) {
            Poll::Ready(made) => made.ok()?,
            Poll::Pending => return None,
        };
        Some(made(store).first_state())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.first_state.get().is_some() {
            drop(self.pool.idle.forget(self.id));
        }
    }
}

impl Loaded {
    /// Resolves a module's imports and exports.
    pub(crate) fn new(engine: &Wasmtime, module: &Module) -> wasmtime::Result<Self> {
        let export = |name: &str| {
            module
                .get_export_index(name)
                .ok_or_else(|| wasmtime::Error::msg(format!("it does not export `{name}`")))
        };
        let (start, memory) = (export("_start")?, export("memory")?);
        let kind = module.get_export("memory");
        let kind = kind.as_ref().and_then(|export| export.memory());
        let bytes = |pages: u64| pages.saturating_mul(64 << 10);
        let initial = kind.map_or(0, |kind| bytes(kind.minimum()));
        let room = engine.layout.reservation();
        let most = kind.and_then(MemoryType::maximum);
        let instance = engine.linker.instantiate_pre(module)?;
        Ok(Self {
            initial_memory: ByteSize(initial),
            inner: Arc::new(Arc::new(Inner {
                instance,
                start,
                memory,
                structure: module.get_export_index(EXPORT),
                initial,
                most: most.map_or(room, |most| bytes(most).min(room)),
                globals: (0..)
                    .map_while(|n| module.get_export_index(&Exposed(n).to_string()))
                    .collect(),
                first_state: OnceLock::new(),
                restorable: engine.pool.pages.is_some()
                    && initial <= LARGEST_FIRST_MEMORY
                    && module.get_export_index(exposed::MARK).is_some(),
                id: engine.pool.idle.image(),
                pool: engine.pool.clone(),
                once: AtomicBool::new(false),
            })),
        })
    }

    /// Notes the first state of its instances, so that they need not be made anew each time.
    pub(crate) fn remember(self) -> Self {
        if self.inner.restorable
            && self.inner.initial > SMALL_FIRST_MEMORY
            && let Some(first) = self.inner.first_state()
        {
            let _ = self.inner.first_state.set(first);
        }
        self
    }
}

impl Image for Loaded {
    fn initial_memory(&self) -> ByteSize {
        self.initial_memory
    }

    fn pure(&self) -> Result<(), String> {
        Ok(())
    }

    fn another(&self) -> Option<Arc<dyn Image>> {
        Some(Arc::new(Self {
            inner: Arc::new(Shared::clone(&*self.inner)),
            initial_memory: self.initial_memory,
        }))
    }

    fn spawn(&self, grant: &Arc<Grant>, input: Input) -> Result<Box<dyn Sandbox>, SpawnError> {
        match self.inner.pool.take(1) {
            Some(place) => Ok(Box::new(Running::<Instance>::new(
                &self.inner,
                grant,
                input,
                place,
            ))),
            None => Err(SpawnError::Exhausted(input)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::not_zero;

    #[test]
    fn what_is_not_zero_is_found_to_the_line() {
        let mut memory = vec![0; 1000];
        assert_eq!(not_zero(&memory), 0..0);
        memory[130] = 1;
        assert_eq!(not_zero(&memory), 128..192);
        memory[999] = 1;
        assert_eq!(not_zero(&memory), 128..1000);
        memory[0] = 1;
        assert_eq!(not_zero(&memory), 0..1000);
        assert_eq!(not_zero(&[]), 0..0);
    }
}
