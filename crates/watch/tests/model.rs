//! A bucket that changes while it is watched, by whoever is killed again and again, against what should have been told.

use bytes::Bytes;
use contract::{Call, CallError, Calling, Reply, ResponseHead, Session};
use percent_encoding::percent_decode_str;
use proptest::{collection::vec, prelude::*};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};
use tokio::runtime::{Builder, Runtime};
use watch::{ListError, LookError, Scope, Watch};

/// Below this prefix, objects are watched.
const PREFIX: &str = "in/";

/// A bucket as S3 lists it, in an order of its own.
struct Bucket {
    /// With their versions.
    objects: Mutex<BTreeMap<String, u64>>,
    per_page: usize,
    backwards: bool,
    fails: AtomicBool,
}

impl Bucket {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.objects.lock().unwrap()
    }

    fn list(&self, target: &str) -> serde_json::Value {
        let (bucket, query) = target.split_once('?').unwrap();
        assert_eq!(bucket, "/pond");
        let parts: BTreeMap<_, _> = query
            .split('&')
            .map(|part| part.split_once('=').unwrap())
            .map(|(name, value)| (name, percent_decode_str(value).decode_utf8().unwrap()))
            .collect();
        assert_eq!(parts["list-type"], "2");
        let objects = self.objects();
        let found = objects
            .iter()
            .filter(|(key, _)| key.starts_with(&*parts["prefix"]));
        let mut found: Vec<_> = found.collect();
        if self.backwards {
            found.reverse();
        }
        if let Some(last) = parts.get("continuation-token") {
            let is_next = |key: &str| match self.backwards {
                true => key < &**last,
                false => key > &**last,
            };
            found.retain(|(key, _)| is_next(key));
        }
        let goes_on = found.len() > self.per_page;
        found.truncate(self.per_page);
        let contents: Vec<_> = found
            .iter()
            .map(|(key, version)| {
                json!({ "Key": key, "Size": "1", "ETag": format!("\"{version}\""), "LastModified": time(**version) })
            })
            .collect();
        let mut document = json!({ "Name": "pond", "IsTruncated": goes_on.to_string() });
        match &contents[..] {
            [] => {}
            // As XML has it that has become JSON.
            [one] => document["Contents"] = one.clone(),
            _ => document["Contents"] = contents.into(),
        }
        if let (Some((last, _)), true) = (found.last(), goes_on) {
            document["NextContinuationToken"] = (*last).clone().into();
        }
        document
    }
}

/// When a version was written, in whole seconds: several share each.
fn time(version: u64) -> String {
    format!(
        "2020-01-01T00:{:02}:{:02}.000Z",
        version / 4 / 60,
        version / 4 % 60
    )
}

/// 2020-01-01, in milliseconds since 1970.
const EPOCH: u64 = 1_577_836_800_000;

impl Session for Bucket {
    fn call(&self, call: Call) -> Calling {
        assert_eq!(call.operation, "GET");
        let listed = match self.fails.load(SeqCst) {
            true => Err(CallError::Broken("there is nobody".to_owned())),
            false => Ok(self.list(&call.target).to_string()),
        };
        Box::pin(async move {
            let head = ResponseHead {
                status: 200,
                headers: Vec::new(),
            };
            let body = Bytes::from(listed?).into();
            Ok(Reply { head, body })
        })
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    /// The node ends after so many pages, having told of the last one, or having written that too; or never.
    Look(Option<(usize, bool)>),
    /// The node starts again.
    Open,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..20_u8).prop_map(Step::Put),
        2 => (0..20_u8).prop_map(Step::Delete),
        3 => Just(Step::Look(None)),
        2 => ((0..4_usize), any::<bool>()).prop_map(|cut| Step::Look(Some(cut))),
        1 => Just(Step::Open),
    ]
}

fn key(number: u8) -> String {
    // Some are not watched.
    match number % 5 {
        0 => format!("out/{number}"),
        _ => format!("{PREFIX}{number}"),
    }
}

struct World {
    runtime: Runtime,
    path: PathBuf,
    scope: Scope,
    bucket: Bucket,
    /// Of those told of, by key and version.
    told: HashSet<(String, u64)>,
    /// What was told and not written may be told again.
    loose: HashSet<(String, u64)>,
}

impl World {
    fn look(&mut self, watch: &Watch, cut: Option<(usize, bool)>) {
        let runtime = &self.runtime;
        runtime.block_on(async {
            let mut look = watch.look(&self.scope, &self.bucket).await.unwrap();
            let mut pages = 0;
            while let Some(page) = look.page().await.unwrap() {
                for found in &page.new {
                    let told = (found.key.clone(), found.etag.parse().unwrap());
                    let is_first = self.told.insert(told.clone());
                    assert!(is_first || self.loose.contains(&told), "{told:?} is told twice");
                    self.loose.insert(told);
                }
                if cut == Some((pages, false)) {
                    return;
                }
                let given: Vec<_> = page.new.iter().map(|found| found.key.clone()).collect();
                look.keep(page).await.unwrap();
                self.loose.retain(|(key, _)| !given.contains(key));
                if cut == Some((pages, true)) {
                    return;
                }
                pages += 1;
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn each_version_is_told_once_and_nothing_from_before(
        before in vec(0..20_u8, 0..12),
        steps in vec(step(), 1..60),
        per_page in 1..6_usize,
        backwards in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World {
            runtime: Builder::new_current_thread().build().unwrap(),
            path: folder.path().join("watched.redb"),
            scope: Scope { bucket: "pond".to_owned(), prefix: PREFIX.to_owned() },
            bucket: Bucket { objects: Mutex::default(), per_page, backwards, fails: AtomicBool::new(false) },
            told: HashSet::new(),
            loose: HashSet::new(),
        };
        for number in before {
            world.bucket.objects().insert(key(number), 0);
        }
        let scopes = BTreeSet::from([world.scope.clone()]);
        let open = |path: &Path| {
            let watch = Watch::open(path, "here").unwrap();
            // Whatever the time is by then, it is watched since the first.
            watch.hold(&scopes, EPOCH + 1000).unwrap();
            watch
        };
        let mut watch = open(&world.path);
        let mut version = 4;
        for step in steps.into_iter().chain([Step::Look(None)]) {
            match step {
                Step::Put(number) => {
                    version += 1;
                    world.bucket.objects().insert(key(number), version);
                }
                Step::Delete(number) => drop(world.bucket.objects().remove(&key(number))),
                Step::Open => {
                    drop(watch);
                    watch = open(&world.path);
                }
                Step::Look(cut) => {
                    world.look(&watch, cut);
                    if cut.is_none() {
                        let objects = world.bucket.objects();
                        let new = objects.iter().filter(|(key, version)| key.starts_with(PREFIX) && **version > 0);
                        for (key, version) in new {
                            prop_assert!(world.told.contains(&(key.clone(), *version)), "{key} {version} is not told");
                        }
                    }
                }
            }
        }
        prop_assert!(world.told.iter().all(|(_, version)| *version > 0), "{:?}", world.told);
    }
}

fn one(path: &Path) -> (Watch, BTreeSet<Scope>, Bucket) {
    let scope = Scope {
        bucket: "pond".to_owned(),
        prefix: String::new(),
    };
    let bucket = Bucket {
        objects: Mutex::new(BTreeMap::from([("a".to_owned(), 0), ("b".to_owned(), 9)])),
        per_page: 1000,
        backwards: false,
        fails: AtomicBool::new(false),
    };
    (
        Watch::open(path, "here").unwrap(),
        BTreeSet::from([scope]),
        bucket,
    )
}

/// Keys that are new, by a whole look.
fn news(watch: &Watch, scopes: &BTreeSet<Scope>, bucket: &Bucket) -> Result<Vec<String>, LookError> {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut look = watch.look(scopes.first().unwrap(), bucket).await?;
        let mut news = Vec::new();
        while let Some(page) = look.page().await? {
            news.extend(page.new.iter().map(|found| found.key.clone()));
            look.keep(page).await?;
        }
        Ok(news)
    })
}

#[test]
fn a_place_that_is_held_again_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (watch, scopes, bucket) = one(&folder.path().join("watched.redb"));
    let not_held = news(&watch, &scopes, &bucket).unwrap_err();
    assert!(matches!(not_held, LookError::NotHeld(_)), "{not_held}");
    watch.hold(&scopes, EPOCH + 1000).unwrap();
    assert_eq!(news(&watch, &scopes, &bucket).unwrap(), ["b"]);
    assert_eq!(news(&watch, &scopes, &bucket).unwrap(), [""; 0]);
    watch.hold(&BTreeSet::new(), EPOCH + 5000).unwrap();
    watch.hold(&scopes, EPOCH + 1000).unwrap();
    watch.tidy().unwrap();
    assert_eq!(news(&watch, &scopes, &bucket).unwrap(), ["b"]);
    watch.tidy().unwrap();
    assert_eq!(news(&watch, &scopes, &bucket).unwrap(), [""; 0]);
}

#[test]
fn another_s3_has_other_objects() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watched.redb");
    let (watch, scopes, bucket) = one(&path);
    watch.hold(&scopes, EPOCH + 1000).unwrap();
    assert_eq!(news(&watch, &scopes, &bucket).unwrap(), ["b"]);
    drop(watch);
    let elsewhere = Watch::open(&path, "there").unwrap();
    elsewhere.hold(&scopes, EPOCH + 5000).unwrap();
    assert_eq!(news(&elsewhere, &scopes, &bucket).unwrap(), [""; 0]);
}

#[test]
fn a_list_that_fails_says_why_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (watch, scopes, bucket) = one(&folder.path().join("watched.redb"));
    watch.hold(&scopes, EPOCH + 1000).unwrap();
    bucket.fails.store(true, SeqCst);
    let failed = news(&watch, &scopes, &bucket).unwrap_err();
    assert!(matches!(failed, LookError::List(ListError::Call(_))), "{failed}");
    bucket.fails.store(false, SeqCst);
    assert_eq!(news(&watch, &scopes, &bucket).unwrap(), ["b"]);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watched.redb");
    std::fs::write(
        &path,
        b"something else, and long enough to be looked at".repeat(1000),
    )
    .unwrap();
    let error = Watch::open(&path, "here").err().unwrap().to_string();
    assert!(
        error.contains("watched.redb") && error.contains("move it away"),
        "{error}"
    );
}
