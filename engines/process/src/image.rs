//! Images: an executable that has been checked, and its zygote.
//!
//! An artefact is the executable as it was uploaded, then what [`executable`](crate::executable) says of it in JSON, then the length of that in 8
//! bytes and [`MAGIC`]: so what is mapped of it lies where the executable says.

use crate::{
    counted::PURE,
    executable::{self, Executable, Layout},
    host::{Host, Lease, Zygote},
    libraries, page,
    sandbox::Running,
    zygote::Setup,
};
use confine::GroupLimits;
use contract::{
    Artefact, ByteSize, Grant, Image, Input, Limits, PrepareError, Protocol, Sandbox, SpawnError,
};
use parking_lot::Mutex;
use ring::Region;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, open};
use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::{AsRawFd as _, OwnedFd},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// Changes with the format.
const MAGIC: [u8; 8] = *b"pondelf2";

/// Threads and processes of a guest.
const PROCESSES: u64 = 64;

/// Descriptors of one of its processes.
const OPEN_FILES: u64 = 64;

/// Bytes that no process has.
const MOST_MEMORY: u64 = 1 << 46;

/// Bytes of a program's stack: as much as elsewhere, if there is memory for it.
const STACK: ByteSize = ByteSize::mib(8);

/// Where a program finds an empty folder of its own.
const SCRATCH: &str = "/tmp";

/// An artefact's bytes.
pub(crate) fn check(code: &[u8]) -> Result<Vec<u8>, PrepareError> {
    let executable = executable::read(code)?;
    if let Err(reason) = libraries::needed(&executable) {
        return Err(PrepareError::Unsupported(reason));
    }
    let about = serde_json::to_vec(&executable).map_err(|error| PrepareError::Compiler(error.to_string()))?;
    let length = (about.len() as u64).to_le_bytes();
    Ok([code, &about, &length, &MAGIC].concat())
}

fn read(mut file: &File) -> Result<(Vec<u8>, Executable), String> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let cut = || "it is cut off".to_owned();
    let (rest, magic) = bytes.split_last_chunk::<8>().ok_or_else(cut)?;
    if *magic != MAGIC {
        return Err("it is of another format".to_owned());
    }
    let (rest, length) = rest.split_last_chunk::<8>().ok_or_else(cut)?;
    let length = u64::from_le_bytes(*length) as usize;
    let code = rest.len().checked_sub(length).ok_or_else(cut)?;
    let executable = serde_json::from_slice(&rest[code..]).map_err(|error| error.to_string())?;
    bytes.truncate(code);
    Ok((bytes, executable))
}

/// See the module.
pub(crate) struct Loaded {
    host: Arc<Host>,
    /// The executable in memory, which nobody can change any more.
    file: OwnedFd,
    /// The same, for what each pure guest gets of it.
    code: Vec<u8>,
    executable: Executable,
    /// What a program needs of this host's files.
    libraries: Vec<PathBuf>,
    /// For each set of limits that it was asked for with; there is one, as a rule.
    zygotes: Mutex<Vec<(Key, Arc<Zygote>)>>,
}

/// Guests of one zygote have the same limits and are of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    pure: bool,
    limits: Limits,
}

pub(crate) fn load(host: &Arc<Host>, artefact: &Artefact) -> Result<Arc<dyn Image>, PrepareError> {
    let (code, executable) = read(&artefact.file).map_err(PrepareError::Artefact)?;
    let libraries = libraries::needed(&executable).map_err(PrepareError::Unsupported)?;
    let file = in_memory(&code)
        .map_err(|error| PrepareError::Compiler(format!("there is no memory for the executable: {error}")))?;
    Ok(Arc::new(Ready(Arc::new(Loaded {
        host: host.clone(),
        file,
        code,
        executable,
        libraries,
        zygotes: Mutex::default(),
    }))))
}

/// A file that can be run, read and never changed.
fn in_memory(code: &[u8]) -> std::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("millpond-executable", flags | MemfdFlags::EXEC)
        // Before Linux 6.3 all can be run.
        .or_else(|_| memfd_create("millpond-executable", flags))?;
    let mut file = File::from(file);
    file.write_all(code)?;
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    fcntl_add_seals(&file, all)?;
    // What is open for writing cannot be run.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

impl Loaded {
    /// The zygote of guests with this grant.
    pub(crate) fn zygote(&self, grant: &Grant) -> Result<Arc<Zygote>, String> {
        let key = Key {
            pure: matches!(grant.protocol, Protocol::Pure { .. }),
            limits: grant.limits,
        };
        if key.pure {
            self.pure()?;
        }
        self.keeps(&grant.limits, &grant.protocol)?;
        let mut zygotes = self.zygotes.lock();
        zygotes.retain(|(_, zygote)| !zygote.is_gone());
        if let Some((_, zygote)) = zygotes.iter().find(|(other, _)| *other == key) {
            return Ok(zygote.clone());
        }
        let pure = match (&self.executable.pure, key.pure) {
            (Ok(layout), true) => Some((layout.clone(), key.limits.memory.0)),
            _ => None,
        };
        let memory = key.limits.memory.0;
        // Where all of them are limited together, what one reserves and does not use costs nothing.
        let of_each = if self.host.has_groups() {
            MOST_MEMORY
        } else {
            memory
        };
        let setup = Setup {
            interpreter: None,
            read: Vec::new(),
            placed: Vec::new(),
            open_files: OPEN_FILES,
            execute: if pure.is_some() {
                Vec::new()
            } else {
                self.libraries.clone()
            },
            scratch: Some((SCRATCH.into(), memory)),
            memory: of_each,
            stack: STACK.0.min(memory / 4).max(1 << 17),
            file_size: memory.max(key.limits.response_body.0.saturating_add(1 << 20)),
            threads: PROCESSES,
            // The sandbox looks at the time, too, and sees more of it than whole seconds.
            processor: key.limits.cpu_time + Duration::from_secs(1),
            pure,
        };
        let zygote = {
            let no_links = |_: &str| Err("denied a native executable has no interpreter".to_owned());
            self.host.zygote(&setup, &self.file, None, Box::new(no_links))?
        };
        zygotes.push((key, zygote.clone()));
        Ok(zygote)
    }

    fn pure(&self) -> Result<(), String> {
        match &self.executable.pure {
            Ok(_) => Ok(()),
            Err(reason) => Err(format!("it is no pure function: {reason}")),
        }
    }

    fn keeps(&self, limits: &Limits, protocol: &Protocol) -> Result<(), String> {
        match protocol {
            Protocol::Pure { .. } => Ok(()),
            _ => self.host.counted().keeps(limits),
        }
    }

    /// A control group for a program, if this host has any.
    ///
    /// What it has answered lies in memory until it is taken, and the kernel counts that as the guest's; so it may have as much more.
    pub(crate) fn group(&self, limits: &Limits) -> std::io::Result<Option<Lease>> {
        let memory = limits.memory.0.saturating_add(limits.response_body.0);
        self.host.group(GroupLimits {
            memory: memory.saturating_add(page::SIZE),
            processes: PROCESSES,
            cores: limits.cpus,
        })
    }

    /// How its pure guests are laid out.
    pub(crate) fn layout(&self) -> Option<&Layout> {
        self.executable.pure.as_ref().ok()
    }

    /// The memory of a pure guest before it has any inputs.
    pub(crate) fn region(&self, layout: &Layout, memory: ByteSize) -> rustix::io::Result<Region> {
        let mut region = Region::new(crate::page::up(memory.0) as usize)?;
        self.fill(layout, &mut region, true);
        Ok(region)
    }

    /// What it has and cannot write to: a guest has that from the executable, and what it leaves behind may lie there, such as a name.
    pub(crate) fn add_read_only(&self, layout: &Layout, region: &mut Region) {
        self.fill(layout, region, false);
    }

    fn fill(&self, layout: &Layout, region: &mut Region, writable: bool) {
        let bytes = region.bytes_mut();
        for segment in layout.segments.iter().filter(|segment| segment.write == writable) {
            let from = segment.offset as usize..(segment.offset + segment.filled) as usize;
            let to = (segment.address - layout.span.start) as usize;
            let to = to..to + segment.filled as usize;
            if let (Some(from), Some(to)) = (self.code.get(from), bytes.get_mut(to)) {
                to.copy_from_slice(from);
            }
        }
    }
}

/// What the engine gives out.
struct Ready(Arc<Loaded>);

impl Image for Ready {
    fn initial_memory(&self) -> ByteSize {
        self.0.layout().map_or(ByteSize(0), |layout| {
            ByteSize(layout.span.end - layout.span.start)
        })
    }

    fn pure(&self) -> Result<(), String> {
        self.0.pure()
    }

    fn keeps(&self, limits: &Limits, protocol: &Protocol) -> Result<(), String> {
        self.0.keeps(limits, protocol)
    }

    fn kept(&self, grant: &Grant) -> Option<String> {
        Some(match grant.protocol {
            Protocol::Pure { .. } => PURE.to_owned(),
            _ => self.0.host.counted().kept(),
        })
    }

    fn spawn(&self, grant: &Arc<Grant>, input: Input) -> Result<Box<dyn Sandbox>, SpawnError> {
        let Some(place) = self.0.host.places().take(1) else {
            return Err(SpawnError::Exhausted(input));
        };
        let zygote = self
            .0
            .zygote(grant)
            .map_err(|reason| SpawnError::Failed { reason })?;
        let sandbox = Running::new(self.0.clone(), zygote, grant.clone(), input, place);
        Ok(Box::new(sandbox))
    }
}
