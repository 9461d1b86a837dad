//! The index: one file of redb. Reads run on the caller's thread against snapshots; changes are the [`crate::writer`]'s.
//!
//! | table | key | value |
//! |---|---|---|
//! | buckets | name | [`Bucket`](crate::record::Bucket) |
//! | objects | bucket, key | [`Record`] |
//! | contents | id | data of a small object, or an object's [`Layout`](crate::record::Layout) |
//! | uploads | bucket, key, upload | [`Upload`] |
//! | parts | upload, number | [`Part`] |
//! | outbox | number | [`Created`](crate::Created) |
//!
//! After a failure of its disk redb refuses all work until the file is opened again ([`redb::StorageError::PreviousIo`]),
//! so the writer does that; readers have no transaction open across calls, and wait.

use crate::{
    Error, fault,
    files::Id,
    record::{Layout, Part, Place, Record, Upload, decode},
};
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};
use s3s::S3Result;
use std::{
    collections::HashSet,
    ops::Bound,
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
};

pub(crate) const BUCKETS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("buckets");
pub(crate) const OBJECTS: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("objects");
pub(crate) const CONTENTS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("contents");
pub(crate) const UPLOADS: TableDefinition<'_, (&str, &str, &str), &[u8]> = TableDefinition::new("uploads");
pub(crate) const PARTS: TableDefinition<'_, (&str, u32), &[u8]> = TableDefinition::new("parts");
pub(crate) const OUTBOX: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("outbox");
/// Under `format` the version of all this, and what [`crate::outbox`] counts.
pub(crate) const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("about");
const FORMAT: u64 = 1;

/// The least text behind a bucket's name: no other name lies between them.
pub(crate) fn behind(bucket: &str) -> String {
    format!("{bucket}\0")
}

/// The index's file.
pub(crate) struct Index {
    path: PathBuf,
    /// Bytes of it that are kept in memory.
    cache: usize,
    /// `None` after a failure, until it could be opened again.
    database: RwLock<Option<Database>>,
}

impl Index {
    /// Opens the file, and makes it if there is none.
    pub(crate) fn open(path: &Path, cache: usize) -> Result<Self, Error> {
        let database = open(path, cache)?;
        Ok(Self {
            path: path.to_owned(),
            cache,
            database: RwLock::new(Some(database)),
        })
    }

    /// Opens the file anew after a failure.
    pub(crate) fn reopen(&self) -> Result<(), Error> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        tables::abandon(database.take());
        *database = Some(open(&self.path, self.cache)?);
        Ok(())
    }

    /// Acts on the database, if there is one now.
    pub(crate) fn with<T>(
        &self,
        act: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().ok_or(redb::Error::PreviousIo)?;
        tables::guarded(|| act(database))
    }

    /// Reads a snapshot.
    pub(crate) fn read<T>(
        &self,
        attempt: &str,
        act: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> S3Result<T> {
        self.with(|database| act(&database.begin_read()?))
            .map_err(|error| fault::index(attempt, &error))
    }

    /// Every file that an entry names.
    pub(crate) fn alive(&self) -> Result<HashSet<Id>, redb::Error> {
        self.with(|database| {
            let transaction = database.begin_read()?;
            let contents = transaction.open_table(CONTENTS)?;
            let mut alive = HashSet::new();
            for entry in transaction.open_table(OBJECTS)?.iter()? {
                let record: Record = decode(entry?.1.value())?;
                match record.place {
                    Place::File => drop(alive.insert(record.id)),
                    Place::Parts => {
                        alive.extend(layout(&contents, record.id)?.0.iter().map(|piece| piece.file))
                    }
                    Place::Nowhere | Place::Index => {}
                }
            }
            for entry in transaction.open_table(PARTS)?.iter()? {
                alive.insert(decode::<Part>(entry?.1.value())?.file);
            }
            Ok(alive)
        })
    }
}

fn open(path: &Path, cache: usize) -> Result<Database, Error> {
    let opened = tables::guarded(|| {
        let database = tables::open_or_create(path, cache, initialise)?;
        let format = format(&database)?;
        Ok((database, format))
    });
    match opened.map_err(|error| Error::of_index(path, error))? {
        (database, FORMAT) => Ok(database),
        (_, format) => Err(Error::Damaged {
            path: path.to_owned(),
            reason: format!("its format is {format}, and this program knows {FORMAT}"),
        }),
    }
}

fn initialise(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(BUCKETS)?;
    transaction.open_table(OBJECTS)?;
    transaction.open_table(CONTENTS)?;
    transaction.open_table(UPLOADS)?;
    transaction.open_table(PARTS)?;
    transaction.open_table(OUTBOX)?;
    transaction.open_table(ABOUT)?.insert("format", FORMAT)?;
    transaction.commit()?;
    Ok(())
}

fn format(database: &Database) -> Result<u64, redb::Error> {
    let table = database.begin_read()?.open_table(ABOUT)?;
    Ok(table.get("format")?.map_or(0, |format| format.value()))
}

pub(crate) fn layout(
    contents: &impl ReadableTable<u128, &'static [u8]>,
    id: Id,
) -> Result<Layout, redb::Error> {
    let layout = contents.get(id.0)?;
    let layout = layout.ok_or_else(|| redb::Error::Corrupted(format!("the index has no layout of {id}")))?;
    decode(layout.value())
}

/// An object's record, or why there is none.
pub(crate) fn record(
    transaction: &ReadTransaction,
    bucket: &str,
    key: &str,
) -> Result<S3Result<Record>, redb::Error> {
    if let Some(record) = transaction.open_table(OBJECTS)?.get((bucket, key))? {
        return Ok(Ok(decode(record.value())?));
    }
    Ok(Err(match is_bucket(transaction, bucket)? {
        true => fault::no_such_key(),
        false => fault::no_such_bucket(),
    }))
}

pub(crate) fn is_bucket(transaction: &ReadTransaction, bucket: &str) -> Result<bool, redb::Error> {
    Ok(transaction.open_table(BUCKETS)?.get(bucket)?.is_some())
}

/// An upload, or why there is none.
pub(crate) fn upload(
    transaction: &ReadTransaction,
    bucket: &str,
    key: &str,
    upload: &str,
) -> Result<S3Result<Upload>, redb::Error> {
    if let Some(upload) = transaction.open_table(UPLOADS)?.get((bucket, key, upload))? {
        return Ok(Ok(decode(upload.value())?));
    }
    Ok(Err(match is_bucket(transaction, bucket)? {
        true => fault::no_such_upload(),
        false => fault::no_such_bucket(),
    }))
}

/// Keys of a bucket from a bound on, with their records.
pub(crate) fn objects<'t>(
    table: &'t redb::ReadOnlyTable<(&'static str, &'static str), &'static [u8]>,
    bucket: &str,
    from: Bound<&str>,
) -> Result<impl Iterator<Item = Result<(String, Record), redb::Error>> + use<'t>, redb::Error> {
    let from = from.map(|key| (bucket, key));
    let from = match from {
        Bound::Unbounded => Bound::Included((bucket, "")),
        other => other,
    };
    let end = behind(bucket);
    let range = table.range::<(&str, &str)>((from, Bound::Excluded((end.as_str(), ""))))?;
    Ok(range.map(|entry| {
        let (key, record) = entry?;
        Ok((key.value().1.to_owned(), decode(record.value())?))
    }))
}
