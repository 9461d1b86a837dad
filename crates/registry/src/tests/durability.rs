use super::*;
use contract::{Expect, StoreError};
use std::{
    fs,
    path::PathBuf,
    time::{Duration, SystemTime},
};

fn artefact(node: &Node, code: &str) -> PathBuf {
    let folders = fs::read_dir(node.data().join("artefacts")).unwrap();
    let path = folders
        .flatten()
        .map(|folder| folder.path().join(digest(code.as_bytes()).to_string()));
    path.into_iter().find(|path| path.exists()).unwrap()
}

fn overwrite(path: &Path, content: &str) {
    fs::remove_file(path).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn a_restart_serves_the_same_without_compiling() {
    let mut node = Node::new();
    let text = format!("{SHOP}protocol = \"cgi\"\n[[trigger.http]]\nfunction = \"resize\"\npath = \"/r\"\n");
    node.deploy(&text, &[("resize", "one")]).unwrap();
    node.deploy(&text, &[("resize", "two")]).unwrap();
    node.registry()
        .set_alias(&parse("resize"), &name("old"), v(1))
        .unwrap();
    // As values: a snapshot keeps the store open.
    let seen = |node: &Node| {
        let snapshot = node.registry().snapshot();
        let version = snapshot.version(&parse("resize")).unwrap();
        (
            format!("{snapshot:?}"),
            version.settings.clone(),
            version.created,
            version.code_size,
        )
    };
    let before = seen(&node);
    node.open().unwrap();
    assert_eq!(seen(&node), before);
    assert_eq!(node.runs("resize"), "two");
    assert_eq!(node.runs("resize:old"), "one");
    assert_eq!(node.engine.compiled.load(Ordering::SeqCst), 0);
    assert!(node.deploy(&text, &[("resize", "two")]).unwrap().is_unchanged());
}

#[test]
fn a_new_engine_compiles_anew_and_the_old_artefacts_go() {
    let mut node = Node::new();
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    let old = artefact(&node, "one");
    node.engine = Arc::new(TinyEngine {
        fingerprint: "another version".to_owned(),
        ..TinyEngine::default()
    });
    node.open().unwrap();
    assert_eq!(node.runs("resize"), "one");
    assert_eq!(node.engine.compiled.load(Ordering::SeqCst), 1);
    assert!(!old.exists());
}

#[test]
fn the_same_code_is_compiled_apart_as_a_pure_function() {
    let mut node = Node::new();
    let pure = format!("{SHOP}protocol = \"pure\"\n");
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    node.deploy(&pure, &[("resize", "one")]).unwrap();
    assert_eq!(node.engine.compiled.load(Ordering::SeqCst), 2);
    // Both are found again.
    node.open().unwrap();
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    node.deploy(&pure, &[("resize", "one")]).unwrap();
    assert_eq!(node.engine.compiled.load(Ordering::SeqCst), 0);
}

#[test]
fn damaged_artefacts_are_never_mapped_but_made_anew() {
    let mut node = Node::new();
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    let path = artefact(&node, "one");
    // What it is replaced by would load: only its digest tells.
    for damage in ["compiled from evil", "", "gone"] {
        node.registry = None;
        overwrite(&path, damage);
        if damage == "gone" {
            fs::remove_file(&path).unwrap();
        }
        node.open().unwrap();
        assert_eq!(node.runs("resize"), "one");
        assert_eq!(node.engine.compiled.load(Ordering::SeqCst), 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), "compiled from one");
    }
}

#[test]
fn damaged_code_is_not_compiled() {
    let mut node = Node::new();
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    node.registry = None;
    let code = node.data().join(format!("code/{}.wasm", digest(b"one")));
    overwrite(&code, "evil");
    fs::remove_file(artefact(&node, "one")).unwrap();
    node.open().unwrap();
    let error = node
        .registry()
        .snapshot()
        .version(&parse("resize"))
        .unwrap()
        .image()
        .err()
        .unwrap();
    assert_eq!(error.problem().status, 503, "{error}");
    assert!(!code.exists(), "it can be uploaded again");
    assert_eq!(node.engine.compiled.load(Ordering::SeqCst), 0);
    node.put("one");
    node.open().unwrap();
    assert_eq!(node.runs("resize"), "one");
}

#[test]
fn a_damaged_record_is_named() {
    let mut node = Node::new();
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    node.registry = None;
    let change = |act: &dyn Fn(&Embedded) -> Result<contract::Revision, StoreError>| {
        act(&Embedded::open(&node.folder.path().join("store.redb")).unwrap()).unwrap();
    };
    change(&|store| store.delete("version/shop/resize/1", Expect::Any));
    let error = node.open().unwrap_err().to_string();
    assert!(
        error.contains("application/shop") && error.contains("version 1 of `resize`"),
        "{error}"
    );
}

#[test]
fn litter_is_collected() {
    let mut node = Node::new();
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    node.put("fresh");
    node.put("stale");
    let old = SystemTime::now() - Duration::from_secs(48 * 60 * 60);
    for code in ["one", "stale"] {
        let path = node.data().join(format!("code/{}.wasm", digest(code.as_bytes())));
        fs::File::open(path).unwrap().set_modified(old).unwrap();
    }
    node.registry = None;
    fs::write(node.data().join("code/.draft-123"), "half an upl").unwrap();
    fs::write(artefact(&node, "one").with_file_name(".draft-4"), "half an artef").unwrap();
    let store = Embedded::open(&node.data().join("store.redb")).unwrap();
    store.put("version/shop/resize/7", b"{}", Expect::Absent).unwrap();
    store
        .put("artefact/wasmtime/0123456789abcdef/00", b"{}", Expect::Absent)
        .unwrap();
    drop(store);
    node.open().unwrap();
    node.registry = None;

    let names = |folder: &Path| {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let mut kept = ["one", "fresh"].map(|code| format!("{}.wasm", digest(code.as_bytes())));
    kept.sort();
    assert_eq!(names(&node.data().join("code")), kept);
    assert_eq!(
        names(artefact(&node, "one").parent().unwrap()),
        [digest(b"one").to_string()]
    );
    let store = Embedded::open(&node.data().join("store.redb")).unwrap();
    let keys: Vec<_> = store
        .list("")
        .unwrap()
        .into_iter()
        .map(|entry| entry.key)
        .collect();
    assert!(
        keys.iter()
            .all(|key| !key.ends_with("/7") && !key.contains("0123456789abcdef")),
        "{keys:?}"
    );
    assert_eq!(keys.len(), 4, "{keys:?}");
}
