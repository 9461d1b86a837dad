//! Pieces belong to one function.

use super::*;
use crate::images::WORTH_KEEPING;
use std::{fs, path::PathBuf};

const CROP: &str = "[application]\nname = \"photo\"\n[function.crop]\nsource = \"crop.wasm\"\n";

fn large(code: &str) -> String {
    code.to_owned() + &" ".repeat(WORTH_KEEPING)
}

impl Node {
    fn large(&self, text: &str, function: &str, code: &str) {
        self.deploy(text, &[(function, &large(code))]).unwrap();
    }

    fn compiled(&self) -> (usize, usize) {
        let of = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        (of(&self.engine.compiled), of(&self.engine.with_pieces))
    }

    /// The folders of functions.
    fn folders(&self) -> Vec<PathBuf> {
        let engines = fs::read_dir(self.data().join("pieces")).unwrap().flatten();
        let mut folders: Vec<_> = engines
            .flat_map(|engine| fs::read_dir(engine.path()).unwrap().flatten())
            .map(|folder| folder.path())
            .collect();
        folders.sort();
        folders
    }
}

#[test]
fn large_code_leaves_pieces_to_the_next_of_the_same_function() {
    let node = Node::new();
    node.large(SHOP, "resize", "one");
    assert_eq!(node.compiled(), (1, 0));
    node.large(SHOP, "resize", "two");
    assert_eq!(node.compiled(), (2, 1));
    node.large(CROP, "crop", "three");
    assert_eq!(node.compiled(), (3, 1), "another function begins without");
    assert_eq!(node.folders().len(), 2);
}

#[test]
fn small_code_leaves_none() {
    let node = Node::new();
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    assert!(node.folders().is_empty());
}

#[test]
fn what_was_compiled_with_pieces_is_nobody_elses() {
    let mut node = Node::new();
    node.large(SHOP, "resize", "one");
    node.large(CROP, "crop", "one");
    assert_eq!(node.compiled(), (1, 0), "what was compiled without serves all");
    node.large(SHOP, "resize", "two");
    node.large(CROP, "crop", "two");
    assert_eq!(node.compiled().0, 3);
    assert_eq!(node.runs("crop"), large("two"));
    // Neither is compiled again when they are loaded.
    node.open().unwrap();
    assert_eq!(node.runs("resize"), large("two"));
    assert_eq!(node.runs("crop"), large("two"));
    assert_eq!(node.compiled(), (0, 0));
}

#[test]
fn pieces_go_with_their_function() {
    let mut node = Node::new();
    for code in ["one", "two"] {
        node.large(SHOP, "resize", code);
        node.large(CROP, "crop", code);
    }
    node.registry().delete_function(&parse("resize")).unwrap();
    let [left] = &*node.folders() else {
        panic!("{:?}", node.folders())
    };
    assert!(left.ends_with("photo.crop"));
    // A function of the same name is another one.
    let (compiled, with_pieces) = node.compiled();
    node.large(SHOP, "resize", "three");
    assert_eq!(node.compiled(), (compiled + 1, with_pieces));
    node.registry().delete_application(&name("photo")).unwrap();
    assert_eq!(node.folders().len(), 1);
    // As after a crash between the two.
    fs::create_dir(node.folders()[0].with_file_name("photo.crop")).unwrap();
    node.open().unwrap();
    assert_eq!(node.folders().len(), 1);
}

#[test]
fn pieces_go_with_the_fingerprint() {
    let mut node = Node::new();
    node.large(SHOP, "resize", "one");
    node.large(SHOP, "resize", "two");
    node.engine = Arc::new(TinyEngine {
        fingerprint: "another version".to_owned(),
        ..TinyEngine::default()
    });
    node.open().unwrap();
    assert_eq!(node.runs("resize"), large("two"));
    assert_eq!(node.compiled(), (1, 0));
    assert_eq!(node.folders().len(), 1);
}

#[test]
fn a_damaged_own_artefact_is_made_anew() {
    let mut node = Node::new();
    node.large(SHOP, "resize", "one");
    node.large(SHOP, "resize", "two");
    let path = node.folders()[0].join(digest(large("two").as_bytes()).to_string());
    for gone in [false, true] {
        node.registry = None;
        fs::remove_file(&path).unwrap();
        if !gone {
            fs::write(&path, "compiled from evil").unwrap();
        }
        node.open().unwrap();
        assert_eq!(node.runs("resize"), large("two"));
        assert_eq!(node.compiled(), (1, 1));
    }
}

#[test]
fn a_function_may_be_deleted_while_it_is_compiled() {
    let node = Node::new();
    node.large(SHOP, "resize", "one");
    // Its engine does what a deletion does.
    node.large(SHOP, "resize", "deleted meanwhile");
    assert_eq!(node.runs("resize"), large("deleted meanwhile"));
}
