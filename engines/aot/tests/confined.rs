//! Clang and its linker in a compiler's confinement: they make what they make without one.
//!
//! This program has no harness, because it is the compiler, too.

use compile::conformance::{Subject, confined};
use millpond_engine_aot::{Aot, Options, Toolchain};
use std::process::ExitCode;

fn main() -> ExitCode {
    confined(|clang| {
        let toolchain = clang.map_or_else(Toolchain::find, Toolchain::at)?;
        Ok(Subject {
            compiler: toolchain.clang().to_owned(),
            needs: toolchain.needs().map_err(|error| error.to_string())?,
            engine: Box::new(move || Aot::new(toolchain.clone(), &Options::default())),
        })
    })
}
