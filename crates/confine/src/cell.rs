//! Processes that are forked for one guest each, from one that was confined for that purpose: a zygote.
//!
//! What guests of one kind have in common is put up once, in the zygote: identity, file system, network, limits. It keeps the capabilities
//! that it has in its own user namespace, since it makes further ones; so it runs no code but ours. Each child is in namespaces of
//! its own from its first instruction on ([`Cell::fork`]), and puts up the rest by itself ([`Cell::open`], [`Cell::close`]) before it runs
//! anything else.
//!
//! | wall | the zygote's | the child's own |
//! |---|---|---|
//! | identity | nobody's | nobody's, in a user namespace in which there is no one else |
//! | network, host | one empty namespace each | |
//! | mounts, ipc, processes | an empty root with what is granted | a copy, with an empty folder of its own; queues; only its own processes |
//! | session, process group | | its own |
//! | limits | of size, memory, time, files | of threads |
//! | capabilities, Landlock, seccomp | | none; what is granted; what such a guest needs |
//!
//! # Interpreters
//!
//! What takes long to start may be started once, and forked for each guest from then on. Such an interpreter runs a function's own code, so it is
//! not the zygote, but the zygote's child ([`Guests::Interpreter`]): in the zygote's user namespace, with none of its capabilities, and in a process
//! namespace whose first process is ours ([`Cell::settle`]). It forks guests into namespaces of their own, and as the zygote's children (`clone` with
//! `CLONE_PARENT`, the only way to namespaces that its filter leaves it); the zygote gives each what takes a capability ([`Cell::furnish`]), and
//! learns of its end. What an interpreter does to its guests is between a function and itself; all else stands between it and others that stands
//! between a guest and others, but for one: its Landlock leaves it, and them, all of its file system to write to, and that this is
//! read-only but for the folder of its own is the business of mounts alone.

use crate::{
    ConfineError, Confinement, Folder, Instruction, Processes, Report, Wall, bpf, capability,
    fence::Fence,
    filter,
    grants::Grants,
    limit::{self, check},
    namespace,
    root::NewRoot,
    seconds,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open, openat},
    io::{read, write},
    process::{
        DumpableBehavior, PidfdFlags, Resource, getgid, getpid, getppid, getuid, pidfd_open,
        set_dumpable_behavior, setsid,
    },
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::PathBuf,
    time::Duration,
};

/// What guests of a zygote may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guests {
    /// Compute in the memory that they have, and leave: no system call but the one that ends them.
    Pure,
    /// Run programs, each guest for itself.
    Programs {
        /// A folder that each guest has for itself: an empty file system in memory of so many bytes, which goes with the guest.
        scratch: Option<(PathBuf, u64)>,
    },
    /// Be forked from a program that the zygote has started, and that runs their function's code already. See the module.
    Interpreter {
        /// As above; the program has one, too.
        scratch: Option<(PathBuf, u64)>,
    },
}

impl Guests {
    fn scratch(&self) -> Option<&(PathBuf, u64)> {
        match self {
            Self::Pure => None,
            Self::Programs { scratch } | Self::Interpreter { scratch } => scratch.as_ref(),
        }
    }
}

/// What is left to put up for each child of a zygote. See the module.
pub struct Cell {
    guests: Guests,
    fence: Fence,
    filter: Vec<Instruction>,
    threads: u64,
    processor: Option<Duration>,
    /// The zygote itself: readable once it has ended.
    zygote: OwnedFd,
    /// `/proc`, which is nowhere to be found any more. For children to write down who they are.
    processes: OwnedFd,
    /// How: a file of theirs, and what goes into it.
    identity: [(&'static str, String); 3],
    /// What a child's own folder is mounted with.
    scratch: Option<(CString, CString)>,
    /// The same.
    own: Vec<Folder>,
    /// The zygote's own mounts, to come back to.
    mounts: OwnedFd,
}

/// The namespaces that each child has for itself.
const OWN: libc::c_int = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWNS;

impl Confinement {
    /// Confines this process for good, so far that it can fork guests. It must have one thread, and it ends with the thread that started it.
    ///
    /// All that a zygote and its children put up is demanded: [`ConfineError::Missing`] says what this host lacks.
    pub fn enter_to_fork(mut self, guests: Guests) -> Result<Cell, ConfineError> {
        limit::check_alone()?;
        let missing = |wall| {
            move |reason: io::Error| ConfineError::Missing {
                wall,
                reason: reason.to_string(),
            }
        };
        let mut report = Report::default();
        let parent = getppid();
        let _ = namespace::die_with_parent();
        let _ = limit::close_on_exec();
        self.processes = match guests {
            Guests::Pure => Processes::None,
            Guests::Programs { .. } | Guests::Interpreter { .. } => Processes::Children,
        };
        let given = self.write.clone();
        if let Some((path, _)) = guests.scratch() {
            self.write.push(Folder {
                path: path.clone(),
                in_memory: Some(0),
            });
        }
        let grants = Grants::find(&self).map_err(ConfineError::Grants)?;
        let (root, fence) = (NewRoot::of(&grants), Fence::of(&grants));
        drop(grants);
        report.put(Wall::Identity, namespace::give_root_up(&given));
        let mounts = namespace::separate(&mut report, Processes::None);
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let processes =
            open("/proc", folder, Mode::empty()).map_err(|error| missing(Wall::Processes)(error.into()))?;
        report.put(Wall::Mounts, mounts.and_then(|()| root.enter()));
        if let Some((wall, reason)) = report.missing().next() {
            return Err(missing(wall)(io::Error::other(reason.to_string())));
        }
        // Time is counted for each child from its beginning; the zygote lives for as long as it is wanted.
        let processor = self.limits.processor.take();
        self.limits.set(false)?;
        let fence = fence.map_err(missing(Wall::Files))?;
        let filter = match guests {
            Guests::Pure => filter::leave(),
            Guests::Programs { .. } => filter::build(self.processes, true),
            Guests::Interpreter { .. } => filter::interpreter(OWN),
        };
        let filter = filter.map_err(missing(Wall::Calls))?;
        capability::no_new().map_err(missing(Wall::Capabilities))?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(|error| missing(Wall::Capabilities)(error.into()))?;
        // Again, since becoming somebody else has cleared it.
        namespace::die_with(parent)?;

        let zygote = pidfd_open(getpid(), PidfdFlags::empty())
            .map_err(|error| missing(Wall::Processes)(error.into()))?;
        let (user, group) = (getuid().as_raw(), getgid().as_raw());
        let scratch = guests.scratch().and_then(|(path, bytes)| {
            let path = CString::new(path.as_os_str().as_bytes());
            let options = CString::new(format!("mode=700,size={bytes},nr_inodes=4096"));
            path.ok().zip(options.ok())
        });
        let own = match guests {
            // What is mounted for a guest later lies beneath the root, and beneath nothing else that there is already.
            Guests::Interpreter { .. } => vec![Folder {
                path: "/".into(),
                in_memory: Some(0),
            }],
            _ => self.write.split_off(given.len()),
        };
        let mounts = openat(
            &processes,
            "self/ns/mnt",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|error| missing(Wall::Mounts)(error.into()))?;
        Ok(Cell {
            fence,
            filter,
            threads: self.limits.threads,
            processor,
            zygote,
            processes,
            identity: [
                ("self/setgroups", "deny".to_owned()),
                ("self/uid_map", format!("{user} {user} 1")),
                ("self/gid_map", format!("{group} {group} 1")),
            ],
            scratch,
            own,
            mounts,
            guests,
        })
    }
}

impl Cell {
    /// Forks a guest: its number, or `None` in the guest, which is in namespaces of its own and calls [`Cell::open`] and [`Cell::close`].
    ///
    /// This process must have one thread. The guest ends with it.
    pub fn fork(&self) -> io::Result<Option<libc::pid_t>> {
        let own = match self.guests {
            Guests::Interpreter { .. } => libc::CLONE_NEWIPC | libc::CLONE_NEWNS,
            Guests::Pure | Guests::Programs { .. } => OWN,
        };
        // SAFETY: without a stack of its own and without shared memory this is a fork; the process has one thread, so no lock is held by another.
        let child = unsafe { libc::syscall(libc::SYS_clone, own | libc::SIGCHLD, 0, 0, 0, 0) };
        check(child)?;
        Ok((child != 0).then_some(child as libc::pid_t))
    }

    /// Has this guest end with its zygote, and puts it into a session of its own. From here on, until [`Cell::close`] says otherwise, its zygote can trace it if it is to run a program.
    pub fn open(&self) -> io::Result<()> {
        namespace::die_with_parent()?;
        // Process groups go across process namespaces: a signal to one's own reaches all that are in it. Landlock keeps it to what is confined
        // together, from Linux 6.12 on only. Out of a session there is no way into a group of another.
        setsid()?;
        if let Guests::Programs { .. } = self.guests {
            set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        }
        Ok(())
    }

    /// After [`Cell::open`]: puts up what is left, for good. A pure guest still has to put up [`Cell::filter`], since it cannot do anything afterwards.
    ///
    /// `last` is called while this guest's zygote can still trace it.
    pub fn close(&self, last: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if let Guests::Programs { .. } = self.guests {
            for (file, text) in &self.identity {
                let file = openat(
                    &self.processes,
                    *file,
                    OFlags::WRONLY | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                write(file, text.as_bytes())?;
            }
        }
        self.mount_scratch()?;
        last()?;
        capability::drop_now()?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        self.fence.try_clone()?.put_up(&self.own)?;
        // An interpreter's are those of all of its guests together, and its time is none of theirs.
        limit::lower(Resource::Nproc, self.threads)?;
        if let (Guests::Pure | Guests::Programs { .. }, Some(time)) = (&self.guests, self.processor) {
            limit::lower(Resource::Cpu, seconds(time))?;
        }
        // Who ended before this guest has asked to end with it does not end it. It is asked last: at first the kernel may be about it.
        self.check_zygote()?;
        if self.guests != Guests::Pure {
            bpf::apply(&self.filter)?;
        }
        Ok(())
    }

    fn mount_scratch(&self) -> io::Result<()> {
        let Some((path, options)) = &self.scratch else {
            return Ok(());
        };
        let unused = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let kind = c"tmpfs";
        // SAFETY: each pointer is that of a string that ends with a zero and outlives the call.
        let mounted = unsafe {
            libc::mount(
                kind.as_ptr(),
                path.as_ptr(),
                kind.as_ptr(),
                unused,
                options.as_ptr().cast(),
            )
        };
        check(mounted.into())
    }

    /// In the zygote of an interpreter, before that is forked: has all that it forks from now on be in a process namespace of their own. The first
    /// process there does nothing but to end with this zygote, and they with it: its number.
    pub fn settle(&self) -> io::Result<libc::pid_t> {
        namespace::unshare(libc::CLONE_NEWPID)?;
        // SAFETY: this process has one thread, so the child has no lock that another would have to give back.
        let first = unsafe { libc::fork() };
        check(first.into())?;
        if first > 0 {
            return Ok(first);
        }
        let _ = namespace::die_with_parent();
        if self.check_zygote().is_ok() && capability::drop_now().is_ok() {
            // SAFETY: nothing here uses a descriptor any more. Who is left behind by others is the kernel's to bury.
            unsafe {
                libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                loop {
                    libc::pause();
                }
            }
        }
        // SAFETY: it ends this process, in which nothing has to be done before.
        unsafe { libc::_exit(1) }
    }

    /// In the zygote: gives a guest that its interpreter has forked a folder of its own.
    pub fn furnish(&self, guest: libc::pid_t) -> io::Result<()> {
        let path = format!("{guest}/ns/mnt");
        let theirs = openat(
            &self.processes,
            path,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        move_into_link_name_space(theirs.as_fd(), Some(LinkNameSpaceType::Mount))?;
        let mounted = self.mount_scratch();
        move_into_link_name_space(self.mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
        mounted
    }

    /// In a guest: fails if its zygote has ended.
    pub fn check_zygote(&self) -> io::Result<()> {
        let mut watched = [PollFd::new(&self.zygote, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if poll(&mut watched, Some(&now))? > 0 {
            return Err(io::Error::other(ConfineError::Orphan));
        }
        Ok(())
    }

    /// In the zygote: what the kernel says of a guest in this file of its own, in at most 4 KiB.
    pub fn about(&self, guest: libc::pid_t, file: &str) -> io::Result<String> {
        let path = format!("{guest}/{file}");
        let file = openat(
            &self.processes,
            path,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mut text = vec![0; 4096];
        let length = read(&file, &mut text)?;
        text.truncate(length);
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// What a pure guest puts up last: after it nothing is left but to leave.
    pub fn filter(&self) -> &[Instruction] {
        &self.filter
    }
}
