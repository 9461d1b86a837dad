//! What tests run modules with.

use crate::{
    Bounds, Toolchain,
    instance::{External, Image, Instance, InstanceError},
    layout::{self, Builtin, FunctionReference, Trap},
    object::Object,
    plan::{Plan, Slot, slot},
    translate::{Module, Refusal, Settings, Translation},
};
use fiber::{Event, Fiber, Stack};
use std::{io::Write as _, sync::Arc};

/// What tests compile with, once this process can run what comes of it. `None`, and said so, if there is no LLVM.
pub(crate) fn toolchain() -> Option<Toolchain> {
    match Toolchain::find() {
        Ok(toolchain) => {
            fiber::install().unwrap();
            Some(toolchain)
        }
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}

pub(crate) fn compile(bytes: &[u8], bounds: Bounds, toolchain: &Toolchain) -> Result<Image, Refusal> {
    compile_with(bytes, Settings::here(bounds), toolchain)
}

pub(crate) fn compile_with(
    bytes: &[u8],
    settings: Settings,
    toolchain: &Toolchain,
) -> Result<Image, Refusal> {
    let module = Module::read(bytes)?;
    let plan = Plan::new(&module)?;
    let translation = Translation::new(&module, settings)?;
    let folder = tempfile::tempdir().unwrap();
    let object = toolchain
        .compile(&translation, folder.path())
        .unwrap_or_else(|error| panic!("{error}"));
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&object).unwrap();
    let object = Object::load(&file, 0, &object, plan.functions.len() + plan.entries).unwrap();
    Ok(Image::new(plan, object, settings.bounds, true).unwrap())
}

/// Bytes that a value of this type takes of a slot.
fn width(kind: wasmparser::ValType) -> usize {
    match kind {
        wasmparser::ValType::I32 | wasmparser::ValType::F32 => 4,
        wasmparser::ValType::V128 => 16,
        wasmparser::ValType::I64 | wasmparser::ValType::F64 | wasmparser::ValType::Ref(_) => 8,
    }
}

/// What an execution came to.
pub(crate) type Outcome = Result<Vec<(wasmparser::ValType, Slot)>, InstanceError>;

/// Instances, and the fiber that they run on.
pub(crate) struct Machine {
    fiber: Fiber,
    #[expect(clippy::vec_box, reason = "each context has the address of its instance")]
    pub(crate) instances: Vec<Box<Instance>>,
    /// For their blocks.
    blocks: Vec<Stack>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self {
            fiber: Fiber::new(Stack::new(1 << 20).unwrap()),
            instances: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// The new instance's number, once it is initialised and has been started.
    pub(crate) fn instantiate(
        &mut self,
        image: &Arc<Image>,
        imports: &[External],
    ) -> Result<usize, InstanceError> {
        let block = Stack::with_room(0, image.block()).unwrap();
        // SAFETY: a new block, which is kept.
        let instance = unsafe { Instance::new(image, imports, self.fiber.handle(), block.room())? };
        self.blocks.push(block);
        // What it has written elsewhere stays, also if the rest fails.
        self.instances.push(instance);
        let index = self.instances.len() - 1;
        self.instances[index].initialize()?;
        if let Some(start) = image.plan.start {
            self.call(index, start, &[])?;
        }
        Ok(index)
    }

    /// Drops the newest instance, if it is this one: nothing refers to it.
    pub(crate) fn forget(&mut self, instance: usize) -> bool {
        let newest = instance + 1 == self.instances.len();
        if newest {
            self.instances.pop();
            self.blocks.pop();
        }
        newest
    }

    /// Calls a function by its place.
    pub(crate) fn call(&mut self, instance: usize, place: u32, arguments: &[Slot]) -> Outcome {
        let (entry, FunctionReference { code, context, .. }) = self.instances[instance].callee(place);
        let kind = self.instances[instance].image.plan.functions[place as usize]
            .kind
            .clone();
        let mut slots: Vec<Slot> = arguments.to_vec();
        slots.resize(
            kind.params().len().max(kind.results().len()).max(1),
            Slot::default(),
        );
        // A 16-byte boundary for vectors.
        let mut aligned = vec![0_u128; slots.len()];
        for (to, from) in aligned.iter_mut().zip(&slots) {
            *to = u128::from_le_bytes(*from);
        }
        self.fiber.start(
            entry,
            [
                code.addr(),
                context.addr(),
                aligned.as_mut_ptr().expose_provenance(),
            ],
        );
        loop {
            // SAFETY: what the engine's compiler has made, on a thread that is prepared.
            match unsafe { self.fiber.resume() }.unwrap() {
                Event::Returned => break,
                Event::Preempted => {}
                Event::Call {
                    number,
                    slots,
                    context,
                } => {
                    let builtin = Builtin::from_number(number).unwrap();
                    // SAFETY: a context has its instance's address, and a builtin's slots are on the guest's stack.
                    unsafe {
                        let owner = context
                            .byte_add(layout::OWNER as usize)
                            .cast::<*mut Instance>()
                            .read();
                        (*owner).builtin(builtin, slots.cast())?;
                    }
                }
                Event::Fault(fault) => return Err(trap(&fault).into()),
            }
        }
        let values = kind.results().iter().zip(&aligned);
        Ok(values
            .map(|(kind, value)| (*kind, slot(&value.to_le_bytes()[..width(*kind)])))
            .collect())
    }
}

fn trap(fault: &fiber::Fault) -> Trap {
    if fault.stack_overflow {
        return Trap::StackOverflow;
    }
    match fault.trap.and_then(|number| Trap::ALL.get(number as usize)) {
        Some(trap) => *trap,
        None if fault.signal == libc::SIGSEGV => Trap::MemoryOutOfBounds,
        None => panic!("{fault:?}"),
    }
}
