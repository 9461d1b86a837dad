//! What is invoked: one function version as the worker sees it, with what is counted to hold its limits.
//!
//! Each core has a [`Target`] of its own of a version, made when the core is first asked for it. Requests and references are counted
//! several times for each request, and where two cores write the same line of their caches each time is a miss. ARCHITECTURE, decision
//! 48.

use crate::{Invocation, Tenancy, gate::Gate, line::Waiting, tally::Tally};
use contract::{Claim, CoreId, Grant, Image, Load, Party, Refusal, Services};
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use telemetry::{
    logs::FunctionLog,
    metrics::{FunctionMetrics, Occupancy, Sample},
    usage::{Estimate, Recorder},
};
use tenants::{Allowance, Share};

/// One function version, as one core has it.
#[repr(align(128))]
pub struct Target {
    core: usize,
    common: Arc<Common>,
    pub(crate) grant: Arc<Grant>,
    /// What its sandboxes may ask for; none if nothing.
    pub(crate) services: Option<Arc<Services>>,
    pub(crate) claim: Claim,
    pub(crate) log: Arc<FunctionLog>,
    image: OnceLock<Arc<dyn Image>>,
    /// Takes over from it.
    better: OnceLock<Arc<dyn Image>>,
}

/// One function version, as all cores have it.
#[derive(Clone)]
pub struct Targets {
    common: Arc<Common>,
    each: Arc<[OnceLock<Arc<Target>>]>,
}

/// What targets of one version have in common. What changes with each request lies on lines of its own.
struct Common {
    grant: Arc<Grant>,
    services: Option<Arc<Services>>,
    /// Whose it is; none of the node's own.
    tenancy: Option<Arc<Tenancy>>,
    image: OnceLock<Arc<dyn Image>>,
    /// Takes over from it.
    better: OnceLock<Arc<dyn Image>>,
    load: Loader,
    claim: Claim,
    log: Arc<FunctionLog>,
    metrics: Arc<FunctionMetrics>,
    retired: AtomicBool,
    /// Requests with a sandbox are inside; some of those without one wait for another of their function to end.
    gate: Gate<Box<Invocation>>,
    /// Requests admitted and without a sandbox.
    queued: Tally,
    usage: Arc<Recorder>,
}

/// Gives the image of a version, or says why there is none. May block for long.
pub type Loader = Box<dyn Fn() -> Result<Arc<dyn Image>, String> + Send + Sync>;

/// What [`Targets`] are made of.
pub struct TargetOptions {
    /// What its sandboxes may use.
    pub grant: Arc<Grant>,
    /// What they may ask for.
    pub services: Option<Arc<Services>>,
    /// Whose it is, if it is not the node's own.
    pub tenancy: Option<Arc<Tenancy>>,
    /// Loads its code. Called by the loader's thread when the first request comes, or by [`Targets::preload`].
    pub load: Loader,
    /// When its requests want to run.
    pub claim: Claim,
    /// Where its output goes that is not a response.
    pub log: Arc<FunctionLog>,
    /// Where its measurements go.
    pub metrics: Arc<FunctionMetrics>,
    /// Where what its requests use goes, and where what they will use comes from.
    pub usage: Arc<Recorder>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("grant", &self.grant)
            .finish_non_exhaustive()
    }
}

impl Common {
    fn image(&self) -> Option<&Arc<dyn Image>> {
        self.better.get().or_else(|| self.image.get())
    }

    fn preload(&self) -> Result<(), String> {
        if self.image().is_none() {
            let image = (self.load)()?;
            // A second loader got there first: both images are good.
            let _ = self.image.set(image);
        }
        Ok(())
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy {
            running: self.gate.taken().into(),
            queued: self.queued.all().into(),
        }
    }
}

impl Targets {
    /// Of a version that has not served anything yet, on a node of so many cores.
    pub fn new(options: TargetOptions, cores: usize) -> Self {
        let TargetOptions {
            grant,
            services,
            tenancy,
            load,
            claim,
            log,
            metrics,
            usage,
        } = options;
        let cores = cores.max(1);
        let common = Common {
            gate: Gate::new(grant.limits.concurrency, cores),
            queued: Tally::new(grant.limits.queue, cores),
            grant,
            services,
            tenancy,
            image: OnceLock::new(),
            better: OnceLock::new(),
            load,
            claim,
            log,
            metrics,
            retired: AtomicBool::new(false),
            usage,
        };
        Self {
            common: Arc::new(common),
            each: (0..cores).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The version as this core has it. A core that the node does not have gets another one's.
    pub fn on(&self, core: CoreId) -> &Arc<Target> {
        let core = usize::from(core.0) % self.each.len();
        self.each[core].get_or_init(|| {
            Arc::new(Target {
                core,
                common: self.common.clone(),
                grant: self.common.grant.clone(),
                services: self.common.services.clone(),
                claim: self.common.claim,
                log: self.common.log.clone(),
                image: OnceLock::new(),
                better: OnceLock::new(),
            })
        })
    }

    /// What its sandboxes may use.
    pub fn grant(&self) -> &Arc<Grant> {
        &self.common.grant
    }

    /// Loads its image if that has not happened. Blocks; never called on a core.
    pub fn preload(&self) -> Result<(), String> {
        self.common.preload()
    }

    /// No route leads here any more: warm sandboxes kept for reuse are dropped.
    pub fn retire(&self) {
        self.common.retired.store(true, Ordering::Relaxed);
    }

    /// Whether these are targets of the same version.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.common, &other.common)
    }

    /// How many of its requests there are now, as long as there is anything of it.
    pub fn watch(&self) -> impl Fn() -> Option<Occupancy> + Send + Sync + use<> {
        let common = Arc::downgrade(&self.common);
        move || common.upgrade().map(|common| common.occupancy())
    }

    /// What is given to this makes its sandboxes from now on. Only the first call counts.
    pub fn successor(&self) -> impl Fn(Arc<dyn Image>) + Send + Sync + use<> {
        let common = Arc::downgrade(&self.common);
        move |image| {
            if let Some(common) = common.upgrade() {
                let _ = common.better.set(image);
            }
        }
    }
}

impl Target {
    /// Loads its image if that has not happened. Blocks; never called on a core.
    pub fn preload(&self) -> Result<(), String> {
        self.common.preload()
    }

    /// Whether the other is of the same version.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.common, &other.common)
    }

    /// This core's reference to its image.
    pub(crate) fn image(&self) -> Option<&Arc<dyn Image>> {
        let own = |image: &Arc<dyn Image>| image.another().unwrap_or_else(|| image.clone());
        match (self.common.better.get(), self.common.image.get()) {
            (Some(better), _) => Some(self.better.get_or_init(|| own(better))),
            (None, Some(image)) => Some(self.image.get_or_init(|| own(image))),
            (None, None) => None,
        }
    }

    /// Whether its code takes bodies as they come and answers in pieces; false while that is not known.
    pub fn streams(&self) -> bool {
        self.image().is_some_and(|image| image.streams())
    }

    /// Whether it may begin with a request that is not all here: see [`policy::may_wait_inside`].
    pub fn takes_unfinished(&self) -> bool {
        policy::may_wait_inside(&Load {
            running: self.common.gate.taken(),
            queued: self.common.queued.all(),
            ..self.load(false)
        })
    }

    /// What its sandboxes may use.
    pub fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }

    /// Records a request. Only the thread of `core` may call this.
    pub fn record(&self, core: CoreId, sample: &Sample) {
        self.common.metrics.record(core, sample);
        self.common.usage.record(core, sample);
    }

    /// A request of it was read.
    pub(crate) fn arrived(&self, core: CoreId, now: Instant) {
        self.common.usage.arrived(core, now);
    }

    /// What its next request is expected to take.
    pub(crate) fn estimate(&self) -> Estimate {
        self.common.usage.estimate()
    }

    /// When a request of it that came at `arrived` is given up, or before, if its head says so.
    pub(crate) fn expires(&self, arrived: Instant, until: Option<Instant>) -> Instant {
        let limit = arrived + self.grant.limits.timeout;
        until.map_or(limit, |until| until.min(limit))
    }

    /// Its deadline for a request, counted from the earliest moment at which that can have come. A tenth of it is left for what no
    /// clock here sees: until its client has the answer.
    pub(crate) fn deadline(&self, arrived: Instant, unseen: Duration) -> Option<Instant> {
        let given = self.claim.deadline?;
        Some(arrived + given.saturating_sub(unseen + given / 10))
    }

    /// What its tenant may use, if that has quotas.
    pub fn allowance(&self) -> Option<&Arc<Allowance>> {
        self.common.tenancy.as_ref().map(|tenancy| tenancy.allowance())
    }

    pub(crate) fn tenancy(&self) -> Option<&Arc<Tenancy>> {
        self.common.tenancy.as_ref()
    }

    pub(crate) fn retired(&self) -> bool {
        self.common.retired.load(Ordering::Relaxed)
    }

    /// What a policy is told. Of a version without a deadline it is only asked whether all of its queue is taken: where that is known not
    /// to be, what runs and waits on other cores is left out, and so is what runs on this one.
    pub(crate) fn load(&self, draining: bool) -> Load {
        let (limits, common) = (&self.grant.limits, &*self.common);
        let within = common.queued.within(self.core);
        let (running, queued) = match within.filter(|_| self.claim.deadline.is_none()) {
            Some(here) => (0, here),
            None => (common.gate.taken(), common.queued.all()),
        };
        Load {
            running,
            queued,
            concurrency: limits.concurrency,
            queue: limits.queue,
            held: common.gate.held(),
            share: 1.0,
            draining,
        }
    }

    /// Where its measurements go.
    pub(crate) fn metrics(&self) -> &FunctionMetrics {
        &self.common.metrics
    }

    /// How many of its requests there are now.
    pub fn occupancy(&self) -> Occupancy {
        self.common.occupancy()
    }

    /// Whose share of the cores its sandboxes use.
    pub fn party(&self) -> Party {
        self.allowance()
            .map_or(Party::default(), |allowance| allowance.party())
    }

    pub(crate) fn queue(&self) {
        self.common.queued.add(self.core);
    }

    pub(crate) fn unqueue(&self) {
        self.common.queued.remove(self.core);
    }

    /// Takes one of the function's places, or keeps the request until one is free.
    pub(crate) fn start(&self, invocation: Box<Invocation>) -> Option<Box<Invocation>> {
        let invocation = self.common.gate.enter(invocation, self.core)?;
        self.unqueue();
        Some(invocation)
    }

    /// Takes part of its tenant's quotas for a sandbox; `Err` with the request and what to answer, or with none of both if it waits
    /// for its tenant's other requests.
    #[expect(clippy::type_complexity, reason = "two ways to go on")]
    pub(crate) fn share(
        &self,
        invocation: Box<Invocation>,
    ) -> Result<(Box<Invocation>, Option<Share>), Option<(Box<Invocation>, Refusal)>> {
        let Some(tenancy) = &self.common.tenancy else {
            return Ok((invocation, None));
        };
        let memory = self.grant.limits.memory.0;
        let refused = |quota| Refusal::Quota {
            quota,
            // Until one of its tenant's functions has ended, which nobody knows.
            retry_after: self.estimate().service,
        };
        // It counts as waiting before another core can have it.
        self.queue();
        let (left, quota) = match tenancy.enter(invocation, memory) {
            Waiting::Kept => return Err(None),
            Waiting::Not(invocation, Ok(share)) => {
                self.unqueue();
                return Ok((invocation, Some(share)));
            }
            Waiting::Not(invocation, Err(quota)) => (invocation, quota),
            Waiting::Full(invocation) => (invocation, tenancy.allowance().met()),
        };
        self.unqueue();
        Err(Some((left, refused(quota))))
    }

    /// Gives a place back. Returns a request that waited for it, to be queued again on the caller's core.
    pub(crate) fn end(&self) -> Option<Box<Invocation>> {
        self.common.gate.leave(self.core)
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.common.gate.is_holding()
    }

    /// Takes out held requests whose time is over.
    #[expect(clippy::vec_box, reason = "they go on as boxes")]
    pub(crate) fn sweep(&self, now: Instant) -> Vec<Box<Invocation>> {
        self.common.gate.sweep(|held| held.is_over(now))
    }

    /// Everything that waits, to be refused.
    #[expect(clippy::vec_box, reason = "they go on as boxes")]
    pub(crate) fn take_held(&self) -> Vec<Box<Invocation>> {
        self.common.gate.sweep(|_| true)
    }
}
