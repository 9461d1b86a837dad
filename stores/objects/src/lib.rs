//! The embedded S3: S3's protocol on a node's own folder, for small nodes and the demo.
//!
//! [`s3s`] speaks the protocol: HTTP, signatures, XML. This crate is what it asks:
//!
//! - `server` serves connections, and `protocol` mends where s3s and S3 differ;
//! - `service` hands each operation to its own function, in `buckets`, `objects`, `read`, `attributes`, `parts`, `lists` and `tags`;
//! - `body` receives data, checks it against what the client says of it, and sends it;
//! - `changes` and `uploads` are the changes of the index, `outbox` who is to be told of them, `listing` and `conditions` decisions without I/O;
//! - `files` keeps data, `index` what is known of it, and `writer` is the only one who changes that; `room`
//!   is for deleting when the disk is full.
//!
//! # What is promised
//!
//! Whatever was acknowledged is on the disk, whole: it survives `kill -9` and power loss. Whatever was not is there whole,
//! or absent. For that:
//!
//! 1. data goes to a new file, which nobody knows yet, and is checked,
//! 2. the file is flushed, then its folder (data of up to [`Options::small`] bytes skips both, and goes with its entry),
//! 3. the entry is committed to the index with a flush, which changes that come at the same time share,
//! 4. the client is told.
//!
//! What is replaced or deleted goes the other way: the entry first, the file afterwards, once nobody reads it. A start
//! collects files without an entry.
//!
//! # What is not there
//!
//! Versions, ACLs, policies, lifecycles and encryption answer `NotImplemented`; so does whoever asks for them at a `PutObject`.
//! Nothing is anonymous. Signatures of version 2 and uploads by HTML forms are refused.

#![forbid(unsafe_code)]

mod attributes;
mod body;
mod buckets;
mod changes;
mod conditions;
mod fault;
mod files;
mod index;
mod listing;
mod lists;
mod objects;
mod outbox;
mod parts;
mod protocol;
mod read;
mod record;
mod request;
mod room;
mod server;
mod service;
mod sums;
mod tags;
mod uploads;
mod writer;

pub use s3s::Body;
pub use server::Owner;

use files::Files;
use index::Index;
use redb::ReadTransaction;
use room::Room;
use s3s::{S3Error, S3Result};
use serde::{Deserialize, Serialize};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::{Notify, mpsc};
use writer::{Change, Queue, Writer};

/// How the embedded S3 is to be.
#[derive(Clone)]
pub struct Options {
    /// The region of its buckets, which clients sign for.
    pub region: String,
    /// Bytes of an object that lies in the index, at most.
    pub small: usize,
    /// Bytes of the index that are kept in memory.
    pub cache: usize,
    /// Connections at a time; who comes later waits until one ends.
    pub connections: usize,
    /// How long requests that are under way at a shutdown may take to end.
    pub grace: Duration,
    /// Which new objects [`Objects::events`] tells of; none, when absent.
    pub wanted: Option<Wanted>,
}

/// Runs on the writer's thread, with the index in hand: it must not block.
pub type Wanted = Arc<dyn Fn(&Created) -> bool + Send + Sync>;

impl Default for Options {
    /// `us-east-1`, small objects up to 16 KiB, 16 MiB of cache, 256 connections, 10 s of grace.
    fn default() -> Self {
        Self {
            region: "us-east-1".to_owned(),
            small: 16 << 10,
            cache: 16 << 20,
            connections: 256,
            grace: Duration::from_secs(10),
            wanted: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("region", &self.region)
            .field("small", &self.small)
            .field("cache", &self.cache)
            .field("connections", &self.connections)
            .field("grace", &self.grace)
            .field("wanted", &self.wanted.is_some())
            .finish()
    }
}

/// An object that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Created {
    /// Where it lies.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// Without quotes.
    pub etag: String,
    /// When, in milliseconds since 1970, UTC.
    pub modified: u64,
    /// How it came.
    pub event: Event,
}

/// How an object came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Event {
    /// At once.
    Put,
    /// From another object.
    Copy,
    /// In parts.
    CompleteMultipartUpload,
}

impl Event {
    /// S3's name of it, <https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-how-to-event-types-and-destinations.html>.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "ObjectCreated:Put",
            Self::Copy => "ObjectCreated:Copy",
            Self::CompleteMultipartUpload => "ObjectCreated:CompleteMultipartUpload",
        }
    }
}

/// A key that clients sign with.
#[derive(Clone)]
pub struct Key {
    /// The access key.
    pub access: String,
    /// The secret key.
    pub secret: String,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

/// The embedded S3 cannot start, or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process has the folder.
    #[error(
        "the objects in {path} are in use by another process: a folder serves one at a time; stop the other one"
    )]
    Locked {
        /// The index.
        path: PathBuf,
    },
    /// The index is none, or not a whole one.
    #[error(
        "the index of objects {path} is damaged ({reason}): restore the folder from a backup, or move it away"
    )]
    Damaged {
        /// The index.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused to open the index.
    #[error("cannot open the index of objects {path}: {source}")]
    Index {
        /// The index.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
    /// The operating system refused to use the folder.
    #[error(
        "cannot keep objects in the folder {path}: {source}; check that it can be written to and has room"
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
    /// The index does not give what it keeps to be told, or not take that it was.
    #[error("cannot tell of new objects: {reason}")]
    Events {
        /// What is wrong with it.
        reason: String,
    },
    /// It cannot be listened to.
    #[error("cannot serve S3 on the socket: {source}")]
    Listen {
        /// The operating system's word.
        source: io::Error,
    },
}

impl Error {
    fn of_events(error: &S3Error) -> Self {
        Self::Events {
            reason: error.to_string(),
        }
    }

    fn of_index(path: &Path, error: redb::Error) -> Self {
        let path = path.to_owned();
        match error {
            redb::Error::DatabaseAlreadyOpen => Self::Locked { path },
            redb::Error::Io(source)
                if !matches!(
                    source.kind(),
                    io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
                ) =>
            {
                Self::Index { path, source }
            }
            other => Self::Damaged {
                path,
                reason: other.to_string(),
            },
        }
    }
}

/// Objects in a folder. The last clone that goes waits for the changes that are under way.
#[derive(Clone)]
pub struct Objects {
    inner: Arc<Inner>,
}

struct Inner {
    files: Arc<Files>,
    index: Arc<Index>,
    options: Options,
    /// Rung when there are events.
    news: Arc<Notify>,
    /// `None` only while dropping.
    queue: Option<Queue>,
    writer: Option<JoinHandle<()>>,
}

impl Objects {
    /// Opens the folder, makes it if there is none, and removes what a crash left half done.
    pub fn open(folder: &Path, options: Options) -> Result<Self, Error> {
        let failed = |source| Error::Folder {
            path: folder.to_owned(),
            source,
        };
        files::make_folder(folder).map_err(failed)?;
        let path = folder.join("index.redb");
        // The index first: it says if another process is here.
        let index = Arc::new(Index::open(&path, options.cache)?);
        let files = Arc::new(Files::open(&folder.join("objects"))?);
        let alive = index.alive().map_err(|error| Error::of_index(&path, error))?;
        let removed = files.sweep(&alive).map_err(failed)?;
        if removed > 0 {
            tracing::info!(
                "{} had {removed} files of writes that never ended",
                folder.display()
            );
        }
        let news = Arc::new(Notify::new());
        let (queue, jobs) = mpsc::channel(writer::BATCH);
        let writer = Writer {
            index: Arc::clone(&index),
            files: Arc::clone(&files),
            wanted: options.wanted.clone(),
            news: Arc::clone(&news),
            room: Room::open(folder),
            orphans: Vec::new(),
        };
        let writer = thread::Builder::new()
            .name("objects".to_owned())
            .spawn(move || writer.run(jobs))
            .map_err(failed)?;
        Ok(Self {
            inner: Arc::new(Inner {
                files,
                index,
                options,
                news,
                queue: Some(queue),
                writer: Some(writer),
            }),
        })
    }
}

impl Inner {
    /// Reads the index on a thread that may wait for the disk.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        attempt: &'static str,
        act: impl FnOnce(&ReadTransaction) -> Result<S3Result<T>, redb::Error> + Send + 'static,
    ) -> S3Result<T> {
        let inner = Arc::clone(self);
        blocking(move || inner.index.read(attempt, act)?).await
    }

    /// Changes the index; returns once that is on the disk.
    async fn change<C: Change>(&self, change: C) -> S3Result<C::Answer> {
        match &self.queue {
            Some(queue) => writer::submit(queue, change).await,
            None => Err(fault::internal("change the index", &"it is closed")),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(writer) = self.writer.take()
            && writer.thread().id() != thread::current().id()
        {
            // One that panicked has said so.
            let _ = writer.join();
        }
    }
}

/// Runs what may wait for the disk.
async fn blocking<T: Send + 'static>(act: impl FnOnce() -> S3Result<T> + Send + 'static) -> S3Result<T> {
    match tokio::task::spawn_blocking(act).await {
        Ok(result) => result,
        Err(error) => Err(fault::internal("finish a piece of work", &error)),
    }
}
