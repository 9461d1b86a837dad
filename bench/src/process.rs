//! fork + exec + wait of a native program, over and over: the other side of sandbox churn.

use crate::{
    machine,
    statistics::{Summary, Times},
};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::{
    fs::File,
    io::Seek,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Its standard input; a file, so that nobody has to feed a pipe.
    #[arg(long)]
    input: Option<PathBuf>,
    /// What it must write.
    #[arg(long)]
    expect: Option<PathBuf>,
    /// The core to run on; the program runs there too.
    #[arg(long)]
    core: Option<usize>,
    /// The program is linked with `stopwatch.c` and says on its standard error how long its own work took.
    #[arg(long)]
    stopwatch: bool,
    /// How often.
    #[arg(long, default_value_t = 1000)]
    iterations: u64,
    /// Ends after this many seconds, however often it ran.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// The program, and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    program: Vec<String>,
}

#[derive(Serialize)]
pub(crate) struct Report {
    iterations: u64,
    latency_us: Summary,
    /// The program's own work, by its stopwatch.
    work_us: Option<Summary>,
    cpu_us: f64,
}

pub(crate) fn run(options: &Options) -> Result<Report> {
    if let Some(core) = options.core {
        machine::pin(core)?;
    }
    let (name, arguments) = options.program.split_first().context("which program?")?;
    let mut program = Command::new(name);
    program.args(arguments).env_clear();
    let open = |path: &PathBuf| File::open(path).with_context(|| format!("cannot open {}", path.display()));
    let mut input = options.input.as_ref().map(open).transpose()?;
    if let Some(path) = &options.expect {
        let expected = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let stdin = input.as_ref().map(File::try_clone).transpose()?;
        let got = program
            .stdin(stdin.map_or_else(Stdio::null, Stdio::from))
            .stdout(Stdio::piped())
            .output()?;
        ensure!(
            got.stdout == expected,
            "{name} does not write what it should: {} bytes, expected {}",
            got.stdout.len(),
            expected.len()
        );
    }
    let sink = File::options().write(true).open("/dev/null")?;
    let (mut times, mut works) = (Times::new()?, Times::new()?);
    let me = std::process::id();
    let cpu = machine::tree_cpu_time(me)?;
    let end = Instant::now() + Duration::from_secs_f64(options.seconds);
    for _ in 0..options.iterations {
        // The child reads from where the shared offset stands.
        let stdin = match &mut input {
            Some(file) => {
                file.rewind()?;
                Stdio::from(file.try_clone()?)
            }
            None => Stdio::null(),
        };
        let stderr = if options.stopwatch {
            Stdio::piped()
        } else {
            Stdio::null()
        };
        program
            .stdin(stdin)
            .stderr(stderr)
            .stdout(Stdio::from(sink.try_clone()?));
        let start = Instant::now();
        let mut child = program.spawn().with_context(|| format!("cannot start {name}"))?;
        let ended = child.wait()?;
        let now = Instant::now();
        times.record(now - start);
        if let Some(said) = child.stderr.take() {
            let said = std::io::read_to_string(said)?;
            let nanoseconds = said
                .trim()
                .parse()
                .with_context(|| format!("{name} has no stopwatch: it said {said:?}"))?;
            works.record(Duration::from_nanos(nanoseconds));
        }
        ensure!(ended.success(), "{name} ended with {ended}");
        if now >= end {
            break;
        }
    }
    let cpu = machine::tree_cpu_time(me)?.saturating_sub(cpu);
    Ok(Report {
        iterations: times.count(),
        latency_us: times.summary(),
        work_us: options.stopwatch.then(|| works.summary()),
        cpu_us: cpu.as_secs_f64() * 1e6 / (times.count().max(1) as f64),
    })
}
