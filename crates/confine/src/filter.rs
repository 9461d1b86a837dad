//! Which system calls the process may make.
//!
//! It is a list of what is allowed: a process that computes needs few calls, and a list of what is dangerous is out of date with the next
//! kernel. What is left out gets one of three answers.
//!
//! - **Not permitted** (`EPERM`) by default. Programs try much that they can do without: the standard library looks for the quota of a
//!   control group, the C library for a name server's socket. Ending them for it would make each new version of either a risk.
//! - **No such call** (`ENOSYS`) for those that have an older one to fall back to, which libraries do for this answer only. `clone3` is
//!   the important one: its flags lie in memory, where a filter cannot see them, and those of `clone` it can.
//! - **The end** (`SIGSYS`) for what no compiler or library tries by itself: to trace, to mount, to load code into the kernel. Who does is
//!   no longer running our program, and whoever started it learns of it by how it ended.
//!
//! Arguments are looked at where a number tells: flags of `clone` and `mmap`, which `prctl`, which `ioctl`. What pointers lead to cannot be seen,
//! so paths are the business of mounts and of Landlock.
//!
//! Memory is limited by what is private and written to. So anonymous memory may be neither shared nor growing downwards, which the kernel
//! does not count as such.

use crate::{
    Processes,
    bpf::{self, Answer, Condition, Rule, Rules},
};
use libc::{c_long, sock_filter};
use std::io;

/// For threads, memory, time and descriptors that are open.
const COMPUTE: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_uname,
    libc::SYS_write,
    libc::SYS_writev,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

/// Programs, and the files that mounts and Landlock leave to them.
const PROGRAMS: &[c_long] = &[
    libc::SYS_chdir,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchdir,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_mkdirat,
    libc::SYS_msync,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_truncate,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_wait4,
    libc::SYS_waitid,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getrlimit,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pipe,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// What Python, its standard library and its common extensions need beyond that: event loops, pipes between threads and children, and to
/// have less than they have.
const INTERPRETER: &[c_long] = &[
    libc::SYS_capset,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_getsid,
    libc::SYS_linkat,
    libc::SYS_memfd_create,
    libc::SYS_pselect6,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_setaffinity,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsid,
    libc::SYS_setpgid,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getpgrp,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pause,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
];

/// Everywhere the same; not in `libc` for each processor.
const FCHMODAT2: c_long = 452;

/// For which libraries fall back to an older call if there is no such one.
const NEWER: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_close_range,
    FCHMODAT2,
    libc::SYS_openat2,
    libc::SYS_pidfd_open,
];

/// What no program that is itself would try.
const HOSTILE: &[c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
];

/// Asks for an auxiliary vector; not in `libc` yet.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// Asks where the kernel clears a thread's number; not in `libc` yet.
const PR_GET_TID_ADDRESS: u64 = 40;

/// Every flag of `clone` that makes a namespace.
const NAMESPACES: u64 = (libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS) as u64;

/// Allows what such a process needs, for good. `own_processes` says that all that it can see are its own.
pub(crate) fn put_up(processes: Processes, own_processes: bool) -> io::Result<()> {
    bpf::apply(&build(processes, own_processes)?)
}

/// The same, to be applied later.
pub(crate) fn build(processes: Processes, own_processes: bool) -> io::Result<Vec<sock_filter>> {
    let mut rules = allowed(processes, own_processes);
    let no_such_call = Rule::Always(Answer::Refuse(libc::ENOSYS));
    rules.extend(NEWER.iter().map(|call| (*call, no_such_call.clone())));
    rules.extend(HOSTILE.iter().map(|call| (*call, Rule::Always(Answer::Kill))));
    bpf::program(&rules, Answer::Refuse(libc::EPERM))
}

/// What runs a function in Python, and forks it for each request, into these namespaces: what programs may do, and what comes with Python.
pub(crate) fn interpreter(own: libc::c_int) -> io::Result<Vec<sock_filter>> {
    let mut rules = allowed(Processes::Children, true);
    let no_such_call = Rule::Always(Answer::Refuse(libc::ENOSYS));
    rules.extend(NEWER.iter().map(|call| (*call, no_such_call.clone())));
    rules.extend(HOSTILE.iter().map(|call| (*call, Rule::Always(Answer::Kill))));
    rules.extend(
        INTERPRETER
            .iter()
            .map(|call| (*call, Rule::Always(Answer::Allow))),
    );
    let own = own | libc::CLONE_PARENT | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
    let clone = vec![vec![masked(0, NAMESPACES, 0)], vec![equal(0, own as u64)]];
    rules.insert(libc::SYS_clone, Rule::If(clone));
    let local = vec![equal(0, libc::AF_UNIX as u64)];
    rules.insert(libc::SYS_socketpair, Rule::If(vec![local]));
    if let Some(Rule::If(options)) = rules.get_mut(&libc::SYS_prctl) {
        options
            .extend([PR_GET_TID_ADDRESS, libc::PR_SET_PDEATHSIG as u64].map(|option| vec![equal(0, option)]));
    }
    // For this thread, and for all of them.
    let stricter = [0, libc::SECCOMP_FILTER_FLAG_TSYNC].map(|flags| {
        let filter = libc::SECCOMP_SET_MODE_FILTER;
        vec![equal(0, filter.into()), equal(1, flags)]
    });
    rules.insert(libc::SYS_seccomp, Rule::If(stricter.into()));
    bpf::program(&rules, Answer::Refuse(libc::EPERM))
}

/// Nothing but to leave: whatever else is tried is the end.
pub(crate) fn leave() -> io::Result<Vec<sock_filter>> {
    let leave = [libc::SYS_exit, libc::SYS_exit_group];
    let rules = leave.map(|call| (call, Rule::Always(Answer::Allow))).into();
    bpf::program(&rules, Answer::Kill)
}

fn allowed(processes: Processes, own_processes: bool) -> Rules {
    let children = processes == Processes::Children;
    let programs = if children { PROGRAMS } else { &[] };
    let always = |call: &c_long| (*call, Rule::Always(Answer::Allow));
    let mut rules: Rules = COMPUTE.iter().chain(programs).map(always).collect();
    let mut when = |call, alternatives: Vec<Vec<Condition>>| rules.insert(call, Rule::If(alternatives));

    let thread = libc::CLONE_THREAD as u64;
    let clone = if children {
        masked(0, NAMESPACES, 0)
    } else {
        masked(0, NAMESPACES | thread, thread)
    };
    when(libc::SYS_clone, vec![vec![clone]]);

    let [shared, anonymous, downwards] =
        [libc::MAP_SHARED, libc::MAP_ANONYMOUS, libc::MAP_GROWSDOWN].map(|flag| flag as u64);
    let private = masked(3, shared | downwards, 0);
    let of_a_file = masked(3, anonymous | downwards, 0);
    when(libc::SYS_mmap, vec![vec![private], vec![of_a_file]]);

    // A limit can be lowered, and is another process's with another number.
    when(libc::SYS_prlimit64, vec![vec![equal(0, 0)]]);
    // Only to have less: see `give_way`.
    let own_priority = vec![equal(0, u64::from(libc::PRIO_PROCESS)), equal(1, 0)];
    when(libc::SYS_setpriority, vec![own_priority]);
    let idle = vec![equal(0, 0), equal(1, libc::SCHED_IDLE as u64)];
    when(libc::SYS_sched_setscheduler, vec![idle]);

    let harmless = [
        libc::PR_SET_NAME as u64,
        libc::PR_GET_NAME as u64,
        libc::PR_GET_DUMPABLE as u64,
        libc::PR_SET_VMA as u64,
        PR_GET_AUXV,
    ];
    when(
        libc::SYS_prctl,
        harmless.map(|option| vec![equal(0, option)]).into(),
    );
    // Whether it is a terminal, and how wide; how a descriptor is read, and until when it is open.
    let requests = [libc::TCGETS, libc::TIOCGWINSZ, libc::FIONBIO, libc::FIOCLEX];
    when(
        libc::SYS_ioctl,
        requests.map(|request| vec![equal(1, request)]).into(),
    );

    if children && own_processes {
        rules.extend([libc::SYS_kill, libc::SYS_tgkill].iter().map(always));
    } else {
        // To abort; a program that it starts has another number, and aborts by an invalid instruction.
        when(libc::SYS_tgkill, vec![vec![equal(0, std::process::id().into())]]);
    }
    #[cfg(target_arch = "x86_64")]
    if children {
        rules.insert(libc::SYS_setrlimit, Rule::Always(Answer::Allow));
    }
    rules
}

/// That an argument is this number. The kernel takes 32 bits of all that are asked for here.
fn equal(argument: u32, value: u64) -> Condition {
    masked(argument, u64::from(u32::MAX), value)
}

/// That of these bits of an argument exactly those of the value are set.
fn masked(argument: u32, bits: u64, value: u64) -> Condition {
    Condition {
        argument,
        bits,
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_both_needed_and_hostile() {
        for call in HOSTILE {
            assert!(
                !COMPUTE.contains(call) && !PROGRAMS.contains(call) && !NEWER.contains(call),
                "{call}"
            );
        }
    }

    #[test]
    fn filters_are_built_for_both_kinds() {
        for processes in [Processes::None, Processes::Children] {
            for own in [false, true] {
                let filter = build(processes, own).unwrap();
                assert!(filter.len() < 600, "{}", filter.len());
            }
        }
    }
}
