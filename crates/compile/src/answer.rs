//! The compiler's side: a process that confines itself, hears what it is to compile, and says what came of it.

use crate::{BACKGROUND, MEMORY, MOST_KEPT, PURE, Pieces, REFUSED, Refusal, UNKEPT, time_for};
use confine::{Confinement, Folder, Limits, Processes, Programs};
use contract::{Code, CodeKind, Engine, PrepareError};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Resource, Rlimit, setrlimit},
};
use std::{
    env,
    io::{self, Read, Write as _},
    process::ExitCode,
    sync::Arc,
    thread,
    time::Duration,
};

/// Bytes that a compiler's programs may write to files while it works.
const SCRATCH: u64 = 1 << 30;

/// Confines this process, and compiles what is on standard input, once, with the engine that `engine` makes; it is to
/// use the pieces, if there are to be any. `programs` are those that the engine starts. Standard output belongs to the protocol.
///
/// The engine is made in the confinement, since it gets pieces, which are as hostile as the code. The process must have one thread when this is
/// called.
pub fn answer<E: Engine>(
    time: Duration,
    programs: Option<Programs>,
    engine: impl FnOnce(Option<Arc<Pieces>>) -> Result<E, PrepareError>,
) -> ExitCode {
    let threads = thread::available_parallelism().map_or(4, |threads| threads.get().max(4)) as u64;
    let mut pieces = None;
    let result = enter(confinement(time, threads, programs))
        .and_then(|()| {
            ask(io::stdin().lock())
                .map_err(|error| PrepareError::Compiler(format!("it cannot read its input: {error}")))
        })
        .and_then(|asked| {
            if asked.flags & BACKGROUND != 0 {
                // Where it is refused, it is merely not in the background.
                let _ = confine::give_way();
            }
            let most = time_for(time, asked.code.len())
                .as_secs()
                .max(1)
                .saturating_mul(threads);
            let most = Rlimit {
                current: Some(most),
                maximum: Some(most),
            };
            // Where it cannot be set, the node's own watch holds, and the limit for the largest code.
            let _ = setrlimit(Resource::Cpu, most);
            pieces = asked.kept.map(|kept| Arc::new(Pieces::read(kept)));
            let kind = match asked.flags & PURE {
                0 => CodeKind::Wasm,
                _ => CodeKind::PureWasm,
            };
            engine(pieces.clone())?.compile(&Code {
                kind,
                bytes: &asked.code,
                pieces: None,
                background: None,
            })
        });
    let (said, code) = match result {
        Ok(artefact) => (artefact, 0),
        Err(error) => {
            pieces = None;
            let said = serde_json::to_vec(&Refusal::from(error)).unwrap_or_default();
            (said, REFUSED)
        }
    };
    match say(&said, pieces.as_deref()) {
        Ok(()) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}

/// What a compiler may still do. Its limits count for each of its programs: what the node bounds is the time of all together.
fn confinement(time: Duration, threads: u64, programs: Option<Programs>) -> Confinement {
    let processes = match programs {
        None => Processes::None,
        Some(_) => Processes::Children,
    };
    let scratch = env::var_os("TMPDIR").filter(|_| programs.is_some());
    let Programs { read, execute } = programs.unwrap_or_default();
    Confinement {
        placed: Vec::new(),
        read,
        execute,
        limits: Limits {
            memory: MEMORY,
            // More than the largest code gets, which is not known yet.
            processor: Some(time_for(time, usize::MAX) * u32::try_from(threads).unwrap_or(u32::MAX)),
            // There may be no file to write to, but what it says may be sent to one.
            file_size: SCRATCH,
            threads: 4 * threads + 64,
            ..Limits::default()
        },
        write: scratch
            .map(|path| Folder {
                path: path.into(),
                in_memory: Some(SCRATCH),
            })
            .into_iter()
            .collect(),
        processes,
        demands: Vec::new(),
    }
}

/// Enters it, and says on standard error what this host does not offer.
fn enter(confinement: Confinement) -> Result<(), PrepareError> {
    let report = confinement
        .enter()
        .map_err(|error| PrepareError::Compiler(error.to_string()))?;
    for (wall, error) in report.missing() {
        eprintln!("it is confined without {wall}: {error}");
    }
    // Who started this process may have ended before the kernel was told to end it, too: then nobody listens.
    let output = io::stdout();
    let mut listening = [PollFd::new(&output, PollFlags::empty())];
    match poll(
        &mut listening,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    ) {
        Ok(1..) => Err(PrepareError::Compiler("nobody listens".into())),
        _ => Ok(()),
    }
}

/// What a compiler is told.
struct Asked {
    flags: u8,
    /// Pieces, if any are to be kept.
    kept: Option<Vec<u8>>,
    code: Vec<u8>,
}

fn ask(mut input: impl Read) -> io::Result<Asked> {
    let (mut flags, mut length) = ([0; 1], [0; 8]);
    input.read_exact(&mut flags)?;
    input.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut kept = None;
    if length != UNKEPT {
        let mut bytes = Vec::new();
        input.by_ref().take(length).read_to_end(&mut bytes)?;
        kept = Some(bytes);
    }
    let mut code = Vec::new();
    input.read_to_end(&mut code)?;
    let [flags] = flags;
    Ok(Asked { flags, kept, code })
}

fn say(said: &[u8], pieces: Option<&Pieces>) -> io::Result<()> {
    let mut output = io::stdout().lock();
    let (reused, made) = pieces.map_or((0, 0), |pieces| (pieces.reused(), pieces.made_anew()));
    output.write_all(&(said.len() as u64).to_le_bytes())?;
    output.write_all(&reused.to_le_bytes())?;
    output.write_all(&made.to_le_bytes())?;
    output.write_all(said)?;
    let mut output = io::BufWriter::with_capacity(1 << 20, output);
    if let Some(pieces) = pieces {
        pieces.write(&mut output, MOST_KEPT)?;
    }
    output.flush()
}
