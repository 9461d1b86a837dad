//! Killed at every step of a deployment, the registry has the old state or the new one, and nothing half.
//!
//! The test runs its own binary: `child` changes the registry and is ended, without any clean-up, at its `n`-th write to
//! the disk or the store; `n` counts up until the child comes through.

use super::*;
use crate::crash;
use contract::{Entry, Expect, Revision, StoreError, Watch};
use std::{
    fs,
    io::Write,
    process::{Command, Output},
};

const FOLDER: &str = "MILLPOND_TEST_FOLDER";
const POINT: &str = "MILLPOND_TEST_POINT";

/// A store that may be the last thing the process did, or not quite have been.
struct Crashing(Embedded);

impl Crashing {
    fn around<T>(&self, act: impl FnOnce(&Embedded) -> T) -> T {
        crash::point();
        let done = act(&self.0);
        crash::point();
        done
    }
}

impl Store for Crashing {
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.0.get(key)
    }
    fn put(&self, key: &str, value: &[u8], expect: Expect) -> Result<Revision, StoreError> {
        self.around(|store| store.put(key, value, expect))
    }
    fn delete(&self, key: &str, expect: Expect) -> Result<Revision, StoreError> {
        self.around(|store| store.delete(key, expect))
    }
    fn list(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        self.0.list(prefix)
    }
    fn watch(&self, prefix: &str) -> Result<Watch, StoreError> {
        self.0.watch(prefix)
    }
}

const OLD: &str = r#"
[application]
name = "shop"
[function.resize]
source = "a"
[function.crop]
source = "b"
"#;

const NEW: &str = r#"
[application]
name = "shop"
[function.resize]
source = "a"
memory = "128MiB"
[function.blur]
source = "c"
[[trigger.http]]
function = "blur"
path = "/blur"
"#;

fn open(folder: &Path) -> Registry {
    let store = Arc::new(Crashing(Embedded::open(&folder.join("store.redb")).unwrap()));
    let engine = Arc::new(TinyEngine::default());
    Registry::open(
        store,
        folder,
        vec![engine],
        Options {
            keep: 1,
            ..Options::default()
        },
    )
    .unwrap()
}

/// What is deployed, and what it runs.
fn state(registry: &Registry) -> String {
    let snapshot = registry.snapshot();
    let mut state = String::new();
    for (application, found) in &snapshot.applications {
        for (name, function) in &found.functions {
            for (alias, number) in &function.aliases {
                let version = &function.versions[number];
                let memory = version.grant.limits.memory;
                state += &format!(
                    "{application}.{name}:{alias}={number} {} {memory}\n",
                    runs(version)
                );
            }
            for version in function.versions.values() {
                runs(version);
            }
        }
        for trigger in &found.triggers {
            state += &format!("{} {}\n", trigger.path, trigger.function);
        }
    }
    state
}

fn prepare(folder: &Path) {
    let registry = open(folder);
    deploy(&registry, OLD, &[("resize", "resize 1"), ("crop", "crop 1")]).unwrap();
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

type Stage = (&'static str, fn(&Registry));

/// What the child does, and says once it is done.
const STAGES: [Stage; 4] = [
    ("deployed", |registry| {
        drop(deploy(registry, NEW, &[("resize", "resize 2"), ("blur", "blur 1")]).unwrap())
    }),
    ("aliased", |registry| {
        registry.set_alias(&parse("resize"), &name("blue"), v(2)).unwrap();
    }),
    ("replaced", |registry| {
        drop(deploy(registry, NEW, &[("resize", "resize 3"), ("blur", "blur 1")]).unwrap())
    }),
    ("deleted", |registry| {
        registry.delete_application(&name("shop")).unwrap()
    }),
];

#[test]
#[ignore = "it is the child of the test below"]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let point = std::env::var(POINT).unwrap().parse().unwrap();
    crash::arm(point);
    let registry = open(Path::new(&folder));
    for (said, act) in STAGES {
        act(&registry);
        // Past the harness's capture, and unbuffered.
        writeln!(std::io::stderr(), "{said}").unwrap();
    }
}

fn run_child(folder: &Path, point: u64) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::crashes::child", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(POINT, point.to_string())
        .output()
        .unwrap()
}

/// The states between the stages, from the one before the first to the one after the last.
fn states() -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let registry = open(folder.path());
    let mut states = vec![state(&registry)];
    for (_, act) in STAGES {
        act(&registry);
        states.push(state(&registry));
    }
    states
}

#[test]
fn every_crash_leaves_the_old_state_or_the_new() {
    let states = states();
    let prepared = tempfile::tempdir().unwrap();
    prepare(prepared.path());
    let mut reached = vec![0; states.len()];
    let mut last = 0;
    for point in 1.. {
        let folder = tempfile::tempdir().unwrap();
        copy(prepared.path(), folder.path());
        let output = run_child(folder.path(), point);
        let said = String::from_utf8(output.stderr).unwrap();
        let done = STAGES
            .iter()
            .filter(|(word, _)| said.lines().any(|line| line == *word))
            .count();

        let registry = open(folder.path());
        let found = state(&registry);
        let allowed = &states[done..(done + 2).min(states.len())];
        assert!(
            allowed.contains(&found),
            "killed at step {point} after {done} stages:\n{found}\nis none of\n{allowed:#?}"
        );
        reached[states.iter().position(|state| *state == found).unwrap()] += 1;

        // The node goes on from there, and gives no number twice.
        let highest = registry
            .snapshot()
            .version(&parse("resize"))
            .map(|version| version.number)
            .unwrap_or(v(3));
        let plan = deploy(&registry, OLD, &[("resize", "resize 9"), ("crop", "crop 9")]).unwrap();
        assert!(
            plan.changes
                .iter()
                .any(|change| change.function == name("resize") && change.to > Some(highest))
        );
        assert_eq!(
            runs(registry.snapshot().version(&parse("resize")).unwrap()),
            "resize 9"
        );
        if output.status.success() {
            assert_eq!(done, STAGES.len(), "{said}");
            last = point;
            break;
        }
    }
    assert!(last > 40, "only {last} steps");
    println!("{last} steps, states reached: {reached:?}");
    assert!(reached.iter().all(|count| *count > 0), "{reached:?}");
}
