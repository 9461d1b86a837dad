//! From a request's head to what it invokes.
//!
//! The registry publishes a [`registry::Snapshot`] whenever something is deployed; [`Dispatcher::publish`] makes a
//! [`Table`] of it: every route and every way to write a function's name, each leading to a [`worker::Target`]. Cores read the
//! table through a [`Reader`], which costs one load when nothing has changed. A swap of tables is the moment at which a
//! deploy happens: requests that were routed before it end on the version they were given.
//!
//! Today a request is a graph of one node and its place is the core that read it, so there is nothing else to decide here.

#![forbid(unsafe_code)]

mod table;
mod whose;

pub use whose::Whose;

use arc_swap::{ArcSwap, Cache};
use contract::{FunctionId, Head, Name, Problem, Service, Services, VersionNumber};
use parking_lot::Mutex;
use registry::{Snapshot, Version};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::SystemTime,
};
use table::Table;
use telemetry::{logs::Logs, metrics::Metrics};
use tenants::{Directory, Tenant};
use triggers::Event;
use worker::{Shared, Target, TargetOptions};

/// Publishes tables to the cores.
pub struct Dispatcher {
    table: Arc<ArcSwap<Table>>,
    targets: Mutex<Targets>,
    shared: Arc<Shared>,
    services: Vec<Arc<dyn Service>>,
    tenants: Arc<ArcSwap<Directory>>,
    metrics: Arc<Metrics>,
    logs: Logs,
    ready: Arc<AtomicBool>,
}

type Targets = BTreeMap<(FunctionId, VersionNumber), Known>;

#[derive(Clone)]
struct Known {
    target: Arc<Target>,
    /// An alias names it: its image is kept.
    aliased: bool,
}

/// One core's view of the table.
pub struct Reader {
    cache: Cache<Arc<ArcSwap<Table>>, Arc<Table>>,
    tenants: Cache<Arc<ArcSwap<Directory>>, Arc<Directory>>,
    ready: Arc<AtomicBool>,
}

/// A request that leads to no function.
#[derive(Debug)]
pub struct Unrouted {
    /// What to answer.
    pub problem: Problem,
    /// The methods that its path takes, as the `Allow` header of a 405 lists them.
    pub allow: Option<String>,
}

impl From<Problem> for Box<Unrouted> {
    fn from(problem: Problem) -> Self {
        Self::new(Unrouted { problem, allow: None })
    }
}

impl Reader {
    /// Whose a request is. Takes a tenant's token out of the head, so that no function reads it.
    pub fn whose(&mut self, head: &mut Head) -> Result<Whose, Problem> {
        let directory = self.tenants.load();
        if directory.is_empty() {
            return Ok(Whose::Node);
        }
        whose::find(directory, head, SystemTime::now())
    }

    /// The tenant of this name.
    pub fn tenant(&mut self, name: &Name) -> Option<Arc<Tenant>> {
        self.tenants.load().tenant(name).cloned()
    }

    /// What a tenant's request invokes. Notes in the head how much of its path named that.
    pub fn route(&mut self, tenant: Option<&Name>, head: &mut Head) -> Result<Arc<Target>, Box<Unrouted>> {
        self.cache.load().route(tenant, head)
    }

    /// What a function's name means now to a tenant.
    pub fn named(&mut self, tenant: Option<&Name>, function: &str) -> Result<Arc<Target>, Problem> {
        self.cache.load().named(tenant, function)
    }

    /// What is deployed now.
    pub fn snapshot(&mut self) -> &Arc<Snapshot> {
        self.cache.load().snapshot()
    }

    /// The functions of a tenant that want an event, of one application or of all.
    pub fn subscribers(
        &mut self,
        tenant: Option<&Name>,
        application: Option<&Name>,
        event: &Event,
    ) -> Vec<Arc<Target>> {
        self.cache.load().subscribers(tenant, application, event)
    }

    /// Whether everything that was deployed when the node started can be served without loading anything.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

impl Dispatcher {
    /// With nothing deployed.
    pub fn new(
        shared: Arc<Shared>,
        services: Vec<Arc<dyn Service>>,
        tenants: Arc<ArcSwap<Directory>>,
        metrics: Arc<Metrics>,
        logs: Logs,
    ) -> Self {
        Self {
            table: Arc::new(ArcSwap::from_pointee(Table::default())),
            targets: Mutex::default(),
            shared,
            services,
            tenants,
            metrics,
            logs,
            ready: Arc::new(AtomicBool::new(false)),
        }
    }

    /// A view for one core.
    pub fn reader(&self) -> Reader {
        Reader {
            cache: Cache::new(self.table.clone()),
            tenants: Cache::new(self.tenants.clone()),
            ready: self.ready.clone(),
        }
    }

    /// Set once the images of the first publication are loaded.
    pub fn ready(&self) -> Arc<AtomicBool> {
        self.ready.clone()
    }

    /// Makes a snapshot what requests meet from now on. Images that are not loaded yet are loaded behind it, on a thread of
    /// their own; a request that comes before its image waits for it.
    pub fn publish(&self, snapshot: &Arc<Snapshot>) {
        let mut targets = self.targets.lock();
        let mut next = Targets::new();
        let mut cold = Vec::new();
        for version in versions(snapshot) {
            let key = (version.function.clone(), version.number);
            let aliased = is_aliased(snapshot, version);
            let known = match targets.get(&key) {
                // A version that lost its last alias gives its image back: it starts again as one that was never used.
                Some(known) if known.aliased == aliased || aliased => Known {
                    aliased,
                    ..known.clone()
                },
                _ => Known {
                    target: self.target(version),
                    aliased,
                },
            };
            // What the registry has loaded is there at once; the rest comes behind the caller's back.
            if aliased && (version.loaded().is_none() || known.target.preload().is_err()) {
                cold.push(known.target.clone());
            }
            next.insert(key, known);
        }
        self.table.store(Arc::new(Table::build(snapshot.clone(), &next)));
        let kept: BTreeSet<_> = next.values().map(|known| Arc::as_ptr(&known.target)).collect();
        let mut retired = false;
        for known in targets
            .values()
            .filter(|known| !kept.contains(&Arc::as_ptr(&known.target)))
        {
            known.target.retire();
            retired = true;
        }
        let gone: BTreeSet<_> = targets.keys().map(|(function, _)| function.clone()).collect();
        let gone: Vec<_> = gone
            .into_iter()
            .filter(|id| !next.keys().any(|(function, _)| function == id))
            .collect();
        *targets = next;
        drop(targets);
        gone.iter().for_each(|function| self.forget(function));
        if retired {
            self.shared.retired_some();
        }
        self.preload(cold);
    }

    /// What a version that is not deployed is invoked by: no name and no route leads to it.
    pub fn unnamed(&self, version: &Arc<Version>) -> Arc<Target> {
        self.target(version)
    }

    /// Drops what was measured of a function that is no more, and its log.
    pub fn forget(&self, function: &FunctionId) {
        self.metrics.forget(function);
        if let Err(error) = self.logs.delete(function) {
            tracing::warn!(%function, %error, "the log of a deleted function stays on disk");
        }
    }

    fn target(&self, version: &Arc<Version>) -> Arc<Target> {
        let its = version.clone();
        let services = Services::bind(&self.services, &version.grant);
        let directory = self.tenants.load();
        // One that was named and is no more leaves its functions to the node's own share.
        let payer = version.function.tenant().or(version.settings.tenant.as_ref());
        let tenant = payer.and_then(|name| directory.tenant(name));
        let metrics = self.metrics.function(&version.function);
        let target = Arc::new(Target::new(TargetOptions {
            services: (!services.is_empty()).then(|| Arc::new(services)),
            tenancy: tenant.map(|tenant| self.shared.tenancy(&tenant.allowance)),
            grant: version.grant.clone(),
            load: Box::new(move || its.image().cloned().map_err(|error| error.to_string())),
            claim: version.settings.claim,
            log: self.logs.function(&version.function, version.number),
            metrics: metrics.clone(),
            usage: version.usage.recorder().clone(),
        }));
        let watched = Arc::downgrade(&target);
        metrics.watch(move || watched.upgrade().map(|target| target.occupancy()));
        let promoted = Arc::downgrade(&target);
        version.when_better(move |image| {
            if let Some(target) = promoted.upgrade() {
                target.take_over(image);
            }
        });
        target
    }

    fn preload(&self, cold: Vec<Arc<Target>>) {
        let ready = self.ready.clone();
        let load = move || {
            for target in cold {
                if let Err(reason) = target.preload() {
                    let function = &target.grant().function;
                    tracing::error!(%function, version = %target.grant().version, reason, "a function cannot be loaded");
                }
            }
            ready.store(true, Ordering::Relaxed);
        };
        if let Err(error) = thread::Builder::new().name("preload".into()).spawn(load) {
            // Requests will load what they need themselves.
            tracing::warn!(%error, "no thread could be started to load functions ahead of their first request");
        }
    }
}

fn versions(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<Version>> {
    snapshot
        .applications
        .values()
        .flat_map(|a| a.functions.values())
        .flat_map(|f| f.versions.values())
}

fn is_aliased(snapshot: &Snapshot, version: &Version) -> bool {
    let FunctionId {
        application,
        function,
    } = &version.function;
    let found = snapshot
        .applications
        .get(application)
        .and_then(|a| a.functions.get(function));
    found.is_some_and(|function| function.is_aliased(version.number))
}
