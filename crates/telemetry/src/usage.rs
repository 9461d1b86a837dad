//! What one version of a function uses, as it is recorded on the path of its requests.
//!
//! A [`Recorder`] has two parts, for two questions:
//!
//! | part | asked | answers |
//! |---|---|---|
//! | [`Estimate`] | for each request, by the scheduler | how long will it take? Moving averages that follow the last few requests. |
//! | [`Counts`] | now and then, by the registry | what has it used since the version was made? Counts by magnitude, from which the registry makes a history that it decays and keeps. |
//!
//! Recording a request costs some tens of nanoseconds and no lock. Each core counts in a block of its own, made when the core
//! first has a request of the version: **one writer for each core**, as in [`crate::metrics`]. The averages are all cores': an
//! update may get lost between two, and the next makes up for it. What two cores write is a miss in both their caches; so a core that
//! has many requests of a version changes what all share with one of eight.

use crate::metrics::{Sample, Start, nanos};
use contract::CoreId;
use crossbeam_utils::CachePadded;
use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// What is counted of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    /// Time on a core, its sandbox's making included, in [ticks](TICK).
    Run,
    /// Time in which it waited for something, in ticks.
    Waits,
    /// The sandbox's largest memory, in bytes.
    Memory,
    /// The request's body, in bytes.
    Received,
    /// The response's body, in bytes.
    Sent,
    /// Between one arrival and the next, in ticks. Counts requests that were refused, too.
    Gap,
}

impl Series {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::Run,
        Self::Waits,
        Self::Memory,
        Self::Received,
        Self::Sent,
        Self::Gap,
    ];
}

/// The unit in which times are counted: 128 ns.
pub const TICK: Duration = Duration::from_nanos(1 << TICK_BITS);
const TICK_BITS: u32 = 7;

/// A duration in ticks.
fn ticks(duration: Duration) -> u64 {
    nanos(duration) >> TICK_BITS
}

/// Values are told apart by their bit length and the two bits after the first: each bucket is at most a quarter wider than
/// its least value.
pub const BUCKETS: usize = 140;

/// The bucket of a value; the last takes what is larger than all.
fn bucket(value: u64) -> usize {
    if value < 4 {
        return value as usize;
    }
    let exponent = u64::BITS - 1 - value.leading_zeros();
    let fine = (value >> (exponent - 2)) & 3;
    (exponent as usize * 4 - 4 + fine as usize).min(BUCKETS - 1)
}

/// The largest value of a bucket; the last has the same width as it would have without what is beyond.
#[must_use]
pub fn bound(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let bucket = bucket.min(BUCKETS - 1);
    let (exponent, fine) = (bucket / 4 + 1, bucket as u64 % 4);
    ((5 + fine) << (exponent - 2)) - 1
}

/// How long a request is expected to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// On a core.
    pub run: Duration,
    /// Waiting for what it asked for.
    pub waits: Duration,
    /// Altogether, from its begin until its answer is written. Queueing is no part of it.
    pub service: Duration,
    /// By how much that differs from request to request: the mean of what it was off.
    pub deviation: Duration,
}

impl Estimate {
    /// How much longer than `run` and `waits` one takes that is slower than nearly all: four mean deviations, as TCP takes
    /// for its retransmissions (Jacobson 1988; RFC 6298).
    #[must_use]
    pub fn spread(&self) -> Duration {
        let more = self.service.saturating_sub(self.run + self.waits);
        more + self.deviation * 4
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.run.is_zero()
    }
}

/// A version's averages: nanoseconds.
#[derive(Debug, Default)]
struct Averages {
    run: AtomicU64,
    waits: AtomicU64,
    service: AtomicU64,
    deviation: AtomicU64,
}

impl Averages {
    fn learn(&self, run: u64, waits: u64, service: u64) {
        let run = run.max(1);
        let before = self.run.load(Relaxed);
        if before == 0 {
            self.run.store(run, Relaxed);
            self.waits.store(waits, Relaxed);
            self.service.store(service, Relaxed);
            self.deviation.store(service / 2, Relaxed);
            return;
        }
        let follow = |average: &AtomicU64, value: u64, shift: u32| {
            let before = average.load(Relaxed);
            average.store(before - (before >> shift) + (value >> shift), Relaxed);
            before
        };
        follow(&self.run, run, 3);
        follow(&self.waits, waits, 3);
        let expected = follow(&self.service, service, 3);
        follow(&self.deviation, expected.abs_diff(service), 2);
    }

    fn set(&self, estimate: Estimate) {
        self.run.store(nanos(estimate.run), Relaxed);
        self.waits.store(nanos(estimate.waits), Relaxed);
        self.service.store(nanos(estimate.service), Relaxed);
        self.deviation.store(nanos(estimate.deviation), Relaxed);
    }

    fn get(&self) -> Estimate {
        let read = |average: &AtomicU64| Duration::from_nanos(average.load(Relaxed));
        Estimate {
            run: read(&self.run),
            waits: read(&self.waits),
            service: read(&self.service),
            deviation: read(&self.deviation),
        }
    }
}

/// Counts of one series on one core. Wraps around: readers look at differences.
struct Cells {
    sum: AtomicU64,
    buckets: [AtomicU32; BUCKETS],
}

impl Cells {
    fn count(&self, value: u64) {
        self.sum
            .store(self.sum.load(Relaxed).wrapping_add(value), Relaxed);
        if let Some(cell) = self.buckets.get(bucket(value)) {
            cell.store(cell.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}

/// One core's counts.
#[repr(align(128))]
struct Shard {
    /// Changes whenever anything does.
    events: AtomicU64,
    /// Of this core's last arrival: nanoseconds since the epoch.
    arrived: AtomicU64,
    /// Requests of this core that have ended.
    ended: AtomicU32,
    /// Its last two arrivals were not further apart than [`OFTEN`].
    often: AtomicBool,
    series: [Cells; Series::ALL.len()],
}

/// A core that has requests of a version more often than this
const OFTEN: u64 = 1_000_000;
/// teaches the averages by one of so many,
const TAUGHT: u64 = 8;
/// once it has taught them by so many.
const FIRST: u32 = 64;

impl Shard {
    fn new() -> Box<Self> {
        Box::new(Self {
            events: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            ended: AtomicU32::new(0),
            often: AtomicBool::new(false),
            series: std::array::from_fn(|_| Cells {
                sum: AtomicU64::new(0),
                buckets: std::array::from_fn(|_| AtomicU32::new(0)),
            }),
        })
    }

    fn count(&self, series: Series, value: u64) {
        if let Some(cells) = self.series.get(series as usize) {
            cells.count(value);
        }
    }

    fn note(&self) {
        self.events
            .store(self.events.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// A request was read then.
    fn arrived(&self, now: u64) {
        let gap = now.saturating_sub(self.arrived.load(Relaxed));
        self.arrived.store(now, Relaxed);
        self.often.store(gap <= OFTEN, Relaxed);
    }

    /// Whether the averages are to learn from the request that has ended now. Not from every eighth: a client whose every eighth request
    /// is another would have them follow that alone.
    fn teaches(&self) -> bool {
        let ended = self.ended.load(Relaxed).wrapping_add(1);
        self.ended.store(ended, Relaxed);
        // Multiples of the golden ratio (Knuth's hashing by multiplication): spread evenly, and no client has their rhythm.
        let lot = u64::from(ended).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        !self.often.load(Relaxed) || ended <= FIRST || lot <= u64::MAX / TAUGHT
    }
}

/// What one version of a function uses. See the module's introduction.
pub struct Recorder {
    epoch: Instant,
    averages: CachePadded<Averages>,
    /// Of the last arrival: nanoseconds since the epoch; 0 before the first.
    arrived: CachePadded<AtomicU64>,
    shards: Box<[OnceLock<Box<Shard>>]>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("estimate", &self.estimate())
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Of a version of which nothing is known, on a node of this many cores.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        Self {
            epoch: Instant::now(),
            averages: CachePadded::default(),
            arrived: CachePadded::default(),
            shards: (0..cores).map(|_| OnceLock::new()).collect(),
        }
    }

    fn shard(&self, core: CoreId) -> Option<&Shard> {
        let shard = self.shards.get(usize::from(core.0))?;
        Some(shard.get_or_init(Shard::new))
    }

    /// A request has come, and was read then. Only the thread of `core` may call this.
    pub fn arrived(&self, core: CoreId, now: Instant) {
        let now = nanos(now.saturating_duration_since(self.epoch)).max(1);
        // Of those that were read together, the first alone changes it.
        let mut before = self.arrived.load(Relaxed);
        if before < now {
            before = self.arrived.swap(now, Relaxed);
        }
        let Some(shard) = self.shard(core) else { return };
        shard.arrived(now);
        if before != 0 {
            shard.count(Series::Gap, now.saturating_sub(before) >> TICK_BITS);
            shard.note();
        }
    }

    /// A request has ended that had a sandbox. Only the thread of `core` may call this.
    pub fn record(&self, core: CoreId, sample: &Sample) {
        if sample.start == Start::None {
            return;
        }
        let inside = sample.boot + sample.run;
        let waits = inside.saturating_sub(sample.cpu);
        let shard = self.shard(core);
        if shard.is_none_or(Shard::teaches) {
            let service = nanos(inside + sample.write);
            self.averages.learn(nanos(sample.cpu), nanos(waits), service);
        }
        if let Some(shard) = shard {
            shard.count(Series::Run, ticks(sample.cpu));
            shard.count(Series::Waits, ticks(waits));
            shard.count(Series::Memory, sample.memory_bytes);
            shard.count(Series::Received, sample.request_bytes);
            shard.count(Series::Sent, sample.response_bytes);
            shard.note();
        }
    }

    /// What the next request is expected to take.
    pub fn estimate(&self) -> Estimate {
        self.averages.get()
    }

    /// What is expected until there is more to go by: what was known of it before a restart, or of its predecessor.
    pub fn expect(&self, estimate: Estimate) {
        self.averages.set(estimate);
    }

    /// A number that differs from an earlier one if anything was recorded since.
    pub fn events(&self) -> u64 {
        let shards = self.shards.iter().filter_map(OnceLock::get);
        shards.fold(0, |sum, shard| sum.wrapping_add(shard.events.load(Relaxed)))
    }

    /// All cores' counts.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            for (into, from) in counts.series.iter_mut().zip(&shard.series) {
                into.sum = into.sum.wrapping_add(from.sum.load(Relaxed));
                for (into, from) in into.buckets.iter_mut().zip(&from.buckets) {
                    *into = into.wrapping_add(from.load(Relaxed));
                }
            }
        }
        counts
    }
}

/// What was counted up to some time; or between two, by [`Counts::since`].
#[derive(Clone, Debug, Default)]
pub struct Counts {
    series: [Count; Series::ALL.len()],
}

/// Of one series.
#[derive(Clone, Debug)]
pub struct Count {
    /// Of all values.
    pub sum: u64,
    /// How many values each bucket has: see [`bound`].
    pub buckets: [u32; BUCKETS],
}

impl Default for Count {
    fn default() -> Self {
        Self {
            sum: 0,
            buckets: [0; BUCKETS],
        }
    }
}

impl Counts {
    /// What was counted after `earlier` was read.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.clone();
        for (count, earlier) in counts.series.iter_mut().zip(&earlier.series) {
            count.sum = count.sum.wrapping_sub(earlier.sum);
            for (bucket, earlier) in count.buckets.iter_mut().zip(&earlier.buckets) {
                *bucket = bucket.wrapping_sub(*earlier);
            }
        }
        counts
    }

    /// Of one series.
    pub fn of(&self, series: Series) -> &Count {
        &self.series[series as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Outcome;
    use proptest::prelude::*;

    const CORE: CoreId = CoreId(0);

    fn sample(run: Duration, waits: Duration) -> Sample {
        Sample {
            queue: Duration::from_secs(9),
            boot: Duration::ZERO,
            run: run + waits,
            write: Duration::ZERO,
            cpu: run,
            outcome: Outcome::Ok,
            start: Start::Sandbox,
            request_bytes: 10,
            response_bytes: 20,
            memory_bytes: 65536,
        }
    }

    proptest! {
        #[test]
        fn a_bucket_has_its_values(shift in 0u32..64, value: u64) {
            let value = value >> shift;
            let bucket = bucket(value);
            prop_assert!(value <= bound(bucket) || bucket == BUCKETS - 1);
            if bucket > 0 {
                prop_assert!(value > bound(bucket - 1));
                prop_assert!(bound(bucket) <= bound(bucket - 1) + bound(bucket - 1) / 4 + 1);
            }
        }
    }

    #[test]
    fn what_is_recorded_is_counted_once_on_whichever_core() {
        let recorder = Recorder::new(2);
        let before = recorder.counts();
        let (run, waits) = (Duration::from_millis(1), Duration::from_millis(3));
        recorder.record(CORE, &sample(run, waits));
        let events = recorder.events();
        recorder.record(CoreId(1), &sample(run, waits));
        assert_ne!(recorder.events(), events);
        // A core that it was not told of is not counted, and harms nothing.
        recorder.record(CoreId(7), &sample(run, waits));
        let counts = recorder.counts().since(&before);
        let count = |series| counts.of(series).buckets.iter().sum::<u32>();
        assert_eq!(Series::ALL.map(count), [2, 2, 2, 2, 2, 0]);
        assert_eq!(counts.of(Series::Memory).sum, 2 * 65536);
        assert_eq!(counts.of(Series::Run).sum, 2 * ticks(run));
        assert_eq!(recorder.counts().since(&recorder.counts()).of(Series::Run).sum, 0);
    }

    #[test]
    fn the_estimate_follows_and_knows_how_sure_it_is() {
        let recorder = Recorder::new(1);
        assert!(recorder.estimate().is_empty());
        let millis = Duration::from_millis;
        recorder.record(CORE, &sample(millis(8), millis(80)));
        let first = recorder.estimate();
        assert_eq!((first.run, first.waits), (millis(8), millis(80)));
        assert!(first.spread() >= millis(88), "one request says little");
        for _ in 0..100 {
            recorder.record(CORE, &sample(millis(2), millis(20)));
        }
        let later = recorder.estimate();
        assert!(
            later.run.abs_diff(millis(2)) < Duration::from_micros(10),
            "{later:?}"
        );
        assert!(
            later.waits.abs_diff(millis(20)) < Duration::from_micros(100),
            "{later:?}"
        );
        assert!(later.spread() < millis(1), "{later:?}");
        // Who never had a sandbox says nothing of those that have.
        let refused = Sample {
            start: Start::None,
            ..sample(Duration::ZERO, Duration::ZERO)
        };
        recorder.record(CORE, &refused);
        assert_eq!(recorder.estimate(), later);
        let successor = Recorder::new(1);
        successor.expect(later);
        assert_eq!(successor.estimate(), later);
    }

    #[test]
    fn of_many_requests_a_few_teach_and_each_counts() {
        let recorder = Recorder::new(2);
        let (short, long) = (Duration::from_micros(100), Duration::from_micros(900));
        let now = Instant::now();
        let request = |core, run| {
            recorder.arrived(core, now);
            recorder.record(core, &sample(run, Duration::ZERO));
        };
        let mut changes = 0;
        for _ in 0..FIRST {
            request(CORE, short);
        }
        assert!(recorder.estimate().run.abs_diff(short) < Duration::from_nanos(100));
        for n in 0..8_000 {
            // Every eighth is a long one.
            let before = recorder.estimate();
            request(CORE, if n % 8 == 0 { long } else { short });
            changes += u32::from(recorder.estimate() != before);
        }
        assert!((900..1_100).contains(&changes), "{changes}");
        // Averaged over many looks, it is what all of them take and not what every eighth does.
        let mut sum = Duration::ZERO;
        for n in 0..8_000 {
            request(CORE, if n % 8 == 0 { long } else { short });
            sum += recorder.estimate().run;
        }
        let mean = sum / 8_000;
        assert!(
            mean.abs_diff(Duration::from_micros(200)) < Duration::from_micros(40),
            "{mean:?}"
        );
        // Another core that has few is heard each time.
        let before = recorder.estimate();
        recorder.record(CoreId(1), &sample(long * 2, Duration::ZERO));
        assert_ne!(recorder.estimate(), before);
        let runs = recorder.counts().of(Series::Run).buckets.iter().sum::<u32>();
        assert_eq!(runs, FIRST + 16_001);
        // Read at the same time, or earlier than what another core has read: nothing lies between.
        assert_eq!(recorder.counts().of(Series::Gap).sum, 0);
    }

    #[test]
    fn arrivals_are_counted_by_what_lies_between_them() {
        let recorder = Recorder::new(1);
        let mut now = Instant::now();
        for _ in 0..11 {
            recorder.arrived(CORE, now);
            now += Duration::from_millis(5);
        }
        let gaps = recorder.counts();
        let gaps = gaps.of(Series::Gap);
        assert_eq!(gaps.buckets.iter().sum::<u32>(), 10);
        assert!(gaps.sum.abs_diff(10 * ticks(Duration::from_millis(5))) <= 10);
    }
}
