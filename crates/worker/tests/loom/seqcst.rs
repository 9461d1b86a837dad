//! Atomics of loom, called as the crate calls its own, and sequentially consistent where they are asked to be. loom has that for
//! fences only; so whoever writes passes one before anything else is read, as compilers have it on x86.

pub(crate) use loom::sync::atomic::Ordering;
use loom::sync::atomic::{self, fence};

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        pub(crate) struct $name(atomic::$name);

        #[allow(dead_code, reason = "each model uses a part of each")]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.0.load(match order {
                    Ordering::SeqCst => Ordering::Acquire,
                    weaker => weaker,
                })
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                write(order, Ordering::Release, |order| self.0.store(value, order));
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                write(order, Ordering::AcqRel, |order| self.0.swap(value, order))
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);

impl AtomicU32 {
    pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        write(order, Ordering::AcqRel, |order| self.0.fetch_add(value, order))
    }
}

fn write<T>(order: Ordering, weaker: Ordering, access: impl FnOnce(Ordering) -> T) -> T {
    if order != Ordering::SeqCst {
        return access(order);
    }
    let value = access(weaker);
    fence(Ordering::SeqCst);
    value
}
