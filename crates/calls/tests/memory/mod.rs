//! Logs in memory that can lose their power: what is appended after the last allowed append fails, until it is back.

use contract::{Appended, Extent, Log, LogError, OnAppended, Position, Record, Tail};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        mpsc::{self, SyncSender},
    },
    thread,
};

#[derive(Default)]
struct Content {
    first: u64,
    records: Vec<Vec<u8>>,
    bells: Vec<SyncSender<()>>,
}

#[derive(Default)]
struct State {
    logs: BTreeMap<String, Content>,
    /// Appends until the power fails, if it is to fail.
    power: Option<u32>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Memory {
    state: Mutex<State>,
}

fn check(log: &str, records: &[Vec<u8>]) -> Result<(), LogError> {
    let good = (1..=512).contains(&log.len())
        && log
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._/".contains(&b));
    if good && records.iter().all(|record| record.len() <= 8 << 20) {
        return Ok(());
    }
    Err(LogError::Invalid {
        log: log.to_owned(),
        reason: "a rule",
    })
}

impl Memory {
    /// So many more changes succeed; `None` for all.
    pub(crate) fn power(&self, changes: Option<u32>) {
        self.state.lock().unwrap().power = changes;
    }

    fn with<T>(
        &self,
        log: &str,
        records: &[Vec<u8>],
        changes: bool,
        act: impl FnOnce(&mut Content) -> T,
    ) -> Result<T, LogError> {
        check(log, records)?;
        let mut state = self.state.lock().unwrap();
        if changes && let Some(left) = &mut state.power {
            *left = left
                .checked_sub(1)
                .ok_or_else(|| LogError::storage("append", "there is no power"))?;
        }
        Ok(act(state.logs.entry(log.to_owned()).or_default()))
    }
}

impl Log for Memory {
    fn append(&self, log: &str, records: Vec<Vec<u8>>) -> Appended {
        self.with(log, &records.clone(), true, |content| {
            let position = content.first + content.records.len() as u64;
            if !records.is_empty() {
                content.records.extend(records);
                content
                    .bells
                    .retain(|bell| !matches!(bell.try_send(()), Err(mpsc::TrySendError::Disconnected(()))));
            }
            Position(position)
        })
    }

    fn append_then(&self, log: &str, records: Vec<Vec<u8>>, done: OnAppended) -> Result<(), LogError> {
        check(log, &records)?;
        let appended = self.append(log, records);
        thread::spawn(move || done(appended));
        Ok(())
    }

    fn read(&self, log: &str, from: Position, most: usize) -> Result<Vec<Record>, LogError> {
        self.with(log, &[], false, |content| {
            let skip = usize::try_from(from.0.saturating_sub(content.first)).unwrap();
            let mut bytes = 0;
            (content.first..)
                .zip(&content.records)
                .skip(skip)
                .take(most)
                .take_while(|(_, data)| {
                    let fits = bytes <= 4 << 20;
                    bytes += data.len();
                    fits
                })
                .map(|(position, data)| Record {
                    position: Position(position),
                    data: data.clone(),
                })
                .collect()
        })
    }

    fn extent(&self, log: &str) -> Result<Extent, LogError> {
        self.with(log, &[], false, |content| Extent {
            first: Position(content.first),
            end: Position(content.first + content.records.len() as u64),
            bytes: content.records.iter().map(|data| data.len() as u64).sum(),
        })
    }

    fn tail(&self, log: &str) -> Result<Tail, LogError> {
        let (bell, tail) = mpsc::sync_channel(1);
        self.with(log, &[], false, |content| content.bells.push(bell))?;
        Ok(tail)
    }

    fn trim(&self, log: &str, before: Position) -> Result<(), LogError> {
        self.with(log, &[], true, |content| {
            let count = usize::try_from(before.0.saturating_sub(content.first)).unwrap();
            let count = count.min(content.records.len());
            content.records.drain(..count);
            content.first += count as u64;
        })
    }
}
