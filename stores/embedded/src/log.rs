//! Logs in the store's file: a table of records by log and position, and each log's extent.

use crate::{
    Embedded, LOGS, NAME_RULE, RECORDS, name_is_good,
    writer::{Command, Listener, Operation, Refused, Verdict},
};
use contract::{Appended, Extent, Log, LogError, OnAppended, Position, Record, Tail};
use redb::ReadableDatabase;
use std::sync::{
    Arc, PoisonError,
    atomic::Ordering,
    mpsc::{self, TrySendError},
};

/// Bytes of records that may wait for the disk without anybody waiting for them.
pub const LOG_QUEUE_BYTES: usize = 64 << 20;

const RECORD_LIMIT: usize = 8 << 20;
/// Bytes after which a read stops.
const READ_BYTES: usize = 4 << 20;

fn check(log: &str, records: &[Vec<u8>]) -> Result<(), LogError> {
    let reason = if !name_is_good(log) {
        NAME_RULE
    } else if records.iter().any(|record| record.len() > RECORD_LIMIT) {
        "a record has at most 8 MiB"
    } else {
        return Ok(());
    };
    Err(LogError::Invalid {
        log: log.to_owned(),
        reason,
    })
}

fn failed(attempt: &str, log: &str, reason: impl std::fmt::Display) -> LogError {
    LogError::storage(format!("{attempt} `{log}`"), reason)
}

fn stopped(attempt: &str, log: &str) -> LogError {
    failed(attempt, log, "its writer has stopped; restart the node")
}

fn verdict(attempt: &str, log: &str, verdict: Verdict) -> Result<u64, LogError> {
    verdict.map_err(|refused| match refused {
        Refused::Conflict(_) => failed(attempt, log, "it met an expectation, which logs have not"),
        Refused::Failed(reason) => failed(attempt, log, reason),
    })
}

impl Embedded {
    fn change_log(&self, attempt: &str, log: &str, operation: Operation) -> Result<u64, LogError> {
        let answer = self.submit(operation).ok_or_else(|| stopped(attempt, log))?;
        verdict(attempt, log, answer)
    }

    fn read_log<T>(
        &self,
        log: &str,
        act: impl FnOnce(redb::ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, LogError> {
        check(log, &[])?;
        self.database
            .begin_read()
            .map_err(redb::Error::from)
            .and_then(act)
            .map_err(|error| failed("read", log, error))
    }
}

impl Log for Embedded {
    fn append(&self, log: &str, records: Vec<Vec<u8>>) -> Appended {
        check(log, &records)?;
        let operation = Operation::Append {
            log: log.to_owned(),
            records,
        };
        self.change_log("append to", log, operation).map(Position)
    }

    fn append_then(&self, log: &str, records: Vec<Vec<u8>>, done: OnAppended) -> Result<(), LogError> {
        check(log, &records)?;
        let size: usize = records.iter().map(Vec::len).sum();
        let before = self.queued.fetch_add(size, Ordering::Relaxed);
        if before > 0 && before.saturating_add(size) > LOG_QUEUE_BYTES {
            self.queued.fetch_sub(size, Ordering::Relaxed);
            return Err(LogError::Busy);
        }
        let queued = Arc::clone(&self.queued);
        let name = log.to_owned();
        let command = Command {
            operation: Operation::Append {
                log: log.to_owned(),
                records,
            },
            reply: Box::new(move |answer| {
                queued.fetch_sub(size, Ordering::Relaxed);
                done(verdict("append to", &name, answer).map(Position));
            }),
        };
        let error = match self.queue.as_ref().map(|queue| queue.try_send(command)) {
            Some(Ok(())) => return Ok(()),
            Some(Err(TrySendError::Full(_))) => LogError::Busy,
            Some(Err(TrySendError::Disconnected(_))) | None => stopped("append to", log),
        };
        self.queued.fetch_sub(size, Ordering::Relaxed);
        Err(error)
    }

    fn read(&self, log: &str, from: Position, most: usize) -> Result<Vec<Record>, LogError> {
        self.read_log(log, |transaction| {
            let table = transaction.open_table(RECORDS)?;
            let mut records = Vec::new();
            let mut bytes = 0;
            for found in table.range((log, from.0)..=(log, u64::MAX))?.take(most) {
                let (key, data) = found?;
                let data = data.value().to_vec();
                bytes += data.len();
                records.push(Record {
                    position: Position(key.value().1),
                    data,
                });
                if bytes > READ_BYTES {
                    break;
                }
            }
            Ok(records)
        })
    }

    fn extent(&self, log: &str) -> Result<Extent, LogError> {
        self.read_log(log, |transaction| {
            let found = transaction.open_table(LOGS)?.get(log)?;
            Ok(found.map_or_else(Extent::default, |found| {
                let (first, end, bytes) = found.value();
                Extent {
                    first: Position(first),
                    end: Position(end),
                    bytes,
                }
            }))
        })
    }

    fn tail(&self, log: &str) -> Result<Tail, LogError> {
        check(log, &[])?;
        let (bell, tail) = mpsc::sync_channel(1);
        let listeners = &self.audience.listeners;
        listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Listener {
                log: log.to_owned(),
                bell,
            });
        Ok(tail)
    }

    fn trim(&self, log: &str, before: Position) -> Result<(), LogError> {
        check(log, &[])?;
        let operation = Operation::Trim {
            log: log.to_owned(),
            before: before.0,
        };
        self.change_log("trim", log, operation).map(drop)
    }
}
