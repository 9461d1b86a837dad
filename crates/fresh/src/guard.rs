//! Knowing which pages were written without asking the kernel after every request.
//!
//! Most requests to a function write the same few pages. Once these are known, all others of the instance's memory are made
//! read-only, and to restore it is to put the usual pages back. A write elsewhere faults: the engine's handler of faults has
//! [`Watched::surprise`] make the whole memory writable again, the instruction goes on, and the request's end asks the kernel as it
//! did the first time. For ping this takes two thirds off the price of a fresh sandbox (`make bench-node`, churn).
//!
//! An engine calls it for faults while the guest or a host call of it runs, and nobody else writes to a guest's memory,
//! but for `restore` here, which writes to the usual pages. No host call lets the kernel write there, which would fail in
//! place of faulting.

use crate::pages::{self, Pages, Restored, Written};
use rustix::{
    io,
    mm::{MprotectFlags, mprotect},
};
use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// An instance that was surprised so often is asked about, request for request.
const SURPRISES: u32 = 8;

/// Maps that a guard makes more of its memory's, at most.
pub const MOST_MAPS: u64 = 2 * Written::RUNS as u64;

/// How many guards there are.
pub struct Guards {
    taken: AtomicUsize,
    most: usize,
}

impl Guards {
    /// No more than these.
    pub fn new(most: usize) -> Self {
        Self {
            taken: 0.into(),
            most,
        }
    }

    fn take(self: &Arc<Self>) -> Option<Taken> {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        let guard = Taken(self.clone());
        (taken < self.most).then_some(guard)
    }
}

struct Taken(Arc<Guards>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where an instance's memory lies.
#[derive(Clone, Copy)]
pub struct Area {
    base: *mut u8,
    /// Bytes of it.
    pub size: usize,
}

// SAFETY: an address; whoever reads or writes there says why that is sound.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// From its first byte on.
    pub fn new(base: *mut u8, size: usize) -> Self {
        Self { base, size }
    }

    /// What it holds.
    ///
    /// # Safety
    /// It is mapped for as long as the answer is used, and nobody writes to it.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: see above.
        unsafe { slice::from_raw_parts(self.base, self.size) }
    }

    fn protect(self, from: usize, size: usize, flags: MprotectFlags) -> io::Result<()> {
        // SAFETY: the range lies in the instance's memory, which stays mapped until its store is dropped, which a
        // `Guard` does not outlive. What is made read-only is written by those only who can be told so: see above.
        unsafe { mprotect(self.base.wrapping_add(from).cast(), size, flags) }
    }
}

/// A memory of which some pages may be read-only.
pub struct Watched {
    area: Area,
    shut: AtomicBool,
}

impl Watched {
    fn open(&self) -> io::Result<()> {
        let all = MprotectFlags::READ | MprotectFlags::WRITE;
        self.area.protect(0, self.area.size, all)?;
        self.shut.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn shut(&self, usual: &Written) -> io::Result<()> {
        self.shut.store(true, Ordering::Relaxed);
        self.area.protect(0, self.area.size, MprotectFlags::READ)?;
        let all = MprotectFlags::READ | MprotectFlags::WRITE;
        usual
            .runs()
            .iter()
            .try_for_each(|run| self.area.protect(run.start, run.len(), all))
    }

    /// Called at a fault: whether it came of this guard, which is gone then. It is safe in a signal's handler: it reads atomics
    /// and makes one system call.
    pub fn surprise(&self, address: usize) -> bool {
        self.shut.load(Ordering::Relaxed)
            && address.wrapping_sub(self.area.base.addr()) < self.area.size
            && self.open().is_ok()
    }
}

/// Of one instance. To be dropped before whoever may write to the memory when the instance is given back.
pub struct Guard {
    watched: Arc<Watched>,
    usual: Written,
    surprises: u32,
    /// None once it has given up.
    taken: Option<Taken>,
}

impl Guard {
    /// For an instance whose memory this is, and whose requests are thought to write these pages. `ask` sees to it that faults are
    /// told to the watched memory.
    fn new(guards: &Arc<Guards>, area: Area, usual: Written, ask: impl FnOnce(Arc<Watched>)) -> Option<Self> {
        let taken = guards.take()?;
        let watched = Arc::new(Watched {
            area,
            shut: AtomicBool::new(false),
        });
        ask(watched.clone());
        let mut guard = Self {
            watched,
            usual,
            surprises: 0,
            taken: Some(taken),
        };
        guard.shut();
        Some(guard)
    }

    fn shut(&mut self) {
        if self.watched.shut(&self.usual).is_err() {
            // No maps are left: it is open then, or some of it stays shut until a write meets it.
            let _ = self.watched.open();
        }
    }

    /// Makes the memory equal to `image` at `at` and zero elsewhere, if no other than the usual pages were written.
    fn restore(&self, memory: &mut [u8], image: &[u8], at: usize) -> bool {
        let shut = self.watched.shut.load(Ordering::Relaxed);
        if shut {
            for run in self.usual.runs() {
                pages::restore(&mut memory[run.clone()], image, at, run.start);
            }
        }
        shut
    }

    /// After a request that wrote to other pages, which is restored by now: these are all that were ever written.
    fn learn(&mut self, written: Option<Written>) {
        self.surprises += 1;
        if let Some(written) = written
            && self.surprises < SURPRISES
        {
            self.usual = written;
            self.shut();
        } else {
            self.taken = None;
        }
    }
}

/// How an instance's memory is put back.
pub struct Restorer<'a> {
    /// Tells which pages were written.
    pub pages: &'a Pages,
    /// How many may be watched. None for memories that the host writes to between requests.
    pub guards: Option<&'a Arc<Guards>>,
    /// Bytes of written pages that are put back at most.
    pub most: usize,
}

impl Restorer<'_> {
    /// Makes a memory equal to `image` at `at` and zero elsewhere. `false` if that fails: then it is in between. `ask` sees to it,
    /// if the memory is to be watched from now on, that faults are told to it.
    ///
    /// # Safety
    /// It is the memory of an instance of which no code runs, of which nobody else has a reference, and which stays mapped until the
    /// guard is dropped.
    pub unsafe fn restore(
        &self,
        guard: &mut Option<Guard>,
        area: Area,
        (image, at): (&[u8], usize),
        ask: impl FnOnce(Arc<Watched>),
    ) -> bool {
        // SAFETY: see above.
        let memory = unsafe { slice::from_raw_parts_mut(area.base, area.size) };
        if guard
            .as_ref()
            .is_some_and(|guard| guard.restore(memory, image, at))
        {
            return true;
        }
        let Restored::All(written) = self.pages.restore(memory, image, at, self.most) else {
            return false;
        };
        match (guard, written) {
            (Some(guard), written) => guard.learn(written),
            (guard @ None, Some(written)) => {
                *guard = self
                    .guards
                    .and_then(|guards| Guard::new(guards, area, written, ask));
            }
            (None, None) => {}
        }
        true
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.watched.shut.load(Ordering::Relaxed) {
            let opened = self.watched.open();
            debug_assert!(opened.is_ok(), "fewer maps than before are needed");
        }
    }
}
