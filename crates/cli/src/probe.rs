//! What this host offers: each capability with what was found, what needs it and how to get it.
//!
//! A probe only looks: it needs no privilege and changes nothing. Those that a running node wants too belong in a crate
//! below; nothing here knows the command around it.

use confine::{Controller, Groups, Support, Wall};
use node::meminfo;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

/// How much of a capability there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// All that can be used.
    Ok,
    /// There, but more would help.
    Limited,
    /// Not there.
    Missing,
}

/// One capability of the host.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// Its name.
    pub(crate) capability: &'static str,
    /// How much of it there is.
    pub(crate) state: State,
    /// What was found.
    pub(crate) found: String,
    /// What Millpond does with it.
    pub(crate) needed_for: &'static str,
    /// How to get it.
    pub(crate) remedy: String,
    /// Whether a node cannot work without it.
    pub(crate) required: bool,
}

impl Finding {
    fn new(
        capability: &'static str,
        state: State,
        found: impl Into<String>,
        needed_for: &'static str,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            capability,
            state,
            found: found.into(),
            needed_for,
            remedy: remedy.into(),
            required: false,
        }
    }

    fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

/// Looks at everything.
pub(crate) fn all() -> Vec<Finding> {
    let support = Support::probe();
    vec![
        processor(),
        cores(),
        kernel(),
        memory(),
        overcommit(),
        maps(),
        sandboxes(),
        files(),
        pagemap_scan(),
        swap(),
        user_namespaces(&support),
        namespaces(&support),
        landlock(&support),
        seccomp(&support),
        cgroups(),
        kvm(),
        clang(),
        wasm_linker(),
    ]
}

/// A file of `/proc` or `/sys`, trimmed.
fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: &str) -> Option<u64> {
    read(path)?.parse().ok()
}

fn processor() -> Finding {
    let supported = cfg!(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64")
    ));
    let state = if supported { State::Ok } else { State::Missing };
    let found = format!("{} {}", env::consts::OS, env::consts::ARCH);
    Finding::new(
        "platform",
        state,
        found,
        "everything",
        "use Linux on x86_64 or aarch64",
    )
    .required()
}

fn cores() -> Finding {
    match thread::available_parallelism() {
        Ok(cores) => {
            let found = format!("{cores} for this process");
            let state = if cores.get() > 1 {
                State::Ok
            } else {
                State::Limited
            };
            Finding::new(
                "cores",
                state,
                found,
                "running functions beside the control API",
                "give the process more than one core",
            )
        }
        Err(error) => Finding::new(
            "cores",
            State::Limited,
            format!("unknown: {error}"),
            "running functions",
            "name them with `millpond serve --cores`",
        ),
    }
}

/// Major and minor version.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel_release() -> String {
    read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned())
}

fn kernel() -> Finding {
    let release = kernel_release();
    let state = match version(&release) {
        Some(version) if version >= (6, 1) => State::Ok,
        Some(version) if version >= (5, 10) => State::Limited,
        _ => State::Missing,
    };
    Finding::new(
        "kernel",
        state,
        release,
        "everything; from 6.1 on as tested",
        "use Linux 6.1 or later",
    )
    .required()
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn memory() -> Finding {
    let text = read("/proc/meminfo").unwrap_or_default();
    let (Some(total), Some(available)) = (meminfo(&text, "MemTotal"), meminfo(&text, "MemAvailable")) else {
        return Finding::new("memory", State::Limited, "unknown", "sandboxes", "mount /proc");
    };
    let limit = number("/sys/fs/cgroup/memory.max")
        .or_else(|| number("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
        .filter(|limit| *limit < total);
    let mut found = format!("{} of {} available", mebibytes(available), mebibytes(total));
    if let Some(limit) = limit {
        found.push_str(&format!(
            ", at most {} for this group of processes",
            mebibytes(limit)
        ));
    }
    let usable = available.min(limit.unwrap_or(u64::MAX));
    let state = if usable >= 512 << 20 {
        State::Ok
    } else {
        State::Limited
    };
    Finding::new(
        "memory",
        state,
        found,
        "sandboxes: each may use what its function's `memory` says",
        "free some, or add some",
    )
}

fn overcommit() -> Finding {
    let needed_for = "reserving address space for thousands of sandboxes that use little of it";
    let remedy = "sysctl -w vm.overcommit_memory=0";
    match number("/proc/sys/vm/overcommit_memory") {
        Some(2) => Finding::new(
            "overcommit",
            State::Limited,
            "vm.overcommit_memory = 2: reservations are charged",
            needed_for,
            remedy,
        ),
        Some(mode) => Finding::new(
            "overcommit",
            State::Ok,
            format!("vm.overcommit_memory = {mode}"),
            needed_for,
            remedy,
        ),
        None => Finding::new("overcommit", State::Limited, "unknown", needed_for, remedy),
    }
}

fn maps() -> Finding {
    let needed_for = "sandboxes that wait at the same time: six for each";
    let remedy = "sysctl -w vm.max_map_count=1048576, and the same in /etc/sysctl.d to keep it";
    match number("/proc/sys/vm/max_map_count") {
        Some(count) => {
            let state = if count >= 262_144 {
                State::Ok
            } else {
                State::Limited
            };
            let found = format!("vm.max_map_count = {count}");
            Finding::new("memory maps", state, found, needed_for, remedy)
        }
        None => Finding::new("memory maps", State::Limited, "unknown", needed_for, remedy),
    }
}

/// What a node without a configuration file would find.
fn sandboxes() -> Finding {
    let (guarded, dense) = node::room(&node::Config::default());
    let found = format!(
        "{} at once, as {}; beside them {} dense ones, as {}",
        guarded.sandboxes, guarded.limit, dense.sandboxes, dense.limit
    );
    let state = match guarded.limit {
        node::Limit::Most => State::Ok,
        _ => State::Limited,
    };
    Finding::new(
        "sandboxes",
        state,
        found,
        "requests under way at the same time, those that wait for others included; more wait outside",
        guarded.limit.remedy(),
    )
}

fn files() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let said = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    let found = format!(
        "{} now, up to {} (ulimit -n)",
        said(limit.current),
        said(limit.maximum)
    );
    let state = if limit.maximum.is_none_or(|limit| limit >= 10_000) {
        State::Ok
    } else {
        State::Limited
    };
    Finding::new(
        "open files",
        state,
        found,
        "connections: each takes one",
        "raise the hard limit: LimitNOFILE= of a systemd service, or limits.conf",
    )
}

fn swap() -> Finding {
    let areas = read("/proc/swaps").map_or(0, |text| text.lines().skip(1).count());
    let (state, found) = match areas {
        0 => (State::Ok, "off".to_owned()),
        _ => (State::Limited, format!("on, {areas} areas")),
    };
    Finding::new(
        "no swap",
        state,
        found,
        "cleaning what sandboxes wrote the fast way in all cases; a node must start with swap as it will stay",
        "swapoff -a, or leave it: some functions' sandboxes then start more slowly",
    )
}

fn pagemap_scan() -> Finding {
    let release = kernel_release();
    let state = if version(&release).is_some_and(|version| version >= (6, 7)) {
        State::Ok
    } else {
        State::Missing
    };
    let found = match state {
        State::Ok => "by the kernel's version".to_owned(),
        _ => format!("came with Linux 6.7; this is {release}"),
    };
    let needed_for = "resetting the memory of large guests (Rust, Go) in microseconds; without it they cost some 10 us more";
    Finding::new("pagemap scan", state, found, needed_for, "use Linux 6.7 or later")
}

fn user_namespaces(support: &Support) -> Finding {
    let needed_for = "all other namespaces, and limits of how many threads a compiler has; native executables and functions in Python";
    let finding =
        |state, found: &str, remedy: &str| Finding::new("user namespaces", state, found, needed_for, remedy);
    if support.offers(Wall::User) {
        return finding(State::Ok, "one was made", "");
    }
    if !Path::new("/proc/self/ns/user").exists() {
        return finding(
            State::Missing,
            "the kernel has none",
            "use a kernel with CONFIG_USER_NS",
        );
    }
    for (file, name, remedy) in [
        (
            "/proc/sys/user/max_user_namespaces",
            "user.max_user_namespaces",
            "sysctl -w user.max_user_namespaces=15000",
        ),
        (
            "/proc/sys/kernel/unprivileged_userns_clone",
            "kernel.unprivileged_userns_clone",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
    ] {
        if number(file) == Some(0) {
            return finding(State::Missing, &format!("{name} = 0"), remedy);
        }
    }
    // Containers refuse them by seccomp or AppArmor, which no file tells.
    finding(
        State::Missing,
        "making one was refused",
        "allow them: in a container its seccomp profile, on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0",
    )
}

fn namespaces(support: &Support) -> Finding {
    let all = [
        Wall::Network,
        Wall::Ipc,
        Wall::Host,
        Wall::Processes,
        Wall::Mounts,
    ];
    let (there, missing): (Vec<Wall>, Vec<Wall>) = all.into_iter().partition(|wall| support.offers(*wall));
    let names = |walls: &[Wall]| {
        let names: Vec<&str> = walls
            .iter()
            .map(|wall| {
                let name = wall.name();
                name.trim_end_matches('s').trim_end_matches(" namespace")
            })
            .collect();
        names.join(", ")
    };
    let (state, found) = match (there.as_slice(), missing.as_slice()) {
        (_, []) => (State::Ok, names(&there)),
        ([], _) => (State::Missing, "none".to_owned()),
        _ => (
            State::Limited,
            format!("{}; not {}", names(&there), names(&missing)),
        ),
    };
    let needed_for = "compilers of functions: without them, other processes and the names of files stay visible to hostile code \
                      that took one over, and what it started may outlive it";
    let remedy = "allow user namespaces with all that can be made in them, and use Linux 5.12 or later";
    Finding::new("namespaces", state, found, needed_for, remedy)
}

fn landlock(support: &Support) -> Finding {
    let needed_for = "compilers of functions: without it, and without mount namespaces, one that hostile code took over can \
                      use files as the node's user, if it may start programs; native executables and functions in Python";
    let remedy =
        "use a kernel with CONFIG_SECURITY_LANDLOCK and `landlock` in its lsm= list, from Linux 6.2 on";
    let (state, found) = match support.landlock {
        0 => (State::Missing, "the kernel refuses rulesets".to_owned()),
        abi @ 1..3 => (State::Limited, format!("ABI {abi}")),
        abi => (State::Ok, format!("ABI {abi}")),
    };
    Finding::new("landlock", state, found, needed_for, remedy)
}

fn seccomp(support: &Support) -> Finding {
    let needed_for = "compilers of functions: without it, one that hostile code took over has all system calls of the kernel; \
                      native executables and functions in Python";
    let remedy = "use a kernel with CONFIG_SECCOMP_FILTER";
    let (state, found) = if support.seccomp {
        (State::Ok, "filters that refuse and that end")
    } else {
        (State::Missing, "the kernel has no filters")
    };
    Finding::new("seccomp", state, found, needed_for, remedy)
}

fn cgroups() -> Finding {
    let needed_for = "native executables and functions in Python: their limits on memory, processes, cores and time, of all of a request's processes together";
    let remedy = "run the node as root, or delegate memory, pids and cpu to it (systemd: Delegate=yes, DelegateSubgroup=node)";
    match Groups::make() {
        Ok(groups) => {
            let name = |controllers: &[&Controller]| {
                let names: Vec<_> = controllers.iter().map(|one| one.name()).collect();
                names.join(" ")
            };
            let (counted, others): (Vec<_>, Vec<_>) =
                Controller::ALL.iter().partition(|one| groups.counts(**one));
            let (state, found) = match others.is_empty() {
                true => (State::Ok, name(&counted)),
                false => (
                    State::Limited,
                    format!("{}, and no {}", name(&counted), name(&others)),
                ),
            };
            Finding::new("cgroups", state, found, needed_for, remedy)
        }
        Err(error) => Finding::new("cgroups", State::Missing, error.to_string(), needed_for, remedy),
    }
}

fn kvm() -> Finding {
    let needed_for = "functions in a virtual machine (coming)";
    let path = Path::new("/dev/kvm");
    if !path.exists() {
        let remedy =
            "load the module kvm_intel or kvm_amd; in a virtual machine, enable nested virtualisation";
        return Finding::new("kvm", State::Missing, "no /dev/kvm", needed_for, remedy);
    }
    match fs::OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => Finding::new(
            "kvm",
            State::Ok,
            "/dev/kvm opens; how fast it is, only running tells",
            needed_for,
            "",
        ),
        Err(error) => {
            let remedy = "add the user to the group `kvm`";
            Finding::new(
                "kvm",
                State::Missing,
                format!("/dev/kvm does not open: {error}"),
                needed_for,
                remedy,
            )
        }
    }
}

/// The first of these programs on the path.
fn program(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    names.iter().find_map(|name| {
        env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|file| file.is_file())
    })
}

fn tool(capability: &'static str, names: &[&str], needed_for: &'static str, remedy: &str) -> Finding {
    match program(names) {
        Some(path) => {
            let said = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
            let first = said
                .ok()
                .and_then(|said| Some(String::from_utf8_lossy(&said.stdout).lines().next()?.to_owned()));
            let found = first.unwrap_or_default();
            Finding::new(
                capability,
                State::Ok,
                format!("{} ({found})", path.display()),
                needed_for,
                remedy,
            )
        }
        None => Finding::new(
            capability,
            State::Missing,
            format!("no {} on the path", names.join(" or ")),
            needed_for,
            remedy,
        ),
    }
}

fn clang() -> Finding {
    let remedy = "apt-get install clang-22 libclang-rt-22-dev-wasm32 wasi-libc, from apt.llvm.org where the distribution has none";
    tool("clang", &["clang-22", "clang"], "building functions in C", remedy)
}

fn wasm_linker() -> Finding {
    tool(
        "wasm-ld",
        &["wasm-ld-22", "wasm-ld"],
        "building functions in C",
        "apt-get install lld-22",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_says_what_it_is_for_and_what_to_do() {
        let findings = all();
        assert!(findings.len() >= 12);
        for finding in findings {
            assert!(
                !finding.found.is_empty() && !finding.needed_for.is_empty(),
                "{finding:?}"
            );
            assert!(
                finding.state == State::Ok || !finding.remedy.is_empty(),
                "{finding:?}"
            );
        }
    }

    #[test]
    fn kernel_versions() {
        assert_eq!(version("6.1.0-28-amd64"), Some((6, 1)));
        assert_eq!(version("5.15.167.4-microsoft-standard-WSL2"), Some((5, 15)));
        assert_eq!(version("7.0"), Some((7, 0)));
        assert_eq!(version("unknown"), None);
    }
}
