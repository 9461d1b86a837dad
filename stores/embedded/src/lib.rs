//! The embedded metadata store and logs: [`contract::Store`] and [`contract::Log`] in one file of the node's data folder,
//! on redb.
//!
//! Reads run on the caller's thread against redb's snapshots. Changes go to one writer thread:
//!
//! 1. a caller puts its change into a bounded queue (when it is full the caller waits: it would wait for the disk anyway),
//! 2. the writer takes all that wait, up to [`BATCH`], and applies them one after the other to one transaction, each with
//!    its own verdict: a revision if its expectation holds, a position if it appends to a log,
//! 3. one commit, one flush to the disk, for all of them,
//! 4. watchers and tails are told, then the callers: whoever has an answer can rely on the disk and on the watchers' order.
//!
//! A crash leaves the state of some commit: a change is whole or absent, and all that was answered is there.
//!
//! The file is made under another name and linked to its own once it is complete, so that a crash at the very first
//! start leaves no half-made store.

#![forbid(unsafe_code)]

mod log;
mod writer;

pub use log::LOG_QUEUE_BYTES;

use contract::{Change, Entry, Expect, Revision, Store, StoreError, Watch};
use redb::{Database, ReadableDatabase, TableDefinition, TableError};
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError,
        atomic::AtomicUsize,
        mpsc::{self, SyncSender},
    },
    thread::JoinHandle,
};
use writer::{Audience, Command, Operation, Refused, Verdict, Watcher};

/// Changes that share one flush at most.
pub const BATCH: usize = 256;

/// Changes that a watcher may lag behind. One that falls further behind loses its place: its [`Watch`] ends, and it
/// lists and watches anew.
pub const WATCH_LAG: usize = 16 * 1024;

/// Bytes of the file that are kept in memory. Metadata is small, and read once at start.
const CACHE: usize = 1 << 20;

const NAME_LIMIT: usize = 512;
const VALUE_LIMIT: usize = 1 << 20;

/// A key's revision and value.
const ENTRIES: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("entries");
/// Under `revision` the store's last revision.
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
const REVISION: &str = "revision";
/// A record, under its log and position.
const RECORDS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("records");
/// A log's first position, its end, and the bytes of its records.
const LOGS: TableDefinition<'_, &str, (u64, u64, u64)> = TableDefinition::new("logs");

/// The store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "the store {path} is in use by another process: a data folder serves one node at a time; stop the other one"
    )]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Its content is not a store's.
    #[error(
        "the store {path} is damaged ({reason}): restore it from a backup, or move it away and deploy again"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused.
    #[error("cannot open the store {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
}

impl OpenError {
    fn new(path: &Path, error: redb::Error) -> Self {
        let path = path.to_owned();
        match error {
            redb::Error::DatabaseAlreadyOpen => Self::Locked { path },
            redb::Error::Io(source)
                if source.kind() != io::ErrorKind::InvalidData
                    && source.kind() != io::ErrorKind::UnexpectedEof =>
            {
                Self::Io { path, source }
            }
            other => Self::Corrupt {
                path,
                reason: other.to_string(),
            },
        }
    }
}

/// The store. Dropping it waits for the changes that are under way.
pub struct Embedded {
    database: Arc<Database>,
    audience: Arc<Audience>,
    /// Bytes that appends which nobody waits for have in the queue.
    queued: Arc<AtomicUsize>,
    /// `None` only while dropping.
    queue: Option<SyncSender<Command>>,
    writer: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Opens the store in this file, and makes it if there is none. The folder must exist.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let opened = tables::guarded(|| {
            let database = tables::open_or_create(path, CACHE, initialise)?;
            add_logs(&database)?;
            let revision = last_revision(&database)?;
            Ok((database, revision))
        });
        let (database, revision) = opened.map_err(|error| OpenError::new(path, error))?;
        let database = Arc::new(database);
        let audience = Arc::new(Audience::default());
        let (queue, commands) = mpsc::sync_channel(BATCH);
        let writer = writer::Writer::new(Arc::clone(&database), Arc::clone(&audience), revision);
        let writer = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || writer.run(&commands))
            .map_err(|source| OpenError::Io {
                path: path.to_owned(),
                source,
            })?;
        Ok(Self {
            database,
            audience,
            queued: Arc::default(),
            queue: Some(queue),
            writer: Some(writer),
        })
    }

    /// Hands an operation to the writer and waits for its verdict; `None` if the writer has stopped.
    fn submit(&self, operation: Operation) -> Option<Verdict> {
        let (reply, answer) = mpsc::sync_channel(1);
        let command = Command {
            operation,
            reply: Box::new(move |verdict| {
                // Whoever asked may have gone.
                let _ = reply.send(verdict);
            }),
        };
        self.queue.as_ref()?.send(command).ok()?;
        answer.recv().ok()
    }

    fn change(&self, key: &str, expect: Expect, operation: Operation) -> Result<Revision, StoreError> {
        match self.submit(operation) {
            Some(Ok(revision)) => Ok(Revision(revision)),
            Some(Err(Refused::Conflict(found))) => Err(StoreError::Conflict {
                key: key.to_owned(),
                expected: expect,
                found,
            }),
            Some(Err(Refused::Failed(reason))) => Err(StoreError::storage("commit a change", reason)),
            None => Err(StoreError::storage(
                format!("change `{key}`"),
                "its writer has stopped; restart the node",
            )),
        }
    }
}

fn initialise(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(ENTRIES)?;
    transaction.open_table(COUNTERS)?.insert(REVISION, 0)?;
    transaction.open_table(RECORDS)?;
    transaction.open_table(LOGS)?;
    transaction.commit()?;
    Ok(())
}

/// The tables of logs, in a file that was made before there were any.
fn add_logs(database: &Database) -> Result<(), redb::Error> {
    match database.begin_read()?.open_table(LOGS) {
        Ok(_) => return Ok(()),
        Err(TableError::TableDoesNotExist(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let transaction = database.begin_write()?;
    transaction.open_table(RECORDS)?;
    transaction.open_table(LOGS)?;
    transaction.commit()?;
    Ok(())
}

fn last_revision(database: &Database) -> Result<u64, redb::Error> {
    let transaction = database.begin_read()?;
    transaction.open_table(ENTRIES)?;
    let counter = transaction.open_table(COUNTERS)?.get(REVISION)?;
    Ok(counter
        .ok_or_else(|| redb::Error::Corrupted("it has no revision".to_owned()))?
        .value())
}

const NAME_RULE: &str = "a name has 1 to 512 bytes, and only a-z, 0-9, `-`, `.`, `_` and `/`";

/// The rule for keys and for the names of logs.
fn name_is_good(name: &str) -> bool {
    matches!(name.len(), 1..=NAME_LIMIT)
        && name
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/'))
}

fn check_key(key: &str) -> Result<(), StoreError> {
    if name_is_good(key) {
        return Ok(());
    }
    Err(StoreError::Invalid {
        key: key.to_owned(),
        reason: NAME_RULE,
    })
}

fn read<T>(attempt: &str, act: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, StoreError> {
    act().map_err(|error| StoreError::storage(attempt, error))
}

impl Store for Embedded {
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        check_key(key)?;
        read(&format!("read `{key}`"), || {
            let found = self.database.begin_read()?.open_table(ENTRIES)?.get(key)?;
            Ok(found.map(|found| entry(key, found.value())))
        })
    }

    fn put(&self, key: &str, value: &[u8], expect: Expect) -> Result<Revision, StoreError> {
        check_key(key)?;
        if value.len() > VALUE_LIMIT {
            return Err(StoreError::Invalid {
                key: key.to_owned(),
                reason: "a value has at most 1 MiB",
            });
        }
        let operation = Operation::Put {
            key: key.to_owned(),
            value: value.to_vec(),
            expect,
        };
        self.change(key, expect, operation)
    }

    fn delete(&self, key: &str, expect: Expect) -> Result<Revision, StoreError> {
        check_key(key)?;
        let operation = Operation::Delete {
            key: key.to_owned(),
            expect,
        };
        self.change(key, expect, operation)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        read(&format!("list `{prefix}`"), || {
            let table = self.database.begin_read()?.open_table(ENTRIES)?;
            let mut entries = Vec::new();
            for found in table.range(prefix..)? {
                let (key, value) = found?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                entries.push(entry(key.value(), value.value()));
            }
            Ok(entries)
        })
    }

    fn watch(&self, prefix: &str) -> Result<Watch, StoreError> {
        let (changes, watch) = mpsc::sync_channel(WATCH_LAG);
        let mut watchers = self
            .audience
            .watchers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        watchers.push(Watcher {
            prefix: prefix.to_owned(),
            changes,
        });
        Ok(watch)
    }
}

fn entry(key: &str, (revision, value): (u64, &[u8])) -> Entry {
    Entry {
        key: key.to_owned(),
        value: value.to_vec(),
        revision: Revision(revision),
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(writer) = self.writer.take() {
            // The last owner may be something that the writer called; then it ends by itself. A writer that panicked
            // has said so already.
            if writer.thread().id() != std::thread::current().id() {
                let _ = writer.join();
            }
        }
    }
}
