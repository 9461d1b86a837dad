//! A node whose functions are part of it: whatever is deployed answers "pong", without a sandbox. All else is a node's: routes,
//! admission, policy, accounting. So the difference to a node with sandboxes is what sandboxes cost.

use anyhow::Result;
use bytes::Bytes;
use contract::{
    Artefact, Code, CoreId, Engine, Grant, Image, Input, PrepareError, Protocol, ResponseHead, Sandbox,
    SpawnError, Step, Until, Usage,
};
use node::{Config, Node, Overrides};
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, mpsc},
    task::Waker,
    time::Instant,
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where functions are served.
    #[arg(long)]
    listen: SocketAddr,
    /// Where the control API listens.
    #[arg(long)]
    admin: SocketAddr,
    /// An empty folder.
    #[arg(long)]
    data: PathBuf,
    /// The processors to run on.
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
}

/// What every function answers.
const PONG: &[u8] = b"pong\n";

/// Stands for another engine under its name, and runs nothing of what is deployed.
struct Native(Arc<dyn Engine>);

struct Ping;

/// One request's.
struct Call {
    grant: Arc<Grant>,
    input: Input,
}

impl Engine for Native {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn fingerprint(&self) -> &'static str {
        "native"
    }

    fn compile(&self, _: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        Ok(b"native".to_vec())
    }

    fn load(&self, _: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        Ok(Arc::new(Ping))
    }

    fn preempt(&self, _: CoreId) {}
}

impl Image for Ping {
    fn spawn(&self, grant: &Arc<Grant>, input: Input) -> Result<Box<dyn Sandbox>, SpawnError> {
        let grant = grant.clone();
        Ok(Box::new(Call { grant, input }))
    }
}

impl Sandbox for Call {
    fn run(&mut self, _: &Waker, _: Until<'_>) -> Step {
        let started = Some(Instant::now());
        let headers = match &self.grant.protocol {
            Protocol::Raw { content_type } => vec![("content-type".into(), content_type.clone())],
            Protocol::Cgi | Protocol::Pure { .. } => Vec::new(),
        };
        self.input.response.head(ResponseHead { status: 200, headers });
        self.input.response.body(Bytes::from_static(PONG));
        Step::Done(Usage {
            started,
            ..Usage::default()
        })
    }
}

pub(crate) fn run(options: Options) -> Result<()> {
    let overrides = Overrides {
        listen: Some(options.listen),
        admin: Some(options.admin),
        data: Some(options.data),
        cores: Some(options.cores),
        ..Overrides::default()
    };
    let config = Config::load(None, &overrides)?;
    let native = |engine| Arc::new(Native(engine)) as Arc<dyn Engine>;
    let node = Node::start_with(&config, None, |engines| engines.into_iter().map(native).collect())?;
    // Until it is killed.
    let (_never, stop) = mpsc::channel();
    Ok(node.wait(&stop)?)
}
