//! What one process may use.

use crate::{ConfineError, seconds};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{fs, io, time::Duration};

/// Limits of one process, which each program that it starts has for itself. The numbers are the kernel's to keep: who exceeds them is
/// refused, or ended where there is nothing to refuse. It leaves no core behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory that it may write to.
    pub memory: u64,
    /// Bytes of the stack of each program's first thread. Others are as large, unless they say otherwise.
    pub stack: Option<u64>,
    /// Bytes of address space. What is reserved and never touched counts, which some programs have a lot of.
    pub address_space: Option<u64>,
    /// Time on processors, all its threads together.
    pub processor: Option<Duration>,
    /// Bytes of one file that it writes.
    pub file_size: u64,
    /// Descriptors.
    pub open_files: u64,
    /// Threads, those of the programs that it starts included. The kernel counts them by user, so this holds only in a user namespace,
    /// where the user's other processes are not seen.
    pub threads: u64,
}

impl Default for Limits {
    /// A gibibyte of memory and no file.
    fn default() -> Self {
        Self {
            memory: 1 << 30,
            stack: None,
            address_space: None,
            processor: None,
            file_size: 0,
            open_files: 64,
            threads: 64,
        }
    }
}

impl Limits {
    pub(crate) fn set(&self, threads: bool) -> Result<(), ConfineError> {
        let lower = |what, resource, most: Option<u64>| {
            most.map_or(Ok(()), |most| lower(resource, most))
                .map_err(|reason| ConfineError::Limit { what, reason })
        };
        lower("core files", Resource::Core, Some(0))?;
        lower("memory", Resource::Data, Some(self.memory))?;
        lower("locked memory", Resource::Memlock, Some(0))?;
        lower("the stack", Resource::Stack, self.stack)?;
        lower("address space", Resource::As, self.address_space)?;
        lower("processor time", Resource::Cpu, self.processor.map(seconds))?;
        lower("the size of files", Resource::Fsize, Some(self.file_size))?;
        lower("open files", Resource::Nofile, Some(self.open_files))?;
        lower("threads", Resource::Nproc, threads.then_some(self.threads))
    }
}

/// Confining a process confines the thread that asks for it; others would stay outside.
pub(crate) fn check_alone() -> Result<(), ConfineError> {
    match fs::read_dir("/proc/self/task").map(Iterator::count) {
        Ok(threads @ 2..) => Err(ConfineError::Threads(threads)),
        _ => Ok(()),
    }
}

/// Lowers both limits, and leaves those that are lower already.
pub(crate) fn lower(resource: Resource, most: u64) -> io::Result<()> {
    let maximum = getrlimit(resource).maximum.map_or(most, |now| now.min(most));
    let limit = Rlimit {
        current: Some(maximum),
        maximum: Some(maximum),
    };
    Ok(setrlimit(resource, limit)?)
}

/// Whether the kernel counts the threads of a user namespace apart from the user's others: since Linux 5.14.
pub(crate) fn threads_are_counted_by_namespace() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (5, 14),
        _ => false,
    }
}

/// Has all descriptors but the standard three closed when a program is started.
pub(crate) fn close_on_exec() -> io::Result<()> {
    // SAFETY: the call takes numbers only, and with this flag it closes nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    check(result)
}

/// Has this process, and the programs that it starts, run only when nothing else wants a processor. It must have one thread; and it
/// may be confined already.
pub fn give_way() -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    let nice = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    check(nice.into())?;
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure outlives the call, which only reads it.
    let idle = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) };
    check(idle.into())
}

/// What a system call's result means.
pub(crate) fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
