//! Functions in Python: Lambda handlers, as they come in AWS Lambda's deployment packages.
//!
//! An artefact is the package as it was uploaded, a ZIP file, whose names and sizes have been checked. It is unpacked once, to a folder of the
//! node's that carries its digest; a function finds it read-only at `/var/task`, and what runs it at `/opt/millpond` (crate `python`).
//! Interpreter and standard library are the host's.

use crate::{
    ahead,
    call::{self, Call},
    host::{Host, Zygote},
    interpreter::Program,
    libraries,
    packages::{Folder, Packages},
    page,
    wire::Imported,
    zygote::Setup,
};
use confine::GroupLimits;
use contract::{
    Artefact, ByteSize, Caller, Demand, Grant, Image, Input, Limits, PrepareError, Protocol, Sandbox,
    Services, SpawnError,
};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, open};
use std::{
    collections::BTreeSet,
    fs::{self, File, Permissions},
    io::{self, Read as _},
    os::{fd::OwnedFd, unix::fs::PermissionsExt as _},
    path::{Component, Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

/// Where a function finds its package, as in Lambda.
const TASK: &str = "/var/task";

/// Where it finds what runs it.
const RUNTIME: &str = "/opt/millpond";

/// Its folder to write to.
const SCRATCH: &str = "/tmp";

/// Threads and processes of a guest.
const PROCESSES: u64 = 256;

/// Descriptors of one of its processes.
const OPEN_FILES: u64 = 1_024;

/// Bytes that no process has.
const MOST_MEMORY: u64 = 1 << 46;

/// Bytes of a thread's stack.
const STACK: ByteSize = ByteSize::mib(8);

/// Bytes of a package when it is unpacked, at most, and files in it.
const LARGEST_PACKAGE: u64 = 2 << 30;
const MOST_FILES: usize = 100_000;

/// What says something of the host that libraries want to know, and time zones.
const FACTS: [&str; 4] = [
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
    "/usr/share/zoneinfo",
];

/// An interpreter of the host's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    program: PathBuf,
    /// Major and minor version.
    version: (u32, u32),
    /// Its standard library, and its own shared libraries.
    folders: Vec<PathBuf>,
}

/// Asked of an interpreter, a line for each: its version, its program, and where its files are.
const QUESTION: &str = "
import sys, sysconfig
print(*sys.version_info[:2])
print(sys.executable)
print(sysconfig.get_path('stdlib'))
print(sysconfig.get_path('platstdlib'))
print(sysconfig.get_config_var('LIBDIR') if sysconfig.get_config_var('Py_ENABLE_SHARED') else '')
";

/// The oldest version that functions run on.
const OLDEST: (u32, u32) = (3, 11);

impl Python {
    /// An interpreter of this name or at this place. `Err` says why it is none that functions could run on.
    pub fn find(program: &Path) -> Result<Self, String> {
        let said = Command::new(program)
            .args(["-I", "-S", "-c", QUESTION])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let mut lines = text.lines();
        let mut next = || lines.next().map(str::trim).unwrap_or_default().to_owned();
        let (version, program) = (next(), PathBuf::from(next()));
        let version = version
            .split_once(' ')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let Some(version) = version.filter(|_| said.status.success() && program.is_absolute()) else {
            return Err(format!("{} is no Python", program.display()));
        };
        if version < OLDEST {
            return Err(format!(
                "{} is Python {}.{}, and functions need {}.{} or later",
                program.display(),
                version.0,
                version.1,
                OLDEST.0,
                OLDEST.1
            ));
        }
        let program = program
            .canonicalize()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let folders: BTreeSet<_> = [next(), next(), next()]
            .into_iter()
            .filter(|line| !line.is_empty())
            .collect();
        Ok(Self {
            program,
            version,
            folders: folders.into_iter().map(PathBuf::from).collect(),
        })
    }

    /// Compiles the modules of a folder to bytecode beside them, which is used as long as they are the same.
    pub fn compile(&self, folder: &Path) -> io::Result<()> {
        let status = Command::new(&self.program)
            .args([
                "-I",
                "-S",
                "-m",
                "compileall",
                "-q",
                "--invalidation-mode",
                "checked-hash",
            ])
            .arg(folder)
            .stdin(Stdio::null())
            .status()?;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "its modules cannot be compiled: {status}"
            ))),
        }
    }

    /// Major and minor version.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Where it is.
    pub fn program(&self) -> &Path {
        &self.program
    }
}

/// What functions in Python need of the host.
#[derive(Clone, Debug)]
pub struct PythonOptions {
    /// What they run on.
    pub python: Python,
    /// Where the runtime has been unpacked.
    pub runtime: PathBuf,
    /// A folder for packages, which this engine has for itself.
    pub packages: PathBuf,
}

/// An artefact's bytes.
pub(crate) fn check(code: &[u8]) -> Result<Vec<u8>, PrepareError> {
    let package = zip::ZipArchive::new(io::Cursor::new(code));
    let mut package =
        package.map_err(|error| PrepareError::Malformed(format!("it is no ZIP file: {error}")))?;
    if package.len() > MOST_FILES {
        let reason = format!("it has {} files, and may have {MOST_FILES}", package.len());
        return Err(PrepareError::Unsupported(reason));
    }
    let mut bytes = 0_u64;
    for number in 0..package.len() {
        let file = package.by_index_raw(number);
        let file =
            file.map_err(|error| PrepareError::Malformed(format!("its directory is broken: {error}")))?;
        let name = file.name().unwrap_or_default();
        if file.encrypted() || file.is_symlink() || inside(&name).is_none() {
            return Err(PrepareError::Unsupported(format!(
                "its file `{}` is encrypted, a link, or outside of it",
                name.escape_default()
            )));
        }
        bytes = bytes.saturating_add(file.size());
    }
    if bytes > LARGEST_PACKAGE {
        let reason = format!("it has {bytes} bytes unpacked, and may have {LARGEST_PACKAGE}");
        return Err(PrepareError::Unsupported(reason));
    }
    Ok(code.to_vec())
}

/// A file's path in its package, if that is what its name is.
fn inside(name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    (plain && !name.is_empty() && !name.contains('\0')).then(|| path.to_owned())
}

/// Writes a package's files into a new folder.
fn unpack(mut package: zip::ZipArchive<File>, folder: &Path) -> io::Result<()> {
    let mut left = LARGEST_PACKAGE;
    for number in 0..package.len() {
        let file = package.by_index(number).map_err(io::Error::other)?;
        let path = file.name().ok().and_then(|name| inside(&name));
        let path = path.ok_or(io::ErrorKind::InvalidData)?;
        let path = folder.join(path);
        if file.is_dir() {
            make(&path)?;
            continue;
        }
        if let Some(parent) = path.parent() {
            make(parent)?;
        }
        // Whoever runs it may not be who unpacked it: as in Lambda, all may read what is there.
        let runs = file.unix_mode().is_some_and(|mode| mode & 0o111 != 0);
        let mut to = File::create_new(&path)?;
        // What a directory says of a file's size is not what it unpacks to.
        let written = io::copy(&mut file.take(left.saturating_add(1)), &mut to)?;
        left = left.checked_sub(written).ok_or(io::ErrorKind::FileTooLarge)?;
        to.set_permissions(Permissions::from_mode(if runs { 0o555 } else { 0o444 }))?;
    }
    Ok(())
}

fn make(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o755))
}

/// See the module.
pub(crate) struct Package {
    host: Arc<Host>,
    options: PythonOptions,
    /// The interpreter.
    executable: OwnedFd,
    /// Where it is unpacked.
    folder: Arc<Folder>,
    /// Versions of functions differ in what their module is imported with.
    families: Mutex<Vec<Family>>,
}

/// The zygotes of one version.
struct Family {
    grant: Arc<Grant>,
    services: Option<Arc<Services>>,
    /// Those that take orders: one whose interpreter is forked, or as many as wait for a request each.
    zygotes: Vec<Arc<Zygote>>,
    /// Those that have their request.
    leaving: Vec<Arc<Zygote>>,
    /// What is known of the import, and how long it took.
    imported: Option<(Imported, Duration)>,
    used: Instant,
}

impl Family {
    fn learn(&mut self) {
        if let Some(imported) = self
            .zygotes
            .iter()
            .filter_map(|zygote| zygote.imported())
            .next_back()
        {
            self.imported = Some(*imported);
        }
        self.leaving.retain(|zygote| !zygote.is_over());
        // One that was found to serve by itself while it had its request already.
        let gone = self.zygotes.extract_if(.., |zygote| zygote.is_gone());
        self.leaving.extend(gone.filter(|zygote| !zygote.is_over()));
    }

    /// Whether each request needs a zygote of its own.
    fn is_single(&self) -> bool {
        self.imported.is_some_and(|(imported, _)| imported.threads > 0)
    }
}

pub(crate) fn load(
    host: &Arc<Host>,
    options: &PythonOptions,
    packages: &Arc<Packages>,
    artefact: Artefact,
) -> Result<Arc<dyn Image>, PrepareError> {
    let failed =
        |error: io::Error| PrepareError::Compiler(format!("its package cannot be unpacked: {error}"));
    let folder = packages.folder(artefact.digest, |folder| {
        let package = zip::ZipArchive::new(artefact.file)
            .map_err(|error| PrepareError::Artefact(format!("it is no ZIP file: {error}")))?;
        make(&options.packages).map_err(failed)?;
        // It is there as a whole or not at all.
        let new = folder.with_extension("new");
        let _ = fs::remove_dir_all(&new);
        make(&new).map_err(failed)?;
        unpack(package, &new).map_err(failed)?;
        fs::rename(&new, folder).map_err(failed)
    })?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let executable = open(options.python.program(), flags, Mode::empty());
    let executable = executable.map_err(|error| failed(error.into()))?;
    Ok(Arc::new(Ready(Arc::new(Package {
        host: host.clone(),
        options: options.clone(),
        executable,
        folder,
        families: Mutex::default(),
    }))))
}

impl Package {
    /// A zygote for a guest with this grant: the one that forks them, or one that waits for this guest alone.
    pub(crate) fn zygote(
        &self,
        grant: &Arc<Grant>,
        services: Option<&Arc<Services>>,
    ) -> Result<Arc<Zygote>, String> {
        let mut families = self.families.lock();
        // Of versions that are no more.
        families.retain_mut(|family| {
            family.learn();
            Arc::strong_count(&family.grant) > 1 || !family.leaving.is_empty()
        });
        let place = match families
            .iter()
            .position(|family| Arc::ptr_eq(&family.grant, grant))
        {
            Some(place) => place,
            None => {
                families.push(Family {
                    grant: grant.clone(),
                    services: services.cloned(),
                    zygotes: Vec::new(),
                    leaving: Vec::new(),
                    imported: None,
                    used: Instant::now(),
                });
                families.len() - 1
            }
        };
        let family = &mut families[place];
        family.learn();
        family.used = Instant::now();
        if !family.is_single() {
            if let Some(zygote) = family.zygotes.first() {
                return Ok(zygote.clone());
            }
            let zygote = self.start(grant, services)?;
            family.zygotes.push(zygote.clone());
            return Ok(zygote);
        }
        // One that has imported the module, or is about to.
        let ready = family
            .zygotes
            .iter()
            .position(|zygote| zygote.imported().is_some());
        let zygote = match ready {
            Some(ready) => family.zygotes.remove(ready),
            None if family.zygotes.is_empty() => self.start(grant, services)?,
            None => family.zygotes.remove(0),
        };
        family.leaving.push(zygote.clone());
        if family.zygotes.is_empty() {
            // For the next one. If there can be none, that one will be told why.
            family.zygotes.extend(self.start(grant, services));
        }
        Ok(zygote)
    }

    /// Has as many processes wait for requests as these are expected to need.
    fn expect(&self, grant: &Arc<Grant>, demand: Demand) {
        let mut families = self.families.lock();
        let family = families
            .iter_mut()
            .find(|family| Arc::ptr_eq(&family.grant, grant));
        let Some(family) = family else { return };
        family.learn();
        let Some((imported, took)) = family.imported else {
            return;
        };
        for zygote in family.zygotes.iter().chain(&family.leaving) {
            zygote.end_idle(ahead::IDLE);
        }
        let idle = family.used.elapsed();
        if imported.threads == 0 {
            let guests = ahead::forks(demand, idle);
            family.zygotes.iter().for_each(|zygote| zygote.have_ahead(guests));
            return;
        }
        let wanted = ahead::single(demand, idle, took, imported.memory) as usize;
        while family.zygotes.len() > wanted {
            let Some(zygote) = family.zygotes.pop() else {
                return;
            };
            zygote.retire();
            family.leaving.push(zygote);
        }
        while family.zygotes.len() < wanted {
            match self.start(grant, family.services.as_ref()) {
                Ok(zygote) => family.zygotes.push(zygote),
                Err(reason) => {
                    tracing::warn!(reason, function = %grant.function, "no process could be made ahead of need");
                    return;
                }
            }
        }
    }

    fn origin(&self, grant: &Arc<Grant>) -> Option<String> {
        let families = self.families.lock();
        let family = families.iter().find(|family| Arc::ptr_eq(&family.grant, grant))?;
        let known = family.zygotes.iter().find_map(|zygote| zygote.imported());
        let (imported, _) = known.or(family.imported.as_ref())?;
        let handler = match &grant.protocol {
            Protocol::Lambda { handler } => handler,
            _ => return None,
        };
        let module = handler.rsplit_once('.').map_or(&**handler, |(module, _)| module);
        Some(match imported.threads {
            0 => "processes that are forked from one that has imported the module".to_owned(),
            1 => format!("preimported processes, because the import of {module} started 1 thread"),
            threads => {
                format!("preimported processes, because the import of {module} started {threads} threads")
            }
        })
    }

    /// A new zygote of guests with this grant.
    fn start(&self, grant: &Arc<Grant>, services: Option<&Arc<Services>>) -> Result<Arc<Zygote>, String> {
        let Protocol::Lambda { handler } = &grant.protocol else {
            return Err("a package of Python is run by its handler: the manifest names none".to_owned());
        };
        let limits = grant.limits;
        self.host.counted().keeps(&limits)?;
        let memory = limits.memory.0;
        let python = &self.options.python;
        let mut execute = vec![python.program.clone()];
        execute.extend(python.folders.iter().cloned());
        // What extension modules ask for.
        execute.extend(libraries::FOLDERS.map(PathBuf::from));
        let setup = Setup {
            pure: None,
            interpreter: Some(program(python, environment(python, grant, handler))),
            execute,
            read: FACTS.map(PathBuf::from).into(),
            placed: vec![
                (self.folder.path().to_owned(), TASK.into()),
                (self.options.runtime.clone(), RUNTIME.into()),
            ],
            scratch: Some((SCRATCH.into(), memory)),
            // Where all of them are limited together, what one reserves and does not use costs nothing.
            memory: if self.host.has_groups() {
                MOST_MEMORY
            } else {
                memory
            },
            stack: STACK.0,
            file_size: memory,
            open_files: OPEN_FILES,
            // Of all guests together: each has a control group, where there are any.
            threads: PROCESSES.saturating_mul(u64::from(limits.concurrency).saturating_add(2)),
            processor: limits.cpu_time + Duration::from_secs(1),
        };
        let services = services.cloned();
        let caller = Caller {
            sandbox: Some(call::number()),
            ..Caller::default()
        };
        let links = move |service: &str| {
            call::link(services.as_ref(), service, &caller).map(|attachment| attachment.bell)
        };
        let limits = GroupLimits {
            memory: memory.saturating_add(page::SIZE),
            processes: PROCESSES,
            cores: limits.cpus,
        };
        self.host
            .zygote(&setup, &self.executable, Some(limits), Box::new(links))
    }

    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }
}

fn program(python: &Python, mut environment: Vec<(String, String)>) -> Program {
    // What libraries ask of each other is found before the first fork, not in each. The runtime takes it out of the environment again.
    environment.push(("LD_BIND_NOW".to_owned(), "1".to_owned()));
    let begin = format!(
        "import sys; sys.path[:0] = ['{RUNTIME}', '{TASK}']; from millpond.zygote import main; main()"
    );
    let name = python.program.to_string_lossy().into_owned();
    let arguments = [&name, "-I", "-S", "-B", "-c", &begin];
    Program {
        arguments: arguments.map(str::to_owned).into(),
        environment,
    }
}

/// What a function finds in its environment: what Lambda's have, then the manifest's.
fn environment(python: &Python, grant: &Grant, handler: &str) -> Vec<(String, String)> {
    let (major, minor) = python.version;
    let runtime = format!("AWS_Lambda_python{major}.{minor}");
    let name = grant.function.to_string();
    let version = grant.version.to_string();
    let own = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("LANG", "C.UTF-8"),
        ("TZ", ":UTC"),
        ("HOME", SCRATCH),
        ("LAMBDA_TASK_ROOT", TASK),
        ("LAMBDA_RUNTIME_DIR", RUNTIME),
        ("AWS_REGION", REGION),
        ("AWS_DEFAULT_REGION", REGION),
        ("AWS_EXECUTION_ENV", &runtime),
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand"),
        ("_HANDLER", handler),
        ("AWS_LAMBDA_FUNCTION_NAME", &name),
        ("AWS_LAMBDA_FUNCTION_VERSION", &version),
        (
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
            &(grant.limits.memory.0 >> 20).to_string(),
        ),
        ("AWS_LAMBDA_LOG_GROUP_NAME", &format!("/aws/lambda/{name}")),
        ("AWS_LAMBDA_LOG_STREAM_NAME", &format!("[{version}]")),
        // Threads of the libraries for linear algebra: as many as they get cores.
        ("OMP_NUM_THREADS", &grant.limits.cpus.to_string()),
        ("OPENBLAS_NUM_THREADS", &grant.limits.cpus.to_string()),
        ("MKL_NUM_THREADS", &grant.limits.cpus.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let manifest = grant.environment.iter();
    let is_free = |(name, _): &&(String, String)| manifest.clone().all(|(other, _)| other != name);
    own.iter()
        .filter(is_free)
        .chain(manifest.clone())
        .cloned()
        .collect()
}

/// What stands for a region of AWS where one is asked for.
pub(crate) const REGION: &str = "us-east-1";

/// What the engine gives out.
struct Ready(Arc<Package>);

impl Image for Ready {
    fn streams(&self) -> bool {
        true
    }

    fn expect(&self, grant: &Arc<Grant>, demand: Demand) {
        self.0.expect(grant, demand);
    }

    fn origin(&self, grant: &Arc<Grant>) -> Option<String> {
        self.0.origin(grant)
    }

    fn keeps(&self, limits: &Limits, _: &Protocol) -> Result<(), String> {
        self.0.host.counted().keeps(limits)
    }

    fn kept(&self, _: &Grant) -> Option<String> {
        Some(self.0.host.counted().kept())
    }

    fn spawn(&self, grant: &Arc<Grant>, input: Input) -> Result<Box<dyn Sandbox>, SpawnError> {
        let Some(place) = self.0.host.places().take(1) else {
            return Err(SpawnError::Exhausted(input));
        };
        let zygote = self
            .0
            .zygote(grant, input.services.as_ref())
            .map_err(|reason| SpawnError::Failed { reason })?;
        Ok(Box::new(Call::new(
            self.0.clone(),
            zygote,
            grant.clone(),
            input,
            place,
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

    fn package(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(io::Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        for (name, bytes) in files {
            writer.start_file(*name, options).unwrap();
            writer.write_all(bytes).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn what_leads_out_of_a_package_is_refused() {
        for name in ["../a", "/a", "a/../../b", "", "a\0b"] {
            let checked = check(&package(&[(name, b"")]));
            assert!(
                matches!(checked, Err(PrepareError::Unsupported(_))),
                "{name}: {checked:?}"
            );
        }
        assert!(matches!(check(b"PK\x03\x04no"), Err(PrepareError::Malformed(_))));
        let good = package(&[("app.py", b"x = 1"), ("./lib/__init__.py", b"")]);
        assert_eq!(check(&good).unwrap(), good);
    }

    #[test]
    fn a_package_is_unpacked_for_all_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("package.zip");
        fs::write(
            &file,
            package(&[("app.py", b"x = 1"), ("lib/deep/one.py", b"y = 2")]),
        )
        .unwrap();
        let to = folder.path().join("to");
        make(&to).unwrap();
        unpack(zip::ZipArchive::new(File::open(file).unwrap()).unwrap(), &to).unwrap();
        assert_eq!(fs::read(to.join("lib/deep/one.py")).unwrap(), b"y = 2");
        let mode = fs::metadata(to.join("app.py")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o444);
    }

    #[test]
    fn a_python_says_where_it_is() {
        let python = Python::find(Path::new("python3")).unwrap();
        assert!(python.version() >= OLDEST && python.program().is_absolute());
        assert!(python.folders.iter().any(|folder| folder.join("json").is_dir()));
        assert!(
            Python::find(Path::new("/bin/true"))
                .unwrap_err()
                .contains("no Python")
        );
        assert!(Python::find(Path::new("/nowhere/python")).is_err());
    }
}
