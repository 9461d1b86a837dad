//! Every interleaving of a producer and a consumer that sleeps when there is nothing: it receives each message once, whole and in order,
//! and never sleeps on one. loom tells a deadlock.
//!
//! The source of the ring itself, with loom's atomics and a doorbell that loom understands.

mod channel {
    //! What the ring has of its parent.

    use crate::sync::WORDS;

    #[path = "../../src/channel/ring.rs"]
    pub(crate) mod ring;

    pub(crate) type Message = [u64; WORDS];

    #[derive(Debug, PartialEq, Eq)]
    pub(crate) struct Corrupt;

    #[derive(Debug)]
    pub(crate) struct Sent {
        pub(crate) must_ring: bool,
    }
}
#[path = "loom/sync.rs"]
mod sync;

use channel::{
    Message,
    ring::{Consumer, Indices, Line, Producer, Ring, Slot},
};
use loom::{
    sync::{Arc, Condvar, Mutex},
    thread,
};
use std::ptr::NonNull;
use sync::{AtomicU32, AtomicU64};

/// Shortly before the indices run over.
const BEGIN: u32 = u32::MAX;

struct Channel {
    indices: Indices,
    slots: Vec<Slot>,
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Channel {
    fn new(slots: u32) -> Arc<Self> {
        let line = |value| Line(AtomicU32::new(value));
        let slot = |_| Slot([(); sync::WORDS].map(|()| AtomicU64::new(0)));
        Arc::new(Self {
            indices: Indices {
                tail: line(BEGIN),
                head: line(BEGIN),
                sleeping: line(0),
            },
            slots: (0..slots).map(slot).collect(),
            rung: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    fn ring(&self) -> Ring {
        let slots = NonNull::from(&*self.slots).cast();
        // SAFETY: threads use it while they have the channel's Arc.
        unsafe { Ring::new(NonNull::from(&self.indices), slots, self.slots.len() as u32) }
    }

    /// All messages, the first of which is 1, 1.
    fn send(&self, messages: u64) {
        let mut producer = Producer::new(self.ring(), BEGIN);
        for number in 1..=messages {
            loop {
                match producer.send(&message(number)).expect("the consumer is good") {
                    None => thread::yield_now(),
                    Some(sent) => {
                        if sent.must_ring {
                            *self.rung.lock().expect("no panic") = true;
                            self.changed.notify_one();
                        }
                        break;
                    }
                }
            }
        }
    }

    fn receive(&self, messages: u64) {
        let mut consumer = Consumer::new(self.ring(), BEGIN);
        for number in 1..=messages {
            let received = loop {
                if let Some(received) = consumer.receive().expect("the producer is good") {
                    break received;
                }
                if consumer.sleep().expect("the producer is good") {
                    let mut rung = self.rung.lock().expect("no panic");
                    while !*rung {
                        rung = self.changed.wait(rung).expect("no panic");
                    }
                    *rung = false;
                }
            };
            assert_eq!(received, message(number));
        }
        assert_eq!(consumer.receive(), Ok(None));
    }
}

fn message(number: u64) -> Message {
    [number; sync::WORDS]
}

fn explore(preemptions: Option<usize>, slots: u32, messages: u64) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let channel = Channel::new(slots);
        let its = channel.clone();
        let producer = thread::spawn(move || its.send(messages));
        channel.receive(messages);
        producer.join().expect("it does not panic");
    });
}

#[test]
fn a_message_is_never_slept_on() {
    explore(None, 1, 1);
}

#[test]
fn two_messages_come_whole_and_in_order() {
    explore(Some(3), 2, 2);
}

/// The producer waits for a slot that the consumer has read.
#[test]
fn a_slot_is_written_anew_after_it_was_read() {
    explore(Some(2), 1, 3);
}

/// A consumer that is woken by something else while the producer rings for its sleep before.
#[test]
fn a_doorbell_that_comes_late_is_not_lost() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let channel = Channel::new(2);
        let its = channel.clone();
        let producer = thread::spawn(move || its.send(2));
        let mut consumer = Consumer::new(channel.ring(), BEGIN);
        let mut received = 0;
        // It was woken at once.
        if consumer.sleep().expect("the producer is good") {
            consumer.wake();
        }
        while received < 2 {
            if let Some(next) = consumer.receive().expect("the producer is good") {
                received += 1;
                assert_eq!(next, message(received));
            } else if consumer.sleep().expect("the producer is good") {
                let mut rung = channel.rung.lock().expect("no panic");
                while !*rung {
                    rung = channel.changed.wait(rung).expect("no panic");
                }
                *rung = false;
            }
        }
        producer.join().expect("it does not panic");
    });
}
