//! Who the process is, and which others it sees.

use crate::{ConfineError, Folder, Processes, Report, Wall, limit::check};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    pipe::{PipeFlags, pipe_with},
    process::{
        DumpableBehavior, Gid, Pid, Signal, Uid, getgid, getppid, getuid, set_dumpable_behavior,
        set_parent_process_death_signal,
    },
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use std::{fs, io, os::unix::fs::chown};

/// Whom a process of root becomes: the kernel's word for nobody.
const NOBODY: u32 = 65_534;

/// Has the kernel end this process when the thread that started it ends.
pub(crate) fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Makes a process of root nobody's, and gives it these folders. All others are unprivileged as they are.
pub(crate) fn give_root_up(folders: &[Folder]) -> io::Result<()> {
    if !getuid().is_root() {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    for folder in folders {
        // A folder that cannot be given away is one that cannot be written to, which matters less than to be root.
        let _ = chown(&folder.path, Some(NOBODY), Some(NOBODY));
    }
    // In a user namespace of somebody's these may be refused, and there they do not matter.
    let _ = set_thread_groups(&[]);
    set_thread_res_gid(group, group, group)?;
    // It takes the capabilities away as well.
    set_thread_res_uid(user, user, user)?;
    Ok(())
}

/// Leaves the namespaces that it shares with others. The result is that for the file system.
pub(crate) fn separate(report: &mut Report, processes: Processes) -> io::Result<()> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let mut wanted = vec![
        (Wall::Network, libc::CLONE_NEWNET),
        (Wall::Ipc, libc::CLONE_NEWIPC),
        (Wall::Host, libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP),
        (Wall::Mounts, libc::CLONE_NEWNS),
    ];
    if processes == Processes::Children {
        wanted.push((Wall::Processes, libc::CLONE_NEWPID));
    }
    // Files of `/proc/self` are root's while this is not so, and the next step writes to some.
    let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
    let all = wanted
        .iter()
        .fold(libc::CLONE_NEWUSER, |all, (_, flag)| all | flag);
    // All at once costs the least; what is refused then is found one by one.
    let at_once = unshare(all).is_ok();
    let own = if at_once {
        Ok(())
    } else {
        unshare(libc::CLONE_NEWUSER)
    };
    if own.is_ok() {
        // Its user is the same inside as outside. What it may do in there it may by the capabilities that it has until they are dropped.
        let map = |file: &str, text: String| fs::write(format!("/proc/self/{file}"), text);
        let mapped = map("setgroups", "deny".to_owned())
            .and_then(|()| map("uid_map", format!("{user} {user} 1")))
            .and_then(|()| map("gid_map", format!("{group} {group} 1")));
        report.put(Wall::User, mapped);
    } else {
        report.put(Wall::User, own);
    }
    let mut mounts = Err(io::Error::from(io::ErrorKind::Unsupported));
    for (wall, flag) in wanted {
        let result = if at_once { Ok(()) } else { unshare(flag) };
        match wall {
            Wall::Mounts => mounts = result,
            wall => report.put(wall, result),
        }
    }
    mounts
}

pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: none of the flags used here concerns memory or descriptors, and the process has one thread.
    check(unsafe { libc::unshare(flags) }.into())
}

/// The same, unless that thread's process is no longer this one: then it has ended before, and nobody would end this one.
pub(crate) fn die_with(parent: Option<Pid>) -> Result<(), ConfineError> {
    let _ = die_with_parent();
    if getppid() == parent {
        Ok(())
    } else {
        Err(ConfineError::Orphan)
    }
}

/// If there is a process namespace to go into, the caller goes on in there as its first process; the one that it was waits outside,
/// does nothing else, and ends in the same way, or when this parent has ended. What is held is for the one that goes on, and the other
/// lets go of it.
pub(crate) fn wait_outside<T>(report: &Report, parent: Option<Pid>, held: T) -> Result<T, ConfineError> {
    if !report.stands(Wall::Processes) {
        return Ok(held);
    }
    let failed = |reason: io::Error| ConfineError::Missing {
        wall: Wall::Processes,
        reason: reason.to_string(),
    };
    // Nobody writes; that its other end closes tells the inner process that the outer one has ended.
    let (ends, stays) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    // SAFETY: this process has one thread, so the child has no lock that another would have to give back.
    let child = unsafe { libc::fork() };
    match child {
        0 => {
            drop(stays);
            let _ = die_with_parent();
            let mut watched = [PollFd::new(&ends, PollFlags::empty())];
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            match poll(&mut watched, Some(&now)) {
                Ok(0) => Ok(held),
                _ => Err(ConfineError::Orphan),
            }
        }
        1.. => {
            drop(held);
            shell(child, parent)
        }
        _ => Err(failed(io::Error::last_os_error())),
    }
}

/// What stays outside.
fn shell(child: libc::pid_t, parent: Option<Pid>) -> ! {
    // Whoever listens to the process is to hear from the inner one only, and of its end. The death signal has been lost with the old identity.
    if die_with(parent).is_err() {
        // SAFETY: it ends this process, and the inner one with it.
        unsafe { libc::_exit(1) };
    }
    for descriptor in 0..=2 {
        // SAFETY: from here on nothing in this process uses a standard stream.
        unsafe { libc::close(descriptor) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {}
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        // SAFETY: the handler is the kernel's own, so nothing of ours is called; no core is to be left of this process.
        unsafe {
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            libc::signal(signal, libc::SIG_DFL);
            libc::kill(libc::getpid(), signal);
        }
    }
    // SAFETY: it ends this process, and nothing has to be done before that.
    unsafe { libc::_exit(libc::WEXITSTATUS(status)) }
}
