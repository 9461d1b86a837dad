//! The load generator: one thread, one core, epoll.
//!
//! All ready connections are read before anything is written, as a wake-up of the server for each request would cost
//! both sides more than the request. In the closed loop each connection has `pipeline` requests under way at all
//! times. In the open loop requests fall due at a fixed rate, evenly or at random, whatever the server does, and their
//! latency counts from the moment they were due: a stalled server cannot hide by stalling its clients ("coordinated
//! omission"). What is due inside the window and has not been answered at its end counts with the age it has then. How
//! late the generator itself was is reported: what it adds to each latency.
//!
//! Every answer is checked: its status, and its body byte by byte where `--expect` names one.

use crate::{
    machine,
    response::{Answer, Reader},
    statistics::{Summary, Times},
};
use anyhow::{Context, Result, bail, ensure};
use rand::{SeedableRng as _, rngs::StdRng};
use rand_distr::{Distribution as _, Exp, weighted::WeightedIndex};
use rustix::event::{Timespec, epoll};
use serde::Serialize;
use std::{
    collections::VecDeque,
    fs,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    path::PathBuf,
    time::{Duration, Instant},
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The server.
    #[arg(long)]
    address: SocketAddr,
    /// Path and query. With several, each request draws one of them by lot.
    #[arg(long, default_value = "/")]
    target: Vec<String>,
    /// How often a target is drawn beside the others: one number for each, in their order.
    #[arg(long)]
    weight: Vec<f64>,
    /// Defaults to GET, or to POST with a body.
    #[arg(long)]
    method: Option<String>,
    /// A file with the request's body.
    #[arg(long)]
    body: Option<PathBuf>,
    /// A file with the answer's body; any other answer is an error. One for each target, in their order.
    #[arg(long)]
    expect: Vec<PathBuf>,
    /// Answers with this status are counted as refusals, not as errors.
    #[arg(long)]
    refusal: Vec<u16>,
    /// How many answers took no more than so many seconds is reported.
    #[arg(long)]
    within: Option<f64>,
    /// More headers, `Name: value`.
    #[arg(long)]
    header: Vec<String>,
    /// Connections.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Requests under way on each connection.
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// Open loop: requests a second, over all connections.
    #[arg(long)]
    rate: Option<f64>,
    /// Requests of the open loop fall due at random, as those of many independent clients do (a Poisson process).
    #[arg(long)]
    poisson: bool,
    /// The open loop ends with the answer to the last of so many requests, or with its window.
    #[arg(long)]
    requests: Option<u64>,
    /// Everything that is drawn by lot follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds before the window.
    #[arg(long, default_value_t = 0.2)]
    warm: f64,
    /// Seconds of the window.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The core to run on.
    #[arg(long)]
    core: Option<usize>,
    /// The server's process: its CPU time, with all it has started, is reported.
    #[arg(long)]
    server: Option<u32>,
    /// The server's core: how busy it was is reported.
    #[arg(long)]
    server_core: Option<usize>,
}

/// What was seen in the window.
#[derive(Serialize)]
pub(crate) struct Report {
    /// Right answers that came in the window.
    requests: u64,
    /// Refusals that did.
    refused: u64,
    /// Right answers that did, in no more time than `--within`.
    in_time: Option<u64>,
    errors: Errors,
    first_error: Option<String>,
    seconds: f64,
    throughput: f64,
    /// Of right answers. In the open loop: to requests that were due in the window, and the ages of those without an answer.
    latency_us: Summary,
    refusal_us: Option<Summary>,
    /// Open loop: how long after a request was due this client came to it.
    late_us: Option<Summary>,
    targets: Vec<TargetReport>,
    client_busy: f64,
    /// The share of time in which the server's core was not idle, whoever used it.
    server_core_busy: Option<f64>,
    /// The share of a core that the server used; the difference is disturbance.
    server_busy: Option<f64>,
    server_cpu_us: Option<f64>,
    connections: usize,
    pipeline: usize,
    rate: Option<f64>,
    unanswered: usize,
}

/// The latency of one of several targets.
#[derive(Serialize)]
struct TargetReport {
    target: String,
    latency_us: Summary,
}

/// Answers that were none. Counted over the warm-up too.
#[derive(Default, Serialize)]
struct Errors {
    status: u64,
    body: u64,
    connection: u64,
}

impl Errors {
    fn total(&self) -> u64 {
        self.status + self.body + self.connection
    }
}

/// What is asked for, and what came of it.
struct Kind {
    request: Vec<u8>,
    expected: Option<Vec<u8>>,
    times: Times,
}

/// A request: when it was due, and of which kind it is.
#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    kind: usize,
}

struct Connection {
    stream: TcpStream,
    reader: Reader,
    /// Those that are written first, then those that are not.
    under_way: VecDeque<Due>,
    /// Of these, how many wait to be written.
    unwritten: usize,
    /// Bytes of the first of them that are written.
    written: usize,
    wants_writable: bool,
}

enum Closed {
    /// The answer said so.
    Politely,
    Broken(String),
}

struct Generator<'a> {
    options: &'a Options,
    kinds: Vec<Kind>,
    lots: Lots,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections with something to write.
    ready: Vec<usize>,
    /// Open loop: connections without a request under way, and requests without a connection.
    free: VecDeque<usize>,
    backlog: VecDeque<Due>,
    answered: u64,
    refused: u64,
    in_time: u64,
    errors: Errors,
    first_error: Option<String>,
    refusals: Times,
    late: Times,
    /// Before this instant is the warm-up.
    begin: Instant,
    buffer: Vec<u8>,
}

/// What is drawn by lot, and in the open loop also what is not.
struct Lots {
    random: StdRng,
    kinds: Option<WeightedIndex<f64>>,
    /// Between two requests of the open loop.
    gap: Option<Gap>,
}

enum Gap {
    Even(Duration),
    Poisson(Exp<f64>),
}

/// How long a server may take to let a client in.
const PATIENCE: Duration = Duration::from_secs(10);

impl Lots {
    fn new(options: &Options) -> Result<Self> {
        let kinds = match options.weight.as_slice() {
            [] => None,
            weights => Some(WeightedIndex::new(weights).context("these weights cannot be drawn by")?),
        };
        let gap = match options.rate {
            None => None,
            Some(rate) if options.poisson => Some(Gap::Poisson(Exp::new(rate)?)),
            Some(rate) => Some(Gap::Even(Duration::from_secs_f64(1.0 / rate))),
        };
        Ok(Self {
            random: StdRng::seed_from_u64(options.seed),
            kinds,
            gap,
        })
    }

    fn kind(&mut self) -> usize {
        self.kinds
            .as_ref()
            .map_or(0, |kinds| kinds.sample(&mut self.random))
    }

    fn gap(&mut self) -> Option<Duration> {
        Some(match self.gap.as_ref()? {
            Gap::Even(gap) => *gap,
            Gap::Poisson(gaps) => Duration::from_secs_f64(gaps.sample(&mut self.random)),
        })
    }
}

pub(crate) fn run(options: &Options) -> Result<Report> {
    ensure!(
        options.connections > 0 && options.pipeline > 0,
        "at least one connection and one request are needed"
    );
    ensure!(
        options.rate.is_none_or(|rate| rate > 0.0),
        "the rate must be above 0"
    );
    let (targets, weights, bodies) = (options.target.len(), options.weight.len(), options.expect.len());
    ensure!(
        (targets == 1 && weights == 0 || targets == weights) && (bodies == 0 || bodies == targets),
        "there are {targets} targets, {weights} weights and {bodies} expected bodies: give one of each for each target"
    );
    ensure!(
        targets == 1 || options.pipeline == 1,
        "requests for several targets are not pipelined"
    );
    ensure!(
        options.rate.is_some() || !options.poisson && options.requests.is_none(),
        "--poisson and --requests are of the open loop: give --rate"
    );
    if let Some(core) = options.core {
        machine::pin(core)?;
    }
    // What else the host does must not make requests late; a kernel that refuses has more of it in `late_us`.
    let _ = priority::wake_at_once();
    Generator::new(options)?.run()
}

fn request(options: &Options, target: &str) -> Result<Vec<u8>> {
    let body = options
        .body
        .as_ref()
        .map(fs::read)
        .transpose()
        .context("cannot read the body's file")?;
    let method = options
        .method
        .as_deref()
        .unwrap_or(if body.is_some() { "POST" } else { "GET" });
    let mut request = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", options.address);
    for header in &options.header {
        request += header;
        request += "\r\n";
    }
    if let Some(body) = &body {
        request += &format!("Content-Length: {}\r\n", body.len());
    }
    request += "\r\n";
    let mut request = request.into_bytes();
    request.extend(body.unwrap_or_default());
    Ok(request)
}

impl<'a> Generator<'a> {
    fn new(options: &'a Options) -> Result<Self> {
        let kind = |(index, target): (usize, &String)| {
            let expected = options.expect.get(index).map(fs::read).transpose();
            Ok(Kind {
                request: request(options, target)?,
                expected: expected.context("cannot read the expected body")?,
                times: Times::new()?,
            })
        };
        let mut generator = Self {
            options,
            kinds: options
                .target
                .iter()
                .enumerate()
                .map(kind)
                .collect::<Result<_>>()?,
            lots: Lots::new(options)?,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: Vec::new(),
            ready: Vec::new(),
            free: VecDeque::new(),
            backlog: VecDeque::new(),
            answered: 0,
            refused: 0,
            in_time: 0,
            errors: Errors::default(),
            first_error: None,
            refusals: Times::new()?,
            late: Times::new()?,
            begin: Instant::now(),
            buffer: vec![0; 256 * 1024],
        };
        for index in 0..options.connections {
            let connection = generator.connect(index)?;
            generator.connections.push(connection);
        }
        Ok(generator)
    }

    fn connect(&self, index: usize) -> Result<Connection> {
        let address = self.options.address;
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .with_context(|| format!("cannot connect to {address}; does it run?"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(
            &self.epoll,
            &stream,
            epoll::EventData::new_u64(index as u64),
            epoll::EventFlags::IN,
        )?;
        Ok(Connection {
            stream,
            reader: Reader::new(),
            under_way: VecDeque::new(),
            unwritten: 0,
            written: 0,
            wants_writable: false,
        })
    }

    fn run(mut self) -> Result<Report> {
        let options = self.options;
        let is_open = options.rate.is_some();
        let mut next = Instant::now();
        self.begin = next + Duration::from_secs_f64(options.warm);
        let mut end = self.begin + Duration::from_secs_f64(options.seconds);
        let everyone = 0..self.connections.len();
        if is_open {
            self.free.extend(everyone);
        } else {
            for index in everyone {
                for _ in 0..options.pipeline {
                    let kind = self.lots.kind();
                    self.start(index, Due { at: next, kind });
                }
            }
        }
        let mut asked = 0;
        let mut before = None;
        let mut events = Vec::with_capacity(1024);
        let after = loop {
            let mut now = Instant::now();
            if before.is_none() && now >= self.begin {
                // That takes some milliseconds. What would have been due meanwhile is left out, not asked for late.
                before = Some(self.gauges_at_begin()?);
                now = Instant::now();
                self.begin = now;
                end = now + Duration::from_secs_f64(options.seconds);
                next = next.max(now);
            }
            // Those that were due in the window count, though it be over by now.
            while is_open && next <= now.min(end) && options.requests != Some(asked) {
                let due = Due {
                    at: next,
                    kind: self.lots.kind(),
                };
                match self.free.pop_front() {
                    Some(index) => self.start(index, due),
                    None => self.backlog.push_back(due),
                }
                if next >= self.begin {
                    self.late.record(now - next);
                }
                asked += 1;
                next += self.lots.gap().unwrap_or_default();
            }
            let is_done = options.requests == Some(asked) && self.free.len() == self.connections.len();
            if now >= end || is_done {
                break self.gauges_at_end()?;
            }
            self.write()?;
            // The open loop polls: timers wake too late for it, and it has its core to itself.
            let patience = if is_open { 0 } else { 20_000_000 };
            events.clear();
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: patience,
            };
            epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&timeout),
            )?;
            for event in &events {
                let index = usize::try_from(event.data.u64())?;
                let flags = event.flags;
                if flags.intersects(epoll::EventFlags::OUT) {
                    self.ready.push(index);
                }
                if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
                    self.read(index)?;
                }
            }
        };
        let before = before.context("the window is too short")?;
        self.report(&before, &after)
    }

    fn start(&mut self, index: usize, due: Due) {
        let connection = &mut self.connections[index];
        connection.under_way.push_back(due);
        connection.unwritten += 1;
        self.ready.push(index);
    }

    fn write(&mut self) -> Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        for index in ready.drain(..) {
            if let Err(error) = self.write_one(index) {
                self.replace(index, Closed::Broken(format!("cannot write a request: {error}")))?;
            }
        }
        // What failed above may have made others ready; they come with the next turn.
        ready.append(&mut self.ready);
        self.ready = ready;
        Ok(())
    }

    fn write_one(&mut self, index: usize) -> std::io::Result<()> {
        let connection = &mut self.connections[index];
        while connection.unwritten > 0 {
            let next = connection.under_way.len() - connection.unwritten;
            let request = &self.kinds[connection.under_way[next].kind].request;
            match connection.stream.write(&request[connection.written..]) {
                Ok(count) => {
                    connection.written += count;
                    if connection.written == request.len() {
                        connection.written = 0;
                        connection.unwritten -= 1;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let wants_writable = connection.unwritten > 0;
        if wants_writable != connection.wants_writable {
            connection.wants_writable = wants_writable;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, wants_writable);
            epoll::modify(
                &self.epoll,
                &connection.stream,
                epoll::EventData::new_u64(index as u64),
                flags,
            )?;
        }
        Ok(())
    }

    fn read(&mut self, index: usize) -> Result<()> {
        let connection = &mut self.connections[index];
        let kind = connection.under_way.front().map_or(0, |due| due.kind);
        let closed = match connection.stream.read(&mut self.buffer) {
            Ok(0) => {
                if let Some(answer) = connection.reader.end(self.kinds[kind].expected.as_deref()) {
                    self.answered(index, Answer { last: true, ..answer });
                    Some(Closed::Politely)
                } else {
                    Some(Closed::Broken("the server closed the connection".to_owned()))
                }
            }
            Ok(count) => {
                let mut reader = std::mem::replace(&mut connection.reader, Reader::new());
                let buffer = std::mem::take(&mut self.buffer);
                let expected = self.kinds[kind].expected.take();
                let mut last = false;
                let read = reader.read(&buffer[..count], expected.as_deref(), |answer| {
                    last |= answer.last;
                    self.answered(index, answer);
                });
                self.buffer = buffer;
                self.kinds[kind].expected = expected;
                self.connections[index].reader = reader;
                match read {
                    Err(broken) => Some(Closed::Broken(broken.to_string())),
                    Ok(()) => last.then_some(Closed::Politely),
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(error) => Some(Closed::Broken(format!("cannot read an answer: {error}"))),
        };
        closed.map_or(Ok(()), |closed| self.replace(index, closed))
    }

    fn answered(&mut self, index: usize, answer: Answer) {
        let now = Instant::now();
        let Some(due) = self.connections[index].under_way.pop_front() else {
            self.errors.connection += 1;
            self.first_error
                .get_or_insert_with(|| "an answer that nobody asked for".to_owned());
            return;
        };
        let in_window = now >= self.begin;
        // The latency of the open loop is that of requests which were due in the window.
        let counts = in_window && (self.options.rate.is_none() || due.at >= self.begin);
        if self.options.refusal.contains(&answer.status) {
            self.refused += u64::from(in_window);
            if counts {
                self.refusals.record(now - due.at);
            }
        } else if answer.status != 200 {
            self.errors.status += 1;
            self.first_error
                .get_or_insert_with(|| format!("status {}", answer.status));
        } else if !answer.equal {
            self.errors.body += 1;
            self.first_error
                .get_or_insert_with(|| "a body that is not the expected one".to_owned());
        } else if in_window {
            self.answered += 1;
            let within = self.options.within.map(Duration::from_secs_f64);
            self.in_time += u64::from(within.is_some_and(|within| now - due.at <= within));
            if counts {
                self.kinds[due.kind].times.record(now - due.at);
            }
        }
        if answer.last {
            // The connection's replacement will carry the next request.
        } else if self.options.rate.is_none() {
            let kind = self.lots.kind();
            self.start(index, Due { at: now, kind });
        } else if let Some(due) = self.backlog.pop_front() {
            self.start(index, due);
        } else {
            self.free.push_back(index);
        }
    }

    /// Puts a new connection in the place of one that is closed, and asks again what it was asked.
    fn replace(&mut self, index: usize, closed: Closed) -> Result<()> {
        let lost = std::mem::take(&mut self.connections[index].under_way);
        if let Closed::Broken(reason) = closed {
            self.errors.connection += 1;
            self.first_error.get_or_insert(reason);
            if self.errors.connection > 1000 {
                bail!(
                    "more than 1000 connections broke; the first: {}",
                    self.first_error.as_deref().unwrap_or_default()
                );
            }
        }
        self.connections[index] = self.connect(index)?;
        self.free.retain(|free| *free != index);
        self.ready.retain(|ready| *ready != index);
        for due in &lost {
            self.start(index, *due);
        }
        if lost.is_empty() {
            let (at, kind) = (Instant::now(), self.lots.kind());
            match self.options.rate {
                None => self.start(index, Due { at, kind }),
                Some(_) => match self.backlog.pop_front() {
                    Some(due) => self.start(index, due),
                    None => self.free.push_back(index),
                },
            }
        }
        Ok(())
    }

    /// The clock last and at the end first, as reading the processes' times takes long.
    fn gauges_at_begin(&self) -> Result<Gauges> {
        let server = self.options.server.map(machine::tree_cpu_time).transpose()?;
        let idle = self.options.server_core.map(machine::idle_time).transpose()?;
        Ok(Gauges {
            server,
            idle,
            client: machine::own_cpu_time(),
            at: Instant::now(),
        })
    }

    fn gauges_at_end(&self) -> Result<Gauges> {
        let (at, client) = (Instant::now(), machine::own_cpu_time());
        let idle = self.options.server_core.map(machine::idle_time).transpose()?;
        let server = self.options.server.map(machine::tree_cpu_time).transpose()?;
        Ok(Gauges {
            server,
            idle,
            client,
            at,
        })
    }

    fn report(mut self, before: &Gauges, after: &Gauges) -> Result<Report> {
        let (options, answered) = (self.options, self.answered);
        let mut unanswered = 0;
        if self.options.rate.is_some() {
            let waiting = self
                .connections
                .iter()
                .flat_map(|connection| &connection.under_way)
                .chain(&self.backlog);
            for due in waiting {
                unanswered += 1;
                if due.at >= self.begin {
                    self.kinds[due.kind]
                        .times
                        .record(after.at.saturating_duration_since(due.at));
                }
            }
        }
        let mut times = Times::new()?;
        for kind in &self.kinds {
            times.add(&kind.times)?;
        }
        let targets = options
            .target
            .iter()
            .zip(&self.kinds)
            .map(|(target, kind)| TargetReport {
                target: target.clone(),
                latency_us: kind.times.summary(),
            });
        let seconds = (after.at - before.at).as_secs_f64();
        let share = |time: Duration| time.as_secs_f64() / seconds;
        let server = after
            .server
            .zip(before.server)
            .map(|(after, before)| after.saturating_sub(before));
        let idle = after
            .idle
            .zip(before.idle)
            .map(|(after, before)| after.saturating_sub(before));
        Ok(Report {
            requests: answered,
            refused: self.refused,
            in_time: options.within.map(|_| self.in_time),
            refusal_us: (!options.refusal.is_empty()).then(|| self.refusals.summary()),
            late_us: options.rate.map(|_| self.late.summary()),
            targets: targets.collect(),
            first_error: if self.errors.total() > 0 {
                self.first_error
            } else {
                None
            },
            errors: self.errors,
            seconds,
            throughput: answered as f64 / seconds,
            latency_us: times.summary(),
            client_busy: share(after.client.saturating_sub(before.client)),
            server_core_busy: idle.map(|idle| (1.0 - share(idle)).clamp(0.0, 1.0)),
            server_busy: server.map(share),
            server_cpu_us: server.map(|time| time.as_secs_f64() * 1e6 / (answered.max(1) as f64)),
            connections: options.connections,
            pipeline: options.pipeline,
            rate: options.rate,
            unanswered,
        })
    }
}

struct Gauges {
    at: Instant,
    client: Duration,
    server: Option<Duration>,
    idle: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bare::Same, serve::Connections};
    use std::{sync::mpsc, thread};

    /// A server that answers with `body`, for as long as the test runs.
    fn server(body: &str) -> SocketAddr {
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut connections = Connections::listen(([127, 0, 0, 1], 0).into()).unwrap();
            tell.send(connections.address().unwrap()).unwrap();
            let mut handler = Same(answer.into_bytes());
            while connections.turn(&mut handler, &mut Vec::new()).is_ok() {}
        });
        told.recv().unwrap()
    }

    /// A server that takes requests and never answers.
    fn silent() -> SocketAddr {
        struct Silent;
        impl crate::serve::Handler for Silent {
            fn request(&mut self, _: crate::serve::ConnectionId, _: &[u8], _: &mut Vec<u8>) -> bool {
                false
            }
        }
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut connections = Connections::listen(([127, 0, 0, 1], 0).into()).unwrap();
            tell.send(connections.address().unwrap()).unwrap();
            while connections.turn(&mut Silent, &mut Vec::new()).is_ok() {}
        });
        told.recv().unwrap()
    }

    fn options(address: SocketAddr) -> Options {
        Options {
            address,
            target: vec!["/".to_owned()],
            weight: Vec::new(),
            method: None,
            body: None,
            expect: Vec::new(),
            refusal: Vec::new(),
            within: None,
            header: Vec::new(),
            connections: 3,
            pipeline: 1,
            rate: None,
            poisson: false,
            requests: None,
            seed: 1,
            warm: 0.0,
            seconds: 0.1,
            core: None,
            server: Some(std::process::id()),
            server_core: None,
        }
    }

    fn load(address: SocketAddr, expected: &str, rate: Option<f64>) -> Report {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(expected.as_bytes()).unwrap();
        run(&Options {
            expect: vec![file.path().to_owned()],
            pipeline: 2,
            rate,
            ..options(address)
        })
        .unwrap()
    }

    #[test]
    fn right_answers_are_counted() {
        let address = server("pong\n");
        for rate in [None, Some(500.0)] {
            let report = load(address, "pong\n", rate);
            assert!(report.requests > 0);
            assert_eq!(report.errors.total(), 0, "{:?}", report.first_error);
        }
    }

    #[test]
    fn the_open_loop_asks_no_more_than_it_should() {
        let report = load(server("pong\n"), "pong\n", Some(500.0));
        // 0.1 s at 500 a second; the window is as long as the machine made it.
        assert!(
            report.requests as f64 <= 500.0 * report.seconds + 2.0,
            "{}",
            report.requests
        );
    }

    #[test]
    fn a_server_that_stalls_cannot_hide_it() {
        let report = run(&Options {
            rate: Some(1000.0),
            ..options(silent())
        })
        .unwrap();
        // All that were due count, far more than there are connections, and each with its own age.
        assert_eq!(report.requests, 0);
        assert!(report.unanswered >= 99, "{}", report.unanswered);
        let ages = serde_json::to_value(report.latency_us).unwrap();
        let middle = ages["p50"].as_f64().unwrap();
        assert!(
            middle >= 45_000.0,
            "half of them are older than half of the window: {ages}"
        );
    }

    #[test]
    fn requests_at_random_come_as_often_as_they_should() {
        let report = run(&Options {
            rate: Some(20_000.0),
            poisson: true,
            ..options(silent())
        })
        .unwrap();
        // Of 2000 that are expected the standard deviation is 45.
        assert!((1600..2400).contains(&report.unanswered), "{}", report.unanswered);
    }

    #[test]
    fn each_target_is_asked_by_its_weight_and_has_its_own_latency() {
        let report = run(&Options {
            target: vec!["/often".to_owned(), "/never".to_owned()],
            weight: vec![1.0, 0.0],
            ..options(server("pong\n"))
        })
        .unwrap();
        let maximum =
            |index: usize| serde_json::to_value(&report.targets[index]).unwrap()["latency_us"]["max"].clone();
        assert!(maximum(0).as_f64() > Some(0.0));
        assert_eq!(maximum(1).as_f64(), Some(0.0));
    }

    #[test]
    fn a_burst_ends_with_its_last_answer() {
        let report = run(&Options {
            rate: Some(1_000_000.0),
            requests: Some(100),
            within: Some(60.0),
            seconds: 60.0,
            ..options(server("pong\n"))
        })
        .unwrap();
        assert_eq!(
            (report.requests, report.in_time, report.unanswered),
            (100, Some(100), 0)
        );
        assert!(report.seconds < 60.0);
    }

    #[test]
    fn refusals_are_no_errors_and_no_answers() {
        let report = run(&Options {
            refusal: vec![200],
            ..options(server("pong\n"))
        })
        .unwrap();
        assert!(report.refused > 0);
        assert_eq!((report.requests, report.errors.total()), (0, 0));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let address = server("pong\n");
        let wrong = |options: Options| run(&options).err().unwrap().to_string();
        let two = wrong(Options {
            target: vec!["/".to_owned(), "/".to_owned()],
            ..options(address)
        });
        assert!(two.contains("one of each for each target"), "{two}");
        let closed = wrong(Options {
            poisson: true,
            ..options(address)
        });
        assert!(closed.contains("give --rate"), "{closed}");
    }

    #[test]
    fn wrong_answers_are_errors_and_no_requests() {
        let report = load(server("pong\n"), "ping\n", None);
        assert_eq!(report.requests, 0);
        assert!(report.errors.body > 0);
        assert_eq!(
            report.first_error.as_deref(),
            Some("a body that is not the expected one")
        );
    }

    #[test]
    fn a_server_that_is_not_there_is_said_to_be_none() {
        let address = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let error = run(&options(address)).err().unwrap();
        assert!(error.to_string().contains("does it run?"), "{error}");
    }
}
