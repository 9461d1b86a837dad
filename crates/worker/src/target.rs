//! What is invoked: one function version as the worker sees it, with the two counters that hold its limits.

use crate::{Invocation, Tenancy, gate::Gate, line::Waiting};
use contract::{Claim, CoreId, Grant, Image, Load, Party, Refusal, Services};
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Instant,
};
use telemetry::{
    logs::FunctionLog,
    metrics::{FunctionMetrics, Occupancy, Sample},
    usage::{Estimate, Recorder},
};
use tenants::{Allowance, Share};

/// One function version, shared by all cores.
pub struct Target {
    pub(crate) grant: Arc<Grant>,
    /// What its sandboxes may ask for; none if nothing.
    pub(crate) services: Option<Arc<Services>>,
    /// Whose it is; none of the node's own.
    tenancy: Option<Arc<Tenancy>>,
    image: OnceLock<Arc<dyn Image>>,
    /// Takes over from it.
    better: OnceLock<Arc<dyn Image>>,
    load: Loader,
    pub(crate) claim: Claim,
    pub(crate) log: Arc<FunctionLog>,
    metrics: Arc<FunctionMetrics>,
    retired: AtomicBool,
    /// Requests with a sandbox are inside; some of those without one wait for another of their function to end.
    gate: Gate<Box<Invocation>>,
    /// Requests admitted and without a sandbox.
    queued: AtomicU32,
    usage: Arc<Recorder>,
}

/// Gives the image of a version, or says why there is none. May block for long.
pub type Loader = Box<dyn Fn() -> Result<Arc<dyn Image>, String> + Send + Sync>;

/// What a [`Target`] is made of.
pub struct TargetOptions {
    /// What its sandboxes may use.
    pub grant: Arc<Grant>,
    /// What they may ask for.
    pub services: Option<Arc<Services>>,
    /// Whose it is, if it is not the node's own.
    pub tenancy: Option<Arc<Tenancy>>,
    /// Loads its code. Called by the loader's thread when the first request comes, or by [`Target::preload`].
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

impl Target {
    /// A version that has not served anything yet.
    pub fn new(options: TargetOptions) -> Self {
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
        Self {
            gate: Gate::new(grant.limits.concurrency),
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
            queued: AtomicU32::new(0),
            usage,
        }
    }

    /// Loads its image if that has not happened. Blocks; never called on a core.
    pub fn preload(&self) -> Result<(), String> {
        if self.image().is_none() {
            let image = (self.load)()?;
            // A second loader got there first: both images are good.
            let _ = self.image.set(image);
        }
        Ok(())
    }

    /// Sandboxes are made of this image from now on. Only the first call counts.
    pub fn take_over(&self, image: Arc<dyn Image>) {
        let _ = self.better.set(image);
    }

    pub(crate) fn image(&self) -> Option<&Arc<dyn Image>> {
        self.better.get().or_else(|| self.image.get())
    }

    /// Whether its code takes bodies as they come and answers in pieces; false while that is not known.
    pub fn streams(&self) -> bool {
        self.image().is_some_and(|image| image.streams())
    }

    /// Whether it may begin with a request that is not all here: see [`policy::may_wait_inside`].
    pub fn takes_unfinished(&self) -> bool {
        policy::may_wait_inside(&self.load(false))
    }

    /// What its sandboxes may use.
    pub fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }

    /// Records a request. Only the thread of `core` may call this.
    pub fn record(&self, core: CoreId, sample: &Sample) {
        self.metrics.record(core, sample);
        self.usage.record(core, sample);
    }

    /// A request of it was read.
    pub(crate) fn arrived(&self, core: CoreId, now: Instant) {
        self.usage.arrived(core, now);
    }

    /// What its next request is expected to take.
    pub(crate) fn estimate(&self) -> Estimate {
        self.usage.estimate()
    }

    /// What its tenant may use, if that has quotas.
    pub fn allowance(&self) -> Option<&Arc<Allowance>> {
        self.tenancy.as_ref().map(|tenancy| tenancy.allowance())
    }

    pub(crate) fn tenancy(&self) -> Option<&Arc<Tenancy>> {
        self.tenancy.as_ref()
    }

    /// No route leads here any more: warm sandboxes kept for reuse are dropped.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    pub(crate) fn retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    pub(crate) fn load(&self, draining: bool) -> Load {
        let limits = &self.grant.limits;
        Load {
            running: self.gate.taken(),
            queued: self.queued.load(Ordering::Relaxed),
            concurrency: limits.concurrency,
            queue: limits.queue,
            held: self.gate.held(),
            share: 1.0,
            draining,
        }
    }

    /// Where its measurements go.
    pub(crate) fn metrics(&self) -> &FunctionMetrics {
        &self.metrics
    }

    /// How many of its requests there are now.
    pub fn occupancy(&self) -> Occupancy {
        Occupancy {
            running: self.gate.taken().into(),
            queued: self.queued.load(Ordering::Relaxed).into(),
        }
    }

    /// Whose share of the cores its sandboxes use.
    pub(crate) fn party(&self) -> Party {
        self.allowance()
            .map_or(Party::default(), |allowance| allowance.party())
    }

    pub(crate) fn queue(&self) {
        self.queued.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unqueue(&self) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes one of the function's places, or keeps the request until one is free.
    pub(crate) fn start(&self, invocation: Box<Invocation>) -> Option<Box<Invocation>> {
        let invocation = self.gate.enter(invocation)?;
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
        let Some(tenancy) = &self.tenancy else {
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
        self.gate.leave()
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.gate.is_holding()
    }

    /// Takes out held requests whose time is over.
    #[expect(clippy::vec_box, reason = "they go on as boxes")]
    pub(crate) fn sweep(&self, now: Instant) -> Vec<Box<Invocation>> {
        self.gate.sweep(|held| held.is_over(now))
    }

    /// Everything that waits, to be refused.
    #[expect(clippy::vec_box, reason = "they go on as boxes")]
    pub(crate) fn take_held(&self) -> Vec<Box<Invocation>> {
        self.gate.sweep(|_| true)
    }
}
