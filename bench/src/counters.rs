//! What the processor counts while a thread computes, where there is a unit that counts and this process may ask it: perf_event_open(2). Virtual
//! machines often have none.

use anyhow::{Result, bail};
use rustix::io::Errno;
use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::fd::FromRawFd as _,
};

/// What can be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Loads whose address was not in the data TLB, in user mode.
    DataTlbLoadMisses,
    /// Faults that needed no reading, in user mode: the kernel itself counts these, so that they are counted everywhere.
    #[cfg(test)]
    MinorFaults,
}

/// Of linux/perf_event.h.
#[cfg(test)]
const TYPE_SOFTWARE: u32 = 1;
const TYPE_HW_CACHE: u32 = 3;
const CACHE_DTLB: u64 = 3;
const CACHE_OP_READ: u64 = 0;
const CACHE_RESULT_MISS: u64 = 1;
#[cfg(test)]
const SW_PAGE_FAULTS_MIN: u64 = 5;
const FORMAT_TOTAL_TIME_ENABLED: u64 = 1 << 0;
const FORMAT_TOTAL_TIME_RUNNING: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// The first version of `struct perf_event_attr`, which all kernels take.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

impl Event {
    fn attributes(self) -> Attributes {
        let (kind, config) = match self {
            Self::DataTlbLoadMisses => (
                TYPE_HW_CACHE,
                CACHE_DTLB | CACHE_OP_READ << 8 | CACHE_RESULT_MISS << 16,
            ),
            #[cfg(test)]
            Self::MinorFaults => (TYPE_SOFTWARE, SW_PAGE_FAULTS_MIN),
        };
        Attributes {
            kind,
            size: size_of::<Attributes>() as u32,
            config,
            read_format: FORMAT_TOTAL_TIME_ENABLED | FORMAT_TOTAL_TIME_RUNNING,
            flags: EXCLUDE_KERNEL | EXCLUDE_HV,
            ..Attributes::default()
        }
    }
}

/// Counts for the thread that opened it, from then on.
pub(crate) struct Counter(File);

/// What was counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Count {
    events: u64,
    /// Nanoseconds for which it was to count, and for which it did: there are fewer places than events.
    wanted: u64,
    counted: u64,
}

impl Count {
    /// What was counted between another, earlier count and this one, and for how long.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            events: self.events.saturating_sub(earlier.events),
            wanted: self.wanted.saturating_sub(earlier.wanted),
            counted: self.counted.saturating_sub(earlier.counted),
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            events: self.events + other.events,
            wanted: self.wanted + other.wanted,
            counted: self.counted + other.counted,
        }
    }

    /// How many events there must have been. `None` if nothing was counted.
    pub(crate) fn events(self) -> Option<f64> {
        (self.counted > 0).then(|| self.events as f64 * (self.wanted as f64 / self.counted as f64))
    }
}

impl Counter {
    /// Fails with the reason for which this is not counted here.
    pub(crate) fn open(event: Event) -> Result<Self, String> {
        let attributes = event.attributes();
        let (this_thread, any_core, no_group) = (0, -1, -1);
        #[expect(unsafe_code, reason = "no crate of ours has this system call")]
        // SAFETY: the structure is as long as it says, and outlives the call.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                this_thread,
                any_core,
                no_group,
                FLAG_FD_CLOEXEC,
            )
        };
        let Ok(descriptor @ 0..) = i32::try_from(descriptor) else {
            return Err(reason(&io::Error::last_os_error()));
        };
        #[expect(unsafe_code, reason = "as above")]
        // SAFETY: the kernel has just made it, for nobody else.
        Ok(Self(unsafe { File::from_raw_fd(descriptor) }))
    }

    pub(crate) fn read(&self) -> Result<Count> {
        let mut bytes = [0; 3 * size_of::<u64>()];
        if (&self.0).read(&mut bytes)? != bytes.len() {
            bail!("the kernel does not say what was counted");
        }
        let mut numbers = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|bytes| u64::from_ne_bytes(*bytes));
        let mut next = || numbers.next().unwrap_or_default();
        Ok(Count {
            events: next(),
            wanted: next(),
            counted: next(),
        })
    }
}

/// Why an event cannot be counted, from how opening it failed.
fn reason(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV) => {
            "this machine has no hardware counters for it (no PMU, or not of this event)".to_owned()
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            format!(
                "this process may not count: kernel.perf_event_paranoid is {}, and it would need CAP_PERFMON",
                level.trim()
            )
        }
        Some(Errno::NOSYS) => "this kernel has no perf_event_open".to_owned(),
        _ => format!("it cannot be counted: {error}"),
    }
}

const _: () = assert!(size_of::<Attributes>() == 64, "PERF_ATTR_SIZE_VER0");

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint;

    #[test]
    fn what_this_thread_does_is_counted() {
        let counter = match Counter::open(Event::MinorFaults) {
            Ok(counter) => counter,
            Err(reason) => {
                println!("skipped: {reason}");
                return;
            }
        };
        let before = counter.read().unwrap();
        let pages = 100;
        let mut memory = vec![0_u8; pages << 16];
        for byte in memory.iter_mut().step_by(1 << 16) {
            *byte = 1;
        }
        hint::black_box(&memory);
        let count = counter.read().unwrap().since(before);
        assert!(count.events().unwrap() >= 3.0, "{count:?}");
        assert!(count.wanted > 0);
    }

    #[test]
    fn misses_of_the_data_tlb_are_counted_or_a_reason_is_there() {
        match Counter::open(Event::DataTlbLoadMisses) {
            Ok(counter) => assert!(counter.read().is_ok()),
            Err(reason) => {
                println!("skipped: {reason}");
                assert!(!reason.is_empty());
            }
        }
    }

    #[test]
    fn the_event_is_the_one_that_perf_calls_dtlb_load_misses() {
        let attributes = Event::DataTlbLoadMisses.attributes();
        assert_eq!((attributes.kind, attributes.config), (3, 0x1_0003));
    }

    #[test]
    fn what_shared_its_counter_with_others_is_made_whole() {
        let earlier = Count {
            events: 100,
            wanted: 1_000,
            counted: 1_000,
        };
        let later = Count {
            events: 150,
            wanted: 3_000,
            counted: 2_000,
        };
        assert_eq!(later.since(earlier).events(), Some(100.0));
        assert_eq!(later.since(later).events(), None);
        let both = later.since(earlier).and(earlier);
        assert_eq!(both.events(), Some(150.0 * 3_000.0 / 2_000.0));
    }

    #[test]
    fn a_reason_says_what_is_missing() {
        let of = |errno: Errno| reason(&io::Error::from(errno));
        assert!(of(Errno::NOENT).contains("no hardware counters"));
        assert!(of(Errno::ACCESS).contains("perf_event_paranoid"));
    }
}
