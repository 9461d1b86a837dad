//! Chores of this repository: `cargo xtask floors`, `cargo xtask spec`, `cargo xtask schema`, `cargo xtask docs`.
//!
//! Beside these, `cargo xtask go-component` makes a guest of the tests.
//!
//! Each of the former is a pure function from what was read to what is wrong or what is to be written, with a thin shell around it;
//! `--check` writes nothing and fails when a generated file is stale.

#![forbid(unsafe_code)]

mod docs;
mod floors;
mod generated;
mod go_component;
mod schema;
mod spec;

use generated::Mode;
use std::{env, path::Path, process::ExitCode};

const USAGE: &str = "\
usage: cargo xtask floors            no crate depends upwards or sideways; see ARCHITECTURE.md
       cargo xtask spec [--check]    the table of SPECIFICATION.md, from bench/results/*.json
       cargo xtask schema [--check]  docs/manifest.schema.json and docs/openapi.json, from the code
       cargo xtask docs [--check]    generated pages of docs/src; every error code is explained, every link leads somewhere
       cargo xtask go-component WIT HANDLER OUTPUT  an HTTP component of a handler in Go";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // This crate's folder is a direct child of the repository.
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."));
    let outcome = match words[..] {
        ["floors"] => floors::run(root),
        ["spec"] => spec::run(root, Mode::Write),
        ["spec", "--check"] => spec::run(root, Mode::Check),
        ["schema"] => schema::run(root, Mode::Write),
        ["schema", "--check"] => schema::run(root, Mode::Check),
        ["docs"] => docs::run(root, Mode::Write),
        ["docs", "--check"] => docs::run(root, Mode::Check),
        ["go-component", wit, handler, output] => go_component::run(root, wit, handler, output),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(summary) => {
            println!("xtask {}: {summary}", words.join(" "));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask {}: {error:#}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}
