//! An instance and the stack that it runs on.

use crate::{
    image::Loaded,
    instance::{External, Instance, InstanceError},
    layout::Outside,
    memory::{FirstMemory, Space},
    pool,
};
use fiber::{Fiber, Rescued, Stack};
use fresh::{Guard, Restorer, Watched};
use rustix::io;
use std::{ffi::c_void, sync::Arc};

/// See the module. Its instance's block lies above its fiber's stack.
pub(crate) struct Guest {
    // First: it is gone before the memory is.
    guard: Option<Guard>,
    /// What the guard watches.
    watched: Option<Arc<Watched>>,
    pub(crate) instance: Box<Instance>,
    pub(crate) fiber: Fiber,
    /// Bytes of memory that it was given for the sets of a request: it keeps them.
    extended: Option<u64>,
    /// What its memory held at first. None in the first of its image, which others share nothing with yet.
    first: Option<Arc<FirstMemory>>,
}

// SAFETY: its parts refer to each other only, and a thread gives it away only when its code has been forgotten.
unsafe impl Send for Guest {}

/// What a guest of an image that nobody asks for leaves to a guest of any other: a stack, and a memory's space. Compiled code reads nothing
/// on its stack that it has not written, so no one clears that.
pub(crate) struct Vacant {
    stack: Stack,
    space: Space,
}

impl Vacant {
    /// For whose memories it is of use.
    pub(crate) fn outside(&self) -> Outside {
        self.space.outside()
    }
}

impl Guest {
    /// A new one, ready to begin, with memory of this size if that is more than it asks for.
    pub(crate) fn new(image: &Loaded, bytes: Option<u64>) -> Result<Self, InstanceError> {
        let vacant = image.pool.vacant(image.image.outside);
        let (stack, space) = vacant.map_or((None, None), |vacant| (Some(vacant.stack), Some(vacant.space)));
        let block = image.image.block();
        let stack = match stack.filter(|stack| stack.clear_room(block)) {
            Some(stack) => stack,
            None => pool::stack(block).map_err(InstanceError::Host)?,
        };
        let block = stack.room();
        let fiber = Fiber::new(stack);
        let imports = vec![External::Host; image.image.plan.imports.len()];
        // SAFETY: the block is in the stack, which the fiber keeps as long as the guest lives, and new.
        let mut instance =
            unsafe { Instance::new(&image.image, &imports, fiber.handle(), block, (space, bytes))? };
        let first = image.first.get().cloned();
        match &first {
            Some(first) => instance.initialize_with(first)?,
            None => instance.initialize()?,
        }
        Ok(Self {
            guard: None,
            watched: None,
            instance,
            fiber,
            extended: bytes,
            first,
        })
    }

    /// What it leaves, if it has been put back to the first state of its image.
    pub(crate) fn vacate(mut self) -> Option<Vacant> {
        self.guard = None;
        let space = self.instance.vacate(&*self.first?)?;
        let stack = self.fiber.into_stack();
        Some(Vacant { stack, space })
    }

    /// Makes its memory as large as it is to be for a pure function's sets, or as it is for others.
    pub(crate) fn extend(&mut self, bytes: Option<u64>) -> io::Result<()> {
        let Some(memory) = self.instance.memory else {
            return Ok(());
        };
        if self.extended == bytes {
            return Ok(());
        }
        self.extended = bytes;
        self.instance.set_memory(&memory, bytes)
    }

    /// Calls a function that takes and returns nothing.
    pub(crate) fn start(&mut self, place: u32) {
        let (entry, function) = self.instance.callee(place);
        self.fiber
            .start(entry, [function.code.addr(), function.context.addr(), 0]);
    }

    /// Makes it as new, whatever its code is at. `false` if it is of no use any more.
    pub(crate) fn restore(&mut self, image: &Loaded) -> bool {
        let first = match &self.first {
            Some(first) => first,
            None => {
                let Some(first) = image.first_memory(&self.instance) else {
                    return false;
                };
                let memory = &self.instance.memory;
                if memory.is_some_and(|memory| first.put(&memory).is_err()) {
                    return false;
                }
                self.first.insert(first)
            }
        };
        let pool = &image.pool;
        let restorer = pool.pages.as_ref().map(|pages| Restorer {
            pages,
            guards: Some(&pool.guards).filter(|_| image.structure.is_none()),
            most: pool.keep_resident,
        });
        let watched = &mut self.watched;
        self.instance.restore(
            (first, &mut self.extended),
            restorer.as_ref(),
            &mut self.guard,
            |watch| *watched = Some(watch),
        )
    }

    /// While its code or a host call of it runs.
    pub(crate) fn rescued(&self) -> Option<Rescued> {
        let watched = Arc::as_ptr(self.watched.as_ref()?);
        // SAFETY: what is watched is kept longer than the code runs.
        Some(unsafe { Rescued::by(surprise, watched.cast()) })
    }
}

unsafe fn surprise(watched: *const c_void, address: usize) -> bool {
    // SAFETY: `Guest::rescued` gives its own.
    unsafe { &*watched.cast::<Watched>() }.surprise(address)
}
