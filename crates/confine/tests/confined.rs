//! Processes that are locked up, each of which tries one thing: as root where the tests are root's, and as an ordinary user.

use millpond_confine::{Support, Wall};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{
        fs::chown,
        process::{CommandExt as _, ExitStatusExt as _},
    },
    path::Path,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

const ATTEMPT: &str = env!("CARGO_BIN_EXE_confine-attempt");
/// Somebody who is not root.
const SOMEBODY: u32 = 12_345;

/// Whoever runs the tests, and somebody ordinary if that can be arranged.
fn users() -> Vec<Option<u32>> {
    let root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !root {
        return vec![None];
    }
    let reachable = Command::new(ATTEMPT)
        .uid(SOMEBODY)
        .gid(SOMEBODY)
        .args(["--", "pid"])
        .output();
    if reachable.is_ok_and(|output| output.status.success()) {
        vec![None, Some(SOMEBODY)]
    } else {
        println!("skipped: an ordinary user, who cannot reach {ATTEMPT}");
        vec![None]
    }
}

/// Says why a test cannot be, if the host lacks one of these.
fn lacks(walls: &[Wall]) -> bool {
    let support = Support::probe();
    let lacking = walls.iter().find(|wall| !support.offers(**wall));
    if let Some(wall) = lacking {
        println!("skipped: this host offers no {wall}");
    }
    lacking.is_some()
}

fn command(user: Option<u32>, arguments: &[&str]) -> Command {
    let mut command = Command::new(ATTEMPT);
    command.args(arguments).env_clear();
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

fn attempt(user: Option<u32>, arguments: &[&str]) -> (ExitStatus, String) {
    let output = command(user, arguments).output().unwrap();
    (
        output.status,
        String::from_utf8(output.stdout).unwrap().trim().to_owned(),
    )
}

/// What it says, which each user's says alike.
fn says(arguments: &[&str]) -> String {
    let mut all: Vec<String> = users()
        .into_iter()
        .map(|user| attempt(user, arguments).1)
        .collect();
    all.dedup();
    assert_eq!(all.len(), 1, "{arguments:?}: {all:?}");
    all.remove(0)
}

fn is_killed_by(signal: i32, arguments: &[&str]) {
    for user in users() {
        let (status, said) = attempt(user, arguments);
        assert_eq!(
            status.signal(),
            Some(signal),
            "{arguments:?} as {user:?}: {status}, {said}"
        );
    }
}

fn number(call: libc::c_long) -> String {
    call.to_string()
}

/// A folder for whoever it is for.
fn folder(user: Option<u32>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    if let Some(user) = user {
        chown(folder.path(), Some(user), Some(user)).unwrap();
    }
    folder
}

/// What a program of the C library needs here.
const LIBRARIES: &[&str] = &[
    "--children",
    "--execute",
    "/lib",
    "--execute",
    "/lib64",
    "--execute",
    "/usr/lib",
    "--read",
    "/etc/ld.so.cache",
];

fn with<'a>(first: &[&'a str], then: &[&'a str]) -> Vec<&'a str> {
    [first, then].concat()
}

const ALL: &[Wall] = &[
    Wall::User,
    Wall::Network,
    Wall::Ipc,
    Wall::Host,
    Wall::Processes,
    Wall::Mounts,
    Wall::Files,
    Wall::Calls,
];

#[test]
fn every_wall_that_the_host_offers_stands() {
    if lacks(ALL) {
        return;
    }
    assert_eq!(says(&["--", "walls"]), "ok");
    assert_eq!(says(&["--children", "--", "walls"]), "ok");
}

#[test]
fn what_is_demanded_must_be_there() {
    let (status, said) = attempt(None, &["--demand-processes", "--", "walls"]);
    assert_eq!(status.code(), Some(2));
    assert!(said.contains("process namespace is demanded"), "{said}");
}

#[test]
fn a_process_with_threads_is_refused() {
    let (status, said) = attempt(None, &["--threads-before", "--", "walls"]);
    assert_eq!(status.code(), Some(2), "{said}");
}

#[test]
fn it_can_compute() {
    assert_eq!(says(&["--", "threads", "8"]), "ok 28");
    assert_eq!(says(&["--", "memory", "100000000"]), "ok 100000000");
}

#[test]
fn files_are_out_of_reach() {
    for path in ["/etc/passwd", "/proc/self/status", "/dev/null", ATTEMPT] {
        for what in ["read", "stat"] {
            let said = says(&["--", what, path]);
            assert!(said.starts_with("error"), "{what} {path}: {said}");
            if path == "/dev/null" {
                continue;
            }
            let said = says(&["--children", "--", what, path]);
            assert!(said.starts_with("error"), "{what} {path}: {said}");
        }
    }
}

#[test]
fn only_what_is_granted_is_there() {
    if lacks(&[Wall::Mounts]) {
        return;
    }
    let there = ["--children", "--read", "/etc/passwd", "--read", "/usr/share/doc"];
    assert_eq!(
        says(&with(&there, &["--", "list", "/etc"])),
        "error 13",
        "Landlock shows no folder that is not granted"
    );
    assert_eq!(says(&with(&there, &["--", "stat", "/etc/hostname"])), "error 2");
    assert!(says(&with(&there, &["--", "read", "/etc/passwd"])).starts_with("ok"));
    assert!(says(&with(&there, &["--", "write", "/etc/passwd", "1"])).starts_with("error"));
    assert!(says(&with(&there, &["--", "write", "/etc/new", "1"])).starts_with("error"));
}

/// What rustup installs for root lies in a folder that nobody else may enter.
#[test]
fn what_is_granted_is_there_wherever_it_lies() {
    if lacks(&[Wall::Mounts]) {
        return;
    }
    let outer = tempfile::tempdir().unwrap();
    let own = outer.path().join("own");
    for folder in ["own/granted/below", "own/beside"] {
        fs::create_dir_all(outer.path().join(folder)).unwrap();
    }
    for file in [
        "granted/file",
        "granted/below/file",
        "granted/secret",
        "beside/file",
    ] {
        fs::write(own.join(file), "content").unwrap();
    }
    let mode = |path: &str, mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(outer.path().join(path), permissions).unwrap();
    };
    mode("", 0o755);
    mode("own/granted/secret", 0o600);
    mode("own", 0o700);
    std::os::unix::fs::symlink(own.join("granted"), outer.path().join("link")).unwrap();

    let path = |name: &str| outer.path().join(name).to_str().unwrap().to_owned();
    let tries = |granted: &str, what: &str, name: &str| {
        let granted = path(granted);
        let mut arguments = vec!["--children", "--read", &granted, "--", what];
        let name = path(name);
        arguments.push(&name);
        arguments.extend((what == "write").then_some("1"));
        let said = attempt(None, &arguments).1;
        said.split(' ').next().unwrap().to_owned()
    };
    for granted in ["own/granted", "link"] {
        assert_eq!(tries(granted, "read", "own/granted/file"), "ok");
        assert_eq!(tries(granted, "read", "own/granted/below/file"), "ok");
        assert_eq!(tries(granted, "list", "own/granted"), "ok");
        assert_eq!(tries(granted, "write", "own/granted/new"), "error");
        for beside in ["own/beside/file", "own/granted/../beside/file"] {
            assert_eq!(tries(granted, "read", beside), "error", "{beside}");
        }
        assert_eq!(tries(granted, "stat", "own/beside"), "error");
        assert_eq!(tries(granted, "list", "own"), "error");
    }
    // Root has become nobody, who is one of the others for this file.
    let root = users().len() > 1;
    let secret = tries("own/granted", "read", "own/granted/secret");
    assert_eq!(secret, if root { "error" } else { "ok" });
    assert_eq!(
        tries("own/granted/file", "read", "own/granted/below/file"),
        "error"
    );
}

#[test]
fn no_descriptor_stays_open() {
    let grants = ["--read", "/etc/passwd", "--execute", "/usr/lib", "--read", "/lib"];
    assert_eq!(says(&with(&grants, &["--", "descriptors"])), "ok");
    let with_programs = with(&["--children"], &grants);
    assert_eq!(says(&with(&with_programs, &["--", "descriptors"])), "ok");
}

/// The process that stays outside, and the one inside.
#[test]
fn its_mounts_are_its_own_and_nobody_keeps_them() {
    if lacks(&[Wall::Processes, Wall::Mounts]) {
        return;
    }
    for user in users() {
        let grant = with(LIBRARIES, &["--read", "/etc/passwd", "--execute", "/bin/sleep"]);
        let mut outer = command(user, &with(&grant, &["--", "linger", "/bin/sleep", "100"]))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(outer.stdout.take().unwrap())
            .read_line(&mut said)
            .unwrap();
        assert!(said.starts_with("ok"), "{said}");
        let process = format!("/proc/{}", outer.id());
        let inner = fs::read_to_string(format!("{process}/task/{}/children", outer.id())).unwrap();
        let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", inner.trim())).unwrap_or_default();
        if mounts.is_empty() {
            println!("skipped: this user may not look at the mounts of another");
        }
        for line in mounts.lines() {
            let (place, _) = line.split_once(" - ").unwrap();
            let words: Vec<&str> = place.split(' ').collect();
            let (options, shared) = (words[5], &words[6..]);
            assert!(shared.is_empty(), "{line}");
            assert!(options.contains("nosuid"), "{line}");
            assert!(
                options.starts_with("ro") || line.contains(" /dev/null "),
                "{line}"
            );
        }
        // All that was opened names a file and cannot read it.
        let of_a_place = |info: &String| {
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
            u32::from_str_radix(flags.trim(), 8).unwrap() & libc::O_PATH.cast_unsigned() != 0
        };
        let open = fs::read_dir(format!("{process}/fdinfo"))
            .into_iter()
            .flatten()
            .flatten();
        let open = open.filter_map(|one| fs::read_to_string(one.path()).ok());
        assert_eq!(open.filter(of_a_place).count(), 0);
        outer.kill().unwrap();
        outer.wait().unwrap();
    }
}

#[test]
fn it_writes_to_its_folder_only() {
    for user in users() {
        let own = folder(user);
        let path = own.path().to_str().unwrap();
        let (file, beside) = (format!("{path}/file"), format!("{path}-beside"));
        let grant = ["--children", "--write", path, "--"];
        let (_, said) = attempt(user, &with(&grant, &["write", &file, "1000"]));
        assert_eq!(said, "ok 1000");
        assert_eq!(fs::read(&file).unwrap().len(), 1000);
        let (_, said) = attempt(user, &with(&grant, &["write", &beside, "1"]));
        assert!(said.starts_with("error"), "{said}");
        assert!(!Path::new(&beside).exists());
        let (_, said) = attempt(user, &with(&grant, &["link", "/etc/passwd", &file]));
        assert!(said.starts_with("error"), "{said}");
        let (status, said) = attempt(user, &with(&grant, &["write", &file, "2000000"]));
        assert!(
            status.signal() == Some(libc::SIGXFSZ) || said == "error 27",
            "{status} {said}"
        );
        assert!(fs::read(&file).unwrap().len() <= 1 << 20);
    }
}

#[test]
fn a_folder_in_memory_leaves_nothing() {
    if lacks(&[Wall::Mounts]) {
        return;
    }
    for user in users() {
        let own = folder(user);
        let path = own.path().to_str().unwrap();
        let file = format!("{path}/file");
        let grant = ["--children", "--memory", path, "65536", "--"];
        let (_, said) = attempt(user, &with(&grant, &["write", &file, "60000"]));
        assert_eq!(said, "ok 60000");
        let (_, said) = attempt(user, &with(&grant, &["write", &file, "70000"]));
        assert_eq!(said, "error 28");
        assert_eq!(fs::read_dir(path).unwrap().count(), 0);
    }
}

#[test]
fn there_are_no_sockets() {
    assert_eq!(says(&["--", "sockets"]), "ok");
    assert_eq!(says(&["--children", "--", "sockets"]), "ok");
}

#[test]
fn who_tries_what_no_program_does_is_ended() {
    if lacks(&[Wall::Calls]) {
        return;
    }
    let hostile = [
        libc::SYS_ptrace,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_bpf,
        libc::SYS_io_uring_setup,
        libc::SYS_userfaultfd,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_perf_event_open,
        libc::SYS_process_vm_readv,
        libc::SYS_init_module,
        libc::SYS_open_by_handle_at,
        libc::SYS_kexec_load,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_move_mount,
        libc::SYS_pidfd_getfd,
    ];
    for call in hostile {
        is_killed_by(libc::SIGSYS, &["--", "call", &number(call)]);
    }
    is_killed_by(
        libc::SIGSYS,
        &["--children", "--", "call", &number(libc::SYS_ptrace)],
    );
}

#[test]
fn what_is_not_listed_is_refused() {
    if lacks(&[Wall::Calls]) {
        return;
    }
    let user = i64::from(libc::CLONE_NEWUSER | libc::SIGCHLD).to_string();
    let refused: &[&[&str]] = &[
        &[&number(libc::SYS_memfd_create)],
        &[&number(libc::SYS_shmget), "0", "4096", "1023"],
        &[&number(libc::SYS_setsid)],
        &[&number(libc::SYS_setpgid), "0", "0"],
        &[&number(libc::SYS_setresuid), "0", "0", "0"],
        &[&number(libc::SYS_personality), "0"],
        &[&number(libc::SYS_socketpair), "1", "1"],
        &[&number(libc::SYS_sched_setaffinity), "0", "8", "0"],
        &[&number(libc::SYS_clone), &user],
        // The death signal stays.
        &[&number(libc::SYS_prctl), "1", "0"],
        // Input put into a terminal.
        &[&number(libc::SYS_ioctl), "0", "21522", "0"],
        // A call of the x32 interface.
        #[cfg(target_arch = "x86_64")]
        &["1073741863"],
    ];
    for call in refused {
        for first in [&["--", "call"][..], &["--children", "--", "call"]] {
            assert_eq!(says(&with(first, call)), "error 1", "{call:?}");
        }
    }
    assert_eq!(
        says(&["--", "call", &number(libc::SYS_clone3), "0", "0"]),
        "error 38"
    );
    assert_eq!(says(&["--", "raise-limit"]), "error 1");
}

#[test]
fn memory_that_is_not_counted_is_refused() {
    if lacks(&[Wall::Calls]) {
        return;
    }
    let (anonymous, shared, private) = (libc::MAP_ANONYMOUS, libc::MAP_SHARED, libc::MAP_PRIVATE);
    assert_eq!(says(&["--", "map", &(anonymous | private).to_string()]), "ok");
    assert_eq!(says(&["--", "map", &(anonymous | shared).to_string()]), "error 1");
    assert_eq!(
        says(&[
            "--",
            "map",
            &(anonymous | private | libc::MAP_GROWSDOWN).to_string()
        ]),
        "error 1"
    );
}

#[test]
fn no_process_is_started_where_none_may_be() {
    if lacks(&[Wall::Calls]) {
        return;
    }
    assert_eq!(says(&["--", "fork"]), "error 1");
    assert_eq!(says(&["--execute", "/", "--", "run", "/bin/true"]), "error 1");
    assert_eq!(
        says(&["--", "call", &number(libc::SYS_execve), "0", "0", "0"]),
        "error 1"
    );
}

#[test]
fn only_listed_programs_run() {
    assert_eq!(
        says(&with(
            LIBRARIES,
            &["--execute", "/bin/echo", "--", "run", "/bin/echo", "one"]
        )),
        "ok 0 one"
    );
    let said = says(&with(
        LIBRARIES,
        &[
            "--execute",
            "/bin/echo",
            "--read",
            "/bin/true",
            "--",
            "run",
            "/bin/true",
        ],
    ));
    assert!(said.starts_with("error"), "{said}");
    for user in users() {
        let own = folder(user);
        let path = own.path().to_str().unwrap();
        let copy = format!("{path}/copy");
        let grant = with(LIBRARIES, &["--execute", "/bin/true", "--write", path, "--"]);
        let (_, said) = attempt(user, &with(&grant, &["copy-run", "/bin/true", &copy]));
        assert!(said.starts_with("error"), "{said}");
    }
}

#[test]
fn other_processes_are_out_of_reach() {
    if lacks(&[Wall::Calls, Wall::Processes]) {
        return;
    }
    let mut other = Command::new("/bin/sleep").arg("100").spawn().unwrap();
    let mut pids = vec![
        "1".to_owned(),
        std::process::id().to_string(),
        other.id().to_string(),
    ];
    assert_eq!(says(&["--", "signals", &pids.remove(0)]), "ok 0");
    for pid in &pids {
        assert_eq!(says(&["--", "signals", pid]), "ok 0");
        assert_eq!(says(&["--children", "--", "signals", pid]), "ok 0");
    }
    assert_eq!(says(&["--children", "--", "pid"]), "ok 1");
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn who_exceeds_a_limit_is_ended_or_refused() {
    for user in users() {
        let (status, said) = attempt(user, &["--", "memory", "400000000"]);
        assert!(!status.success(), "{said}");
        let began = Instant::now();
        let (status, _) = attempt(user, &["--", "spin"]);
        assert_eq!(status.signal(), Some(libc::SIGKILL));
        let (status, _) = attempt(user, &["--children", "--", "spin"]);
        assert_eq!(
            status.signal(),
            Some(libc::SIGKILL),
            "the first of a process namespace is ended, too"
        );
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn threads_and_programs_are_counted() {
    if lacks(&[Wall::User]) {
        return;
    }
    for arguments in [
        &["--", "threads", "100"][..],
        &["--children", "--", "threads", "100"],
    ] {
        assert_eq!(says(arguments), "error 11", "{arguments:?}");
    }
    let said = says(&["--children", "--", "fork-bomb"]);
    let children: u32 = said.strip_prefix("ok ").unwrap().parse().unwrap();
    assert!(children < 64, "{said}");
}

#[test]
fn an_end_is_told_as_it_was() {
    for first in [&["--"][..], &["--children", "--"]] {
        for user in users() {
            assert_eq!(attempt(user, &with(first, &["exit", "7"])).0.code(), Some(7));
            let (status, _) = attempt(user, &with(first, &["abort"]));
            assert!(status.signal().is_some(), "{status}");
        }
    }
}

#[test]
fn it_can_give_way_and_not_take_back() {
    assert_eq!(says(&["--", "give-way"]), format!("ok {}", libc::SCHED_IDLE));
    assert!(says(&["--", "take-back"]).starts_with("error"));
}

/// Whether there is a process of this name and argument.
fn is_running(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).ends_with(&format!("sleep\0{argument}\0")))
}

fn ends_soon(argument: &str) {
    let began = Instant::now();
    while is_running(argument) {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "sleep {argument} goes on"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn programs_end_with_who_started_them() {
    if lacks(&[Wall::Processes]) {
        return;
    }
    for (index, user) in users().into_iter().enumerate() {
        let time = format!("98765{index}");
        let grant = with(
            LIBRARIES,
            &["--execute", "/bin/sleep", "--execute", "/bin/sh", "--"],
        );
        // A grandchild that has left its parent.
        let script = format!("/bin/sleep {time} & /bin/sleep {time}");
        let mut outer = command(user, &with(&grant, &["linger", "/bin/sh", "-c", &script]))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(outer.stdout.take().unwrap())
            .read_line(&mut said)
            .unwrap();
        assert!(said.starts_with("ok"), "{said}");
        let began = Instant::now();
        while !is_running(&time) {
            assert!(began.elapsed() < Duration::from_secs(10));
        }
        outer.kill().unwrap();
        outer.wait().unwrap();
        ends_soon(&time);
    }
}

#[test]
fn it_ends_with_who_started_it() {
    if lacks(&[Wall::Processes]) {
        return;
    }
    let time = "876543";
    let line = format!(
        "{ATTEMPT} {} --execute /bin/sleep -- linger /bin/sleep {time} & read forever",
        LIBRARIES.join(" ")
    );
    let mut starter = Command::new("/bin/sh")
        .args(["-c", &line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(starter.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    assert!(said.starts_with("ok"), "{said}");
    assert!(is_running(time));
    starter.kill().unwrap();
    starter.wait().unwrap();
    ends_soon(time);
}
