//! What sandboxes may use of the backend: places for calls, memory, bandwidth. What is decided is `policy`'s; time and waiting are here.

use contract::{Name, Time};
use parking_lot::Mutex;
use policy::{Bucket, Pool};
use std::{
    cmp::min,
    collections::HashMap,
    num::NonZeroU64,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::{self, oneshot},
    time::{Instant, sleep},
};

/// What all sandboxes may use together, and each.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Calls that services may have under way at once; others wait, and begin in turn among tenants and among sandboxes.
    pub calls: usize,
    /// Bytes of calls and replies that may lie in the backend's memory at once, of which one sandbox may have a quarter; calls that would have more wait.
    pub memory: u64,
    /// Bytes per second in each direction of one sandbox; any number, if there is none.
    pub bandwidth: Option<NonZeroU64>,
    /// The same of all sandboxes of one tenant.
    pub tenant_bandwidth: Option<NonZeroU64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: 1024,
            memory: 256 << 20,
            // 600 Mbit/s, as AWS Lambda's and Nexus's (section 4.4).
            bandwidth: NonZeroU64::new(75_000_000),
            tenant_bandwidth: None,
        }
    }
}

/// Of the memory, for one sandbox: one of so many parts.
const SHARE: u64 = 4;

/// What passes a bucket at once: as long as that takes, others of the same sandbox or tenant wait for their turn.
const GRAIN: u64 = 64 << 10;

/// The part of a second in which a burst would pass at the rate; and bytes that a burst has at least.
const BURST: u64 = 8;
const LEAST_BURST: u64 = 1 << 20;

/// Links that one sandbox has at once: for each of its processes one to each service, and those that it has not closed yet. Each has a region.
const MOST_LINKS: usize = 16;

/// Of these, with regions as large as the sandbox's memory may be.
const LARGE_LINKS: usize = 4;

/// Which way bytes go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// From a sandbox.
    Up,
    /// To it.
    Down,
}

/// What the sandboxes of this backend share.
pub(crate) struct Shared {
    limits: Limits,
    begun: Instant,
    state: Mutex<State>,
    tenants: Mutex<HashMap<Option<Name>, Weak<Tenant>>>,
    sandboxes: Mutex<HashMap<u64, Weak<Sandbox>>>,
    /// The number of the next flow: sandboxes' own may come again when their node does.
    next: AtomicU64,
}

struct State {
    pool: Pool<Option<Name>, u64>,
    waiting: HashMap<u64, oneshot::Sender<()>>,
}

impl State {
    fn admit(&mut self) {
        while let Some(ticket) = self.pool.admit() {
            if let Some(waiting) = self.waiting.remove(&ticket) {
                // Who does not hear it any more gives it back: see `Waiting`.
                let _ = waiting.send(());
            }
        }
    }
}

/// Where bytes pass, one for each way: with a bucket, or for turns alone.
struct Gates([sync::Mutex<Option<Bucket>>; 2]);

impl Gates {
    fn new(rate: Option<NonZeroU64>) -> Self {
        let bucket = rate.map(|rate| Bucket::new(rate, burst(rate)));
        Self([sync::Mutex::new(bucket.clone()), sync::Mutex::new(bucket)])
    }

    fn of(&self, way: Way) -> &sync::Mutex<Option<Bucket>> {
        &self.0[way as usize]
    }
}

struct Tenant {
    name: Option<Name>,
    gates: Gates,
}

/// One sandbox, whatever links it has.
pub(crate) struct Sandbox {
    flow: u64,
    tenant: Arc<Tenant>,
    gates: Gates,
    links: AtomicUsize,
    shared: Arc<Shared>,
}

impl Shared {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            begun: Instant::now(),
            state: Mutex::new(State {
                pool: Pool::new(limits.calls, limits.memory, limits.memory / SHARE),
                waiting: HashMap::new(),
            }),
            tenants: Mutex::default(),
            sandboxes: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    fn now(&self) -> Time {
        Time(0).after(self.begun.elapsed())
    }

    /// The sandbox of this number, or one that has none: for another link, if it may have one.
    pub(crate) fn link(self: &Arc<Self>, number: Option<u64>, tenant: Option<&Name>) -> Option<SandboxLink> {
        let mut known = self.sandboxes.lock();
        let found = number.and_then(|number| known.get(&number)?.upgrade());
        let sandbox = found.unwrap_or_else(|| {
            let made = Arc::new(Sandbox {
                flow: self.next.fetch_add(1, Relaxed),
                tenant: self.tenant(tenant),
                gates: Gates::new(self.limits.bandwidth),
                links: AtomicUsize::new(0),
                shared: self.clone(),
            });
            if let Some(number) = number {
                known.retain(|_, one| one.strong_count() > 0);
                known.insert(number, Arc::downgrade(&made));
            }
            made
        });
        drop(known);
        let links = sandbox.links.fetch_add(1, Relaxed);
        let link = SandboxLink {
            sandbox,
            is_large: links < LARGE_LINKS,
        };
        (links < MOST_LINKS).then_some(link)
    }

    fn tenant(&self, name: Option<&Name>) -> Arc<Tenant> {
        let mut known = self.tenants.lock();
        let name = name.cloned();
        if let Some(found) = known.get(&name).and_then(Weak::upgrade) {
            return found;
        }
        let made = Arc::new(Tenant {
            name: name.clone(),
            gates: Gates::new(self.limits.tenant_bandwidth),
        });
        known.retain(|_, one| one.strong_count() > 0);
        known.insert(name, Arc::downgrade(&made));
        made
    }
}

/// A sandbox as one of its links has it.
pub(crate) struct SandboxLink {
    sandbox: Arc<Sandbox>,
    is_large: bool,
}

impl SandboxLink {
    pub(crate) fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }

    /// Whether its region may be as large as the sandbox's memory. There are few of those; others have the least that does.
    pub(crate) fn is_large(&self) -> bool {
        self.is_large
    }
}

impl Drop for SandboxLink {
    fn drop(&mut self) {
        self.sandbox.links.fetch_sub(1, Relaxed);
        // It is known until its buckets are full again: another link begins where this one ends.
        let limits = &self.sandbox.shared.limits;
        let rates = [limits.bandwidth, limits.tenant_bandwidth];
        let Some(longest) = rates.into_iter().flatten().map(refill).max() else {
            return;
        };
        if let Ok(runtime) = Handle::try_current() {
            let sandbox = self.sandbox.clone();
            runtime.spawn(async move {
                sleep(longest).await;
                drop(sandbox);
            });
        }
    }
}

fn burst(rate: NonZeroU64) -> u64 {
    (rate.get() / BURST).max(LEAST_BURST)
}

/// How long an empty bucket needs.
fn refill(rate: NonZeroU64) -> Duration {
    Duration::from_millis(burst(rate).saturating_mul(1000).div_ceil(rate.get()))
}

/// What a call holds while it is under way: its place ends with it.
pub(crate) struct Place(Arc<Sandbox>);

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.0.shared.state.lock();
        state.pool.leave();
        state.admit();
    }
}

/// And memory, until nothing of it or of its reply lies there any more.
pub(crate) struct Memory {
    sandbox: Arc<Sandbox>,
    bytes: AtomicU64,
}

impl Memory {
    /// It is more than was thought: others wait the longer for it.
    pub(crate) fn grow(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        let mut state = self.sandbox.shared.state.lock();
        state.pool.grow(&self.sandbox.flow, bytes);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut state = self.sandbox.shared.state.lock();
        state.pool.give_back(&self.sandbox.flow, *self.bytes.get_mut());
        state.admit();
    }
}

/// What a call has when it may begin.
pub(crate) type Admitted = (Place, Arc<Memory>);

/// A call that waits to begin. Dropping it leaves the queue.
pub(crate) struct Waiting {
    sandbox: Arc<Sandbox>,
    ticket: u64,
    bytes: u64,
    heard: oneshot::Receiver<()>,
    is_over: bool,
}

impl Waiting {
    /// What it waits for, if that is here already.
    pub(crate) fn now(&mut self) -> Option<Admitted> {
        self.heard.try_recv().ok().map(|()| self.admitted())
    }

    /// What it waits for.
    pub(crate) async fn turn(mut self) -> Admitted {
        // The sender is dropped only when it has sent.
        let _ = (&mut self.heard).await;
        self.admitted()
    }

    fn admitted(&mut self) -> Admitted {
        self.is_over = true;
        let memory = Memory {
            sandbox: self.sandbox.clone(),
            bytes: AtomicU64::new(self.bytes),
        };
        (Place(self.sandbox.clone()), Arc::new(memory))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let Sandbox {
            flow, tenant, shared, ..
        } = &*self.sandbox;
        let mut state = shared.state.lock();
        let state = &mut *state;
        if state.pool.forget(&tenant.name, flow, self.ticket, self.bytes) {
            state.waiting.remove(&self.ticket);
        } else {
            state.pool.leave();
            state.pool.give_back(flow, self.bytes);
        }
        state.admit();
    }
}

impl Sandbox {
    /// A call that will hold so many bytes waits for its turn.
    pub(crate) fn ask(self: &Arc<Self>, bytes: u64) -> Waiting {
        let mut state = self.shared.state.lock();
        // Tenants are equal here: their weights are of cores.
        let ticket = state.pool.ask((&self.tenant.name, 1), &self.flow, bytes);
        let (tell, heard) = oneshot::channel();
        state.waiting.insert(ticket, tell);
        state.admit();
        Waiting {
            sandbox: self.clone(),
            ticket,
            bytes,
            heard,
            is_over: false,
        }
    }

    /// Waits until so many bytes may pass. Calls of a sandbox have turns, and so have sandboxes of a tenant.
    pub(crate) async fn pass(&self, way: Way, bytes: u64) {
        let limits = &self.shared.limits;
        if limits.bandwidth.is_none() && limits.tenant_bandwidth.is_none() {
            return;
        }
        let mut left = bytes;
        while left > 0 {
            let grain = min(left, GRAIN);
            // Who comes first has the lock first. Of one sandbox no more than one call is in its tenant's queue.
            let mut own = self.gates.of(way).lock().await;
            self.wait(&own, grain).await;
            let mut tenants = self.tenant.gates.of(way).lock().await;
            self.wait(&tenants, grain).await;
            let now = self.shared.now();
            for bucket in [&mut *own, &mut *tenants].into_iter().flatten() {
                bucket.take(now, grain);
            }
            left -= grain;
        }
    }

    async fn wait(&self, bucket: &Option<Bucket>, bytes: u64) {
        let Some(bucket) = bucket else {
            return;
        };
        loop {
            let wait = bucket.wait(self.shared.now(), bytes);
            if wait.is_zero() {
                return;
            }
            sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::{JoinSet, yield_now};

    fn shared(change: impl FnOnce(&mut Limits)) -> Arc<Shared> {
        let mut limits = Limits {
            bandwidth: None,
            ..Limits::default()
        };
        change(&mut limits);
        Shared::new(limits)
    }

    fn sandbox(shared: &Arc<Shared>, number: u64) -> Arc<Sandbox> {
        shared.link(Some(number), None).unwrap().sandbox().clone()
    }

    /// Bytes that have passed for each of these after so long, of sandboxes that always have more.
    async fn passed(sandboxes: &[Arc<Sandbox>], time: Duration) -> Vec<u64> {
        let counts: Vec<_> = sandboxes.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
        let mut tasks = JoinSet::new();
        for (sandbox, count) in sandboxes.iter().zip(&counts) {
            let (sandbox, count) = (sandbox.clone(), count.clone());
            tasks.spawn(async move {
                loop {
                    sandbox.pass(Way::Down, 300_000).await;
                    count.fetch_add(300_000, Relaxed);
                }
            });
        }
        sleep(time).await;
        counts.iter().map(|count| count.load(Relaxed)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_sandbox_has_its_bandwidth_each_way_whatever_calls_it_makes() {
        let shared = shared(|limits| limits.bandwidth = NonZeroU64::new(8_000_000));
        let one = sandbox(&shared, 1);
        // Its links are the same sandbox; of another it takes nothing.
        let again = sandbox(&shared, 1);
        assert!(Arc::ptr_eq(&one, &again));
        let counts = passed(
            &[one.clone(), again, sandbox(&shared, 2)],
            Duration::from_secs(10),
        )
        .await;
        let most = 80_000_000 + LEAST_BURST;
        let together = counts[0] + counts[1];
        for bytes in [together, counts[2]] {
            assert!(bytes <= most && bytes + 900_000 > 80_000_000, "{counts:?}");
        }
        assert!(
            counts[0].abs_diff(counts[1]) <= 300_000 + LEAST_BURST,
            "{counts:?}"
        );
        // The other way is open.
        let begun = Instant::now();
        one.pass(Way::Up, LEAST_BURST).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn sandboxes_share_their_tenants_bandwidth_alike() {
        let shared = shared(|limits| limits.tenant_bandwidth = NonZeroU64::new(8_000_000));
        // One makes four calls at a time.
        let (many, one) = (sandbox(&shared, 1), sandbox(&shared, 2));
        let all = [many.clone(), many.clone(), many.clone(), many, one];
        let counts = passed(&all, Duration::from_secs(10)).await;
        let many: u64 = counts[..4].iter().sum();
        assert!(many + counts[4] <= 80_000_000 + LEAST_BURST, "{counts:?}");
        assert!(
            many.abs_diff(counts[4]) <= 4 * 300_000 + LEAST_BURST,
            "{counts:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn each_tenant_has_a_bandwidth_of_its_own_whatever_sandboxes_it_has() {
        let shared = shared(|limits| limits.tenant_bandwidth = NonZeroU64::new(8_000_000));
        let (acme, rival): (Name, Name) = ("acme".parse().unwrap(), "rival".parse().unwrap());
        let of =
            |number: u64, tenant: Option<&Name>| shared.link(Some(number), tenant).unwrap().sandbox().clone();
        let all = [
            of(1, Some(&acme)),
            of(2, Some(&acme)),
            of(3, Some(&acme)),
            of(4, Some(&rival)),
            of(5, None),
        ];
        let counts = passed(&all, Duration::from_secs(10)).await;
        let its = [counts[..3].iter().sum::<u64>(), counts[3], counts[4]];
        for bytes in its {
            assert!(
                bytes <= 80_000_000 + LEAST_BURST && bytes + 900_000 > 80_000_000,
                "{counts:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_holds_up_nobody() {
        let shared = shared(|limits| limits.bandwidth = NonZeroU64::new(1_000_000));
        let sandbox = sandbox(&shared, 1);
        let its = sandbox.clone();
        let first = tokio::spawn(async move { its.pass(Way::Down, 100 << 20).await });
        sleep(Duration::from_secs(5)).await;
        first.abort();
        assert!(first.await.is_err());
        let begun = Instant::now();
        sandbox.pass(Way::Down, 65_536).await;
        assert!(
            begun.elapsed() <= Duration::from_millis(132),
            "{:?}",
            begun.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn calls_wait_for_places_and_memory_in_turn() {
        let shared = shared(|limits| (limits.calls, limits.memory) = (2, 1000));
        let (large, small) = (sandbox(&shared, 1), sandbox(&shared, 2));
        let first = large.ask(200).turn().await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for number in 0..5 {
            let (sandbox, order) = (large.clone(), order.clone());
            tasks.spawn(async move {
                let held = sandbox.ask(200).turn().await;
                order.lock().push(number);
                sleep(Duration::from_secs(1)).await;
                drop(held);
            });
        }
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(order.lock().is_empty(), "a quarter of the memory is its share");
        let its = order.clone();
        tasks.spawn(async move {
            let _held = small.ask(10).turn().await;
            its.lock().push(100);
        });
        for _ in 0..10 {
            yield_now().await;
        }
        assert_eq!(*order.lock(), [100], "another sandbox has a place");
        drop(first);
        while tasks.join_next().await.is_some() {}
        assert_eq!(*order.lock(), [100, 0, 1, 2, 3, 4]);
        assert_eq!(shared.state.lock().pool.held(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_no_more_leaves_nothing_behind() {
        let shared = shared(|limits| (limits.calls, limits.memory) = (1, 1000));
        let sandbox = sandbox(&shared, 1);
        let first = sandbox.ask(2000).turn().await;
        for _ in 0..3 {
            let its = sandbox.clone();
            let waits = tokio::spawn(async move { its.ask(10).turn().await });
            yield_now().await;
            waits.abort();
            assert!(waits.await.is_err());
        }
        // One that was let in and has not heard it yet.
        let its = sandbox.clone();
        let waits = tokio::spawn(async move { its.ask(10).turn().await });
        yield_now().await;
        drop(first);
        waits.abort();
        let _ = waits.await;
        let (place, memory) = sandbox.ask(7).turn().await;
        memory.grow(5);
        assert_eq!(shared.state.lock().pool.held(), 12);
        drop((place, memory));
        let state = shared.state.lock();
        assert_eq!(
            (state.pool.held(), state.pool.waiting(), state.waiting.len()),
            (0, 0, 0)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_link_brings_no_new_burst() {
        let shared = shared(|limits| limits.bandwidth = NonZeroU64::new(1_000_000));
        let link = || shared.link(Some(1), None).unwrap();
        let first = link();
        first.sandbox().pass(Way::Up, LEAST_BURST).await;
        drop(first);
        let begun = Instant::now();
        let second = link();
        second.sandbox().pass(Way::Up, 500_000).await;
        assert!(
            begun.elapsed() >= Duration::from_millis(500),
            "{:?}",
            begun.elapsed()
        );
        drop(second);
        // And nothing is kept for ever.
        sleep(Duration::from_secs(60)).await;
        assert!(
            shared
                .sandboxes
                .lock()
                .values()
                .all(|one| one.strong_count() == 0)
        );
    }

    #[tokio::test]
    async fn a_sandbox_has_so_many_links_and_no_more() {
        let shared = shared(|_| ());
        let links: Vec<_> = (0..MOST_LINKS)
            .map(|_| shared.link(Some(1), None).unwrap())
            .collect();
        assert!(shared.link(Some(1), None).is_none());
        let large = links.iter().filter(|link| link.is_large()).count();
        assert_eq!(large, LARGE_LINKS);
        assert!(shared.link(Some(2), None).unwrap().is_large());
        drop(links);
        assert!(shared.link(Some(1), None).is_some());
    }
}
