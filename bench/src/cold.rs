//! A node that loads a function's code anew for a share of its requests, as if it had never been used: from the file, whose pages the kernel
//! has. The rest is a node's.

use crate::native::{Place, serve};
use anyhow::Result;
use contract::{
    Artefact, Code, CoreId, Digest, Engine, Grant, Image, Input, PrepareError, Sandbox, SpawnError, Step,
    Until, Usage,
};
use rustix::fs::{Mode, OFlags, openat};
use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::fd::AsRawFd as _,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Requests of a hundred for which code is loaded anew, evenly spread.
    #[arg(long)]
    cold: u64,
}

struct Forgetful {
    engine: Arc<dyn Engine>,
    cold: u64,
    requests: Arc<AtomicU64>,
    /// Where artefacts lie, opened once as the registry does.
    folders: Mutex<Vec<(PathBuf, Arc<File>)>>,
}

/// What is loaded, and what it is loaded from.
struct Known {
    engine: Arc<dyn Engine>,
    hot: Arc<dyn Image>,
    folder: Arc<File>,
    file: OsString,
    digest: Digest,
    cold: u64,
    /// To any function: a share of those to many functions is cold, too, though each has few.
    requests: Arc<AtomicU64>,
}

/// A sandbox and the code that nobody else runs. A worker drops it once the answer is written.
struct Alone {
    // Before its code.
    sandbox: Box<dyn Sandbox>,
    _image: Arc<dyn Image>,
}

impl Engine for Forgetful {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn fingerprint(&self) -> &str {
        self.engine.fingerprint()
    }

    fn compile(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        self.engine.compile(code)
    }

    fn load(&self, artefact: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        let (folder, file) = self
            .place(&artefact.file)
            .map_err(|error| PrepareError::Artefact(error.to_string()))?;
        let digest = artefact.digest;
        Ok(Arc::new(Known {
            engine: self.engine.clone(),
            hot: self.engine.load(artefact)?,
            folder,
            file,
            digest,
            cold: self.cold,
            requests: self.requests.clone(),
        }))
    }

    fn seat(&self, core: CoreId) -> io::Result<()> {
        self.engine.seat(core)
    }

    fn preempt(&self, core: CoreId) {
        self.engine.preempt(core);
    }
}

impl Forgetful {
    /// Where a file is, to be opened as the registry opens it.
    fn place(&self, file: &File) -> io::Result<(Arc<File>, OsString)> {
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::other("an artefact that is not in a folder"));
        };
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = folders.iter().find(|(path, _)| path == folder) {
            return Ok((known.clone(), name.to_owned()));
        }
        let opened = Arc::new(File::open(folder)?);
        folders.push((folder.to_owned(), opened.clone()));
        Ok((opened, name.to_owned()))
    }
}

impl Known {
    fn is_next_cold(&self) -> bool {
        let before = self.requests.fetch_add(1, Ordering::Relaxed);
        (before + 1) * self.cold / 100 > before * self.cold / 100
    }
}

impl Image for Known {
    fn initial_memory(&self) -> contract::ByteSize {
        self.hot.initial_memory()
    }

    fn streams(&self) -> bool {
        self.hot.streams()
    }

    fn pure(&self) -> Result<(), String> {
        self.hot.pure()
    }

    fn spawn(&self, grant: &Arc<Grant>, input: Input) -> Result<Box<dyn Sandbox>, SpawnError> {
        if !self.is_next_cold() {
            return self.hot.spawn(grant, input);
        }
        let failed = |reason: String| SpawnError::Failed { reason };
        let artefact = Artefact {
            file: openat(
                &self.folder,
                &self.file,
                OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .map_err(|error| failed(error.to_string()))?
            .into(),
            digest: self.digest,
        };
        let loaded = self.engine.load(artefact);
        let image = loaded.map_err(|error| failed(error.to_string()))?;
        let sandbox = image.spawn(grant, input)?;
        Ok(Box::new(Alone {
            sandbox,
            _image: image,
        }))
    }
}

impl Sandbox for Alone {
    fn run(&mut self, waker: &Waker, until: Until<'_>) -> Step {
        self.sandbox.run(waker, until)
    }

    fn usage(&self) -> Usage {
        self.sandbox.usage()
    }
}

pub(crate) fn run(options: Options) -> Result<()> {
    node::keep_freed_pieces();
    let cold = options.cold.min(100);
    serve(options.place, |engine| {
        Arc::new(Forgetful {
            engine,
            cold,
            requests: Arc::default(),
            folders: Mutex::default(),
        })
    })
}
