//! One way to lock a process up.
//!
//! A [`Confinement`] says what a process may still do, and [`Confinement::enter`] takes everything else from the process that calls
//! it, for good. That process is a program of ours, started for the purpose, which has not read anything hostile so far; whatever
//! it reads afterwards can make it do no more than is left. Its walls, in the order in which they are put up:
//!
//! | | wall | what is behind it |
//! |---|---|---|
//! | 1 | [`Wall::Identity`] | a process of root becomes nobody's: no file is its own, and the kernel's limits hold for it |
//! | 2 | [`Wall::User`], [`Wall::Network`], [`Wall::Ipc`], [`Wall::Host`], [`Wall::Processes`] | namespaces of its own: no interface, no queue, no process of others |
//! | 3 | [`Wall::Mounts`] | an empty, read-only file system, with what it may use bound into it |
//! | | (control groups) | come here, once there are some: before the process can no longer write to their files |
//! | 4 | limits | what one process may use: memory, time on processors, files, threads |
//! | 5 | [`Wall::Capabilities`] | none, and none to be had by starting a program |
//! | 6 | [`Wall::Files`] | Landlock: the same files again, by right; and no signal to a process outside |
//! | 7 | [`Wall::Calls`] | seccomp: the system calls that such a process makes, and no others |
//!
//! The order is not free. What is made in a user namespace needs its capabilities; Landlock forbids to mount, so the file system comes
//! before; seccomp forbids what puts up the others, so it comes last. There is no network in any of them, and no way to ask for it.
//!
//! Before the first wall, what is granted is opened, as whoever the process still is: nobody could not enter `/root`, where rustup keeps
//! its compilers. Mounts and Landlock go by these descriptors, and none of them is open any more when the process goes on. What that means for what can be
//! reached stands at the head of `grants.rs`: the files that are granted, wherever they lie, and no folder on the way to them.
//!
//! Most walls stand twice, on purpose: files are out of reach by mounts, by Landlock and, where none are granted, because no call opens
//! any. Hosts differ (containers often refuse namespaces), and so a wall that cannot be put up is told in the [`Report`] and the others
//! stand; whoever cannot do with less lists it in [`Confinement::demands`]. [`Support::probe`] says what a host offers.
//!
//! # Programs
//!
//! Where [`Confinement::processes`] is [`Processes::Children`], the process may start the programs in [`Confinement::execute`], and these
//! inherit all of this. Whoever ends the process must be rid of them, too. Process groups with a death signal would not do: the signal
//! reaches children and not theirs (a compiler's linker), and it is lost when a process changes its identity. So the process is made the
//! first of a process namespace, with whose end the kernel ends all others in it, at once and whatever they do. That takes a fork: the
//! process that called [`Confinement::enter`] stays behind as a shell around it, waits, and ends as it ends; and ends it by being ended.
//! Where there are no process namespaces, the filter forbids to leave the process group, so that whoever started the
//! process can end the group.
//!
//! # What it does not do
//!
//! Limits are each process's, not all of them together; a sum takes control groups. What is mapped and open already stays: descriptors
//! that are open, standard input and output above all, can be used, and are only closed for programs.

#[cfg(not(target_os = "linux"))]
compile_error!("confinement is Linux's");

mod bpf;
mod capability;
mod cell;
mod fence;
mod filter;
mod grants;
mod group;
mod limit;
mod namespace;
mod probe;
mod root;

pub use cell::{Cell, Guests};
pub use group::{Controller, Group, GroupLimits, Groups, go_in, put_in};
pub use libc::sock_filter as Instruction;
pub use limit::{Limits, give_way};
pub use probe::Support;

use fence::Fence;
use grants::Grants;
use root::NewRoot;
use rustix::process::getppid;
use std::{fmt, io, path::PathBuf, time::Duration};

/// What a process may still do. All paths are absolute; what does not exist is left out.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    /// Files that may be read, and folders with all that is in them.
    pub read: Vec<PathBuf>,
    /// The same, and they may be run: programs, and what loads them.
    pub execute: Vec<PathBuf>,
    /// Folders that may be written to. Nothing in them can be run.
    pub write: Vec<Folder>,
    /// Files and folders that are found elsewhere than they are, to be read and run.
    pub placed: Vec<Placed>,
    /// Whether it may start programs.
    pub processes: Processes,
    /// What it may use of the host, and each program that it starts.
    pub limits: Limits,
    /// Walls without which it must not go on.
    pub demands: Vec<Wall>,
}

/// Programs that a process starts, and what they need: for [`Confinement::read`] and [`Confinement::execute`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programs {
    /// What they read.
    pub read: Vec<PathBuf>,
    /// Themselves, and what loads them.
    pub execute: Vec<PathBuf>,
}

/// A file or folder that a process finds in another place. Only [`Wall::Mounts`] can do that: without it, it is where it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Where it is.
    pub path: PathBuf,
    /// Where it is found.
    pub at: PathBuf,
}

/// A folder that is private to one process: its maker's, who removes it in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Where it is. A process of root gives it away.
    pub path: PathBuf,
    /// Behind [`Wall::Mounts`], an empty file system in memory of so many bytes takes its place, and goes with the process.
    pub in_memory: Option<u64>,
}

/// Whether a process may start programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processes {
    /// Threads, and no process.
    #[default]
    None,
    /// Programs, which end with it. `/dev/null` is there for them.
    Children,
}

/// One of the things that keep a process in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Wall {
    /// It is not root.
    Identity,
    /// A user namespace.
    User,
    /// A network namespace without a device.
    Network,
    /// A namespace of queues and shared memory.
    Ipc,
    /// A namespace of the host's name, and one of control groups.
    Host,
    /// A process namespace. Only for those that may start programs.
    Processes,
    /// A file system of its own.
    Mounts,
    /// No capabilities, and none to be had.
    Capabilities,
    /// Landlock.
    Files,
    /// A filter of system calls.
    Calls,
}

impl Wall {
    /// As a person calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "an unprivileged user",
            Self::User => "user namespace",
            Self::Network => "network namespace",
            Self::Ipc => "ipc namespace",
            Self::Host => "uts and cgroup namespaces",
            Self::Processes => "process namespace",
            Self::Mounts => "mount namespace",
            Self::Capabilities => "capabilities dropped",
            Self::Files => "Landlock",
            Self::Calls => "seccomp",
        }
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which walls stand.
#[derive(Debug, Default)]
pub struct Report {
    walls: Vec<(Wall, io::Result<()>)>,
}

impl Report {
    /// Whether this one does.
    pub fn stands(&self, wall: Wall) -> bool {
        self.walls.iter().any(|(one, put)| *one == wall && put.is_ok())
    }

    /// Those that should and do not, with the reason.
    pub fn missing(&self) -> impl Iterator<Item = (Wall, &io::Error)> {
        self.walls
            .iter()
            .filter_map(|(wall, put)| Some((*wall, put.as_ref().err()?)))
    }

    fn put(&mut self, wall: Wall, result: io::Result<()>) {
        self.walls.push((wall, result));
    }
}

/// Why a process must not go on. It may be half confined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// It has other threads, which would stay outside.
    #[error("a process is confined before it starts threads, and this one has {0}")]
    Threads(usize),
    /// A wall that was demanded cannot be put up.
    #[error("{} is demanded and cannot be had here: {reason}", wall.name())]
    Missing {
        /// Which.
        wall: Wall,
        /// What the kernel says.
        reason: String,
    },
    /// A limit that the kernel does not take.
    #[error("cannot limit {what}: {reason}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// What the kernel says.
        reason: io::Error,
    },
    /// What is granted cannot be looked up.
    #[error("cannot look up what the process may use: {0}")]
    Grants(io::Error),
    /// Whoever started the process has ended.
    #[error("who started this process has ended")]
    Orphan,
}

impl Confinement {
    /// Confines this process, for good. It must have one thread.
    ///
    /// It ends with the thread that started it from now on. With [`Processes::Children`] the caller goes on in a child, whose end becomes that of
    /// this process; neither should hold output back in memory when this is called, nor count on its process id.
    pub fn enter(self) -> Result<Report, ConfineError> {
        limit::check_alone()?;
        let mut report = Report::default();
        let parent = getppid();
        let _ = namespace::die_with_parent();
        // Programs get what they are given and nothing that happened to be open.
        let _ = limit::close_on_exec();
        let counted = limit::threads_are_counted_by_namespace();

        // As whoever it still is.
        let grants = Grants::find(&self).map_err(ConfineError::Grants)?;
        let (root, fence) = (NewRoot::of(&grants), Fence::of(&grants));
        drop(grants);

        report.put(Wall::Identity, namespace::give_root_up(&self.write));
        let mounts = namespace::separate(&mut report, self.processes);
        let (root, fence) = namespace::wait_outside(&report, parent, (root, fence))?;
        report.put(Wall::Mounts, mounts.and_then(|()| root.enter()));
        self.limits.set(counted && report.stands(Wall::User))?;
        report.put(Wall::Capabilities, capability::drop_all());
        report.put(Wall::Files, fence.and_then(|fence| fence.put_up(&self.write)));
        // Again, since becoming somebody else has cleared it. In a process namespace of its own it has been seen to.
        let own_processes = report.stands(Wall::Processes);
        if own_processes {
            let _ = namespace::die_with_parent();
        } else {
            namespace::die_with(parent)?;
        }
        report.put(Wall::Calls, filter::put_up(self.processes, own_processes));

        for wall in self.demands {
            if !report.stands(wall) {
                let reason = report
                    .missing()
                    .find(|(missing, _)| *missing == wall)
                    .map_or_else(
                        || "it was not asked for".to_owned(),
                        |(_, error)| error.to_string(),
                    );
                return Err(ConfineError::Missing { wall, reason });
            }
        }
        Ok(report)
    }
}

/// What programs are given in place of a stream.
const NOTHING: &str = "/dev/null";

/// For a limit in whole seconds.
fn seconds(time: Duration) -> u64 {
    time.as_secs().max(1)
}
