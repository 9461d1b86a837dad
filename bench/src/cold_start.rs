//! Cold starts: code that has never been used, whose pages the kernel has, from opening its file on. Each start has a file of its own, so that no
//! loader finds what an earlier one has mapped.

use crate::{
    machine,
    sandbox::{Answer, Isolation, Module, Sink, finish, grant, head, pure_grant, waker},
    statistics::{Summary, Times},
};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use contract::{Artefact, ByteSize, Digest, Input};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::{
    fs::{self, File},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The request's body.
    #[arg(long)]
    input: PathBuf,
    /// The answer's body.
    #[arg(long)]
    expect: PathBuf,
    /// The core to run on.
    #[arg(long)]
    core: Option<usize>,
    /// How often.
    #[arg(long, default_value_t = 200)]
    iterations: u32,
    /// The sandbox's memory.
    #[arg(long, default_value = "64MiB")]
    memory: ByteSize,
    /// What isolates it.
    #[arg(long)]
    engine: Isolation,
    /// It is a pure function.
    #[arg(long)]
    pure: bool,
    /// The module or the executable.
    module: PathBuf,
}

/// What was measured.
#[derive(Serialize)]
pub(crate) struct Report {
    /// From before the file is opened until the code is loaded.
    loaded_us: Summary,
    /// Until its first instruction, as the engine says.
    started_us: Summary,
    /// Until its answer is there.
    answered_us: Summary,
    artefact_bytes: usize,
}

pub(crate) fn run(options: &Options) -> Result<Report> {
    let read = |path: &PathBuf| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let (body, expected) = (Bytes::from(read(&options.input)?), read(&options.expect)?);
    let Module {
        engine,
        image,
        compiled,
        ..
    } = Module::load_as(&options.module, options.engine, options.pure, 1_000)?;
    drop(image);
    if let Some(core) = options.core {
        machine::pin(core)?;
    }
    let grant = match options.pure {
        true => pure_grant(options.memory)?,
        false => grant(options.memory)?,
    };
    let folder = tempfile::tempdir()?;
    let (mut loaded, mut started, mut answered) = (Times::new()?, Times::new()?, Times::new()?);
    let waker = waker();
    for number in 0..options.iterations {
        let path = folder.path().join(number.to_string());
        fs::write(&path, &compiled)?;
        // Who reads it first makes the kernel's way to it: a node has checked it.
        let digest = Digest(Sha256::digest([&fs::read(&path)?[..], &number.to_le_bytes()].concat()).into());
        let answer = Arc::new(Mutex::new(Answer::default()));
        let input = Input {
            head: head("POST", u64::from(number)),
            body: body.clone().into(),
            response: Box::new(Sink(answer.clone())),
            services: None,
        };
        let begin = Instant::now();
        let file = File::open(&path)?;
        let image = engine.load(Artefact { file, digest })?;
        loaded.record(begin.elapsed());
        let spawned = image.spawn(&grant, input);
        let mut sandbox = spawned.map_err(|error| anyhow::anyhow!("cannot make a sandbox: {error:?}"))?;
        let usage = finish(&mut *sandbox, &waker)?;
        answered.record(begin.elapsed());
        started.record(usage.started.unwrap_or(begin) - begin);
        drop(sandbox);
        drop(image);
        fs::remove_file(&path)?;
        let answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(answer.body == expected, "the answer is not the expected one");
    }
    Ok(Report {
        loaded_us: loaded.summary(),
        started_us: started.summary(),
        answered_us: answered.summary(),
        artefact_bytes: compiled.len(),
    })
}
