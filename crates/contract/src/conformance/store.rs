//! The suite of [`crate::Store`].

use crate::{Change, Expect, Revision, Store, StoreError, Watch};
use std::{sync::Arc, thread, time::Duration};

/// Every part of the suite, on an empty store.
///
/// `open` opens the store over the same data each time; what it gave before has been dropped by then.
pub fn run(open: &mut dyn FnMut() -> Arc<dyn Store>) {
    values_read_back(&*open());
    expectations_decide(&*open());
    lists_are_ordered(&*open());
    rules_are_kept(&*open());
    watchers_see_changes_in_order(&*open());
    exactly_one_of_many_wins(&open());
    concurrent_changes_are_totally_ordered(&open());
    reopening_keeps_everything(open);
}

fn conflict(result: Result<Revision, StoreError>) -> Option<Revision> {
    match result {
        Err(StoreError::Conflict { found, .. }) => found,
        other => panic!("expected a conflict, got {other:?}"),
    }
}

fn put(store: &dyn Store, key: &str, value: &[u8]) -> Revision {
    store
        .put(key, value, Expect::Any)
        .unwrap_or_else(|error| panic!("put `{key}`: {error}"))
}

fn delete(store: &dyn Store, key: &str) -> Revision {
    store
        .delete(key, Expect::Any)
        .unwrap_or_else(|error| panic!("delete `{key}`: {error}"))
}

fn value(store: &dyn Store, key: &str) -> Option<Vec<u8>> {
    store
        .get(key)
        .unwrap_or_else(|error| panic!("get `{key}`: {error}"))
        .map(|entry| entry.value)
}

fn keys(store: &dyn Store, prefix: &str) -> Vec<String> {
    let entries = store
        .list(prefix)
        .unwrap_or_else(|error| panic!("list `{prefix}`: {error}"));
    entries.into_iter().map(|entry| entry.key).collect()
}

fn values_read_back(store: &dyn Store) {
    assert_eq!(value(store, "values/a"), None, "a new store is empty");
    let first = put(store, "values/a", b"one");
    assert!(first > Revision(0), "revision 0 means `never written`");
    let entry = store
        .get("values/a")
        .ok()
        .flatten()
        .unwrap_or_else(|| panic!("a value is there after its put"));
    assert_eq!(
        (entry.key.as_str(), entry.value.as_slice(), entry.revision),
        ("values/a", &b"one"[..], first)
    );

    let second = put(store, "values/a", b"");
    assert!(second > first, "revisions count up");
    assert_eq!(
        value(store, "values/a"),
        Some(Vec::new()),
        "an empty value is a value"
    );

    let binary: Vec<u8> = (0..=255).collect();
    put(store, "values/b", &binary);
    assert_eq!(value(store, "values/b"), Some(binary));

    let third = delete(store, "values/a");
    assert!(third > second, "a deletion has a revision");
    assert_eq!(value(store, "values/a"), None);
    assert!(
        store.delete("values/a", Expect::Any).is_ok(),
        "deleting an absent key succeeds"
    );
    assert!(
        put(store, "values/a", b"again") > third,
        "a revision is never used twice"
    );
}

fn expectations_decide(store: &dyn Store) {
    let key = "expect/a";
    assert_eq!(conflict(store.put(key, b"x", Expect::At(Revision(1)))), None);
    assert_eq!(conflict(store.delete(key, Expect::At(Revision(1)))), None);
    let first = store
        .put(key, b"one", Expect::Absent)
        .unwrap_or_else(|error| panic!("put of an absent key: {error}"));
    assert_eq!(conflict(store.put(key, b"x", Expect::Absent)), Some(first));
    assert_eq!(conflict(store.delete(key, Expect::Absent)), Some(first));
    let second = store
        .put(key, b"two", Expect::At(first))
        .unwrap_or_else(|error| panic!("put at its revision: {error}"));
    assert_eq!(conflict(store.put(key, b"x", Expect::At(first))), Some(second));
    assert_eq!(conflict(store.delete(key, Expect::At(first))), Some(second));
    assert_eq!(
        value(store, key),
        Some(b"two".to_vec()),
        "what was refused did not happen"
    );
    assert!(store.delete(key, Expect::At(second)).is_ok());
    assert_eq!(conflict(store.put(key, b"x", Expect::At(second))), None);
    assert!(
        store.put(key, b"three", Expect::Absent).is_ok(),
        "a deleted key is absent"
    );
}

fn lists_are_ordered(store: &dyn Store) {
    let unordered = [
        "list/b",
        "list/a/2",
        "list/a",
        "list/a-1",
        "list/a/10",
        "list.d",
        "list0",
        "lis",
    ];
    for key in unordered {
        put(store, key, key.as_bytes());
    }
    assert_eq!(
        keys(store, "list/"),
        ["list/a", "list/a-1", "list/a/10", "list/a/2", "list/b"],
        "in the order of bytes"
    );
    assert_eq!(keys(store, "list/a/"), ["list/a/10", "list/a/2"]);
    assert_eq!(keys(store, "list/b"), ["list/b"], "a key starts with itself");
    assert_eq!(keys(store, "list/c"), [""; 0]);
    let all = keys(store, "");
    assert!(
        all.is_sorted() && unordered.iter().all(|key| all.iter().any(|k| k == key)),
        "the empty prefix lists all"
    );
    for entry in store.list("list/").unwrap_or_default() {
        assert_eq!(
            store.get(&entry.key).ok().flatten().as_ref(),
            Some(&entry),
            "a list says what get says"
        );
    }
}

fn rules_are_kept(store: &dyn Store) {
    let longest = "k".repeat(512);
    let large = vec![7; 1 << 20];
    put(store, &longest, &large);
    assert_eq!(
        value(store, &longest).as_deref(),
        Some(&large[..]),
        "the longest key with the largest value"
    );
    delete(store, &longest);

    let invalid = |result: Result<(), StoreError>, what: &str| {
        assert!(
            matches!(result, Err(StoreError::Invalid { .. })),
            "{what} must be refused, got {result:?}"
        );
    };
    let too_long = "k".repeat(513);
    for key in ["", "A", "a b", "a:b", "é", "a\n", "a\0", too_long.as_str()] {
        invalid(store.put(key, b"x", Expect::Any).map(drop), "a put of a bad key");
        invalid(store.get(key).map(drop), "a get of a bad key");
        invalid(
            store.delete(key, Expect::Any).map(drop),
            "a deletion of a bad key",
        );
    }
    invalid(
        store
            .put("rules/a", &vec![0; (1 << 20) + 1], Expect::Any)
            .map(drop),
        "a value of more than 1 MiB",
    );
    assert_eq!(value(store, "rules/a"), None);
}

/// The next change, or a failure: nobody waits for ever for a change that does not come.
fn next(watch: &Watch) -> Change {
    watch
        .recv_timeout(Duration::from_secs(60))
        .unwrap_or_else(|error| panic!("a watcher was not told: {error}"))
}

fn watchers_see_changes_in_order(store: &dyn Store) {
    put(store, "watch/before", b"x");
    let watch = |prefix| {
        store
            .watch(prefix)
            .unwrap_or_else(|error| panic!("watch `{prefix}`: {error}"))
    };
    let (narrow, wide, dropped) = (watch("watch/a"), watch("watch/"), watch("watch/"));
    drop(dropped);
    let first = put(store, "watch/a", b"1");
    let second = put(store, "watch/b", b"2");
    let _ = conflict(store.put("watch/a", b"x", Expect::Absent));
    let third = delete(store, "watch/a");
    let _ = store.delete("watch/a", Expect::Any);
    put(store, "elsewhere", b"x");
    let fourth = put(store, "watch/a", b"4");

    let of = |key: &str, value: &[u8], revision| {
        Change::Put(crate::Entry {
            key: key.to_owned(),
            value: value.to_vec(),
            revision,
        })
    };
    let deleted = Change::Delete {
        key: "watch/a".to_owned(),
        revision: third,
    };
    for expected in [
        of("watch/a", b"1", first),
        of("watch/b", b"2", second),
        deleted.clone(),
        of("watch/a", b"4", fourth),
    ] {
        assert_eq!(next(&wide), expected);
    }
    for expected in [of("watch/a", b"1", first), deleted, of("watch/a", b"4", fourth)] {
        assert_eq!(next(&narrow), expected);
    }
    assert!(
        wide.try_recv().is_err() && narrow.try_recv().is_err(),
        "a change is told once, a change that was none never"
    );
}

fn on_threads<T: Send + 'static>(
    store: &Arc<dyn Store>,
    threads: usize,
    work: impl Fn(&dyn Store, usize) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let running: Vec<_> = (0..threads)
        .map(|thread| {
            let (store, work) = (Arc::clone(store), work.clone());
            thread::spawn(move || work(&*store, thread))
        })
        .collect();
    running
        .into_iter()
        .map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
        .collect()
}

fn exactly_one_of_many_wins(store: &Arc<dyn Store>) {
    const THREADS: usize = 8;
    let mut at = put(&**store, "race", b"start");
    for _ in 0..10 {
        let results = on_threads(store, THREADS, move |store, thread| {
            store.put("race", thread.to_string().as_bytes(), Expect::At(at))
        });
        let won: Vec<_> = results
            .iter()
            .enumerate()
            .filter_map(|(thread, result)| Some((thread, result.as_ref().ok()?)))
            .collect();
        assert_eq!(won.len(), 1, "exactly one wins: {results:?}");
        let (winner, revision) = won[0];
        let entry = store
            .get("race")
            .ok()
            .flatten()
            .unwrap_or_else(|| panic!("the winner's value is there"));
        assert_eq!(
            (entry.value, entry.revision),
            (winner.to_string().into_bytes(), *revision)
        );
        for result in results.into_iter().filter(Result::is_err) {
            assert_eq!(conflict(result), Some(entry.revision), "a loser learns who won");
        }
        at = entry.revision;
    }

    // A counter that everybody increments, trying again after each conflict, loses nothing.
    put(&**store, "counter", b"0");
    on_threads(store, THREADS, |store, _| {
        for _ in 0..10 {
            loop {
                let entry = store
                    .get("counter")
                    .ok()
                    .flatten()
                    .unwrap_or_else(|| panic!("the counter is there"));
                let count: u64 = String::from_utf8_lossy(&entry.value)
                    .parse()
                    .unwrap_or_else(|_| panic!("a number is there"));
                match store.put(
                    "counter",
                    (count + 1).to_string().as_bytes(),
                    Expect::At(entry.revision),
                ) {
                    Ok(_) => break,
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => panic!("increment: {error}"),
                }
            }
        }
    });
    assert_eq!(value(&**store, "counter"), Some(b"80".to_vec()));
}

fn concurrent_changes_are_totally_ordered(store: &Arc<dyn Store>) {
    let watch = store
        .watch("order/")
        .unwrap_or_else(|error| panic!("watch: {error}"));
    let acknowledged = on_threads(store, 8, |store, thread| {
        (0..20)
            .map(|i| {
                let key = format!("order/{thread}/{i}");
                let revision = put(store, &key, b"x");
                assert!(value(store, &key).is_some(), "a get after a put sees it");
                (revision, key)
            })
            .collect::<Vec<_>>()
    });
    for one in &acknowledged {
        assert!(
            one.is_sorted_by(|a, b| a.0 < b.0),
            "one thread's changes are in its order"
        );
    }
    let mut acknowledged: Vec<_> = acknowledged.into_iter().flatten().collect();
    acknowledged.sort();
    assert!(
        acknowledged.is_sorted_by(|a, b| a.0 < b.0),
        "no revision is used twice"
    );
    let told: Vec<_> = acknowledged
        .iter()
        .map(|_| match next(&watch) {
            Change::Put(entry) => (entry.revision, entry.key),
            Change::Delete { key, .. } => panic!("nobody deleted `{key}`"),
        })
        .collect();
    assert_eq!(
        told, acknowledged,
        "watchers are told in the order of the revisions"
    );
}

fn reopening_keeps_everything(open: &mut dyn FnMut() -> Arc<dyn Store>) {
    let store = open();
    let kept = put(&*store, "reopen/kept", b"kept");
    put(&*store, "reopen/gone", b"gone");
    let last = delete(&*store, "reopen/gone");
    let all = store.list("").unwrap_or_default();
    assert!(!all.is_empty());
    drop(store);

    let store = open();
    assert_eq!(
        store.list("").ok(),
        Some(all),
        "the same keys, values and revisions"
    );
    assert_eq!(value(&*store, "reopen/gone"), None);
    assert!(
        put(&*store, "reopen/new", b"x") > last,
        "revisions go on after a restart"
    );
    assert!(
        store.put("reopen/kept", b"x", Expect::At(kept)).is_ok(),
        "expectations hold across a restart"
    );
}
