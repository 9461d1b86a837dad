//! One instance of a module.

use crate::{
    host::Host,
    image::{FirstState, Inner, Shared},
    pool,
    sandbox::{self, Again, Serving, complete, conclude, preemptible},
    turn,
};
use contract::Fault;
use fresh::{Area, Guard, Restorer};
use std::sync::Arc;
use wasi::Command;
use wasmtime::{Extern, Global, Memory, Store, Trap, TypedFunc};

/// Bytes of a page of Wasm's.
const WASM_PAGE: u64 = 64 << 10;

/// An instance whose code is not running.
pub(crate) struct Instance {
    // First: it is gone before the store is.
    guard: Option<Guard>,
    store: Store<Host>,
    start: TypedFunc<(), ()>,
    memory: Memory,
    structure: Option<Structure>,
    /// The mutable ones, if the module was prepared for being restored.
    globals: Box<[Global]>,
    looked_through: bool,
}

/// Of an instance that can have its sets in its memory.
#[derive(Clone, Copy)]
struct Structure {
    address: u32,
    /// Bytes of memory that its code knows of, and that it can have.
    initial: u64,
    most: u64,
    /// Bytes that it was given for a request: it keeps them.
    extended: Option<u64>,
}

type Ended = sandbox::Ended<Instance>;

impl sandbox::Instance for Instance {
    type Image = Shared;

    fn serve(image: &Arc<Shared>, command: Command) -> Serving<Self> {
        // Its memory may have been made larger than this request's may be.
        match image.take().filter(|instance| instance.suits(&command)) {
            Some(instance) if command.is_incomplete() => Box::pin(serve(instance, command)),
            Some(mut instance) => {
                // The shorter way for nearly all: a future is made, moved and freed for each request.
                instance.store.data_mut().begin(command);
                Box::pin(run(instance))
            }
            None => Box::pin(first(image.clone(), command)),
        }
    }

    fn again(image: &Shared) -> Option<Again<Self>> {
        let again: Again<Self> = |image, instance, command| Box::pin(again(image, instance, command));
        (!image.refuses_reuse()).then_some(again)
    }

    fn put(self: Box<Self>, image: &Shared) {
        image.put(self);
    }
}

/// A request in a new instance.
async fn first(image: Arc<Shared>, mut command: Command) -> Ended {
    if let Err(fault) = complete(&mut command).await {
        return Ended {
            result: Err(fault),
            instance: None,
        };
    }
    loop {
        let mut store = image.store();
        store.data_mut().begin(command);
        store.limiter(|host| host);
        preemptible(&mut store);
        let error = match Instance::new(&image, &mut store).await {
            Ok(instance) => {
                let mut instance = Box::new(instance(store));
                image.note(&mut instance);
                return run(instance).await;
            }
            Err(error) => error,
        };
        let refused = pool::is_refused(&error) && !store.data().touched();
        match refused.then(|| store.data_mut().take()).flatten() {
            // Nobody has seen this attempt.
            Some(back) => command = back,
            None => {
                return Ended {
                    result: ended(store.data_mut(), Err(error)),
                    instance: None,
                };
            }
        }
        drop(store);
        image.pool().refused().await;
    }
}

/// A request in an instance that is as a new one.
async fn serve(mut instance: Box<Instance>, mut command: Command) -> Ended {
    if let Err(fault) = complete(&mut command).await {
        return Ended {
            result: Err(fault),
            instance: Some(instance),
        };
    }
    instance.store.data_mut().begin(command);
    run(instance).await
}

/// A request in an instance that has served others and still knows of them.
async fn again(image: Arc<Shared>, mut instance: Box<Instance>, mut command: Command) -> Ended {
    if let Err(fault) = complete(&mut command).await {
        return Ended {
            result: Err(fault),
            instance: Some(instance),
        };
    }
    instance.store.data_mut().begin(command);
    turn::started();
    let result = instance.start.call_async(&mut instance.store, ()).await;
    let refused =
        matches!(&result, Err(error) if error.downcast_ref() == Some(&Trap::UnreachableCodeReached));
    if refused
        && !instance.store.data().touched()
        && let Some(command) = instance.store.data_mut().take()
    {
        // Newer libcs trap at a second `_start` in one memory, before anything else: nobody has seen this attempt.
        image.refuse_reuse();
        drop(instance);
        return first(image, command).await;
    }
    end(instance, result)
}

async fn run(mut instance: Box<Instance>) -> Ended {
    if let Err(fault) = instance.place() {
        return Ended {
            result: Err(fault),
            instance: None,
        };
    }
    turn::memory(instance.memory.data_size(&instance.store) as u64);
    turn::started();
    let result = instance.start.call_async(&mut instance.store, ()).await;
    end(instance, result)
}

fn end(mut instance: Box<Instance>, result: wasmtime::Result<()>) -> Ended {
    let result = instance.ended(result);
    instance.store.data_mut().end();
    let instance = result.is_ok().then_some(instance);
    Ended { result, instance }
}

impl Instance {
    /// Makes one in a store; the answer takes the store in.
    pub(crate) async fn new(
        image: &Inner,
        store: &mut Store<Host>,
    ) -> wasmtime::Result<impl FnOnce(Store<Host>) -> Self + use<>> {
        let instance = image.instance.instantiate_async(&mut *store).await?;
        let missing = |name: &str| wasmtime::Error::msg(format!("`{name}` is not exported as it should be"));
        let memory = instance
            .get_module_export(&mut *store, &image.memory)
            .and_then(Extern::into_memory)
            .ok_or_else(|| missing("memory"))?;
        store.data_mut().set_memory(memory);
        let start = instance
            .get_module_export(&mut *store, &image.start)
            .and_then(Extern::into_func)
            .ok_or_else(|| missing("_start"))?
            .typed(&*store)?;
        let structure = match &image.structure {
            None => None,
            Some(export) => {
                let global = instance.get_module_export(&mut *store, export);
                let value = global.and_then(Extern::into_global);
                let address = value.and_then(|global| global.get(&mut *store).i32());
                address.map(|address| Structure {
                    address: address.cast_unsigned(),
                    initial: image.initial,
                    most: image.most,
                    extended: None,
                })
            }
        };
        let globals = image
            .globals
            .iter()
            .map(|export| {
                instance
                    .get_module_export(&mut *store, export)
                    .and_then(Extern::into_global)
            })
            .collect::<Option<Box<[_]>>>()
            .ok_or_else(|| missing("a global"))?;
        Ok(move |store| Self {
            guard: None,
            store,
            start,
            memory,
            structure,
            globals,
            looked_through: false,
        })
    }

    /// Whether a request can have it.
    fn suits(&self, command: &Command) -> bool {
        match self.structure {
            Some(Structure {
                extended: Some(extended),
                most,
                ..
            }) => extended == command.extended(most),
            _ => true,
        }
    }

    /// Gives a pure function its sets, if it has them in its memory.
    fn place(&mut self) -> Result<(), Fault> {
        let (memory, Some(structure)) = (self.memory, self.structure) else {
            return Ok(());
        };
        let Some(command) = self
            .store
            .data_mut()
            .command()
            .filter(|command| command.is_pure())
        else {
            return Ok(());
        };
        let wanted = command.extended(structure.most);
        let has = memory.data_size(&self.store) as u64;
        let more = wanted.saturating_sub(has) / WASM_PAGE;
        if more > 0
            && let Err(error) = memory.grow(&mut self.store, more)
        {
            return Err(Fault::Trap {
                reason: format!("the host refuses {wanted} bytes of memory for its sets: {error}"),
            });
        }
        self.structure = Some(Structure {
            extended: Some(memory.data_size(&self.store) as u64),
            ..structure
        });
        let (bytes, host) = memory.data_and_store_mut(&mut self.store);
        host.command().map_or(Ok(()), |command| {
            command.place(bytes, structure.address, structure.initial)
        })
    }

    /// What its code came to.
    fn ended(&mut self, result: wasmtime::Result<()>) -> Result<(), Fault> {
        let Some(structure) = self.structure else {
            return ended(self.store.data_mut(), result);
        };
        let (bytes, host) = self.memory.data_and_store_mut(&mut self.store);
        conclude(host.refused(), result, |code| match host.command() {
            Some(command) if command.is_pure() => command.collect(bytes, structure.address),
            Some(command) => command.finish(code),
            None => Ok(()),
        })
    }

    /// What an instance is whose code has not run.
    pub(crate) fn first_state(&mut self) -> FirstState {
        self.looked_through = true;
        let globals = self
            .globals
            .iter()
            .map(|global| global.get(&mut self.store))
            .collect();
        FirstState::new(self.memory.data(&self.store), globals)
    }

    /// Pages of its memory are there that were only read, and each lengthens every later scan.
    pub(crate) fn was_looked_through(&self) -> bool {
        self.looked_through
    }

    /// Makes it what it was. If that fails, it is of no use.
    pub(crate) fn restore(&mut self, to: &FirstState, restorer: &Restorer<'_>) -> bool {
        let globals = self.globals.iter().zip(&to.globals);
        let globals = globals.fold(true, |good, (global, value)| {
            good && global.set(&mut self.store, *value).is_ok()
        });
        let area = Area::new(
            self.memory.data_ptr(&self.store),
            self.memory.data_size(&self.store),
        );
        let extended = self.structure.and_then(|structure| structure.extended);
        // SAFETY: the memory is that of this store's instance, whose code does not run; the handle is ours alone.
        globals
            && area.size as u64 == extended.unwrap_or(to.size as u64)
            && unsafe {
                restorer.restore(&mut self.guard, area, (&to.image, to.at), |watched| {
                    pool::watch(&mut self.store, watched);
                })
            }
    }
}

fn ended(host: &mut Host, result: wasmtime::Result<()>) -> Result<(), Fault> {
    conclude(host.refused(), result, |code| match host.command() {
        Some(command) => command.finish(code),
        None => Ok(()),
    })
}
