//! An instance and the stack that it runs on.

use crate::{
    image::Loaded,
    instance::{External, Instance, InstanceError},
    memory::FirstMemory,
    plan::Slot,
    pool,
};
use fiber::{Fiber, Rescued};
use fresh::{Guard, Restorer, Watched};
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
    pub(crate) extended: Option<u64>,
}

// SAFETY: its parts refer to each other only, and a thread gives it away only when its code has been forgotten.
unsafe impl Send for Guest {}

/// What a guest is whose code has not run.
pub(crate) struct FirstState {
    memory: FirstMemory,
    globals: Box<[Slot]>,
}

impl Guest {
    fn bare(image: &Loaded) -> Result<Self, InstanceError> {
        let stack = pool::stack(image.image.block()).map_err(InstanceError::Host)?;
        let block = stack.room();
        let fiber = Fiber::new(stack);
        let imports = vec![External::Host; image.image.plan.imports.len()];
        // SAFETY: the block is in the stack, which the fiber keeps as long as the guest lives, and new.
        let instance = unsafe { Instance::new(&image.image, &imports, fiber.handle(), block)? };
        Ok(Self {
            guard: None,
            watched: None,
            instance,
            fiber,
            extended: None,
        })
    }

    /// A new one, ready to begin.
    pub(crate) fn new(image: &Loaded) -> Result<Self, InstanceError> {
        let mut guest = Self::bare(image)?;
        match &image.first {
            Some(first) => guest.instance.begin(&first.memory)?,
            None => guest.instance.initialize()?,
        }
        Ok(guest)
    }

    /// Calls a function that takes and returns nothing.
    pub(crate) fn start(&mut self, place: u32) {
        let (entry, function) = self.instance.callee(place);
        self.fiber
            .start(entry, [function.code.addr(), function.context.addr(), 0]);
    }

    /// Makes it as new, whatever its code is at. `false` if it is of no use any more.
    pub(crate) fn restore(&mut self, first: &FirstState, image: &Loaded) -> bool {
        let pool = &image.pool;
        let restorer = pool.pages.as_ref().map(|pages| Restorer {
            pages,
            guards: Some(&pool.guards).filter(|_| image.structure.is_none()),
            most: pool.keep_resident,
        });
        let watched = &mut self.watched;
        self.instance.restore(
            (&first.memory, &mut self.extended),
            &first.globals,
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

impl FirstState {
    /// Of an image, if its guests can be put back to it: not if their segments do not fit.
    pub(crate) fn of(image: &Loaded) -> Result<Option<Self>, InstanceError> {
        let mut guest = Guest::bare(image)?;
        if guest.instance.initialize().is_err() {
            return Ok(None);
        }
        let memory = guest.instance.first_memory().map_err(InstanceError::Host)?;
        Ok(memory.map(|memory| Self {
            memory,
            globals: guest.instance.own_globals(),
        }))
    }
}
