//! Histories of versions, over the real store.

use super::*;
use contract::Expect;
use std::time::Duration;
use telemetry::metrics::Metrics;

fn node() -> Node {
    Node::with(Options {
        metrics: Some(Arc::new(Metrics::new(1))),
        keep: 2,
        ..Options::default()
    })
}

fn version(node: &Node, reference: &str) -> Arc<Version> {
    let snapshot = node.registry().snapshot();
    Arc::clone(snapshot.version(&parse(reference)).unwrap())
}

fn record(node: &Node, reference: &str, run: Duration) {
    ran(&version(node, reference), run);
}

fn estimate(node: &Node, reference: &str) -> Duration {
    version(node, reference).usage.recorder().estimate().run
}

fn written(node: &Node) -> Vec<String> {
    let entries = node.registry().store.list("usage/").unwrap();
    entries.into_iter().map(|entry| entry.key).collect()
}

const MILLI: Duration = Duration::from_millis(1);

#[test]
fn a_history_survives_a_restart_and_goes_with_its_version() {
    let mut node = node();
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    record(&node, "resize", 9 * MILLI);
    assert_eq!(version(&node, "resize").history().requests, 1);
    node.registry().learn().unwrap();
    // What came since the last time is lost without an end in order, and no more.
    record(&node, "resize", 9 * MILLI);
    node.open().unwrap();
    assert_eq!(version(&node, "resize").history().requests, 1);
    assert_eq!(estimate(&node, "resize"), 9 * MILLI);
    record(&node, "resize", 9 * MILLI);
    node.registry().learn_last(Duration::MAX).unwrap();
    node.open().unwrap();
    assert_eq!(version(&node, "resize").history().requests, 2);

    // The new version starts from what its predecessor took, without its history; that stays with the old one.
    node.deploy(SHOP, &[("resize", "two")]).unwrap();
    assert_eq!(estimate(&node, "resize"), 9 * MILLI);
    assert_eq!(version(&node, "resize").history().requests, 0);
    assert_eq!(version(&node, "resize:1").history().requests, 2);
    node.open().unwrap();
    assert_eq!(estimate(&node, "resize"), 9 * MILLI, "after a restart, too");
    let slow = "[application]\nname = \"other\"\n[function.new]\nsource = \"x.wasm\"\n";
    node.deploy(slow, &[("new", "one")]).unwrap();
    assert_eq!(
        estimate(&node, "new"),
        Duration::ZERO,
        "who has no predecessor knows nothing"
    );

    record(&node, "resize", 5 * MILLI);
    node.registry().learn_last(Duration::MAX).unwrap();
    assert_eq!(written(&node), ["usage/shop/resize/1", "usage/shop/resize/2"]);
    // Version 1 falls off the end, then the function goes.
    node.deploy(SHOP, &[("resize", "three")]).unwrap();
    assert_eq!(written(&node), ["usage/shop/resize/2"]);
    node.registry().delete_function(&parse("shop.resize")).unwrap();
    assert!(written(&node).is_empty());
}

#[test]
fn one_write_at_a_time_and_each_in_its_turn() {
    let mut node = node();
    let functions: String = (0..5)
        .map(|n| format!("[function.f{n}]\nsource = \"x.wasm\"\n"))
        .collect();
    let code: Vec<_> = (0..5).map(|n| format!("f{n}")).collect();
    let code: Vec<_> = code.iter().map(|name| (&name[..], "one")).collect();
    node.deploy(&format!("[application]\nname = \"shop\"\n{functions}"), &code)
        .unwrap();
    for (name, _) in &code {
        record(&node, name, MILLI);
    }
    for done in 1..=5 {
        node.registry().learn().unwrap();
        assert_eq!(written(&node).len(), done);
    }
    // Each has been written a moment ago, and waits.
    for (name, _) in &code {
        record(&node, name, MILLI);
    }
    node.registry().learn().unwrap();
    node.registry().learn_last(Duration::ZERO).unwrap();
    node.open().unwrap();
    assert_eq!(version(&node, "f0").history().requests, 1);
}

#[test]
fn a_history_that_cannot_be_read_begins_anew() {
    let mut node = node();
    node.deploy(SHOP, &[("resize", "one")]).unwrap();
    record(&node, "resize", MILLI);
    node.registry().learn().unwrap();
    // And one of a version that there is not.
    for (number, record) in [(1, &b"{\"updated\":\"never\"}"[..]), (77, b"{}")] {
        let key = format!("usage/shop/resize/{number}");
        node.registry().store.put(&key, record, Expect::Any).unwrap();
    }
    node.open().unwrap();
    assert_eq!(node.runs("resize"), "one");
    assert_eq!(version(&node, "resize").history().requests, 0);
    assert_eq!(
        written(&node),
        ["usage/shop/resize/1"],
        "what belongs to no version is litter"
    );
}
