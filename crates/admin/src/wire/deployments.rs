//! What is deployed, and what that changes.

use super::{ObjectSubscription, Route, Schedule, Subscription};
use contract::{Digest, Name, VersionNumber};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{
    ToSchema,
    openapi::{Ref, RefOr, Schema},
};

/// Uploaded code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Code {
    /// Its SHA-256, in hexadecimal digits.
    #[schema(value_type = String)]
    pub digest: Digest,
}

/// What to deploy.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeploymentRequest {
    /// The manifest, as JSON.
    #[schema(schema_with = manifest_schema)]
    pub manifest: serde_json::Value,
    /// The SHA-256 of each function's code.
    #[schema(value_type = BTreeMap<String, String>)]
    pub code: BTreeMap<Name, Digest>,
}

fn manifest_schema() -> RefOr<Schema> {
    Ref::from_schema_name("Manifest").into()
}

/// What a deployment changed, or would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deployment {
    /// The application.
    #[schema(value_type = String, example = "shop")]
    pub application: Name,
    /// Of a plan, the application's revision now; of a deployment, the one it made.
    pub revision: u64,
    /// One for each function that the manifest has or the application had.
    pub changes: Vec<Change>,
    /// The application's routes afterwards.
    pub routes: Vec<Route>,
    /// Its schedules afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<Schedule>,
    /// The events that it wants afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Subscription>,
    /// The new objects that it wants afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectSubscription>,
    /// The SHA-256 of code that must be uploaded first.
    #[schema(value_type = Vec<String>)]
    pub missing_code: Vec<Digest>,
    /// What keeps nothing from being deployed, and will go wrong when it runs: secrets that are not set, functions that make themselves run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What is done to one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// Its name in the application.
    #[schema(value_type = String, example = "resize")]
    pub function: Name,
    /// What is done.
    pub action: Action,
    /// Its live version before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub from: Option<VersionNumber>,
    /// Its live version afterwards; of a plan, if nobody else deploys meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub to: Option<VersionNumber>,
    /// What differs between the two.
    pub differences: Vec<Difference>,
}

/// What is done to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// The manifest's key, or `code`.
    #[schema(example = "memory")]
    pub key: String,
    /// Before, if it was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Afterwards, if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl From<registry::Plan> for Deployment {
    fn from(plan: registry::Plan) -> Self {
        Self {
            application: plan.application.name,
            revision: plan.revision.0,
            changes: plan.changes.into_iter().map(Change::from).collect(),
            routes: plan.routes.iter().map(Route::from).collect(),
            schedules: plan.schedules.iter().map(Schedule::from).collect(),
            events: plan.subscriptions.iter().map(Subscription::from).collect(),
            objects: plan.objects.iter().map(ObjectSubscription::from).collect(),
            missing_code: plan.missing_code,
            warnings: Vec::new(),
        }
    }
}

impl From<registry::FunctionChange> for Change {
    fn from(change: registry::FunctionChange) -> Self {
        let difference =
            |registry::Difference { key, from, to }: registry::Difference| Difference { key, from, to };
        Self {
            function: change.function,
            action: match change.action {
                registry::Action::Create => Action::Create,
                registry::Action::Update => Action::Update,
                registry::Action::Unchanged => Action::Unchanged,
                registry::Action::Delete => Action::Delete,
            },
            from: change.from,
            to: change.to,
            differences: change.differences.into_iter().map(difference).collect(),
        }
    }
}
