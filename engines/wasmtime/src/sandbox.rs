//! One instance, from its first instruction to its last.

use crate::{
    guard::{Area, Guard, Restorer},
    host::Host,
    image::{FirstState, Inner},
    pages,
    pool::Place,
    turn,
};
use contract::{ByteSize, Fault, Grant, Input, Sandbox, Step, Usage};
use std::{
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    sync::Arc,
    task::Waker,
    time::Instant,
};
use wasi::{Command, Stop};
use wasmtime::{Extern, Global, Memory, Store, Trap, TypedFunc, UpdateDeadline, WasmBacktrace};

/// A sandbox of this engine. It stays on its core: `Store` data must be `Send`, this need not be.
pub(crate) struct Running {
    state: State,
    usage: Usage,
    image: Arc<Inner>,
    grant: Arc<Grant>,
    // Last: the place is free once the instance is gone.
    _place: Place,
}

enum State {
    Active(Pin<Box<dyn Future<Output = Ended>>>),
    Idle(Instance),
    Over,
}

/// An instance whose code is not running.
pub(crate) struct Instance {
    // First: it is gone before the store is.
    guard: Option<Guard>,
    store: Store<Host>,
    start: TypedFunc<(), ()>,
    memory: Memory,
    /// The mutable ones, if the module was prepared for being restored.
    globals: Box<[Global]>,
}

struct Ended {
    result: Result<(), Fault>,
    /// There is none after a fault.
    instance: Option<Instance>,
}

impl Running {
    pub(crate) fn new(image: &Arc<Inner>, grant: &Arc<Grant>, input: Input, place: Place) -> Self {
        let command = Command::new(grant.clone(), input);
        let state = State::Active(match image.take() {
            Some(instance) if command.is_incomplete() => Box::pin(serve(instance, command)),
            Some(mut instance) => {
                // The shorter way for nearly all: a future is made, moved and freed for each request.
                instance.store.data_mut().begin(command);
                Box::pin(run(instance))
            }
            None => Box::pin(first(image.clone(), command)),
        });
        Self {
            state,
            usage: Usage::default(),
            image: image.clone(),
            grant: grant.clone(),
            _place: place,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let State::Idle(instance) = mem::replace(&mut self.state, State::Over) {
            self.image.put(instance);
        }
    }
}

impl Sandbox for Running {
    fn run(&mut self, waker: &Waker, until: Instant) -> Step {
        let State::Active(future) = &mut self.state else {
            let reason = "it was run after its end".into();
            return Step::Fault(Fault::Trap { reason }, self.usage);
        };
        match turn::poll(future.as_mut(), waker, until, &mut self.usage) {
            Err(step) => step,
            Ok(Ended { result, instance }) => {
                self.state = instance.map_or(State::Over, State::Idle);
                match result {
                    Ok(()) => Step::Done(self.usage),
                    Err(fault) => Step::Fault(fault, self.usage),
                }
            }
        }
    }

    fn usage(&self) -> Usage {
        self.usage
    }

    fn renew(&mut self, input: Input) -> Result<(), Input> {
        if self.image.refuses_reuse() {
            return Err(input);
        }
        match mem::replace(&mut self.state, State::Over) {
            State::Idle(instance) => {
                let command = Command::new(self.grant.clone(), input);
                self.usage.started = None;
                self.state = State::Active(Box::pin(again(self.image.clone(), instance, command)));
                Ok(())
            }
            other => {
                self.state = other;
                Err(input)
            }
        }
    }
}

/// A request in a new instance.
async fn first(image: Arc<Inner>, mut command: Command) -> Ended {
    if let Err(fault) = complete(&mut command).await {
        return Ended {
            result: Err(fault),
            instance: None,
        };
    }
    let mut store = image.store();
    store.data_mut().begin(command);
    store.limiter(|host| host);
    preemptible(&mut store);
    match Instance::new(&image, &mut store).await {
        Ok(instance) => run(instance(store)).await,
        Err(error) => Ended {
            result: ended(store.data_mut(), Err(error)),
            instance: None,
        },
    }
}

/// Waits for the last piece of a request's body.
pub(crate) async fn complete(command: &mut Command) -> Result<(), Fault> {
    if !command.is_incomplete() {
        return Ok(());
    }
    let complete = poll_fn(|context| command.poll_complete(context.waker())).await;
    complete.map_err(|error| Fault::Trap {
        reason: format!("the request's body broke off: {error}"),
    })
}

/// Guests of this store give way when their turn is over.
pub(crate) fn preemptible<T: 'static>(store: &mut Store<T>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|_| {
        Ok(if turn::over() {
            UpdateDeadline::Yield(1)
        } else {
            UpdateDeadline::Continue(1)
        })
    });
}

/// A request in an instance that is as a new one.
async fn serve(mut instance: Instance, mut command: Command) -> Ended {
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
async fn again(image: Arc<Inner>, mut instance: Instance, mut command: Command) -> Ended {
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
        && let Some(command) = instance.store.data_mut().end()
    {
        // Newer libcs trap at a second `_start` in one memory, before anything else: nobody has seen this attempt.
        image.refuse_reuse();
        drop(instance);
        return first(image, command).await;
    }
    end(instance, result)
}

async fn run(mut instance: Instance) -> Ended {
    turn::memory(instance.memory.data_size(&instance.store) as u64);
    turn::started();
    let result = instance.start.call_async(&mut instance.store, ()).await;
    end(instance, result)
}

fn end(mut instance: Instance, result: wasmtime::Result<()>) -> Ended {
    let result = ended(instance.store.data_mut(), result);
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
            globals,
        })
    }

    /// What an instance is whose code has not run.
    pub(crate) fn first_state(mut self) -> FirstState {
        let globals = self
            .globals
            .iter()
            .map(|global| global.get(&mut self.store))
            .collect();
        let memory = self.memory.data_mut(&mut self.store);
        let state = FirstState::new(memory, globals);
        pages::release(memory);
        state
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
        // SAFETY: the memory is that of this store's instance, whose code does not run; the handle is ours alone.
        globals
            && area.size == to.size
            && unsafe { restorer.restore(&mut self.guard, &mut self.store, area, (&to.image, to.at)) }
    }
}

fn ended(host: &mut Host, result: wasmtime::Result<()>) -> Result<(), Fault> {
    conclude(host.refused(), result, |code| match host.command() {
        Some(command) => command.finish(code),
        None => Ok(()),
    })
}

/// From the engine's word for an end to the platform's. `refused` is the limit of memory, if the guest asked for more;
/// `finish` makes the response, or says why an exit with this code is a fault.
pub(crate) fn conclude(
    refused: Option<ByteSize>,
    result: wasmtime::Result<()>,
    finish: impl FnOnce(i32) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let fault = match result {
        Ok(()) => return finish(0),
        Err(error) => match error.downcast::<Stop>() {
            Ok(Stop::Exit(0)) => return finish(0),
            Ok(Stop::Exit(code)) => match finish(code) {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            },
            Ok(Stop::Fault(fault)) => fault,
            Err(error) if error.downcast_ref() == Some(&Trap::StackOverflow) => Fault::StackOverflow,
            Err(error) => Fault::Trap {
                reason: describe(&error),
            },
        },
    };
    match (refused, fault) {
        (Some(limit), Fault::Trap { reason }) => Err(Fault::OutOfMemory { limit, reason }),
        (Some(limit), Fault::Exit { code }) => Err(Fault::OutOfMemory {
            limit,
            reason: format!("it exited with code {code}"),
        }),
        (_, fault) => Err(fault),
    }
}

/// What happened, and in which functions, innermost first.
fn describe(error: &wasmtime::Error) -> String {
    let mut text = match error.downcast_ref::<Trap>() {
        Some(trap) => trap.to_string().trim_start_matches("wasm trap: ").to_owned(),
        None => error.root_cause().to_string(),
    };
    if let Some(trace) = error.downcast_ref::<WasmBacktrace>() {
        let names: Vec<_> = trace
            .frames()
            .iter()
            .take(4)
            .filter_map(|frame| frame.func_name())
            .collect();
        if !names.is_empty() {
            text.push_str(" in ");
            text.push_str(&names.join(" < "));
        }
    }
    text
}
