//! The one thread that changes the file.

use crate::{BATCH, COUNTERS, Change, Database, ENTRIES, Entry, Expect, LOGS, RECORDS, REVISION, Revision};
use redb::{ReadableTable, Table};
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, TrySendError},
    },
};

/// Bytes of values and records in one transaction at most, give or take one change.
const BATCH_BYTES: usize = 8 << 20;

pub(crate) enum Operation {
    Put {
        key: String,
        value: Vec<u8>,
        expect: Expect,
    },
    Delete {
        key: String,
        expect: Expect,
    },
    Append {
        log: String,
        records: Vec<Vec<u8>>,
    },
    Trim {
        log: String,
        before: u64,
    },
}

impl Operation {
    fn size(&self) -> usize {
        match self {
            Self::Put { value, .. } => value.len(),
            Self::Append { records, .. } => records.iter().map(Vec::len).sum(),
            Self::Delete { .. } | Self::Trim { .. } => 0,
        }
    }
}

/// Why an operation did not happen.
pub(crate) enum Refused {
    /// The expectation did not hold; this was there.
    Conflict(Option<Revision>),
    /// The file failed.
    Failed(String),
}

/// A change's revision, an append's first position, or 0 for a trim.
pub(crate) type Verdict = Result<u64, Refused>;

/// A change that somebody waits for.
pub(crate) struct Command {
    pub(crate) operation: Operation,
    /// Told once the verdict is on disk. Runs on the writer's thread.
    pub(crate) reply: Box<dyn FnOnce(Verdict) + Send>,
}

pub(crate) struct Watcher {
    pub(crate) prefix: String,
    pub(crate) changes: SyncSender<Change>,
}

/// Who wants to know that a log has grown.
pub(crate) struct Listener {
    pub(crate) log: String,
    pub(crate) bell: SyncSender<()>,
}

/// Who is told of what was committed.
#[derive(Default)]
pub(crate) struct Audience {
    pub(crate) watchers: Mutex<Vec<Watcher>>,
    pub(crate) listeners: Mutex<Vec<Listener>>,
}

pub(crate) struct Writer {
    database: Arc<Database>,
    audience: Arc<Audience>,
    revision: u64,
}

/// What a transaction came to.
struct Applied {
    /// Each operation's verdict, in their order.
    verdicts: Vec<Verdict>,
    /// What watchers are told.
    changes: Vec<Change>,
    /// Logs that have grown.
    grown: HashSet<String>,
    trimmed: bool,
    /// The last revision.
    revision: u64,
}

type Entries<'t> = Table<'t, &'static str, (u64, &'static [u8])>;
type Records<'t> = Table<'t, (&'static str, u64), &'static [u8]>;
type Logs<'t> = Table<'t, &'static str, (u64, u64, u64)>;

impl Writer {
    pub(crate) fn new(database: Arc<Database>, audience: Arc<Audience>, revision: u64) -> Self {
        Self {
            database,
            audience,
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
            .map(|command| (command.operation, command.reply))
            .unzip();
        let verdicts = match self.apply(operations) {
            Ok(applied) => {
                self.revision = applied.revision;
                self.audience.tell(&applied);
                applied.verdicts
            }
            Err(error) => replies
                .iter()
                .map(|_| Err(Refused::Failed(error.to_string())))
                .collect(),
        };
        for (reply, verdict) in replies.into_iter().zip(verdicts) {
            reply(verdict);
        }
    }

    fn apply(&self, operations: Vec<Operation>) -> Result<Applied, redb::Error> {
        let mut applied = Applied {
            verdicts: Vec::with_capacity(operations.len()),
            changes: Vec::new(),
            grown: HashSet::new(),
            trimmed: false,
            revision: self.revision,
        };
        let transaction = self.database.begin_write()?;
        {
            let mut entries = transaction.open_table(ENTRIES)?;
            let mut records = transaction.open_table(RECORDS)?;
            let mut logs = transaction.open_table(LOGS)?;
            for operation in operations {
                let verdict = match operation {
                    Operation::Put { key, value, expect } => {
                        applied.change(&mut entries, key, Some(value), expect)?
                    }
                    Operation::Delete { key, expect } => applied.change(&mut entries, key, None, expect)?,
                    Operation::Append { log, records: new } => {
                        Ok(applied.append(&mut records, &mut logs, log, &new)?)
                    }
                    Operation::Trim { log, before } => {
                        applied.trimmed |= trim(&mut records, &mut logs, &log, before)?;
                        Ok(0)
                    }
                };
                applied.verdicts.push(verdict);
            }
        }
        if applied.changes.is_empty() && applied.grown.is_empty() && !applied.trimmed {
            transaction.abort()?;
        } else {
            transaction
                .open_table(COUNTERS)?
                .insert(REVISION, applied.revision)?;
            transaction.commit()?;
        }
        Ok(applied)
    }
}

impl Applied {
    /// Writes a value, or deletes it if there is no new one.
    fn change(
        &mut self,
        entries: &mut Entries<'_>,
        key: String,
        value: Option<Vec<u8>>,
        expect: Expect,
    ) -> Result<Verdict, redb::Error> {
        let found = entries.get(key.as_str())?.map(|found| Revision(found.value().0));
        if !holds(expect, found) {
            return Ok(Err(Refused::Conflict(found)));
        }
        let next = self.revision + 1;
        let revision = Revision(next);
        let change = match value {
            Some(value) => {
                entries.insert(key.as_str(), (next, value.as_slice()))?;
                Change::Put(Entry { key, value, revision })
            }
            None if found.is_none() => return Ok(Ok(self.revision)),
            None => {
                entries.remove(key.as_str())?;
                Change::Delete { key, revision }
            }
        };
        self.revision = next;
        self.changes.push(change);
        Ok(Ok(next))
    }

    fn append(
        &mut self,
        records: &mut Records<'_>,
        logs: &mut Logs<'_>,
        log: String,
        new: &[Vec<u8>],
    ) -> Result<u64, redb::Error> {
        let (first, start, mut bytes) = extent(logs, &log)?;
        let mut end = start;
        for record in new {
            records.insert((log.as_str(), end), record.as_slice())?;
            bytes += record.len() as u64;
            end += 1;
        }
        if end > start {
            logs.insert(log.as_str(), (first, end, bytes))?;
            self.grown.insert(log);
        }
        Ok(start)
    }
}

/// Whether there was something to trim.
fn trim(records: &mut Records<'_>, logs: &mut Logs<'_>, log: &str, before: u64) -> Result<bool, redb::Error> {
    let (first, end, mut bytes) = extent(logs, log)?;
    let before = before.min(end);
    if before <= first {
        return Ok(false);
    }
    records.retain_in((log, first)..(log, before), |_, record| {
        bytes = bytes.saturating_sub(record.len() as u64);
        false
    })?;
    logs.insert(log, (before, end, bytes))?;
    Ok(true)
}

fn extent(logs: &Logs<'_>, log: &str) -> Result<(u64, u64, u64), redb::Error> {
    Ok(logs.get(log)?.map_or((0, 0, 0), |found| found.value()))
}

impl Audience {
    /// A watcher that is gone, or too far behind, is dropped.
    fn tell(&self, applied: &Applied) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        for change in &applied.changes {
            let (Change::Put(Entry { key, .. }) | Change::Delete { key, .. }) = change;
            watchers.retain(|watcher| {
                !key.starts_with(&watcher.prefix) || watcher.changes.try_send(change.clone()).is_ok()
            });
        }
        drop(watchers);
        if !applied.grown.is_empty() {
            let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
            // A bell that has not been heard yet need not ring again.
            listeners.retain(|listener| {
                !applied.grown.contains(&listener.log)
                    || !matches!(listener.bell.try_send(()), Err(TrySendError::Disconnected(())))
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
