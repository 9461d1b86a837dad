//! A sandbox: one instance of either kind, from its first instruction to its last, or to its next request.

use crate::turn;
use contract::{ByteSize, Fault, Grant, Input, Sandbox, Step, Until, Usage};
use fresh::Place;
use std::{
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    sync::Arc,
    task::Waker,
};
use wasi::{Command, Stop};
use wasmtime::{Store, Trap, UpdateDeadline, WasmBacktrace};

/// An instance whose code is not running: a module's or a component's.
pub(crate) trait Instance: Sized + 'static {
    type Image: 'static;

    /// A request in an instance that is as a new one.
    fn serve(image: &Arc<Self::Image>, command: Command) -> Serving<Self>;

    /// How one more request is served by an instance that knows of those before, if this image's instances do that.
    fn again(_: &Self::Image) -> Option<Again<Self>> {
        None
    }

    /// Takes back an instance that has ended well.
    fn put(self: Box<Self>, image: &Self::Image);
}

/// A request on its way through an instance.
pub(crate) type Serving<I> = Pin<Box<dyn Future<Output = Ended<I>>>>;

/// See [`Instance::again`].
pub(crate) type Again<I> = fn(Arc<<I as Instance>::Image>, Box<I>, Command) -> Serving<I>;

/// What became of a request.
pub(crate) struct Ended<I> {
    pub(crate) result: Result<(), Fault>,
    /// None if it is of no use any more.
    pub(crate) instance: Option<Box<I>>,
}

/// A sandbox of this engine. It stays on its core: `Store` data must be `Send`, this need not be.
pub(crate) struct Running<I: Instance> {
    state: State<I>,
    usage: Usage,
    image: Arc<I::Image>,
    // Last: the place is free once the instance is gone.
    _place: Place,
}

enum State<I> {
    Active(Serving<I>),
    Idle(Box<I>),
    Over,
}

impl<I: Instance> Running<I> {
    pub(crate) fn new(image: &Arc<I::Image>, grant: &Arc<Grant>, input: Input, place: Place) -> Self {
        Self {
            state: State::Active(I::serve(image, Command::new(grant.clone(), input))),
            usage: Usage::default(),
            image: image.clone(),
            _place: place,
        }
    }
}

impl<I: Instance> Drop for Running<I> {
    fn drop(&mut self) {
        if let State::Idle(instance) = mem::replace(&mut self.state, State::Over) {
            instance.put(&self.image);
        }
    }
}

impl<I: Instance> Sandbox for Running<I> {
    fn run(&mut self, waker: &Waker, until: Until<'_>) -> Step {
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

    fn renew(&mut self, grant: &Arc<Grant>, input: Input) -> Result<(), Input> {
        let Some(again) = I::again(&self.image) else {
            return Err(input);
        };
        match mem::replace(&mut self.state, State::Over) {
            State::Idle(instance) => {
                let command = Command::new(grant.clone(), input);
                self.usage.started = None;
                self.state = State::Active(again(self.image.clone(), instance, command));
                Ok(())
            }
            other => {
                self.state = other;
                Err(input)
            }
        }
    }
}

/// Waits for the last piece of a request's body.
pub(crate) async fn complete(command: &mut Command) -> Result<(), Fault> {
    if !command.is_incomplete() {
        return Ok(());
    }
    poll_fn(|context| command.poll_complete(context.waker())).await
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
