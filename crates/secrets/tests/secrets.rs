//! What is set is kept, found by those who mean it, and shown to nobody.

use contract::{ApplicationId, SecretName};
use millpond_secrets::{LONGEST, SecretId, Secrets, Value, ValueError, Values};
use proptest::prelude::*;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};
use zeroize::Zeroizing;

fn value(text: &str) -> Value {
    checked(text.as_bytes()).unwrap()
}

fn checked(bytes: &[u8]) -> Result<Value, ValueError> {
    Value::new(Zeroizing::new(bytes.to_vec()))
}

fn id(text: &str) -> SecretId {
    let (application, name) = match text.split_once('.') {
        Some((application, name)) => (Some(application.parse().unwrap()), name),
        None => (None, text),
    };
    let name = name.parse().unwrap();
    SecretId { application, name }
}

fn names(application: &str, name: &str) -> (ApplicationId, SecretName) {
    (application.parse().unwrap(), name.parse().unwrap())
}

/// What is read in this folder.
fn found(folder: &Path, application: &str, name: &str) -> Option<String> {
    let (application, name) = names(application, name);
    let value = Values::of(folder.to_owned())
        .value(&application, &name)
        .unwrap()?;
    Some(String::from_utf8(value.expose().to_vec()).unwrap())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn an_applications_own_goes_before_the_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secrets");
    assert_eq!(found(&path, "shop", "KEY"), None);
    let secrets = Secrets::open(&path).unwrap();
    assert_eq!(found(&path, "shop", "KEY"), None);
    secrets.set(&id("KEY"), value("the node's")).unwrap();
    secrets.set(&id("shop.KEY"), value("the shop's")).unwrap();
    assert_eq!(found(&path, "shop", "KEY").unwrap(), "the shop's");
    assert_eq!(found(&path, "other", "KEY").unwrap(), "the node's");
    assert_eq!(found(&path, "shop", "key"), None, "names have cases");
    let (shop, key) = names("shop", "KEY");
    assert_eq!(secrets.meant(&shop, &key), Some(id("shop.KEY")));

    assert!(secrets.delete(&id("shop.KEY")).unwrap());
    assert!(!secrets.delete(&id("shop.KEY")).unwrap());
    assert_eq!(secrets.meant(&shop, &key), Some(id("KEY")));
    assert_eq!(found(&path, "shop", "KEY").unwrap(), "the node's");
    assert!(secrets.delete(&id("KEY")).unwrap());
    assert_eq!(secrets.meant(&shop, &key), None);
}

#[test]
fn what_was_set_last_is_there_after_a_restart_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/secrets");
    let secrets = Secrets::open(&path).unwrap();
    secrets.set(&id("A"), value("one")).unwrap();
    let set = secrets.set(&id("A"), value("two")).unwrap();
    secrets.set(&id("shop.B"), value("three")).unwrap();
    secrets.set(&id("GONE"), value("four")).unwrap();
    secrets.delete(&id("GONE")).unwrap();
    let before = secrets.list();
    drop(secrets);
    // What an interrupted write leaves, and what is somebody else's.
    fs::write(path.join(".draft-x1"), "half").unwrap();
    fs::write(path.join("not a secret"), "x").unwrap();

    let secrets = Secrets::open(&path).unwrap();
    assert_eq!(found(&path, "shop", "A").unwrap(), "two");
    assert_eq!(found(&path, "shop", "B").unwrap(), "three");
    assert_eq!(found(&path, "shop", "GONE"), None);
    assert_eq!(secrets.list(), before);
    assert!(before.contains(&(id("A"), set)));
    assert!(!path.join(".draft-x1").exists());
    assert!(path.join("not a secret").exists());
}

#[test]
fn files_are_their_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secrets");
    let secrets = Secrets::open(&path).unwrap();
    secrets.set(&id("A"), value("one")).unwrap();
    assert_eq!((mode(&path), mode(&path.join("A"))), (0o700, 0o600));
    drop(secrets);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(path.join("A"), fs::Permissions::from_mode(0o644)).unwrap();
    let secrets = Secrets::open(&path).unwrap();
    assert_eq!((mode(&path), mode(&path.join("A"))), (0o700, 0o600));
    secrets.set(&id("A"), value("two")).unwrap();
    assert_eq!(mode(&path.join("A")), 0o600);
}

#[test]
fn what_cannot_be_written_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secrets");
    let secrets = Secrets::open(&path).unwrap();
    secrets.set(&id("A"), value("one")).unwrap();
    let before = secrets.list();
    // A folder in the place of the file: it can be neither replaced nor removed as one.
    fs::remove_file(path.join("A")).unwrap();
    fs::create_dir(path.join("A")).unwrap();
    let error = secrets.set(&id("A"), value("hidden")).unwrap_err().to_string();
    assert!(error.contains("/A") && !error.contains("hidden"), "{error}");
    assert!(secrets.delete(&id("A")).is_err());
    assert_eq!(secrets.list(), before);
    let left: Vec<_> = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["A"], "the draft is gone");
}

#[test]
fn a_file_that_is_no_value_is_named_whoever_meets_it() {
    for unfit in ["", &"x".repeat(LONGEST + 1)] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("BROKEN"), unfit).unwrap();
        let error = Secrets::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("BROKEN"), "{error}");
    }
    // What is in it only its reader sees.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("BROKEN"), "hidden\r\nx: y").unwrap();
    Secrets::open(folder.path()).unwrap();
    let (shop, name) = names("shop", "BROKEN");
    let error = Values::of(folder.path().to_owned()).value(&shop, &name);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("BROKEN") && !error.contains("hidden"), "{error}");
}

#[test]
fn values_are_what_can_stand_in_a_header() {
    for good in [&b"k"[..], b"a b\tc", "\u{e9}".as_bytes(), &[b'a'; LONGEST]] {
        assert!(checked(good).is_ok(), "{good:?}");
    }
    for (bad, error) in [
        (&b""[..], ValueError::Empty),
        (b"a\n", ValueError::Control),
        (b"a\r\nHost: b", ValueError::Control),
        (b"a\0", ValueError::Control),
        (b"\x7f", ValueError::Control),
        (b" a", ValueError::Blank),
        (b"a\t", ValueError::Blank),
        (&[b'a'; LONGEST + 1], ValueError::Long),
    ] {
        assert_eq!(checked(bad).unwrap_err(), error, "{bad:?}");
    }
}

#[test]
fn nothing_shows_a_value() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = Secrets::open(folder.path()).unwrap();
    secrets.set(&id("shop.KEY"), value("hidden")).unwrap();
    for shown in [
        format!("{secrets:?}"),
        format!("{secrets:#?}"),
        format!("{:?}", value("hidden")),
    ] {
        assert!(!shown.contains("hidden"), "{shown}");
    }
    assert!(format!("{secrets:?}").contains("KEY"));
}

proptest! {
    #[test]
    fn any_value_reads_back_as_it_was(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let folder = tempfile::tempdir().unwrap();
        if let Ok(good) = checked(&bytes) {
            Secrets::open(folder.path()).unwrap().set(&id("K"), good).unwrap();
            let (shop, key) = names("shop", "K");
            let value = Values::of(folder.path().to_owned()).value(&shop, &key).unwrap().unwrap();
            prop_assert_eq!(value.expose(), &bytes[..]);
        }
    }
}

#[test]
fn a_tenants_secrets_are_its_applications_own() {
    let folder = tempfile::tempdir().unwrap();
    let value = |text: &str| Value::new(text.as_bytes().to_vec().into()).unwrap();
    for reopened in [false, true] {
        let secrets = Secrets::open(folder.path()).unwrap();
        if !reopened {
            for (text, kept) in [
                ("KEY", "everybody's"),
                ("shop.KEY", "shop's"),
                ("acme/shop.KEY", "acme's"),
            ] {
                secrets.set(&id(text), value(kept)).unwrap();
            }
        }
        assert_eq!(found(folder.path(), "shop", "KEY").unwrap(), "shop's");
        assert_eq!(found(folder.path(), "other", "KEY").unwrap(), "everybody's");
        assert_eq!(found(folder.path(), "acme/shop", "KEY").unwrap(), "acme's");
        assert_eq!(found(folder.path(), "acme/other", "KEY"), None);
        assert_eq!(found(folder.path(), "rival/shop", "KEY"), None);
    }
}
