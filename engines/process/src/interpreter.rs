//! Zygotes whose guests are forked from an interpreter: a program that has started, and run what a function does before its first request,
//! once for all of them (`python/` in this repository).
//!
//! The interpreter runs the function's code, so it is not the zygote but a child of it, and all that it says is looked at. It is asked to fork with a
//! socket for the guest to come; the guest says on it that it is there, and the kernel who it is. The guest is the zygote's child, too: it
//! gets its folder, its control group and its request from here, and its end is learnt here.
//!
//! Guests are forked ahead of need, as many as the node orders: each waits in its control group, so that nothing is between a request and its guest. To
//! put a process into a group the kernel waits for all processors, for milliseconds (`cgroup_threadgroup_rwsem`), if nobody has done that a moment ago.
//!
//! An interpreter whose import has started threads cannot be forked: of several threads a fork has one, and all that the others held. It is asked to
//! be the guest by itself, the only one of its zygote, which ends with it. So the node has a zygote for each request to such a function.

use crate::{
    files::pair,
    wire::{self, End, Id, Imported, News, Order},
    zygote::{Finished, failed, mask_ends, reap, start, unmask},
};
use confine::Cell;
use rustix::{
    io::Errno,
    net::sockopt,
    process::{Pid, Signal, kill_process},
    stdio,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd},
    ptr,
};

/// What an interpreter is started with: its name, its arguments, and its environment, each with a zero at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
}

/// Where an interpreter finds the zygote's socket.
const CONTROL: i32 = 3;

/// What is said on it.
const READY: &[u8] = b"r";
const FORK: &[u8] = b"f";
const SERVE: &[u8] = b"s";
/// With the name of a service behind it, and the number of the process if it is a fork. The answer begins with the same, or with `n`.
const LINK: u8 = b'c';

/// Links that an import may ask for.
const MOST_LINKS: u32 = 1_000;

/// Guests that may fail to come, one after the other.
const MOST_FAILURES: u32 = 3;

/// A guest that has no request yet.
struct Seat {
    id: Id,
    /// Of its control group, which its process goes into as soon as it has come.
    doors: Vec<OwnedFd>,
    /// Its process, once it has come.
    guest: Option<(i32, OwnedFd)>,
    call: Option<Call>,
}

/// A request that waits for its guest.
struct Call {
    text: Vec<u8>,
    /// The guest's.
    given: Vec<OwnedFd>,
}

struct Family<'a> {
    cell: &'a Cell,
    node: &'a OwnedFd,
    interpreter: i32,
    /// Whose end is that of all in the interpreter's process namespace.
    first: i32,
    control: OwnedFd,
    is_ready: bool,
    /// Its interpreter has threads, and serves one request by itself.
    is_single: bool,
    /// Links that it has asked for.
    links: u32,
    /// Guests that the interpreter was asked for.
    coming: VecDeque<OwnedFd>,
    /// Guests that were ordered, and have no request yet.
    seats: Vec<Seat>,
    /// Guests that serve a request.
    serving: HashMap<i32, Id>,
    failures: u32,
    /// No guest has had a request yet: the first tells what the import had to say.
    is_new: bool,
    /// Why the interpreter has ended. Guests that serve go on, and no others begin.
    ending: Option<String>,
}

/// Starts the interpreter, and serves until the node has gone, or the interpreter.
pub(crate) fn serve(
    cell: &Cell,
    program: &Program,
    executable: &OwnedFd,
    node: &OwnedFd,
    doors: &[OwnedFd],
) -> Finished {
    let mask = mask_ends().map_err(failed("a zygote cannot learn of ends"))?;
    let first = cell
        .settle()
        .map_err(failed("a zygote has no process namespace for its interpreter"))?;
    let (control, theirs) = pair().map_err(failed("a zygote has no socket for its interpreter"))?;
    let interpreter = match cell.fork() {
        Ok(Some(process)) => process,
        Ok(None) => {
            unmask(&mask);
            let Err(error) = become_interpreter(cell, program, executable, theirs, doors);
            eprintln!("the interpreter could not be started: {error}");
            // SAFETY: it ends this process, in which nothing has to be done before.
            unsafe { libc::_exit(1) }
        }
        Err(error) => return Err(format!("a zygote cannot fork its interpreter: {error}")),
    };
    drop(theirs);
    let family = Family {
        cell,
        node,
        interpreter,
        first,
        control,
        is_ready: false,
        is_single: false,
        links: 0,
        coming: VecDeque::new(),
        seats: Vec::new(),
        serving: HashMap::new(),
        failures: 0,
        is_new: true,
        ending: None,
    };
    family.serve(&mask)
}

/// In the child.
fn become_interpreter(
    cell: &Cell,
    program: &Program,
    executable: &OwnedFd,
    control: OwnedFd,
    doors: &[OwnedFd],
) -> io::Result<std::convert::Infallible> {
    cell.open()?;
    confine::go_in(doors)?;
    let log = rustix::fs::memfd_create("millpond-log", rustix::fs::MemfdFlags::CLOEXEC)?;
    stdio::dup2_stdout(&log)?;
    stdio::dup2_stderr(&log)?;
    // The place may be taken by something that is needed after this, but for the copy of it.
    let executable = rustix::io::fcntl_dupfd_cloexec(executable, CONTROL + 1)?;
    let control = rustix::io::fcntl_dupfd_cloexec(&control, CONTROL + 1)?;
    cell.close(|| Ok(()))?;
    // SAFETY: whatever had this number in this process is used no more.
    let mut place = unsafe { OwnedFd::from_raw_fd(CONTROL) };
    rustix::io::dup2(&control, &mut place)?;
    let _ = place.into_raw_fd();
    let mut text = Vec::new();
    for argument in &program.arguments {
        text.extend_from_slice(argument.as_bytes());
        text.push(0);
    }
    for (name, value) in &program.environment {
        for part in [name.as_bytes(), b"=", value.as_bytes(), b"\0"] {
            text.extend_from_slice(part);
        }
    }
    let arguments = u32::try_from(program.arguments.len()).unwrap_or_default();
    let words = wire::Words {
        arguments,
        text: &text,
    };
    Err(start(executable.as_fd(), words))
}

impl Family<'_> {
    fn serve(mut self, mask: &libc::sigset_t) -> Finished {
        let mut buffer = vec![0; wire::LARGEST];
        loop {
            while let Some((process, end)) = reap() {
                if self.is_single && process == self.interpreter {
                    return self.has_served(end);
                }
                self.ended(process, end)?;
            }
            if let Some(reason) = &self.ending {
                let reason = reason.clone();
                self.refuse()?;
                if self.serving.is_empty() {
                    return Err(reason);
                }
            } else {
                self.match_calls()?;
                self.ask()?;
            }
            // One that serves by itself says nothing there any more.
            let control = match (&self.ending, self.is_single) {
                (None, false) => Some(self.control.as_fd()),
                _ => None,
            };
            let of_guests = 1 + usize::from(control.is_some());
            let sockets: Vec<_> = [self.node.as_fd()]
                .into_iter()
                .chain(control)
                .chain(self.coming.iter().map(OwnedFd::as_fd))
                .collect();
            let readable = wait(&sockets, mask).map_err(failed("a zygote cannot wait"))?;
            drop(sockets);
            if self.ending.is_none() {
                // From the last on: places in front of what goes stay what they were.
                for place in (of_guests..readable.len()).rev().filter(|place| readable[*place]) {
                    self.has_come(place - of_guests)?;
                }
                if of_guests == 2 && readable[1] {
                    self.hear_interpreter()?;
                }
            }
            if readable[0] && !self.hear_node(&mut buffer)? {
                return Ok(());
            }
        }
    }

    fn tell(&self, news: News) -> Finished {
        match wire::send(self.node, &[&news.packet()], &[]) {
            // Nobody is there any more, which is what it hears next.
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            other => other.map_err(failed("a zygote's node cannot be told")),
        }
    }

    fn ended(&mut self, process: i32, end: End) -> Finished {
        if process == self.interpreter {
            self.end(format!("its interpreter has ended: {}", how(end.status)));
            return Ok(());
        }
        if let Some(id) = self.serving.remove(&process) {
            return self.tell(News::Ended(id, end));
        }
        // It waited for a request, which another one will get. That goes into the same group.
        let seat = self.seats.iter_mut().find(|seat| seat.is_of(process));
        if let Some(seat) = seat {
            seat.guest = None;
        }
        Ok(())
    }

    /// There are no guests for the calls that wait.
    fn refuse(&mut self) -> Finished {
        let seats = std::mem::take(&mut self.seats);
        seats
            .iter()
            .filter(|seat| seat.call.is_some())
            .try_for_each(|seat| self.tell(News::Refused(seat.id)))
    }

    /// An interpreter that serves by itself has ended: with its request, if it had one.
    fn has_served(&mut self, end: End) -> Finished {
        // What it has started goes with the first process of their namespace, of which the kernel buries that one last.
        kill(self.first);
        bury(self.first);
        self.refuse()?;
        match self.serving.remove(&self.interpreter) {
            Some(id) => self.tell(News::Ended(id, end)),
            None => Err(format!("its interpreter has ended: {}", how(end.status))),
        }
    }

    /// There will be no guests any more. Those that serve a request are none of the interpreter's, and go on.
    fn end(&mut self, reason: String) {
        for seat in &mut self.seats {
            if let Some((process, _)) = seat.guest.take() {
                kill(process);
                bury(process);
            }
        }
        self.coming.clear();
        self.ending = Some(reason);
    }

    /// Has as many guests come as were ordered.
    fn ask(&mut self) -> Finished {
        if self.is_single || !self.is_ready {
            return Ok(());
        }
        let wanted = self.seats.iter().filter(|seat| seat.guest.is_none()).count();
        while self.ending.is_none() && self.coming.len() < wanted {
            self.ask_for_one(FORK)?;
        }
        Ok(())
    }

    fn ask_for_one(&mut self, word: &[u8]) -> Finished {
        let (ours, theirs) = pair().map_err(failed("a zygote has no socket for a guest"))?;
        sockopt::set_socket_passcred(&ours, true).map_err(failed("a zygote cannot tell its guests"))?;
        match wire::send(&self.control, &[word], &[theirs.as_fd()]) {
            // Guests that serve a request go on.
            Err(Errno::PIPE | Errno::CONNRESET) => self.await_its_end(),
            other => {
                other.map_err(failed("its interpreter takes no orders"))?;
                self.coming.push_back(ours);
            }
        }
        Ok(())
    }

    /// A guest that was asked for says that it is there; or nobody can say so any more.
    fn has_come(&mut self, place: usize) -> Finished {
        let Some(socket) = self.coming.remove(place) else {
            return Ok(());
        };
        let here = wire::receive_with_sender(&socket).map_err(failed("a zygote cannot hear a guest"))?;
        let is_fork = here.is_some_and(|process| process != self.interpreter);
        let Some(process) = here.filter(|_| is_fork != self.is_single) else {
            if self.is_single {
                // If it is not there, its end will say why.
                kill(self.interpreter);
                return Ok(());
            }
            return self.fails("its interpreter cannot be forked");
        };
        // Who serves by itself has its folder.
        if is_fork && let Err(error) = self.cell.furnish(process) {
            // It has ended meanwhile, as a rule.
            kill(process);
            return self.fails(&format!("its guests cannot be given a folder: {error}"));
        }
        // One that is called first.
        let free = self.seats.iter_mut().filter(|seat| seat.guest.is_none());
        let Some(seat) = free.min_by_key(|seat| seat.call.is_none()) else {
            // The node wants it no more.
            kill(process);
            return Ok(());
        };
        if let Err(error) = confine::put_in(&seat.doors, process) {
            kill(process);
            return self.fails(&format!(
                "its guests cannot be put into their control groups: {error}"
            ));
        }
        seat.guest = Some((process, socket));
        self.failures = 0;
        Ok(())
    }

    /// A guest has not come. Another one is asked for, unless that would be one too many.
    fn fails(&mut self, reason: &str) -> Finished {
        self.failures += 1;
        match self.failures {
            MOST_FAILURES.. => Err(reason.to_owned()),
            _ => Ok(()),
        }
    }

    fn hear_interpreter(&mut self) -> Finished {
        let mut word = [0; 1 + wire::NAME];
        match wire::receive(&self.control, &mut word) {
            Ok((length, _)) if word.get(..length) == Some(READY) && !self.is_ready => {
                let imported = self.imported();
                self.is_ready = true;
                if imported.threads > 0 {
                    self.is_single = true;
                    self.ask_for_one(SERVE)?;
                }
                self.tell(News::Ready(imported))
            }
            Ok((2.., _)) if word[0] == LINK && !self.is_ready && self.links < MOST_LINKS => {
                self.links += 1;
                let mut name = [0; wire::NAME];
                name.copy_from_slice(&word[1..]);
                self.tell(News::Wanted(name))
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            // With its end comes what it ended of.
            Ok((0, _)) | Err(Errno::CONNRESET) => {
                self.await_its_end();
                Ok(())
            }
            _ => Err("its interpreter says what an interpreter does not".to_owned()),
        }
    }

    /// What the import has made of the interpreter.
    fn imported(&self) -> Imported {
        let about = self.cell.about(self.interpreter, "status").unwrap_or_default();
        let number = |name: &str| {
            let line = about.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let threads = number("Threads:").unwrap_or(1).saturating_sub(1);
        Imported {
            threads: u32::try_from(threads).unwrap_or(u32::MAX),
            memory: number("RssAnon:").unwrap_or_default().saturating_mul(1024),
        }
    }

    fn await_its_end(&mut self) {
        kill(self.interpreter);
        let how = bury(self.interpreter).map(|status| format!(": {}", how(status)));
        self.end(format!("its interpreter has ended{}", how.unwrap_or_default()));
    }

    /// `false` if the node has gone.
    fn hear_node(&mut self, buffer: &mut [u8]) -> Result<bool, String> {
        let (length, descriptors) = match wire::receive(self.node, buffer) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(false),
            Err(Errno::INTR | Errno::AGAIN) => return Ok(true),
            other => other.map_err(failed("a zygote cannot hear its node"))?,
        };
        let order = Order::read(buffer.get(..length).unwrap_or_default());
        match order.ok_or("a zygote does not understand its node")? {
            Order::Wait(id) => self.seats.push(Seat {
                id,
                doors: descriptors,
                guest: None,
                call: None,
            }),
            Order::Call(id, text) => {
                let call = Call {
                    text: text.to_vec(),
                    given: descriptors,
                };
                match self.seats.iter_mut().find(|seat| seat.id == id) {
                    Some(seat) => seat.call = Some(call),
                    // Its interpreter has ended.
                    None => self.tell(News::Refused(id))?,
                }
            }
            Order::End(id) => {
                let seat = self.seats.extract_if(.., |seat| seat.id == id).next();
                match seat.map(|seat| seat.guest) {
                    // It has its end yet to be learnt of.
                    Some(Some((process, _))) => {
                        self.serving.insert(process, id);
                        kill(process);
                    }
                    Some(None) => self.tell(News::Ended(id, End::default()))?,
                    None => {
                        if let Some((process, _)) = self.serving.iter().find(|(_, other)| **other == id) {
                            kill(*process);
                        }
                    }
                }
            }
            Order::Link(word) => {
                let given: Vec<BorrowedFd<'_>> = descriptors.iter().map(OwnedFd::as_fd).collect();
                // If it has ended, its end tells so.
                let _ = wire::send(&self.control, &[word], &given);
            }
            Order::Pure(_) | Order::Program(..) => {
                return Err("a zygote was asked for a guest of another kind".to_owned());
            }
        }
        Ok(true)
    }

    /// Gives calls to guests that wait.
    fn match_calls(&mut self) -> Finished {
        let is_called = |seat: &mut Seat| seat.call.is_some() && seat.guest.is_some();
        for seat in self.seats.extract_if(.., is_called).collect::<Vec<_>>() {
            let (Some(call), Some((process, socket))) = (&seat.call, &seat.guest) else {
                continue;
            };
            let given: Vec<BorrowedFd<'_>> = call.given.iter().map(OwnedFd::as_fd).collect();
            let first: &[u8] = if self.is_new { b"1" } else { b"0" };
            match wire::send(socket, &[first, &call.text], &given) {
                Ok(()) => {
                    self.is_new = false;
                    self.serving.insert(*process, seat.id);
                    self.tell(News::Begun(seat.id, *process))?;
                }
                // It has ended before it was given anything: another one gets the call.
                Err(error) => {
                    tracing::debug!(%error, "a guest has ended before its request");
                    kill(*process);
                    self.seats.push(Seat { guest: None, ..seat });
                }
            }
        }
        if self.is_single && !self.serving.is_empty() {
            self.refuse()?;
        }
        Ok(())
    }
}

impl Seat {
    fn is_of(&self, process: i32) -> bool {
        self.guest.as_ref().is_some_and(|(guest, _)| *guest == process)
    }
}

fn kill(process: i32) {
    if let Some(process) = Pid::from_raw(process) {
        // It has ended by itself at most, and is not buried.
        let _ = kill_process(process, Signal::KILL);
    }
}

/// Waits for the end of a child: its status, unless somebody else has buried it.
fn bury(process: i32) -> Option<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call.
        match unsafe { libc::waitpid(process, &mut status, 0) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return None,
            _ => return Some(status),
        }
    }
}

fn how(status: i32) -> String {
    if libc::WIFEXITED(status) {
        format!("it exited with code {}", libc::WEXITSTATUS(status))
    } else {
        format!("it was ended by signal {}", libc::WTERMSIG(status))
    }
}

/// Waits until some of these can be read, or a child has ended: which can.
fn wait(sockets: &[BorrowedFd<'_>], mask: &libc::sigset_t) -> io::Result<Vec<bool>> {
    let mut watched: Vec<_> = sockets
        .iter()
        .map(|socket| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: the list is as long as said, and all structures outlive the call.
    let ready = unsafe {
        libc::ppoll(
            watched.as_mut_ptr(),
            watched.len() as libc::nfds_t,
            ptr::null(),
            mask,
        )
    };
    if ready < 0 {
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
        return Ok(vec![false; sockets.len()]);
    }
    Ok(watched.iter().map(|one| one.revents != 0).collect())
}
