//! The `millpond` command: a node to serve functions, and a client of its control API.
//!
//! Each verb is a module of `commands`. Those that manage what a node serves speak to it through `client`; `new`, `build`
//! and `up` work on a folder with a manifest, which is a [`project::Project`]: `builds` makes its code, `watch` sees its
//! files change. What a verb has to say goes through `output`, so that `-o json` is one place; whatever goes wrong is a [`failure::Failure`],
//! which knows what to tell and with which exit code to leave.

#![forbid(unsafe_code)]

mod answer;
mod builds;
mod client;
mod codes;
mod commands;
mod failure;
mod image;
mod output;
mod package;
mod plan;
mod probe;
mod project;
mod signals;
mod templates;
mod watch;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Not verbs: a node starts its own program so, for what is to be in a process of its own.
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(code) = node::helper(&arguments) {
        return code;
    }
    let command = commands::Millpond::parse();
    let output = command.output();
    match command.run(&output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell(&output);
            failure.exit_code()
        }
    }
}
