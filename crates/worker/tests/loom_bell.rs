//! Every interleaving of a core that goes to sleep and others that bring it work: it never sleeps on work. loom tells a
//! deadlock.
//!
//! The source of the bell itself, with loom's atomics and an event that loom understands.

#[expect(dead_code, reason = "each model uses a part of it")]
#[path = "../src/bell.rs"]
mod bell;
#[path = "loom/signals.rs"]
mod signals;
#[expect(dead_code, unused_imports, reason = "each model uses a part of it")]
#[path = "loom/sync.rs"]
mod sync;

use bell::Bell;
use loom::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};
use signals::{Signals, explore};

struct Core {
    bell: Bell<Signals>,
    /// Pieces of work that were brought and not taken. Changed by exchange, as the mailboxes' indices are.
    mail: AtomicU32,
}

impl Core {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bell: Bell::new(Signals::new()),
            mail: AtomicU32::new(0),
        })
    }

    fn bring(&self) {
        self.mail.fetch_add(1, Ordering::AcqRel);
        self.bell.ring();
    }

    /// The core's loop, until so many pieces were taken.
    fn take(&self, pieces: u32) {
        let mut taken = 0;
        loop {
            taken += self.mail.swap(0, Ordering::AcqRel);
            if taken == pieces {
                return;
            }
            self.bell.expect();
            let nothing = self.mail.load(Ordering::Acquire) == 0;
            let signalled = self.bell.event().wait(nothing);
            self.bell.unexpect();
            if signalled {
                self.bell.quiet();
            }
        }
    }
}

#[test]
fn work_from_one_is_never_slept_on() {
    explore(None, || {
        let core = Core::new();
        let its = core.clone();
        let other = thread::spawn(move || {
            its.bring();
            its.bring();
        });
        core.take(2);
        other.join().expect("it does not panic");
    });
}

#[test]
fn work_from_two_is_never_slept_on() {
    explore(Some(3), || {
        let core = Core::new();
        let others = [(); 2].map(|()| {
            let its = core.clone();
            thread::spawn(move || its.bring())
        });
        core.take(2);
        for other in others {
            other.join().expect("it does not panic");
        }
    });
}

/// News without mail: what the core looks at before it says that it waits would be lost to a mere ring.
#[test]
fn an_interruption_is_never_slept_on() {
    explore(None, || {
        let core = Core::new();
        let news = Arc::new(AtomicU32::new(0));
        let (its, told) = (core.clone(), news.clone());
        let other = thread::spawn(move || {
            told.store(1, Ordering::Release);
            its.bell.interrupt();
        });
        while news.load(Ordering::Acquire) == 0 {
            core.bell.expect();
            let nothing = core.mail.load(Ordering::Acquire) == 0;
            let signalled = core.bell.event().wait(nothing);
            core.bell.unexpect();
            if signalled {
                core.bell.quiet();
            }
        }
        other.join().expect("it does not panic");
    });
}
