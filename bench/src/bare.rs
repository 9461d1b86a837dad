//! The reference for a server around nothing: every request is parsed and answered with the same bytes.

use crate::{
    machine,
    serve::{ConnectionId, Connections, Handler},
};
use anyhow::{Context, Result};
use std::{fs, net::SocketAddr, path::PathBuf};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
    /// The core to run on.
    #[arg(long)]
    core: Option<usize>,
    /// A file with the whole answer, head and body: the bench gives the bytes that the node answers with.
    #[arg(long)]
    answer: Option<PathBuf>,
}

/// Answers everything with the same bytes.
pub(crate) struct Same(pub(crate) Vec<u8>);

impl Handler for Same {
    fn request(&mut self, _: ConnectionId, _: &[u8], output: &mut Vec<u8>) -> bool {
        output.extend_from_slice(&self.0);
        true
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(core) = options.core {
        machine::pin(core)?;
    }
    let answer = match &options.answer {
        Some(path) => fs::read(path).with_context(|| format!("cannot read {}", path.display()))?,
        None => {
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\n\r\npong\n"
                .to_vec()
        }
    };
    let mut connections = Connections::listen(options.listen)?;
    println!("listening on {}", connections.address()?);
    let mut handler = Same(answer);
    loop {
        connections.turn(&mut handler, &mut Vec::new())?;
    }
}
