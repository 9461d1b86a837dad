//! The one ticker: a thread that makes engines preempt guests, and sleeps when no guest runs.
//!
//! A timer for each run would cost 0.6 µs of every request to stop the one in a million that needs it. Instead each core
//! writes into its seat when its guest began and when its quantum ends, and now and then the ticker looks. A guest whose quantum is over
//! is worth an interruption; one that it finds to take long has it look again when that one's quantum ends. While all guests are short
//! it looks once in [`REST`], and the callback of none ever runs.
//!
//! A core cannot see what arrives while a guest holds it, and the next look is far away for work that takes a tenth of one. So a core
//! whose guest is known to take long, or was found to by a look, is *watched*: the ticker waits at the core's own epoll instance,
//! and when that has an event it asks the guest for its core. An arrival costs a wake-up of the ticker then, as long as nobody
//! is watched arrivals cost nothing. A core that was asked is not watched again for [`PAUSE`], or a flood of arrivals would leave
//! the guest no time; and where nothing of what arrived was more urgent than the guest, for twice as long as before, up to
//! [`LONGEST_PAUSE`]. The ticker wakes for the end of a pause; that of a longer one waits for a look, for which it wakes
//! anyhow, if the guest runs for a tick at most.

use crate::{
    Shared,
    poller::Eventfd,
    turns::{Nap, Turns},
};
use contract::{CoreId, Engine};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    fd::OwnedFd,
    io,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The thread. Dropping it ends it.
pub struct Ticker {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What cores and the ticker know of each other's doings.
pub(crate) struct Watch {
    engines: Vec<Arc<dyn Engine>>,
    epoll: OwnedFd,
    /// Wakes the ticker.
    bell: Eventfd,
    nap: Nap,
    ended: AtomicBool,
    began: Instant,
}

/// A core, as the ticker sees it.
pub(crate) struct Guarded {
    pub(crate) turns: Turns,
    /// When the guest began, and when its quantum ends, in nanoseconds since the ticker began. The core writes them before it says
    /// that a turn begins; read later they may be those of a turn after it.
    began: AtomicU64,
    ends: AtomicU64,
    /// The guest is expected to run for longer than [`Ticker::TICK`].
    lasts: AtomicBool,
    /// Before this time the core is not watched again, in nanoseconds since the ticker began.
    paused: AtomicU64,
    /// How long the next pause is, in nanoseconds.
    pause: AtomicU64,
    /// The core's epoll instance.
    events: std::sync::OnceLock<Arc<OwnedFd>>,
}

impl Guarded {
    pub(crate) fn new() -> Self {
        Self {
            turns: Turns::new(),
            began: AtomicU64::new(0),
            ends: AtomicU64::new(0),
            lasts: AtomicBool::new(false),
            paused: AtomicU64::new(0),
            pause: AtomicU64::new(PAUSE),
            events: std::sync::OnceLock::new(),
        }
    }

    /// A guest begins that is expected to take `left` yet. Says whether that is long.
    fn begin(&self, turn: u64, left: Duration, now: u64, until: u64) -> bool {
        let long = left > LONG;
        self.began.store(now, Ordering::Relaxed);
        self.ends.store(until, Ordering::Relaxed);
        self.lasts.store(left > Ticker::TICK, Ordering::Relaxed);
        self.turns.begin(turn, long);
        long
    }

    fn ran(&self, now: u64) -> Duration {
        Duration::from_nanos(now.saturating_sub(self.began.load(Ordering::Relaxed)))
    }

    /// What is left of the quantum of a guest that runs and takes long. None if there is no such guest.
    fn left(&self, now: u64) -> Option<Duration> {
        if self.turns.now().is_multiple_of(2) {
            return None;
        }
        let left = self.ends.load(Ordering::Relaxed).saturating_sub(now);
        (self.ran(now) > LONG).then_some(Duration::from_nanos(left))
    }

    fn is_paused(&self, now: u64) -> bool {
        match self.paused.load(Ordering::Relaxed) {
            0 => false,
            _ if self.has_loose_pause(now) => true,
            until => now < until,
        }
    }

    /// A long pause is over when the ticker looks, and not before, if the guest will have ended soon: then the core looks for
    /// itself what has arrived.
    fn has_loose_pause(&self, now: u64) -> bool {
        self.pause.load(Ordering::Relaxed) > SHORT_PAUSE
            && !self.lasts.load(Ordering::Relaxed)
            && self.ran(now) <= Ticker::TICK
    }

    /// The guest that was asked for its core has given it back. `in_vain`: it is also the next to run.
    pub(crate) fn given_back(&self, in_vain: bool) {
        let pause = if in_vain {
            (self.pause.load(Ordering::Relaxed) * 2).min(LONGEST_PAUSE)
        } else {
            PAUSE
        };
        self.pause.store(pause, Ordering::Relaxed);
    }
}

/// The bell's token.
const BELL: u64 = u64::MAX;

/// Looks in a row that saw no guest before the ticker sleeps.
const PATIENCE: u32 = 8;

/// The longest time between two looks, and how long a guest may run before it is found out that it takes long. A little longer than a
/// quantum by default: one that begins because the last was interrupted at a look is over at the next.
const REST: Duration = Duration::from_micros(5250);

/// How long a guest is left alone after it was asked for its core, in nanoseconds, if that was good for something;
const PAUSE: u64 = 250_000;
/// and at most, if it was not.
const LONGEST_PAUSE: u64 = 2_000_000;
/// Pauses that may be longer end at a look if the guest is short.
const SHORT_PAUSE: u64 = 500_000;

/// Guests that are expected to take longer are watched from the beginning, and nobody waits for their turn's end.
pub(crate) const LONG: Duration = Duration::from_micros(150);

impl Watch {
    pub(crate) fn new(engines: Vec<Arc<dyn Engine>>) -> std::io::Result<Self> {
        let (epoll, bell) = (epoll::create(epoll::CreateFlags::CLOEXEC)?, Eventfd::new()?);
        epoll::add(
            &epoll,
            &bell.0,
            epoll::EventData::new_u64(BELL),
            epoll::EventFlags::IN,
        )?;
        Ok(Self {
            engines,
            epoll,
            bell,
            nap: Nap::new(),
            ended: AtomicBool::new(false),
            began: Instant::now(),
        })
    }

    /// This thread is this core's.
    pub(crate) fn seat(&self, core: CoreId) -> std::io::Result<()> {
        self.engines.iter().try_for_each(|engine| engine.seat(core))
    }

    /// From now on this core can be watched.
    pub(crate) fn add(&self, core: CoreId, guarded: &Guarded, events: &Arc<OwnedFd>) -> std::io::Result<()> {
        let flags = epoll::EventFlags::ONESHOT;
        epoll::add(
            &self.epoll,
            &**events,
            epoll::EventData::new_u64(core.0.into()),
            flags,
        )?;
        // A core is seated once.
        let _ = guarded.events.set(events.clone());
        Ok(())
    }

    /// A guest is about to run on a core for a quantum from `now` on, expected to take `left` yet: zero if that is not known. Says whether that is
    /// long; then mail that has come before is for the core to look for.
    pub(crate) fn begin(
        &self,
        core: CoreId,
        guarded: &Guarded,
        turn: u64,
        left: Duration,
        (now, quantum): (Instant, Duration),
    ) -> bool {
        let now = self.nanos(now);
        let long = guarded.begin(turn, left, now, now.saturating_add(nanos(quantum)));
        if self.nap.interrupt() {
            self.wake();
        }
        if long && !guarded.is_paused(now) {
            self.arm(core, guarded);
        }
        long
    }

    /// Has a guest that takes long give its core back, if there is one: there may be something more urgent.
    pub(crate) fn ask(&self, core: CoreId, guarded: &Guarded) {
        if guarded.turns.ask() {
            self.preempt(core);
        }
    }

    fn preempt(&self, core: CoreId) {
        self.engines.iter().for_each(|engine| engine.preempt(core));
    }

    /// The next event of the core wakes the ticker.
    fn arm(&self, core: CoreId, guarded: &Guarded) {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        if let Some(events) = guarded.events.get() {
            // It cannot fail: the descriptor was added and is open as long as the seat is.
            let _ = epoll::modify(
                &self.epoll,
                &**events,
                epoll::EventData::new_u64(core.0.into()),
                flags,
            );
        }
    }

    /// Nanoseconds since the ticker began.
    fn nanos(&self, time: Instant) -> u64 {
        nanos(time.saturating_duration_since(self.began))
    }

    fn wake(&self) {
        crate::bell::Event::signal(&self.bell);
    }

    /// Waits for events, and gives the tokens of whoever has some.
    fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Option<Duration>) {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        events.clear();
        // Interrupted is as good as early.
        let _: io::Result<usize> = epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref());
        if events.iter().any(|event| event.data.u64() == BELL) {
            crate::bell::Event::clear(&self.bell);
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Ticker {
    /// The shortest time between two looks.
    pub const TICK: Duration = Duration::from_millis(2);

    pub(crate) fn start(shared: Arc<Shared>) -> std::io::Result<Self> {
        let its = shared.clone();
        let thread = thread::Builder::new()
            .name("ticker".into())
            .spawn(move || tick(&its))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }
}

fn tick(shared: &Shared) {
    // A kernel that refuses makes ticks later, and no more.
    let _ = priority::wake_at_once();
    let watch = shared.watch();
    let mut seen = vec![0u64; shared.cores()];
    let mut events = Vec::with_capacity(shared.cores() + 1);
    let (mut quiet, mut look) = (0, Instant::now());
    while !watch.ended.load(Ordering::SeqCst) {
        let now = Instant::now();
        if now >= look {
            let found = look_around(shared, watch.nanos(now), &mut seen);
            look = now + found.due.unwrap_or(REST).clamp(Ticker::TICK, REST);
            quiet = if found.any { 0 } else { quiet + 1 };
            if quiet >= PATIENCE {
                sleep(shared, &seen, &mut events);
                quiet = 0;
                continue;
            }
        }
        let next = resume(shared, now).map_or(look, |pause| pause.min(look));
        watch.wait(&mut events, Some(next.saturating_duration_since(now)));
        heed(shared, &events);
    }
}

/// Watches cores again whose pause is over; says when the next short one is.
fn resume(shared: &Shared, now: Instant) -> Option<Instant> {
    let watch = shared.watch();
    let mut next = None;
    for (core, seat) in (0u16..).zip(shared.seats()) {
        let guarded = &seat.guarded;
        let paused = guarded.paused.load(Ordering::Relaxed);
        let until = watch.began + Duration::from_nanos(paused);
        if paused == 0 {
            continue;
        }
        if until > now {
            if !guarded.has_loose_pause(watch.nanos(now)) {
                next = Some(next.map_or(until, |next: Instant| next.min(until)));
            }
            continue;
        }
        guarded.paused.store(0, Ordering::Relaxed);
        if guarded.turns.is_long() {
            watch.arm(CoreId(core), guarded);
        }
    }
    next
}

/// Asks the guests of cores for which something has arrived.
fn heed(shared: &Shared, events: &[epoll::Event]) {
    let watch = shared.watch();
    for event in events {
        let core = u16::try_from(event.data.u64()).map(CoreId).ok();
        if let Some((core, seat)) = core.and_then(|core| Some((core, shared.seat(core)?))) {
            let pause = seat.guarded.pause.load(Ordering::Relaxed);
            let now = watch.nanos(Instant::now());
            seat.guarded.paused.store(now + pause, Ordering::Relaxed);
            watch.ask(core, &seat.guarded);
        }
    }
}

/// What a look at all cores has found.
struct Found {
    /// One has run a guest since the last look.
    any: bool,
    /// After so long the quantum of the first of the guests ends that take long; it may have ended.
    due: Option<Duration>,
}

fn look_around(shared: &Shared, now: u64, seen: &mut [u64]) -> Found {
    let watch = shared.watch();
    let mut found = Found {
        any: false,
        due: None,
    };
    for (core, (seat, seen)) in (0u16..).zip(shared.seats().iter().zip(seen)) {
        let guarded = &seat.guarded;
        let turn = guarded.turns.now();
        // A core that never stops running short guests is busy, not stuck.
        found.any |= turn != *seen || turn % 2 == 1;
        *seen = turn;
        let Some(left) = guarded.left(now) else { continue };
        // It may be where it cannot be preempted, and not hear of it; then it is told again.
        let over = left.is_zero() || guarded.turns.asked().load(Ordering::Relaxed);
        if over {
            watch.preempt(CoreId(core));
        }
        let left = if over { Duration::ZERO } else { left };
        found.due = Some(found.due.map_or(left, |due| due.min(left)));
        if guarded.turns.found_long() {
            watch.arm(CoreId(core), guarded);
            // Whoever brought it found a guest that was not known to take long.
            if seat.has_mail() {
                watch.ask(CoreId(core), guarded);
            }
        }
        if !seat.stealer.is_empty() {
            seat.offer.make();
            shared.wake_idle(CoreId(core));
        }
    }
    found
}

/// Until a guest runs.
fn sleep(shared: &Shared, seen: &[u64], events: &mut Vec<epoll::Event>) {
    let watch = shared.watch();
    watch.nap.begin();
    // Whoever began before that store is seen here; whoever begins after it sees us asleep.
    let begun = shared
        .seats()
        .iter()
        .zip(seen)
        .any(|(seat, seen)| seat.guarded.turns.now() != *seen);
    if !begun {
        while watch.nap.goes_on() && !watch.ended.load(Ordering::SeqCst) {
            watch.wait(events, None);
            heed(shared, events);
        }
    }
    watch.nap.end();
}

impl Drop for Ticker {
    fn drop(&mut self) {
        let watch = self.shared.watch();
        watch.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            watch.wake();
            // It panics only if an engine's `preempt` does; there is nothing left to do about it here.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_was_asked_in_vain_is_left_alone_for_longer() {
        let guarded = Guarded::new();
        let pause = || guarded.pause.load(Ordering::Relaxed);
        assert_eq!(pause(), PAUSE);
        let pauses: Vec<_> = (0..5)
            .map(|_| {
                guarded.given_back(true);
                pause() / PAUSE
            })
            .collect();
        assert_eq!(pauses, [2, 4, 8, 8, 8]);
        guarded.given_back(false);
        assert_eq!(pause(), PAUSE);
    }

    #[test]
    fn a_guest_that_takes_long_is_seen_until_its_quantum_is_over() {
        let (guarded, millis) = (Guarded::new(), |millis| nanos(Duration::from_millis(millis)));
        assert_eq!(guarded.left(millis(1)), None, "no guest runs");
        guarded.begin(1, Duration::ZERO, millis(10), millis(15));
        // The ticker may have looked at the clock before the core did.
        assert_eq!(guarded.left(millis(9)), None);
        assert_eq!(guarded.left(millis(10)), None);
        assert_eq!(guarded.left(millis(11)), Some(Duration::from_millis(4)));
        assert_eq!(guarded.left(millis(15)), Some(Duration::ZERO));
        assert_eq!(guarded.left(millis(30)), Some(Duration::ZERO));
        guarded.turns.end(2);
        assert_eq!(guarded.left(millis(30)), None, "it runs no more");
    }

    #[test]
    fn a_long_pause_is_over_in_time_for_whoever_waits_for_a_guest_that_lasts() {
        let (guarded, millis) = (Guarded::new(), |millis| nanos(Duration::from_millis(millis)));
        let (short, lasting) = (Duration::from_millis(1), Duration::from_millis(50));
        guarded.paused.store(millis(12), Ordering::Relaxed);
        guarded.begin(1, short, millis(10), millis(15));
        assert!(guarded.is_paused(millis(11)));
        assert!(!guarded.is_paused(millis(12)), "a short pause");
        (0..4).for_each(|_| guarded.given_back(true));
        assert!(guarded.is_paused(millis(12)), "until the ticker looks");
        assert!(
            !guarded.is_paused(millis(13)),
            "it was thought to be short, and has run for longer"
        );
        guarded.begin(3, lasting, millis(10), millis(15));
        assert!(guarded.is_paused(millis(11)));
        assert!(!guarded.is_paused(millis(12)));
    }
}
