//! A server that runs a native program for each request: the body on its standard input, its standard output as the
//! answer. It stands in for Nuclio's shell runtime (as in Sledge's evaluation), without Nuclio's containers: what it
//! shows is what `fork` + `exec` alone cost.
//!
//! One thread drives everything by epoll, and at most `--processes` children run at once; the standard library
//! starts them by `posix_spawn`, which does not copy the parent's page tables.

use crate::{
    machine,
    serve::{ConnectionId, Connections, Handler},
};
use anyhow::{Context, Result};
use rustix::{
    event::epoll::EventFlags,
    io::{Errno, ioctl_fionbio},
};
use std::{
    collections::VecDeque,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
    /// The core to run on; its children run there too.
    #[arg(long)]
    core: Option<usize>,
    /// Children that run at once.
    #[arg(long, default_value_t = 16)]
    processes: usize,
    /// The program, and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    program: Vec<String>,
}

#[derive(Default)]
struct Waiting(VecDeque<(ConnectionId, Vec<u8>)>);

impl Handler for Waiting {
    fn request(&mut self, connection: ConnectionId, body: &[u8], _: &mut Vec<u8>) -> bool {
        self.0.push_back((connection, body.to_vec()));
        false
    }
}

struct Running {
    connection: ConnectionId,
    child: Child,
    input: Option<ChildStdin>,
    body: Vec<u8>,
    written: usize,
    output: ChildStdout,
    answer: Vec<u8>,
}

enum Progress {
    Pending,
    Ended { status: u16 },
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(core) = options.core {
        machine::pin(core)?;
    }
    let (program, arguments) = options.program.split_first().context("which program?")?;
    let program =
        std::fs::canonicalize(PathBuf::from(program)).with_context(|| format!("there is no {program}"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());

    let mut connections = Connections::listen(options.listen)?;
    println!("listening on {}", connections.address()?);
    let mut waiting = Waiting::default();
    let mut running: Vec<Option<Running>> = (0..options.processes.max(1)).map(|_| None).collect();
    let mut ready = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        connections.turn(&mut waiting, &mut ready)?;
        for key in ready.drain(..) {
            let Some(place) = running.get_mut(key as usize) else {
                continue;
            };
            let Some(one) = place else { continue };
            if let Progress::Ended { status } = one.advance(&mut buffer)? {
                let one = place.take().context("it was there")?;
                let head = format!(
                    "HTTP/1.1 {status} {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\r\n",
                    if status == 200 { "OK" } else { "Bad Gateway" },
                    one.answer.len()
                );
                connections.respond(one.connection, &[head.as_bytes(), &one.answer], &mut waiting);
            }
        }
        for (key, place) in running.iter_mut().enumerate() {
            if place.is_some() {
                continue;
            }
            let Some((connection, body)) = waiting.0.pop_front() else {
                break;
            };
            let mut one = Running::start(&mut command, connection, body)?;
            one.write()?;
            let key = u32::try_from(key)?;
            connections.watch(&one.output, key, EventFlags::IN)?;
            if let Some(input) = &one.input {
                connections.watch(input, key, EventFlags::OUT)?;
            }
            *place = Some(one);
        }
        connections.flush();
    }
}

impl Running {
    fn start(command: &mut Command, connection: ConnectionId, body: Vec<u8>) -> Result<Self> {
        let mut child = command.spawn().context("cannot start the program")?;
        let input = child.stdin.take();
        let output = child
            .stdout
            .take()
            .context("the program has no standard output")?;
        if let Some(input) = &input {
            ioctl_fionbio(input, true)?;
        }
        ioctl_fionbio(&output, true)?;
        Ok(Self {
            connection,
            child,
            input,
            body,
            written: 0,
            output,
            answer: Vec::new(),
        })
    }

    /// Writes what the pipe takes; closes it when all is written or the child does not listen.
    fn write(&mut self) -> Result<()> {
        let Some(input) = &self.input else { return Ok(()) };
        while self.written < self.body.len() {
            match rustix::io::write(input, &self.body[self.written..]) {
                Ok(count) => self.written += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.input = None;
        Ok(())
    }

    fn advance(&mut self, buffer: &mut [u8]) -> Result<Progress> {
        self.write()?;
        loop {
            match rustix::io::read(&self.output, &mut *buffer) {
                Ok(0) => break,
                Ok(count) => self.answer.extend_from_slice(&buffer[..count]),
                Err(Errno::AGAIN) => return Ok(Progress::Pending),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Its output is closed, so it is about to end; it ends on this very core.
        let ended = self.child.wait()?;
        Ok(Progress::Ended {
            status: if ended.success() { 200 } else { 502 },
        })
    }
}
