//! What is there: applications, functions, versions and aliases.

use super::{ObjectSubscription, Route, Schedule, Subscription, time};
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
    /// The new objects that it wants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectSubscription>,
}

/// A function and all its versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FunctionDetail {
    /// The function, and the version that was asked for.
    #[serde(flatten)]
    pub function: Function,
    /// What the version that was asked for runs on.
    pub tier: Tier,
    /// What requests to the version that was asked for use; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The versions that are kept, newest first.
    pub versions: Vec<Version>,
}

/// What a version runs on, and what may take over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tier {
    /// The engine; absent before its code is loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "wasmtime")]
    pub engine: Option<String>,
    /// What its sandboxes are made from, once there is something to be said of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "processes that are forked from one that has imported the module")]
    pub origin: Option<String>,
    /// Which limits are kept, and by what, where that depends on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "memory, processes, cores and time of all of a request's processes together")]
    pub kept: Option<String>,
    /// The engine that may take over, where the node chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "aot")]
    pub next: Option<String>,
    /// How far that is: `waiting`, `compiling` or `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "waiting")]
    pub state: Option<String>,
    /// How long requests have to be on cores before it is compiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1s")]
    pub after: Option<String>,
    /// Why it failed; the engine that serves goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What requests to a version use. What is an hour old weighs half as much as what is new, so it follows change; it survives
/// restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Requests that had a sandbox, since the version was deployed.
    pub requests: u64,
    /// Requests that came in a second, of late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "12.5")]
    pub rate: Option<String>,
    /// From one arrival to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Spread>,
    /// Time on a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Spread>,
    /// Time that it waited for something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Spread>,
    /// A sandbox's largest memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Spread>,
    /// Bodies of requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Spread>,
    /// Bodies of responses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Spread>,
}

/// How times or sizes are distributed. Quantiles are at most a quarter too large.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spread {
    /// The mean.
    #[schema(example = "1.52ms")]
    pub mean: String,
    /// What half of all do not exceed.
    #[schema(example = "1.31ms")]
    pub p50: String,
    /// What nine of ten do not exceed.
    #[schema(example = "2.62ms")]
    pub p90: String,
    /// What 99 of a hundred do not exceed.
    #[schema(example = "10.4ms")]
    pub p99: String,
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

fn one() -> u32 {
    1
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
    /// Cores that the processes and threads of one request use at once.
    #[serde(default = "one")]
    pub cpus: u32,
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
    /// The tenant whose share and quotas it uses, if it is the node's own and uses another's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "acme")]
    pub tenant: Option<Name>,
    /// How many requests one sandbox serves.
    pub reuse: u32,
    /// Arguments after the program's name.
    pub arguments: Vec<String>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// `raw`, `cgi`, `pure` or `lambda`.
    pub protocol: String,
    /// Of `lambda`: which function of which module in its package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// `Content-Type` of a raw response, and of a pure function's item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Sets of items that a pure function gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_sets: Option<Vec<String>>,
    /// Sets of items that a pure function gives back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_sets: Option<Vec<String>>,
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
    /// Functions that it may invoke, as the manifest has them.
    #[serde(default, rename = "grants.lambda", skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<String>,
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
        let text = |bytes| Some(String::from_utf8_lossy(bytes).into_owned());
        let (protocol, content_type, input_sets, output_sets) = match &settings.protocol {
            contract::Protocol::Raw { content_type } => ("raw", text(content_type), None, None),
            contract::Protocol::Cgi => ("cgi", None, None, None),
            contract::Protocol::Lambda { .. } => ("lambda", None, None, None),
            contract::Protocol::Pure {
                inputs,
                outputs,
                content_type,
            } => (
                "pure",
                text(content_type),
                Some(inputs.clone()),
                Some(outputs.clone()),
            ),
        };
        let handler = match &settings.protocol {
            contract::Protocol::Lambda { handler } => Some(handler.clone()),
            _ => None,
        };
        let limits = &settings.limits;
        Self {
            handler,
            engine: settings.engine.clone(),
            memory: limits.memory,
            timeout: format_duration(limits.timeout),
            cpu_time: format_duration(limits.cpu_time),
            cpus: limits.cpus,
            request_body: limits.request_body,
            response_body: limits.response_body,
            concurrency: limits.concurrency,
            queue: limits.queue,
            deadline: settings.claim.deadline.map(format_duration),
            priority: settings.claim.priority,
            tenant: settings.tenant.clone(),
            reuse: settings.reuse,
            arguments: settings.arguments.clone(),
            env: settings.env.clone(),
            protocol: protocol.to_owned(),
            content_type,
            input_sets,
            output_sets,
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
            functions: settings.functions.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Spread {
    fn of(distribution: &registry::Distribution, shown: impl Fn(f64) -> String) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let quantile = |part| Some(shown(distribution.quantile(part)? as f64));
        Some(Self {
            mean: shown(distribution.mean()?),
            p50: quantile(0.5)?,
            p90: quantile(0.9)?,
            p99: quantile(0.99)?,
        })
    }
}

/// A number in the largest of some units of which it has at least one, with three digits.
fn in_unit(value: f64, units: &[(&str, f64)]) -> String {
    let largest = units.iter().find(|(_, scale)| value >= *scale).or(units.last());
    let (name, scale) = largest.copied().unwrap_or(("", 1.0));
    let value = value / scale;
    match value {
        10.0..100.0 => format!("{value:.1}{name}"),
        0.005..10.0 => format!("{value:.2}{name}"),
        _ => format!("{value:.0}{name}"),
    }
}

fn duration(ticks: f64) -> String {
    let units = [("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6)];
    in_unit(registry::ticks(ticks).as_secs_f64(), &units)
}

fn size(bytes: f64) -> String {
    let units = [
        ("GiB", 1073741824.0),
        ("MiB", 1048576.0),
        ("KiB", 1024.0),
        ("B", 1.0),
    ];
    in_unit(bytes, &units)
}

impl From<&registry::History> for Usage {
    fn from(history: &registry::History) -> Self {
        Self {
            requests: history.requests,
            rate: history.rate().map(|rate| in_unit(rate, &[("", 1.0)])),
            gap: Spread::of(&history.gap, duration),
            run: Spread::of(&history.run, duration),
            waits: Spread::of(&history.waits, duration),
            memory: Spread::of(&history.memory, size),
            received: Spread::of(&history.received, size),
            sent: Spread::of(&history.sent, size),
        }
    }
}

impl From<registry::Tier> for Tier {
    fn from(tier: registry::Tier) -> Self {
        let mut shown = Self {
            engine: tier.engine.map(str::to_owned),
            origin: tier.origin,
            kept: tier.kept,
            ..Self::default()
        };
        let Some(next) = tier.next else { return shown };
        shown.next = Some(next.engine.to_owned());
        let state = match next.state {
            registry::NextState::After(time) => {
                shown.after = Some(format_duration(time));
                "waiting"
            }
            registry::NextState::Compiling => "compiling",
            registry::NextState::Failed(reason) => {
                shown.reason = Some(reason);
                "failed"
            }
        };
        shown.state = Some(state.to_owned());
        shown
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_three_digits() {
        // A tick is 128 ns.
        let millis = |n: f64| duration(n * 1e6 / 128.0);
        let shown = [0.0, 0.0012, 1.234, 12.345, 123.45, 1234.5, 90_000.0, 7_200_000.0].map(millis);
        assert_eq!(
            shown,
            [
                "0us", "1.20us", "1.23ms", "12.3ms", "123ms", "1.23s", "1.50m", "2.00h"
            ]
        );
        let shown = [0.0, 1.0, 1023.0, 65536.0, 1.5 * 1048576.0].map(size);
        assert_eq!(shown, ["0B", "1.00B", "1023B", "64.0KiB", "1.50MiB"]);
    }
}
