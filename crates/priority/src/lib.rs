//! What a thread asks of the kernel's scheduler.

use rustix::time::{ClockId, clock_gettime};
use std::{fs::File, io, mem, os::unix::fs::FileExt, time::Duration};

/// The shortest that Linux grants, in nanoseconds.
const SHORTEST: u64 = 100_000;

/// Lets this thread wake up at once: whoever has the core then is not first given the rest of its turn, which is up to 3 ms.
///
/// It is for threads that sleep much and do little. It is not more of the core that the thread asks for, only shorter turns; so it needs no
/// privilege (`sched_setattr(2)`, the slice of EEVDF). Kernels before Linux 6.12 take note and change nothing.
///
/// # Errors
/// What the kernel says; the thread is as it was then.
pub fn wake_at_once() -> io::Result<()> {
    change(|attributes| attributes.sched_runtime = SHORTEST)
}

/// Whether this thread, when it is woken, lets whoever has its processor go on until they wait for something or their turn is over
/// (`SCHED_BATCH`), or interrupts them if its own turn comes first by the kernel's rules (`SCHED_OTHER`). `sched(7)`
///
/// # Errors
/// What the kernel says; the thread is as it was then.
pub fn be_patient(patient: bool) -> io::Result<()> {
    let policy = if patient {
        libc::SCHED_BATCH
    } else {
        libc::SCHED_OTHER
    };
    change(|attributes| attributes.sched_policy = policy.cast_unsigned())
}

/// Whether this thread has the policy that threads have unless somebody chose another for them (`SCHED_OTHER`; see `chrt(1)`).
pub fn is_default() -> bool {
    // SAFETY: 0 is this thread.
    (unsafe { libc::sched_getscheduler(0) }) == libc::SCHED_OTHER
}

/// How long one thread has run, and waited for its processor.
#[derive(Debug)]
pub struct Spent(File);

/// Of a thread, since it began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// On a processor.
    pub ran: Duration,
    /// For its processor, with something to do.
    pub waited: Duration,
}

impl Times {
    /// The time in which it had something to do.
    pub fn both(self) -> Duration {
        self.ran + self.waited
    }
}

impl Spent {
    /// Of the thread that asks.
    ///
    /// # Errors
    /// Without `/proc`, and in a kernel that does not count how long threads wait (`CONFIG_SCHED_INFO`).
    pub fn of_this_thread() -> io::Result<Self> {
        File::open("/proc/thread-self/schedstat").map(Self)
    }

    /// Since the thread began. Only the thread itself may ask.
    ///
    /// # Errors
    /// If what is read is not three numbers, as `proc_pid_schedstat(5)` says: nanoseconds on a processor, nanoseconds of waiting for it, turns.
    pub fn read(&self) -> io::Result<Times> {
        Ok(Times {
            // The first of the numbers is as old as the last tick of the kernel's clock.
            ran: ran(),
            waited: self.waited()?,
        })
    }

    fn waited(&self) -> io::Result<Duration> {
        let mut text = [0; 64];
        let length = self.0.read_at(&mut text, 0)?;
        let waited = std::str::from_utf8(&text[..length])
            .ok()
            .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse().ok())
            .ok_or(io::ErrorKind::InvalidData)?;
        Ok(Duration::from_nanos(waited))
    }
}

fn ran() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Changes what this thread asks for.
fn change(how: impl FnOnce(&mut libc::sched_attr)) -> io::Result<()> {
    // SAFETY: the kernel reads or writes one structure of the size that it is told; all zeros is such a structure.
    unsafe {
        let mut attributes: libc::sched_attr = mem::zeroed();
        let size = mem::size_of::<libc::sched_attr>();
        let got = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0);
        if got != 0 {
            return Err(io::Error::last_os_error());
        }
        how(&mut attributes);
        match libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, thread};

    fn slice() -> u64 {
        // SAFETY: as above.
        unsafe {
            let mut attributes: libc::sched_attr = mem::zeroed();
            let size = mem::size_of::<libc::sched_attr>();
            libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0);
            attributes.sched_runtime
        }
    }

    #[test]
    fn this_thread_has_the_shortest_slice() {
        wake_at_once().unwrap();
        // Before Linux 6.12 there is none to ask for.
        assert!([0, SHORTEST].contains(&slice()), "{}", slice());
    }

    #[test]
    fn this_thread_is_patient_until_it_is_not() {
        // SAFETY: 0 is this thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        assert_eq!((policy(), is_default()), (libc::SCHED_OTHER, true));
        be_patient(true).unwrap();
        assert_eq!((policy(), is_default()), (libc::SCHED_BATCH, false));
        be_patient(false).unwrap();
        assert_eq!((policy(), is_default()), (libc::SCHED_OTHER, true));
    }

    #[test]
    fn waiting_for_the_processor_counts() {
        // SAFETY: the set is as large as the kernel is told.
        unsafe {
            let mut here: libc::cpu_set_t = mem::zeroed();
            libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap(), &mut here);
            assert_eq!(
                libc::sched_setaffinity(0, mem::size_of_val(&here), &raw const here),
                0
            );
        }
        let spent = Spent::of_this_thread().unwrap();
        let before = spent.read().unwrap();
        let test = Arc::new(());
        let goes_on = Arc::downgrade(&test);
        // Threads inherit where they may run. This one ends with the test, however that ends.
        let other = thread::spawn(move || {
            while goes_on.strong_count() > 0 {
                std::hint::spin_loop();
            }
        });
        let long = Duration::from_millis(5);
        while spent.read().unwrap().waited < before.waited + long {
            std::hint::spin_loop();
        }
        let after = spent.read().unwrap();
        assert!(after.ran > before.ran);
        assert!(after.both() >= before.both() + long);
        drop(test);
        other.join().unwrap();
    }

    #[test]
    fn niceness_is_kept() {
        // SAFETY: this thread's own.
        let (before, after) = unsafe {
            libc::setpriority(libc::PRIO_PROCESS, 0, 5);
            let before = libc::getpriority(libc::PRIO_PROCESS, 0);
            wake_at_once().unwrap();
            (before, libc::getpriority(libc::PRIO_PROCESS, 0))
        };
        assert_eq!(before, after);
    }
}
