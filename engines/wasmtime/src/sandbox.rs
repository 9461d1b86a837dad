//! One instance, from its first instruction to its last.

use crate::{Place, host::Host, image::Inner, turn};
use contract::{Fault, Grant, Input, Sandbox, Step, Usage};
use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use wasi::{Command, Stop};
use wasmtime::{Store, Trap, TypedFunc, UpdateDeadline, WasmBacktrace};

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
    Idle(Ready),
    Over,
}

/// An instance whose code is not running.
struct Ready {
    store: Store<Host>,
    start: TypedFunc<(), ()>,
}

struct Ended {
    result: Result<(), Fault>,
    /// There is none after a fault.
    ready: Option<Ready>,
}

impl Running {
    pub(crate) fn new(image: &Arc<Inner>, grant: &Arc<Grant>, input: Input, place: Place) -> Self {
        let command = Command::new(grant.clone(), input);
        let state = State::Active(Box::pin(first(image.clone(), grant.clone(), command)));
        Self {
            state,
            usage: Usage::default(),
            image: image.clone(),
            grant: grant.clone(),
            _place: place,
        }
    }
}

impl Sandbox for Running {
    fn run(&mut self, waker: &Waker, quantum: Duration) -> Step {
        let State::Active(future) = &mut self.state else {
            let reason = "it was run after its end".into();
            return Step::Fault(Fault::Trap { reason }, self.usage);
        };
        turn::begin(quantum, self.usage);
        let polled = future.as_mut().poll(&mut Context::from_waker(waker));
        self.usage = turn::usage();
        match polled {
            Poll::Pending => turn::end(),
            Poll::Ready(Ended { result, ready }) => {
                self.state = ready.map_or(State::Over, State::Idle);
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
            State::Idle(ready) => {
                let command = Command::new(self.grant.clone(), input);
                self.usage.started = None;
                self.state = State::Active(Box::pin(again(
                    self.image.clone(),
                    self.grant.clone(),
                    ready,
                    command,
                )));
                Ok(())
            }
            other => {
                self.state = other;
                Err(input)
            }
        }
    }
}

/// A request in a fresh instance.
async fn first(image: Arc<Inner>, grant: Arc<Grant>, command: Command) -> Ended {
    let engine = image.instance.module().engine();
    let mut store = Store::new(engine, Host::new(command, grant.limits.memory));
    store.limiter(|host| host);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|_| {
        Ok(if turn::over() {
            UpdateDeadline::Yield(1)
        } else {
            UpdateDeadline::Continue(1)
        })
    });
    let start = match instantiate(&image, &mut store).await {
        Ok(start) => start,
        Err(error) => {
            let result = conclude(store.data_mut(), Err(error));
            return Ended { result, ready: None };
        }
    };
    turn::started();
    let result = start.call_async(&mut store, ()).await;
    end(Ready { store, start }, result)
}

/// A request in an instance that has served others.
async fn again(image: Arc<Inner>, grant: Arc<Grant>, mut ready: Ready, command: Command) -> Ended {
    ready.store.data_mut().renew(command);
    turn::started();
    let result = ready.start.call_async(&mut ready.store, ()).await;
    let refused =
        matches!(&result, Err(error) if error.downcast_ref() == Some(&Trap::UnreachableCodeReached));
    if refused && !ready.store.data().touched() {
        // Newer libcs trap at a second `_start` in one memory, before anything else: nobody has seen this attempt.
        image.refuse_reuse();
        return first(image, grant, ready.store.into_data().into_command()).await;
    }
    end(ready, result)
}

async fn instantiate(image: &Inner, store: &mut Store<Host>) -> wasmtime::Result<TypedFunc<(), ()>> {
    let instance = image.instance.instantiate_async(&mut *store).await?;
    let missing = |name: &str| wasmtime::Error::msg(format!("`{name}` is not exported as it should be"));
    let memory = instance
        .get_module_export(&mut *store, &image.memory)
        .and_then(wasmtime::Extern::into_memory)
        .ok_or_else(|| missing("memory"))?;
    store.data_mut().set_memory(memory);
    instance
        .get_module_export(&mut *store, &image.start)
        .and_then(wasmtime::Extern::into_func)
        .ok_or_else(|| missing("_start"))?
        .typed(&*store)
}

fn end(mut ready: Ready, result: wasmtime::Result<()>) -> Ended {
    let result = conclude(ready.store.data_mut(), result);
    let ready = result.is_ok().then_some(ready);
    Ended { result, ready }
}

/// From the engine's word for an end to the platform's.
fn conclude(host: &mut Host, result: wasmtime::Result<()>) -> Result<(), Fault> {
    let fault = match result {
        Ok(()) => return host.command().finish(0),
        Err(error) => match error.downcast::<Stop>() {
            Ok(Stop::Exit(0)) => return host.command().finish(0),
            Ok(Stop::Exit(code)) => match host.command().finish(code) {
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
    match (host.refused(), fault) {
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
