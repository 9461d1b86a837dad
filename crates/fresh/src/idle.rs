//! Instances that have been put back to their first state and wait for their image's next request.
//!
//! Each thread has a short list, so that a core finds what its own caches hold and no two cores share a lock. A full list
//! gives up the instance that has waited longest.

use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    mem,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// Whose instance it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ImageId(u64);

/// As many as a core's working set of functions has.
const LIST: usize = 16;
/// Threads beyond these share lists.
const LISTS: usize = 256;

#[repr(align(128))]
struct List<T>(Mutex<VecDeque<(ImageId, T)>>);

/// Of instances of one kind.
pub struct Idle<T> {
    lists: Box<[List<T>]>,
    images: AtomicU64,
    count: AtomicUsize,
    most: usize,
}

/// Threads that have asked for a list.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: usize = THREADS.fetch_add(1, Ordering::SeqCst);
}

/// How many instances of one kind can be idle with this many threads.
pub fn most(threads: usize) -> usize {
    threads.min(LISTS) * LIST
}

impl<T> Idle<T> {
    /// For as many instances as this many threads can use.
    pub fn new(threads: usize) -> Self {
        Self {
            lists: (0..LISTS).map(|_| List(Mutex::default())).collect(),
            images: 0.into(),
            count: 0.into(),
            most: most(threads),
        }
    }

    /// How many instances are idle now.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// A new one.
    pub fn image(&self) -> ImageId {
        ImageId(self.images.fetch_add(1, Ordering::Relaxed))
    }

    fn list(&self) -> &Mutex<VecDeque<(ImageId, T)>> {
        let thread = THREAD.with(|thread| *thread);
        &self.lists[thread % LISTS].0
    }

    /// The one of this image that was put last.
    pub fn take(&self, image: ImageId) -> Option<T> {
        let mut list = self.list().lock();
        let index = list.iter().rposition(|(its, _)| *its == image)?;
        let (_, instance) = list.remove(index)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(instance)
    }

    /// Keeps one; if there are too many, gives up the one that has waited longest.
    #[must_use]
    pub fn put(&self, image: ImageId, instance: T) -> Option<T> {
        let mut list = self.list().lock();
        // Counted first: there is never one more than the pool has slots for.
        let oldest = if list.len() >= LIST || self.count.fetch_add(1, Ordering::Relaxed) >= self.most {
            if list.len() < LIST {
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
            let Some((_, oldest)) = list.pop_front() else {
                return Some(instance);
            };
            Some(oldest)
        } else {
            None
        };
        list.push_back((image, instance));
        oldest
    }

    /// Gives up those of an image that is no more.
    #[must_use]
    pub fn forget(&self, image: ImageId) -> Vec<T> {
        let mut forgotten = Vec::new();
        // Nobody puts an instance of an image that is no more, so there is none in the list of a thread that comes now.
        let used = THREADS.load(Ordering::SeqCst).min(LISTS);
        for list in &self.lists[..used] {
            let mut list = list.0.lock();
            if list.iter().all(|(its, _)| *its != image) {
                continue;
            }
            let (its, others): (VecDeque<_>, VecDeque<_>) = mem::take(&mut *list)
                .into_iter()
                .partition(|(its, _)| *its == image);
            *list = others;
            forgotten.extend(its.into_iter().map(|(_, instance)| instance));
        }
        self.count.fetch_sub(forgotten.len(), Ordering::Relaxed);
        forgotten
    }
}
