//! The Wasmtime engine: Cranelift code, pooled memory with copy-on-write images, preemption by epochs.
//!
//! What is slow happens once: [`contract::Engine::compile`] checks a module and compiles it, `load` maps the code and
//! resolves its imports into an `InstancePre`. A request then costs a store, an instance in a pooled slot and a fiber; or,
//! for most modules, only putting back what the last request changed. SPECIFICATION.md has the numbers.
//!
//! Four things are not obvious:
//!
//! - A sandbox is a future that owns its `Store` and is polled by [`contract::Sandbox::run`] alone. A pending future says
//!   nothing of why: an epoch's yield wakes its own waker. So the epoch callback and the host calls leave word in a
//!   thread-local [`turn::Turn`], which works because a sandbox never leaves its thread.
//! - The epoch is one counter for all cores. The worker's ticker raises it when some guest has run for long; every other
//!   guest's callback then looks at the clock and goes on until its own quantum is over.
//! - An instance whose state is all within the host's reach ([`exposed`]) is restored when its request has ended and waits
//!   for the next: its written pages and its globals become what they were (crate `fresh`). What cannot be restored is dropped.
//!   Freshness is a promise to requests: the conformance suite dirties each kind of state that there is.
//! - Host calls find the guest's memory through a handle noted after instantiation, not by name: the look-up costs
//!   more than most calls.

mod code;
mod component;
mod exposed;
mod host;
mod image;
mod instance;
mod on_demand;
mod pool;
mod room;
mod sandbox;
mod turn;

use compile::Pieces;
use contract::{Artefact, Code, CodeKind, CoreId, Engine, Image, PrepareError};
use fresh::Places;
pub use on_demand::OnDemand;
use pool::Pool;
pub use room::{Footprint, Kept, address_space};
use std::{
    borrow::Cow,
    fs::{self, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io, mem,
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
    sync::{Arc, atomic::AtomicU64},
};
use wasmtime::{
    CacheStore, Config, Enabled, InstanceAllocationStrategy, Linker, Module, PoolingAllocationConfig,
    Precompiled, component::Component,
};

/// What the engine may use of the host.
#[derive(Clone, Debug)]
pub struct Options {
    /// How their memories lie in the address space.
    pub layout: Layout,
    /// Sandboxes alive at once: what each takes of the host is its [`Layout::footprint`].
    pub sandboxes: u32,
    /// Bytes of a linear memory that a finished sandbox leaves resident, zeroed, for the next.
    pub keep_resident: usize,
    /// Counts how often the host has refused what a sandbox needed that it should have had.
    pub refusals: Arc<AtomicU64>,
    /// What earlier compiles of the same function left, for an engine that compiles one module and is dropped: its
    /// functions are taken from there, where they are there, and left there.
    pub pieces: Option<Arc<Pieces>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            sandboxes: 1_000,
            keep_resident: 1 << 20,
            refusals: Arc::default(),
            pieces: None,
        }
    }
}

/// How the linear memories of sandboxes lie in the address space. Code is compiled for one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Each has the 4 GiB that a 32-bit address can reach to itself: accesses are not checked, and what lies outside a memory
    /// faults.
    #[default]
    Guarded,
    /// Each has [`Layout::DENSE_MEMORY`]: many more find room, and every access is checked.
    Dense,
}

impl Layout {
    /// The most that a dense sandbox's memory can grow to, in bytes.
    pub const DENSE_MEMORY: u64 = 256 << 20;

    /// What engines of this layout are called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guarded => "wasmtime",
            Self::Dense => "wasmtime-dense",
        }
    }

    /// Bytes of address space for a memory, without its guard.
    const fn reservation(self) -> u64 {
        match self {
            Self::Guarded => 4 << 30,
            Self::Dense => Self::DENSE_MEMORY,
        }
    }
}

/// Cranelift's view of [`Pieces`]. Its keys are SHA-256 of a function before it is optimised, with the version of
/// Cranelift, the processor's features and all flags.
#[derive(Debug)]
struct Store(Arc<Pieces>);

impl CacheStore for Store {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.0.get(key)
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) -> bool {
        self.0.insert(key, value)
    }
}

/// What lies behind each memory: accesses at an offset below this need no check of their own.
const GUARD: u64 = 32 << 20;
/// Elements of a table.
const TABLE: usize = 64 << 10;

/// Stack that a guest may use, and what lies under it for host calls.
const GUEST_STACK: usize = 512 << 10;
const FIBER_STACK: usize = GUEST_STACK + (256 << 10);

/// Changes with what [`exposed::expose`] makes of a module and [`component::keep::prepare`] of a component.
const PREPARED: u32 = 3;

/// Whether pages may leave for swap. Wasmtime finds the written pages of a finished instance among those that are present:
/// one that went to swap would keep what the guest wrote, for the next guest in that slot.
fn swaps() -> bool {
    fs::read_to_string("/proc/swaps").is_ok_and(|areas| areas.lines().count() > 1)
}

/// See the crate's introduction.
pub struct Wasmtime {
    engine: wasmtime::Engine,
    linker: Linker<host::Host>,
    components: wasmtime::component::Linker<component::Host>,
    fingerprint: String,
    layout: Layout,
    pool: Arc<Pool>,
}

impl Wasmtime {
    /// Those of its sandboxes.
    pub fn places(&self) -> Arc<Places> {
        self.pool.places()
    }

    /// Reserves the pool. Fails if the host has no address space or no memory maps left for it.
    pub fn new(options: &Options) -> Result<Self, PrepareError> {
        let failed = |attempt: &str| {
            let attempt = attempt.to_owned();
            move |error: wasmtime::Error| PrepareError::Compiler(format!("{attempt}: {error:#}"))
        };
        let pool = Arc::new(Pool::new(options, fresh::threads()));
        let total = options.sandboxes.saturating_add(Kept::here().places);
        let reservation = options.layout.reservation();
        let mut slots = PoolingAllocationConfig::new();
        slots
            .total_core_instances(total.saturating_mul(component::MOST_INSTANCES))
            .total_component_instances(total)
            .total_memories(total)
            .total_tables(total.saturating_mul(component::TABLES_OF_A_PLACE))
            .total_stacks(total)
            .max_memories_per_module(1)
            .max_tables_per_module(1)
            .max_core_instances_per_component(component::MOST_INSTANCES)
            .max_memories_per_component(component::MOST_MEMORIES)
            .max_tables_per_component(component::MOST_TABLES)
            .max_memory_size(usize::try_from(reservation).unwrap_or(usize::MAX))
            .table_elements(TABLE)
            .max_unused_warm_slots(16)
            .linear_memory_keep_resident(options.keep_resident)
            .table_keep_resident(16 << 10)
            .pagemap_scan(if swaps() { Enabled::No } else { Enabled::Auto });
        let mut config = Config::new();
        config
            .allocation_strategy(InstanceAllocationStrategy::Pooling(slots))
            .epoch_interruption(true)
            .memory_init_cow(true)
            .memory_reservation(reservation)
            .memory_guard_size(GUARD)
            .memory_may_move(false)
            .max_wasm_stack(GUEST_STACK)
            .async_stack_size(FIBER_STACK)
            .wasm_multi_memory(false)
            .wasm_memory64(false)
            .wasm_relaxed_simd(true)
            .wasm_tail_call(true)
            .cranelift_opt_level(wasmtime::OptLevel::Speed);
        if let Some(pieces) = &options.pieces {
            config
                .enable_incremental_compilation(Arc::new(Store(Arc::clone(pieces))))
                .map_err(failed("letting pieces of earlier compiles be used"))?;
        }
        let reserving = "reserving the pool of sandboxes, which may need a higher vm.max_map_count, or fewer sandboxes in the configuration";
        let engine = wasmtime::Engine::new(&config).map_err(failed(reserving))?;
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        (PREPARED, purify::VERSION).hash(&mut hasher);
        let fingerprint = format!("48.0-{:016x}", hasher.finish());
        let linker = host::linker(&engine).map_err(failed("linking WASI 0.1"))?;
        let components = component::linker(&engine).map_err(failed("linking WASI 0.2"))?;
        Ok(Self {
            engine,
            linker,
            components,
            fingerprint,
            layout: options.layout,
            pool,
        })
    }
}

impl Drop for Wasmtime {
    fn drop(&mut self) {
        // To unmap a pool may split maps, which the kernel refuses a process that has all it may have; Wasmtime takes that for a
        // bug. What is left goes with the process.
        if self.pool.was_refused() {
            mem::forget(self.engine.clone());
        }
    }
}

impl Wasmtime {
    fn prepare(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        let bytes = match code.kind {
            CodeKind::Wasm => Cow::Borrowed(code.bytes),
            CodeKind::PureWasm => purify::prepare(code.bytes)?,
            other => {
                return Err(PrepareError::Unsupported(format!(
                    "it is {other}, which this engine does not run"
                )));
            }
        };
        let kind = code::check(&bytes)?;
        // Whatever the checks above did not foresee: the module is still at fault, not the platform.
        let refused = |error: wasmtime::Error| PrepareError::Unsupported(format!("{error:#}"));
        // Made here once as `load` will make it: whether its tables and globals fit the pool shows only then.
        let artefact = match kind {
            Precompiled::Module => {
                let module = Module::new(&self.engine, exposed::expose(&bytes)).map_err(refused)?;
                image::Loaded::new(self, &module).map_err(refused)?;
                module.serialize()
            }
            Precompiled::Component => {
                let component =
                    Component::new(&self.engine, component::keep::prepare(&bytes)).map_err(refused)?;
                component::Loaded::new(self, &component).map_err(refused)?;
                component.serialize()
            }
        };
        artefact.map_err(|error| PrepareError::Compiler(format!("{error:#}")))
    }

    fn load_component(&self, path: &str) -> wasmtime::Result<component::Loaded> {
        // SAFETY: as in `load`; the path leads to the file of that descriptor.
        let component = unsafe { Component::deserialize_file(&self.engine, path) }?;
        component::Loaded::new(self, &component)
    }
}

/// The flag of components among those of Wasmtime's ELF files (`wasmtime_environ::obj`).
const EF_WASMTIME_COMPONENT: u32 = 1 << 1;

/// Whether an artefact is a component's. `Engine::detect_precompiled_file` would open the file once more, and read all its
/// sections' headers.
fn is_component(artefact: &File) -> io::Result<bool> {
    // Where the header of a 64-bit ELF file has its flags.
    let mut flags = [0; 4];
    artefact.read_exact_at(&mut flags, 48)?;
    Ok(u32::from_le_bytes(flags) & EF_WASMTIME_COMPONENT != 0)
}

impl Engine for Wasmtime {
    fn name(&self) -> &'static str {
        self.layout.name()
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn compile(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        self.prepare(code).map_err(code::readable)
    }

    fn load(&self, artefact: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        let refused = |error: wasmtime::Error| PrepareError::Artefact(format!("{error:#}"));
        if is_component(&artefact.file).map_err(|error| refused(error.into()))? {
            // Wasmtime takes a component's file by its path only: this one leads to the descriptor's.
            let path = format!("/proc/self/fd/{}", artefact.file.as_raw_fd());
            return Ok(Arc::new(self.load_component(&path).map_err(refused)?.remember()));
        }
        // SAFETY: `Artefact` promises that the file is what an engine of this fingerprint compiled: its content was
        // compared, through this descriptor, with the digest recorded then, and nobody writes to it afterwards.
        let module =
            unsafe { Module::deserialize_open_file(&self.engine, artefact.file) }.map_err(refused)?;
        let image = image::Loaded::new(self, &module).map_err(refused)?;
        Ok(Arc::new(image.remember()))
    }

    fn preempt(&self, _core: CoreId) {
        self.engine.increment_epoch();
    }
}
