//! Control groups: what all processes of one guest use together.
//!
//! A limit of [`Limits`](crate::Limits) is each process's. A guest that has several is bounded by a [`Group`]: memory, processes and cores, of all that are in it,
//! and their time on these is counted. A process goes in by itself, as its first act, by writing to files that were opened for it ([`Group::doors`], [`go_in`]);
//! so it is in there before it runs anything else, and it may be nobody and in namespaces by then, for the kernel asks who opened the file. Whatever it starts is in
//! there, too, and none gets out, since there are no such files for it.
//!
//! Both versions of the kernel's interface serve: a hierarchy for one controller or some (1), or one for all (2). Making groups takes the right to change the
//! group that this process is in: root has it, others if it was delegated to them. Memory and processes are limited wherever there are groups; what
//! else a host counts, [`Groups::counts`] says.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// What the kernel counts of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Bytes of memory.
    Memory,
    /// Processes and threads.
    Processes,
    /// How much of a processor, at any time.
    Cores,
    /// Time on processors, in all.
    Time,
}

impl Controller {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Processes, Self::Cores, Self::Time];

    /// The kernel's name, of version 1.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Cores => "cpu",
            Self::Time => "cpuacct",
        }
    }

    /// Whether no group is of use without it.
    fn is_needed(self) -> bool {
        matches!(self, Self::Memory | Self::Processes)
    }
}

/// A folder of control groups, or one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// Whether the files are those of version 2.
    unified: bool,
    controllers: Vec<Controller>,
    folder: PathBuf,
}

impl Place {
    fn join(&self, name: &str) -> Self {
        Self {
            folder: self.folder.join(name),
            ..self.clone()
        }
    }

    fn counts(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.folder.join(file), value)
    }

    fn open(&self, file: &str) -> io::Result<File> {
        File::open(self.folder.join(file))
    }

    fn limit(&self, limits: &GroupLimits) -> io::Result<()> {
        if self.counts(Controller::Memory) {
            let bytes = limits.memory.to_string();
            // What cannot be counted on this host does not have to be refused.
            if self.unified {
                self.write("memory.max", &bytes)?;
                let _ = self.write("memory.swap.max", "0");
            } else {
                // The sum with swap is never to be below memory alone, whichever way this goes.
                let _ = self.write("memory.memsw.limit_in_bytes", "-1");
                self.write("memory.limit_in_bytes", &bytes)?;
                let _ = self.write("memory.memsw.limit_in_bytes", &bytes);
            }
        }
        if self.counts(Controller::Processes) {
            self.write("pids.max", &limits.processes.to_string())?;
        }
        if self.counts(Controller::Cores) {
            let quota = u64::from(limits.cores) * PERIOD;
            if self.unified {
                self.write("cpu.max", &format!("{quota} {PERIOD}"))?;
            } else {
                self.write("cpu.cfs_period_us", &PERIOD.to_string())?;
                match self.write("cpu.cfs_quota_us", &quota.to_string()) {
                    // The groups that it is in have no more than that in any case.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                        self.write("cpu.cfs_quota_us", "-1")?;
                    }
                    written => written?,
                }
            }
        }
        Ok(())
    }
}

/// Microseconds in which a group gets as many times as much time as it may use cores.
const PERIOD: u64 = 100_000;

/// What all in a group may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// Bytes of memory.
    pub memory: u64,
    /// Processes and threads at once.
    pub processes: u64,
    /// Cores at once.
    pub cores: u32,
}

/// Groups of this process's making, all of them in one.
#[derive(Debug)]
pub struct Groups {
    places: Vec<Place>,
}

/// A group for the processes of one guest at a time.
#[derive(Debug)]
pub struct Group {
    places: Vec<Place>,
    doors: Vec<File>,
    /// Where the kernel counts whom it has ended for want of memory.
    ended: File,
    /// How many that were when somebody last asked.
    known: u64,
    /// Where it counts their time, and whether that is version 2's file.
    time: Option<(File, bool)>,
    limits: Option<GroupLimits>,
}

/// Before the number of the process that made them, and theirs among those of that process.
const NAME: &str = "millpond-";

/// How often this process has made some.
static MADE: AtomicU32 = AtomicU32::new(0);

impl Groups {
    /// Where this process's groups are to be. Those of processes that have ended without removing theirs go.
    pub fn make() -> io::Result<Self> {
        Self::make_with(&Controller::ALL)
    }

    /// The same, with no other controllers than these, whatever this host has.
    pub fn make_with(controllers: &[Controller]) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NAME}{}.{number}", process::id());
        let mut this = Self { places: Vec::new() };
        for parent in parents(&mounts, &own, controllers)? {
            remove_stale(&parent.folder);
            let place = parent.join(&name);
            match make(&place.folder) {
                Ok(()) => {}
                // A host may let us count memory and not time.
                Err(_) if !place.controllers.iter().any(|one| one.is_needed()) => continue,
                Err(error) => return Err(error),
            }
            this.places.push(place);
        }
        for place in this.places.iter().filter(|place| place.unified) {
            place.write("cgroup.subtree_control", &subtree(&place.controllers))?;
        }
        Ok(this)
    }

    /// Whether its groups have this counted.
    pub fn counts(&self, controller: Controller) -> bool {
        self.places.iter().any(|place| place.counts(controller))
    }

    /// One more.
    pub fn group(&self, name: &str) -> io::Result<Group> {
        let (mut places, mut doors) = (Vec::new(), Vec::new());
        let (mut ended, mut time) = (None, None);
        for place in &self.places {
            let place = place.join(name);
            make(&place.folder)?;
            let door = place.folder.join("cgroup.procs");
            doors.push(OpenOptions::new().write(true).open(door)?);
            if place.counts(Controller::Memory) {
                let file = if place.unified {
                    "memory.events"
                } else {
                    "memory.oom_control"
                };
                ended = Some(place.open(file)?);
            }
            if place.counts(Controller::Time) {
                let file = if place.unified {
                    "cpu.stat"
                } else {
                    "cpuacct.usage"
                };
                time = Some((place.open(file)?, place.unified));
            }
            places.push(place);
        }
        let ended = ended.ok_or_else(|| io::Error::other("no hierarchy counts memory"))?;
        Ok(Group {
            places,
            doors,
            ended,
            known: 0,
            time,
            limits: None,
        })
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for place in &self.places {
            remove(&place.folder);
        }
    }
}

impl Group {
    /// What all that are in it use together.
    pub fn limit(&mut self, limits: GroupLimits) -> io::Result<()> {
        if self.limits != Some(limits) {
            self.limits = None;
            self.places.iter().try_for_each(|place| place.limit(&limits))?;
            self.limits = Some(limits);
        }
        Ok(())
    }

    /// For [`go_in`].
    pub fn doors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.doors.iter().map(AsFd::as_fd)
    }

    /// Time on processors that all who were ever in it have had. `None` if this host does not count that.
    pub fn time(&mut self) -> Option<Duration> {
        let (file, unified) = self.time.as_mut()?;
        let text = read(file).ok()?;
        match unified {
            true => count(&text, "usage_usec ").map(Duration::from_micros),
            false => text.trim().parse().ok().map(Duration::from_nanos),
        }
    }

    /// Whether the kernel has ended a process in it for want of memory since this was last asked.
    pub fn ran_out(&mut self) -> bool {
        let ended = read(&mut self.ended).ok();
        let ended = ended.and_then(|text| count(&text, "oom_kill "));
        ended.is_some_and(|ended| std::mem::replace(&mut self.known, ended) < ended)
    }
}

/// From the beginning.
fn read(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// What a line of a file says that begins like this.
fn count(text: &str, begin: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(begin)?.trim().parse().ok())
}

/// For groups in a group of version 2 to have these controllers. Time is counted in any case.
fn subtree(controllers: &[Controller]) -> String {
    let wanted = controllers.iter().filter(|one| **one != Controller::Time);
    let wanted: Vec<String> = wanted.map(|one| format!("+{}", one.name())).collect();
    wanted.join(" ")
}

impl Drop for Group {
    fn drop(&mut self) {
        for place in &self.places {
            let _ = fs::remove_dir(&place.folder);
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

/// Another process goes into the group of these doors, with all that it will start.
pub fn put_in(doors: &[impl AsFd], process: i32) -> io::Result<()> {
    for door in doors {
        File::from(door.as_fd().try_clone_to_owned()?).write_all(process.to_string().as_bytes())?;
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

/// Where groups of this process's can be, in each hierarchy that counts what is wanted.
fn parents(mounts: &str, own: &str, wanted: &[Controller]) -> io::Result<Vec<Place>> {
    match find(mounts, own, None).map(|folder| unified(&folder, wanted)) {
        Some(Ok(Some(place))) => return Ok(vec![place]),
        Some(Err(error)) => return Err(error),
        Some(Ok(None)) | None => {}
    }
    let mut places: Vec<Place> = Vec::new();
    for controller in Controller::ALL {
        let folder = wanted
            .contains(&controller)
            .then(|| find(mounts, own, Some(controller.name())));
        let Some(folder) = folder.flatten() else {
            if controller.is_needed() {
                let text = format!("this host's control groups do not count {}", controller.name());
                return Err(io::Error::other(text));
            }
            continue;
        };
        match places.iter_mut().find(|place| place.folder == folder) {
            Some(place) => place.controllers.push(controller),
            None => places.push(Place {
                unified: false,
                controllers: vec![controller],
                folder,
            }),
        }
    }
    Ok(places)
}

/// Where groups can be in a hierarchy of version 2 in which this process is here. `None` if what is needed is counted elsewhere.
fn unified(own: &Path, wanted: &[Controller]) -> io::Result<Option<Place>> {
    let listed = fs::read_to_string(own.join("cgroup.controllers")).unwrap_or_default();
    let counted = |controller: Controller| {
        let is_listed = listed.split_whitespace().any(|one| one == controller.name());
        wanted.contains(&controller) && (is_listed || controller == Controller::Time)
    };
    let (controllers, others): (Vec<_>, Vec<_>) = Controller::ALL.into_iter().partition(|one| counted(*one));
    if others.iter().any(|other| other.is_needed()) {
        return Ok(None);
    }
    // A group with processes can have no groups that count, so it is the one above, if the node was started in one of its own.
    let mut ways = [Some(own), own.parent()].into_iter().flatten();
    let delegated =
        ways.find(|folder| fs::write(folder.join("cgroup.subtree_control"), subtree(&controllers)).is_ok());
    match delegated {
        Some(folder) => Ok(Some(Place {
            unified: true,
            controllers,
            folder: folder.to_owned(),
        })),
        None => Err(io::Error::other(format!(
            "the control group {} was not delegated to this process (systemd does so with Delegate=yes and \
             DelegateSubgroup=node)",
            own.display()
        ))),
    }
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
    fn a_hierarchy_may_count_some_things() {
        let mounts = MOUNTS.replace("cgroup rw,memory", "cgroup rw,memory,pids");
        let own = OWN.replace("4:memory:", "4:memory,pids:");
        let places = parents(&mounts, &own, &Controller::ALL).unwrap();
        let places: Vec<_> = places
            .iter()
            .map(|place| (place.folder.to_str().unwrap(), &*place.controllers))
            .collect();
        use Controller::{Cores, Memory, Processes, Time};
        assert_eq!(
            places,
            [
                ("/sys/fs/cgroup/memory/b", &[Memory, Processes][..]),
                ("/sys/fs/cgroup/cpu,cpuacct/a", &[Cores, Time][..]),
            ]
        );
        let error = parents(MOUNTS, OWN, &Controller::ALL).unwrap_err().to_string();
        assert!(error.contains("pids"), "{error}");
        let wanted = [Memory, Processes, Time];
        let places = parents(&mounts, &own, &wanted).unwrap();
        assert!(places.iter().flat_map(|place| &place.controllers).eq(&wanted));
        assert!(parents(&mounts, &own, &[]).is_err());
    }

    #[test]
    fn a_group_has_its_limits_and_goes_with_its_maker() {
        let groups = match Groups::make() {
            Ok(groups) => groups,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let folders: Vec<_> = groups.places.iter().map(|place| place.folder.clone()).collect();
        let mut group = groups.group("one").unwrap();
        for (memory, cores) in [(64 << 20, 1), (16 << 20, 3), (32 << 20, 2)] {
            let limits = GroupLimits {
                memory,
                processes: 7,
                cores,
            };
            group.limit(limits).unwrap();
        }
        assert!(!group.ran_out());
        let read = |file: &str| {
            let files = group.places.iter().map(|place| place.folder.join(file));
            let text = files.filter_map(|file| fs::read_to_string(file).ok()).next()?;
            Some(text.trim().to_owned())
        };
        assert_eq!(read("pids.max").unwrap(), "7");
        let memory = read("memory.limit_in_bytes").or_else(|| read("memory.max"));
        assert_eq!(memory.unwrap(), (32 << 20).to_string());
        let cores = read("cpu.cfs_quota_us").or_else(|| read("cpu.max"));
        assert_eq!(cores.is_some(), groups.counts(Controller::Cores));
        if let Some(cores) = cores {
            assert!(cores == "200000" || cores == "200000 100000", "{cores}");
        }
        assert_eq!(group.time().is_some(), groups.counts(Controller::Time));
        drop((group, groups));
        assert!(folders.iter().all(|folder| !folder.exists()));
    }
}
