//! The routes of a node, as they are between two deploys.

use crate::{Unrouted, Versions};
use contract::{CoreId, FunctionRef, Head, Name, Problem};
use manifest::CloudEventsTrigger;
use registry::Snapshot;
use std::{collections::HashMap, sync::Arc};
use triggers::Event;
use worker::{Target, Targets};

/// Where functions are reached whatever the routes say.
const FUNCTION: &str = "/function/";

/// Immutable; a deploy makes another.
#[derive(Default)]
pub(crate) struct Table {
    snapshot: Arc<Snapshot>,
    /// The node's own.
    own: Space,
    tenants: HashMap<Name, Space>,
}

/// What one tenant has. Nothing leads from one space to another.
#[derive(Default)]
struct Space {
    /// Every way to write a function and its qualifier.
    names: HashMap<Box<str>, Targets, foldhash::fast::RandomState>,
    /// Routes of named hosts, in lower case.
    hosts: HashMap<Box<str>, Routes>,
    /// Routes of any host.
    any: Routes,
    /// The events that functions want.
    subscriptions: Vec<Subscription>,
}

/// Events that a function wants.
struct Subscription {
    application: Name,
    trigger: CloudEventsTrigger,
    targets: Targets,
}

/// Routes by path, and then by method: the most specific path decides, whoever wrote it.
#[derive(Default)]
struct Routes {
    paths: matchit::Router<usize>,
    /// Which entry of `leaves` a path, without its parameters' names, leads to.
    known: HashMap<String, usize>,
    leaves: Vec<Leaf>,
}

/// What a path leads to.
#[derive(Default)]
struct Leaf {
    methods: HashMap<Box<str>, Targets>,
    any: Option<Targets>,
    /// The pattern ends in a tail (`{*rest}`), which becomes the path info.
    tail: bool,
}

enum Found<'a> {
    /// And how much of the path named it.
    Targets(&'a Targets, usize),
    OtherMethods(Vec<Box<str>>),
    Nothing,
}

impl Routes {
    fn add(&mut self, path: &str, methods: &[String], targets: &Targets) -> Result<(), matchit::InsertError> {
        let shape = shape(path);
        let index = match self.known.get(&shape) {
            Some(index) => *index,
            None => {
                self.paths.insert(shape.clone(), self.leaves.len())?;
                self.leaves.push(Leaf {
                    tail: path.contains("{*"),
                    ..Leaf::default()
                });
                self.known.insert(shape, self.leaves.len() - 1);
                self.leaves.len() - 1
            }
        };
        if let Some(leaf) = self.leaves.get_mut(index) {
            if methods.is_empty() {
                leaf.any = Some(targets.clone());
            }
            leaf.methods.extend(
                methods
                    .iter()
                    .map(|method| (method.as_str().into(), targets.clone())),
            );
        }
        Ok(())
    }

    fn find(&self, method: &str, path: &str) -> Found<'_> {
        let Ok(found) = self.paths.at(path) else {
            return Found::Nothing;
        };
        let Some(leaf) = self.leaves.get(*found.value) else {
            return Found::Nothing;
        };
        // Who answers GET answers HEAD (RFC 9110, section 9.3.2); the edge leaves the body out.
        let as_get = if method == "HEAD" {
            leaf.methods.get("GET")
        } else {
            None
        };
        match leaf.methods.get(method).or(leaf.any.as_ref()).or(as_get) {
            Some(targets) => {
                let tail = found.params.iter().last().map_or("", |(_, value)| value);
                // The slash before it belongs to the path info, too.
                let script = path.len() - if leaf.tail { tail.len() + 1 } else { 0 };
                Found::Targets(targets, script)
            }
            None => Found::OtherMethods(leaf.methods.keys().cloned().collect()),
        }
    }
}

/// A path without the names of its parameters, which may differ from route to route.
fn shape(path: &str) -> String {
    let mut shape = String::with_capacity(path.len());
    let mut rest = path;
    let mut count = 0;
    while let Some(open) = rest.find('{') {
        let after = &rest[open + 1..];
        if let Some(escaped) = after.strip_prefix('{') {
            shape.push_str(&rest[..open + 2]);
            rest = escaped;
            continue;
        }
        let Some(close) = after.find('}') else { break };
        let star = if after.starts_with('*') { "*" } else { "" };
        shape.push_str(&rest[..open]);
        shape.push_str(&format!("{{{star}p{count}}}"));
        count += 1;
        rest = &after[close + 1..];
    }
    shape.push_str(rest);
    shape
}

impl Table {
    pub(crate) fn build(snapshot: Arc<Snapshot>, versions: &Versions) -> Self {
        let mut table = Self {
            snapshot: snapshot.clone(),
            ..Self::default()
        };
        let mut plain: HashMap<(Option<&Name>, &Name), usize> = HashMap::new();
        for (id, application) in &snapshot.applications {
            for function in application.functions.keys() {
                *plain.entry((id.tenant.as_ref(), function)).or_default() += 1;
            }
        }
        for (id, application) in &snapshot.applications {
            let application_name = &id.name;
            let space = match &id.tenant {
                None => &mut table.own,
                Some(tenant) => table.tenants.entry(tenant.clone()).or_default(),
            };
            for (function_name, function) in &application.functions {
                let targets = |number| {
                    let version = function.versions.get(&number)?;
                    versions
                        .get(&(version.function.clone(), number))
                        .map(|known| known.targets.clone())
                };
                let mut names = vec![format!("{application_name}.{function_name}")];
                if plain.get(&(id.tenant.as_ref(), function_name)) == Some(&1) {
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
                    let Some(targets) = targets(number) else {
                        continue;
                    };
                    for name in &names {
                        space
                            .names
                            .insert(format!("{name}:{qualifier}").into(), targets.clone());
                    }
                }
                let live = function.live().and_then(|version| targets(version.number));
                for (name, targets) in names.into_iter().zip(std::iter::repeat(live)) {
                    if let Some(targets) = targets {
                        space.names.insert(name.into(), targets);
                    }
                }
            }
            let known = |function: &Name| {
                let live = application.functions.get(function)?.live()?;
                versions.get(&(live.function.clone(), live.number))
            };
            for trigger in &application.subscriptions {
                if let Some(known) = known(&trigger.function) {
                    space.subscriptions.push(Subscription {
                        application: application_name.clone(),
                        trigger: trigger.clone(),
                        targets: known.targets.clone(),
                    });
                }
            }
            for trigger in &application.triggers {
                let Some(known) = known(&trigger.function) else {
                    continue;
                };
                let routes = match &trigger.host {
                    None => &mut space.any,
                    Some(host) => space.hosts.entry(host.to_ascii_lowercase().into()).or_default(),
                };
                if let Err(error) = routes.add(&trigger.path, &trigger.method, &known.targets) {
                    // The registry refuses such a deploy; a data folder of another release may still hold one.
                    tracing::warn!(application = %id, path = trigger.path, %error, "a route is left out");
                }
            }
        }
        table
    }

    fn space(&self, tenant: Option<&Name>) -> Option<&Space> {
        match tenant {
            None => Some(&self.own),
            Some(tenant) => self.tenants.get(tenant),
        }
    }

    pub(crate) fn route(
        &self,
        core: CoreId,
        tenant: Option<&Name>,
        head: &mut Head,
    ) -> Result<Arc<Target>, Box<Unrouted>> {
        if let Some(rest) = head.path().strip_prefix(FUNCTION) {
            let name = rest.split('/').next().unwrap_or_default();
            let script = FUNCTION.len() + name.len();
            let target = self.named(core, tenant, name)?;
            head.set_script(script);
            return Ok(target);
        }
        let (method, path) = (head.method(), head.path());
        let host = head
            .header("host")
            .and_then(|host| std::str::from_utf8(host).ok())
            .unwrap_or_default();
        let space = self.space(tenant);
        let named = space
            .filter(|space| !space.hosts.is_empty())
            .and_then(|space| space.hosts.get(name_of(host).as_str()));
        let any = space.map(|space| &space.any);
        let mut others = Vec::new();
        for routes in named.into_iter().chain(any) {
            match routes.find(method, path) {
                Found::Targets(targets, script) => {
                    head.set_script(script);
                    return Ok(targets.on(core).clone());
                }
                Found::OtherMethods(methods) => others.extend(methods),
                Found::Nothing => {}
            }
        }
        if others.is_empty() {
            return Err(Box::from(Problem::new(
                404,
                "route-unknown",
                format!("no route of this node matches {method} {path}"),
                "see the routes with `millpond list`, or call a function by its name at /function/NAME",
            )));
        }
        others.sort_unstable();
        others.dedup();
        let allow = others.join(", ");
        let problem = Problem::new(
            405,
            "route-method",
            format!("{path} does not take {method}; it takes {allow}"),
            "use one of these methods, or add yours to the trigger in millpond.toml",
        );
        Err(Box::new(Unrouted {
            problem,
            allow: Some(allow),
        }))
    }

    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The functions that want an event, each once.
    pub(crate) fn subscribers(
        &self,
        core: CoreId,
        tenant: Option<&Name>,
        application: Option<&Name>,
        event: &Event,
    ) -> Vec<Arc<Target>> {
        let mut found: Vec<Arc<Target>> = Vec::new();
        let space = self.space(tenant);
        for subscription in space.iter().flat_map(|space| &space.subscriptions) {
            let asked = application.is_none_or(|application| *application == subscription.application);
            if asked
                && subscription.trigger.matches(event)
                && !found.iter().any(|known| known.is(subscription.targets.on(core)))
            {
                found.push(subscription.targets.on(core).clone());
            }
        }
        found
    }

    /// What a reference of a tenant leads to.
    pub(crate) fn named(
        &self,
        core: CoreId,
        tenant: Option<&Name>,
        name: &str,
    ) -> Result<Arc<Target>, Problem> {
        let found = self.space(tenant).and_then(|space| space.names.get(name));
        found
            .map(|targets| targets.on(core).clone())
            .ok_or_else(|| self.unknown(tenant, name))
    }

    fn unknown(&self, tenant: Option<&Name>, name: &str) -> Problem {
        let read = |name: &str| match name.parse::<FunctionRef>() {
            Ok(reference) if reference.tenant.is_none() => Ok(reference),
            Ok(_) => Err(format!("`{name}` is not the name of a function")),
            Err(error) => Err(error.to_string()),
        };
        match read(name) {
            Ok(reference) => match self.snapshot.version(&reference.of(tenant.cloned())) {
                Err(error) => error.local().problem(),
                // It is there, and yet not in the table: it was just deployed, or is just going.
                Ok(_) => Problem::new(
                    503,
                    "route-changing",
                    format!("`{name}` is just being deployed"),
                    "try again",
                ),
            },
            Err(reason) => Problem::new(
                404,
                "function-name",
                reason,
                "write /function/[APPLICATION.]FUNCTION[:VERSION]",
            ),
        }
    }
}

/// A Host header's name: without its port, in lower case.
pub(crate) fn name_of(host: &str) -> String {
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
    use super::{name_of, shape};

    #[test]
    fn shapes_forget_names_only() {
        for (path, without) in [
            ("/a/{x}/b/{y}", "/a/{p0}/b/{p1}"),
            ("/a/{*rest}", "/a/{*p0}"),
            ("/{{a}}/{b}", "/{{a}}/{p0}"),
            ("/plain", "/plain"),
        ] {
            assert_eq!(shape(path), without);
        }
    }

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
