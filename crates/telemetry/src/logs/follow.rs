//! A bounded queue of records for one reader, from the log's one writer.

use super::{Filter, Record, Stream};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Weak, mpsc::RecvTimeoutError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// Records as they are written, from [`super::Logs::follow`].
///
/// A reader that is too slow loses records, and is told how many by a record of [`Stream::Platform`] in their place. The
/// queue ends when the log closes.
#[derive(Debug)]
pub struct Follower {
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    capacity: usize,
}

#[derive(Debug, Default)]
struct State {
    records: VecDeque<Arc<Record>>,
    lost: u64,
    /// The last record that was lost: when and whose.
    last_lost: Option<Arc<Record>>,
    closed: bool,
    waker: Option<Waker>,
}

impl State {
    fn pop(&mut self) -> Option<Arc<Record>> {
        self.records.pop_front().or_else(|| self.notice())
    }

    /// The record that says how many were lost, if any were.
    fn notice(&mut self) -> Option<Arc<Record>> {
        let last = self.last_lost.take()?;
        let lost = std::mem::take(&mut self.lost);
        Some(Arc::new(Record {
            request: None,
            stream: Stream::Platform,
            message: format!("{lost} lines left out: this reader is too slow; all of them are in the log"),
            omitted: 0,
            ..(*last).clone()
        }))
    }
}

/// The writer's end of a [`Follower`].
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) filter: Filter,
    queue: Weak<Queue>,
}

pub(super) fn channel(filter: Filter, capacity: usize) -> (Feed, Follower) {
    let queue = Arc::new(Queue {
        state: Mutex::default(),
        changed: Condvar::new(),
        capacity: capacity.max(1),
    });
    (
        Feed {
            filter,
            queue: Arc::downgrade(&queue),
        },
        Follower { queue },
    )
}

impl Feed {
    /// Whether somebody still reads.
    pub(super) fn is_open(&self) -> bool {
        self.queue.strong_count() > 0
    }

    /// Offers a record; false when nobody reads any more.
    pub(super) fn push(&self, record: &Arc<Record>) -> bool {
        let Some(queue) = self.queue.upgrade() else {
            return false;
        };
        if !self.filter.accepts(record) {
            return true;
        }
        let mut state = queue.state.lock();
        // Room for the notice too, so that it stands where the lost records would.
        if state.records.len() + usize::from(state.lost > 0) < queue.capacity {
            let notice = state.notice();
            state.records.extend(notice);
            state.records.push_back(record.clone());
        } else {
            state.lost += 1;
            state.last_lost = Some(record.clone());
        }
        queue.wake(state);
        true
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.upgrade() {
            let mut state = queue.state.lock();
            state.closed = true;
            queue.wake(state);
        }
    }
}

impl Queue {
    fn wake(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Follower {
    /// Puts records before all others, whatever the capacity.
    pub(super) fn prepend(&self, records: Vec<Record>) {
        let mut state = self.queue.state.lock();
        for record in records.into_iter().rev() {
            state.records.push_front(Arc::new(record));
        }
    }

    /// The next record, waiting for it on this thread. `Disconnected` once the log is closed and all was read.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Arc<Record>, RecvTimeoutError> {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.queue.state.lock();
        loop {
            if let Some(record) = state.pop() {
                return Ok(record);
            }
            if state.closed {
                return Err(RecvTimeoutError::Disconnected);
            }
            match deadline {
                Some(deadline) if self.queue.changed.wait_until(&mut state, deadline).timed_out() => {
                    return state.pop().ok_or(RecvTimeoutError::Timeout);
                }
                Some(_) => {}
                None => self.queue.changed.wait(&mut state),
            }
        }
    }

    /// The next record, in any async runtime; `None` once the log is closed and all was read. Nothing is lost if the
    /// future is dropped.
    pub async fn recv(&mut self) -> Option<Arc<Record>> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// As [`Follower::recv`], for hand-written streams.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Arc<Record>>> {
        let mut state = self.queue.state.lock();
        match state.pop() {
            Some(record) => Poll::Ready(Some(record)),
            None if state.closed => Poll::Ready(None),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
