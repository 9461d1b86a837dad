//! The routes of a node, as they are between two deploys.

use crate::Targets;
use contract::{FunctionRef, Head, Problem};
use registry::Snapshot;
use std::{collections::HashMap, sync::Arc};
use worker::Target;

/// Where functions are reached whatever the routes say.
const FUNCTION: &str = "/function/";

/// Immutable; a deploy makes another.
#[derive(Default)]
pub(crate) struct Table {
    snapshot: Arc<Snapshot>,
    /// Every way to write a function and its qualifier.
    names: HashMap<Box<str>, Arc<Target>>,
    /// Routes of named hosts, in lower case.
    hosts: HashMap<Box<str>, Routes>,
    /// Routes of any host.
    any: Routes,
}

/// Routes by method; those of any method come second.
#[derive(Default)]
struct Routes {
    methods: HashMap<Box<str>, matchit::Router<Leaf>>,
    any: matchit::Router<Leaf>,
}

/// Where a route leads.
struct Leaf {
    target: Arc<Target>,
    /// Its pattern ends in a tail (`{*rest}`), which becomes the path info.
    tail: bool,
}

enum Found {
    /// And how much of the path named it.
    Target(Arc<Target>, usize),
    OtherMethods(Vec<Box<str>>),
    Nothing,
}

impl Routes {
    fn find(&self, method: &str, path: &str) -> Found {
        let matched = self.methods.get(method).and_then(|routes| routes.at(path).ok());
        if let Some(found) = matched.or_else(|| self.any.at(path).ok()) {
            let tail = found.params.iter().last().map_or("", |(_, value)| value);
            // The slash before it belongs to the path info, too.
            let script = path.len() - if found.value.tail { tail.len() + 1 } else { 0 };
            return Found::Target(found.value.target.clone(), script);
        }
        let others: Vec<_> = self
            .methods
            .iter()
            .filter(|(_, routes)| routes.at(path).is_ok())
            .map(|(method, _)| method.clone())
            .collect();
        if others.is_empty() {
            Found::Nothing
        } else {
            Found::OtherMethods(others)
        }
    }
}

impl Table {
    pub(crate) fn build(snapshot: Arc<Snapshot>, targets: &Targets) -> Self {
        let mut table = Self {
            snapshot: snapshot.clone(),
            ..Self::default()
        };
        let mut plain: HashMap<String, usize> = HashMap::new();
        for function in snapshot
            .applications
            .values()
            .flat_map(|application| application.functions.keys())
        {
            *plain.entry(function.to_string()).or_default() += 1;
        }
        for (application_name, application) in &snapshot.applications {
            for (function_name, function) in &application.functions {
                let target = |number| {
                    let version = function.versions.get(&number)?;
                    targets
                        .get(&(version.function.clone(), number))
                        .map(|known| known.target.clone())
                };
                let mut names = vec![format!("{application_name}.{function_name}")];
                if plain.get(function_name.as_str()) == Some(&1) {
                    names.push(function_name.to_string());
                }
                let qualified = function
                    .versions
                    .keys()
                    .map(|number| (number.to_string(), *number))
                    .chain(
                        function
                            .aliases
                            .iter()
                            .map(|(alias, number)| (alias.to_string(), *number)),
                    );
                for (qualifier, number) in qualified {
                    let Some(target) = target(number) else { continue };
                    for name in &names {
                        table
                            .names
                            .insert(format!("{name}:{qualifier}").into(), target.clone());
                    }
                }
                let live = function.live().and_then(|version| target(version.number));
                for (name, target) in names.into_iter().zip(std::iter::repeat(live)) {
                    if let Some(target) = target {
                        table.names.insert(name.into(), target);
                    }
                }
            }
            for trigger in &application.triggers {
                let live = application
                    .functions
                    .get(&trigger.function)
                    .and_then(|function| function.live());
                let Some(known) = live.and_then(|live| targets.get(&(live.function.clone(), live.number)))
                else {
                    continue;
                };
                let routes = match &trigger.host {
                    None => &mut table.any,
                    Some(host) => table.hosts.entry(host.to_ascii_lowercase().into()).or_default(),
                };
                let insert = |router: &mut matchit::Router<Leaf>| {
                    let leaf = Leaf {
                        target: known.target.clone(),
                        tail: trigger.path.contains("{*"),
                    };
                    if let Err(error) = router.insert(trigger.path.as_str(), leaf) {
                        // The registry refuses such a deploy; a data folder of another release may still hold one.
                        tracing::warn!(application = %application_name, path = trigger.path, %error, "a route is left out");
                    }
                };
                if trigger.method.is_empty() {
                    insert(&mut routes.any);
                }
                for method in &trigger.method {
                    insert(routes.methods.entry(method.as_str().into()).or_default());
                }
            }
        }
        table
    }

    pub(crate) fn route(&self, head: &mut Head) -> Result<Arc<Target>, Problem> {
        if let Some(rest) = head.path().strip_prefix(FUNCTION) {
            let name = rest.split('/').next().unwrap_or_default();
            let script = FUNCTION.len() + name.len();
            let target = self.names.get(name).cloned().ok_or_else(|| self.unknown(name))?;
            head.set_script(script);
            return Ok(target);
        }
        let (method, path) = (head.method(), head.path());
        let host = head
            .header("host")
            .and_then(|host| std::str::from_utf8(host).ok())
            .unwrap_or_default();
        let named = if self.hosts.is_empty() {
            None
        } else {
            self.hosts.get(name_of(host).as_str())
        };
        let mut others = Vec::new();
        for routes in named.into_iter().chain([&self.any]) {
            match routes.find(method, path) {
                Found::Target(target, script) => {
                    head.set_script(script);
                    return Ok(target);
                }
                Found::OtherMethods(methods) => others.extend(methods),
                Found::Nothing => {}
            }
        }
        Err(if others.is_empty() {
            Problem::new(
                404,
                "route-unknown",
                format!("no route of this node matches {method} {path}"),
                "see the routes with `millpond list`, or call a function by its name at /function/NAME",
            )
        } else {
            others.sort_unstable();
            others.dedup();
            Problem::new(
                405,
                "route-method",
                format!("{path} does not take {method}; it takes {}", others.join(", ")),
                "use one of these methods, or add yours to the trigger in millpond.toml",
            )
        })
    }

    fn unknown(&self, name: &str) -> Problem {
        match name.parse::<FunctionRef>() {
            Ok(reference) => match self.snapshot.version(&reference) {
                Err(error) => error.problem(),
                // It is there, and yet not in the table: it was just deployed, or is just going.
                Ok(_) => Problem::new(
                    503,
                    "route-changing",
                    format!("`{name}` is just being deployed"),
                    "try again",
                ),
            },
            Err(error) => Problem::new(
                404,
                "function-name",
                error.to_string(),
                "write /function/[APPLICATION.]FUNCTION[:VERSION]",
            ),
        }
    }
}

/// A Host header's name: without its port, in lower case.
fn name_of(host: &str) -> String {
    let name = match host.rfind(':') {
        Some(colon) if host[colon + 1..].bytes().all(|b| b.is_ascii_digit()) && !host.ends_with(']') => {
            &host[..colon]
        }
        _ => host,
    };
    name.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn hosts_lose_their_port_and_case() {
        for (host, name) in [
            ("Example.org:8080", "example.org"),
            ("example.org", "example.org"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
        ] {
            assert_eq!(name_of(host), name);
        }
    }
}
