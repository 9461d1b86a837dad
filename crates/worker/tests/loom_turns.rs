//! Every interleaving of a core that runs a guest which would never end, others that bring the core mail, and the ticker: the
//! guest gives its core back, whenever the mail comes. loom tells a deadlock.
//!
//! The source of the bell and of the turns, with loom's atomics.

#[expect(dead_code, reason = "each model uses a part of it")]
#[path = "../src/bell.rs"]
mod bell;
#[path = "loom/signals.rs"]
mod signals;
#[path = "loom/seqcst.rs"]
mod sync;
#[path = "../src/turns.rs"]
mod turns;

use bell::{Bell, Event as _};
use loom::{
    sync::{Arc, Condvar, Mutex},
    thread,
};
use signals::{Signals, explore};
use sync::{AtomicBool, AtomicU32, Ordering};
use turns::{Nap, Turns};

/// The engine's counter of epochs, and the guest that looks at it.
struct Guest {
    epoch: Mutex<u32>,
    raised: Condvar,
}

struct Node {
    bell: Bell<Signals>,
    turns: Turns,
    nap: Nap,
    /// What the ticker waits for.
    ticker: Signals,
    ended: AtomicBool,
    guest: Guest,
    /// Pieces of work that were brought and not taken.
    mail: AtomicU32,
}

impl Node {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bell: Bell::new(Signals::new()),
            turns: Turns::new(),
            nap: Nap::new(),
            ticker: Signals::new(),
            ended: AtomicBool::new(false),
            guest: Guest {
                epoch: Mutex::new(0),
                raised: Condvar::new(),
            },
            mail: AtomicU32::new(0),
        })
    }

    fn has_mail(&self) -> bool {
        self.mail.load(Ordering::SeqCst) > 0
    }

    /// `Watch::ask`.
    fn ask(&self) {
        if self.turns.ask() {
            self.preempt();
        }
    }

    /// `Engine::preempt`.
    fn preempt(&self) {
        *self.guest.epoch.lock().expect("no panic") += 1;
        self.guest.raised.notify_one();
    }

    /// Mail, and `Shared::call`.
    fn bring(&self) {
        self.mail.fetch_add(1, Ordering::SeqCst);
        if !self.bell.ring() {
            self.ask();
        }
    }

    /// The core's loop, until so many pieces were taken. Its first turn is a guest that ends when it is asked for its core only;
    /// `long` if that is expected of it.
    fn run(&self, long: bool, pieces: u32) {
        let (mut taken, mut turn) = (0, 0);
        while taken < pieces {
            if turn == 0 {
                let seen = *self.guest.epoch.lock().expect("no panic");
                self.turns.begin(turn + 1, long);
                if self.nap.interrupt() {
                    self.ticker.signal();
                }
                if long && self.has_mail() {
                    self.ask();
                }
                self.compute(seen);
                turn += 2;
                self.turns.end(turn);
            } else {
                self.bell.expect();
                let signalled = self.bell.event().wait(!self.has_mail());
                self.bell.unexpect();
                if signalled {
                    self.bell.quiet();
                }
            }
            taken += self.mail.swap(0, Ordering::SeqCst);
        }
        self.ended.store(true, Ordering::SeqCst);
        self.ticker.signal();
    }

    /// The guest: looks whether it was asked whenever the epoch has changed.
    fn compute(&self, mut seen: u32) {
        let mut epoch = self.guest.epoch.lock().expect("no panic");
        loop {
            if *epoch != seen {
                seen = *epoch;
                if self.turns.asked().load(Ordering::Relaxed) {
                    return;
                }
            }
            epoch = self.guest.raised.wait(epoch).expect("no panic");
        }
    }

    /// The ticker: sleeps until a guest runs, and finds that it takes long.
    fn tick(&self) {
        self.nap.begin();
        if self.turns.now() == 0 {
            while self.nap.goes_on() && !self.ended.load(Ordering::SeqCst) {
                self.ticker.wait(true);
                self.ticker.clear();
            }
        }
        self.nap.end();
        if self.turns.now() % 2 == 1 {
            self.preempt();
            if self.turns.found_long() && self.has_mail() {
                self.ask();
            }
        }
    }
}

#[test]
fn a_guest_that_takes_long_gives_its_core_back() {
    explore(Some(3), || {
        let node = Node::new();
        let its = node.clone();
        let other = thread::spawn(move || its.bring());
        node.run(true, 1);
        other.join().expect("it does not panic");
    });
}

#[test]
fn two_who_bring_mail_are_both_heard() {
    explore(Some(2), || {
        let node = Node::new();
        let others = [(); 2].map(|()| {
            let its = node.clone();
            thread::spawn(move || its.bring())
        });
        node.run(true, 2);
        for other in others {
            other.join().expect("it does not panic");
        }
    });
}

/// Of whom nobody knew it: the ticker, which slept, finds out, before the mail comes or after.
#[test]
fn a_guest_that_is_found_to_take_long_gives_its_core_back() {
    explore(Some(2), || {
        let node = Node::new();
        let (its, ticks) = (node.clone(), node.clone());
        let other = thread::spawn(move || its.bring());
        let ticker = thread::spawn(move || ticks.tick());
        node.run(false, 1);
        other.join().expect("it does not panic");
        ticker.join().expect("it does not panic");
    });
}
