//! Artefacts: what `compile` makes and `load` takes.
//!
//! | bytes | |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 8, 8 | the lengths of the plan and of the object |
//! | … | the [`Plan`] |
//! | | zeros to the next page |
//! | to the end | the object |

use crate::{
    arena::Arena,
    guest::Guest,
    instance::{Image, Instance},
    layout::Outside,
    memory::{FirstMemory, HOST_PAGE, PAGE},
    object::{Object, ObjectError},
    plan::{Exported, Plan, Step},
    pool::Pool,
    sandbox::Running,
    wasi_host::{self, HostFunctions},
};
use contract::{ByteSize, Grant, Input, PrepareError, Sandbox, SpawnError};
use fresh::ImageId;
use pure::system_data::EXPORT;
use rustix::{
    buffer::spare_capacity,
    io::{Errno, pread},
};
use std::{
    fs::File,
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// Changes with the format, and with what compiled code expects of its context.
const MAGIC: [u8; 8] = *b"pondaot3";

/// An image and what a command of WASI 0.1 has in it.
pub(crate) struct Loaded {
    pub(crate) image: Arc<Image>,
    pub(crate) functions: HostFunctions,
    /// The place of `_start`.
    pub(crate) start: u32,
    /// The address of the structure for its sets, if it can have them in its memory.
    pub(crate) structure: Option<u32>,
    /// Made when the first guest has ended, for those after it: who asks first waits for nothing that only others need.
    pub(crate) first: OnceLock<Arc<FirstMemory>>,
    pub(crate) pool: Arc<Pool>,
    id: ImageId,
    /// Its libc refuses to be started twice in one memory: `reuse` is off from then on.
    once: AtomicBool,
}

/// A command of WASI 0.1: its host functions and the place of its `_start`.
pub(crate) fn command(plan: &Plan) -> Result<(HostFunctions, u32), String> {
    let functions = wasi_host::link(plan)?;
    let export = |name: &str| {
        plan.exports
            .iter()
            .find(|(export, _)| **export == *name)
            .map(|(_, exported)| *exported)
    };
    let start = match export("_start") {
        Some(Exported::Function(place)) => place,
        _ => {
            return Err(
                "it exports no function `_start`, so it is not a command (a library or a reactor cannot answer requests)".into(),
            );
        }
    };
    let kind = plan.type_of(start);
    if !kind.parameters.is_empty() || !kind.results.is_empty() {
        return Err(format!(
            "its `_start` is {kind}; a command's takes and returns nothing"
        ));
    }
    if export("memory") != Some(Exported::Memory) {
        return Err("it exports no `memory`, which a WASI 0.1 command must".into());
    }
    Ok((functions, start))
}

/// The address of the structure for a pure function's sets.
fn structure(plan: &Plan) -> Option<u32> {
    let mut exports = plan.exports.iter();
    let (_, exported) = exports.find(|(name, _)| **name == *EXPORT)?;
    let Exported::Global(index) = exported else {
        return None;
    };
    match plan.globals.get(*index as usize)?.1.as_deref()? {
        [Step::Constant(address)] => Some(u32::from_le_bytes(*address.first_chunk()?)),
        _ => None,
    }
}

/// The artefact of a module's plan and its object.
pub(crate) fn pack(plan: &Plan, object: &[u8]) -> Result<Vec<u8>, PrepareError> {
    let plan = postcard::to_allocvec(plan).map_err(|error| PrepareError::Compiler(error.to_string()))?;
    let mut out = MAGIC.to_vec();
    out.extend((plan.len() as u64).to_le_bytes());
    out.extend((object.len() as u64).to_le_bytes());
    out.extend(plan);
    out.resize(out.len().next_multiple_of(HOST_PAGE), 0);
    out.extend(object);
    Ok(out)
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at + 8)?;
    usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}

/// Bytes that the first call asks for: more than small functions have.
const USUAL: usize = 64 << 10;

/// All of a file, by one call if it is small.
fn content(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(USUAL);
    loop {
        let at = bytes.len() as u64;
        match pread(file, spare_capacity(&mut bytes), at) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        // No file gives less than there is room for but at its end.
        if bytes.len() < bytes.capacity() {
            return Ok(bytes);
        }
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        bytes.reserve_exact(length.saturating_sub(bytes.len()) + 1);
    }
}

/// What an artefact has.
struct Parts<'a> {
    plan: &'a [u8],
    object: &'a [u8],
    /// Where the object begins.
    at: usize,
}

const HEAD: usize = 24;

fn unpack(bytes: &[u8]) -> Option<Parts<'_>> {
    if !bytes.starts_with(&MAGIC) {
        return None;
    }
    let (plan, length) = (word(bytes, 8)?, word(bytes, 16)?);
    let end = HEAD.checked_add(plan)?;
    let at = end.checked_next_multiple_of(HOST_PAGE)?;
    let object = bytes.get(at..).filter(|object| object.len() == length)?;
    Some(Parts {
        plan: bytes.get(HEAD..end)?,
        object,
        at,
    })
}

/// Loads an artefact.
pub(crate) fn load(file: &File, outside: Outside, arena: Option<&Arc<Arena>>) -> Result<Image, PrepareError> {
    let damaged = |what: String| PrepareError::Artefact(what);
    let bytes = content(file).map_err(|error| damaged(error.to_string()))?;
    let parts =
        unpack(&bytes).ok_or_else(|| damaged("it is not what this engine's compiler makes".into()))?;
    let plan = Plan::read(parts.plan).map_err(damaged)?;
    let object = Object::load(file, parts.at as u64, parts.object, plan.symbols(), arena);
    let object = object.map_err(|error| match error {
        ObjectError::Host(reason) => PrepareError::Compiler(reason),
        other => damaged(other.to_string()),
    })?;
    Image::new(plan, object, outside).map_err(|error| damaged(error.to_string()))
}

impl Loaded {
    pub(crate) fn new(pool: &Arc<Pool>, file: &File, outside: Outside) -> Result<Self, PrepareError> {
        let image = load(file, outside, pool.arena.as_ref())?;
        let (functions, start) = command(&image.plan).map_err(PrepareError::Artefact)?;
        Ok(Self {
            structure: structure(&image.plan),
            image: Arc::new(image),
            functions,
            start,
            first: OnceLock::new(),
            pool: pool.clone(),
            id: pool.idle.image(),
            once: AtomicBool::new(false),
        })
    }

    /// Bytes of memory that its guests begin with.
    pub(crate) fn initial_memory(&self) -> u64 {
        self.image.plan.memory.map_or(0, |memory| memory.initial) * PAGE
    }

    /// A guest that is as new, if one is at hand.
    pub(crate) fn take(&self) -> Option<Box<Guest>> {
        self.pool.idle.take(self.id)
    }

    /// Keeps a guest for another request, if the host has what that takes.
    pub(crate) fn put(&self, mut guest: Box<Guest>) {
        if guest.restore(self) {
            self.pool.keep(self.id, guest);
        }
    }

    /// What memories of its guests hold at first, from a guest that has begun.
    pub(crate) fn first_memory(&self, guest: &Instance) -> Option<Arc<FirstMemory>> {
        if let Some(first) = self.first.get() {
            return Some(first.clone());
        }
        let made = Arc::new(guest.first_memory().ok()?);
        // Somebody else may have been faster: it is the same.
        Some(self.first.get_or_init(|| made).clone())
    }

    pub(crate) fn refuses_reuse(&self) -> bool {
        self.once.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse_reuse(&self) {
        self.once.store(true, Ordering::Relaxed);
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.pool.forget(self.id);
    }
}

/// What the worker holds of it.
pub(crate) struct Ready(pub(crate) Arc<Shared>);

/// What all cores' images of a module have in common. Each has its own count of who has it.
pub(crate) type Shared = Arc<Loaded>;

impl contract::Image for Ready {
    fn initial_memory(&self) -> ByteSize {
        ByteSize(self.0.initial_memory())
    }

    fn pure(&self) -> Result<(), String> {
        Ok(())
    }

    fn another(&self) -> Option<Arc<dyn contract::Image>> {
        Some(Arc::new(Self(Arc::new(Shared::clone(&*self.0)))))
    }

    fn spawn(&self, grant: &Arc<Grant>, input: Input) -> Result<Box<dyn Sandbox>, SpawnError> {
        match self.0.pool.places.take(1) {
            Some(place) => Ok(Box::new(Running::new(
                self.0.clone(),
                grant.clone(),
                input,
                place,
            ))),
            None => Err(SpawnError::Exhausted(input)),
        }
    }
}
