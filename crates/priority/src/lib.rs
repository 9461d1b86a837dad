//! What a thread asks of the kernel's scheduler.

use std::{io, mem};

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
    // SAFETY: the kernel reads or writes one structure of the size that it is told; all zeros is such a structure.
    unsafe {
        let mut attributes: libc::sched_attr = mem::zeroed();
        let size = mem::size_of::<libc::sched_attr>();
        let got = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0);
        if got != 0 {
            return Err(io::Error::last_os_error());
        }
        attributes.sched_runtime = SHORTEST;
        match libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
