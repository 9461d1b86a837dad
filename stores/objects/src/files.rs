//! Files of data, each named by a fresh id, in folders that were made ahead.
//!
//! A file is a *draft* until an entry of the index names it: whoever gives it up, or a start that finds no entry for it,
//! removes it. It is written once and never changed. It goes when its entry is gone and nobody reads it: a reader *pins*
//! what it is going to read, in the moment in which it reads the entry.

use crate::{Error, record::Millis};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{
    collections::{HashMap, HashSet},
    fmt, fs,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        mpsc::{self, SyncSender, TrySendError},
    },
    thread,
};

/// Names data. Random, so that no file's name is ever used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(pub(crate) u128);

impl Id {
    pub(crate) fn fresh() -> io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }

    fn parse(text: &str) -> Option<Self> {
        (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok().map(Self))?
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("an id has 32 hexadecimal digits"))
    }
}

/// A fresh id of an upload: those of one key sort by their beginning.
pub(crate) fn upload_id(started: Millis) -> io::Result<String> {
    Ok(format!("{started:012x}{}", Id::fresh()?))
}

/// Batches of files that wait to be removed; who has more waits with them.
const REMOVALS: usize = 1024;

/// The folder of data.
pub(crate) struct Files {
    root: PathBuf,
    pins: Arc<Pins>,
    removals: SyncSender<Vec<Id>>,
}

#[derive(Default)]
struct Pins {
    /// Held while an entry is read and what it names is pinned. A remover passes through it alone, and finds the pins of
    /// all who may have read the entry before it went.
    gate: RwLock<()>,
    /// How many read a file, and whether it goes with the last of them.
    readers: Mutex<HashMap<Id, (usize, bool)>>,
}

impl Files {
    /// Opens the folder, and makes it and the folders in it if they are absent.
    pub(crate) fn open(root: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Folder {
            path: root.to_owned(),
            source,
        };
        let folders = || -> io::Result<()> {
            make_folder(root)?;
            for outer in 0..16 {
                let outer = root.join(format!("{outer:x}"));
                make(&outer)?;
                for inner in 0..16 {
                    make(&outer.join(format!("{inner:x}")))?;
                }
                sync_folder(&outer)?;
            }
            sync_folder(root)?;
            // That the folder can be written to is better known now than at the first object.
            let probe = root.join("probe");
            fs::write(&probe, b"")?;
            fs::remove_file(probe)
        };
        folders().map_err(failed)?;
        let pins = Arc::new(Pins::default());
        let (removals, orders) = mpsc::sync_channel(REMOVALS);
        let janitor = Janitor {
            root: root.to_owned(),
            pins: Arc::clone(&pins),
        };
        thread::Builder::new()
            .name("objects-files".to_owned())
            .spawn(move || janitor.run(&orders))
            .map_err(failed)?;
        Ok(Self {
            root: root.to_owned(),
            pins,
            removals,
        })
    }

    /// A new file. It is removed when the draft is dropped, unless it was kept.
    pub(crate) fn draft(&self) -> io::Result<Draft> {
        let id = Id::fresh()?;
        let path = path(&self.root, id);
        let file = File::create_new(&path)?;
        Ok(Draft {
            id,
            path,
            file,
            kept: false,
        })
    }

    pub(crate) fn read(&self, id: Id) -> io::Result<File> {
        File::open(path(&self.root, id))
    }

    /// Reads an entry, and pins the files that it names until the pin is dropped.
    pub(crate) fn pinned<T, E>(
        self: &Arc<Self>,
        read: impl FnOnce() -> Result<(T, Vec<Id>), E>,
    ) -> Result<(T, Pin), E> {
        let gate = self.pins.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (entry, ids) = read()?;
        let mut readers = self.pins.readers.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &ids {
            readers.entry(*id).or_default().0 += 1;
        }
        drop((readers, gate));
        let pin = Pin {
            files: Arc::clone(self),
            ids,
        };
        Ok((entry, pin))
    }

    /// Removes files that no entry names any more, in a while and once nobody reads them.
    pub(crate) fn remove(&self, ids: Vec<Id>) {
        if !ids.is_empty() {
            // Without a janitor the next start removes them.
            let _ = self.removals.send(ids);
        }
    }

    /// Removes every file that is not among these. Nobody else may use the folder meanwhile.
    pub(crate) fn sweep(&self, alive: &HashSet<Id>) -> io::Result<usize> {
        let mut removed = 0;
        for outer in 0..16 {
            for inner in 0..16 {
                for entry in fs::read_dir(self.root.join(format!("{outer:x}/{inner:x}")))? {
                    let entry = entry?;
                    let id = entry.file_name().to_str().and_then(Id::parse);
                    // What is not ours stays.
                    if id.is_some_and(|id| !alive.contains(&id)) {
                        fs::remove_file(entry.path())?;
                        removed += 1;
                    }
                }
            }
        }
        Ok(removed)
    }
}

fn path(root: &Path, id: Id) -> PathBuf {
    let name = id.to_string();
    let mut path = root.to_owned();
    path.extend([name.get(..1), name.get(1..2), Some(&name)].into_iter().flatten());
    path
}

/// Makes a folder, and those above it that are absent, so that it outlives a loss of power. One that was there may have been
/// made by a start that ended before it said so to the disk.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    if !above.try_exists()? {
        make_folder(above)?;
    }
    make(path)?;
    sync_folder(above)
}

fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Removes files, so that nobody who waits for the index waits for that.
struct Janitor {
    root: PathBuf,
    pins: Arc<Pins>,
}

impl Janitor {
    fn run(self, orders: &mpsc::Receiver<Vec<Id>>) {
        for mut ids in orders {
            drop(self.pins.gate.write().unwrap_or_else(PoisonError::into_inner));
            let mut readers = self.pins.readers.lock().unwrap_or_else(PoisonError::into_inner);
            ids.retain(|id| match readers.get_mut(id) {
                Some((_, doomed)) => {
                    *doomed = true;
                    false
                }
                None => true,
            });
            drop(readers);
            for id in ids {
                remove(&path(&self.root, id));
            }
        }
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(
            "cannot remove {}, the next start tries again: {error}",
            path.display()
        );
    }
}

/// Keeps files where they are.
pub(crate) struct Pin {
    files: Arc<Files>,
    ids: Vec<Id>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let pins = &self.files.pins;
        let mut readers = pins.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut doomed = Vec::new();
        for id in &self.ids {
            let Some((count, goes)) = readers.get_mut(id) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                if *goes {
                    doomed.push(*id);
                }
                readers.remove(id);
            }
        }
        drop(readers);
        if doomed.is_empty() {
            return;
        }
        if let Err(TrySendError::Full(doomed) | TrySendError::Disconnected(doomed)) =
            self.files.removals.try_send(doomed)
        {
            for id in doomed {
                remove(&path(&self.files.root, id));
            }
        }
    }
}

/// A file that no entry names yet.
pub(crate) struct Draft {
    pub(crate) id: Id,
    path: PathBuf,
    file: File,
    kept: bool,
}

impl Draft {
    pub(crate) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.file.write_all(data)
    }

    /// Brings the file and its name to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()?;
        match self.path.parent() {
            Some(folder) => sync_folder(folder),
            None => Ok(()),
        }
    }

    /// An entry names it now, or may: it stays.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.kept {
            remove(&self.path);
        }
    }
}
