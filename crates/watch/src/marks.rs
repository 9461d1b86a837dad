//! What was seen: one file of redb.
//!
//! | table | key | value |
//! |---|---|---|
//! | scopes | which scope | its [`Held`] |
//! | marks | number of the scope, key of the object | its version |
//!
//! Places and keys are [identities](triggers::identity) of their names. A scope that is held again has another number, so that its old marks can go without haste.

use crate::Scope;
use parking_lot::Mutex;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::{Path, PathBuf},
};
use triggers::{Milliseconds, identity};

/// Number, since when, whether it was ever listed completely, marks.
const SCOPES: TableDefinition<'_, u128, (u64, u64, bool, u64)> = TableDefinition::new("scopes");
const MARKS: TableDefinition<'_, (u64, u128), u128> = TableDefinition::new("marks");
/// Under `format` the version of all this, under `next` the number of the next scope.
const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("about");
const FORMAT: u64 = 1;

/// Bytes of the file that are kept in memory.
const CACHE: usize = 4 << 20;

/// Marks that are forgotten in one transaction.
const BATCH: usize = 10_000;

/// The file of marks could not be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "what was seen of objects in S3, {path}, cannot be read: {reason}. Without the file, watching begins anew: move it away"
)]
pub struct OpenError {
    path: PathBuf,
    reason: String,
}

/// A scope that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) number: u64,
    pub(crate) since: Milliseconds,
    /// Whether all that was there has been seen.
    pub(crate) complete: bool,
    pub(crate) count: u64,
}

impl Held {
    fn of((number, since, complete, count): (u64, u64, bool, u64)) -> Self {
        Self {
            number,
            since,
            complete,
            count,
        }
    }

    fn row(self) -> (u64, u64, bool, u64) {
        (self.number, self.since, self.complete, self.count)
    }
}

/// An object's key, and which of its versions.
pub(crate) type Mark = (u128, u128);

pub(crate) struct Marks {
    path: PathBuf,
    origin: String,
    /// `None` after a failure of its disk, until it can be opened again: redb refuses all work on one that has failed.
    database: Mutex<Option<Database>>,
}

impl Marks {
    pub(crate) fn open(path: &Path, origin: &str) -> Result<Self, OpenError> {
        let marks = Self {
            path: path.to_owned(),
            origin: origin.to_owned(),
            database: Mutex::new(None),
        };
        marks.with(|_| Ok(())).map_err(|error| OpenError {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(marks)
    }

    fn with<T>(&self, act: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, redb::Error> {
        let mut database = self.database.lock();
        let result = tables::guarded(|| {
            if database.is_none() {
                *database = Some(open(&self.path)?);
            }
            database.as_ref().map_or(Err(redb::Error::PreviousIo), act)
        });
        if result.is_err() {
            tables::abandon(database.take());
        }
        result
    }

    fn id(&self, scope: &Scope) -> u128 {
        identity(&[
            self.origin.as_bytes(),
            scope.bucket.as_bytes(),
            scope.prefix.as_bytes(),
        ])
    }

    pub(crate) fn hold(&self, scopes: &BTreeSet<Scope>, now: Milliseconds) -> Result<(), redb::Error> {
        let wanted: HashSet<_> = scopes.iter().map(|scope| self.id(scope)).collect();
        self.with(|database| {
            let held = all(database)?;
            if held.len() == wanted.len() && held.keys().all(|id| wanted.contains(id)) {
                return Ok(());
            }
            let transaction = database.begin_write()?;
            {
                let mut table = transaction.open_table(SCOPES)?;
                let mut about = transaction.open_table(ABOUT)?;
                for id in held.keys().filter(|id| !wanted.contains(id)) {
                    table.remove(id)?;
                }
                let mut number = about.get("next")?.map_or(0, |next| next.value());
                for id in wanted.iter().filter(|id| !held.contains_key(id)) {
                    table.insert(id, (number, now, false, 0))?;
                    number += 1;
                }
                about.insert("next", number)?;
            }
            transaction.commit()?;
            Ok(())
        })
    }

    pub(crate) fn held(&self, scope: &Scope) -> Result<Option<Held>, redb::Error> {
        let id = self.id(scope);
        self.with(|database| {
            let found = database.begin_read()?.open_table(SCOPES)?.get(id)?;
            Ok(found.map(|found| Held::of(found.value())))
        })
    }

    /// Those of these marks that are not known.
    pub(crate) fn unknown(&self, number: u64, marks: &[Mark]) -> Result<Vec<bool>, redb::Error> {
        self.with(|database| {
            let table = database.begin_read()?.open_table(MARKS)?;
            let mut unknown = Vec::with_capacity(marks.len());
            for (key, version) in marks {
                let known = table.get((number, *key))?;
                unknown.push(known.is_none_or(|known| known.value() != *version));
            }
            Ok(unknown)
        })
    }

    /// Writes marks of a scope, if that is still held.
    pub(crate) fn write(&self, scope: &Scope, number: u64, marks: &[Mark]) -> Result<(), redb::Error> {
        self.change(scope, number, |held, table| {
            for (key, version) in marks {
                held.count += u64::from(table.insert((number, *key), *version)?.is_none());
            }
            Ok(())
        })
    }

    /// All of the scope was listed: whatever has none of these keys is forgotten.
    pub(crate) fn complete(
        &self,
        scope: &Scope,
        number: u64,
        keys: &HashSet<u64>,
    ) -> Result<(), redb::Error> {
        let held = self.held(scope)?.filter(|held| held.number == number);
        let Some(held) = held else {
            return Ok(());
        };
        if held.count > keys.len() as u64 {
            let gone = self.with(|database| {
                let table = database.begin_read()?.open_table(MARKS)?;
                let mut gone = Vec::new();
                for mark in table.range((number, 0)..=(number, u128::MAX))? {
                    let (_, key) = mark?.0.value();
                    gone.extend((!keys.contains(&short(key))).then_some(key));
                }
                Ok(gone)
            })?;
            for batch in gone.chunks(BATCH) {
                self.change(scope, number, |held, table| {
                    for key in batch {
                        held.count -= u64::from(table.remove((number, *key))?.is_some());
                    }
                    Ok(())
                })?;
            }
        }
        if !held.complete {
            self.change(scope, number, |held, _| {
                held.complete = true;
                Ok(())
            })?;
        }
        Ok(())
    }

    fn change(
        &self,
        scope: &Scope,
        number: u64,
        act: impl FnOnce(&mut Held, &mut redb::Table<'_, (u64, u128), u128>) -> Result<(), redb::Error>,
    ) -> Result<(), redb::Error> {
        let id = self.id(scope);
        self.with(|database| {
            let transaction = database.begin_write()?;
            {
                let mut scopes = transaction.open_table(SCOPES)?;
                let held = scopes.get(id)?.map(|held| Held::of(held.value()));
                let Some(mut held) = held.filter(|held| held.number == number) else {
                    return Ok(());
                };
                act(&mut held, &mut transaction.open_table(MARKS)?)?;
                scopes.insert(id, held.row())?;
            }
            transaction.commit()?;
            Ok(())
        })
    }

    /// Forgets some marks of scopes that are not held; whether there may be more.
    pub(crate) fn tidy(&self) -> Result<bool, redb::Error> {
        self.with(|database| {
            let held: HashSet<_> = all(database)?.values().map(|held| held.number).collect();
            let mut doomed = Vec::new();
            {
                let table = database.begin_read()?.open_table(MARKS)?;
                let mut from = 0;
                while let Some(first) = table.range((from, 0)..)?.next() {
                    let (number, _) = first?.0.value();
                    if !held.contains(&number) {
                        for mark in table.range((number, 0)..=(number, u128::MAX))?.take(BATCH) {
                            doomed.push(mark?.0.value());
                        }
                        break;
                    }
                    let Some(next) = number.checked_add(1) else {
                        break;
                    };
                    from = next;
                }
            }
            if doomed.is_empty() {
                return Ok(false);
            }
            let transaction = database.begin_write()?;
            {
                let mut table = transaction.open_table(MARKS)?;
                for mark in doomed {
                    table.remove(mark)?;
                }
            }
            transaction.commit()?;
            Ok(true)
        })
    }
}

/// Enough of a key to tell it from those of one list.
pub(crate) fn short(key: u128) -> u64 {
    key as u64
}

fn all(database: &Database) -> Result<HashMap<u128, Held>, redb::Error> {
    let table = database.begin_read()?.open_table(SCOPES)?;
    let mut all = HashMap::new();
    for scope in table.iter()? {
        let (id, held) = scope?;
        all.insert(id.value(), Held::of(held.value()));
    }
    Ok(all)
}

fn open(path: &Path) -> Result<Database, redb::Error> {
    let database = tables::open_or_create(path, CACHE, |database| {
        let transaction = database.begin_write()?;
        transaction.open_table(SCOPES)?;
        transaction.open_table(MARKS)?;
        transaction.open_table(ABOUT)?.insert("format", FORMAT)?;
        Ok(transaction.commit()?)
    })?;
    let format = database.begin_read()?.open_table(ABOUT)?.get("format")?;
    match format.map(|format| format.value()) {
        Some(FORMAT) => Ok(database),
        found => Err(redb::Error::Corrupted(format!(
            "its format is {found:?}, of another version of Millpond"
        ))),
    }
}
