//! What is there: applications, functions, versions and aliases.

use super::{Route, Schedule, Subscription, time};
use contract::{ApplicationId, ByteSize, Digest, FunctionId, Name, VersionNumber, format_duration};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

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
    /// How soon after its arrival a request is to be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "50ms")]
    pub deadline: Option<String>,
    /// Which of a tenant's requests go first: those of the larger number.
    #[serde(default)]
    pub priority: i8,
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

impl From<&registry::Settings> for Settings {
    fn from(settings: &registry::Settings) -> Self {
        let (protocol, content_type) = match &settings.protocol {
            contract::Protocol::Raw { content_type } => {
                ("raw", Some(String::from_utf8_lossy(content_type).into_owned()))
            }
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
            deadline: settings.claim.deadline.map(format_duration),
            priority: settings.claim.priority,
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
