//! Every interleaving of a core that offers what it does not come to and another that is about to sleep: the other takes it. loom
//! tells a deadlock.
//!
//! The source of the bell and of the offer, with loom's atomics.

#[expect(dead_code, reason = "each model uses a part of it")]
#[path = "../src/bell.rs"]
mod bell;
#[expect(dead_code, reason = "each model uses a part of it")]
#[path = "../src/offer.rs"]
mod offer;
#[path = "loom/signals.rs"]
mod signals;
#[path = "loom/seqcst.rs"]
mod sync;

use bell::Bell;
use loom::{sync::Arc, thread};
use offer::Offer;
use signals::{Signals, explore};
use sync::{AtomicU32, Ordering};

/// A core that has work, and one that has none.
struct Cores {
    offer: Offer,
    /// Requests in the owner's deque, changed by exchange as its indices are.
    deque: AtomicU32,
    idle: Bell<Signals>,
}

impl Cores {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            offer: Offer::new(),
            deque: AtomicU32::new(0),
            idle: Bell::new(Signals::new()),
        })
    }

    /// `Queues::offer`.
    fn offer(&self) {
        self.deque.fetch_add(1, Ordering::AcqRel);
        self.offer.make();
        if self.idle.is_waiting() {
            self.idle.ring();
        }
    }

    fn is_empty(&self) -> bool {
        self.deque.load(Ordering::SeqCst) == 0
    }

    /// `Shared::steal`: all that there is.
    fn steal(&self) -> u32 {
        let mut stolen = 0;
        while self.offer.stands() {
            match self.deque.swap(0, Ordering::AcqRel) {
                0 => self.offer.found_empty(|| self.is_empty()),
                some => stolen += some,
            }
        }
        stolen
    }

    /// The idle core's loop, until it has stolen so many. The owner is busy for ever.
    fn help(&self, requests: u32) {
        let mut stolen = 0;
        loop {
            stolen += self.steal();
            if stolen == requests {
                return;
            }
            self.idle.expect();
            let nothing = !self.offer.stands() || self.is_empty();
            let signalled = self.idle.event().wait(nothing);
            self.idle.unexpect();
            if signalled {
                self.idle.quiet();
            }
        }
    }
}

#[test]
fn what_is_offered_is_taken() {
    explore(None, || {
        let cores = Cores::new();
        let its = cores.clone();
        let owner = thread::spawn(move || its.offer());
        cores.help(1);
        owner.join().expect("it does not panic");
    });
}

/// The second comes when the thief has taken the first and finds that there is no more.
#[test]
fn an_offer_that_is_made_again_is_taken_again() {
    explore(Some(3), || {
        let cores = Cores::new();
        let its = cores.clone();
        let owner = thread::spawn(move || {
            its.offer();
            its.offer();
        });
        cores.help(2);
        owner.join().expect("it does not panic");
    });
}
