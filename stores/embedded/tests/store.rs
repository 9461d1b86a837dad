//! The conformance suite, and what a file that is not a store's leads to.

use contract::{Expect, Log, Position, Store};
use rand::{Rng, RngExt, SeedableRng};
use redb::TableHandle;
use std::{fs, path::PathBuf, sync::Arc};
use store_embedded::{Embedded, OpenError};

fn store_in(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("store.redb")
}

fn open_error(path: &std::path::Path) -> OpenError {
    match Embedded::open(path) {
        Ok(_) => panic!("{} must not open", path.display()),
        Err(error) => error,
    }
}

#[test]
fn conforms() {
    let folder = tempfile::tempdir().unwrap();
    let path = store_in(&folder);
    contract::conformance::store::run(&mut || Arc::new(Embedded::open(&path).unwrap()));
}

#[test]
fn logs_conform() {
    let folder = tempfile::tempdir().unwrap();
    let path = store_in(&folder);
    contract::conformance::log::run(&mut || Arc::new(Embedded::open(&path).unwrap()));
}

#[test]
fn logs_and_keys_of_one_name_are_apart() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(&store_in(&folder)).unwrap();
    store.append("same", vec![b"record".to_vec()]).unwrap();
    assert!(store.list("").unwrap().is_empty());
    store.put("same", b"value", Expect::Absent).unwrap();
    assert_eq!(store.read("same", Position(0), 9).unwrap()[0].data, b"record");
}

/// A file from before there were logs gets them, and keeps what it has.
#[test]
fn a_store_without_logs_gets_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = store_in(&folder);
    let store = Embedded::open(&path).unwrap();
    store.put("kept", b"x", Expect::Any).unwrap();
    drop(store);
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    for table in ["records", "logs"] {
        let tables: Vec<_> = transaction.list_tables().unwrap().collect();
        let found = tables.into_iter().find(|handle| handle.name() == table).unwrap();
        assert!(transaction.delete_table(found).unwrap());
    }
    transaction.commit().unwrap();
    drop(database);

    let store = Embedded::open(&path).unwrap();
    assert_eq!(store.append("log", vec![vec![1]]).unwrap(), Position(0));
    assert!(store.get("kept").unwrap().is_some());
}

/// What calls back may hold the store itself, and be the last to do so.
#[test]
fn a_callback_may_be_the_last_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = store_in(&folder);
    let store = Arc::new(Embedded::open(&path).unwrap());
    let (ended, end) = std::sync::mpsc::channel();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let owner = Arc::clone(&store);
    let done = Box::new(move |result: contract::Appended| {
        gate.recv().unwrap();
        drop(owner);
        ended.send(result.is_ok()).unwrap();
    });
    store.append_then("log", vec![vec![1]], done).unwrap();
    drop(store);
    go.send(()).unwrap();
    assert_eq!(end.recv_timeout(std::time::Duration::from_secs(60)), Ok(true));
}

#[test]
fn a_store_has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = store_in(&folder);
    let store = Embedded::open(&path).unwrap();
    let error = open_error(&path);
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("in use by another process"), "{error}");
    drop(store);
    Embedded::open(&path).unwrap();
}

#[test]
fn a_draft_that_a_crash_left_is_no_obstacle() {
    let folder = tempfile::tempdir().unwrap();
    let path = store_in(&folder);
    let draft = folder.path().join("store.redb.new");
    fs::write(&draft, b"half a st").unwrap();
    drop(Embedded::open(&path).unwrap());
    // A crash between the link and the removal.
    fs::hard_link(&path, &draft).unwrap();
    drop(Embedded::open(&path).unwrap());
    assert!(!draft.exists() && path.exists());
}

#[test]
fn what_cannot_be_a_store_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = store_in(&folder);
    for content in [&b""[..], b"x", &[0; 4096], &[0xff; 100_000]] {
        fs::write(&path, content).unwrap();
        let error = open_error(&path);
        assert!(
            matches!(error, OpenError::Corrupt { .. }),
            "{} bytes: {error}",
            content.len()
        );
        assert!(error.to_string().contains("damaged"), "{error}");
    }
    let error = open_error(&folder.path().join("no/such/folder/store.redb"));
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = open_error(&path);
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

/// Whatever is done to the file, opening and reading it ends in a store or an error, never in a panic of the caller.
#[test]
fn a_damaged_store_does_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = store_in(&folder);
    let store = Embedded::open(&path).unwrap();
    for i in 0..20 {
        store.put(&format!("key/{i}"), &[i; 500], Expect::Any).unwrap();
    }
    drop(store);
    let good = fs::read(&path).unwrap();
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    let mut refused = 0;
    for round in 0..60 {
        let mut bad = good.clone();
        match round % 3 {
            0 => bad.truncate(random.random_range(1..good.len())),
            1 => {
                let start = random.random_range(0..good.len() - 64);
                random.fill_bytes(&mut bad[start..start + 64]);
            }
            _ => {
                for _ in 0..8 {
                    let at = random.random_range(0..8192);
                    bad[at] ^= 1 << random.random_range(0..8);
                }
            }
        }
        fs::write(&path, &bad).unwrap();
        match Embedded::open(&path) {
            Ok(store) => drop((store.list(""), store.get("key/1"))),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 0);
}
