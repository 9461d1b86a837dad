//! What the tests lock up: a process that enters a confinement and then attempts one thing, and says how it went.
//!
//! `confine-attempt [--children] [--read PATH] [--execute PATH] [--write PATH] [--memory PATH BYTES] … -- ATTEMPT [ARGUMENT …]`

use millpond_confine::{Confinement, Folder, Limits, Processes, Wall};
use std::{
    env, fs,
    io::{self, Write as _},
    process::{Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

fn main() -> ExitCode {
    let mut confinement = Confinement {
        limits: Limits {
            memory: 256 << 20,
            processor: Some(Duration::from_secs(1)),
            file_size: 1 << 20,
            ..Limits::default()
        },
        ..Confinement::default()
    };
    let mut arguments = env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let mut next = || arguments.next().unwrap_or_default();
        match flag.as_str() {
            "--" => break,
            "--children" => confinement.processes = Processes::Children,
            "--read" => confinement.read.push(next().into()),
            "--execute" => confinement.execute.push(next().into()),
            "--write" => confinement.write.push(Folder {
                path: next().into(),
                in_memory: None,
            }),
            "--memory" => confinement.write.push(Folder {
                path: next().into(),
                in_memory: next().parse().ok(),
            }),
            "--demand-processes" => confinement.demands.push(Wall::Processes),
            "--threads-before" => {
                thread::spawn(|| thread::sleep(Duration::from_secs(100)));
            }
            other => panic!("what is {other}?"),
        }
    }
    let arguments: Vec<String> = arguments.collect();
    let open_before = descriptors();
    // These are not read from anywhere afterwards.
    let report = match confinement.enter() {
        Ok(report) => report,
        Err(error) => {
            println!("refused: {error}");
            return ExitCode::from(2);
        }
    };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let said = match arguments.as_slice() {
        ["walls"] => {
            let missing: Vec<String> = report
                .missing()
                .map(|(wall, why)| format!("{wall}: {why}"))
                .collect();
            Ok(missing.join("; "))
        }
        // Beyond those that it had.
        ["descriptors"] => {
            let new = descriptors().into_iter().filter(|one| !open_before.contains(one));
            Ok(new.map(|one| one.to_string()).collect::<Vec<_>>().join(" "))
        }
        attempt => attempt_one(attempt),
    };
    match said {
        Ok(text) => println!("ok {text}"),
        Err(error) => println!("error {}", error.raw_os_error().unwrap_or(0)),
    }
    ExitCode::SUCCESS
}

fn call(number: libc::c_long, arguments: [libc::c_long; 6]) -> io::Result<libc::c_long> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the tests pass calls that either take no pointers, or are given null ones, which the kernel refuses.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn descriptors() -> Vec<libc::c_int> {
    // SAFETY: the call takes numbers, and only asks.
    let is_open = |number: &libc::c_int| unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0;
    (0..4096).filter(is_open).collect()
}

fn attempt_one(attempt: &[&str]) -> io::Result<String> {
    let none = String::new();
    match attempt {
        ["read", path] => fs::read(path).map(|bytes| bytes.len().to_string()),
        ["stat", path] => fs::metadata(path).map(|_| none),
        ["list", path] => fs::read_dir(path).map(|entries| {
            let mut names: Vec<String> = entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names.join(" ")
        }),
        ["write", path, bytes] => fs::write(path, vec![1; bytes.parse().unwrap_or(1)])
            .and_then(|()| fs::read(path))
            .map(|read| read.len().to_string()),
        ["link", from, to] => std::os::unix::fs::symlink(from, to).map(|()| none),
        ["copy-run", from, to] => {
            fs::copy(from, to)?;
            fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
            run(&[to])
        }
        ["run", command @ ..] => run(command),
        ["sockets"] => {
            let made: Vec<String> = (0..50)
                .flat_map(|family| [1, 2, 3, 5].map(|kind| (family, kind)))
                .filter(|(family, kind)| call(libc::SYS_socket, [*family, *kind, 0, 0, 0, 0]).is_ok())
                .map(|(family, kind)| format!("{family}/{kind}"))
                .collect();
            Ok(made.join(" "))
        }
        ["call", number, arguments @ ..] => {
            let mut all = [0; 6];
            for (slot, text) in all.iter_mut().zip(arguments) {
                *slot = text.parse().unwrap_or(0);
            }
            call(number.parse().unwrap_or(-1), all).map(|result| result.to_string())
        }
        ["signals", pid] => {
            let pid = pid.parse().unwrap_or(1);
            let calls = [
                call(libc::SYS_kill, [pid, 0, 0, 0, 0, 0]),
                call(libc::SYS_tgkill, [pid, pid, 0, 0, 0, 0]),
                call(libc::SYS_tkill, [pid, 0, 0, 0, 0, 0]),
                call(libc::SYS_rt_sigqueueinfo, [pid, 9, 0, 0, 0, 0]),
            ];
            let reached = calls.iter().filter(|result| result.is_ok()).count();
            Ok(reached.to_string())
        }
        ["pid"] => Ok(std::process::id().to_string()),
        ["memory", bytes] => {
            let bytes: usize = bytes.parse().unwrap_or(0);
            let memory = vec![1_u8; bytes];
            Ok(memory.iter().filter(|byte| **byte == 1).count().to_string())
        }
        ["map", flags] => {
            let flags = flags.parse().unwrap_or(0);
            call(libc::SYS_mmap, [0, 4096, 3, flags, -1, 0]).map(|_| none)
        }
        ["spin"] => loop {
            std::hint::black_box(1);
        },
        ["threads", count] => {
            let count = count.parse().unwrap_or(0);
            let mut threads = Vec::new();
            for number in 0..count {
                let work = move || {
                    thread::sleep(Duration::from_millis(100));
                    vec![number; 1000].iter().sum::<u64>() / 1000
                };
                threads.push(thread::Builder::new().spawn(work)?);
            }
            let sum: u64 = threads.into_iter().filter_map(|thread| thread.join().ok()).sum();
            Ok(sum.to_string())
        }
        ["fork"] => {
            // SAFETY: this process has one thread.
            match unsafe { libc::fork() } {
                0 => std::process::exit(0),
                -1 => Err(io::Error::last_os_error()),
                child => Ok(child.to_string()),
            }
        }
        ["fork-bomb"] => {
            let mut children = 0;
            loop {
                // SAFETY: this process has one thread.
                match unsafe { libc::fork() } {
                    0 => loop {
                        thread::sleep(Duration::from_secs(100));
                    },
                    -1 => return Ok(children.to_string()),
                    _ => children += 1,
                }
                if children == 10_000 {
                    return Ok("10000 and more".to_owned());
                }
            }
        }
        ["linger", command @ ..] => {
            let [program, arguments @ ..] = command else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let child = Command::new(program)
                .args(arguments)
                .stdout(Stdio::null())
                .spawn()?;
            println!("ok {}", child.id());
            io::stdout().flush()?;
            loop {
                thread::sleep(Duration::from_secs(100));
            }
        }
        ["abort"] => std::process::abort(),
        ["exit", code] => std::process::exit(code.parse().unwrap_or(1)),
        ["give-way"] => {
            millpond_confine::give_way()?;
            // SAFETY: the call takes numbers only.
            Ok(unsafe { libc::sched_getscheduler(0) }.to_string())
        }
        ["take-back"] => {
            millpond_confine::give_way()?;
            call(libc::SYS_setpriority, [0, 0, 0, 0, 0, 0]).map(|_| none)
        }
        ["raise-limit"] => {
            let more = libc::rlimit {
                rlim_cur: 1 << 40,
                rlim_max: 1 << 40,
            };
            // SAFETY: the structure outlives the call, which only reads it.
            match unsafe { libc::setrlimit(libc::RLIMIT_DATA, &more) } {
                0 => Ok(none),
                _ => Err(io::Error::last_os_error()),
            }
        }
        other => panic!("what is {other:?}?"),
    }
}

fn run(command: &[&str]) -> io::Result<String> {
    let [program, arguments @ ..] = command else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()?;
    Ok(format!(
        "{} {}",
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout).trim()
    ))
}
