//! Instances without a node, to look at what modules come to: for tests, and for fuzz targets.

use crate::{
    Compiler, image,
    instance::{External, Image, Instance, InstanceError},
    layout::{self, Builtin, FunctionReference, Trap},
    module::Module,
    plan::{Exported, Plan, Slot},
    types::ValueType,
};
use contract::PrepareError;
use fiber::{Event, Fiber, Stack, Thread};
use std::{
    io::{self, Write as _},
    sync::Arc,
};

/// Of a fiber.
const STACK: usize = 1 << 20;

thread_local! {
    /// As long as the thread lives: others on it may have seen that it has an alternate stack, and rely on that.
    static THREAD: io::Result<Thread> = fiber::install().and_then(|()| Thread::here());
}

/// A module that is compiled.
#[derive(Clone, Debug)]
pub struct Program(pub(crate) Arc<Image>);

impl Program {
    /// Of any module, whether it is a command or not.
    pub fn compile(bytes: &[u8], compiler: &dyn Compiler) -> Result<Self, PrepareError> {
        let module = Module::read(bytes)?;
        let artefact = image::pack(&Plan::new(&module)?, &compiler.compile(&module)?)?;
        let failed = |error: io::Error| PrepareError::Compiler(error.to_string());
        let mut file = tempfile::tempfile().map_err(failed)?;
        file.write_all(&artefact).map_err(failed)?;
        Ok(Self(Arc::new(image::load(&file, compiler.outside(), None)?)))
    }

    /// Names of what it exports that can be called.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        let exports = self.0.plan.exports.iter();
        exports.filter_map(|(name, exported)| matches!(exported, Exported::Function(_)).then_some(&**name))
    }
}

pub use crate::plan::slot;

/// A parameter or a result of any type: its bytes, the lowest first, and zeros behind them.
pub type Value = Slot;

/// Why there is no instance, or why a call has not returned.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Stop {
    /// In the words of the specification's tests.
    #[error("{0}")]
    Trap(&'static str),
    /// An instance that this engine does not make.
    #[error("{0}")]
    Refused(String),
    /// What no module should be able to bring about.
    #[error("{0}")]
    Failed(String),
}

impl From<InstanceError> for Stop {
    fn from(error: InstanceError) -> Self {
        match error {
            InstanceError::Trap(trap) => trap.into(),
            InstanceError::Import | InstanceError::Table(_) => Self::Refused(error.to_string()),
            InstanceError::Host(_) => Self::Failed(error.to_string()),
        }
    }
}

impl From<Trap> for Stop {
    fn from(trap: Trap) -> Self {
        Self::Trap(trap.message())
    }
}

fn failed(what: &str) -> Stop {
    Stop::Failed(what.into())
}

/// Instances, by number, and the fiber that they run on.
pub struct Machine {
    fiber: Fiber,
    #[expect(clippy::vec_box, reason = "each context has the address of its instance")]
    pub(crate) instances: Vec<Box<Instance>>,
    /// For their blocks.
    blocks: Vec<Stack>,
}

impl Machine {
    /// On this thread. Fails if the process cannot have the handlers of signals that compiled code needs.
    pub fn new() -> io::Result<Self> {
        THREAD.with(|thread| match thread {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        })?;
        Ok(Self {
            fiber: Fiber::new(Stack::new(STACK)?),
            instances: Vec::new(),
            blocks: Vec::new(),
        })
    }

    /// The new instance's number, once it is initialised and has been started. Of a module without imports.
    pub fn instantiate(&mut self, program: &Program) -> Result<usize, Stop> {
        self.link(program, &[])
    }

    /// With these imports.
    pub(crate) fn link(&mut self, program: &Program, imports: &[External]) -> Result<usize, Stop> {
        let image = &program.0;
        let block = Stack::with_room(0, image.block()).map_err(|error| Stop::Failed(error.to_string()))?;
        // SAFETY: a new block, which is kept.
        let mut instance =
            unsafe { Instance::new(image, imports, self.fiber.handle(), block.room(), (None, None))? };
        let initialised = instance.initialize();
        // What it has written elsewhere stays, also if the rest fails.
        self.blocks.push(block);
        self.instances.push(instance);
        initialised?;
        let index = self.instances.len() - 1;
        if let Some(start) = image.plan.start {
            self.run(index, start, &[])?;
        }
        Ok(index)
    }

    /// Drops the newest instance, if it is this one: nothing refers to it.
    #[cfg(feature = "spec")]
    pub(crate) fn forget(&mut self, instance: usize) -> bool {
        let newest = instance + 1 == self.instances.len();
        if newest {
            self.instances.pop();
            self.blocks.pop();
        }
        newest
    }

    /// What a function returns that an instance exports.
    pub fn call(&mut self, instance: usize, name: &str, arguments: &[Value]) -> Result<Vec<Value>, Stop> {
        let exports = self
            .instances
            .get(instance)
            .map(|instance| &instance.image.plan.exports);
        let place = exports
            .into_iter()
            .flatten()
            .find_map(|(export, exported)| match exported {
                Exported::Function(place) if **export == *name => Some(*place),
                _ => None,
            });
        self.run(
            instance,
            place.ok_or_else(|| failed("there is no such function"))?,
            arguments,
        )
    }

    /// An instance's memory, if it has one.
    pub fn memory(&self, instance: usize) -> Option<&[u8]> {
        let memory = self.instances.get(instance)?.memory?;
        // SAFETY: the memory of an instance that does not run.
        Some(unsafe { std::slice::from_raw_parts(memory.base.as_ptr(), memory.bytes() as usize) })
    }

    /// By the function's place.
    fn run(&mut self, instance: usize, place: u32, arguments: &[Value]) -> Result<Vec<Value>, Stop> {
        let instance = &self.instances[instance];
        let (entry, FunctionReference { code, context, .. }) = instance.callee(place);
        let image = instance.image.clone();
        let kind = image.plan.type_of(place);
        // A 16-byte boundary for vectors.
        let mut slots = vec![0_u128; kind.parameters.len().max(kind.results.len()).max(1)];
        for (to, from) in slots.iter_mut().zip(arguments) {
            *to = u128::from_le_bytes(*from);
        }
        self.fiber.start(
            entry,
            [
                code.addr(),
                context.addr(),
                slots.as_mut_ptr().expose_provenance(),
            ],
        );
        loop {
            // SAFETY: what the engine's compiler has made, on a thread that is prepared.
            let event = unsafe { self.fiber.resume() };
            match event.ok_or_else(|| failed("nothing runs"))? {
                Event::Returned => break,
                Event::Preempted => {}
                Event::Call {
                    number,
                    slots,
                    context,
                } => {
                    let builtin = Builtin::from_number(number).ok_or_else(|| failed("an unknown builtin"))?;
                    // SAFETY: a context has its instance's address, and a builtin's slots are on the guest's stack.
                    unsafe {
                        let owner = context
                            .byte_add(layout::OWNER as usize)
                            .cast::<*mut Instance>()
                            .read();
                        (*owner).builtin(builtin, slots.cast())?;
                    }
                }
                Event::Fault(fault) => return Err(stop(&fault)),
            }
        }
        let values = kind.results.iter().zip(&slots);
        Ok(values
            .map(|(kind, value)| slot(&value.to_le_bytes()[..width(*kind)]))
            .collect())
    }
}

/// Bytes that a value of this type takes of a slot.
fn width(kind: ValueType) -> usize {
    match kind {
        ValueType::I32 | ValueType::F32 => 4,
        ValueType::V128 => 16,
        ValueType::I64 | ValueType::F64 | ValueType::Function | ValueType::External => 8,
    }
}

fn stop(fault: &fiber::Fault) -> Stop {
    if fault.stack_overflow {
        return Trap::StackOverflow.into();
    }
    match fault.trap.and_then(|number| Trap::ALL.get(number as usize)) {
        Some(trap) => (*trap).into(),
        None if fault.signal == libc::SIGSEGV => Trap::MemoryOutOfBounds.into(),
        None => Stop::Failed(format!("{fault:?}")),
    }
}
