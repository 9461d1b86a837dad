//! What the benches measure with, in one binary:
//!
//! - `load`: a load generator on one thread and one core, closed loop or open loop, that checks every answer;
//! - `bare`: an epoll loop with httparse and nothing else, the reference for "a server without a sandbox", and for one that refuses
//!   what is too much;
//! - `native`: a node whose functions are part of it, the reference for "the same server without a sandbox";
//! - `cold`: a node that loads code anew for a share of its requests;
//! - `cold-start`: code that has never been used, from its file to its first instruction and its end;
//! - `live`: sandboxes that take turns with many others;
//! - `fork-exec`: a server that runs a native program for each request, as a stand-in for Nuclio;
//! - `process`: fork + exec + wait of a native program, over and over;
//! - `instructions`: the instructions of one request to a real node, by phase;
//! - `worker`: a worker's loop around such sandboxes, against the sandboxes alone;
//! - `preempt`: preemptions and resumptions of guests that compute;
//! - `quantum`: what turns of a quantum cost guests that compute, and how late one is ended that spins;
//! - `switch`: what a preemption costs beyond the signal that brings it;
//! - `matmul`: what the function of bench-engines answers;
//! - `work`: what the guest `work` answers;
//! - `kernel`: a numerical kernel in WebAssembly, by our ahead-of-time compiler or Wasmtime's;
//! - `simulate`: scheduling policies in a simulated worker; nothing is timed;
//! - `sandbox`: create + run + destroy of a sandbox, over and over, through the engine seam and nothing above it.
//!
//! Each prints one JSON object. `bench/node/run` starts them in turn, pins the servers to one core and the client to
//! another, and makes figures of what they say: `bench/results/NAME.json` with the `conditions` and a list of `claims`
//! (`id`, `what`, `value`, `low`, `high`, `unit`, `target`, `holds`, `peers`), and drawings beside it.

#![deny(unsafe_code)]

mod bare;
mod cold;
mod cold_start;
mod counters;
mod fork_exec;
mod instructions;
mod kernel;
mod live;
mod load;
mod machine;
mod matmul;
mod native;
mod preempt;
mod process;
mod quantum;
mod response;
mod sandbox;
mod serve;
mod simulate;
mod statistics;
mod switch;
mod work;
mod worker_loop;

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "millpond-bench", about = "What the benches measure with")]
enum Command {
    /// Sends requests and measures the answers.
    Load(Box<load::Options>),
    /// Answers every request with the same bytes, or computes for as many as can wait.
    Bare(bare::Options),
    /// A node whose functions are part of it, without sandboxes.
    Native(native::Options),
    /// A node that loads code anew for a share of its requests.
    Cold(cold::Options),
    /// Loads and runs code that has never been used, over and over.
    ColdStart(cold_start::Options),
    /// Runs sandboxes in two turns each, between which others have theirs.
    Live(live::Options),
    /// Runs a native program for every request.
    ForkExec(fork_exec::Options),
    /// Runs a native program over and over.
    Process(process::Options),
    /// Runs a WebAssembly command in a fresh sandbox over and over.
    Sandbox(sandbox::Options),
    /// Counts the instructions of one request to a real node.
    Instructions(instructions::Options),
    /// Runs a WebAssembly command over and over in a worker's loop and without one.
    Worker(worker_loop::Options),
    /// Preempts and resumes guests that compute.
    Preempt(preempt::Options),
    /// Runs guests that compute in turns of a quantum, or ends one that spins.
    Quantum(quantum::Options),
    /// Preempts a guest that computes, by every signal, and interrupts native code by as many.
    Switch(switch::Options),
    /// Computes what the guest `work` does.
    Work(work::Options),
    /// Multiplies a matrix by its transpose.
    Matmul(matmul::Options),
    /// Runs a numerical kernel compiled to WebAssembly.
    Kernel(kernel::Options),
    /// Runs scheduling policies in a simulated worker.
    Simulate(simulate::Options),
}

fn main() -> anyhow::Result<ExitCode> {
    // A node here starts itself as its helpers, as the real one does.
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(code) = node::helper(&arguments) {
        return Ok(code);
    }
    measure()?;
    Ok(ExitCode::SUCCESS)
}

fn measure() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Load(options) => print(&load::run(&options)?),
        Command::Bare(options) => bare::run(options),
        Command::Native(options) => native::run(options),
        Command::Cold(options) => cold::run(options),
        Command::ColdStart(options) => print(&cold_start::run(&options)?),
        Command::Live(options) => print(&live::run(&options)?),
        Command::ForkExec(options) => fork_exec::run(&options),
        Command::Process(options) => print(&process::run(&options)?),
        Command::Sandbox(options) => print(&sandbox::run(&options)?),
        Command::Instructions(options) => print(&instructions::run(&options)?),
        Command::Worker(options) => print(&worker_loop::run(&options)?),
        Command::Preempt(options) => print(&preempt::run(&options)?),
        Command::Quantum(options) => print(&quantum::run(&options)?),
        Command::Switch(options) => print(&switch::run(&options)?),
        Command::Work(options) => {
            work::run(&options);
            Ok(())
        }
        Command::Matmul(options) => matmul::run(&options),
        Command::Kernel(options) => print(&kernel::run(&options)?),
        Command::Simulate(options) => print(&simulate::run(&options)?),
    }
}

fn print(report: &impl serde::Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(report)?);
    Ok(())
}
