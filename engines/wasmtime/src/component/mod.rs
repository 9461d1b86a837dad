//! Components of WASI 0.2: commands (`wasi:cli/run`) and HTTP handlers (`wasi:http/incoming-handler`).
//!
//! The host is ours and small: [`io`], [`cli`] and [`http`] are what a function needs to read its request and to answer it;
//! [`absent`] is what libcs link and no sandbox has. A guest's handles stand for objects of one bounded [`table`].
//!
//! An instance is put back to its first state for the next request if its component could be prepared for that ([`keep`]), and if
//! its memory has not grown. All others are made anew. A component may have several memories and tables; it takes
//! as many places of the pool as its memories need.

mod absent;
mod cli;
mod host;
mod http;
mod instance;
mod io;
pub(crate) mod keep;
mod outgoing;
mod table;

use crate::{Wasmtime, pool::Pool, sandbox::Running};
use contract::{ByteSize, Grant, Image, Input, Sandbox, SpawnError};
use fresh::{Area, ImageId};
pub(crate) use host::Host;
pub(crate) use instance::Instance;
use instance::Pristine;
use std::sync::Arc;
use table::{Object, Source, Target};
use wasmtime::{
    Engine, Error, Result, StoreContextMut,
    component::{
        Component, ComponentExportIndex, InstancePre, Linker, Resource, ResourceType, WasmList,
        types::{ComponentFunc, ComponentItem, Type},
    },
};

/// Core memories of one component.
pub(crate) const MOST_MEMORIES: u32 = 4;
/// Core tables of one component, and of one place in the pool.
pub(crate) const MOST_TABLES: u32 = 16;
pub(crate) const TABLES_OF_A_PLACE: u32 = 4;
/// Core instances of one component: Python's has one for each of its shared libraries.
pub(crate) const MOST_INSTANCES: u32 = 512;

/// Bytes that one call of a guest may make the host copy.
const MOST_COPIED: usize = 4 << 20;
/// Handles of one guest, those of its own making included.
const MOST_HANDLES: usize = 64 << 10;

/// Defines functions of one instance, each from the host's state and its parameters.
macro_rules! functions {
    ($instance:ident { $($function:tt)* }) => { $crate::component::define!($instance; $($function)*); };
    ($linker:ident.instance($name:literal)? { $($function:tt)* }) => {
        let mut instance = $linker.instance($name)?;
        $crate::component::define!(instance; $($function)*);
    };
}

macro_rules! define {
    ($instance:ident; $($name:expr => |$host:ident $(, $argument:ident: $type:ty)*| $body:expr;)*) => {
        $($instance.func_wrap(
            $name,
            move |mut store: wasmtime::StoreContextMut<'_, $crate::component::host::Host>, ($($argument,)*): ($($type,)*)| {
                let $host = store.data_mut();
                $host.touch();
                $body
            },
        )?;)*
    };
}

use {define, functions};

/// Mark of the keeper's resource type.
struct Token;

/// The destructor of every other resource type.
fn forget(mut store: StoreContextMut<'_, Host>, number: u32) -> Result<()> {
    let host = store.data_mut();
    match host.table.remove(number) {
        Some(Object::OutgoingBody {
            to: Target::Request(number),
            ..
        }) => host.exchanges.abandon(number),
        Some(
            Object::IncomingBody {
                of: Source::Reply(number),
                ..
            }
            | Object::IncomingResponse {
                body: number,
                consumed: false,
                ..
            },
        ) => host.exchanges.close(number),
        _ => {}
    }
    Ok(())
}

/// WASI 0.2 for every component of this engine; the linker takes any 0.2.x for the 0.2.0 that is named here.
pub(crate) fn linker(engine: &Engine) -> Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    io::link(&mut linker)?;
    cli::link(&mut linker)?;
    http::link(&mut linker)?;
    absent::link(&mut linker)?;
    let mut root = linker.root();
    root.func_wrap(
        keep::MEMORY,
        |mut store: StoreContextMut<'_, Host>, (pages, begin, handle): (u32, WasmList<u8>, u32)| {
            let begin = begin.as_le_slice(&store).as_ptr().cast_mut();
            // Where Wasmtime itself takes handles, their order could not be put back.
            if handle == 1 {
                store
                    .data_mut()
                    .set_memory(Area::new(begin, (pages as usize) << 16));
            }
            Ok(())
        },
    )?;
    root.resource(keep::TOKEN, ResourceType::host::<Token>(), |_, _| Ok(()))?;
    root.func_wrap(keep::TAKE, |_: StoreContextMut<'_, Host>, (): ()| {
        Ok((Resource::<Token>::new_own(0),))
    })?;
    root.func_wrap(keep::LEFT, |mut store: StoreContextMut<'_, Host>, (): ()| {
        Ok((store.data_mut().next_left()?,))
    })?;
    Ok(linker)
}

/// What calls a component.
#[derive(Clone, Copy, PartialEq, Eq)]
enum World {
    /// `wasi:cli/run`, as a program.
    Command,
    /// `wasi:http/incoming-handler`.
    Proxy,
}

const HANDLER: &str = "wasi:http/incoming-handler@0.2.0";
const RUN: &str = "wasi:cli/run@0.2.0";

/// A component that is ready to run.
pub(crate) struct Loaded {
    inner: Arc<Shared>,
    initial_memory: ByteSize,
}

/// What all cores' images of a component have in common. Each has its own count of who has it.
pub(crate) type Shared = Arc<Inner>;

pub(crate) struct Inner {
    instance: InstancePre<Host>,
    world: World,
    entry: ComponentExportIndex,
    pool: Arc<Pool>,
    places: u32,
    /// The functions of its keeper, if it has one.
    keeper: Option<Keeper>,
    id: ImageId,
    /// None if no instance can be put back.
    pristine: Option<Pristine>,
}

/// See [`keep`].
struct Keeper {
    begin: ComponentExportIndex,
    restore: ComponentExportIndex,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.pristine.is_some() {
            drop(self.pool.components.forget(self.id));
        }
    }
}

fn refused<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::msg(what.into()))
}

impl Loaded {
    /// Resolves a component's imports and exports.
    pub(crate) fn new(engine: &Wasmtime, component: &Component) -> Result<Self> {
        let instance = engine.components.instantiate_pre(component)?;
        let (world, entry) = entry(component)?;
        let Some(needs) = component.resources_required() else {
            return refused("it imports core modules or other components, which nobody could give it");
        };
        if needs.num_memories > MOST_MEMORIES {
            return refused(format!(
                "it has {} memories; a component may have {MOST_MEMORIES}",
                needs.num_memories
            ));
        }
        if needs.num_tables > MOST_TABLES {
            return refused(format!(
                "it has {} tables; a component may have {MOST_TABLES}",
                needs.num_tables
            ));
        }
        let tables = needs.num_tables.div_ceil(TABLES_OF_A_PLACE);
        let pages = needs.max_initial_memory_size.unwrap_or(0);
        Ok(Self {
            initial_memory: ByteSize(pages.saturating_mul(64 << 10)),
            inner: Arc::new(Arc::new(Inner {
                instance,
                world,
                entry,
                pool: engine.pool.clone(),
                places: needs.num_memories.max(tables).max(1),
                keeper: component
                    .get_export_index(None, keep::BEGIN)
                    .zip(component.get_export_index(None, keep::RESTORE))
                    .map(|(begin, restore)| Keeper { begin, restore }),
                id: engine.pool.components.image(),
                pristine: None,
            })),
        })
    }

    /// Keeps an instance in its first state, so that others can be put back to it.
    pub(crate) fn remember(mut self) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner).and_then(Arc::get_mut) {
            inner.pristine = Pristine::make(inner);
        }
        self
    }
}

/// How a component is called.
fn entry(component: &Component) -> Result<(World, ComponentExportIndex)> {
    for (world, name, function) in [(World::Proxy, HANDLER, "handle"), (World::Command, RUN, "run")] {
        let Some(interface) = component.get_export_index(None, name) else {
            continue;
        };
        let Some((item, index)) = component.get_export(Some(&interface), function) else {
            return refused(format!("its `{name}` has no function `{function}`"));
        };
        let good = match (world, item) {
            (World::Proxy, ComponentItem::ComponentFunc(its)) => is_handle(&its),
            (World::Command, ComponentItem::ComponentFunc(its)) => is_run(&its),
            _ => false,
        };
        if !good {
            return refused(format!("its `{function}` is not that of `{name}`"));
        }
        return Ok((world, index));
    }
    refused(
        "it is a component that exports neither `wasi:cli/run` nor `wasi:http/incoming-handler` of WASI 0.2",
    )
}

fn is_run(function: &ComponentFunc) -> bool {
    let mut results = function.results();
    let result = matches!(
        (results.next(), results.next()),
        (Some(Type::Result(result)), None) if result.ok().is_none() && result.err().is_none()
    );
    result && function.params().len() == 0
}

fn is_handle(function: &ComponentFunc) -> bool {
    let mut parameters = function.params().map(|(_, its)| its);
    let resources = matches!(
        (parameters.next(), parameters.next(), parameters.next()),
        (Some(Type::Own(_)), Some(Type::Own(_)), None)
    );
    resources && function.results().len() == 0
}

impl Image for Loaded {
    fn initial_memory(&self) -> ByteSize {
        self.initial_memory
    }

    fn streams(&self) -> bool {
        self.inner.world == World::Proxy
    }

    fn another(&self) -> Option<Arc<dyn Image>> {
        Some(Arc::new(Self {
            inner: Arc::new(Shared::clone(&*self.inner)),
            initial_memory: self.initial_memory,
        }))
    }

    fn spawn(&self, grant: &Arc<Grant>, input: Input) -> Result<Box<dyn Sandbox>, SpawnError> {
        match self.inner.pool.take(self.inner.places) {
            Some(place) => Ok(Box::new(Running::<Instance>::new(
                &self.inner,
                grant,
                input,
                place,
            ))),
            None => Err(SpawnError::Exhausted(input)),
        }
    }
}
