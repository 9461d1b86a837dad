//! The references for a server around nothing: every request is parsed and answered with the same bytes; or computed for, one after another,
//! and refused with the same bytes where too many wait.

use crate::{
    machine,
    serve::{ConnectionId, Connections, Handler},
    work,
};
use anyhow::{Context, Result};
use std::{
    collections::VecDeque,
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
    /// The cores to run on: a loop with connections of its own on each.
    #[arg(long, value_delimiter = ',')]
    core: Vec<usize>,
    /// A file with the whole answer, head and body: the bench gives the bytes that the node answers with.
    #[arg(long)]
    answer: Option<PathBuf>,
    /// Compute as many rounds as this for each request, in place of answering it at once.
    #[arg(long, conflicts_with = "answer", requires = "waiting")]
    rounds: Option<u64>,
    /// As many may wait for that; more are refused.
    #[arg(long)]
    waiting: Option<usize>,
}

/// Answers everything with the same bytes.
pub(crate) struct Same(pub(crate) Vec<u8>);

impl Handler for Same {
    fn request(&mut self, _: ConnectionId, _: &[u8], output: &mut Vec<u8>) -> bool {
        output.extend_from_slice(&self.0);
        true
    }
}

/// Refuses at once, and with the same bytes, whoever would wait behind too many.
struct Bounded {
    waiting: VecDeque<ConnectionId>,
    most: usize,
}

const REFUSAL: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";

impl Handler for Bounded {
    fn request(&mut self, connection: ConnectionId, _: &[u8], output: &mut Vec<u8>) -> bool {
        let refused = self.waiting.len() >= self.most;
        match refused {
            true => output.extend_from_slice(REFUSAL),
            false => self.waiting.push_back(connection),
        }
        refused
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// One computation between two looks at who has come.
fn compute(mut connections: Connections, rounds: u64, most: usize) -> Result<()> {
    let waiting = VecDeque::with_capacity(most);
    let mut handler = Bounded { waiting, most };
    loop {
        connections.turn(&mut handler, &mut Vec::new())?;
        if let Some(next) = handler.waiting.pop_front() {
            let answer = format!("{:08x}\n", work::state(rounds));
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
            connections.respond(next, &[head.as_bytes(), answer.as_bytes()], &mut handler);
            connections.flush();
        }
    }
}

fn serve(options: &Options, core: Option<usize>) -> Result<()> {
    if let Some(core) = core {
        machine::pin(core)?;
    }
    let mut connections = match options.core.len() {
        0 | 1 => Connections::listen(options.listen)?,
        _ => Connections::listen_beside(options.listen)?,
    };
    println!("listening on {}", connections.address()?);
    if let (Some(rounds), Some(most)) = (options.rounds, options.waiting) {
        return compute(connections, rounds, most);
    }
    let answer = match &options.answer {
        Some(path) => fs::read(path).with_context(|| format!("cannot read {}", path.display()))?,
        None => {
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\n\r\npong\n"
                .to_vec()
        }
    };
    let mut handler = Same(answer);
    loop {
        connections.turn(&mut handler, &mut Vec::new())?;
    }
}

pub(crate) fn run(options: Options) -> Result<()> {
    let (ended, end) = mpsc::channel();
    let options = Arc::new(options);
    let others = options.core.iter().skip(1).copied().map(Some);
    for core in others.chain([options.core.first().copied()]) {
        let (options, ended) = (options.clone(), ended.clone());
        thread::spawn(move || ended.send(serve(&options, core)));
    }
    // Loops have no end but an error.
    end.recv()?
}
