//! Uploads that nobody waits for, and that the other side does not take.
//!
//! hyper sends what it has taken of a request's body before it closes a connection, whoever has given the call up meanwhile: a socket, and what lies in it,
//! would stay for as long as the other side likes. So the connection under hyper knows which upload is on it, and whether somebody waits for what comes of
//! that one; if nobody does, what cannot be written is an error. Where the body itself breaks off, hyper closes the connection at once, and the kernel would go on
//! sending what it has: it is reset.
//!
//! ```text
//!   Waiting ──── given up, or left ────▶ Upload ◀──── how long may it be stuck? ──── Berth of the connection
//!   the call, and its reply's body         ▲                                           │
//!                                          └───── put there with the body's first piece┘
//! ```

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

/// How long the other side may take nothing of a body once its reply has come to its end: it may still read what it has answered.
const GRACE: Duration = Duration::from_secs(5);

/// A request's body on its way.
#[derive(Clone, Default)]
pub(crate) struct Upload(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// How long it may be stuck; as long as its reply is waited for, for ever.
    allowed: Option<Duration>,
    /// Of the connection that it is stuck on.
    waker: Option<Waker>,
    /// There is no more of it, and it is not whole.
    is_broken: bool,
}

/// Whoever waits for a reply holds this. Dropping it gives up what has not been sent by then.
pub(crate) struct Waiting(Upload);

/// Where a connection finds the upload that is on it. A request without a body leaves there what was before: it is written at once.
#[derive(Clone, Default)]
pub(crate) struct Berth(Arc<Mutex<Option<Upload>>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiting {
    pub(crate) fn of(upload: &Upload) -> Self {
        Self(upload.clone())
    }

    /// The reply has come to its end.
    pub(crate) fn leave(&self) {
        self.0.allow(GRACE);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.allow(Duration::ZERO);
    }
}

impl Upload {
    /// What is still to come of it never will.
    pub(crate) fn break_off(&self) {
        lock(&self.0).is_broken = true;
    }

    /// What was said first holds.
    fn allow(&self, stuck: Duration) {
        let mut state = lock(&self.0);
        state.allowed.get_or_insert(stuck);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Berth {
    pub(crate) fn put(&self, upload: &Upload) {
        *lock(&self.0) = Some(upload.clone());
    }

    /// Whether the upload that is here has broken off: then what was sent of it is of no use.
    pub(crate) fn is_broken(&self) -> bool {
        lock(&self.0)
            .as_ref()
            .is_some_and(|upload| lock(&upload.0).is_broken)
    }

    /// How long the upload that is here may be stuck, once nobody waits for its reply. The waker is woken then.
    pub(crate) fn poll_allowed(&self, context: &Context<'_>) -> Poll<Duration> {
        let berth = lock(&self.0);
        let Some(upload) = &*berth else {
            return Poll::Pending;
        };
        let mut state = lock(&upload.0);
        match state.allowed {
            Some(allowed) => Poll::Ready(allowed),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
        task::Wake,
    };

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn only_the_upload_that_is_on_a_connection_says_how_long_it_may_be_stuck() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let context = Context::from_waker(&waker);
        let berth = Berth::default();
        assert!(berth.poll_allowed(&context).is_pending());
        let (first, second) = (Upload::default(), Upload::default());
        let (of_first, of_second) = (Waiting::of(&first), Waiting::of(&second));
        berth.put(&first);
        assert!(berth.poll_allowed(&context).is_pending());
        of_first.leave();
        assert_eq!(woken.0.load(SeqCst), 1);
        assert_eq!(berth.poll_allowed(&context), Poll::Ready(GRACE));
        berth.put(&second);
        assert!(berth.poll_allowed(&context).is_pending());
        // What is dropped has been left before.
        drop(of_first);
        assert!(berth.poll_allowed(&context).is_pending());
        assert_eq!(woken.0.load(SeqCst), 1);
        drop(of_second);
        assert_eq!(woken.0.load(SeqCst), 2);
        assert_eq!(berth.poll_allowed(&context), Poll::Ready(Duration::ZERO));
        berth.put(&first);
        assert_eq!(berth.poll_allowed(&context), Poll::Ready(GRACE));
        second.break_off();
        assert!(!berth.is_broken());
        berth.put(&second);
        assert!(berth.is_broken());
    }
}
