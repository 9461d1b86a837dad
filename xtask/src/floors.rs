//! The house rule: dependencies go strictly down.
//!
//! Every crate says on which floor it stands (`[package.metadata.millpond] floor`). It may use crates of lower floors,
//! never of its own floor or of a higher one; so no two crates of one floor meet, and there is no cycle. Engines,
//! services and stores are interchangeable: only the crate that assembles the node names them. Tools (benches, chores,
//! examples, fuzzing, tests) stand outside the house, may use all of it, and none of it may use them. Dev-dependencies
//! are free.

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, MetadataCommand};
use serde_json::Value;
use std::{collections::BTreeMap, path::Path};

/// Folders outside the house.
const TOOLS: [&str; 5] = ["bench", "examples", "fuzz", "tests", "xtask"];
/// Folders whose crates only [`ASSEMBLY`] may name.
const INTERCHANGEABLE: [&str; 3] = ["engines", "services", "stores"];
/// The folder of the crate that assembles the node.
const ASSEMBLY: &str = "crates/node";

/// A crate of this workspace, as far as the rule is concerned.
#[derive(Clone, Debug)]
struct Member {
    name: String,
    /// Relative to the repository, with `/`.
    folder: String,
    /// What `[package.metadata.millpond] floor` holds, if anything.
    floor: Option<Value>,
    /// Names of the packages it uses outside of tests: normal, build, optional and target-specific ones.
    uses: Vec<String>,
}

/// Reads the workspace and reports every breach at once.
pub(crate) fn run(root: &Path) -> Result<String> {
    let members = read(root)?;
    let breaches = breaches(&members);
    if !breaches.is_empty() {
        bail!(
            "{} breaches of the floors:\n- {}",
            breaches.len(),
            breaches.join("\n- ")
        );
    }
    Ok(format!("{} crates stand where they may", members.len()))
}

fn read(root: &Path) -> Result<Vec<Member>> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("cannot read the workspace with `cargo metadata`")?;
    let member = |package: &cargo_metadata::Package| {
        let folder = package.manifest_path.parent().unwrap_or(&metadata.workspace_root);
        let folder = folder.strip_prefix(&metadata.workspace_root).unwrap_or(folder);
        Member {
            name: package.name.to_string(),
            folder: folder.to_string(),
            floor: package.metadata.pointer("/millpond/floor").cloned(),
            uses: package
                .dependencies
                .iter()
                .filter(|dependency| dependency.kind != DependencyKind::Development)
                .map(|dependency| dependency.name.clone())
                .collect(),
        }
    };
    Ok(metadata.workspace_packages().into_iter().map(member).collect())
}

fn top(folder: &str) -> &str {
    folder.split('/').next().unwrap_or(folder)
}

fn is_tool(member: &Member) -> bool {
    TOOLS.contains(&top(&member.folder))
}

/// What breaks the rule: one sentence each, with the edge and how to mend it.
fn breaches(members: &[Member]) -> Vec<String> {
    let mut found = Vec::new();
    let mut floors = BTreeMap::new();
    for member in members {
        let Member {
            name, folder, floor, ..
        } = member;
        match (is_tool(member), floor) {
            (true, None) => {}
            (true, Some(floor)) => found.push(format!(
                "`{name}` says floor {floor}, but crates in {folder}/ stand outside the house: delete the key in {folder}/Cargo.toml"
            )),
            (false, None) => found.push(format!(
                "`{name}` does not say its floor: add `floor = N` under `[package.metadata.millpond]` in {folder}/Cargo.toml; \
                 ARCHITECTURE.md says what each floor holds"
            )),
            (false, Some(floor)) => match floor.as_u64() {
                Some(number) => {
                    floors.insert(name.as_str(), number);
                }
                None => found.push(format!(
                    "`{name}` says floor {floor}, which is not a whole number of 0 or more: mend it in {folder}/Cargo.toml"
                )),
            },
        }
    }

    let by_name: BTreeMap<&str, &Member> = members
        .iter()
        .map(|member| (member.name.as_str(), member))
        .collect();
    for user in members.iter().filter(|member| !is_tool(member)) {
        for used in user.uses.iter().filter_map(|name| by_name.get(name.as_str())) {
            found.extend(breach_of_edge(user, used, &floors));
        }
    }
    found
}

fn breach_of_edge(user: &Member, used: &Member, floors: &BTreeMap<&str, u64>) -> Option<String> {
    let edge = format!("`{}` uses `{}`", user.name, used.name);
    let manifest = format!("{}/Cargo.toml", user.folder);
    if is_tool(used) {
        return Some(format!(
            "{edge}, which stands outside the house: take it out of {manifest}, or make it a dev-dependency"
        ));
    }
    if INTERCHANGEABLE.contains(&top(&used.folder)) && user.folder != ASSEMBLY {
        return Some(format!(
            "{edge}, but only {ASSEMBLY} names a concrete engine, service or store: take it as a trait of `contract` that the \
             node passes in, or make it a dev-dependency in {manifest}"
        ));
    }
    let (above, below) = (*floors.get(user.name.as_str())?, *floors.get(used.name.as_str())?);
    let direction = match above.cmp(&below) {
        std::cmp::Ordering::Greater => return None,
        std::cmp::Ordering::Equal => "sideways",
        std::cmp::Ordering::Less => "upwards",
    };
    Some(format!(
        "{edge}: {direction}, from floor {above} to floor {below}. Move what both need to a lower floor, or let the upper one \
         pass it in through a trait of `contract`; then take the line out of {manifest}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn member(folder: &str, floor: Option<Value>, uses: &[&str]) -> Member {
        let name = folder.rsplit('/').next().unwrap().to_owned();
        Member {
            name,
            folder: folder.to_owned(),
            floor,
            uses: uses.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn house() -> Vec<Member> {
        vec![
            member("crates/contract", Some(json!(0)), &["serde"]),
            member("crates/policy", Some(json!(1)), &["contract"]),
            member("crates/wasi", Some(json!(1)), &["contract"]),
            member("engines/wasmtime", Some(json!(3)), &["contract", "wasi"]),
            member("crates/worker", Some(json!(4)), &["contract", "policy"]),
            member("crates/node", Some(json!(7)), &["contract", "worker", "wasmtime"]),
            member("bench", None, &["node", "wasmtime"]),
        ]
    }

    /// The one breach that a changed house has.
    fn only(members: &[Member]) -> String {
        let mut found = breaches(members);
        assert_eq!(found.len(), 1, "{found:#?}");
        found.remove(0)
    }

    fn change(folder: &str, change: impl FnOnce(&mut Member)) -> Vec<Member> {
        let mut members = house();
        change(members.iter_mut().find(|member| member.folder == folder).unwrap());
        members
    }

    #[test]
    fn a_house_in_order_passes() {
        assert_eq!(breaches(&house()), Vec::<String>::new());
    }

    #[test]
    fn an_edge_upwards_is_found() {
        let breach = only(&change("crates/policy", |policy| {
            policy.uses.push("worker".into())
        }));
        assert!(
            breach.contains("`policy` uses `worker`: upwards, from floor 1 to floor 4"),
            "{breach}"
        );
        assert!(breach.contains("crates/policy/Cargo.toml"), "{breach}");
    }

    #[test]
    fn an_edge_sideways_is_found() {
        let breach = only(&change("crates/policy", |policy| policy.uses.push("wasi".into())));
        assert!(
            breach.contains("`policy` uses `wasi`: sideways, from floor 1 to floor 1"),
            "{breach}"
        );
    }

    #[test]
    fn a_missing_floor_is_found() {
        let breach = only(&change("crates/worker", |worker| worker.floor = None));
        assert!(breach.contains("`worker` does not say its floor"), "{breach}");
    }

    #[test]
    fn a_floor_that_is_no_number_is_found() {
        for floor in [json!("4"), json!(-1), json!(1.5), json!(null)] {
            let breach = only(&change("crates/worker", |worker| worker.floor = Some(floor)));
            assert!(breach.contains("not a whole number"), "{breach}");
        }
    }

    #[test]
    fn a_floor_outside_the_house_is_found() {
        let breach = only(&change("bench", |bench| bench.floor = Some(json!(9))));
        assert!(breach.contains("`bench` says floor 9"), "{breach}");
    }

    #[test]
    fn only_the_node_names_what_is_interchangeable() {
        let breach = only(&change("crates/worker", |worker| {
            worker.uses.push("wasmtime".into())
        }));
        assert!(
            breach.contains("`worker` uses `wasmtime`, but only crates/node names"),
            "{breach}"
        );
    }

    #[test]
    fn the_house_does_not_use_its_tools() {
        let breach = only(&change("crates/node", |node| node.uses.push("bench".into())));
        assert!(
            breach.contains("`node` uses `bench`, which stands outside the house"),
            "{breach}"
        );
    }

    #[test]
    fn this_workspace_is_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let members = read(root).unwrap();
        let node = members.iter().find(|member| member.folder == ASSEMBLY).unwrap();
        assert!(node.floor.is_some());
        assert!(
            node.uses.iter().any(|name| name == "millpond-engine-wasmtime"),
            "{node:?}"
        );
    }
}
