//! What a deployment would change. Pure: a manifest and a snapshot in, a plan out.

use crate::{Application, Error, Permits, Settings, Version};
use contract::{ApplicationId, Digest, Engine, FunctionId, Name, Revision, VersionNumber, is_own_address};
use manifest::{CloudEventsTrigger, HttpTrigger, Manifest, ObjectTrigger, ScheduleTrigger, Triggers};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// What a deployment changes, or would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The application.
    pub application: ApplicationId,
    /// Of a plan: the revision that it was made against. Of a deployment: the one that it made.
    pub revision: Revision,
    /// One for each function that the manifest has or the application had, by name.
    pub changes: Vec<FunctionChange>,
    /// The application's routes afterwards.
    pub routes: Vec<HttpTrigger>,
    /// Whether the routes change.
    pub routes_change: bool,
    /// Its schedules afterwards.
    pub schedules: Vec<ScheduleTrigger>,
    /// The events that it wants afterwards.
    pub subscriptions: Vec<CloudEventsTrigger>,
    /// The new objects that it wants afterwards.
    pub objects: Vec<ObjectTrigger>,
    /// Whether the schedules change, or the events or objects that it wants.
    pub triggers_change: bool,
    /// Code that must be uploaded first.
    pub missing_code: Vec<Digest>,
}

impl Plan {
    /// Whether there is anything to do.
    pub fn is_unchanged(&self) -> bool {
        !self.routes_change
            && !self.triggers_change
            && self
                .changes
                .iter()
                .all(|change| change.action == Action::Unchanged)
    }
}

/// What a deployment does to one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionChange {
    /// Its name.
    pub function: Name,
    /// What is done.
    pub action: Action,
    /// Its live version before.
    pub from: Option<VersionNumber>,
    /// Its live version afterwards. Of a plan, what it will be if nobody else deploys meanwhile.
    pub to: Option<VersionNumber>,
    /// What differs between the two.
    pub differences: Vec<Difference>,
}

/// What is done to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is new.
    Create,
    /// It gets a new version.
    Update,
    /// Code and settings are those of the live version.
    Unchanged,
    /// The manifest no longer has it.
    Delete,
}

/// One setting that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The manifest's key, or `code`.
    pub key: String,
    /// Before; `None` if it was not there.
    pub from: Option<String>,
    /// Afterwards; `None` if it is not there.
    pub to: Option<String>,
}

/// What each function of a manifest is to be: its settings and its code.
pub(crate) type Wanted = BTreeMap<Name, (Settings, Digest)>;

/// Reads what the manifest asks for, if this node can give it.
pub(crate) fn wanted(
    application: &ApplicationId,
    manifest: &Manifest,
    code: &BTreeMap<Name, Digest>,
    (engines, first): (&[Arc<dyn Engine>], &str),
    offered: &[&'static str],
    permits: &Permits,
) -> Result<Wanted, Error> {
    let diagnostics = manifest.validate();
    if !diagnostics.is_empty() {
        return Err(Error::Manifest(diagnostics));
    }
    if let Some(name) = code.keys().find(|name| !manifest.function.contains_key(name)) {
        return Err(Error::CodeMap(format!(
            "`code` names `{name}`, which is not a function of the manifest"
        )));
    }
    let one = |(name, function): (&Name, &manifest::Function)| {
        let id = || FunctionId {
            application: application.clone(),
            function: name.clone(),
        };
        let services = [
            ("http", !function.grants.http.is_empty(), true),
            ("s3", !function.grants.s3.is_empty(), true),
            ("aws", !function.grants.aws.is_empty(), function.handler.is_some()),
            (
                "lambda",
                !function.grants.lambda.functions.is_empty(),
                function.handler.is_some(),
            ),
        ];
        let services: Vec<_> = services
            .iter()
            .filter(|(service, asked, may_have)| *asked && !(*may_have && offered.contains(service)))
            .map(|(service, ..)| *service)
            .collect();
        if !services.is_empty() {
            return Err(Error::GrantsUnavailable {
                function: id(),
                services: services.join(", "),
            });
        }
        if let (Some(owner), Some(named)) = (&application.tenant, &function.tenant)
            && owner != named
        {
            return Err(Error::TenantMismatch {
                function: id(),
                named: named.clone(),
                owner: owner.clone(),
            });
        }
        // What listens on this machine alone, the control API above all, takes whoever reaches it for one of the house.
        if application.tenant.is_some()
            && let Some(grant) = function.grants.http.iter().find(|grant| is_own(&grant.host))
        {
            return Err(Error::GrantForbidden {
                function: id(),
                host: grant.host.clone(),
            });
        }
        let granted = (function.objects(), function.operations());
        permits.check(id, application.tenant.as_ref(), (&granted.0, &granted.1))?;
        let engine = match function.engine {
            manifest::Engine::Auto => first,
            named => named.name(),
        };
        if !engines.iter().any(|e| e.name() == engine) {
            let available: Vec<_> = engines.iter().map(|engine| engine.name()).collect();
            let available = if available.is_empty() {
                "none".to_owned()
            } else {
                available.join(", ")
            };
            return Err(Error::EngineUnavailable {
                function: id(),
                engine: engine.to_owned(),
                available,
            });
        }
        let digest = code.get(name);
        let digest = digest
            .ok_or_else(|| Error::CodeMap(format!("`code` has no SHA-256 for the function `{name}`")))?;
        let settings = Settings::of(application.tenant.as_ref(), function, function.engine.name());
        Ok((name.clone(), (settings, *digest)))
    };
    manifest.function.iter().map(one).collect()
}

/// Whether a granted host is this machine. A name that leads to it opens nothing, whoever was granted it.
fn is_own(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(is_own_address)
}

/// Compares what is wanted with what is live.
pub(crate) fn plan(
    application: &ApplicationId,
    wanted: &Wanted,
    triggers: &Triggers,
    current: Option<&Application>,
    next: impl Fn(&Name) -> Option<VersionNumber>,
    has_code: impl Fn(Digest) -> bool,
) -> Plan {
    let live = |name: &Name| current.and_then(|application| application.functions.get(name)?.live());
    let names: BTreeSet<&Name> = wanted
        .keys()
        .chain(
            current
                .iter()
                .flat_map(|application| application.functions.keys()),
        )
        .collect();
    let change = |function: &Name| {
        let live = live(function);
        let from = live.map(|version| version.number);
        let (action, differences) = match (wanted.get(function), live) {
            (None, _) => (Action::Delete, Vec::new()),
            (Some(_), None) => (Action::Create, Vec::new()),
            (Some((settings, code)), Some(version)) => {
                let differences = differences(version, settings, *code);
                (
                    if differences.is_empty() {
                        Action::Unchanged
                    } else {
                        Action::Update
                    },
                    differences,
                )
            }
        };
        let to = match action {
            Action::Create | Action::Update => next(function),
            Action::Unchanged => from,
            Action::Delete => None,
        };
        FunctionChange {
            function: function.clone(),
            action,
            from,
            to,
            differences,
        }
    };
    let changes: Vec<_> = names.into_iter().map(change).collect();
    let new = |change: &&FunctionChange| matches!(change.action, Action::Create | Action::Update);
    let missing: BTreeSet<Digest> = changes
        .iter()
        .filter(new)
        .filter_map(|change| Some(wanted.get(&change.function)?.1))
        .filter(|code| !has_code(*code))
        .collect();
    Plan {
        application: application.clone(),
        revision: current.map_or(Revision(0), |application| application.revision),
        changes,
        routes: triggers.http.clone(),
        routes_change: current.map_or(&[][..], |application| &application.triggers) != triggers.http,
        schedules: triggers.schedule.clone(),
        subscriptions: triggers.cloudevents.clone(),
        objects: triggers.object.clone(),
        triggers_change: current.map_or(&[][..], |application| &application.schedules) != triggers.schedule
            || current.map_or(&[][..], |application| &application.subscriptions) != triggers.cloudevents
            || current.map_or(&[][..], |application| &application.objects) != triggers.object,
        missing_code: missing.into_iter().collect(),
    }
}

fn differences(version: &Version, settings: &Settings, code: Digest) -> Vec<Difference> {
    let (before, after) = (flat(&version.settings, version.code), flat(settings, code));
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = |key: &str| before.get(key) != after.get(key);
    // That a limit is not a default any more shows in the limit, as a rule.
    let is_shown = |key: &&String| !key.strip_prefix("demanded.").is_some_and(differs);
    let differing = keys.into_iter().filter(|key| differs(key)).filter(is_shown);
    differing
        .map(|key| Difference {
            key: key.clone(),
            from: before.get(key).cloned(),
            to: after.get(key).cloned(),
        })
        .collect()
}

/// The settings by their keys in the manifest, as text.
fn flat(settings: &Settings, code: Digest) -> BTreeMap<String, String> {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let mut flat = BTreeMap::from([("code".to_owned(), code.to_string())]);
    // Settings are strings, numbers, lists and one map: turning them into JSON does not fail.
    let Ok(Value::Object(fields)) = serde_json::to_value(settings) else {
        return flat;
    };
    for (key, value) in fields {
        match value {
            Value::Object(variables) => {
                flat.extend(
                    variables
                        .into_iter()
                        .map(|(name, value)| (format!("{key}.{name}"), text(value))),
                );
            }
            value => drop(flat.insert(key, text(value))),
        }
    }
    flat
}
