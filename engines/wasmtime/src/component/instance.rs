//! One instance of a component.

use super::{Host, Inner, MOST_COPIED, MOST_HANDLES, Shared, World, http};
use crate::{
    pool,
    sandbox::{self, Serving, complete, conclude, preemptible},
    turn,
};
use contract::Fault;
use fresh::{Area, Guard, Place, Restorer};
use parking_lot::Mutex;
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use wasi::Command;
use wasmtime::{
    Error, Result, Store,
    component::{self, Resource, TypedFunc},
};

/// Bytes of written pages that are put back at most. An interpreter writes to a few hundred pages for each request; to
/// copy them costs a tenth of a new instance.
const MOST_RESTORED: usize = 2 << 20;

/// Handles that are put in order at most.
const MOST_ORDERED: u32 = 256;

/// No epoch that a restoring function could meet.
const NEVER: u64 = 1 << 40;

type Arguments = (Resource<http::IncomingRequest>, Resource<http::ResponseOutparam>);

/// An instance whose code is not running.
pub(crate) struct Instance {
    // First: it is gone before the store is.
    guard: Option<Guard>,
    store: Store<Host>,
    entry: Entry,
    /// None if it has no keeper, or is not to be kept.
    restore: Option<TypedFunc<(u32, u32), ()>>,
}

#[derive(Clone, Copy)]
enum Entry {
    Run(TypedFunc<(), (Result<(), ()>,)>),
    Handle(TypedFunc<Arguments, ()>),
}

type Ended = sandbox::Ended<Instance>;

impl sandbox::Instance for Instance {
    type Image = Shared;

    fn serve(image: &Arc<Shared>, command: Command) -> Serving<Self> {
        match image.take() {
            Some(instance) => Box::pin(again(instance, command)),
            None => Box::pin(first(image.clone(), command)),
        }
    }

    fn put(self: Box<Self>, image: &Shared) {
        image.put(self);
    }
}

impl Inner {
    fn store(&self, host: Host) -> Store<Host> {
        let mut store = Store::new(self.instance.engine(), host);
        store.limiter(|host| host);
        store.set_hostcall_fuel(MOST_COPIED);
        store.set_max_component_handles(MOST_HANDLES);
        store
    }

    fn take(&self) -> Option<Box<Instance>> {
        self.pristine.as_ref()?;
        self.pool.components.take(self.id)
    }

    /// An instance that has ended well.
    fn put(&self, mut instance: Box<Instance>) {
        let (Some(pristine), Some(pages)) = (&self.pristine, &self.pool.pages) else {
            return;
        };
        let restorer = Restorer {
            pages,
            guards: Some(&self.pool.guards),
            most: MOST_RESTORED,
        };
        if instance.restore(pristine, &restorer) {
            drop(self.pool.components.put(self.id, instance));
        }
    }
}

/// A request in a new instance.
async fn first(image: Arc<Shared>, mut command: Command) -> Ended {
    let over = |result| Ended {
        result,
        instance: None,
    };
    let is_command = image.world == World::Command;
    if is_command && let Err(fault) = complete(&mut command).await {
        return over(Err(fault));
    }
    loop {
        let mut store = image.store(Host::new(command, is_command));
        preemptible(&mut store);
        let (mut store, error) = match Instance::new(&image, store).await {
            Ok(instance) => return run(Box::new(instance)).await,
            Err(failed) => failed,
        };
        let refused = pool::is_refused(&error) && !store.data().touched();
        match refused.then(|| store.data_mut().command.take()).flatten() {
            // Nobody has seen this attempt.
            Some(back) => command = back,
            None => return over(ended(store.data_mut(), image.world, Err(error))),
        }
        drop(store);
        image.pool.refused().await;
    }
}

/// A request in an instance that is as a new one.
async fn again(mut instance: Box<Instance>, mut command: Command) -> Ended {
    let is_command = matches!(instance.entry, Entry::Run(_));
    if is_command && let Err(fault) = complete(&mut command).await {
        return Ended {
            result: Err(fault),
            instance: None,
        };
    }
    instance.store.data_mut().begin(command, is_command);
    instance.store.set_epoch_deadline(1);
    run(instance).await
}

async fn run(mut instance: Box<Instance>) -> Ended {
    turn::started();
    let result = instance.call().await;
    let good = result.is_ok();
    let world = match instance.entry {
        Entry::Run(_) => World::Command,
        Entry::Handle(_) => World::Proxy,
    };
    let result = ended(instance.store.data_mut(), world, result);
    let same = instance.store.data_mut().end();
    let kept = good && result.is_ok() && same && instance.restore.is_some();
    Ended {
        result,
        instance: kept.then_some(instance),
    }
}

fn ended(host: &mut Host, world: World, result: Result<()>) -> Result<(), Fault> {
    conclude(host.refused(), result, |code| match (world, code) {
        (World::Command, code) => match host.command() {
            Ok(command) => command.finish(code),
            Err(_) => Ok(()),
        },
        (World::Proxy, 0) => host.concluded(),
        (World::Proxy, code) => Err(Fault::Exit { code }),
    })
}

impl Instance {
    /// Makes one in a store, which comes back if that fails.
    async fn new(image: &Inner, mut store: Store<Host>) -> Result<Self, (Store<Host>, Error)> {
        match Self::parts(image, &mut store).await {
            Ok((entry, restore)) => Ok(Self {
                guard: None,
                store,
                entry,
                restore,
            }),
            Err(error) => Err((store, error)),
        }
    }

    async fn parts(
        image: &Inner,
        store: &mut Store<Host>,
    ) -> Result<(Entry, Option<TypedFunc<(u32, u32), ()>>)> {
        let instance: component::Instance = image.instance.instantiate_async(&mut *store).await?;
        let entry = match image.world {
            World::Command => Entry::Run(instance.get_typed_func(&mut *store, image.entry)?),
            World::Proxy => Entry::Handle(instance.get_typed_func(&mut *store, image.entry)?),
        };
        // What the host was asked for while the guest began is this request's, and not part of a first state.
        let Some(keeper) = image.keeper.as_ref().filter(|_| !store.data().touched()) else {
            return Ok((entry, None));
        };
        let begin: TypedFunc<(), ()> = instance.get_typed_func(&mut *store, keeper.begin)?;
        begin.call_async(&mut *store, ()).await?;
        Ok((entry, Some(instance.get_typed_func(&mut *store, keeper.restore)?)))
    }

    async fn call(&mut self) -> Result<()> {
        match self.entry {
            Entry::Run(run) => {
                let (result,) = run.call_async(&mut self.store, ()).await?;
                result.map_err(|()| Error::new(wasi::Stop::Exit(1)))
            }
            Entry::Handle(handle) => {
                let arguments = self.store.data_mut().arguments()?;
                handle.call_async(&mut self.store, arguments).await
            }
        }
    }

    /// Makes it what it was. If that fails, it is of no use.
    fn restore(&mut self, pristine: &Pristine, restorer: &Restorer<'_>) -> bool {
        let (Some(restore), Some(memory)) = (&self.restore, self.store.data().area()) else {
            return false;
        };
        if memory.size != pristine.memory.size {
            return false;
        }
        let Ok(handles) = u32::try_from(self.store.data().handles().max(1)) else {
            return false;
        };
        if handles > MOST_ORDERED {
            return false;
        }
        let left = self.store.data().left() as u32;
        self.store.set_epoch_deadline(NEVER);
        let mut context = Context::from_waker(Waker::noop());
        let globals = pin!(restore.call_async(&mut self.store, (handles, left))).poll(&mut context);
        if !matches!(globals, Poll::Ready(Ok(()))) {
            return false;
        }
        let first = pristine.memory();
        // SAFETY: the memory is that of this store's instance, whose code does not run, and has not grown: `Host::end`.
        unsafe {
            restorer.restore(&mut self.guard, memory, (first, 0), |watched| {
                pool::watch(&mut self.store, watched);
            })
        }
    }
}

/// An instance that never runs: what the memory of all others is put back to.
pub(super) struct Pristine {
    memory: Area,
    /// Keeps the memory where it is.
    _store: Mutex<Store<Host>>,
    _place: Place,
}

impl Pristine {
    /// None if the component has no keeper, if its guest asks the host for something when it begins, or if there is no place.
    pub(super) fn make(image: &Inner) -> Option<Self> {
        image.keeper.as_ref().filter(|_| image.places == 1)?;
        image.pool.pages.as_ref()?;
        let place = image.pool.take_kept()?;
        let mut store = image.store(Host::default());
        store.set_epoch_deadline(NEVER);
        let mut context = Context::from_waker(Waker::noop());
        let made = match pin!(Instance::parts(image, &mut store)).poll(&mut context) {
            Poll::Ready(made) => made.ok()?,
            Poll::Pending => return None,
        };
        made.1?;
        let memory = store.data().area().filter(|memory| memory.size > 0)?;
        Some(Self {
            memory,
            _store: Mutex::new(store),
            _place: place,
        })
    }

    fn memory(&self) -> &[u8] {
        // SAFETY: the store keeps the memory mapped, and nobody writes to it: no code of its instance runs again.
        unsafe { self.memory.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Loaded, keep, table::Kind},
        *,
    };
    use crate::{Options, Wasmtime};
    use contract::{
        ByteSize, Grant, Limits,
        conformance::guest::{self, Running},
    };
    use std::{fs, path::Path};
    use wasmtime::component::Component;

    fn engine() -> Wasmtime {
        Wasmtime::new(&Options {
            sandboxes: 2,
            ..Options::default()
        })
        .unwrap()
    }

    fn code(component: &str) -> Vec<u8> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../build/guests/{component}.wasm"));
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}: `make guests`", path.display()))
    }

    fn grant() -> Grant {
        let limits = Limits {
            memory: ByteSize::mib(8),
            ..Limits::default()
        };
        Grant {
            limits,
            ..guest::grant()
        }
    }

    /// How many instances are kept after each of these requests.
    fn kept(component: &str, requests: &[&str]) -> Vec<usize> {
        let engine = engine();
        let image = guest::image(&engine, &code(component));
        let kept = requests.iter().map(|request| {
            let mut running = Running::spawn(&image, &grant(), request.as_bytes());
            let _ = running.finish();
            drop(running);
            engine.pool.components.count()
        });
        kept.collect()
    }

    #[test]
    fn an_instance_is_kept_that_can_be_put_back() {
        // One whose guest has trapped, and one whose memory has grown, are not; one that has left a handle is.
        let requests = [
            "count", "trace 1", "trap", "echo", "trace 12", "echo", "trace 16", "echo",
        ];
        assert_eq!(kept("http-component", &requests), [1, 1, 0, 1, 1, 1, 0, 1]);
        // wasi-libc keeps the handles of its three streams.
        assert_eq!(kept("command-component", &["a", "b"]), [1, 1]);
    }

    #[test]
    fn an_instance_is_not_kept_whose_handles_are_others_than_the_host_thinks() {
        let engine = engine();
        let component = Component::new(&engine.engine, keep::prepare(&code("http-component"))).unwrap();
        let inner = Loaded::new(&engine, &component).unwrap().remember().inner;
        let serve = |mistake: Option<u32>| {
            // It leaves one, of the type `fields` and with the number 3.
            let command = Command::new(Arc::new(grant()), guest::input(b"trace 12").0);
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(ended) = pin!(first(inner.clone(), command)).poll(&mut context) else {
                panic!("it waits for nothing")
            };
            let mut instance = ended.instance.unwrap();
            let left = &mut instance.store.data_mut().left;
            assert_eq!(*left, [keep::left(Kind::Fields, 3)]);
            left.extend(mistake);
            inner.put(instance);
            inner.take().is_some()
        };
        assert!(serve(None));
        for (kind, handle) in [
            (Kind::Pollable, 3),
            (Kind::Fields, 1),
            (Kind::Fields, 0),
            (Kind::Fields, 4096),
            // A type that this component does not import.
            (Kind::Network, 3),
        ] {
            assert!(!serve(Some(keep::left(kind, handle))), "{kind:?} {handle}");
        }
        assert!(serve(None));
    }
}
