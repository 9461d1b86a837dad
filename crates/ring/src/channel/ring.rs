//! Messages from one producer to one consumer, neither of which trusts the other. Model-checked by `tests/loom_ring.rs`, which is
//! why its atomics come from [`crate::sync`].
//!
//! Indices run freely: the slot of one is what remains of it, and the difference of two is how many messages are under way. Each side
//! knows its own and only tells it to the other; the other's is read once by each call and is good if that many messages can be under
//! way. A message's words are read once, too. So the worst that a hostile other side can do is to send rubbish, to be slow, or to be told
//! corrupt.
//!
//! A consumer that is about to wait says so, and then looks once more; a producer publishes a message, and then looks whether the consumer
//! waits. Between the two steps of each is a fence, so that whichever fence comes second, its side sees what the other did before: the
//! consumer the message, or the producer the flag.

use super::{Corrupt, Message, Sent};
use crate::sync::{AtomicU32, AtomicU64, Ordering, WORDS, fence};
use core::ptr::NonNull;

/// Has a cache line for itself.
#[repr(C, align(64))]
pub(crate) struct Line<T>(pub(crate) T);

/// Of the next message to be sent, and of the next to be received; and whether the consumer waits for a doorbell: anything but 0.
#[repr(C)]
pub(crate) struct Indices {
    pub(crate) tail: Line<AtomicU32>,
    pub(crate) head: Line<AtomicU32>,
    pub(crate) sleeping: Line<AtomicU32>,
}

/// A message's place.
#[repr(C, align(64))]
pub(crate) struct Slot(pub(crate) [AtomicU64; WORDS]);

/// Where a ring lies.
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    indices: NonNull<Indices>,
    slots: NonNull<Slot>,
    /// A power of two.
    count: u32,
}

impl Ring {
    /// # Safety
    /// `count` is a power of two. The indices and so many slots are there, aligned, as long as the ring or an end of it is used, and this
    /// process accesses them by atomics only.
    pub(crate) unsafe fn new(indices: NonNull<Indices>, slots: NonNull<Slot>, count: u32) -> Self {
        Self {
            indices,
            slots,
            count,
        }
    }

    fn indices(&self) -> &Indices {
        // SAFETY: by `new` they are there. All of their fields are atomics, so that others write to them, too, is no matter.
        unsafe { self.indices.as_ref() }
    }

    fn slot(&self, index: u32) -> &Slot {
        let number = index & (self.count - 1);
        // SAFETY: it is less than `count`, so by `new` it is there. Its fields are atomics, too.
        unsafe { self.slots.add(number as usize).as_ref() }
    }

    /// How many messages are under way.
    fn filled(&self, head: u32, tail: u32) -> Result<u32, Corrupt> {
        let filled = tail.wrapping_sub(head);
        if filled > self.count {
            return Err(Corrupt);
        }
        Ok(filled)
    }
}

/// Sends. There is one of a ring.
pub(crate) struct Producer {
    ring: Ring,
    tail: u32,
}

impl Producer {
    /// Of a ring whose indices are what `tail` is.
    pub(crate) fn new(ring: Ring, tail: u32) -> Self {
        Self { ring, tail }
    }

    /// `None` if the ring is full.
    pub(crate) fn send(&mut self, message: &Message) -> Result<Option<Sent>, Corrupt> {
        let indices = self.ring.indices();
        let head = indices.head.0.load(Ordering::Acquire);
        if self.ring.filled(head, self.tail)? == self.ring.count {
            return Ok(None);
        }
        for (word, value) in self.ring.slot(self.tail).0.iter().zip(message) {
            word.store(*value, Ordering::Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        indices.tail.0.store(self.tail, Ordering::Release);
        fence(Ordering::SeqCst);
        let must_ring = indices.sleeping.0.load(Ordering::Relaxed) != 0;
        if must_ring {
            // If the consumer set it anew meanwhile, the doorbell that follows wakes it all the same.
            indices.sleeping.0.store(0, Ordering::Relaxed);
        }
        Ok(Some(Sent { must_ring }))
    }
}

/// Receives. There is one of a ring.
pub(crate) struct Consumer {
    ring: Ring,
    head: u32,
}

impl Consumer {
    /// Of a ring whose indices are what `head` is.
    pub(crate) fn new(ring: Ring, head: u32) -> Self {
        Self { ring, head }
    }

    fn is_empty(&self) -> Result<bool, Corrupt> {
        let tail = self.ring.indices().tail.0.load(Ordering::Acquire);
        Ok(self.ring.filled(self.head, tail)? == 0)
    }

    /// `None` if the ring is empty.
    pub(crate) fn receive(&mut self) -> Result<Option<Message>, Corrupt> {
        if self.is_empty()? {
            return Ok(None);
        }
        let mut message = [0; WORDS];
        for (value, word) in message.iter_mut().zip(&self.ring.slot(self.head).0) {
            *value = word.load(Ordering::Relaxed);
        }
        self.head = self.head.wrapping_add(1);
        self.ring.indices().head.0.store(self.head, Ordering::Release);
        Ok(Some(message))
    }

    /// Whether it may wait for the doorbell, which the producer now knows of.
    pub(crate) fn sleep(&mut self) -> Result<bool, Corrupt> {
        self.ring.indices().sleeping.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let empty = self.is_empty()?;
        if !empty {
            self.wake();
        }
        Ok(empty)
    }

    /// It does not wait any more.
    pub(crate) fn wake(&mut self) {
        self.ring.indices().sleeping.0.store(0, Ordering::Relaxed);
    }
}
