//! The one thread that changes the index.
//!
//! 1. a caller brings its data to the disk, puts its change into a bounded queue, and waits (when the queue is full, it
//!    waits for a place: it would wait for the disk anyway),
//! 2. the writer takes all that wait, up to [`BATCH`], and applies them one after the other to one transaction, each with
//!    its own verdict,
//! 3. one commit, one flush to the disk, for all of them,
//! 4. the callers are told; then files go that no entry names any more.
//!
//! When the disk is full, only changes that free something are taken: [`crate::room`].
//!
//! A change that is refused has changed nothing. When the transaction fails, all its changes have failed, and the index is
//! opened anew. A commit that failed may yet be on the disk: so the files of its changes stay until the index could be read
//! and says which of them it names.

use crate::{
    Wanted, fault,
    files::{Draft, Files, Id},
    index::{ABOUT, BUCKETS, CONTENTS, Index, OBJECTS, OUTBOX, PARTS, UPLOADS},
    room::Room,
};
use redb::{ReadableTable, Table};
use s3s::{S3Error, S3Result};
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, oneshot};

/// Changes that share one flush at most.
pub(crate) const BATCH: usize = 256;
/// Bytes of one transaction at most, give or take one change.
const BATCH_BYTES: usize = 8 << 20;

/// The tables in a transaction, and what is to be done once it is committed.
pub(crate) struct Tables<'t> {
    pub(crate) buckets: Table<'t, &'static str, &'static [u8]>,
    pub(crate) objects: Table<'t, (&'static str, &'static str), &'static [u8]>,
    pub(crate) contents: Table<'t, u128, &'static [u8]>,
    pub(crate) uploads: Table<'t, (&'static str, &'static str, &'static str), &'static [u8]>,
    pub(crate) parts: Table<'t, (&'static str, u32), &'static [u8]>,
    pub(crate) outbox: Table<'t, u64, &'static [u8]>,
    pub(crate) about: Table<'t, &'static str, u64>,
    pub(crate) wanted: Option<Wanted>,
    pub(crate) after: After,
}

/// What a transaction leaves to do.
#[derive(Default)]
pub(crate) struct After {
    /// Files that entries name now.
    pub(crate) kept: Vec<Draft>,
    /// Files that no entry names any more.
    pub(crate) doomed: Vec<Id>,
    /// There are events that were not.
    pub(crate) news: bool,
    pub(crate) changed: bool,
}

/// A change of the index.
pub(crate) trait Change: Send + 'static {
    type Answer: Send + 'static;

    /// Whether it frees room, and is taken where there is none.
    const FREES: bool = false;

    /// Bytes that it brings, about.
    fn size(&self) -> usize {
        0
    }

    /// Changes the tables, or refuses and leaves them as they are.
    fn apply(self, tables: &mut Tables<'_>) -> Result<S3Result<Self::Answer>, redb::Error>;
}

/// A change that somebody waits for.
pub(crate) trait Job: Send {
    fn frees(&self) -> bool;
    fn size(&self) -> usize;
    fn apply(&mut self, tables: &mut Tables<'_>) -> Result<(), redb::Error>;
    /// Says what it came to; `None` if its transaction was committed.
    fn finish(self: Box<Self>, failure: Option<S3Error>);
}

struct Task<C: Change> {
    change: Option<C>,
    answer: Option<S3Result<C::Answer>>,
    reply: oneshot::Sender<S3Result<C::Answer>>,
}

impl<C: Change> Job for Task<C> {
    fn frees(&self) -> bool {
        C::FREES
    }

    fn size(&self) -> usize {
        self.change.as_ref().map_or(0, Change::size)
    }

    fn apply(&mut self, tables: &mut Tables<'_>) -> Result<(), redb::Error> {
        if let Some(change) = self.change.take() {
            self.answer = Some(change.apply(tables)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, failure: Option<S3Error>) {
        let answer = match (failure, self.answer) {
            (None, Some(answer)) => answer,
            (Some(failure), _) => Err(failure),
            (None, None) => Err(fault::internal("change the index", &"a change was lost")),
        };
        // Whoever asked may have gone.
        let _ = self.reply.send(answer);
    }
}

/// The way to the writer.
pub(crate) type Queue = mpsc::Sender<Box<dyn Job>>;

/// Hands a change to the writer, and waits until it is on the disk or refused. A caller that goes away meanwhile takes the
/// change back only if the queue has not taken it.
pub(crate) async fn submit<C: Change>(queue: &Queue, change: C) -> S3Result<C::Answer> {
    let stopped = |_| fault::internal("change the index", &"its writer has stopped; restart the node");
    let (reply, answer) = oneshot::channel();
    let task = Task {
        change: Some(change),
        answer: None,
        reply,
    };
    queue.send(Box::new(task)).await.map_err(|_| stopped(()))?;
    answer.await.map_err(|_| stopped(()))?
}

pub(crate) struct Writer {
    pub(crate) index: Arc<Index>,
    pub(crate) files: Arc<Files>,
    pub(crate) wanted: Option<Wanted>,
    pub(crate) news: Arc<Notify>,
    pub(crate) room: Room,
    /// Files of changes whose commit failed: an entry may name them.
    pub(crate) orphans: Vec<Draft>,
}

impl Writer {
    /// Until every sender is gone and the queue is empty.
    pub(crate) fn run(mut self, mut jobs: mpsc::Receiver<Box<dyn Job>>) {
        while let Some(first) = jobs.blocking_recv() {
            let mut bytes = first.size();
            let mut batch = vec![first];
            while batch.len() < BATCH && bytes < BATCH_BYTES {
                let Ok(next) = jobs.try_recv() else { break };
                bytes += next.size();
                batch.push(next);
            }
            let batch = self.admit(batch);
            if !batch.is_empty() {
                self.commit(batch);
            }
        }
        for orphan in self.orphans {
            orphan.keep();
        }
    }

    /// Refuses what the disk has no room for.
    fn admit(&mut self, batch: Vec<Box<dyn Job>>) -> Vec<Box<dyn Job>> {
        let (freeing, others): (Vec<_>, Vec<_>) = batch.into_iter().partition(|job| job.frees());
        if !freeing.is_empty() && self.room.is_scarce() {
            self.room.release();
        }
        if others.is_empty() {
            return freeing;
        }
        if !self.room.hold() {
            let others = others.into_iter();
            others.for_each(|job| job.finish(Some(fault::full())));
            return freeing;
        }
        // Those came at the same time, so any order is theirs.
        freeing.into_iter().chain(others).collect()
    }

    fn commit(&mut self, mut batch: Vec<Box<dyn Job>>) {
        let mut after = After::default();
        match self
            .index
            .with(|database| apply(database, &mut batch, self.wanted.as_ref(), &mut after))
        {
            Ok(()) => {
                for draft in after.kept {
                    draft.keep();
                }
                if after.news {
                    self.news.notify_one();
                }
                batch.into_iter().for_each(|job| job.finish(None));
                self.files.remove(after.doomed);
            }
            Err(error) => {
                let attempt = format!("commit {} changes", batch.len());
                let status = fault::index(&attempt, &error).status_code();
                self.orphans.append(&mut after.kept);
                for job in batch {
                    let mut failure =
                        s3s::s3_error!(InternalError, "The change could not be brought to the disk.");
                    if let Some(status) = status {
                        failure.set_status_code(status);
                    }
                    job.finish(Some(failure));
                }
                self.recover();
            }
        }
    }

    /// Opens the index anew; if that fails, the next change tries again.
    fn recover(&mut self) {
        if self.room.is_scarce() {
            self.room.release();
        }
        if let Err(error) = self.index.reopen() {
            tracing::error!("the embedded S3 cannot open its index again: {error}");
            return;
        }
        if self.orphans.is_empty() {
            return;
        }
        match self.index.alive() {
            Ok(alive) => {
                for orphan in std::mem::take(&mut self.orphans) {
                    if alive.contains(&orphan.id) {
                        orphan.keep();
                    }
                }
            }
            Err(error) => tracing::error!("the embedded S3 cannot read its index after a failure: {error}"),
        }
    }
}

fn apply(
    database: &redb::Database,
    batch: &mut [Box<dyn Job>],
    wanted: Option<&Wanted>,
    after: &mut After,
) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    let applied = {
        let mut tables = Tables {
            buckets: transaction.open_table(BUCKETS)?,
            objects: transaction.open_table(OBJECTS)?,
            contents: transaction.open_table(CONTENTS)?,
            uploads: transaction.open_table(UPLOADS)?,
            parts: transaction.open_table(PARTS)?,
            outbox: transaction.open_table(OUTBOX)?,
            about: transaction.open_table(ABOUT)?,
            wanted: wanted.cloned(),
            after: After::default(),
        };
        let applied = batch.iter_mut().try_for_each(|job| job.apply(&mut tables));
        *after = tables.after;
        applied
    };
    if let Err(error) = applied {
        // Nothing was committed: the drafts go.
        after.kept.clear();
        return Err(error);
    }
    if after.changed {
        transaction.commit()?;
    } else {
        transaction.abort()?;
    }
    Ok(())
}

impl Tables<'_> {
    pub(crate) fn is_bucket(&self, bucket: &str) -> Result<bool, redb::Error> {
        Ok(self.buckets.get(bucket)?.is_some())
    }
}
