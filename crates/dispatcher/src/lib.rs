//! From a request's head to what it invokes.
//!
//! The registry publishes a [`registry::Snapshot`] whenever something is deployed; [`Dispatcher::publish`] makes a
//! [`Table`] of it: every route and every way to write a function's name, each leading to [`worker::Targets`]. Cores read the
//! table through a [`Reader`], which costs one load when nothing has changed. A swap of tables is the moment at which a
//! deploy happens: requests that were routed before it end on the version they were given.
//!
//! Today a request is a graph of one node and its place is the core that read it, so there is nothing else to decide here.

#![forbid(unsafe_code)]

mod table;
mod whose;

pub use whose::Whose;

use arc_swap::{ArcSwap, Cache};
use contract::{CoreId, FunctionId, Head, Name, Problem, Service, Services, VersionNumber};
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
use worker::{Shared, Target, TargetOptions, Targets};

/// Publishes tables to the cores.
pub struct Dispatcher {
    table: Arc<ArcSwap<Table>>,
    versions: Mutex<Versions>,
    shared: Arc<Shared>,
    services: Vec<Arc<dyn Service>>,
    tenants: Arc<ArcSwap<Directory>>,
    metrics: Arc<Metrics>,
    logs: Logs,
    ready: Arc<AtomicBool>,
}

type Versions = BTreeMap<(FunctionId, VersionNumber), Known>;

#[derive(Clone)]
struct Known {
    targets: Targets,
    /// An alias names it: its image is kept.
    aliased: bool,
}

/// One core's view of the table.
pub struct Reader {
    core: CoreId,
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
        self.cache.load().route(self.core, tenant, head)
    }

    /// What a function's name means now to a tenant.
    pub fn named(&mut self, tenant: Option<&Name>, function: &str) -> Result<Arc<Target>, Problem> {
        self.cache.load().named(self.core, tenant, function)
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
        self.cache
            .load()
            .subscribers(self.core, tenant, application, event)
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
            versions: Mutex::default(),
            shared,
            services,
            tenants,
            metrics,
            logs,
            ready: Arc::new(AtomicBool::new(false)),
        }
    }

    /// A view for one core. Who is on none reads as the first.
    pub fn reader(&self, core: CoreId) -> Reader {
        Reader {
            core,
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
        let mut known = self.versions.lock();
        let mut next = Versions::new();
        let mut cold = Vec::new();
        for version in versions(snapshot) {
            let key = (version.function.clone(), version.number);
            let aliased = is_aliased(snapshot, version);
            let now = match known.get(&key) {
                // A version that lost its last alias gives its image back: it starts again as one that was never used.
                Some(before) if before.aliased == aliased || aliased => Known {
                    aliased,
                    ..before.clone()
                },
                _ => Known {
                    targets: self.targets(version),
                    aliased,
                },
            };
            // What the registry has loaded is there at once; the rest comes behind the caller's back.
            if aliased && (version.loaded().is_none() || now.targets.preload().is_err()) {
                cold.push(now.targets.clone());
            }
            next.insert(key, now);
        }
        self.table.store(Arc::new(Table::build(snapshot.clone(), &next)));
        let mut retired = false;
        for (key, before) in known.iter() {
            let kept = next.get(key).is_some_and(|next| next.targets.is(&before.targets));
            if !kept {
                before.targets.retire();
                retired = true;
            }
        }
        let gone: BTreeSet<_> = known.keys().map(|(function, _)| function.clone()).collect();
        let gone: Vec<_> = gone
            .into_iter()
            .filter(|id| !next.keys().any(|(function, _)| function == id))
            .collect();
        *known = next;
        drop(known);
        gone.iter().for_each(|function| self.forget(function));
        if retired {
            self.shared.retired_some();
        }
        self.preload(cold);
    }

    /// What a version that is not deployed is invoked by: no name and no route leads to it.
    pub fn unnamed(&self, version: &Arc<Version>) -> Arc<Target> {
        self.targets(version).on(CoreId(0)).clone()
    }

    /// Drops what was measured of a function that is no more, and its log.
    pub fn forget(&self, function: &FunctionId) {
        self.metrics.forget(function);
        if let Err(error) = self.logs.delete(function) {
            tracing::warn!(%function, %error, "the log of a deleted function stays on disk");
        }
    }

    fn targets(&self, version: &Arc<Version>) -> Targets {
        let its = version.clone();
        let services = Services::bind(&self.services, &version.grant);
        let directory = self.tenants.load();
        // One that was named and is no more leaves its functions to the node's own share.
        let payer = version.function.tenant().or(version.settings.tenant.as_ref());
        let tenant = payer.and_then(|name| directory.tenant(name));
        let metrics = self.metrics.function(&version.function);
        let options = TargetOptions {
            services: (!services.is_empty()).then(|| Arc::new(services)),
            tenancy: tenant.map(|tenant| self.shared.tenancy(&tenant.allowance)),
            grant: version.grant.clone(),
            load: Box::new(move || its.image().cloned().map_err(|error| error.to_string())),
            claim: version.settings.claim,
            log: self.logs.function(&version.function, version.number),
            metrics: metrics.clone(),
            usage: version.usage.recorder().clone(),
        };
        let targets = Targets::new(options, self.shared.cores());
        metrics.watch(targets.watch());
        version.when_better(targets.successor());
        targets
    }

    fn preload(&self, cold: Vec<Targets>) {
        let ready = self.ready.clone();
        let load = move || {
            for targets in cold {
                if let Err(reason) = targets.preload() {
                    let grant = targets.grant();
                    tracing::error!(function = %grant.function, version = %grant.version, reason, "a function cannot be loaded");
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
