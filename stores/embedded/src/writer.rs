//! The one thread that changes the file.

use crate::{BATCH, COUNTERS, Change, Database, ENTRIES, Entry, Expect, REVISION, Revision, StoreError};
use redb::ReadableTable;
use std::sync::{
    Arc, Mutex, PoisonError,
    mpsc::{Receiver, SyncSender},
};

/// Bytes of values in one transaction at most, give or take one value.
const BATCH_BYTES: usize = 8 << 20;

pub(crate) enum Operation {
    Put { key: String, value: Vec<u8> },
    Delete { key: String },
}

impl Operation {
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Put { value, .. } => value.len(),
            Self::Delete { .. } => 0,
        }
    }
}

/// A change that somebody waits for.
pub(crate) struct Command {
    pub(crate) operation: Operation,
    pub(crate) expect: Expect,
    pub(crate) reply: SyncSender<Result<Revision, StoreError>>,
}

pub(crate) struct Watcher {
    pub(crate) prefix: String,
    pub(crate) changes: SyncSender<Change>,
}

pub(crate) struct Writer {
    database: Arc<Database>,
    watchers: Arc<Mutex<Vec<Watcher>>>,
    revision: u64,
}

/// Each change's verdict in its order, what watchers are told, and the last revision.
struct Applied {
    answers: Vec<Result<Revision, StoreError>>,
    changes: Vec<Change>,
    revision: u64,
}

impl Writer {
    pub(crate) fn new(database: Arc<Database>, watchers: Arc<Mutex<Vec<Watcher>>>, revision: u64) -> Self {
        Self {
            database,
            watchers,
            revision,
        }
    }

    /// Until every sender is gone and the queue is empty.
    pub(crate) fn run(mut self, commands: &Receiver<Command>) {
        while let Ok(first) = commands.recv() {
            let mut bytes = first.operation.size();
            let mut batch = vec![first];
            while batch.len() < BATCH && bytes < BATCH_BYTES {
                let Ok(next) = commands.try_recv() else { break };
                bytes += next.operation.size();
                batch.push(next);
            }
            self.commit(batch);
        }
    }

    fn commit(&mut self, batch: Vec<Command>) {
        let (operations, replies): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|command| ((command.operation, command.expect), command.reply))
            .unzip();
        let answers = match self.apply(operations) {
            Ok(applied) => {
                self.revision = applied.revision;
                self.tell(&applied.changes);
                applied.answers
            }
            Err(error) => replies
                .iter()
                .map(|_| Err(StoreError::storage("commit a change", &error)))
                .collect(),
        };
        for (reply, answer) in replies.into_iter().zip(answers) {
            // Whoever asked may have gone.
            let _ = reply.send(answer);
        }
    }

    fn apply(&self, operations: Vec<(Operation, Expect)>) -> Result<Applied, redb::Error> {
        let mut applied = Applied {
            answers: Vec::with_capacity(operations.len()),
            changes: Vec::new(),
            revision: self.revision,
        };
        let transaction = self.database.begin_write()?;
        {
            let mut entries = transaction.open_table(ENTRIES)?;
            for (operation, expect) in operations {
                let found = entries
                    .get(operation.key())?
                    .map(|found| Revision(found.value().0));
                if !holds(expect, found) {
                    let key = operation.key().to_owned();
                    applied.answers.push(Err(StoreError::Conflict {
                        key,
                        expected: expect,
                        found,
                    }));
                    continue;
                }
                let next = applied.revision + 1;
                let change = match operation {
                    Operation::Put { key, value } => {
                        entries.insert(key.as_str(), (next, value.as_slice()))?;
                        Change::Put(Entry {
                            key,
                            value,
                            revision: Revision(next),
                        })
                    }
                    Operation::Delete { .. } if found.is_none() => {
                        applied.answers.push(Ok(Revision(applied.revision)));
                        continue;
                    }
                    Operation::Delete { key } => {
                        entries.remove(key.as_str())?;
                        Change::Delete {
                            key,
                            revision: Revision(next),
                        }
                    }
                };
                applied.revision = next;
                applied.answers.push(Ok(Revision(next)));
                applied.changes.push(change);
            }
        }
        if applied.changes.is_empty() {
            transaction.abort()?;
        } else {
            transaction
                .open_table(COUNTERS)?
                .insert(REVISION, applied.revision)?;
            transaction.commit()?;
        }
        Ok(applied)
    }

    /// A watcher that is gone, or too far behind, is dropped.
    fn tell(&self, changes: &[Change]) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            let (Change::Put(Entry { key, .. }) | Change::Delete { key, .. }) = change;
            watchers.retain(|watcher| {
                !key.starts_with(&watcher.prefix) || watcher.changes.try_send(change.clone()).is_ok()
            });
        }
    }
}

fn holds(expect: Expect, found: Option<Revision>) -> bool {
    match expect {
        Expect::Any => true,
        Expect::Absent => found.is_none(),
        Expect::At(revision) => found == Some(revision),
    }
}
