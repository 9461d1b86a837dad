//! Control groups: what all processes of one guest use together.
//!
//! A limit of [`Limits`](crate::Limits) is each process's. A guest that has several is bounded by a [`Group`]: memory and processes, of all that are in it. A
//! process goes in by itself, as its first act, by writing to files that were opened for it ([`Group::doors`], [`go_in`]); so it is in there before it runs anything
//! else, and it may be nobody and in namespaces by then, for the kernel asks who opened the file. Whatever it starts is in there, too, and none gets out,
//! since there are no such files for it.
//!
//! Both versions of the kernel's interface serve: one hierarchy for each controller (1), or one for all (2). Making groups takes the right to change the
//! group that this process is in: root has it, others if it was delegated to them.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// What the files of a hierarchy are called, and what they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hierarchy {
    /// Version 1, memory.
    Memory,
    /// Version 1, processes.
    Processes,
    /// Version 2.
    All,
}

/// Groups of this process's making, all of them in one.
#[derive(Debug)]
pub struct Groups {
    folders: Vec<(Hierarchy, PathBuf)>,
}

/// A group for the processes of one guest at a time.
#[derive(Debug)]
pub struct Group {
    folders: Vec<(Hierarchy, PathBuf)>,
    doors: Vec<File>,
    /// Where the kernel counts whom it has ended for want of memory.
    ended: File,
    /// How many that were when somebody last asked.
    known: u64,
    limits: Option<(u64, u64)>,
}

/// Before the number of the process that made them, and theirs among those of that process.
const NAME: &str = "millpond-";

/// How often this process has made some.
static MADE: AtomicU32 = AtomicU32::new(0);

impl Groups {
    /// Where this process's groups are to be. Those of processes that have ended without removing theirs go.
    pub fn make() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NAME}{}.{number}", process::id());
        let mut folders = Vec::new();
        for (hierarchy, folder) in parents(&mounts, &own)? {
            remove_stale(&folder);
            let folder = folder.join(&name);
            make(&folder)?;
            if hierarchy == Hierarchy::All {
                fs::write(folder.join("cgroup.subtree_control"), "+memory +pids")?;
            }
            folders.push((hierarchy, folder));
        }
        Ok(Self { folders })
    }

    /// One more.
    pub fn group(&self, name: &str) -> io::Result<Group> {
        let mut folders = Vec::new();
        let mut doors = Vec::new();
        let mut ended = None;
        for (hierarchy, folder) in &self.folders {
            let folder = folder.join(name);
            make(&folder)?;
            doors.push(OpenOptions::new().write(true).open(folder.join("cgroup.procs"))?);
            match hierarchy {
                Hierarchy::Memory => ended = Some(File::open(folder.join("memory.oom_control"))?),
                Hierarchy::All => ended = Some(File::open(folder.join("memory.events"))?),
                Hierarchy::Processes => {}
            }
            folders.push((*hierarchy, folder));
        }
        let ended = ended.ok_or_else(|| io::Error::other("no hierarchy counts memory"))?;
        Ok(Group {
            folders,
            doors,
            ended,
            known: 0,
            limits: None,
        })
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for (_, folder) in &self.folders {
            remove(folder);
        }
    }
}

impl Group {
    /// Bytes of memory and processes, of all that are in it together.
    pub fn limit(&mut self, memory: u64, processes: u64) -> io::Result<()> {
        if self.limits == Some((memory, processes)) {
            return Ok(());
        }
        for (hierarchy, folder) in &self.folders {
            let write = |file: &str, value: u64| fs::write(folder.join(file), value.to_string());
            // What cannot be counted on this host does not have to be refused.
            let _ = match hierarchy {
                Hierarchy::Memory => {
                    // The sum with swap is never to be below memory alone, whichever way this goes.
                    let _ = fs::write(folder.join("memory.memsw.limit_in_bytes"), "-1");
                    write("memory.limit_in_bytes", memory)?;
                    write("memory.memsw.limit_in_bytes", memory)
                }
                Hierarchy::Processes => {
                    write("pids.max", processes)?;
                    Ok(())
                }
                Hierarchy::All => {
                    write("memory.max", memory)?;
                    write("pids.max", processes)?;
                    write("memory.swap.max", 0)
                }
            };
        }
        self.limits = Some((memory, processes));
        Ok(())
    }

    /// For [`go_in`].
    pub fn doors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.doors.iter().map(AsFd::as_fd)
    }

    /// Whether the kernel has ended a process in it for want of memory since this was last asked.
    pub fn ran_out(&mut self) -> bool {
        let mut text = String::new();
        let read = self
            .ended
            .rewind()
            .and_then(|()| self.ended.read_to_string(&mut text));
        let count = text
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
        match (read, count) {
            (Ok(_), Some(count)) => std::mem::replace(&mut self.known, count) < count,
            _ => false,
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (_, folder) in &self.folders {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// This process goes into the group of these doors, with all that it will start.
pub fn go_in(doors: &[impl AsFd]) -> io::Result<()> {
    for door in doors {
        File::from(door.as_fd().try_clone_to_owned()?).write_all(b"0")?;
    }
    Ok(())
}

fn make(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder).map_err(|error| {
        let text = format!("the control group {} cannot be made: {error}", folder.display());
        io::Error::new(error.kind(), text)
    })
}

/// A group and those in it.
fn remove(folder: &Path) {
    for inner in fs::read_dir(folder).into_iter().flatten().flatten() {
        // Its files go with it, and are not for us to remove.
        let _ = fs::remove_dir(inner.path());
    }
    let _ = fs::remove_dir(folder);
}

fn remove_stale(folder: &Path) {
    for found in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = found.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(NAME));
        if let Some((maker, _)) = maker.and_then(|maker| maker.split_once('.'))
            && !Path::new("/proc").join(maker).exists()
        {
            remove(&found.path());
        }
    }
}

/// Where groups of this process's can be, in each hierarchy that counts.
fn parents(mounts: &str, own: &str) -> io::Result<Vec<(Hierarchy, PathBuf)>> {
    if let Some(folder) = find(mounts, own, None) {
        let controllers = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
        let has = |wanted| controllers.split_whitespace().any(|one| one == wanted);
        if has("memory") && has("pids") {
            // A group with processes can have no groups that count, so it is the one above, if the node was started in one of its own.
            let ways = [Some(folder.as_path()), folder.parent()];
            let delegated = ways
                .into_iter()
                .flatten()
                .find(|folder| fs::write(folder.join("cgroup.subtree_control"), "+memory +pids").is_ok());
            return match delegated {
                Some(folder) => Ok(vec![(Hierarchy::All, folder.to_owned())]),
                None => Err(io::Error::other(format!(
                    "the control group {} was not delegated to this process (systemd does so with Delegate=yes and \
                     DelegateSubgroup=node)",
                    folder.display()
                ))),
            };
        }
    }
    let one = |hierarchy, controller: &str| {
        find(mounts, own, Some(controller))
            .map(|folder| (hierarchy, folder))
            .ok_or_else(|| io::Error::other(format!("this host's control groups do not count {controller}")))
    };
    Ok(vec![
        one(Hierarchy::Memory, "memory")?,
        one(Hierarchy::Processes, "pids")?,
    ])
}

/// The folder of this process's own group in the hierarchy of a controller, or in that of version 2.
fn find(mounts: &str, own: &str, controller: Option<&str>) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let found = match controller {
            Some(controller) => controllers.split(',').any(|one| one == controller),
            None => controllers.is_empty(),
        };
        found.then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let (kind, options) = (kind.next()?, kind.nth(1)?);
        let found = match controller {
            Some(controller) => kind == "cgroup" && options.split(',').any(|one| one == controller),
            None => kind == "cgroup2",
        };
        // What is mounted may be a part of the hierarchy: a container's own.
        let inside = Path::new(path).strip_prefix(root).ok()?;
        found.then(|| Path::new(point).join(inside))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 /docker/x /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
40 31 0:31 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const OWN: &str = "\
9:cpu,cpuacct:/a
4:memory:/docker/x/b
0::/c/d
";

    #[test]
    fn the_own_group_is_found_in_each_hierarchy() {
        let found = |controller| find(MOUNTS, OWN, controller);
        assert_eq!(found(Some("memory")), Some("/sys/fs/cgroup/memory/b".into()));
        assert_eq!(
            found(Some("cpuacct")),
            Some("/sys/fs/cgroup/cpu,cpuacct/a".into())
        );
        assert_eq!(found(None), Some("/sys/fs/cgroup/unified/c/d".into()));
        assert_eq!(found(Some("pids")), None);
        assert_eq!(find("", OWN, None), None);
        assert_eq!(find(MOUNTS, "nonsense\n4:memory\n", Some("memory")), None);
    }

    #[test]
    fn a_group_has_its_limits_and_goes_with_its_maker() {
        let groups = match Groups::make() {
            Ok(groups) => groups,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let folders = groups.folders.clone();
        let mut group = groups.group("one").unwrap();
        for memory in [64 << 20, 16 << 20, 32 << 20] {
            group.limit(memory, 7).unwrap();
        }
        assert!(!group.ran_out());
        let read = |file: &str| {
            let files = group.folders.iter().map(|(_, folder)| folder.join(file));
            files.filter_map(|file| fs::read_to_string(file).ok()).next()
        };
        assert_eq!(read("pids.max").unwrap().trim(), "7");
        let memory = read("memory.limit_in_bytes")
            .or_else(|| read("memory.max"))
            .unwrap();
        assert_eq!(memory.trim(), (32 << 20).to_string());
        drop((group, groups));
        assert!(folders.iter().all(|(_, folder)| !folder.exists()));
    }
}
