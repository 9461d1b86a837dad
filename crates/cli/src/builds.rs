//! Running the build commands of a manifest, and judging what they made.

use crate::{
    failure::Failure,
    output,
    project::Project,
    signals::Stop,
    watch::{self, Seen},
};
use contract::Name;
use manifest::Manifest;
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, SystemTime},
};

/// One build command, with all functions that name it: it runs once for them.
#[derive(Debug)]
pub(crate) struct Unit<'a> {
    /// The shell command.
    pub(crate) command: &'a str,
    /// What it makes: functions and the paths of their code.
    pub(crate) makes: Vec<(&'a Name, PathBuf)>,
    /// Globs of what it is made from.
    pub(crate) watch: Vec<&'a str>,
}

/// The build commands of a manifest in the order of their functions, or of one function.
pub(crate) fn units<'a>(
    manifest: &'a Manifest,
    project: &Project,
    only: Option<&Name>,
) -> Result<Vec<Unit<'a>>, Failure> {
    if let Some(name) = only
        && !manifest.function.contains_key(name)
    {
        let names: Vec<&str> = manifest.function.keys().map(Name::as_str).collect();
        return Err(Failure::usage(
            format!("the manifest has no function `{name}`"),
            format!("it has {}", names.join(", ")),
        ));
    }
    let mut units: Vec<Unit<'a>> = Vec::new();
    let wanted = |name: &Name| only.is_none_or(|only| only == name);
    for (name, function) in manifest.function.iter().filter(|(name, _)| wanted(name)) {
        let Some(build) = &function.build else { continue };
        let made = (name, project.folder.join(&function.source));
        let watch = build.watch.iter().map(String::as_str);
        match units.iter_mut().find(|unit| unit.command == build.command) {
            Some(unit) => {
                unit.makes.push(made);
                unit.watch.extend(watch);
            }
            None => units.push(Unit {
                command: &build.command,
                makes: vec![made],
                watch: watch.collect(),
            }),
        }
    }
    Ok(units)
}

/// As [`units`], for verbs that were told to build: that there is nothing to build is an error.
pub(crate) fn some_units<'a>(
    manifest: &'a Manifest,
    project: &Project,
    only: Option<&Name>,
) -> Result<Vec<Unit<'a>>, Failure> {
    let units = units(manifest, project, only)?;
    if units.is_empty() {
        let whose = only.map_or_else(
            || "no function of the manifest says how it is built".to_owned(),
            |name| format!("the manifest does not say how `{name}` is built"),
        );
        return Err(Failure::usage(
            whose,
            "add a `[function.NAME.build]` table with a `command`",
        ));
    }
    Ok(units)
}

/// How much of a failed command's output is shown.
const SHOWN: u64 = 64 << 10;

impl Unit<'_> {
    /// What it is made from, as it looks now.
    pub(crate) fn sources(&self, project: &Project) -> Result<Seen, Failure> {
        watch::look(&project.folder, &self.watch)
    }

    /// Whether all that it makes is there.
    pub(crate) fn is_made(&self) -> bool {
        self.makes.iter().all(|(_, path)| path.is_file())
    }

    /// Whether all that it makes is there, and nothing that it is made from is newer. Without `watch`, who knows.
    pub(crate) fn is_fresh(&self, sources: &Seen) -> bool {
        let newest = sources.values().map(|(written, _)| *written).max();
        newest.is_some_and(|newest| {
            self.makes
                .iter()
                .all(|(_, path)| written(path).is_some_and(|written| written >= newest))
        })
    }

    /// Runs the command and checks what it made. `verbose` shows its output as it comes, else only when it fails.
    pub(crate) fn build(&self, project: &Project, verbose: bool, stop: &Stop) -> Result<(), Failure> {
        let spinner = output::spinner(&format!("building: {}", self.command));
        if verbose {
            spinner.finish_and_clear();
        }
        let ran = self.run(project, verbose, stop);
        spinner.finish_and_clear();
        ran?;
        self.makes.iter().try_for_each(|(name, path)| {
            let wrong = |what: String, hint: &str| {
                Failure::local(
                    format!(
                        "the build command `{}` succeeded, but the `source` of `{name}`, {}, {what}",
                        self.command,
                        path.display()
                    ),
                    hint,
                )
            };
            let hint = "let `source` name what the command writes; it is relative to the manifest";
            match magic(path) {
                Ok(bytes) if [*b"\0asm", *b"\x7fELF"].contains(&bytes) => Ok(()),
                Ok(_) => Err(wrong("is neither WebAssembly nor an executable".to_owned(), hint)),
                Err(error) => Err(wrong(format!("cannot be read: {error}"), hint)),
            }
        })
    }

    fn run(&self, project: &Project, verbose: bool, stop: &Stop) -> Result<(), Failure> {
        let failed = |reason: String, output: String| Failure::Build {
            message: format!("the build command `{}` {reason}", self.command),
            folder: project.folder.clone(),
            output,
        };
        let start = |error: io::Error| failed(format!("could not be started: {error}"), String::new());
        // A file and not a pipe: nobody has to read it meanwhile, and a process that is left behind keeps nobody waiting.
        let mut kept = if verbose {
            None
        } else {
            Some(tempfile::tempfile().map_err(start)?)
        };
        let stream = || match &kept {
            Some(file) => file.try_clone().map(Stdio::from),
            None => Ok(Stdio::from(io::stderr())),
        };
        let child = Command::new("sh")
            .args(["-c", self.command])
            .current_dir(&project.folder)
            .stdin(Stdio::null())
            .stdout(stream().map_err(start)?)
            .stderr(stream().map_err(start)?)
            // A group of its own, so that compilers end with the shell that started them.
            .process_group(0)
            .spawn()
            .map_err(start)?;
        let status =
            finish(child, stop).map_err(|error| failed(format!("was lost: {error}"), String::new()))?;
        stop.check()?;
        if status.success() {
            return Ok(());
        }
        // Where the output cannot be read, the status still tells.
        let output = kept.as_mut().and_then(|file| tail(file).ok()).unwrap_or_default();
        let reason = match status.code() {
            // What POSIX has a shell say.
            Some(127) => {
                "failed: a command in it was not found (exit status 127): install it, or set PATH".to_owned()
            }
            _ => format!("failed: {status}"),
        };
        Err(failed(reason, output))
    }
}

/// Waits for a child, and ends its group when a signal comes.
fn finish(mut child: Child, stop: &Stop) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.signal().is_some() {
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let Some(group) = group {
                // It may have ended just now.
                let _ = kill_process_group(group, Signal::KILL);
            }
            return child.wait();
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn tail(file: &mut File) -> io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(SHOWN)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn magic(path: &Path) -> io::Result<[u8; 4]> {
    let mut bytes = [0; 4];
    match File::open(path)?.read_exact(&mut bytes) {
        // Shorter than that is not WebAssembly either.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok([0; 4]),
        other => other.map(|()| bytes),
    }
}

fn written(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn project(functions: &str) -> (tempfile::TempDir, Project, Manifest) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("millpond.toml"),
            format!("[application]\nname = \"shop\"\n{functions}"),
        )
        .unwrap();
        let project = Project::at(folder.path().to_owned());
        let manifest = project.manifest().unwrap();
        (folder, project, manifest)
    }

    fn one(command: &str) -> (tempfile::TempDir, Project, Manifest) {
        project(&format!(
            "[function.f]\nsource = \"f.wasm\"\n[function.f.build]\ncommand = {command:?}\nwatch = [\"*.c\"]\n"
        ))
    }

    fn built(command: &str) -> Result<(), String> {
        let (_folder, project, manifest) = one(command);
        let units = units(&manifest, &project, None).unwrap();
        units[0]
            .build(&project, false, &Stop::default())
            .map_err(|failure| failure.text(false))
    }

    #[test]
    fn a_command_runs_once_for_all_functions_that_name_it() {
        let (_folder, project, manifest) = project(
            "[function.a]\nsource = \"a.wasm\"\nbuild = { command = \"make\", watch = [\"a.c\"] }\n\
             [function.b]\nsource = \"b.wasm\"\nbuild = { command = \"make\", watch = [\"b.c\"] }\n\
             [function.c]\nsource = \"c.wasm\"\n",
        );
        let all = units(&manifest, &project, None).unwrap();
        assert_eq!((all.len(), all[0].makes.len(), all[0].watch.len()), (1, 2, 2));
        let name = |text: &str| text.parse::<Name>().unwrap();
        let b = units(&manifest, &project, Some(&name("b"))).unwrap();
        assert_eq!((b[0].makes.len(), b[0].watch.as_slice()), (1, &["b.c"][..]));
        assert!(units(&manifest, &project, Some(&name("d"))).is_err());
        assert!(some_units(&manifest, &project, Some(&name("c"))).is_err());
    }

    #[test]
    fn what_a_command_made_is_checked() {
        assert_eq!(built("printf '\\0asm\\1\\0\\0\\0' > f.wasm"), Ok(()));
        assert!(
            built("printf '#!/b' > f.wasm")
                .unwrap_err()
                .contains("is neither WebAssembly nor")
        );
        assert!(
            built(": > f.wasm")
                .unwrap_err()
                .contains("is neither WebAssembly nor")
        );
        assert!(built(":").unwrap_err().contains("f.wasm, cannot be read"));
    }

    #[test]
    fn a_failed_command_is_shown_with_its_output() {
        let text = built("echo what went wrong; echo and where >&2; exit 3").unwrap_err();
        assert!(text.contains("what went wrong\nand where\n"), "{text}");
        assert!(text.contains("exit status: 3"), "{text}");
    }

    #[test]
    fn what_is_newer_than_its_sources_is_fresh() {
        let (folder, project, manifest) = one("true");
        let write = |name: &str, seconds| {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
                .unwrap();
        };
        let units = units(&manifest, &project, None).unwrap();
        let fresh = || units[0].is_fresh(&units[0].sources(&project).unwrap());
        assert!(!fresh(), "nothing is there");
        write("f.wasm", 200);
        assert!(!fresh(), "it is not known from what it is made");
        write("f.c", 100);
        assert!(fresh());
        write("g.c", 300);
        assert!(!fresh());
    }

    #[test]
    fn a_signal_ends_the_command_and_what_it_started() {
        let (folder, project, manifest) = one("sleep 1000 & echo $! > pid; wait");
        let units = units(&manifest, &project, None).unwrap();
        let (ring, rung) = mpsc::channel();
        let stop = Stop::default();
        thread::scope(|scope| {
            scope.spawn(|| ring.send(units[0].build(&project, false, &stop).is_err()));
            let pid = loop {
                match fs::read_to_string(folder.path().join("pid")) {
                    Ok(pid) if pid.ends_with('\n') => break pid.trim().to_owned(),
                    _ => thread::yield_now(),
                }
            };
            stop.set(130);
            assert!(rung.recv_timeout(Duration::from_secs(60)).unwrap());
            // Until it is gone, or a zombie that its new parent has yet to bury.
            let begun = std::time::Instant::now();
            loop {
                let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                if state.is_empty() || state.contains(") Z") || state.contains(") X") {
                    break;
                }
                assert!(begun.elapsed() < Duration::from_secs(60), "{state}");
                thread::yield_now();
            }
        });
    }
}
