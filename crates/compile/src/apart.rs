//! The node's side: a compiler in a process of its own, told what to compile, heard, and ended when its time is over.

use crate::{BACKGROUND, MEMORY, MOST_COMPILED, MOST_KEPT, PURE, REFUSED, Refusal, UNKEPT, time_for};
use contract::{Artefact, Code, CodeKind, CoreId, Engine, Image, PrepareError};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, Once, PoisonError, atomic::Ordering, mpsc},
    thread,
    time::{Duration, Instant},
};
use tempfile::NamedTempFile;

/// How to start a compiler, and what it may use.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// How long one piece of code may take; larger code gets more, see [`time_for`].
    pub time: Duration,
    /// Whether it needs a folder of its own while it works: if it consists of programs.
    pub scratch: bool,
}

/// An engine whose compiler runs in a process of its own. All else is the engine's.
pub struct Apart {
    engine: Arc<dyn Engine>,
    options: Options,
    /// What the host does not offer is told once.
    told: Once,
}

/// What became of one exchange.
struct Ended {
    status: ExitStatus,
    /// The artefact or what is wrong with the code, if it got so far.
    said: Vec<u8>,
    reused: u32,
    made: u32,
    errors: String,
    late: bool,
    /// Pieces for the next compile.
    left: Option<NamedTempFile>,
}

impl Apart {
    /// The program must answer with [`answer`](crate::answer()), for an engine of the same fingerprint.
    pub fn new(engine: Arc<dyn Engine>, options: Options) -> Self {
        Self {
            engine,
            options,
            told: Once::new(),
        }
    }

    fn exchange(&self, code: &Code<'_>, time: Duration, keep: Option<&Path>) -> io::Result<Ended> {
        let background = code.background;
        let Options {
            program,
            arguments,
            scratch,
            ..
        } = &self.options;
        let mut flags = if background.is_some() { BACKGROUND } else { 0 };
        if code.kind == CodeKind::PureWasm {
            flags |= PURE;
        }
        let code = code.bytes;
        let scratch = scratch.then(tempfile::tempdir).transpose()?;
        // Pieces only save time: what goes wrong with them is told and does not keep code from being compiled.
        let draft = keep.and_then(|path| {
            let folder = path.parent().unwrap_or(Path::new("."));
            let draft = tempfile::Builder::new().prefix(DRAFT).tempfile_in(folder);
            draft.inspect_err(|error| cannot_keep(path, error)).ok()
        });
        let kept = match (keep, &draft) {
            (Some(path), Some(_)) => Some(read_kept(path)),
            _ => None,
        };
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(scratch.as_ref().map(|folder| ("TMPDIR", folder.path())))
            // So that all that it started can be ended where it has no process namespace.
            .process_group(0)
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
                input.map(|input| tell(input, flags, kept, code))
            });
            let said = scope.spawn(move || {
                let mut said = Vec::new();
                // Beyond this nobody reads; a compiler that talks without end meets its time.
                errors.map(|errors| errors.take(MOST_SAID).read_to_end(&mut said));
                String::from_utf8_lossy(&said).trim().to_owned()
            });
            let watch = scope.spawn(move || {
                let unwanted = || background.is_some_and(|stop| stop.load(Ordering::Relaxed));
                let until = Instant::now() + time;
                let mut late = false;
                while !late {
                    let left = until.saturating_duration_since(Instant::now());
                    // Somebody may stop to want it.
                    let patience = background.map_or(left, |_| left.min(LOOK));
                    match ending.recv_timeout(patience) {
                        Err(mpsc::RecvTimeoutError::Timeout) => late = unwanted() || patience == left,
                        _ => break,
                    }
                }
                if late {
                    let mut child = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    // It fails only if all has ended already.
                    let _ = end(&mut child);
                }
                late
            });
            let heard = output.map_or_else(|| Ok(Heard::default()), |output| hear(output, draft));
            let status = wait(&child, &watch);
            drop(done);
            let late = watch.join().unwrap_or(false);
            let errors = said.join().unwrap_or_default();
            let heard = heard?;
            Ok(Ended {
                status: status?,
                said: heard.said,
                reused: heard.reused,
                made: heard.made,
                errors,
                late,
                left: heard.left,
            })
        })
    }

    fn compile_once(&self, code: &Code<'_>, keep: Option<&Path>) -> Result<Vec<u8>, Failure> {
        let background = code.background;
        let began = Instant::now();
        let mut time = time_for(self.options.time, code.bytes.len());
        if background.is_some() {
            // It waits for everything else; how long it computes has its own bound.
            time *= PATIENCE;
        }
        let ended = self.exchange(code, time, keep).map_err(|error| {
            Failure::Broken(PrepareError::Compiler(format!(
                "its process could not be run: {error}"
            )))
        })?;
        if ended.late && background.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Failure::Refused(PrepareError::Compiler(
                "nobody wants it any more".into(),
            )));
        }
        if ended.late {
            return Err(Failure::Exceeded(format!(
                "compiling its {} KiB takes longer than {} s; look for very large functions or deeply nested loops, leave \
                 out what it does not need, or deploy it when the node has less to do",
                code.bytes.len().div_ceil(1 << 10),
                time.as_secs_f32()
            )));
        }
        match ended.status.code() {
            Some(0) => {
                if let (Some(path), Some(left)) = (keep, ended.left)
                    && let Err(error) = left.persist(path)
                {
                    cannot_keep(path, &error.error);
                }
                if !ended.errors.is_empty() {
                    self.told
                        .call_once(|| tracing::warn!(said = ended.errors, "a compiler has something to say"));
                }
                let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                tracing::info!(
                    code_bytes = code.bytes.len(),
                    artefact_bytes = ended.said.len(),
                    milliseconds,
                    pieces_reused = ended.reused,
                    pieces_made = ended.made,
                    "compiled"
                );
                Ok(ended.said)
            }
            Some(code) if code == i32::from(REFUSED) => {
                let error = serde_json::from_slice::<Refusal>(&ended.said).map_or_else(
                    |_| PrepareError::Compiler("it refused the code without saying why".into()),
                    PrepareError::from,
                );
                Err(match error {
                    PrepareError::Compiler(_) => Failure::Broken(error),
                    error => Failure::Refused(error),
                })
            }
            // What Rust's runtime says of an allocation that fails.
            _ if ended.errors.contains("memory allocation of ") => Err(Failure::Exceeded(format!(
                "compiling it takes more than {} GiB of memory; look for very large functions, or leave out what it \
                 does not need",
                MEMORY >> 30
            ))),
            _ if ended.status.signal() == Some(Signal::SYS.as_raw()) => {
                tracing::error!(
                    code_bytes = code.bytes.len(),
                    "a compiler was ended because it made a system call that no compiler makes: its code may be hostile"
                );
                Err(Failure::Broken(PrepareError::Compiler(
                    "its process was ended when it tried to leave its confinement".into(),
                )))
            }
            _ => Err(Failure::Broken(PrepareError::Compiler(format!(
                "its process ended with {}: {}",
                ended.status, ended.errors
            )))),
        }
    }
}

/// Why there is no artefact.
enum Failure {
    /// The code is at fault, and the compiler says how.
    Refused(PrepareError),
    /// It used more than it may of time or memory.
    Exceeded(String),
    /// The compiler is at fault.
    Broken(PrepareError),
}

impl From<Failure> for PrepareError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) | Failure::Broken(error) => error,
            Failure::Exceeded(reason) => Self::Unsupported(reason),
        }
    }
}

/// What an interrupted write leaves behind begins with this, as the registry's own drafts do.
const DRAFT: &str = ".draft-";

fn cannot_keep(path: &Path, error: &io::Error) {
    tracing::warn!(path = %path.display(), %error, "cannot keep pieces: the next compile takes as long");
}

/// What is kept, in memory: a disk that fails halfway must not spoil what follows it on its way to the compiler.
fn read_kept(path: &Path) -> Vec<u8> {
    let read = || {
        let mut bytes = Vec::new();
        let length = File::open(path)?.take(MOST_KEPT + 1).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(if length as u64 > MOST_KEPT {
            Vec::new()
        } else {
            bytes
        })
    };
    match read() {
        Ok(bytes) => bytes,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "cannot read the pieces of earlier compiles");
            }
            Vec::new()
        }
    }
}

/// Ends a process that was not waited for so far, and whatever it has started.
fn end(child: &mut Child) -> io::Result<()> {
    let group = kill_process_group(Pid::from_child(child), Signal::KILL);
    child.kill()?;
    Ok(group?)
}

fn tell(mut input: ChildStdin, flags: u8, kept: Option<Vec<u8>>, code: &[u8]) -> io::Result<()> {
    let length = kept.as_ref().map_or(UNKEPT, |kept| kept.len() as u64);
    input.write_all(&[flags])?;
    input.write_all(&length.to_le_bytes())?;
    input.write_all(&kept.unwrap_or_default())?;
    input.write_all(code)
}

#[derive(Default)]
struct Heard {
    said: Vec<u8>,
    reused: u32,
    made: u32,
    left: Option<NamedTempFile>,
}

/// Reads to the end, whatever comes: a compiler that cannot write would seem to have failed.
fn hear(mut output: ChildStdout, draft: Option<NamedTempFile>) -> io::Result<Heard> {
    let (mut length, mut reused, mut made) = ([0; 8], [0; 4], [0; 4]);
    for number in [&mut length[..], &mut reused, &mut made] {
        match output.read_exact(number) {
            // It ended before it had anything to say; its status tells the rest.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Heard::default()),
            read => read?,
        }
    }
    let mut said = Vec::new();
    output
        .by_ref()
        .take(u64::from_le_bytes(length).min(MOST_COMPILED))
        .read_to_end(&mut said)?;
    let left = draft.and_then(|mut draft| {
        match io::copy(&mut output.by_ref().take(MOST_KEPT + 1), draft.as_file_mut()) {
            Ok(1..=MOST_KEPT) => Some(draft),
            Ok(_) => None,
            Err(error) => {
                cannot_keep(draft.path(), &error);
                None
            }
        }
    });
    io::copy(&mut output, &mut io::sink())?;
    Ok(Heard {
        said,
        reused: u32::from_le_bytes(reused),
        made: u32::from_le_bytes(made),
        left,
    })
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

/// How often somebody is asked who may not want what is compiled in the background.
const LOOK: Duration = Duration::from_millis(20);

/// How many times longer than others a compile in the background may take.
const PATIENCE: u32 = 10;

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
        let (CodeKind::Wasm | CodeKind::PureWasm) = code.kind else {
            return self.engine.compile(code);
        };
        let keep = code.pieces;
        let failure = match self.compile_once(code, keep) {
            Ok(artefact) => return Ok(artefact),
            Err(failure) => failure,
        };
        match keep.filter(|path| path.exists()) {
            // Pieces may be to blame.
            Some(path) if !matches!(failure, Failure::Refused(_)) => {
                tracing::warn!(path = %path.display(), "a compiler failed, and the pieces that it got are removed");
                if let Err(error) = fs::remove_file(path) {
                    cannot_keep(path, &error);
                } else if let Failure::Broken(_) = failure {
                    return self.compile_once(code, keep).map_err(Into::into);
                }
                Err(failure.into())
            }
            _ => Err(failure.into()),
        }
    }

    fn load(&self, artefact: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        self.engine.load(artefact)
    }

    fn seat(&self, core: CoreId) -> io::Result<()> {
        self.engine.seat(core)
    }

    fn preempt(&self, core: CoreId) {
        self.engine.preempt(core);
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

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

    fn apart(script: &str, time: Duration) -> Apart {
        let options = Options {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            time,
            scratch: false,
        };
        Apart::new(Arc::new(Unused), options)
    }

    fn compile(script: &str, time: Duration, code: &[u8]) -> Result<Vec<u8>, PrepareError> {
        apart(script, time).compile(&Code {
            kind: CodeKind::Wasm,
            bytes: code,
            pieces: None,
            background: None,
        })
    }

    /// What a shell says before so many bytes of an artefact or a refusal.
    fn head(length: usize) -> String {
        let octal = |byte: &u8| format!("\\{byte:03o}");
        let length: String = (length as u64).to_le_bytes().iter().map(octal).collect();
        format!("printf '{length}\\1\\0\\0\\0\\2\\0\\0\\0'")
    }

    const LONG: Duration = Duration::from_secs(120);

    #[test]
    fn the_artefact_comes_back_whole() {
        let code: Vec<u8> = (0..3_000_000u32).map(|i| i.to_le_bytes()[0]).collect();
        let script = format!("head -c 9 >/dev/null; {}; cat", head(code.len()));
        assert_eq!(compile(&script, LONG, &code).unwrap(), code);
    }

    #[test]
    fn a_compiler_need_not_read_what_it_refuses() {
        let script = format!(r#"{}; printf '{{"malformed":"no"}}'; exit 3"#, head(18));
        let error = compile(&script, LONG, &vec![0; 1 << 20]).unwrap_err();
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
    fn who_takes_too_much_memory_is_told() {
        let script = "echo 'memory allocation of 8589934592 bytes failed' >&2; kill -ABRT $$";
        let error = compile(script, LONG, b"x").unwrap_err();
        assert!(
            matches!(&error, PrepareError::Unsupported(reason) if reason.contains("4 GiB")),
            "{error}"
        );
    }

    #[test]
    fn large_code_gets_more_time() {
        let minutes = |bytes| time_for(Duration::from_secs(60), bytes).as_secs() / 60;
        assert_eq!(
            (minutes(0), minutes(16 << 20), minutes((16 << 20) + 1)),
            (1, 1, 2)
        );
        assert_eq!((minutes(40 << 20), minutes(usize::MAX)), (3, 4));
    }

    #[test]
    fn what_it_started_is_ended_with_it() {
        // A child that left its parent and holds on to the output.
        let script = "/bin/sleep 1000 & exec /bin/sleep 1000";
        let error = compile(script, Duration::from_millis(50), b"x").unwrap_err();
        assert!(matches!(error, PrepareError::Unsupported(_)), "{error}");
    }

    #[test]
    fn a_compiler_is_told_what_it_compiles_and_whether_somebody_waits() {
        let script = format!("{}; head -c 1; cat >/dev/null", head(1));
        let wanted = AtomicBool::new(false);
        for (kind, background, flags) in [
            (CodeKind::Wasm, None, 0),
            (CodeKind::Wasm, Some(&wanted), BACKGROUND),
            (CodeKind::PureWasm, None, PURE),
            (CodeKind::PureWasm, Some(&wanted), BACKGROUND | PURE),
        ] {
            let code = Code {
                kind,
                bytes: b"code",
                pieces: None,
                background,
            };
            let ended = apart(&script, LONG).exchange(&code, LONG, None).unwrap();
            assert_eq!(ended.said, [flags]);
        }
    }

    #[test]
    fn a_compiler_whose_work_nobody_wants_is_ended() {
        let unwanted = AtomicBool::new(true);
        let code = Code {
            kind: CodeKind::Wasm,
            bytes: b"code",
            pieces: None,
            background: Some(&unwanted),
        };
        let error = apart("cat >/dev/null; sleep 1000", LONG)
            .compile(&code)
            .unwrap_err();
        assert!(error.to_string().contains("nobody wants it"), "{error}");
    }

    #[test]
    fn a_folder_is_there_while_it_works() {
        let mut apart = apart(
            &format!(
                "cat >/dev/null; {}; ls -d \"$TMPDIR\" | head -c 5; touch $TMPDIR/rest",
                head(5)
            ),
            LONG,
        );
        apart.options.scratch = true;
        let code = Code {
            kind: CodeKind::Wasm,
            bytes: b"",
            pieces: None,
            background: None,
        };
        assert_eq!(apart.exchange(&code, LONG, None).unwrap().said.len(), 5);
    }

    #[test]
    fn a_missing_program_is_told() {
        let options = Options {
            program: "/nowhere".into(),
            arguments: Vec::new(),
            time: LONG,
            scratch: false,
        };
        let error = Apart::new(Arc::new(Unused), options)
            .compile(&Code {
                kind: CodeKind::Wasm,
                bytes: b"",
                pieces: None,
                background: None,
            })
            .unwrap_err();
        assert!(matches!(error, PrepareError::Compiler(_)));
    }

    /// Compilers that keep something.
    struct Keeping {
        folder: tempfile::TempDir,
    }

    impl Keeping {
        fn new() -> Self {
            Self {
                folder: tempfile::tempdir().unwrap(),
            }
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("pieces")
        }

        fn compile(&self, script: &str) -> Result<Vec<u8>, PrepareError> {
            apart(script, LONG).compile(&Code {
                kind: CodeKind::Wasm,
                bytes: b"code",
                pieces: Some(&self.path()),
                background: None,
            })
        }

        fn kept(&self) -> Option<String> {
            let names = fs::read_dir(self.folder.path()).unwrap();
            assert!(names.count() <= 1, "drafts do not stay");
            fs::read_to_string(self.path()).ok()
        }
    }

    #[test]
    fn what_a_compiler_leaves_goes_to_the_next() {
        let keeping = Keeping::new();
        let leaves = |what: &str| format!("cat >/dev/null; {}; printf 'code{what}'", head(4));
        assert_eq!(keeping.compile(&leaves("first")).unwrap(), b"code");
        assert_eq!(keeping.kept().unwrap(), "first");
        // Flags, eight bytes of length, then what is kept: that is the artefact now, and nothing is left.
        let returns = format!("{}; head -c 14; cat >/dev/null", head(14));
        assert_eq!(keeping.compile(&returns).unwrap(), b"\0\x05\0\0\0\0\0\0\0first");
        assert_eq!(
            keeping.kept().unwrap(),
            "first",
            "nothing new, so what there was stays"
        );
        keeping.compile(&leaves("second")).unwrap();
        assert_eq!(keeping.kept().unwrap(), "second");
    }

    #[test]
    fn without_a_file_nothing_is_kept() {
        let script = format!(
            "{}; head -c 1 >/dev/null; head -c 8; cat >/dev/null; printf pieces",
            head(8)
        );
        assert_eq!(compile(&script, LONG, b"code").unwrap(), UNKEPT.to_le_bytes());
    }

    #[test]
    fn a_compiler_that_fails_leaves_nothing() {
        let keeping = Keeping::new();
        for end in ["exit 1", "exit 3", "kill -9 $$"] {
            let script = format!("cat >/dev/null; {}; printf 'codepieces'; {end}", head(4));
            assert!(keeping.compile(&script).is_err(), "{end}");
            assert_eq!(keeping.kept(), None, "{end}");
        }
    }

    #[test]
    fn a_refusal_leaves_what_there_was() {
        let keeping = Keeping::new();
        fs::write(keeping.path(), "earlier").unwrap();
        let refusal = r#"{"unsupported":"no"}"#;
        let script = format!(
            "cat >/dev/null; {}; printf '{refusal}'; exit 3",
            head(refusal.len())
        );
        assert!(matches!(
            keeping.compile(&script),
            Err(PrepareError::Unsupported(_))
        ));
        assert_eq!(keeping.kept().unwrap(), "earlier");
    }

    #[test]
    fn a_compiler_that_breaks_on_pieces_gets_none() {
        let keeping = Keeping::new();
        fs::write(keeping.path(), "bad").unwrap();
        // The low byte of the length is 3 in decimal, and 0 when it is asked again.
        let script = format!(
            "head -c 1 >/dev/null; kept=$(head -c 1 | od -An -tu1); cat >/dev/null; [ $kept -eq 0 ] || exit 1; {}; printf 'codegood'",
            head(4)
        );
        assert_eq!(keeping.compile(&script).unwrap(), b"code");
        assert_eq!(keeping.kept().unwrap(), "good");
    }

    #[test]
    fn what_does_not_fit_or_cannot_be_read_is_left_out() {
        let keeping = Keeping::new();
        let script = format!("{}; head -c 1 >/dev/null; head -c 8; cat >/dev/null", head(8));
        File::create(keeping.path())
            .unwrap()
            .set_len(MOST_KEPT + 1)
            .unwrap();
        assert_eq!(keeping.compile(&script).unwrap(), 0_u64.to_le_bytes());
        fs::remove_file(keeping.path()).unwrap();
        fs::create_dir(keeping.path()).unwrap();
        let leaves = format!("cat >/dev/null; {}; printf 'codepieces'", head(4));
        assert_eq!(keeping.compile(&leaves).unwrap(), b"code");
        let nowhere = Code {
            kind: CodeKind::Wasm,
            bytes: b"code",
            pieces: Some(Path::new("/nowhere/pieces")),
            background: None,
        };
        assert_eq!(apart(&leaves, LONG).compile(&nowhere).unwrap(), b"code");
    }

    #[test]
    fn compilers_of_the_same_function_leave_one_whole_file() {
        let keeping = Keeping::new();
        thread::scope(|scope| {
            for what in ["aaaa", "bbbb", "cccc", "dddd"] {
                let keeping = &keeping;
                scope.spawn(move || {
                    let script = format!("cat >/dev/null; {}; printf 'code{what}'", head(4));
                    for _ in 0..5 {
                        assert_eq!(keeping.compile(&script).unwrap(), b"code");
                    }
                });
            }
        });
        let kept = keeping.kept().unwrap();
        assert!(["aaaa", "bbbb", "cccc", "dddd"].contains(&&*kept), "{kept}");
    }
}
