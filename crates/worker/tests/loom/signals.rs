//! An event that loom understands, and the wait for it.

use crate::bell::Event;
use loom::sync::{Condvar, Mutex};

/// An eventfd, and the `epoll_wait` on it.
pub(crate) struct Signals {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Event for Signals {
    fn signal(&self) {
        *self.set.lock().expect("no panic") = true;
        self.changed.notify_one();
    }

    fn clear(&self) {
        *self.set.lock().expect("no panic") = false;
    }
}

impl Signals {
    pub(crate) fn new() -> Self {
        Self {
            set: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Whether it was signalled; waits for that, unless told not to.
    pub(crate) fn wait(&self, at_all: bool) -> bool {
        let mut set = self.set.lock().expect("no panic");
        while at_all && !*set {
            set = self.changed.wait(set).expect("no panic");
        }
        *set
    }
}

/// All interleavings with so many preemptions at most.
pub(crate) fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}
