//! Instances that have been put back to their first state and wait for their image's next request.
//!
//! Each thread has a short list, so that a core finds what its own caches hold and no two cores share a lock. A full list
//! gives up the instance that has waited longest.

use crate::{seen_threads, thread_index};
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
struct List<T>(Mutex<Kept<T>>);

struct Kept<T> {
    instances: VecDeque<(ImageId, T)>,
    /// So many there may be here. Of all there may be, these are counted as taken for good: to count them at each request would have all
    /// cores write one number.
    room: usize,
}

/// Of instances of one kind.
pub struct Idle<T> {
    lists: Box<[List<T>]>,
    images: AtomicU64,
    /// Of all lists, the rooms.
    room: AtomicUsize,
    most: usize,
}

/// How many instances of one kind can be idle with this many threads.
pub fn most(threads: usize) -> usize {
    threads.min(LISTS) * LIST
}

impl<T> Idle<T> {
    /// For as many instances as this many threads can use.
    pub fn new(threads: usize) -> Self {
        Self {
            lists: (0..LISTS).map(|_| List::new()).collect(),
            images: 0.into(),
            room: 0.into(),
            most: most(threads),
        }
    }

    /// How many instances are idle now.
    pub fn count(&self) -> usize {
        self.used().map(|list| list.0.lock().instances.len()).sum()
    }

    /// A new one.
    pub fn image(&self) -> ImageId {
        ImageId(self.images.fetch_add(1, Ordering::Relaxed))
    }

    /// The lists that have ever been used, or are about to be.
    fn used(&self) -> impl Iterator<Item = &List<T>> {
        self.lists[..seen_threads().min(LISTS)].iter()
    }

    fn list(&self) -> &Mutex<Kept<T>> {
        &self.lists[thread_index() % LISTS].0
    }

    /// The one of this image that was put last.
    pub fn take(&self, image: ImageId) -> Option<T> {
        let instances = &mut self.list().lock().instances;
        let index = instances.iter().rposition(|(its, _)| *its == image)?;
        let (_, instance) = instances.remove(index)?;
        Some(instance)
    }

    /// Keeps one; if there are too many, gives up the one that has waited longest.
    #[must_use]
    pub fn put(&self, image: ImageId, instance: T) -> Option<T> {
        let mut list = self.list().lock();
        let is_full = list.instances.len() == list.room;
        // Counted first: there is never one more than the pool has slots for.
        if is_full && list.room < LIST && self.room.fetch_add(1, Ordering::Relaxed) < self.most {
            list.room += 1;
        } else if is_full {
            if list.room < LIST {
                self.room.fetch_sub(1, Ordering::Relaxed);
            }
            let Some((_, oldest)) = list.instances.pop_front() else {
                return Some(instance);
            };
            list.instances.push_back((image, instance));
            return Some(oldest);
        }
        list.instances.push_back((image, instance));
        None
    }

    /// Gives up those of an image that is no more.
    #[must_use]
    pub fn forget(&self, image: ImageId) -> Vec<T> {
        let mut forgotten = Vec::new();
        // Nobody puts an instance of an image that is no more, so there is none in the list of a thread that comes now.
        for list in self.used() {
            let instances = &mut list.0.lock().instances;
            if instances.iter().all(|(its, _)| *its != image) {
                continue;
            }
            let (its, others): (VecDeque<_>, VecDeque<_>) = mem::take(instances)
                .into_iter()
                .partition(|(its, _)| *its == image);
            *instances = others;
            forgotten.extend(its.into_iter().map(|(_, instance)| instance));
        }
        forgotten
    }
}

impl<T> List<T> {
    fn new() -> Self {
        Self(Mutex::new(Kept {
            instances: VecDeque::new(),
            room: 0,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_full_list_gives_up_what_has_waited_longest() {
        let idle = Idle::new(1);
        let (image, other) = (idle.image(), idle.image());
        for instance in 0..LIST {
            assert_eq!(idle.put(image, instance), None);
        }
        assert_eq!(idle.put(other, LIST), Some(0));
        assert_eq!(idle.count(), LIST);
        assert_eq!(idle.take(image), Some(LIST - 1), "the one that was put last");
        assert_eq!(idle.put(image, LIST - 1), None, "its room is still there");
        assert_eq!(idle.forget(other), [LIST]);
        assert_eq!(idle.take(other), None);
        assert_eq!(idle.count(), LIST - 1);
    }

    /// The pool behind them has no slot for one more.
    #[test]
    fn all_lists_together_keep_no_more_than_was_said() {
        let idle = Idle::new(1);
        let image = idle.image();
        let others = |instances: std::ops::Range<usize>| {
            thread::scope(|scope| {
                let put = || {
                    instances
                        .filter_map(|one| idle.put(image, one))
                        .collect::<Vec<_>>()
                };
                scope.spawn(put).join().expect("it ends")
            })
        };
        assert!(others(0..LIST / 2).is_empty());
        let too_many: Vec<_> = (LIST / 2..LIST + 2)
            .filter_map(|one| idle.put(image, one))
            .collect();
        assert_eq!(too_many, [LIST / 2, LIST / 2 + 1]);
        assert_eq!(others(100..101), [100], "there is no room for a third thread");
        assert_eq!(idle.count(), most(1));
    }
}
