//! Compilers in processes of their own.
//!
//! Code is not to be trusted, and compilers are not built against it: a module of some kilobytes can keep one busy for
//! minutes, fill its memory or crash it. In a process it can be ended, and what it used is gone afterwards, which is
//! also why an idle node is small.
//!
//! The protocol is one exchange. [`Apart`] starts the compiler and writes the code to its standard input; [`answer`], which
//! the compiler's process runs, writes the artefact to standard output and leaves with 0, or writes what is wrong with the
//! code and leaves with [`REFUSED`]. Whatever else happens is a failure of the compiler.
//!
//! The process has limits and an empty environment; it is not confined yet.

#![forbid(unsafe_code)]

use contract::{Artefact, Code, CodeKind, CoreId, Engine, Image, PrepareError};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    io::{self, Read as _, Write as _},
    path::PathBuf,
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

/// The exit code that says that standard output holds a refusal.
pub const REFUSED: u8 = 3;

/// How to start a compiler, and what it may use.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// How long one piece of code may take.
    pub time: Duration,
}

/// An engine whose compiler runs in a process of its own. All else is the engine's.
pub struct Apart {
    engine: Arc<dyn Engine>,
    options: Options,
}

impl Apart {
    /// The program must answer with [`answer`], for an engine of the same fingerprint.
    pub fn new(engine: Arc<dyn Engine>, options: Options) -> Self {
        Self { engine, options }
    }

    fn exchange(&self, code: &[u8]) -> io::Result<(ExitStatus, Vec<u8>, String, bool)> {
        let Options {
            program,
            arguments,
            time,
        } = &self.options;
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let child = Mutex::new(child);
        let shared = &child;
        let (done, ending) = mpsc::channel::<()>();
        thread::scope(|scope| {
            // Three pipes, and whichever fills up first would stop both sides if one thread served them.
            scope.spawn(move || {
                // A compiler that has seen enough closes its side; what it says then is what counts.
                input.map(|mut input| input.write_all(code))
            });
            let said = scope.spawn(move || {
                let mut said = Vec::new();
                // Beyond this nobody reads; a compiler that talks without end meets its time.
                errors.map(|errors| errors.take(MOST_SAID).read_to_end(&mut said));
                String::from_utf8_lossy(&said).trim().to_owned()
            });
            let watch = scope.spawn(move || {
                let late = matches!(ending.recv_timeout(*time), Err(mpsc::RecvTimeoutError::Timeout));
                if late {
                    // It fails only if the process has ended already.
                    let _ = shared.lock().unwrap_or_else(PoisonError::into_inner).kill();
                }
                late
            });
            let mut artefact = Vec::new();
            let read = output.map_or(Ok(0), |mut output| output.read_to_end(&mut artefact));
            let status = wait(&child, &watch);
            drop(done);
            let late = watch.join().unwrap_or(false);
            let said = said.join().unwrap_or_default();
            read?;
            Ok((status?, artefact, said, late))
        })
    }
}

/// Waits for the end of a process whose output has ended, without keeping it from being killed meanwhile.
fn wait(child: &Mutex<Child>, watch: &thread::ScopedJoinHandle<'_, bool>) -> io::Result<ExitStatus> {
    loop {
        let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.is_finished() {
            return child.wait();
        }
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        drop(child);
        thread::sleep(Duration::from_millis(1));
    }
}

/// How much of a compiler's standard error is kept.
const MOST_SAID: u64 = 16 << 10;

impl Engine for Apart {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn fingerprint(&self) -> &str {
        self.engine.fingerprint()
    }

    fn compile(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        let CodeKind::Wasm = code.kind else {
            return self.engine.compile(code);
        };
        let (status, artefact, said, late) = self
            .exchange(code.bytes)
            .map_err(|error| PrepareError::Compiler(format!("its process could not be run: {error}")))?;
        if late {
            return Err(PrepareError::Unsupported(format!(
                "compiling it takes longer than {} s; look for very large functions or deeply nested loops",
                self.options.time.as_secs_f32()
            )));
        }
        match status.code() {
            Some(0) => Ok(artefact),
            Some(code) if code == i32::from(REFUSED) => Err(serde_json::from_slice::<Refusal>(&artefact)
                .map_or_else(
                    |_| PrepareError::Compiler("it refused the code without saying why".into()),
                    Into::into,
                )),
            _ => Err(PrepareError::Compiler(format!(
                "its process ended with {status}: {said}"
            ))),
        }
    }

    fn load(&self, artefact: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        self.engine.load(artefact)
    }

    fn preempt(&self, core: CoreId) {
        self.engine.preempt(core);
    }
}

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

/// Memory that a compiler may write to.
const MEMORY: u64 = 4 << 30;

/// The other side: compiles what is on standard input, once. Standard output belongs to the protocol.
pub fn answer(engine: &dyn Engine, time: Duration) -> ExitCode {
    let limit = |most: u64| Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    // A node that was killed kills nobody: then these end us. Where they cannot be set, the node's own watch holds.
    let _ = setrlimit(Resource::Cpu, limit(time.as_secs().saturating_mul(4).max(1)));
    let _ = setrlimit(Resource::Data, limit(MEMORY));
    let mut bytes = Vec::new();
    let result = match io::stdin().lock().read_to_end(&mut bytes) {
        Ok(_) => engine.compile(&Code {
            kind: CodeKind::Wasm,
            bytes: &bytes,
        }),
        Err(error) => Err(PrepareError::Compiler(format!(
            "it cannot read its input: {error}"
        ))),
    };
    let (said, code) = match result {
        Ok(artefact) => (artefact, 0),
        Err(error) => (
            serde_json::to_vec(&Refusal::from(error)).unwrap_or_default(),
            REFUSED,
        ),
    };
    let mut output = io::stdout().lock();
    match output.write_all(&said).and_then(|()| output.flush()) {
        Ok(()) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Unused;

    impl Engine for Unused {
        fn name(&self) -> &'static str {
            "unused"
        }
        fn fingerprint(&self) -> &str {
            "none"
        }
        fn compile(&self, _: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
            Err(PrepareError::Compiler("it was called in this process".into()))
        }
        fn load(&self, _: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
            Err(PrepareError::Artefact("nothing loads here".into()))
        }
        fn preempt(&self, _: CoreId) {}
    }

    fn compile(script: &str, time: Duration, code: &[u8]) -> Result<Vec<u8>, PrepareError> {
        let options = Options {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            time,
        };
        Apart::new(Arc::new(Unused), options).compile(&Code {
            kind: CodeKind::Wasm,
            bytes: code,
        })
    }

    const LONG: Duration = Duration::from_secs(120);

    #[test]
    fn the_artefact_comes_back_whole() {
        let code: Vec<u8> = (0..3_000_000u32).map(|i| i.to_le_bytes()[0]).collect();
        assert_eq!(compile("/bin/cat", LONG, &code).unwrap(), code);
    }

    #[test]
    fn a_compiler_need_not_read_what_it_refuses() {
        let script = r#"echo '{"malformed":"no"}'; exit 3"#;
        let error = compile(script, LONG, &vec![0; 1 << 20]).unwrap_err();
        assert!(matches!(error, PrepareError::Malformed(reason) if reason == "no"));
    }

    #[test]
    fn a_crash_is_the_compilers() {
        for script in ["kill -9 $$", "echo oops >&2; exit 1", "echo nonsense; exit 3"] {
            assert!(
                matches!(compile(script, LONG, b"x"), Err(PrepareError::Compiler(_))),
                "{script}"
            );
        }
    }

    #[test]
    fn who_takes_too_long_is_ended() {
        for script in ["exec /bin/sleep 1000", "exec >&-; exec /bin/sleep 1000"] {
            let error = compile(script, Duration::from_millis(50), b"x").unwrap_err();
            assert!(matches!(error, PrepareError::Unsupported(_)), "{script}: {error}");
        }
    }

    #[test]
    fn a_missing_program_is_told() {
        let options = Options {
            program: "/nowhere".into(),
            arguments: Vec::new(),
            time: LONG,
        };
        let error = Apart::new(Arc::new(Unused), options)
            .compile(&Code {
                kind: CodeKind::Wasm,
                bytes: b"",
            })
            .unwrap_err();
        assert!(matches!(error, PrepareError::Compiler(_)));
    }
}
