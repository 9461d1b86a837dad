//! Folders of objects: what a start finds, and what it refuses.

mod common;

use common::{Server, data, started};
use std::path::Path;
use store_objects::{Error, Objects, Options};

#[test]
fn a_start_collects_what_nobody_knows() {
    let (folder, server) = started();
    server.client.put("/pond/a", &data(1, 100_000));
    drop(server);
    let litter = folder.path().join("objects/0/1/01000000000000000000000000000000");
    std::fs::write(&litter, b"a draft").unwrap();
    let foreign = folder.path().join("objects/0/1/notes.txt");
    std::fs::write(&foreign, b"not ours").unwrap();
    let server = Server::start(folder.path(), Options::default());
    assert!(!litter.exists() && foreign.exists());
    assert!(server.client.get("/pond/a").body == data(1, 100_000));
}

fn refused(folder: &Path) -> Error {
    match Objects::open(folder, Options::default()) {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

#[test]
fn folders_that_cannot_be_served_are_said() {
    let (folder, server) = started();
    server.client.put("/pond/a", b"x");
    let error = refused(folder.path());
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    drop(server);
    let index = folder.path().join("index.redb");
    let whole = std::fs::read(&index).unwrap();
    for damage in [
        b"".to_vec(),
        b"nonsense".to_vec(),
        vec![0; whole.len()],
        whole[..whole.len() / 3].to_vec(),
    ] {
        std::fs::write(&index, damage).unwrap();
        let error = refused(folder.path());
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }
    std::fs::write(&index, whole).unwrap();
    Objects::open(folder.path(), Options::default()).unwrap();
    let error = refused(&index);
    assert!(matches!(error, Error::Folder { .. }), "{error}");
}

/// A file that is gone is an error of ours and no empty answer; an object beside it is served.
#[test]
fn lost_data_is_said() {
    let (folder, server) = started();
    server.client.put("/pond/a", &data(1, 100_000));
    server.client.put("/pond/b", b"here");
    for outer in std::fs::read_dir(folder.path().join("objects")).unwrap() {
        for inner in std::fs::read_dir(outer.unwrap().path()).unwrap() {
            for file in std::fs::read_dir(inner.unwrap().path()).unwrap() {
                std::fs::remove_file(file.unwrap().path()).unwrap();
            }
        }
    }
    assert_eq!(server.client.get("/pond/a").status, 500);
    assert_eq!(server.client.get("/pond/b").body, b"here");
}
