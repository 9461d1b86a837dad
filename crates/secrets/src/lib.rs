//! Secrets: what services show to others for functions, such as the key of an API.
//!
//! The control API sets and deletes them ([`Secrets`]), and the backend reads them while it sends a request ([`Values`]); nobody else
//! has a way to a value. The node's process writes what it is given and forgets it: of those that there are it knows the names. A secret
//! belongs to one application, or to all of the node's own; where an application has its own, that is the one. A
//! tenant's applications have their own only: what the operator set for all is not theirs.
//!
//! # Where they are
//! Each is a file of its own in a folder of the data folder, named `NAME`, `APPLICATION.NAME` or `TENANT@APPLICATION.NAME`; no name has a dot. The
//! file holds the value and nothing else, and its time is when it was set. Folder and files are the owner's alone (0700, 0600).
//! A value is read for each request that it goes with: so what is set counts at once in another process, which keeps nothing.
//!
//! # What a crash leaves
//! A value is written into a draft, flushed, and renamed over its file, and the folder is flushed, before it is
//! acknowledged: after a crash there is the value before or the value afterwards, whole. [`Secrets::open`] removes drafts.
//!
//! # What a value is not
//! Text: it has no `Display`, `Debug` says its length alone, and its memory is overwritten when it is dropped.

#![forbid(unsafe_code)]

use contract::{ApplicationId, SecretName};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, DirBuilder, File, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};
use zeroize::Zeroizing;

/// The longest value, in bytes: servers refuse heads that are much longer.
pub const LONGEST: usize = 8 << 10;

/// What an interrupted write leaves behind begins with this.
const DRAFT: &str = ".draft-";

/// Which secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretId {
    /// The application whose secret it is; all of the node's own, when absent.
    pub application: Option<ApplicationId>,
    /// Its name there.
    pub name: SecretName,
}

/// What a secret is: 1 to [`LONGEST`] bytes that can stand in a header.
pub struct Value(Zeroizing<Vec<u8>>);

/// A value that cannot be a secret's. Says nothing of the value itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// There is nothing.
    #[error("the value is empty")]
    Empty,
    /// It is too long.
    #[error("the value is longer than {LONGEST} bytes")]
    Long,
    /// It could not be sent.
    #[error("the value has line ends or other control characters, which cannot stand in a header")]
    Control,
    /// It would not arrive as it is.
    #[error("the value begins or ends with a blank, which would be lost in a header")]
    Blank,
}

/// Secrets that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("failed to {attempt} {path}: {reason}")]
pub struct Error {
    attempt: &'static str,
    path: PathBuf,
    reason: io::Error,
}

/// Which secrets a node has. Cloning gives another handle.
#[derive(Clone)]
pub struct Secrets(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    /// When each was set.
    known: RwLock<BTreeMap<SecretId, SystemTime>>,
    /// Held while a file changes, so that the files and what is known change in one order.
    changing: Mutex<()>,
}

/// What they are, to whom may read the folder.
#[derive(Clone, Debug)]
pub struct Values(PathBuf);

impl Value {
    /// Checks a value.
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Result<Self, ValueError> {
        let blank = |byte: Option<&u8>| byte.is_some_and(|byte| b" \t".contains(byte));
        match () {
            () if bytes.is_empty() => Err(ValueError::Empty),
            () if bytes.len() > LONGEST => Err(ValueError::Long),
            () if bytes.iter().any(|byte| matches!(byte, 0..=8 | 10..=31 | 127)) => Err(ValueError::Control),
            () if blank(bytes.first()) || blank(bytes.last()) => Err(ValueError::Blank),
            () => Ok(Self(bytes)),
        }
    }

    /// The bytes. Whoever copies them answers for the copy.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.0.len())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.known.read().keys()).finish()
    }
}

impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.application {
            Some(application) => write!(f, "{application}.{}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

impl SecretId {
    /// Which secret a file holds.
    fn of_file(name: &str) -> Option<Self> {
        let (application, name) = match name.split_once('.') {
            Some((application, name)) => (Some(application.replace('@', "/").parse().ok()?), name),
            None => (None, name),
        };
        let name = name.parse().ok()?;
        Some(Self { application, name })
    }
}

impl Secrets {
    /// Reads the secrets of a folder, which is made if it is not there. It has no other writer.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        if !folder.exists() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(failed("make the folder of secrets", folder))?;
            if let Some(parent) = folder.parent() {
                flush_folder(parent)?;
            }
        }
        keep_private(folder, 0o700)?;
        let mut known = BTreeMap::new();
        let read = failed("read the folder of secrets", folder);
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        for entry in entries.map_err(read)? {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if name.starts_with(DRAFT) {
                fs::remove_file(&path).map_err(failed("remove the draft", &path))?;
                continue;
            }
            let Some(id) = SecretId::of_file(&name) else {
                tracing::warn!(path = %path.display(), "this is no secret's file, and is not looked at");
                continue;
            };
            keep_private(&path, 0o600)?;
            known.insert(id, look_at(&path)?);
        }
        Ok(Self(Arc::new(Inner {
            folder: folder.to_owned(),
            known: RwLock::new(known),
            changing: Mutex::new(()),
        })))
    }

    /// Gives a secret a value, in place of the one that it has. When this returns, the next call to a service has it, also after a
    /// crash.
    pub fn set(&self, id: &SecretId, value: Value) -> Result<SystemTime, Error> {
        let _changing = self.0.changing.lock();
        let path = self.path(id);
        // Drafts are the owner's alone from their first byte.
        let draft = tempfile::Builder::new()
            .prefix(DRAFT)
            .permissions(Permissions::from_mode(0o600))
            .tempfile_in(&self.0.folder);
        let mut draft = draft.map_err(failed("write into", &self.0.folder))?;
        let written = draft
            .write_all(value.expose())
            .and_then(|()| draft.as_file().sync_all());
        written.map_err(failed("write", &path))?;
        let file = draft
            .persist(&path)
            .map_err(|error| failed("name", &path)(error.error))?;
        flush_folder(&self.0.folder)?;
        let set = modified(&file, &path)?;
        self.0.known.write().insert(id.clone(), set);
        Ok(set)
    }

    /// Deletes a secret; false if there is none.
    pub fn delete(&self, id: &SecretId) -> Result<bool, Error> {
        let _changing = self.0.changing.lock();
        if !self.0.known.read().contains_key(id) {
            return Ok(false);
        }
        let path = self.path(id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &path)(error));
            }
            _ => {}
        }
        // It is gone for this process whether or not the folder can be flushed.
        self.0.known.write().remove(id);
        flush_folder(&self.0.folder)?;
        Ok(true)
    }

    /// Which there are, and when each was set.
    pub fn list(&self) -> Vec<(SecretId, SystemTime)> {
        let known = self.0.known.read();
        known.iter().map(|(id, set)| (id.clone(), *set)).collect()
    }

    /// Which secret a function of this application means by a name, if there is one: its application's own, or else the node's.
    pub fn meant(&self, application: &ApplicationId, name: &SecretName) -> Option<SecretId> {
        let known = self.0.known.read();
        candidates(application, name).find(|id| known.contains_key(id))
    }

    fn path(&self, id: &SecretId) -> PathBuf {
        path(&self.0.folder, id)
    }
}

impl Values {
    /// Of the secrets in this folder, whether or not there is any yet.
    pub fn of(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The value of the secret that a function of this application means, as it is now. Reads a small file.
    pub fn value(&self, application: &ApplicationId, name: &SecretName) -> Result<Option<Value>, Error> {
        for id in candidates(application, name) {
            if let Some(value) = read_file(&path(&self.0, &id))? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

fn path(folder: &Path, id: &SecretId) -> PathBuf {
    folder.join(id.to_string().replace('/', "@"))
}

fn candidates(application: &ApplicationId, name: &SecretName) -> impl Iterator<Item = SecretId> {
    // What is for all applications is for those of the node's own tenant.
    let all = application.tenant.is_none().then_some(None);
    [Some(application.clone())]
        .into_iter()
        .chain(all)
        .map(|application| SecretId {
            application,
            name: name.clone(),
        })
}

fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |reason| Error {
        attempt,
        path,
        reason,
    }
}

fn flush_folder(path: &Path) -> Result<(), Error> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(failed("flush the folder", path))
}

/// Sees to it that nobody but the owner can read this.
fn keep_private(path: &Path, mode: u32) -> Result<(), Error> {
    let found = fs::metadata(path).map_err(failed("look at", path))?.mode() & 0o777;
    if found & 0o077 != 0 {
        tracing::warn!(
            path = %path.display(),
            mode = format!("{found:03o}"),
            "others could read this; now they cannot. Set the secrets anew that they may have read"
        );
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed("protect", path))?;
    }
    Ok(())
}

fn modified(file: &File, path: &Path) -> Result<SystemTime, Error> {
    let time = file.metadata().and_then(|metadata| metadata.modified());
    time.map_err(failed("look at", path))
}

/// When a secret was set, by its file: what is in there is not looked at.
fn look_at(path: &Path) -> Result<SystemTime, Error> {
    let metadata = fs::metadata(path).map_err(failed("look at", path))?;
    let unfit = match metadata.len() {
        _ if !metadata.is_file() => Some(io::Error::other("it is no file")),
        0 => Some(io::Error::other(ValueError::Empty)),
        length if length > LONGEST as u64 => Some(io::Error::other(ValueError::Long)),
        _ => None,
    };
    match unfit {
        Some(unfit) => Err(failed("use", path)(unfit)),
        None => metadata.modified().map_err(failed("look at", path)),
    }
}

/// The value in a file; `None` if there is none.
fn read_file(path: &Path) -> Result<Option<Value>, Error> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed("open", path))?,
    };
    // Room for all of it: a buffer that grew would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST + 1));
    let read = file.take(LONGEST as u64 + 1).read_to_end(&mut bytes);
    read.map_err(failed("read", path))?;
    let value = Value::new(bytes).map_err(|error| failed("use", path)(io::Error::other(error)))?;
    Ok(Some(value))
}
