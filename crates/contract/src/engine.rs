//! The seam between the worker and whatever runs code.

use crate::{ByteSize, Digest, Fault, Grant, Input, Limits, Protocol};
use std::{
    fmt, fs, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
    time::{Duration, Instant},
};

/// One worker thread, numbered from 0 in the order of `--cores`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CoreId(pub u16);

/// Untrusted code, as it was uploaded.
#[derive(Clone, Debug)]
pub struct Code<'a> {
    /// What it claims to be.
    pub kind: CodeKind,
    /// The bytes.
    pub bytes: &'a [u8],
    /// A file, there or not, in which a compiler may leave for the next version of the same function what makes
    /// compiling that faster. What it leaves decides what the next artefact contains, so the file is one function's and
    /// nobody else's. Without a file nothing is kept.
    pub pieces: Option<&'a Path>,
    /// For a compile that nobody waits for, which gives way to everything else on the host. Once the flag is set, nobody wants it any
    /// more, and it may fail at once.
    pub background: Option<&'a AtomicBool>,
}

/// What kinds of code there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodeKind {
    /// WebAssembly. Its first bytes say whether it is a core module, which must be a WASI 0.1 command, or a component of
    /// WASI 0.2: a command or an HTTP handler.
    Wasm,
    /// WebAssembly of a pure function ([`crate::Protocol::Pure`]): a core module, which is compiled so that equal inputs give equal outputs,
    /// to the bits of a NaN.
    PureWasm,
    /// An executable of this kind of host: ELF.
    Native,
    /// A deployment package of AWS Lambda for Python: a ZIP file.
    Python,
}

impl CodeKind {
    /// Of code that begins so. What is neither claims to be WebAssembly, and is refused as such.
    pub fn of(bytes: &[u8]) -> Self {
        if bytes.starts_with(b"\x7fELF") {
            Self::Native
        } else if bytes.starts_with(b"PK\x03\x04") {
            Self::Python
        } else {
            Self::Wasm
        }
    }
}

impl fmt::Display for CodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wasm => "WebAssembly",
            Self::PureWasm => "WebAssembly of a pure function",
            Self::Native => "a native executable",
            Self::Python => "a package of Python",
        })
    }
}

/// Compiled code on disk whose content has been checked against its digest, through this very descriptor, by whoever
/// made this value. An engine maps it without another check.
#[derive(Debug)]
pub struct Artefact {
    /// Open for reading, at offset 0. The file is never written again.
    pub file: fs::File,
    /// SHA-256 of the file.
    pub digest: Digest,
}

/// A way to isolate code.
///
/// # Contract
/// - [`Engine::compile`] and [`Engine::load`] may take seconds and block; nobody calls them on a worker's core.
/// - Whatever the code contains, `compile` returns: a module that is malformed, too large, or wants what the engine does
///   not offer is a [`PrepareError`] that says which.
/// - What `compile` returned, `load` accepts, also in a later process, as long as [`Engine::fingerprint`] is the same.
pub trait Engine: Send + Sync {
    /// As in a manifest's `engine` key.
    fn name(&self) -> &'static str;

    /// Changes whenever artefacts of before can no longer be loaded: version, settings, processor.
    fn fingerprint(&self) -> &str;

    /// Checks and compiles.
    fn compile(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError>;

    /// Maps compiled code and links it: all that can be done once and not for each request.
    fn load(&self, artefact: Artefact) -> Result<Arc<dyn Image>, PrepareError>;

    /// This thread is to run this core's sandboxes: called on it once, before the first.
    fn seat(&self, _core: CoreId) -> io::Result<()> {
        Ok(())
    }

    /// Asks the sandbox that runs on this core, if any, to return [`Step::Preempted`] soon. Called from any thread; may
    /// be late, may be spurious.
    fn preempt(&self, core: CoreId);

    /// Of artefacts that are the code itself: gives up what it keeps on disk for code that is not `used` any more, as soon as no image needs it.
    /// What it gave up it makes again, if such an artefact is loaded after all. May block.
    fn collect(&self, _used: &dyn Fn(Digest) -> bool) {}
}

/// What is expected of a version, by its usage history.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Requests in a second, of late.
    pub rate: f64,
    /// A quarter of its requests come no later than this after the one before. None if too few are known.
    pub gap: Option<Duration>,
}

/// Code that is ready to run.
pub trait Image: Send + Sync {
    /// The memory that a fresh sandbox begins with: a deploy whose limit is below it is refused.
    fn initial_memory(&self) -> ByteSize {
        ByteSize(0)
    }

    /// Whether its code can begin before the request's body is complete, and answer in pieces.
    fn streams(&self) -> bool {
        false
    }

    /// Whether its code can be a pure function ([`crate::Protocol::Pure`]); or why not.
    fn pure(&self) -> Result<(), String> {
        Err("`protocol = \"pure\"` is for core modules, and this is none".to_owned())
    }

    /// Whether this host keeps all that these limits promise of sandboxes of its code, under this protocol; or what it does not. Those of an
    /// image that does not keep them are not spawned.
    fn keeps(&self, _limits: &Limits, _protocol: &Protocol) -> Result<(), String> {
        Ok(())
    }

    /// Which limits of sandboxes with this very grant are kept, and by what, in a few words, where that depends on the host.
    fn kept(&self, _grant: &Grant) -> Option<String> {
        None
    }

    /// What is expected of versions with this very grant, told every second or so: what takes time to make can be made ahead of need, and given
    /// up when there is none.
    fn expect(&self, _grant: &Arc<Grant>, _demand: Demand) {}

    /// What sandboxes of versions with this very grant are made from, in a few words, once that is known and worth them.
    fn origin(&self, _grant: &Arc<Grant>) -> Option<String> {
        None
    }

    /// The same image, for one core to make sandboxes of: who has a reference to this one is counted where no other core counts. `None` if
    /// it makes no difference.
    fn another(&self) -> Option<Arc<dyn Image>> {
        None
    }

    /// A fresh sandbox, in microseconds: nothing in it comes from an earlier request. The code has not begun to run.
    fn spawn(&self, grant: &Arc<Grant>, input: Input) -> Result<Box<dyn Sandbox>, SpawnError>;
}

/// One running instance of untrusted code. It stays on the core that made it.
///
/// # Contract
/// - `run` never blocks and returns at the latest a tick after `until`.
/// - After [`Step::Preempted`] the sandbox can be run again at once.
/// - After [`Step::Waiting`] it is run again when the waker was woken or its moment has come; running it earlier is
///   harmless. A sandbox never arms timers of its own: the worker has one for all.
/// - After [`Step::Done`] or [`Step::Fault`] it is not run again unless [`Sandbox::renew`] took it back.
/// - Dropping it at any step frees all it had, and the host is none the worse.
pub trait Sandbox {
    /// Runs until the code ends or waits, or its turn is over.
    fn run(&mut self, waker: &Waker, until: Until<'_>) -> Step;

    /// Whether its code runs in a process of its own, which [`Sandbox::run`] only looks after: it never keeps a core from others.
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// What it has used so far, for a sandbox that is dropped before its end.
    fn usage(&self) -> Usage {
        Usage::default()
    }

    /// After [`Step::Done`]: takes another request into the same memory, as `reuse` asks for; gives the input back if
    /// this sandbox cannot. The grant is the one that it was made with.
    fn renew(&mut self, _grant: &Arc<Grant>, input: Input) -> Result<(), Input> {
        Err(input)
    }
}

/// When a sandbox's turn is over. Engines look at it when they are told to by [`Engine::preempt`], not before.
#[derive(Clone, Copy, Debug)]
pub struct Until<'a> {
    /// Its quantum ends then.
    pub at: Instant,
    /// Set once its core is wanted for something that may be more urgent.
    pub asked: &'a AtomicBool,
}

impl Until<'_> {
    /// Whether that is now.
    pub fn is_over(&self) -> bool {
        self.asked.load(Ordering::Relaxed) || Instant::now() >= self.at
    }
}

/// How a turn of a sandbox ended.
#[must_use]
#[derive(Debug)]
pub enum Step {
    /// It ended well and its response is complete.
    Done(Usage),
    /// Its turn is over. Flagged by the engine, never inferred.
    Preempted,
    /// It waits for a wake-up, or for a moment, whichever comes first.
    Waiting {
        /// The moment, if its wait has an end.
        until: Option<Instant>,
    },
    /// It failed.
    Fault(Fault, Usage),
}

/// What a sandbox used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// When the sandbox was complete and its code began, by the engine's own clock reading.
    pub started: Option<Instant>,
    /// Its largest memory, in bytes: linear, or what a process had.
    pub memory: u64,
    /// Time on processors that it had outside of its turns: that of a process of its own. Exact once it has ended, and until then what was
    /// seen last.
    pub elsewhere: Duration,
}

/// Code that cannot be prepared. The function's owner must mend it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// Not what it claims to be.
    #[error("this is not a valid WebAssembly module: {0}")]
    Malformed(String),
    /// Valid, but it wants what this engine does not give.
    #[error("this module cannot run here: {0}")]
    Unsupported(String),
    /// Compiled code that this engine does not take.
    #[error("the compiled code does not load: {0}")]
    Artefact(String),
    /// The engine failed.
    #[error("the compiler failed: {0}")]
    Compiler(String),
}

/// No sandbox could be made. The platform's fault.
pub enum SpawnError {
    /// All places are taken; the input comes back to wait outside.
    Exhausted(Input),
    /// It failed for this code and grant.
    Failed {
        /// In the engine's words.
        reason: String,
    },
}

impl fmt::Debug for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted(_) => f.write_str("Exhausted"),
            Self::Failed { reason } => f.debug_struct("Failed").field("reason", reason).finish(),
        }
    }
}
