//! Compilers in processes of their own.
//!
//! Code is not to be trusted, and compilers are not built against it: a module of some kilobytes can keep one busy for
//! minutes, fill its memory or crash it. In a process it can be ended, and what it used is gone afterwards, which is
//! also why an idle node is small.
//!
//! The protocol is one exchange over the compiler's standard input and output, so that it need not open a file.
//! [`Apart`] starts the compiler and tells it
//!
//! | bytes | |
//! |---|---|
//! | 1 | flags: [`BACKGROUND`], [`PURE`] |
//! | 8 | the length of the [`Pieces`] that earlier compiles of this function left, or [`UNKEPT`] if none are to be kept |
//! | … | the pieces |
//! | to the end | the code |
//!
//! and [`answer`], which the compiler's process runs, says
//!
//! | bytes | |
//! |---|---|
//! | 8 | the length of the artefact, or of what is wrong with the code |
//! | 4, 4 | how many pieces it found among those that it got, and how many it made |
//! | … | the artefact; or what is wrong, and then it leaves with [`REFUSED`] |
//! | to the end | the pieces for the next compile, if any are to be kept |
//!
//! All numbers are little-endian. Whatever else happens is a failure of the compiler. No failure that pieces could have
//! to do with outlives them: they are removed, and where the compiler broke, it works a second time without.
//!
//! The process is confined (crate `confine`) before it reads the first of these bytes: it has its standard streams and no other file,
//! no network, no other process, limits, and an empty environment. An engine whose compiler consists of programs says so by
//! [`confine::Programs`]; these run in the same confinement, and have a folder for what they need meanwhile, whose name is in `TMPDIR`.
//! It ends with the thread that waits for it, and its programs end with it.

#![forbid(unsafe_code)]

mod answer;
mod apart;
#[cfg(feature = "conformance")]
pub mod conformance;
mod pieces;

pub use answer::answer;
pub use apart::{Apart, Options};
pub use pieces::Pieces;

use contract::PrepareError;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The exit code that says that standard output holds a refusal.
pub const REFUSED: u8 = 3;

/// The flag that says that the compiler is to give way to everything else on the host.
pub const BACKGROUND: u8 = 1;

/// The flag that says that the code is a pure function's ([`CodeKind::PureWasm`]).
pub const PURE: u8 = 2;

/// The length of pieces that says that none are to be kept.
pub const UNKEPT: u64 = u64::MAX;

/// Bytes of pieces that are kept of one function. Pieces are about three times as large as the code that they were.
const MOST_KEPT: u64 = 256 << 20;

/// Bytes of an artefact. It is a guard against compilers that somebody took over, and no bound that code meets.
const MOST_COMPILED: u64 = 4 << 30;

/// How long code of this many bytes may take where small code may take `time`: that for every 16 MiB begun, and at most
/// four times it, since other deployments wait meanwhile.
pub fn time_for(time: Duration, bytes: usize) -> Duration {
    time * u32::try_from(bytes.div_ceil(16 << 20)).map_or(4, |parts| parts.clamp(1, 4))
}

/// Memory that a compiler may write to.
const MEMORY: u64 = 4 << 30;

/// A [`PrepareError`] on its way between two processes.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Refusal {
    Malformed(String),
    Unsupported(String),
    Artefact(String),
    Compiler(String),
}

impl From<Refusal> for PrepareError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed(reason) => Self::Malformed(reason),
            Refusal::Unsupported(reason) => Self::Unsupported(reason),
            Refusal::Artefact(reason) => Self::Artefact(reason),
            Refusal::Compiler(reason) => Self::Compiler(reason),
        }
    }
}

impl From<PrepareError> for Refusal {
    fn from(error: PrepareError) -> Self {
        match error {
            PrepareError::Malformed(reason) => Self::Malformed(reason),
            PrepareError::Unsupported(reason) => Self::Unsupported(reason),
            PrepareError::Artefact(reason) => Self::Artefact(reason),
            other => Self::Compiler(other.to_string()),
        }
    }
}
