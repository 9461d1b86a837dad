//! What requests and answers hold. Times are RFC 3339 in UTC, sizes and durations as in a manifest.

use contract::{
    ApplicationId, ByteSize, Digest, FunctionId, FunctionRef, Name, RequestId, SecretName, VersionNumber,
    format_duration,
};
use manifest::{CloudEventsTrigger, HttpTrigger, Missed, ScheduleTrigger};
use serde::{Deserialize, Deserializer, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Duration, SystemTime},
};
use utoipa::{
    ToSchema,
    openapi::{Ref, RefOr, Schema},
};

/// A node about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Of the program.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// Where functions are served.
    #[schema(example = "127.0.0.1:8080")]
    pub listen: String,
    /// Where functions are served by TLS, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "127.0.0.1:8443")]
    pub tls: Option<String>,
    /// Where the control API is.
    #[schema(example = "127.0.0.1:9080")]
    pub admin: String,
    /// The processors of its worker threads.
    pub cores: Vec<usize>,
    /// What isolates functions here.
    #[schema(example = json!(["wasmtime"]))]
    pub engines: Vec<String>,
    /// The largest code that may be uploaded.
    #[schema(value_type = String, example = "256MiB")]
    pub code_limit: ByteSize,
    /// When it was started.
    #[schema(format = DateTime)]
    pub started: String,
}

/// A state in a word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or `ready`.
    pub status: String,
}

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
    /// The SHA-256 of code that must be uploaded first.
    #[schema(value_type = Vec<String>)]
    pub missing_code: Vec<Digest>,
    /// What keeps nothing from being deployed, and will fail when it runs: secrets that are not set.
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

/// A route of the data plane, as in `[[trigger.http]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Route {
    /// The function that answers.
    #[schema(value_type = String, example = "resize")]
    pub function: Name,
    /// Path pattern.
    #[schema(example = "/resize/{size}")]
    pub path: String,
    /// Methods that match; any, when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub method: Vec<String>,
    /// The host that matches; any, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// A schedule, as in `[[trigger.schedule]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// The function that runs.
    #[schema(value_type = String, example = "report")]
    pub function: Name,
    /// When it is due: a cron expression with its time zone unless that is UTC, or `every` and an interval.
    #[schema(example = "0 2 * * MON Europe/Berlin")]
    pub when: String,
    /// What is done about missed runs: `skip`, `once` or `all`.
    #[schema(example = "once")]
    pub missed: String,
    /// Whether it runs.
    pub enabled: bool,
    /// When it will be due next, where a function is described.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub next: Option<String>,
}

/// Events that a function wants, as in `[[trigger.cloudevents]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Subscription {
    /// The function that runs.
    #[schema(value_type = String, example = "bill")]
    pub function: Name,
    /// Their type, or how it begins and `*`.
    #[schema(example = "com.example.order.*")]
    pub r#type: String,
    /// Their source, in the same way; any, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// All applications.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Applications {
    /// By name.
    pub applications: Vec<Application>,
}

/// An application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Application {
    /// Its name; `TENANT/NAME` where the operator sees those of all tenants.
    #[schema(value_type = String, example = "shop")]
    pub application: ApplicationId,
    /// Of its last change.
    pub revision: u64,
    /// Its functions.
    pub functions: Vec<Function>,
    /// Its routes.
    pub routes: Vec<Route>,
}

/// All functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Functions {
    /// By application and name.
    pub functions: Vec<Function>,
}

/// A function, and the version of it that was asked for: the live one, unless another was named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Function {
    /// Its application and name.
    #[schema(value_type = String, example = "shop.resize")]
    pub function: FunctionId,
    /// The version that was asked for.
    #[schema(value_type = u32)]
    pub version: VersionNumber,
    /// When that version was deployed.
    #[schema(format = DateTime)]
    pub created: String,
    /// The SHA-256 of that version's code.
    #[schema(value_type = String)]
    pub code: Digest,
    /// The code's length in bytes.
    pub code_size: u64,
    /// How that version runs.
    pub settings: Settings,
    /// Which version each alias names.
    #[schema(value_type = BTreeMap<String, u32>, example = json!({ "live": 3 }))]
    pub aliases: BTreeMap<Name, VersionNumber>,
    /// The function's routes.
    pub routes: Vec<Route>,
    /// Its schedules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<Schedule>,
    /// The events that it wants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Subscription>,
}

/// A function and all its versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FunctionDetail {
    /// The function, and the version that was asked for.
    #[serde(flatten)]
    pub function: Function,
    /// The versions that are kept, newest first.
    pub versions: Vec<Version>,
}

/// One version of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// Its number.
    #[schema(value_type = u32)]
    pub version: VersionNumber,
    /// When it was deployed.
    #[schema(format = DateTime)]
    pub created: String,
    /// The SHA-256 of its code.
    #[schema(value_type = String)]
    pub code: Digest,
}

/// How a version runs, by the keys of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Settings {
    /// What isolates it.
    #[schema(example = "wasmtime")]
    pub engine: String,
    /// Linear memory of one sandbox.
    #[schema(value_type = String, example = "64MiB")]
    pub memory: ByteSize,
    /// Wall-clock time of one request.
    #[schema(example = "30s")]
    pub timeout: String,
    /// Time on a core of one request.
    #[schema(example = "10s")]
    pub cpu_time: String,
    /// Largest body of a request.
    #[schema(value_type = String, example = "16MiB")]
    pub request_body: ByteSize,
    /// Largest body of a response.
    #[schema(value_type = String, example = "16MiB")]
    pub response_body: ByteSize,
    /// Sandboxes alive at once.
    pub concurrency: u32,
    /// Requests that wait for one.
    pub queue: u32,
    /// How many requests one sandbox serves.
    pub reuse: u32,
    /// Arguments after the program's name.
    pub arguments: Vec<String>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// `raw`, or `cgi`.
    pub protocol: String,
    /// `Content-Type` of a raw response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Hosts that it may send HTTP requests to.
    #[serde(default, rename = "grants.http", skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<String>,
    /// Header fields that the node adds to them, by host and by name; `{secret:NAME}` stands for a secret.
    #[serde(
        default,
        rename = "grants.http.headers",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub headers: BTreeMap<String, BTreeMap<String, String>>,
    /// Hosts that secrets in those may be sent to without TLS.
    #[serde(
        default,
        rename = "grants.http.clear_text",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub clear_text: BTreeSet<String>,
}

/// The secrets of a node. Values are never told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secrets {
    /// By application, those of the node first, and by name.
    pub secrets: Vec<Secret>,
}

/// A secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    /// Its name.
    #[schema(value_type = String, example = "API_KEY")]
    pub name: SecretName,
    /// The application whose secret it is; that of all applications, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "shop")]
    pub application: Option<ApplicationId>,
    /// When its value was set.
    #[schema(format = DateTime)]
    pub set: String,
    /// The functions of which a version that has an alias uses it.
    #[schema(value_type = Vec<String>, example = json!(["shop.resize"]))]
    pub functions: Vec<FunctionId>,
}

/// Which version to go back to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackRequest {
    /// The version; the one before the live one, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub to: Option<VersionNumber>,
}

/// Which version an alias is to name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AliasRequest {
    /// The version.
    #[schema(value_type = u32)]
    pub version: VersionNumber,
}

/// An alias that names another version than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AliasChange {
    /// The function.
    #[schema(value_type = String, example = "shop.resize")]
    pub function: FunctionId,
    /// The alias.
    #[schema(value_type = String, example = "live")]
    pub alias: Name,
    /// What it named before, if it was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub from: Option<VersionNumber>,
    /// What it names now.
    #[schema(value_type = u32)]
    pub to: VersionNumber,
}

/// A line of a function's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Record {
    /// When the line was complete.
    #[schema(format = DateTime)]
    pub time: String,
    /// The function.
    #[schema(value_type = String, example = "shop.resize")]
    pub function: FunctionId,
    /// Its version.
    #[schema(value_type = u32)]
    pub version: VersionNumber,
    /// The request that said it, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// `stdout`, `stderr`, or `platform` for the node's own words.
    pub stream: String,
    /// The line, without its end.
    pub message: String,
    /// How many bytes of it were left out because it was too long.
    #[serde(default)]
    pub omitted: u64,
}

/// Asynchronous calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Calls {
    /// In the order of their ids.
    pub calls: Vec<Call>,
    /// If there are more: what to give as `after` for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub next: Option<RequestId>,
}

/// An asynchronous call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Call {
    /// Its `X-Call-Id`.
    #[schema(value_type = String, example = "60c820b3de8759560000000000000003")]
    pub id: RequestId,
    /// The function, as it was named.
    #[schema(value_type = String, example = "shop.resize")]
    pub function: FunctionRef,
    /// Where it is in its life.
    pub state: CallState,
    /// When it was accepted.
    #[schema(format = DateTime)]
    pub accepted: String,
    /// Attempts that were begun.
    pub attempts: u32,
    /// When the next attempt is due, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub due: Option<String>,
    /// When it succeeded or became a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub ended: Option<String>,
    /// The status that the function answered with, if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it is a dead letter, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<CallCause>,
    /// Why its last attempt failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How its outcome is told, if somebody wants to hear of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// The call whose outcome it tells, if it is a callback itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub callback_of: Option<RequestId>,
    /// Whom its outcome is told; of a callback, whom it tells. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
}

/// How the outcome of a call is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Callback {
    /// The call that tells it. Absent before there is an outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub id: Option<RequestId>,
    /// Where that call is in its life. Absent when it is not kept any more, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<CallState>,
}

/// Where a call is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallState {
    /// On its way to the disk; not accepted yet.
    Accepting,
    /// It is run when it is due.
    Waiting,
    /// An attempt is under way.
    Running,
    /// It has a result.
    Succeeded,
    /// A dead letter.
    Dead,
}

/// Why a call is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallCause {
    /// It failed as often as it may.
    Attempts,
    /// It became too old.
    Age,
    /// It failed in a way that no other attempt would change.
    Final,
    /// The node ended during too many attempts one after the other.
    Interrupted,
}

/// All tenants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tenants {
    /// By name.
    pub tenants: Vec<Tenant>,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Its name.
    #[schema(value_type = String, example = "acme")]
    pub tenant: Name,
    /// When it was made.
    #[schema(format = DateTime)]
    pub created: String,
    /// What it may use.
    pub quotas: Quotas,
    /// The hosts whose requests are for its routes.
    pub hosts: Vec<String>,
    /// Its routes answer requests for these hosts that show no token.
    pub public: bool,
    /// What it uses.
    pub used: Used,
}

/// What a tenant may use. What is absent is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quotas {
    /// Functions that are deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<u32>,
    /// The sum of the memory limits of sandboxes that serve a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "1GiB")]
    pub memory: Option<ByteSize>,
    /// Sandboxes that serve a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Requests in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

/// What a tenant uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Used {
    /// Applications that are deployed.
    pub applications: usize,
    /// Functions that are deployed.
    pub functions: usize,
    /// The sum of the memory limits of sandboxes that serve a request now.
    #[schema(value_type = String, example = "64MiB")]
    pub memory: ByteSize,
    /// Sandboxes that serve a request now.
    pub concurrency: u32,
}

/// What the operator says of a tenant. What is absent stays as it is; a quota that is `null` is lifted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantRequest {
    /// Functions that may be deployed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    pub functions: Option<Option<u32>>,
    /// What the memory limits of sandboxes that serve a request may add up to.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<String>, example = "1GiB")]
    pub memory: Option<Option<ByteSize>>,
    /// Sandboxes that may serve a request at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    pub concurrency: Option<Option<u32>>,
    /// Requests that are taken in a second.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    pub rate: Option<Option<u32>>,
    /// The hosts whose requests are for its routes: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Whether its routes answer requests for these hosts that show no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<bool>,
}

/// Tells `null` from what is absent.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The tokens of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tokens {
    /// By id.
    pub tokens: Vec<Token>,
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Names it where it is spoken of.
    #[schema(example = "5f0c6a1e9b42")]
    pub id: String,
    /// What it was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "ci")]
    pub name: Option<String>,
    /// What its holder may do.
    pub roles: Vec<Role>,
    /// When it was made.
    #[schema(format = DateTime)]
    pub created: String,
    /// When it ends; never, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires: Option<String>,
}

/// A token that was just made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// What is known of it later.
    #[serde(flatten)]
    pub about: Token,
    /// What its holder shows. It is told here and never again.
    #[schema(example = "mp_5f0c6a1e9b42_…")]
    pub token: String,
}

/// What a token is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// What its holder may do.
    pub roles: Vec<Role>,
    /// What it is called in lists and audit lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "ci")]
    pub name: Option<String>,
    /// How long it is good for; for ever, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "90d")]
    pub expires_in: Option<String>,
}

/// What the holder of a token may do for its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Deploy, roll back and delete.
    Deploy,
    /// Have functions run.
    Invoke,
    /// See what is deployed, logs, calls and their results, numbers.
    Read,
}

impl From<tenants::Role> for Role {
    fn from(role: tenants::Role) -> Self {
        match role {
            tenants::Role::Deploy => Self::Deploy,
            tenants::Role::Invoke => Self::Invoke,
            tenants::Role::Read => Self::Read,
        }
    }
}

impl From<Role> for tenants::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Deploy => Self::Deploy,
            Role::Invoke => Self::Invoke,
            Role::Read => Self::Read,
        }
    }
}

impl From<&tenants::Token> for Token {
    fn from(token: &tenants::Token) -> Self {
        Self {
            id: token.id.clone(),
            name: token.name.clone(),
            roles: token.roles.iter().map(|role| (*role).into()).collect(),
            created: milliseconds(token.created),
            expires: token.expires.map(milliseconds),
        }
    }
}

/// A line of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditLine {
    /// When it was.
    #[schema(format = DateTime)]
    pub time: String,
    /// Whose things it is about; the node's own, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub tenant: Option<Name>,
    /// `operator`, `token`, or `unknown`.
    pub by: String,
    /// The token's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// What the token is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_name: Option<String>,
    /// Where the request came from. A tenant is not told the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub remote: Option<SocketAddr>,
    /// The operation, as this description names it.
    pub action: String,
    /// What it was about: path and query of the request.
    pub what: String,
    /// `done`, `refused`, or `failed`.
    pub outcome: String,
    /// The status of the answer.
    pub status: u16,
    /// The code of the answer's problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Refusals of unknown callers before this line that were too many to be kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A time that is kept in milliseconds since 1970.
pub(crate) fn milliseconds(since: u64) -> String {
    moment(calls::Timestamp(since))
}

/// A time as the API writes it. Clocks before 1970 or after 9999 are broken, and the format has no such times.
pub(crate) fn time(time: SystemTime) -> String {
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_millis(time.clamp(SystemTime::UNIX_EPOCH, last)).to_string()
}

fn moment(timestamp: calls::Timestamp) -> String {
    let since = timestamp.since(calls::Timestamp::default());
    time(
        SystemTime::UNIX_EPOCH
            .checked_add(since)
            .unwrap_or(SystemTime::UNIX_EPOCH),
    )
}

impl From<calls::Call> for Call {
    fn from(call: calls::Call) -> Self {
        let mut one = Self {
            id: call.id.0,
            function: call.function,
            state: call.state.into(),
            accepted: moment(call.accepted),
            attempts: call.begun,
            due: None,
            ended: None,
            status: None,
            cause: None,
            reason: call.reason,
            callback: call.callback.map(|telling| Callback {
                id: telling.id.map(|id| id.0),
                state: telling.state.map(CallState::from),
            }),
            callback_of: call.tells.map(|id| id.0),
            callback_url: None,
        };
        match call.state {
            calls::State::Accepting | calls::State::Running => {}
            calls::State::Waiting { due } => one.due = Some(moment(due)),
            calls::State::Succeeded { at, status } => {
                one.ended = Some(moment(at));
                one.status = Some(status);
            }
            calls::State::Dead { at, cause } => {
                one.ended = Some(moment(at));
                one.cause = Some(cause.into());
            }
        }
        one
    }
}

impl From<calls::State> for CallState {
    fn from(state: calls::State) -> Self {
        match state {
            calls::State::Accepting => Self::Accepting,
            calls::State::Waiting { .. } => Self::Waiting,
            calls::State::Running => Self::Running,
            calls::State::Succeeded { .. } => Self::Succeeded,
            calls::State::Dead { .. } => Self::Dead,
        }
    }
}

impl From<calls::Cause> for CallCause {
    fn from(cause: calls::Cause) -> Self {
        match cause {
            calls::Cause::Attempts => Self::Attempts,
            calls::Cause::Age => Self::Age,
            calls::Cause::Final => Self::Final,
            calls::Cause::Interrupted => Self::Interrupted,
        }
    }
}

impl From<&HttpTrigger> for Route {
    fn from(trigger: &HttpTrigger) -> Self {
        Self {
            function: trigger.function.clone(),
            path: trigger.path.clone(),
            method: trigger.method.clone(),
            host: trigger.host.clone(),
        }
    }
}

impl From<&ScheduleTrigger> for Schedule {
    fn from(trigger: &ScheduleTrigger) -> Self {
        let missed = match trigger.missed {
            Missed::Skip => "skip",
            Missed::Once => "once",
            Missed::All => "all",
        };
        Self {
            function: trigger.function.clone(),
            when: trigger.when(),
            missed: missed.to_owned(),
            enabled: trigger.enabled,
            next: None,
        }
    }
}

impl From<&CloudEventsTrigger> for Subscription {
    fn from(trigger: &CloudEventsTrigger) -> Self {
        Self {
            function: trigger.function.clone(),
            r#type: trigger.kind.clone(),
            source: trigger.source.clone(),
        }
    }
}

impl From<&registry::Settings> for Settings {
    fn from(settings: &registry::Settings) -> Self {
        let (protocol, content_type) = match &settings.protocol {
            contract::Protocol::Raw { content_type } => ("raw", Some(content_type.clone())),
            contract::Protocol::Cgi => ("cgi", None),
        };
        let limits = &settings.limits;
        Self {
            engine: settings.engine.clone(),
            memory: limits.memory,
            timeout: format_duration(limits.timeout),
            cpu_time: format_duration(limits.cpu_time),
            request_body: limits.request_body,
            response_body: limits.response_body,
            concurrency: limits.concurrency,
            queue: limits.queue,
            reuse: settings.reuse,
            arguments: settings.arguments.clone(),
            env: settings.env.clone(),
            protocol: protocol.to_owned(),
            content_type,
            http: settings.http.clone(),
            headers: settings
                .headers
                .iter()
                .map(|(host, headers)| {
                    let headers = headers.iter();
                    let headers = headers.map(|(name, value)| (name.clone(), value.to_string()));
                    (host.clone(), headers.collect())
                })
                .collect(),
            clear_text: settings.clear_text.clone(),
        }
    }
}

impl From<&registry::Version> for Version {
    fn from(version: &registry::Version) -> Self {
        Self {
            version: version.number,
            created: time(version.created),
            code: version.code,
        }
    }
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
