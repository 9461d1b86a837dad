//! A sandbox: one request, and the process that serves it.

use crate::{
    files::{LOG, fixed, no_memory, stream, trap},
    host::{Held, Lease, Ordered, Standing, Zygote},
    image::Loaded,
    pure_guest::{BAD_ACCESS, STACK_OVERFLOW},
    wire::{End, Id, Order, Words},
    zygote::NOT_STARTED,
};
use bytes::Bytes;
use contract::{Fault, Grant, Input, Sandbox, Step, Until, Usage};
use fresh::Place;
use pure::system_data::Memory;
use ring::{Region, Shared};
use rustix::{fs::fstat, io::pread};
use std::{
    mem,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    task::{Poll, Waker},
    time::{Duration, Instant},
};
use wasi::Command;

/// After which an order is tried again for which the zygote's socket had no room.
const AGAIN: Duration = Duration::from_millis(1);

/// What a guest is given, and leaves.
enum Work {
    /// A pure function's memory, and the names of its output sets.
    Pure(Shared),
    /// A program's three streams.
    Program {
        streams: [OwnedFd; 3],
        group: Option<Lease>,
        /// How much of its log has been handed over.
        logged: u64,
    },
}

impl Work {
    /// Time on processors of all processes that do it, where that is counted.
    fn time(&mut self) -> Option<Duration> {
        match self {
            Self::Program { group, .. } => group.as_mut()?.time(),
            Self::Pure(_) => None,
        }
    }
}

enum State {
    /// For the last piece of the request's body, or for the zygote to take an order.
    New(Option<Work>),
    Running(Id, Work),
    Over,
}

/// See the module.
pub(crate) struct Running {
    state: State,
    command: Command,
    usage: Usage,
    grant: Arc<Grant>,
    image: Arc<Loaded>,
    zygote: Arc<Zygote>,
    place: Option<Place>,
    /// Orders that zygotes took.
    orders: u32,
    /// Zygotes that ended before they took one.
    gone: u32,
}

/// Bytes of an output item from which on it is handed on where it lies: less is copied in less time than pages are given back.
const KEPT: usize = 64 << 10;

/// Orders of one request, if those before came to nothing.
const MOST_ORDERS: u32 = 2;

/// Zygotes that may have ended before they took any: others were needed meanwhile.
const MOST_GONE: u32 = 8;

impl Running {
    pub(crate) fn new(
        image: Arc<Loaded>,
        zygote: Arc<Zygote>,
        grant: Arc<Grant>,
        input: Input,
        place: Place,
    ) -> Self {
        Self {
            state: State::New(None),
            command: Command::new(grant.clone(), input),
            usage: Usage::default(),
            grant,
            image,
            zygote,
            place: Some(place),
            orders: 0,
            gone: 0,
        }
    }

    /// What the guest is given.
    fn work(&mut self) -> Result<Work, Fault> {
        if !self.command.is_pure() {
            return self.streams().map_err(no_memory);
        }
        let Some(layout) = self.image.layout() else {
            return Err(trap("it is no pure function"));
        };
        let region = self.image.region(layout, self.grant.limits.memory);
        let mut region = region.map_err(no_memory)?;
        let base = layout.span.start;
        let bytes = region.bytes_mut();
        let free = layout.span.end..base + bytes.len() as u64;
        let mut memory = Memory { bytes, base };
        self.command
            .place_in::<u64>(&mut memory, layout.system_data, free)?;
        Ok(Work::Pure(region.share()))
    }

    fn streams(&mut self) -> std::io::Result<Work> {
        let group = self.image.group(&self.grant.limits)?;
        let body = self.command.body().take(usize::MAX);
        Ok(Work::Program {
            streams: [fixed(&body)?, stream()?, stream()?],
            group,
            logged: 0,
        })
    }

    fn order(&mut self, work: &Work, waker: &Waker) -> Ordered {
        match work {
            Work::Pure(region) => {
                let order = |id| Order::Pure(id).head();
                self.zygote.order(order, &[], &[region.file()], waker)
            }
            Work::Program { streams, group, .. } => {
                let (arguments, text) = words(&mut self.command);
                let order = |id| Order::Program(id, Words { arguments, text: &[] }).head();
                let [input, output, log] = streams;
                let doors = group.iter().flat_map(Lease::doors);
                let streams = [input.as_fd(), output.as_fd(), log.as_fd()];
                let descriptors: Vec<_> = streams.into_iter().chain(doors).collect();
                self.zygote.order(order, &text, &descriptors, waker)
            }
        }
    }

    fn begin(&mut self, waker: &Waker, work: Option<Work>) -> Result<Option<Step>, Fault> {
        if work.is_none() && self.command.is_incomplete() {
            match self.command.poll_complete(waker) {
                Poll::Pending => return Ok(Some(Step::Waiting { until: None })),
                Poll::Ready(complete) => complete?,
            }
        }
        let work = match work {
            Some(work) => work,
            None => self.work()?,
        };
        let again = match self.order(&work, waker) {
            Ordered::Taken(id) => {
                self.orders += 1;
                self.state = State::Running(id, work);
                return Ok(None);
            }
            Ordered::Full => AGAIN,
            Ordered::Gone if self.gone == MOST_GONE => {
                return Err(trap("its process could not be ordered: its zygotes end"));
            }
            Ordered::Gone => {
                self.gone += 1;
                self.renew_zygote()?;
                Duration::ZERO
            }
        };
        self.state = State::New(Some(work));
        Ok(Some(Step::Waiting {
            until: Some(Instant::now() + again),
        }))
    }

    fn renew_zygote(&mut self) -> Result<(), Fault> {
        let zygote = self.image.zygote(&self.grant);
        self.zygote = zygote.map_err(|reason| trap(&reason))?;
        Ok(())
    }

    /// At the earliest it will have used up its time on processors then.
    fn wait(&self, used: Duration) -> Step {
        let limits = &self.grant.limits;
        Step::Waiting {
            until: Some(Instant::now() + limits.cpu_time.saturating_sub(used) / limits.cpus.max(1)),
        }
    }

    fn look(&mut self, process: i32, together: Option<Duration>) -> Result<Step, Fault> {
        // It may have ended, and nobody has heard of that yet.
        let used = together.or_else(|| processor_time(process));
        let used = used.unwrap_or(self.usage.elsewhere);
        self.usage.elsewhere = used;
        let limit = self.grant.limits.cpu_time;
        if used >= limit {
            Err(Fault::CpuTime { limit })
        } else {
            Ok(self.wait(used))
        }
    }

    fn finish(&mut self, end: End, mut work: Work) -> Result<(), Fault> {
        let together = work.time();
        self.usage.memory = end.memory;
        let used = together.unwrap_or(Duration::from_micros(end.processor));
        self.usage.elsewhere = used;
        let limit = self.grant.limits.cpu_time;
        if let Ended::Killed(_) = ended(end)
            && used >= limit
        {
            return Err(Fault::CpuTime { limit });
        }
        match work {
            Work::Pure(region) => {
                // SAFETY: the zygote says that nothing is left of the guest, which was the only one to get it.
                let region = unsafe { region.reclaim() };
                self.finish_pure(end, region)
            }
            Work::Program {
                streams: [_, output, log],
                group,
                logged,
            } => {
                self.log(&log, logged);
                let result = self.finish_program(end, &output);
                let ran_out = group.is_some_and(|mut group| group.ran_out());
                result.map_err(|fault| match fault {
                    Fault::Trap { reason } if ran_out => self.out_of_memory(reason),
                    Fault::Exit { code } if ran_out => {
                        self.out_of_memory(format!("it exited with code {code}"))
                    }
                    other => other,
                })
            }
        }
    }

    fn finish_pure(&mut self, end: End, mut region: Region) -> Result<(), Fault> {
        match ended(end) {
            Ended::Left(0) => {}
            Ended::Left(STACK_OVERFLOW) => return Err(Fault::StackOverflow),
            Ended::Left(BAD_ACCESS) => return Err(trap("it touched memory that it does not have")),
            Ended::Left(NOT_STARTED) => return Err(trap("its process could not become the function")),
            Ended::Left(code) => return Err(Fault::Exit { code }),
            Ended::Killed(libc::SIGSYS) => {
                return Err(trap(
                    "it made a system call, and a pure function has none but to leave",
                ));
            }
            Ended::Killed(signal) => return Err(killed(signal)),
        }
        let Some(layout) = self.image.layout() else {
            return Err(trap("it is no pure function"));
        };
        self.image.add_read_only(layout, &mut region);
        let memory = Memory {
            bytes: region.bytes_mut(),
            base: layout.span.start,
        };
        let found = self.command.find::<u64>(&memory, layout.system_data)?;
        let items = found.iter().flat_map(|set| &set.items);
        let places: Vec<_> = items.map(|item| item.data.clone()).collect();
        // They lie inside: `find` has looked.
        let mut parts = region.into_parts(&places).unwrap_or_default().into_iter();
        let take = |_| {
            let part = parts.next().unwrap_or_default();
            match part.len() {
                KEPT.. => part,
                _ => Bytes::copy_from_slice(&part),
            }
        };
        self.command.answer_with(found, take)
    }

    fn out_of_memory(&self, reason: String) -> Fault {
        let limit = self.grant.limits.memory;
        Fault::OutOfMemory { limit, reason }
    }

    fn finish_program(&mut self, end: End, output: &OwnedFd) -> Result<(), Fault> {
        let limit = self.grant.limits.response_body;
        let most = self.command.most_output() as u64;
        let size = fstat(output).map_err(no_memory)?.st_size.cast_unsigned();
        match ended(end) {
            _ if size > most => return Err(Fault::OutputTooLarge { limit }),
            _ if end.overflowed => return Err(Fault::StackOverflow),
            Ended::Left(0) => {}
            Ended::Left(code) => return Err(Fault::Exit { code }),
            Ended::Killed(signal) => return Err(killed(signal)),
        }
        let bytes = read(output, 0, size as usize).map_err(no_memory)?;
        self.command.write_whole(bytes)?;
        self.command.finish(0)
    }

    /// Hands over what the program has said since the last time.
    fn log(&mut self, log: &OwnedFd, logged: u64) -> u64 {
        let size = fstat(log).map_or(0, |stat| stat.st_size.cast_unsigned()).min(LOG);
        let new = size.saturating_sub(logged);
        if new > 0
            && let Ok(bytes) = read(log, logged, new as usize)
        {
            self.command.log(&bytes);
        }
        size.max(logged)
    }

    fn step(&mut self, waker: &Waker) -> Result<Step, Fault> {
        loop {
            match mem::replace(&mut self.state, State::Over) {
                State::New(work) => {
                    if let Some(step) = self.begin(waker, work)? {
                        if let State::Over = self.state {
                            self.state = State::New(None);
                        }
                        return Ok(step);
                    }
                }
                State::Running(id, mut work) => {
                    let standing = self.zygote.standing(id, waker);
                    if let Work::Program {
                        streams: [_, _, log],
                        logged,
                        ..
                    } = &mut work
                    {
                        *logged = self.log(log, *logged);
                    }
                    match standing {
                        Standing::Ended { end, began } => {
                            self.usage.started = self.usage.started.or(began);
                            self.give_up(id, None);
                            self.finish(end, work)?;
                            return Ok(Step::Done(self.usage));
                        }
                        Standing::Unbegun(_) if self.orders < MOST_ORDERS => {
                            self.zygote.forget(id);
                            self.renew_zygote()?;
                            self.state = State::New(Some(work));
                        }
                        Standing::Lost(reason) | Standing::Unbegun(reason) => {
                            self.give_up(id, Some(work));
                            return Err(trap(&format!("its process was lost: {reason}")));
                        }
                        Standing::Ordered => {
                            self.state = State::Running(id, work);
                            return Ok(self.wait(Duration::ZERO));
                        }
                        Standing::Begun { process, at } => {
                            let together = work.time();
                            self.state = State::Running(id, work);
                            self.usage.started = Some(at);
                            return self.look(process, together);
                        }
                    }
                }
                State::Over => return Err(trap("it was run after its end")),
            }
        }
    }

    /// What the guest holds is free once nothing of it is left.
    fn give_up(&mut self, id: Id, work: Option<Work>) {
        let group = match work {
            Some(Work::Program { group, .. }) => group,
            _ => None,
        };
        if let Some(place) = self.place.take() {
            let held = Held {
                _place: Some(place),
                _group: group,
            };
            self.zygote.give_up(id, held);
        }
    }
}

impl Sandbox for Running {
    fn run(&mut self, waker: &Waker, _until: Until<'_>) -> Step {
        match self.step(waker) {
            Ok(step) => step,
            Err(fault) => {
                self.abandon();
                Step::Fault(fault, self.usage)
            }
        }
    }

    fn is_elsewhere(&self) -> bool {
        true
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}

impl Running {
    /// Ends the guest, if there is one, after its last words.
    fn abandon(&mut self) {
        if let State::Running(id, work) = mem::replace(&mut self.state, State::Over) {
            if let Work::Program {
                streams: [_, _, log],
                logged,
                ..
            } = &work
            {
                self.log(log, *logged);
            }
            self.give_up(id, Some(work));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// The program's name and arguments, then its environment: how many of them are arguments, and all with a zero after each.
fn words(command: &mut Command) -> (u32, Vec<u8>) {
    let arguments = command.words();
    let mut text = Vec::new();
    for word in &arguments {
        text.extend_from_slice(word.as_bytes());
        text.push(0);
    }
    for (name, value) in command.variables() {
        for part in [name.as_bytes(), b"=", value.as_bytes(), b"\0"] {
            text.extend_from_slice(part);
        }
    }
    (u32::try_from(arguments.len()).unwrap_or_default(), text)
}

/// What became of a process.
enum Ended {
    Left(i32),
    Killed(i32),
}

fn ended(end: End) -> Ended {
    if libc::WIFEXITED(end.status) {
        Ended::Left(libc::WEXITSTATUS(end.status))
    } else {
        Ended::Killed(libc::WTERMSIG(end.status))
    }
}

fn killed(signal: i32) -> Fault {
    let what = match signal {
        libc::SIGABRT => "it aborted",
        // Only its first thread is traced, and `abort` of another ends in this one.
        libc::SIGSEGV | libc::SIGBUS => "it touched memory that it does not have, or aborted",
        libc::SIGILL => "it has an invalid instruction",
        libc::SIGFPE => "it divided by zero",
        libc::SIGSYS => "it made a system call that is the end here",
        libc::SIGXFSZ => "it wrote a larger file than it may",
        libc::SIGXCPU => "it used more time on a processor than it may",
        libc::SIGTRAP => "it stopped at a breakpoint",
        _ => "it was ended",
    };
    trap(&format!("{what} (signal {signal})"))
}

fn read(file: &OwnedFd, mut at: u64, bytes: usize) -> rustix::io::Result<Vec<u8>> {
    let mut into = vec![0; bytes];
    let mut rest = &mut into[..];
    while !rest.is_empty() {
        let count = pread(file, &mut *rest, at)?;
        if count == 0 {
            break;
        }
        at += count as u64;
        rest = &mut rest[count..];
    }
    let missing = rest.len();
    into.truncate(bytes - missing);
    Ok(into)
}

/// Time that a process has had on processors. `None` if there is no such process any more.
fn processor_time(process: i32) -> Option<Duration> {
    // As `clock_getcpuclockid` makes them.
    let clock = (!process << 3) | 2;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure outlives the call.
    (unsafe { libc::clock_gettime(clock, &mut time) } == 0)
        .then(|| Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32))
}
