//! Tables in one file of redb, which is whole or is not there.

use redb::{Database, Error};
use std::{
    any::Any,
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

/// Opens the file, and makes it if there is none: `fill` puts in what a new one holds, and only then does it get its name, so that a crash
/// leaves no half-made one. `cache` bytes of it are kept in memory.
///
/// # Errors
/// Those of redb. [`Error::DatabaseAlreadyOpen`] where another process has it.
pub fn open_or_create(
    path: &Path,
    cache: usize,
    fill: impl FnOnce(&Database) -> Result<(), Error>,
) -> Result<Database, Error> {
    let mut builder = Database::builder();
    builder.set_cache_size(cache);
    let draft = path.with_added_extension("new");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    if path.try_exists()? {
        return Ok(builder.open(path)?);
    }
    let file = fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&draft)?;
    let database = builder.create_file(file)?;
    fill(&database)?;
    // A link, unlike a rename, never replaces a file that another process made meanwhile.
    fs::hard_link(&draft, path)?;
    fs::remove_file(&draft)?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(database)
}

/// Does this, where redb may assert its way out of a damaged file: [`Error::Corrupted`], with what it said.
///
/// # Errors
/// Those of `act`, too.
pub fn guarded<T>(act: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(Error::Corrupted(reason(&*panic))))
}

fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("it cannot be read")
        .to_owned()
}

/// Lets go of a file after a failure of its disk: redb refuses all work on it until it is opened again, and tries to write when it goes, which
/// fails again.
pub fn abandon(database: Option<Database>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::{ReadableDatabase, TableDefinition};

    const TABLE: TableDefinition<'_, u8, u8> = TableDefinition::new("table");

    fn fill(database: &Database) -> Result<(), Error> {
        let transaction = database.begin_write()?;
        transaction.open_table(TABLE)?.insert(1, 2)?;
        Ok(transaction.commit()?)
    }

    fn open(path: &Path) -> Result<Database, Error> {
        guarded(|| open_or_create(path, 1 << 20, fill))
    }

    #[test]
    fn a_file_is_filled_once_and_a_draft_that_was_left_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.redb");
        let draft = folder.path().join("x.redb.new");
        fs::write(&draft, "half of one").unwrap();
        let refused = |_: &Database| Err(Error::Corrupted("not filled".to_owned()));
        assert!(open_or_create(&path, 1 << 20, refused).is_err());
        assert!(!path.exists(), "what is not filled has no name");
        drop(open(&path).unwrap());
        assert!(path.exists() && !draft.exists());
        let again = open_or_create(&path, 1 << 20, |_| panic!("it is filled already")).unwrap();
        let table = again.begin_read().unwrap().open_table(TABLE).unwrap();
        assert_eq!(table.get(1).unwrap().unwrap().value(), 2);
        assert!(matches!(open(&path), Err(Error::DatabaseAlreadyOpen)));
    }

    #[test]
    fn damage_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.redb");
        drop(open(&path).unwrap());
        let whole = fs::read(&path).unwrap();
        for cut in [0, 1, 100, whole.len() / 2] {
            fs::write(&path, &whole[..cut]).unwrap();
            assert!(open(&path).is_err(), "{cut} bytes");
        }
        let said = guarded::<()>(|| panic!("page {}", 7));
        assert!(matches!(said, Err(Error::Corrupted(reason)) if reason == "page 7"));
        assert!(guarded::<()>(|| std::panic::panic_any(7)).is_err());
    }
}
