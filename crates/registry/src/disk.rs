//! Files that appear whole or not at all, and are named by what they contain.

use crate::{Error, crash};
use contract::{ByteSize, CodeKind, Digest};
use rustix::fs::{Mode, OFlags, openat};
use sha2::{Digest as _, Sha256};
use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};
use tempfile::NamedTempFile;

/// What an interrupted write leaves behind begins with this.
const DRAFT: &str = ".draft-";

/// What became of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is here now.
    New,
    /// It was here before.
    Known,
}

pub(crate) fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Disk {
        attempt,
        path,
        source,
    }
}

/// Makes a folder that may be there, and puts it on the disk.
pub(crate) fn make_folder(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(failed("make the folder", path))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    flush_folder(parent.unwrap_or(Path::new(".")))
}

fn flush_folder(path: &Path) -> Result<(), Error> {
    crash::point();
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(failed("flush the folder", path))
}

/// The SHA-256 of what can be read.
pub(crate) fn digest_of(reader: &mut dyn Read) -> io::Result<Digest> {
    let mut hasher = Sha256::new();
    copy(reader, |chunk| {
        hasher.update(chunk);
        Ok(())
    })?;
    Ok(Digest(hasher.finalize().into()))
}

fn copy(reader: &mut dyn Read, mut to: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = vec![0; 128 << 10];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => to(&buffer[..n])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A file that is being written. Dropping it removes it.
pub(crate) struct Draft {
    file: NamedTempFile,
    folder: PathBuf,
}

impl Draft {
    pub(crate) fn new_in(folder: &Path) -> Result<Self, Error> {
        crash::point();
        let file = tempfile::Builder::new()
            .prefix(DRAFT)
            .tempfile_in(folder)
            .map_err(failed("write into", folder))?;
        Ok(Self {
            file,
            folder: folder.to_owned(),
        })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        crash::point();
        self.file
            .write_all(bytes)
            .map_err(failed("write", self.file.path()))
    }

    /// Puts it on the disk under its name, which may replace an earlier file. Nobody writes to it again.
    pub(crate) fn keep(self, name: &str) -> Result<(), Error> {
        let path = self.folder.join(name);
        let file = self.file.as_file();
        let mut permissions = file.metadata().map_err(failed("read", &path))?.permissions();
        permissions.set_readonly(true);
        file.set_permissions(permissions)
            .map_err(failed("protect", &path))?;
        crash::point();
        file.sync_all().map_err(failed("flush", &path))?;
        crash::point();
        self.file
            .persist(&path)
            .map_err(|error| failed("name", &path)(error.error))?;
        flush_folder(&self.folder)
    }
}

/// Removes a file that may not be there.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Removes a folder that may not be there, with all that is in it. A failure is logged.
pub(crate) fn remove_folder(path: &Path) {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "cannot remove litter");
        }
        _ => {}
    }
}

/// A folder of files named by digests.
#[derive(Clone)]
pub(crate) struct Files {
    folder: PathBuf,
    /// What files are opened by, where the folder was there: to look up all folders on the way is half of an opening
    /// (7 of 14 µs on a core that has been idle).
    handle: Option<Arc<File>>,
    suffix: &'static str,
}

impl Files {
    pub(crate) fn open(folder: PathBuf, suffix: &'static str) -> Result<Self, Error> {
        make_folder(&folder)?;
        let handle = File::open(&folder).map_err(failed("open the folder", &folder))?;
        Ok(Self {
            handle: Some(Arc::new(handle)),
            ..Self::at(folder, suffix)
        })
    }

    /// The same, of a folder that may not be there. Nothing can be written then.
    pub(crate) fn at(folder: PathBuf, suffix: &'static str) -> Self {
        Self {
            folder,
            handle: None,
            suffix,
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn name(&self, digest: Digest) -> String {
        format!("{digest}{}", self.suffix)
    }

    pub(crate) fn path(&self, digest: Digest) -> PathBuf {
        self.folder.join(self.name(digest))
    }

    pub(crate) fn contains(&self, digest: Digest) -> bool {
        self.path(digest).is_file()
    }

    /// Opens a file and checks, through the very descriptor that is returned, that it has this digest. It stands at its
    /// beginning.
    pub(crate) fn open_verified(&self, name: Digest, expected: Digest) -> Result<Verified, Error> {
        let path = self.path(name);
        let opened = match &self.handle {
            Some(folder) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                openat(folder, self.name(name), flags, Mode::empty())
                    .map(File::from)
                    .map_err(io::Error::from)
            }
            None => File::open(&path),
        };
        let mut file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Verified::Absent),
            Err(error) => return Err(failed("open", &path)(error)),
        };
        let actual = digest_of(&mut file).map_err(failed("read", &path))?;
        if actual != expected {
            return Ok(Verified::Damaged(actual));
        }
        file.rewind().map_err(failed("read", &path))?;
        Ok(Verified::Good(file))
    }

    pub(crate) fn write(&self, name: Digest, bytes: &[u8]) -> Result<(), Error> {
        let mut draft = Draft::new_in(&self.folder)?;
        draft.write(bytes)?;
        draft.keep(&self.name(name))
    }

    /// Removes drafts, and files that nobody wants and that are older than `age`. Failures are logged: litter is no
    /// reason not to start.
    pub(crate) fn collect(&self, age: Duration, wanted: &dyn Fn(Digest) -> bool) {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) => {
                return tracing::warn!(folder = %self.folder.display(), %error, "cannot look for litter");
            }
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let litter = match name
                .strip_suffix(self.suffix)
                .and_then(|digest| digest.parse().ok())
            {
                Some(digest) => !wanted(digest) && is_older(&entry, age),
                None => name.starts_with(DRAFT),
            };
            if litter && let Err(error) = remove(&entry.path()) {
                tracing::warn!(%error, "cannot remove litter");
            }
        }
    }
}

fn is_older(entry: &fs::DirEntry, age: Duration) -> bool {
    let modified = entry.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|time| {
        SystemTime::now()
            .duration_since(time)
            .is_ok_and(|elapsed| elapsed >= age)
    })
}

/// A file and its digest.
pub(crate) enum Verified {
    /// It has the digest, and stands at its beginning.
    Good(File),
    /// It has this one instead.
    Damaged(Digest),
    /// There is none.
    Absent,
}

/// Uploaded code.
pub(crate) struct CodeFiles(Files);

impl CodeFiles {
    pub(crate) fn open(data: &Path) -> Result<Self, Error> {
        Files::open(data.join("code"), ".wasm").map(Self)
    }

    /// What the code is, by how it begins. If that cannot be read, it is up to who needs the code to say so.
    pub(crate) fn kind(&self, digest: Digest) -> CodeKind {
        let mut begin = Vec::new();
        let file = File::open(self.0.path(digest));
        let _ = file.and_then(|file| file.take(4).read_to_end(&mut begin));
        CodeKind::of(&begin)
    }

    pub(crate) fn contains(&self, digest: Digest) -> bool {
        self.0.contains(digest)
    }

    /// Reads an upload to its end, and keeps it if it has this digest.
    pub(crate) fn put(
        &self,
        digest: Digest,
        reader: &mut dyn Read,
        limit: ByteSize,
    ) -> Result<Stored, Error> {
        let path = self.0.path(digest);
        let known = self.contains(digest);
        let mut draft = if known {
            None
        } else {
            Some(Draft::new_in(self.0.folder())?)
        };
        let (mut hasher, mut length, mut refused) = (Sha256::new(), 0, None);
        let read = copy(reader, |chunk| {
            length += chunk.len() as u64;
            let stop = |error, refused: &mut Option<Error>| {
                *refused = Some(error);
                Err(io::ErrorKind::Other.into())
            };
            if length > limit.0 {
                return stop(Error::CodeTooLarge { limit }, &mut refused);
            }
            hasher.update(chunk);
            match draft.as_mut().map_or(Ok(()), |draft| draft.write(chunk)) {
                Ok(()) => Ok(()),
                Err(error) => stop(error, &mut refused),
            }
        });
        if let Some(error) = refused {
            return Err(error);
        }
        read.map_err(failed("receive", &path))?;
        let actual = Digest(hasher.finalize().into());
        if actual != digest {
            return Err(Error::DigestMismatch {
                claimed: digest,
                actual,
            });
        }
        match draft {
            Some(draft) => {
                draft.keep(&self.0.name(digest))?;
                Ok(Stored::New)
            }
            None => {
                // Keeps it from being collected before the deployment that it was sent for.
                let touched = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
                touched.map_err(failed("touch", &path))?;
                Ok(Stored::Known)
            }
        }
    }

    /// The code; [`Error::CodeMissing`] if it is absent or no longer what it was.
    pub(crate) fn read(&self, digest: Digest) -> Result<Vec<u8>, Error> {
        let path = self.0.path(digest);
        match self.0.open_verified(digest, digest)? {
            Verified::Good(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(failed("read", &path))?;
                Ok(bytes)
            }
            Verified::Damaged(actual) => {
                tracing::error!(path = %path.display(), %actual, "this code is damaged, and was removed");
                remove(&path)?;
                Err(Error::CodeMissing(vec![digest]))
            }
            Verified::Absent => Err(Error::CodeMissing(vec![digest])),
        }
    }

    pub(crate) fn size(&self, digest: Digest) -> Result<u64, Error> {
        let path = self.0.path(digest);
        match fs::metadata(&path) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::CodeMissing(vec![digest])),
            Err(error) => Err(failed("read", &path)(error)),
        }
    }

    pub(crate) fn collect(&self, age: Duration, wanted: &dyn Fn(Digest) -> bool) {
        self.0.collect(age, wanted);
    }
}
