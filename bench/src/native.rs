//! A node whose functions are part of it: whatever is deployed computes the same, without a sandbox. All else is a node's: routes,
//! admission, policy, accounting. So the difference to a node with sandboxes is what sandboxes cost.

use crate::matmul;
use anyhow::Result;
use bytes::Bytes;
use clap::ValueEnum;
use contract::{
    Artefact, Body, Code, CoreId, Engine, Fault, Grant, Image, Input, PrepareError, Protocol, ResponseHead,
    Sandbox, SpawnError, Step, Until, Usage,
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
    #[command(flatten)]
    place: Place,
    /// What every function does.
    #[arg(long, value_enum, default_value = "ping")]
    function: Function,
    /// The library that multiplies matrices.
    #[arg(long, required_if_eq("function", "matmul"))]
    library: Option<PathBuf>,
}

/// Where a node is, and where it runs.
#[derive(clap::Args)]
pub(crate) struct Place {
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
    /// A configuration file.
    #[arg(long)]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Function {
    Ping,
    Matmul,
}

/// What is a part of the node.
#[derive(Clone, Copy)]
enum Part {
    Ping,
    Matmul(matmul::Native),
}

/// Stands for another engine under its name, and runs nothing of what is deployed.
struct Native(Arc<dyn Engine>, Part);

struct Inside(Part);

/// One request's.
struct Call {
    part: Part,
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
        Ok(Arc::new(Inside(self.1)))
    }

    fn preempt(&self, _: CoreId) {}
}

impl Image for Inside {
    fn pure(&self) -> Result<(), String> {
        match self.0 {
            Part::Matmul(_) => Ok(()),
            Part::Ping => Err("it takes no sets".to_owned()),
        }
    }

    fn spawn(&self, grant: &Arc<Grant>, input: Input) -> Result<Box<dyn Sandbox>, SpawnError> {
        let grant = grant.clone();
        Ok(Box::new(Call {
            part: self.0,
            grant,
            input,
        }))
    }
}

impl Sandbox for Call {
    fn run(&mut self, _: &Waker, _: Until<'_>) -> Step {
        let usage = Usage {
            started: Some(Instant::now()),
            ..Usage::default()
        };
        let answer = match (self.part, &self.input.body) {
            (Part::Ping, _) => Some(Bytes::from_static(b"pong\n")),
            (Part::Matmul(native), Body::Whole(matrix)) => native.product(matrix),
            (Part::Matmul(_), Body::Stream(_)) => None,
        };
        let Some(answer) = answer else {
            return Step::Fault(Fault::Exit { code: 3 }, usage);
        };
        let headers = match &self.grant.protocol {
            Protocol::Raw { content_type } | Protocol::Pure { content_type, .. } => {
                vec![("content-type".into(), content_type.clone())]
            }
            Protocol::Cgi | Protocol::Lambda { .. } => Vec::new(),
        };
        self.input.response.head(ResponseHead { status: 200, headers });
        self.input.response.body(answer);
        Step::Done(usage)
    }
}

pub(crate) fn run(options: Options) -> Result<()> {
    node::keep_freed_pieces();
    let part = match (options.function, &options.library) {
        (Function::Matmul, Some(library)) => {
            let native = matmul::Native::load(library)?;
            println!("matrices are multiplied by {}", native.way.to_string_lossy());
            Part::Matmul(native)
        }
        _ => Part::Ping,
    };
    serve(options.place, |engine| Arc::new(Native(engine, part)))
}

/// A node with these instead of its engines, until it is killed.
pub(crate) fn serve(place: Place, instead: impl Fn(Arc<dyn Engine>) -> Arc<dyn Engine>) -> Result<()> {
    let overrides = Overrides {
        listen: Some(place.listen),
        admin: Some(place.admin),
        data: Some(place.data),
        cores: Some(place.cores),
        ..Overrides::default()
    };
    let config = Config::load(place.config.as_deref(), &overrides)?;
    let node = Node::start_with(&config, None, |engines| {
        engines.into_iter().map(&instead).collect()
    })?;
    let (_never, stop) = mpsc::channel();
    Ok(node.wait(&stop)?)
}
