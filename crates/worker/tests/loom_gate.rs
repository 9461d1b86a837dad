//! Every interleaving of a few requests at a gate: no more inside than there are places, nobody forgotten outside.
//!
//! The source of the gate and of its line themselves, with loom's locks and atomics.

#[path = "../src/gate.rs"]
mod gate;
#[path = "../src/line.rs"]
mod line;
#[expect(unused_imports, reason = "each model uses a part of it")]
#[path = "loom/sync.rs"]
mod sync;

use gate::Gate;
use loom::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

struct Model {
    gate: Gate<u32>,
    places: u32,
    inside: AtomicU32,
    ended: AtomicU32,
}

impl Model {
    fn new(places: u32) -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(places, 2),
            places,
            inside: AtomicU32::new(0),
            ended: AtomicU32::new(0),
        })
    }

    /// A core that has this request, and goes on with whoever it is handed. There are two: of three requests two have the same.
    fn core(&self, request: u32) {
        let core = (request % 2) as usize;
        let mut next = Some(request);
        while let Some(request) = next.and_then(|request| self.gate.enter(request, core)) {
            let inside = self.inside.fetch_add(1, Ordering::Relaxed) + 1;
            assert!(inside <= self.places, "{inside} inside of {}", self.places);
            self.inside.fetch_sub(1, Ordering::Relaxed);
            let before = self.ended.fetch_or(1 << request, Ordering::Relaxed);
            assert_eq!(before & (1 << request), 0, "request {request} ran twice");
            next = self.gate.leave(core);
        }
    }

    fn check(&self, requests: u32) {
        assert_eq!(
            self.ended.load(Ordering::Relaxed),
            (1 << requests) - 1,
            "everyone was let in"
        );
        assert!(!self.gate.is_holding());
        assert_eq!((self.gate.taken(), self.gate.held()), (0, 0));
    }
}

fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

#[test]
fn two_requests_for_one_place() {
    explore(None, || {
        let model = Model::new(1);
        let its = model.clone();
        let other = thread::spawn(move || its.core(0));
        model.core(1);
        other.join().expect("it does not panic");
        model.check(2);
    });
}

/// Three, because a refused attempt makes a free place look taken for a moment.
#[test]
fn three_requests_for_one_place() {
    explore(Some(3), || {
        let model = Model::new(1);
        let others = [0, 1].map(|request| {
            let its = model.clone();
            thread::spawn(move || its.core(request))
        });
        model.core(2);
        for other in others {
            other.join().expect("it does not panic");
        }
        model.check(3);
    });
}

#[test]
fn three_requests_for_two_places() {
    explore(Some(3), || {
        let model = Model::new(2);
        let others = [0, 1].map(|request| {
            let its = model.clone();
            thread::spawn(move || its.core(request))
        });
        model.core(2);
        for other in others {
            other.join().expect("it does not panic");
        }
        model.check(3);
    });
}

/// A request that has waited too long is either let in or swept out, never both and never neither.
#[test]
fn sweeping_loses_nobody() {
    explore(None, || {
        let model = Model::new(1);
        let its = model.clone();
        let other = thread::spawn(move || its.core(0));
        model.core(1);
        for request in model.gate.sweep(|request| *request == 1) {
            let before = model.ended.fetch_or(1 << request, Ordering::Relaxed);
            assert_eq!(before & (1 << request), 0, "request {request} ended twice");
        }
        other.join().expect("it does not panic");
        model.check(2);
    });
}
