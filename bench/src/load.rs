//! The load generator: one thread, one core, epoll.
//!
//! All ready connections are read before anything is written, as a wake-up of the server for each request would cost
//! both sides more than the request. In the closed loop each connection has `pipeline` requests under way at all
//! times. In the open loop requests fall due at a fixed rate, whatever the server does, and their latency counts from
//! the moment they were due: a stalled server cannot hide by stalling its clients ("coordinated omission"). What is due
//! inside the window and has not been answered at its end counts with the age it has then.
//!
//! Every answer is checked: its status, and its body byte by byte where `--expect` names one.

use crate::{
    machine,
    response::{Answer, Reader},
    statistics::{Summary, Times},
};
use anyhow::{Context, Result, bail, ensure};
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
    /// Path and query.
    #[arg(long, default_value = "/")]
    target: String,
    /// Defaults to GET, or to POST with a body.
    #[arg(long)]
    method: Option<String>,
    /// A file with the request's body.
    #[arg(long)]
    body: Option<PathBuf>,
    /// A file with the answer's body; any other answer is an error.
    #[arg(long)]
    expect: Option<PathBuf>,
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
    requests: u64,
    errors: Errors,
    first_error: Option<String>,
    seconds: f64,
    throughput: f64,
    latency_us: Summary,
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

struct Connection {
    stream: TcpStream,
    reader: Reader,
    /// When each request under way was due.
    under_way: VecDeque<Instant>,
    /// Requests that wait to be written.
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
    request: Vec<u8>,
    expected: Option<Vec<u8>>,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections with something to write.
    ready: Vec<usize>,
    /// Open loop: connections without a request under way, and requests without a connection.
    free: Vec<usize>,
    backlog: VecDeque<Instant>,
    errors: Errors,
    first_error: Option<String>,
    times: Times,
    /// Answers before this instant are warm-up.
    begin: Instant,
    buffer: Vec<u8>,
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
    if let Some(core) = options.core {
        machine::pin(core)?;
    }
    Generator::new(options)?.run()
}

fn request(options: &Options) -> Result<Vec<u8>> {
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
    let mut request = format!(
        "{method} {} HTTP/1.1\r\nHost: {}\r\n",
        options.target, options.address
    );
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
        let expected = options
            .expect
            .as_ref()
            .map(fs::read)
            .transpose()
            .context("cannot read the expected body")?;
        let mut generator = Self {
            options,
            request: request(options)?,
            expected,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: Vec::new(),
            ready: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            errors: Errors::default(),
            first_error: None,
            times: Times::new()?,
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
        let stream = TcpStream::connect(address)
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
        let mut due = Instant::now();
        self.begin = due + Duration::from_secs_f64(options.warm);
        let end = self.begin + Duration::from_secs_f64(options.seconds);
        let interval = options.rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
        let everyone = 0..self.connections.len();
        if interval.is_some() {
            self.free.extend(everyone.rev());
        } else {
            for index in everyone {
                (0..options.pipeline).for_each(|_| self.start(index, due));
            }
        }
        let mut before = None;
        let mut events = Vec::with_capacity(1024);
        let after = loop {
            let now = Instant::now();
            if before.is_none() && now >= self.begin {
                before = Some(self.gauges()?);
            }
            if now >= end {
                break self.gauges()?;
            }
            if let Some(interval) = interval {
                while due <= now {
                    match self.free.pop() {
                        Some(index) => self.start(index, due),
                        None => self.backlog.push_back(due),
                    }
                    due += interval;
                }
            }
            self.write()?;
            // The open loop polls: timers wake too late for it, and it has its core to itself.
            let patience = if interval.is_some() { 0 } else { 20_000_000 };
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
        Ok(self.report(&before, &after))
    }

    fn start(&mut self, index: usize, due: Instant) {
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
            match connection.stream.write(&self.request[connection.written..]) {
                Ok(count) => {
                    connection.written += count;
                    if connection.written == self.request.len() {
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
        let closed = match connection.stream.read(&mut self.buffer) {
            Ok(0) => {
                if let Some(answer) = connection.reader.end(self.expected.as_deref()) {
                    self.answered(index, Answer { last: true, ..answer });
                    Some(Closed::Politely)
                } else {
                    Some(Closed::Broken("the server closed the connection".to_owned()))
                }
            }
            Ok(count) => {
                let mut reader = std::mem::replace(&mut connection.reader, Reader::new());
                let buffer = std::mem::take(&mut self.buffer);
                let expected = self.expected.take();
                let mut last = false;
                let read = reader.read(&buffer[..count], expected.as_deref(), |answer| {
                    last |= answer.last;
                    self.answered(index, answer);
                });
                self.buffer = buffer;
                self.expected = expected;
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
        if answer.status != 200 {
            self.errors.status += 1;
            self.first_error
                .get_or_insert_with(|| format!("status {}", answer.status));
        } else if !answer.equal {
            self.errors.body += 1;
            self.first_error
                .get_or_insert_with(|| "a body that is not the expected one".to_owned());
        } else if now >= self.begin {
            self.times.record(now - due);
        }
        if answer.last {
            // The connection's replacement will carry the next request.
        } else if self.options.rate.is_none() {
            self.start(index, now);
        } else if let Some(due) = self.backlog.pop_front() {
            self.start(index, due);
        } else {
            self.free.push(index);
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
            match self.options.rate {
                None => self.start(index, Instant::now()),
                Some(_) => self.free.push(index),
            }
        }
        Ok(())
    }

    fn gauges(&self) -> Result<Gauges> {
        Ok(Gauges {
            at: Instant::now(),
            client: machine::own_cpu_time(),
            server: self.options.server.map(machine::tree_cpu_time).transpose()?,
            idle: self.options.server_core.map(machine::idle_time).transpose()?,
        })
    }

    fn report(mut self, before: &Gauges, after: &Gauges) -> Report {
        let answered = self.times.count();
        let mut unanswered = 0;
        if self.options.rate.is_some() {
            let waiting = self
                .connections
                .iter()
                .flat_map(|connection| &connection.under_way)
                .chain(&self.backlog);
            for due in waiting {
                unanswered += 1;
                self.times.record(after.at.saturating_duration_since(*due));
            }
        }
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
        Report {
            requests: answered,
            first_error: if self.errors.total() > 0 {
                self.first_error
            } else {
                None
            },
            errors: self.errors,
            seconds,
            throughput: answered as f64 / seconds,
            latency_us: self.times.summary(),
            client_busy: share(after.client.saturating_sub(before.client)),
            server_core_busy: idle.map(|idle| (1.0 - share(idle)).clamp(0.0, 1.0)),
            server_busy: server.map(share),
            server_cpu_us: server.map(|time| time.as_secs_f64() * 1e6 / (answered.max(1) as f64)),
            connections: self.options.connections,
            pipeline: self.options.pipeline,
            rate: self.options.rate,
            unanswered,
        }
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

    fn load(address: SocketAddr, expected: &str, rate: Option<f64>) -> Report {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(expected.as_bytes()).unwrap();
        run(&Options {
            address,
            target: "/".to_owned(),
            method: None,
            body: None,
            expect: Some(file.path().to_owned()),
            header: Vec::new(),
            connections: 3,
            pipeline: 2,
            rate,
            warm: 0.0,
            seconds: 0.1,
            core: None,
            server: Some(std::process::id()),
            server_core: None,
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
        let options = Options {
            address,
            target: "/".to_owned(),
            method: None,
            body: None,
            expect: None,
            header: Vec::new(),
            connections: 1,
            pipeline: 1,
            rate: None,
            warm: 0.0,
            seconds: 0.1,
            core: None,
            server: None,
            server_core: None,
        };
        let error = run(&options).err().unwrap();
        assert!(error.to_string().contains("does it run?"), "{error}");
    }
}
