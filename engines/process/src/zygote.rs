//! The processes from which guests are forked: a spawner for a node, and a zygote for each image.
//!
//! The spawner is this very program, started again: it has one thread, none of the node's memory and descriptors, and it forks zygotes. A zygote
//! is confined as far as all guests of its image have it in common ([`confine::Cell`]), and has mapped what they all read. From then on it
//! forks a guest for each order, and tells how each has ended, after nothing is left of it. Neither runs any code of the image's.
//!
//! Both end when who started them does.

use crate::{
    executable::Layout,
    interpreter::{self, Program},
    pure_guest::Prepared,
    trace::{Gate, Traced},
    wire::{self, End, Imported, News, Order, Words},
};
use confine::{Cell, Confinement, Guests, Limits, Placed};
use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
    process::{Pid, Signal, kill_process, setsid},
    stdio,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fmt::Display,
    io,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::PathBuf,
    ptr,
    time::Duration,
};

/// What a zygote is for: the packet that starts it. The zygote's socket and the executable come with it, and the doors of an interpreter's control group.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// How its guests are laid out if they are pure: and how much memory each has.
    pub(crate) pure: Option<(Layout, u64)>,
    /// What they are forked from, if that is an interpreter: the executable is its.
    pub(crate) interpreter: Option<Program>,
    /// Files and folders that its guests may read and run.
    pub(crate) execute: Vec<PathBuf>,
    /// Files that they may read.
    pub(crate) read: Vec<PathBuf>,
    /// Folders that they may read and run from, and where they find them.
    pub(crate) placed: Vec<(PathBuf, PathBuf)>,
    /// A folder of its own for each, in memory.
    pub(crate) scratch: Option<(PathBuf, u64)>,
    /// Bytes of memory that each process of a guest may write to: what all of them may use is their control group's to limit.
    pub(crate) memory: u64,
    /// Bytes of the stack of a program's first thread.
    pub(crate) stack: u64,
    /// Bytes of a file that a guest writes.
    pub(crate) file_size: u64,
    /// Descriptors of each process of a guest.
    pub(crate) open_files: u64,
    /// Threads and processes of a guest.
    pub(crate) threads: u64,
    /// Time on processors that each process of a guest may take.
    pub(crate) processor: Duration,
}

/// How much guests give way to others.
const NICE: libc::c_int = 10;

/// Why a process has nothing to do any more, if that is no news to whoever started it.
pub(crate) type Finished = Result<(), String>;

pub(crate) fn failed<E: Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// What the process does that a node has started to be its spawner: its standard input is the node's socket. It returns in the end, in zygotes
/// and guests, too.
pub(crate) fn spawner() -> Finished {
    // What a terminal sends to the node is the node's to act on: it may wait for its requests.
    let _ = setsid();
    // Zygotes are the kernel's to bury: their nodes learn of their ends by their sockets.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    // The node's own threads go first, by as much as ten to one, or they would wait for a guest that computes.
    // SAFETY: the call takes numbers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    let mut buffer = vec![0; wire::LARGEST];
    loop {
        let (length, descriptors) = match wire::receive(stdio::stdin(), &mut buffer) {
            Ok((0, _)) => return Ok(()),
            Err(Errno::INTR) => continue,
            other => other.map_err(failed("the spawner cannot hear its node"))?,
        };
        let packet = buffer.get(..length).unwrap_or_default();
        let setup: Setup =
            serde_json::from_slice(packet).map_err(failed("the spawner does not understand its node"))?;
        let mut descriptors = descriptors.into_iter();
        let (Some(socket), Some(executable)) = (descriptors.next(), descriptors.next()) else {
            return Err("the spawner was not given a socket and an executable".to_owned());
        };
        let doors: Vec<_> = descriptors.collect();
        // SAFETY: this process has one thread, so the child has no lock that another would have to give back.
        match unsafe { libc::fork() } {
            0 => {
                drop(buffer);
                let finished = zygote(&setup, &socket, executable, &doors);
                if let Err(reason) = &finished {
                    let _ = wire::send(&socket, &[reason.as_bytes()], &[]);
                }
                return finished;
            }
            // What came with the packet is closed, which tells the node.
            -1 => tracing::warn!(error = %io::Error::last_os_error(), "no zygote could be forked"),
            _ => {}
        }
    }
}

/// Its standard input is the spawner's: nobody else is to have that socket.
fn forget_the_node() -> rustix::io::Result<()> {
    let nothing = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    stdio::dup2_stdin(nothing)
}

fn zygote(setup: &Setup, socket: &OwnedFd, executable: OwnedFd, doors: &[OwnedFd]) -> Finished {
    forget_the_node().map_err(failed("a zygote cannot let go of its spawner's socket"))?;
    let scratch = setup.scratch.clone();
    let guests = match (&setup.pure, &setup.interpreter) {
        (Some(_), _) => Guests::Pure,
        (None, Some(_)) => Guests::Interpreter { scratch },
        (None, None) => Guests::Programs { scratch },
    };
    let placed = setup.placed.iter();
    let confinement = Confinement {
        read: setup.read.clone(),
        execute: setup.execute.clone(),
        placed: placed
            .map(|(path, at)| Placed {
                path: path.clone(),
                at: at.clone(),
            })
            .collect(),
        limits: Limits {
            memory: setup.memory,
            stack: Some(setup.stack),
            file_size: setup.file_size,
            threads: setup.threads,
            processor: Some(setup.processor),
            open_files: setup.open_files,
            ..Limits::default()
        },
        ..Confinement::default()
    };
    let cell = confinement
        .enter_to_fork(guests)
        .map_err(failed("a zygote cannot be confined"))?;
    if let Some(program) = &setup.interpreter {
        return interpreter::serve(&cell, program, &executable, socket, doors);
    }
    let prepared = match &setup.pure {
        None => None,
        Some((layout, memory)) => {
            let prepared = Prepared::new(layout, *memory, &executable, cell.filter());
            Some(prepared.map_err(failed("a zygote cannot map its executable"))?)
        }
    };
    let mut zygote = Zygote {
        cell,
        prepared,
        gate: Gate::new().map_err(failed("a zygote has no memory to share"))?,
        executable,
        guests: HashMap::new(),
    };
    zygote.serve(socket)
}

struct Zygote {
    cell: Cell,
    /// If its guests are pure.
    prepared: Option<Prepared>,
    gate: Gate,
    executable: OwnedFd,
    /// By their processes.
    guests: HashMap<i32, Guest>,
}

struct Guest {
    id: wire::Id,
    traced: Traced,
}

/// Ends and stops of guests that are dealt with before orders are looked at again.
const AT_ONCE: usize = 64;

/// Interrupts a wait, and does nothing else.
extern "C" fn a_child_has_ended(_: libc::c_int) {}

/// Has SIGCHLD come while this process waits, and at no other time: the mask to wait with.
pub(crate) fn mask_ends() -> io::Result<libc::sigset_t> {
    // SAFETY: all structures are initialised by the calls before they are read, and outlive them; the handler does nothing.
    unsafe {
        let mut ends = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigemptyset(&mut ends);
        libc::sigaddset(&mut ends, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &ends, &mut before) < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = a_child_has_ended as *const () as usize;
        if libc::sigaction(libc::SIGCHLD, &action, ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(before)
    }
}

/// As a program expects it to be when it is started.
pub(crate) fn unmask(mask: &libc::sigset_t) {
    // SAFETY: the structure outlives the calls, which install no handler.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, mask, ptr::null_mut());
    }
}

impl Zygote {
    fn serve(&mut self, socket: &OwnedFd) -> Finished {
        let mask = mask_ends().map_err(failed("a zygote cannot learn of ends"))?;
        let lost = failed("a zygote's node cannot be told");
        let tell = |news: News| match wire::send(socket, &[&news.packet()], &[]) {
            // Nobody is there any more, which is what it hears next.
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            other => other,
        };
        tell(News::Ready(Imported::default())).map_err(&lost)?;
        let mut buffer = vec![0; wire::LARGEST];
        loop {
            let mut changes = 0;
            while changes < AT_ONCE
                && let Some((process, end)) = reap()
            {
                changes += 1;
                if libc::WIFSTOPPED(end.status) {
                    if let Some(guest) = self.guests.get_mut(&process) {
                        guest.traced.stopped(&self.cell, process, end.status);
                    }
                } else if let Some(guest) = self.guests.remove(&process) {
                    let (status, overflowed) = guest.traced.ended(end.status);
                    let end = End {
                        status,
                        overflowed,
                        ..end
                    };
                    tell(News::Ended(guest.id, end)).map_err(&lost)?;
                }
            }
            if !readable(socket, &mask, changes < AT_ONCE).map_err(failed("a zygote cannot wait"))? {
                continue;
            }
            let (length, descriptors) = match wire::receive(socket, &mut buffer) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(()),
                Err(Errno::INTR) => continue,
                other => other.map_err(failed("a zygote cannot hear its node"))?,
            };
            let order = Order::read(buffer.get(..length).unwrap_or_default());
            match order.ok_or("a zygote does not understand its node")? {
                Order::End(id) => self.end(id),
                Order::Pure(id) | Order::Program(id, _)
                    if self.guests.values().any(|other| other.id == id) =>
                {
                    return Err("a zygote has a guest of this number already".to_owned());
                }
                Order::Wait(_) | Order::Call(..) | Order::Link(_) => {
                    return Err("a zygote without an interpreter was given what is for one".to_owned());
                }
                order @ (Order::Pure(id) | Order::Program(id, _)) => {
                    self.gate.next();
                    let news = match self.cell.fork() {
                        Ok(None) => {
                            unmask(&mask);
                            let Err(error) = self.become_guest(&order, descriptors);
                            // To its log, if it has got as far as that.
                            eprintln!("the function could not be started: {error}");
                            // SAFETY: it ends this process, in which nothing has to be done before.
                            unsafe { libc::_exit(NOT_STARTED) }
                        }
                        Ok(Some(process)) => {
                            let traced = Traced::default();
                            self.guests.insert(process, Guest { id, traced });
                            if self.prepared.is_none() {
                                self.gate.seize(process);
                            }
                            News::Begun(id, process)
                        }
                        Err(error) => News::Failed(id, error.raw_os_error().unwrap_or_default()),
                    };
                    drop(descriptors);
                    tell(news).map_err(&lost)?;
                    self.gate.release();
                }
            }
        }
    }

    fn end(&self, id: wire::Id) {
        let process = self.guests.iter().find(|(_, guest)| guest.id == id);
        if let Some(process) = process.and_then(|(process, _)| Pid::from_raw(*process)) {
            // It has ended by itself at most, and is not buried.
            let _ = kill_process(process, Signal::KILL);
        }
    }

    /// In the child.
    fn become_guest(
        &self,
        order: &Order<'_>,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<std::convert::Infallible> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidInput);
        self.cell.open()?;
        self.gate.ready();
        if let [_, _, log, doors @ ..] = &descriptors[..] {
            stdio::dup2_stderr(log)?;
            confine::go_in(doors)?;
        }
        self.cell.close(|| self.gate.wait(&self.cell))?;
        match order {
            Order::Pure(_) => {
                let [region] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| wrong())?;
                self.prepared.as_ref().ok_or_else(wrong)?.enter(&region)
            }
            Order::Program(_, words) => {
                let [input, output, ..] = &descriptors[..] else {
                    return Err(wrong());
                };
                stdio::dup2_stdin(input)?;
                stdio::dup2_stdout(output)?;
                Err(start(self.executable.as_fd(), *words))
            }
            Order::Wait(_) | Order::Call(..) | Order::Link(_) | Order::End(_) => Err(wrong()),
        }
    }
}

/// The exit code of a guest whose program could not be started.
pub(crate) const NOT_STARTED: i32 = 126;

/// Starts a program in place of this one. It returns if that fails.
pub(crate) fn start(executable: impl AsFd, words: Words<'_>) -> io::Error {
    let strings = words.text.split_inclusive(|byte| *byte == 0);
    let strings: Vec<_> = strings
        .filter(|string| string.ends_with(&[0]))
        .map(|string| string.as_ptr().cast::<libc::c_char>())
        .collect();
    let (arguments, environment) = strings.split_at(strings.len().min(words.arguments as usize));
    let ended = |list: &[*const libc::c_char]| [list, &[ptr::null()]].concat();
    let (arguments, environment) = (ended(arguments), ended(environment));
    // SAFETY: both lists end with a null pointer; each other pointer is that of a string in `words` that ends with a zero.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            executable.as_fd().as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    io::Error::last_os_error()
}

/// Whether there is an order, or something to be told; else a guest may have ended. It waits for either, if it is to.
fn readable(socket: &OwnedFd, mask: &libc::sigset_t, wait: bool) -> io::Result<bool> {
    let mut watched = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let time = if wait { ptr::null() } else { &raw const now };
    // SAFETY: all structures outlive the call.
    let ready = unsafe { libc::ppoll(&mut watched, 1, time, mask) };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        error => Err(error),
    }
}

/// A child that has ended or stopped, if there is one.
pub(crate) fn reap() -> Option<(i32, End)> {
    let mut status = 0;
    // SAFETY: numbers only, which the call overwrites.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both outlive the call.
    let process = unsafe { libc::wait4(-1, &mut status, libc::WNOHANG | libc::__WALL, &mut usage) };
    if process <= 0 {
        return None;
    }
    let time = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    let end = End {
        status,
        overflowed: false,
        processor: time(usage.ru_utime) + time(usage.ru_stime),
        memory: usage.ru_maxrss as u64 * 1024,
    };
    Some((process, end))
}
