//! What of all this a host offers.

use crate::{Wall, limit::check, namespace, root};
use std::{io, io::Read as _, os::fd::FromRawFd as _};

/// What can be used to confine processes on this host, as it is for this user. Nothing stays changed by looking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    /// Namespaces that can be made, of those that [`Wall`] names.
    pub namespaces: Vec<Wall>,
    /// The version of Landlock's interface; 0 if there is none.
    pub landlock: u32,
    /// Whether system calls can be filtered, with all answers that are used.
    pub seccomp: bool,
}

/// In the order in which they are tried, each in what those before have left.
const TRIED: [(Wall, libc::c_int); 6] = [
    (Wall::User, libc::CLONE_NEWUSER),
    (Wall::Network, libc::CLONE_NEWNET),
    (Wall::Ipc, libc::CLONE_NEWIPC),
    (Wall::Host, libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP),
    (Wall::Processes, libc::CLONE_NEWPID),
    (Wall::Mounts, libc::CLONE_NEWNS),
];

impl Support {
    /// Tries. Namespaces are made in a process that ends at once, since no file tells what a container forbids.
    pub fn probe() -> Self {
        Self {
            namespaces: namespaces().unwrap_or_default(),
            landlock: landlock(),
            seccomp: seccomp(),
        }
    }

    /// Whether this wall can be put up.
    pub fn offers(&self, wall: Wall) -> bool {
        match wall {
            Wall::Identity | Wall::Capabilities => true,
            Wall::Files => self.landlock > 0,
            Wall::Calls => self.seccomp,
            wall => self.namespaces.contains(&wall),
        }
    }
}

fn namespaces() -> io::Result<Vec<Wall>> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two numbers, for which there is room.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }.into())?;
    let [read, write] = ends;
    // SAFETY: other threads' locks may be held in the child for ever, so what it does until it ends are system calls: no memory is
    // allocated, no lock is taken.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut made = 0_u8;
        let nobody = 65_534;
        // SAFETY: the calls take numbers; for this process only, so not through the C library, which would tell all threads.
        unsafe {
            if libc::getuid() == 0 {
                libc::syscall(libc::SYS_setresgid, nobody, nobody, nobody);
                libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody);
            }
        }
        for (index, (_, flags)) in TRIED.iter().enumerate() {
            if namespace::unshare(*flags).is_ok() {
                made |= 1 << index;
            }
        }
        if made & 1 << 5 != 0 && !mounts() {
            made &= !(1 << 5);
        }
        // SAFETY: the byte outlives the call, and the process ends by the second.
        unsafe {
            libc::write(write, (&raw const made).cast(), 1);
            libc::_exit(0);
        }
    }
    let failed = (child < 0).then(io::Error::last_os_error);
    // SAFETY: nobody else has this descriptor.
    unsafe { libc::close(write) };
    // SAFETY: this one belongs to the file from here on.
    let mut answer = unsafe { std::fs::File::from_raw_fd(read) };
    if let Some(error) = failed {
        return Err(error);
    }
    let mut made = [0];
    let told = answer.read_exact(&mut made);
    // SAFETY: it is our child, and nobody else waits for it.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    told?;
    let [made] = made;
    let there = |(index, (wall, _)): (usize, &(Wall, _))| (made & 1 << index != 0).then_some(*wall);
    Ok(TRIED.iter().enumerate().filter_map(there).collect())
}

/// Whether a new mount namespace can be filled. System calls only: see above.
fn mounts() -> bool {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: all names end with a zero, the structure is as long as said, and all outlive the calls.
    unsafe {
        let private = libc::mount(
            std::ptr::null(),
            c"/".as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        );
        let memory = libc::mount(
            c"tmpfs".as_ptr(),
            root::UNDER.as_ptr(),
            c"tmpfs".as_ptr(),
            0,
            std::ptr::null(),
        );
        let read_only = libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            root::UNDER.as_ptr(),
            0,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        );
        private == 0 && memory == 0 && read_only == 0
    }
}

fn landlock() -> u32 {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the call reads nothing and makes nothing.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0,
            VERSION,
        )
    };
    u32::try_from(version).unwrap_or(0)
}

fn seccomp() -> bool {
    [libc::SECCOMP_RET_KILL_PROCESS, libc::SECCOMP_RET_ERRNO]
        .iter()
        .all(|action: &u32| {
            // SAFETY: the number outlives the call, which reads it and changes nothing.
            let there = unsafe {
                libc::syscall(
                    libc::SYS_seccomp,
                    libc::SECCOMP_GET_ACTION_AVAIL,
                    0,
                    &raw const *action,
                )
            };
            there == 0
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_nothing() {
        let before = std::fs::read_link("/proc/self/ns/user").unwrap();
        let support = Support::probe();
        assert_eq!(support, Support::probe());
        assert_eq!(std::fs::read_link("/proc/self/ns/user").unwrap(), before);
        for wall in [Wall::User, Wall::Files, Wall::Calls] {
            if !support.offers(wall) {
                println!("skipped: this host offers no {wall}");
            }
        }
    }
}
