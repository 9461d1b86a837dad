//! A sandbox of a function in Python: one request, and the process that was forked for it.
//!
//! What the process says comes on a socket of its own (`python/guest/millpond/request.py` has the words), so the answer is there before the
//! process has ended. It is ended after that, or, as `reuse` allows, is given the next request on the same socket.

use crate::{
    files::{LOG, fixed, no_memory, pair, stream, trap},
    host::{Held, Lease, Listening, Ordered, Standing, Zygote},
    python::{Package, REGION},
    wire::{self, End, Id},
};
use bytes::Bytes;
use contract::{
    Attachment, CallError, Caller, Fault, Grant, Input, ResponseHead, Sandbox, Services, Step, Until, Usage,
};
use fresh::Place;
use rustix::{
    fs::fstat,
    io::{Errno, pread},
};
use serde_json::{Map, Value, json};
use std::{
    mem,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, Waker},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use wasi::Command;

/// After which an order is tried again for which the zygote's socket had no room.
const AGAIN: Duration = Duration::from_millis(1);

/// Events up to so many bytes come with the order, larger ones in a file.
const IN_ORDER: usize = 64 << 10;

/// Bytes of a packet of an answer, with what it begins with.
const PACKET: usize = (64 << 10) + 1;

/// Orders of one request: others may have needed the zygotes' places meanwhile.
const MOST_ORDERS: u32 = 8;

/// Zygotes that may end before they begin with it.
const MOST_LOST: u32 = 2;

/// Links to services of one request: each time that a service begins anew, it asks again.
const MOST_LINKS: u32 = 1_000;

/// What a process is given, and leaves.
struct Work {
    /// In front of what it listens to, so that it goes first.
    listening: Option<Listening>,
    answer: OwnedFd,
    /// The process's end, until it has it.
    theirs: Option<OwnedFd>,
    log: OwnedFd,
    logged: u64,
    event: Option<OwnedFd>,
    words: Vec<u8>,
    group: Option<Lease>,
}

enum State {
    New(Option<Box<Work>>),
    Running(Id, Box<Work>),
    /// Its request is answered.
    Answered(Id, Box<Work>),
    /// It has another request, which is not complete.
    Renewed(Id, Box<Work>),
    Over,
}

/// Packets that are taken in before others have the core.
const AT_ONCE: usize = 64;

/// What has come of what a process has said so far.
enum Heard {
    /// There was no more.
    All,
    /// There is more.
    Some,
    /// Its answer is complete.
    Answer,
}

/// How far an answer has come.
enum Answer {
    /// Its pieces are collected.
    Collected(Vec<u8>),
    /// Its head has left, and its pieces leave as they come.
    Streamed,
}

/// See the module.
pub(crate) struct Call {
    state: State,
    answer: Answer,
    /// Whether the request is one of HTTP, and not an invocation: then it is an event, and the answer a response, in the words of API Gateway.
    is_http: bool,
    begun: SystemTime,
    command: Command,
    usage: Usage,
    grant: Arc<Grant>,
    package: Arc<Package>,
    zygote: Arc<Zygote>,
    place: Option<Place>,
    orders: u32,
    /// Zygotes that have ended with its order.
    lost: u32,
    /// Links to services that it may still ask for.
    links: u32,
    /// Which of all sandboxes it is, for services.
    sandbox: u64,
}

/// A number that no other sandbox of this node has.
pub(crate) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Call {
    pub(crate) fn new(
        package: Arc<Package>,
        zygote: Arc<Zygote>,
        grant: Arc<Grant>,
        input: Input,
        place: Place,
    ) -> Self {
        let command = Command::new(grant.clone(), input);
        Self {
            state: State::New(None),
            answer: Answer::Collected(Vec::new()),
            is_http: is_http(&command),
            begun: SystemTime::now(),
            command,
            usage: Usage::default(),
            grant,
            package,
            zygote,
            place: Some(place),
            orders: 0,
            lost: 0,
            links: MOST_LINKS,
            sandbox: number(),
        }
    }

    /// The event, in a file if it is large, and what the process is told.
    fn words(&mut self) -> rustix::io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let body = self.command.body().take(usize::MAX);
        let event = match self.is_http {
            true => Bytes::from(lambda::http::event(self.command.head(), &body, self.begun)),
            false => body,
        };
        let in_file = event.len() > IN_ORDER;
        let mut words = Value::Object(self.about(in_file.then_some(event.len())))
            .to_string()
            .into_bytes();
        words.push(b'\n');
        if !in_file {
            words.extend_from_slice(&event);
        }
        Ok((words, in_file.then(|| fixed(&event)).transpose()?))
    }

    fn work(&mut self) -> rustix::io::Result<Work> {
        let (words, event) = self.words()?;
        let (answer, theirs) = pair()?;
        rustix::io::ioctl_fionbio(&answer, true)?;
        Ok(Work {
            listening: None,
            answer,
            theirs: Some(theirs),
            log: stream()?,
            logged: 0,
            event,
            words,
            group: None,
        })
    }

    /// What the process is told of the request.
    fn about(&self, event_bytes: Option<usize>) -> Map<String, Value> {
        let head = self.command.head();
        let now = Instant::now();
        let left = head.until.map(|until| until.saturating_duration_since(now));
        let deadline = SystemTime::now() + left.unwrap_or(self.grant.limits.timeout);
        let deadline = deadline
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let function = &self.grant.function;
        let mut about = Map::new();
        about.insert("aws_request_id".to_owned(), lambda::request_uuid(head.id).into());
        about.insert("deadline".to_owned(), json!(deadline as u64));
        about.insert(
            "invoked_function_arn".to_owned(),
            format!("arn:aws:lambda:{REGION}:000000000000:function:{function}").into(),
        );
        let said = [
            ("trace", "x-amzn-trace-id"),
            ("client_context", "x-amz-client-context"),
        ];
        for (name, field) in said {
            if let Some(value) = head.header(field).and_then(|it| std::str::from_utf8(it).ok()) {
                about.insert(name.to_owned(), value.into());
            }
        }
        if head.header("traceparent").is_some() {
            about.insert("is_traced".to_owned(), true.into());
        }
        if self.grant.reuse <= 1 {
            about.insert("is_last".to_owned(), true.into());
        }
        if let Some(bytes) = event_bytes {
            about.insert("event_bytes".to_owned(), bytes.into());
        }
        about
    }

    fn begin(&mut self, waker: &Waker, work: Option<Box<Work>>) -> Result<Option<Step>, Fault> {
        if work.is_none() && self.command.is_incomplete() {
            match self.command.poll_complete(waker) {
                Poll::Pending => return Ok(Some(Step::Waiting { until: None })),
                Poll::Ready(complete) => complete?,
            }
        }
        let mut work = match work {
            Some(work) => work,
            None => Box::new(self.work().map_err(no_memory)?),
        };
        if work.listening.is_none() {
            let listening = self.package.host().listen_to(&work.answer, waker);
            work.listening = Some(listening.map_err(no_memory)?);
        }
        let (ordered, group) = self.order(&work, waker).map_err(no_memory)?;
        match ordered {
            Ordered::Taken(id) => {
                self.orders += 1;
                work.theirs = None;
                work.group = group;
                self.state = State::Running(id, work);
                Ok(None)
            }
            Ordered::Full => {
                self.state = State::New(Some(work));
                Ok(Some(Step::Waiting {
                    until: Some(Instant::now() + AGAIN),
                }))
            }
            Ordered::Gone => {
                self.orders += 1;
                self.renew(work)?;
                Ok(None)
            }
        }
    }

    /// Gives the next request to a process that has served before.
    fn begin_again(&mut self, waker: &Waker, id: Id, mut work: Box<Work>) -> Result<Option<Step>, Fault> {
        if self.command.is_incomplete() {
            match self.command.poll_complete(waker) {
                Poll::Pending => {
                    self.state = State::Renewed(id, work);
                    return Ok(Some(Step::Waiting { until: None }));
                }
                Poll::Ready(complete) => complete?,
            }
        }
        let (words, event) = self.words().map_err(no_memory)?;
        (work.log, work.logged) = (stream().map_err(no_memory)?, 0);
        let given: Vec<_> = [&work.log]
            .into_iter()
            .chain(&event)
            .map(OwnedFd::as_fd)
            .collect();
        let sent = wire::send(&work.answer, &[b"0", &words], &given);
        self.state = State::Running(id, work);
        sent.map_err(|error| trap(&format!("its process takes no other request: {error}")))?;
        self.usage.started = Some(Instant::now());
        Ok(None)
    }

    fn order(&self, work: &Work, waker: &Waker) -> rustix::io::Result<(Ordered, Option<Lease>)> {
        let given = work.theirs.iter().chain([&work.log]).chain(&work.event);
        let given: Vec<_> = given.map(OwnedFd::as_fd).collect();
        self.zygote.call(&work.words, &given, waker)
    }

    /// Another zygote is to serve what this one did not begin with.
    fn renew(&mut self, mut work: Box<Work>) -> Result<(), Fault> {
        if self.orders >= MOST_ORDERS {
            return Err(trap("its process could not be ordered: its zygotes end"));
        }
        let (answer, theirs) = pair().map_err(no_memory)?;
        rustix::io::ioctl_fionbio(&answer, true).map_err(no_memory)?;
        (work.listening, work.group) = (None, None);
        (work.answer, work.theirs) = (answer, Some(theirs));
        let zygote = self.package.zygote(&self.grant, self.command.services());
        self.zygote = zygote.map_err(|reason| trap(&reason))?;
        self.state = State::New(Some(work));
        Ok(())
    }

    /// Takes in what the process has said.
    fn hear(&mut self, socket: &OwnedFd, waker: &Waker) -> Result<Heard, Fault> {
        let mut packet = vec![0; PACKET];
        for _ in 0..AT_ONCE {
            if let Answer::Streamed = self.answer
                && let Poll::Pending = self.command.poll_room(waker)
            {
                return Ok(Heard::All);
            }
            let length = match wire::receive(socket, &mut packet) {
                Ok((length, _)) => length,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::CONNRESET) => return Ok(Heard::All),
                Err(error) => return Err(no_memory(error)),
            };
            let Some((kind, piece)) = packet.get(..length).and_then(<[u8]>::split_first) else {
                // It has closed it. What is to come of that, its end will say.
                return Ok(Heard::All);
            };
            // The news that it has begun comes from its zygote, and what it says may be here before.
            self.usage.started.get_or_insert_with(Instant::now);
            match (kind, &mut self.answer) {
                (b'a' | b'A', Answer::Collected(whole)) => {
                    let limit = self.grant.limits.response_body;
                    if whole.len() + piece.len() > limit.bytes() {
                        return Err(Fault::OutputTooLarge { limit });
                    }
                    whole.extend_from_slice(piece);
                    if *kind == b'A' {
                        let whole = mem::take(whole);
                        self.respond(whole)?;
                        return Ok(Heard::Answer);
                    }
                }
                (b'a' | b'A', Answer::Streamed) => {
                    self.command.send(Bytes::copy_from_slice(piece))?;
                    self.command.flush();
                    if *kind == b'A' {
                        return Ok(Heard::Answer);
                    }
                }
                (b's', Answer::Collected(whole)) if whole.is_empty() => {
                    self.command.answer(ResponseHead {
                        status: 200,
                        headers: vec![(
                            "content-type".into(),
                            Bytes::from_static(b"application/octet-stream"),
                        )],
                    });
                    self.answer = Answer::Streamed;
                }
                (b'E', Answer::Collected(whole)) => {
                    whole.extend_from_slice(piece);
                    return Err(raised(mem::take(whole)));
                }
                (b'E', Answer::Streamed) => return Err(raised(piece.to_vec())),
                (b'B', _) => {
                    let reason = String::from_utf8_lossy(piece).into_owned();
                    return Err(Fault::BadInput { reason });
                }
                (b'c', _) => {
                    let service = String::from_utf8_lossy(piece).into_owned();
                    // Who does not take what it has asked for has not asked.
                    let _ = match self.link(&service) {
                        Ok(Attachment { bell, lasts: true }) => wire::send(socket, &[b"k"], &[bell.as_fd()]),
                        Ok(Attachment { bell, lasts: false }) => wire::send(socket, &[b"c"], &[bell.as_fd()]),
                        Err(reason) => wire::send(socket, &[b"n", reason.as_bytes()], &[]),
                    };
                }
                _ => return Err(trap("its process says what the runtime does not")),
            }
        }
        Ok(Heard::Some)
    }

    /// A link to a service, or why there is none.
    fn link(&mut self, service: &str) -> Result<Attachment, String> {
        let left = self.links.checked_sub(1);
        self.links = left.ok_or("denied this request has asked for too many links")?;
        let caller = Caller {
            sandbox: Some(self.sandbox),
            ..Caller::of(self.command.head())
        };
        link(self.command.services(), service, &caller)
    }

    fn respond(&mut self, whole: Vec<u8>) -> Result<(), Fault> {
        if self.is_http {
            let output = lambda::http::response(&whole).map_err(|reason| Fault::BadOutput { reason })?;
            return self.command.respond(output.into());
        }
        self.command.answer(ResponseHead {
            status: 200,
            headers: vec![("content-type".into(), Bytes::from_static(b"application/json"))],
        });
        self.command.send(whole.into())
    }

    fn wait(&self, used: Duration) -> Step {
        let limits = &self.grant.limits;
        Step::Waiting {
            until: Some(Instant::now() + limits.cpu_time.saturating_sub(used) / limits.cpus.max(1)),
        }
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
                    if let Some(listening) = &work.listening {
                        listening.wakes(waker);
                    }
                    // In this order: what it said before its end is heard when its end is known.
                    let standing = self.zygote.standing(id, waker);
                    self.take_start(&standing);
                    let heard = self.hear(&work.answer, waker);
                    work.logged = log(&mut self.command, &work.log, work.logged);
                    self.take_usage(&mut work, &standing);
                    if let Ok(Heard::Answer) = heard {
                        if let Some(group) = &mut work.group {
                            group.begin();
                        }
                        self.zygote.rest(id);
                        self.state = State::Answered(id, work);
                        return Ok(Step::Done(self.usage));
                    }
                    if let Err(fault) = heard {
                        self.give_up(id, work.group.take());
                        return Err(fault);
                    }
                    if let Ok(Heard::Some) = heard {
                        self.state = State::Running(id, work);
                        return Ok(Step::Waiting {
                            until: Some(Instant::now()),
                        });
                    }
                    match standing {
                        Standing::Unbegun(reason) => {
                            self.zygote.forget(id);
                            self.lost += 1;
                            if self.lost == MOST_LOST {
                                return Err(trap(&format!("its process could not be made: {reason}")));
                            }
                            self.renew(work)?;
                        }
                        Standing::Ended { end, .. } => {
                            let ran_out = work.group.as_mut().is_some_and(|group| group.ran_out());
                            self.give_up(id, work.group.take());
                            return Err(self.ended(end, ran_out));
                        }
                        Standing::Lost(reason) => {
                            self.give_up(id, work.group.take());
                            return Err(trap(&format!("its process was lost: {reason}")));
                        }
                        Standing::Ordered | Standing::Begun { .. } => {
                            let limit = self.grant.limits.cpu_time;
                            let used = self.usage.elsewhere;
                            if used >= limit {
                                self.give_up(id, work.group.take());
                                return Err(Fault::CpuTime { limit });
                            }
                            self.state = State::Running(id, work);
                            return Ok(self.wait(used));
                        }
                    }
                }
                State::Renewed(id, work) => {
                    if let Some(step) = self.begin_again(waker, id, work)? {
                        return Ok(step);
                    }
                }
                State::Answered(..) | State::Over => return Err(trap("it was run after its end")),
            }
        }
    }

    fn take_start(&mut self, standing: &Standing) {
        let began = match standing {
            Standing::Begun { at, .. } => Some(*at),
            Standing::Ended { began, .. } => *began,
            _ => None,
        };
        self.usage.started = self.usage.started.or(began);
    }

    fn take_usage(&mut self, work: &mut Work, standing: &Standing) {
        if let Standing::Ended { end, .. } = standing {
            self.usage.memory = end.memory;
            self.usage.elsewhere = Duration::from_micros(end.processor);
        }
        if let Some(time) = work.group.as_mut().and_then(Lease::time) {
            self.usage.elsewhere = time;
        }
    }

    /// What it means that its process has ended before it said so.
    fn ended(&self, end: End, ran_out: bool) -> Fault {
        let limits = &self.grant.limits;
        if self.usage.elsewhere >= limits.cpu_time {
            return Fault::CpuTime {
                limit: limits.cpu_time,
            };
        }
        if libc::WIFEXITED(end.status) && !ran_out {
            return Fault::Exit {
                code: libc::WEXITSTATUS(end.status),
            };
        }
        let reason = match libc::WIFEXITED(end.status) {
            true => format!("its process exited with code {}", libc::WEXITSTATUS(end.status)),
            false => format!("its process was ended by signal {}", libc::WTERMSIG(end.status)),
        };
        match ran_out {
            true => Fault::OutOfMemory {
                limit: limits.memory,
                reason,
            },
            false => Fault::Trap { reason },
        }
    }

    /// What the process holds is free once nothing of it is left.
    fn give_up(&mut self, id: Id, group: Option<Lease>) {
        if let Some(place) = self.place.take() {
            let held = Held {
                _place: Some(place),
                _group: group,
            };
            self.zygote.give_up(id, held);
        }
    }

    fn abandon(&mut self) {
        match mem::replace(&mut self.state, State::Over) {
            State::Running(id, mut work) => {
                log(&mut self.command, &work.log, work.logged);
                self.give_up(id, work.group.take());
            }
            State::Answered(id, mut work) | State::Renewed(id, mut work) => {
                self.give_up(id, work.group.take());
            }
            State::New(_) | State::Over => {}
        }
    }
}

/// Whether a request is one of HTTP, and not an invocation.
fn is_http(command: &Command) -> bool {
    let path = command.head().path();
    let invoked = ["/function/", "/async-function/", "/2015-03-31/", "/2021-11-15/"];
    !invoked.iter().any(|begin| path.starts_with(begin))
}

impl Sandbox for Call {
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

    fn renew(&mut self, grant: &Arc<Grant>, input: Input) -> Result<(), Input> {
        let (id, work) = match mem::replace(&mut self.state, State::Over) {
            State::Answered(id, work) => (id, work),
            other => {
                self.state = other;
                return Err(input);
            }
        };
        // What it has said since its answer is no part of the next one.
        let is_silent = wire::receive(&work.answer, &mut [0; 1]).err() == Some(Errno::AGAIN);
        if !is_silent || !self.zygote.wake(id) {
            self.state = State::Answered(id, work);
            return Err(input);
        }
        self.command = Command::new(grant.clone(), input);
        self.is_http = is_http(&self.command);
        self.answer = Answer::Collected(Vec::new());
        self.begun = SystemTime::now();
        self.usage = Usage::default();
        self.links = MOST_LINKS;
        self.state = State::Renewed(id, work);
        Ok(())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// A link to a service for a process of a function's; or why there is none: a kind of failure, and in words. What is asked for is the service's name, and behind
/// a blank the process's number, if the function has forked it.
pub(crate) fn link(
    services: Option<&Arc<Services>>,
    wanted: &str,
    caller: &Caller,
) -> Result<Attachment, String> {
    let (service, process) = wanted.split_once(' ').unwrap_or((wanted, "0"));
    let process = process
        .parse::<u32>()
        .map_err(|_| format!("denied {process} is no number of a process"))?;
    let caller = &Caller {
        process,
        ..caller.clone()
    };
    let session = services.and_then(|services| services.get(service));
    let session =
        session.ok_or_else(|| format!("denied the manifest grants nothing of the service {service}"))?;
    session.attach(caller).map_err(|error| match error {
        CallError::Busy => format!("busy {error}"),
        CallError::Denied(_) => format!("denied {error}"),
        _ => format!("unavailable {error}"),
    })
}

/// What a handler's failure is, by what the process said of it.
fn raised(document: Vec<u8>) -> Fault {
    let said: Value = serde_json::from_slice(&document).unwrap_or_default();
    let text = |name: &str| {
        said.get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Fault::Raised {
        kind: text("errorType"),
        message: text("errorMessage"),
        document: document.into(),
    }
}

/// Hands over what was written since the last time: how much that is in all.
fn log(command: &mut Command, file: &OwnedFd, logged: u64) -> u64 {
    let size = fstat(file)
        .map_or(0, |stat| stat.st_size.cast_unsigned())
        .min(LOG);
    let mut bytes = vec![0; size.saturating_sub(logged) as usize];
    if let Ok(count @ 1..) = pread(file, &mut bytes[..], logged) {
        command.log(&bytes[..count]);
        return logged + count as u64;
    }
    logged
}
