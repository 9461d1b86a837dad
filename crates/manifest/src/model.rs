//! The manifest as values. The doc comments of these types are the descriptions in the JSON schema.

use crate::schema;
use contract::{ByteSize, Demanded, FunctionRef, Limits, Name, SecretName, Template};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use triggers::{Event, Pattern, Timing, TimingError};

/// The manifest of one Millpond application: `millpond.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The application as a whole.
    pub application: Application,
    /// The application's functions, by name. At least one.
    #[schemars(with = "BTreeMap<schema::NameText, Function>", extend("minProperties" = 1))]
    pub function: BTreeMap<Name, Function>,
    /// What makes functions run, besides `/function/NAME`.
    #[serde(default, skip_serializing_if = "Triggers::is_empty")]
    pub trigger: Triggers,
}

/// The application as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// The application's name, unique on a node.
    #[schemars(with = "schema::NameText")]
    pub name: Name,
}

/// One function: code, its limits, and what it may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// Path of the code, relative to the manifest: a WebAssembly module of WASI 0.1, a component of WASI 0.2, a native executable; or, with
    /// `handler`, a file of Python, a folder, or a ZIP file.
    #[schemars(length(min = 1), extend("examples" = ["build/resize.wasm"]))]
    pub source: String,
    /// The function is a handler of AWS Lambda's, in Python: `MODULE.FUNCTION`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 3), extend("examples" = ["app.handler"]))]
    pub handler: Option<String>,
    /// Path of a file that names what a function in Python requires, for pip, relative to the manifest. What that comes to is written down
    /// beside it, with digests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), extend("examples" = ["requirements.txt"]))]
    pub requirements: Option<String>,
    /// What isolates the function.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "auto"))]
    pub engine: Engine,
    /// Linear memory of one sandbox, 64KiB to 4GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Size", extend("default" = "64MiB"))]
    pub memory: Option<ByteSize>,
    /// Wall-clock time from admission to the last byte of the response, 1ms to 1h.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "contract::units::maybe"
    )]
    #[schemars(with = "schema::Span", extend("default" = "30s"))]
    pub timeout: Option<Duration>,
    /// Time on a core for one request, 1ms to 1h. Of a native executable or a function in Python that names it, all of a request's processes
    /// together: it does not run where the node's host cannot count that.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "contract::units::maybe"
    )]
    #[schemars(with = "schema::Span", extend("default" = "10s"))]
    pub cpu_time: Option<Duration>,
    /// Cores that the processes and threads of a request to a native executable use at once, all together: one that names it does not run where
    /// the node's host cannot count that. A WebAssembly sandbox has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 1024), extend("default" = 1))]
    pub cpus: Option<u32>,
    /// Largest body of a request, at most 1GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Size", extend("default" = "16MiB"))]
    pub request_body: Option<ByteSize>,
    /// Largest body of a response, at most 1GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Size", extend("default" = "16MiB"))]
    pub response_body: Option<ByteSize>,
    /// Sandboxes alive at once on a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 100_000), extend("default" = 256))]
    pub concurrency: Option<u32>,
    /// Requests that wait for a sandbox; one more is answered 429.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 0, max = 1_000_000), extend("default" = 4096))]
    pub queue: Option<u32>,
    /// How soon after its arrival a request is to be answered, 1ms to 1h. One that could not be is answered 429 at once.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "contract::units::maybe"
    )]
    #[schemars(with = "schema::Span", extend("examples" = ["50ms"]))]
    pub deadline: Option<Duration>,
    /// Which of a tenant's requests go first: those of the larger number, -100 to 100.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(range(min = -100, max = 100), extend("default" = 0))]
    pub priority: i8,
    /// Whose share of the cores and whose quotas it uses. The node's operator may name any tenant for a function of the node's own; a
    /// tenant's functions are always its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::NameText")]
    pub tenant: Option<Name>,
    /// How many requests one sandbox serves; 1 is a fresh sandbox for every request.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 1))]
    pub reuse: u32,
    /// Arguments after the program's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// `Content-Type` of the response under `protocol = "raw"`, and of an item under `protocol = "pure"`; `text/plain; charset=utf-8` and
    /// `application/octet-stream` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 3), extend("examples" = ["image/png"]))]
    pub content_type: Option<String>,
    /// What the function is given, and what of it becomes a response.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "raw"))]
    pub protocol: Protocol,
    /// Sets of items that a pure function gets; `["input"]` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", extend("examples" = [["a", "b"]]))]
    pub input_sets: Option<Vec<String>>,
    /// Sets of items that a pure function gives back; `["output"]` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", extend("examples" = [["product"]]))]
    pub output_sets: Option<Vec<String>>,
    /// Environment variables. Names that every request sets itself (`HTTP_*`, `MILLPOND_*` and CGI's) are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<schema::Variable, String>")]
    pub env: BTreeMap<String, String>,
    /// How the code is made, by `millpond build`, `millpond up` and `millpond deploy --build`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Build")]
    pub build: Option<Build>,
    /// What the function may reach beyond its request.
    #[serde(default, skip_serializing_if = "Grants::is_empty")]
    pub grants: Grants,
}

/// What isolates a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// The node chooses.
    #[default]
    Auto,
    /// WebAssembly by Wasmtime: commands of WASI 0.1 and 0.2, HTTP handlers.
    Wasmtime,
    /// The same with at most 256MiB of memory and a check of every access, so that many more sandboxes can wait at once.
    #[serde(rename = "wasmtime-dense")]
    WasmtimeDense,
    /// WebAssembly by the ahead-of-time compiler: commands of WASI 0.1, at native speed. Deploying takes longer.
    Aot,
    /// The same with a check of every access.
    #[serde(rename = "aot-software")]
    AotSoftware,
    /// The same with addresses cut to the memory's size: what lies outside it is somewhere in it.
    #[serde(rename = "aot-mask")]
    AotMask,
    /// The same with nothing that keeps the code in its memory: to measure, with trusted code, where the node's configuration allows it.
    #[serde(rename = "aot-none")]
    AotNone,
    /// WebAssembly by way of Rust without `unsafe`: commands of WASI 0.1 without SIMD. Deploying takes longer.
    Rwasm,
    /// The same without a check of every access: what lies outside the memory is read as zeros, and traps when it is written.
    #[serde(rename = "rwasm-mask")]
    RwasmMask,
    /// A process of its own for each request: native executables, and functions in Python.
    Process,
}

impl Engine {
    /// The largest `memory` that it gives a sandbox, if it has a bound of its own.
    pub(crate) fn most_memory(self) -> Option<ByteSize> {
        match self {
            Self::WasmtimeDense => Some(ByteSize::mib(256)),
            _ => None,
        }
    }

    /// As in a manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Wasmtime => "wasmtime",
            Self::WasmtimeDense => "wasmtime-dense",
            Self::Aot => "aot",
            Self::AotSoftware => "aot-software",
            Self::AotMask => "aot-mask",
            Self::AotNone => "aot-none",
            Self::Rwasm => "rwasm",
            Self::RwasmMask => "rwasm-mask",
            Self::Process => "process",
        }
    }
}

/// What a function is given, and what of it becomes a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The request is its environment and its standard input; all of its standard output is the response's body.
    #[default]
    Raw,
    /// The same, but its standard output begins with header lines and an empty line (RFC 3875, section 6).
    Cgi,
    /// The function is pure: it gets sets of items as files `/in/SET/ITEM`, or in its memory, leaves others as `/out/SET/ITEM`, or there, and sees
    /// nothing else. Equal inputs give equal outputs: in WebAssembly to the bits of a NaN, in native code on the same processor.
    Pure,
}

/// How a function's code is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// A shell command, run in the manifest's folder.
    #[schemars(length(min = 1), extend("examples" = ["make"]))]
    pub command: String,
    /// Globs of the files that the code is made from, relative to the manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watch: Vec<String>,
}

/// What a function may reach beyond its request. Nothing, unless it is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grants {
    /// Hosts it may send HTTP requests to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<HttpGrant>,
    /// Objects it may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub s3: Vec<S3Grant>,
    /// Operations of AWS's services it may ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aws: Vec<AwsGrant>,
    /// Functions it may invoke.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lambda: LambdaGrant,
}

/// A host that a function may send HTTP requests to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpGrant {
    /// Name or address of the host, in lower case, without a port.
    #[schemars(length(min = 1), extend("examples" = ["api.example.org"]))]
    pub host: String,
    /// Header fields that the node adds to each request to this host, in place of the function's own of the same name. In a value,
    /// `{secret:NAME}` stands for that secret, which the function never sees; `{{` and `}}` are braces.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        with = "BTreeMap<String, schema::TemplateText>",
        extend("examples" = [{ "authorization": "Bearer {secret:API_KEY}" }])
    )]
    pub headers: BTreeMap<String, Template>,
    /// Whether secrets in `headers` may be sent by `http`, without TLS, to a host beyond this machine: all on the way can read
    /// them.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = false))]
    pub clear_text: bool,
}

/// Objects that a function may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct S3Grant {
    /// The bucket.
    #[schemars(length(min = 3, max = 63), regex(pattern = "^[a-z0-9][a-z0-9.-]*[a-z0-9]$"))]
    pub bucket: String,
    /// Only objects whose key begins with this.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// What it may do with them. At least one.
    #[schemars(length(min = 1))]
    pub actions: Vec<S3Action>,
}

/// Operations of one of AWS's services that a function may ask for, by the boto3 that it brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwsGrant {
    /// The service, as boto3 calls it.
    #[schemars(regex(
        pattern = "^(dynamodb|events|firehose|kinesis|kms|logs|secretsmanager|sns|sqs|ssm|stepfunctions)$"
    ))]
    pub service: String,
    /// Its operations, by their names in its API. At least one; `*` stands for any text.
    #[schemars(length(min = 1), extend("examples" = [["GetItem", "PutItem"]]))]
    pub actions: Vec<String>,
    /// What they may be about, as requests name it: names of tables, URLs of queues, ARNs of topics. At least one; `*` stands for any text, and is needed for
    /// operations that are about nothing in particular.
    #[schemars(length(min = 1), extend("examples" = [["orders"]]))]
    pub resources: Vec<String>,
}

/// What a function may do with objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum S3Action {
    /// Read them.
    Get,
    /// Write them.
    Put,
    /// List their keys.
    List,
    /// Delete them.
    Delete,
}

impl From<S3Action> for contract::S3Action {
    fn from(action: S3Action) -> Self {
        match action {
            S3Action::Get => Self::Get,
            S3Action::Put => Self::Put,
            S3Action::List => Self::List,
            S3Action::Delete => Self::Delete,
        }
    }
}

impl From<&S3Grant> for contract::S3Grant {
    fn from(grant: &S3Grant) -> Self {
        Self {
            bucket: grant.bucket.clone(),
            prefix: grant.prefix.clone(),
            actions: grant.actions.iter().map(|action| (*action).into()).collect(),
        }
    }
}

impl From<&AwsGrant> for contract::AwsGrant {
    fn from(grant: &AwsGrant) -> Self {
        Self {
            service: grant.service.clone(),
            actions: grant.actions.clone(),
            resources: grant.resources.clone(),
        }
    }
}

/// Functions that a function may invoke, by AWS Lambda's API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LambdaGrant {
    /// Their names, as `[APPLICATION.]FUNCTION[:VERSION|:ALIAS]`: those without an application are of this one, those without a
    /// version or alias may be invoked by any. `FUNCTION:live` is what is deployed last.
    #[serde(default)]
    #[schemars(extend("examples" = [["resize", "shop.bill:live"]]))]
    pub functions: Vec<String>,
}

/// What makes functions run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Triggers {
    /// Routes of the data plane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<HttpTrigger>,
    /// Times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<ScheduleTrigger>,
    /// Events of the CloudEvents specification.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cloudevents: Vec<CloudEventsTrigger>,
    /// Objects of S3 that are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub object: Vec<ObjectTrigger>,
}

/// A schedule: the function runs at these times, as an asynchronous call. Either `cron` or `every` says when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleTrigger {
    /// The function that runs.
    #[schemars(with = "schema::NameText")]
    pub function: Name,
    /// Minute, hour, day of the month, month and weekday, optionally with the second before them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), extend("examples" = ["*/5 * * * *"]))]
    pub cron: Option<String>,
    /// The time zone of `cron`, by its name in the IANA database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), extend("default" = "UTC", "examples" = ["Europe/Berlin"]))]
    pub timezone: Option<String>,
    /// The time between two runs, 1s to 366 days; the first is that long after the deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), extend("examples" = ["30s"]))]
    pub every: Option<String>,
    /// What is done about runs that were due while the node was down.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "once"))]
    pub missed: Missed,
    /// The body of the request that the function gets, at most 64KiB.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub payload: String,
    /// Whether it runs. One that begins to run again makes up for nothing.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    #[schemars(extend("default" = true))]
    pub enabled: bool,
}

/// What is done about runs that were due while the node was down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// Nothing.
    Skip,
    /// One run makes up for all of them.
    #[default]
    Once,
    /// Each is made up for: the latest hundred.
    All,
}

/// A subscription: events that match it run the function, each as an asynchronous call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CloudEventsTrigger {
    /// The function that runs.
    #[schemars(with = "schema::NameText")]
    pub function: Name,
    /// The `type` of the events; with `*` at its end, what their type begins with.
    #[serde(rename = "type")]
    #[schemars(length(min = 1), extend("examples" = ["com.example.order.*"]))]
    pub kind: String,
    /// Their `source`, in the same way. Any, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), extend("examples" = ["https://shop.example.org/*"]))]
    pub source: Option<String>,
}

/// New objects: each that is written to the bucket, and has such a key, runs the function, as an asynchronous call with an event of S3's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectTrigger {
    /// The function that runs.
    #[schemars(with = "schema::NameText")]
    pub function: Name,
    /// The bucket.
    #[schemars(length(min = 3, max = 63), extend("examples" = ["photos"]))]
    pub bucket: String,
    /// What their keys begin with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("examples" = ["incoming/"]))]
    pub prefix: String,
    /// What their keys end with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("examples" = [".jpg"]))]
    pub suffix: String,
}

/// A route: requests that match it run the function.
///
/// Among routes that match, one with the request's host goes before one without a host, then the more exact path, then one
/// with the request's method before one without a method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpTrigger {
    /// The function that answers.
    #[schemars(with = "schema::NameText")]
    pub function: Name,
    /// Path pattern. `{name}` stands for one segment or part of one, `{*rest}` for the tail; `{{` and `}}` are braces.
    #[schemars(regex(pattern = "^/"), extend("examples" = ["/resize/{size}", "/files/{*path}"]))]
    pub path: String,
    /// Methods that match, upper-case: one or a list. Any, when absent.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_many"
    )]
    #[schemars(with = "schema::Methods")]
    pub method: Vec<String>,
    /// The host that matches, in lower case, without a port. Any, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), extend("examples" = ["img.example.org"]))]
    pub host: Option<String>,
}

impl Function {
    /// The limits, with the defaults of [`Limits`] where the manifest names none.
    pub fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            memory: self.memory.unwrap_or(default.memory),
            timeout: self.timeout.unwrap_or(default.timeout),
            cpu_time: self.cpu_time.unwrap_or(default.cpu_time),
            cpus: self.cpus.unwrap_or(default.cpus),
            request_body: self.request_body.unwrap_or(default.request_body),
            response_body: self.response_body.unwrap_or(default.response_body),
            concurrency: self.concurrency.unwrap_or(default.concurrency),
            queue: self.queue.unwrap_or(default.queue),
            demanded: Demanded {
                cpu_time: self.cpu_time.is_some(),
                cpus: self.cpus.is_some(),
            },
        }
    }

    /// The objects that it may use.
    pub fn objects(&self) -> Vec<contract::S3Grant> {
        self.grants.s3.iter().map(Into::into).collect()
    }

    /// The operations of AWS's services that it may ask for.
    pub fn operations(&self) -> Vec<contract::AwsGrant> {
        self.grants.aws.iter().map(Into::into).collect()
    }

    /// The functions that it may invoke.
    pub fn invoked(&self) -> Vec<FunctionRef> {
        let named = self.grants.lambda.functions.iter();
        // Those that are no names are faults of the manifest.
        named.filter_map(|name| name.parse().ok()).collect()
    }

    /// How standard output becomes a response.
    pub fn protocol(&self) -> contract::Protocol {
        if let Some(handler) = &self.handler {
            return contract::Protocol::Lambda {
                handler: handler.clone(),
            };
        }
        let content_type =
            |default: &str| contract::content_type(self.content_type.as_deref().unwrap_or(default));
        match self.protocol {
            Protocol::Raw => contract::Protocol::Raw {
                content_type: content_type(DEFAULT_CONTENT_TYPE),
            },
            Protocol::Cgi => contract::Protocol::Cgi,
            Protocol::Pure => contract::Protocol::Pure {
                inputs: sets(self.input_sets.as_ref(), "input"),
                outputs: sets(self.output_sets.as_ref(), "output"),
                content_type: content_type(ITEM_CONTENT_TYPE),
            },
        }
    }

    /// The environment variables, sorted by name.
    pub fn environment(&self) -> Vec<(String, String)> {
        self.env
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// `Content-Type` of a raw response when the manifest names none.
pub const DEFAULT_CONTENT_TYPE: &str = "text/plain; charset=utf-8";

/// `Content-Type` of a pure function's item when the manifest names none.
const ITEM_CONTENT_TYPE: &str = "application/octet-stream";

fn sets(named: Option<&Vec<String>>, default: &str) -> Vec<String> {
    named.cloned().unwrap_or_else(|| vec![default.to_owned()])
}

impl Grants {
    /// Whether the function may reach nothing.
    pub fn is_empty(&self) -> bool {
        self.http.is_empty() && self.s3.is_empty() && self.aws.is_empty() && self.lambda.functions.is_empty()
    }

    /// The secrets that its headers name, each once.
    pub fn secrets(&self) -> BTreeSet<&SecretName> {
        let headers = self.http.iter().flat_map(|grant| grant.headers.values());
        headers.flat_map(Template::secrets).collect()
    }
}

impl Triggers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.http.is_empty()
            && self.schedule.is_empty()
            && self.cloudevents.is_empty()
            && self.object.is_empty()
    }
}

impl ObjectTrigger {
    /// Whether it is for the object of this key in this bucket.
    pub fn matches(&self, bucket: &str, key: &str) -> bool {
        self.bucket == bucket
            && key.len() >= self.prefix.len() + self.suffix.len()
            && key.starts_with(&self.prefix)
            && key.ends_with(&self.suffix)
    }
}

impl ScheduleTrigger {
    /// When it is due. Fails for what the rules refuse.
    pub fn timing(&self) -> Result<Timing, TimingError> {
        match (&self.cron, self.interval()) {
            (Some(cron), _) => Timing::cron(cron, self.timezone.as_deref().unwrap_or(UTC)),
            (None, Some(interval)) => Ok(Timing::every(interval)),
            (None, None) => Err(TimingError::Never),
        }
    }

    fn interval(&self) -> Option<Duration> {
        contract::parse_duration(self.every.as_deref()?).ok()
    }

    /// When it is due, as its author wrote it: tells the schedules of a function from each other.
    pub fn when(&self) -> String {
        match (&self.cron, &self.every) {
            (Some(cron), _) => {
                let fields: Vec<_> = cron.split_whitespace().collect();
                let zone = self.timezone.as_deref().filter(|zone| *zone != UTC);
                match zone {
                    Some(zone) => format!("{} {zone}", fields.join(" ")),
                    None => fields.join(" "),
                }
            }
            (None, Some(_)) => {
                let interval = self.interval().unwrap_or_default();
                format!("every {}", contract::format_duration(interval))
            }
            (None, None) => String::new(),
        }
    }
}

/// The time zone when the manifest names none.
const UTC: &str = "UTC";

impl From<Missed> for triggers::Missed {
    fn from(missed: Missed) -> Self {
        match missed {
            Missed::Skip => Self::Skip,
            Missed::Once => Self::Once,
            Missed::All => Self::All,
        }
    }
}

impl CloudEventsTrigger {
    /// Whether it wants an event.
    pub fn matches(&self, event: &Event) -> bool {
        let wants = |pattern: &str, text: &str| {
            pattern
                .parse::<Pattern>()
                .is_ok_and(|pattern| pattern.matches(text))
        };
        wants(&self.kind, event.kind())
            && self
                .source
                .as_deref()
                .is_none_or(|source| wants(source, event.source()))
    }
}

fn yes() -> bool {
    true
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_yes(yes: &bool) -> bool {
    *yes
}

fn one() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_one(n: &u32) -> bool {
    *n == 1
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match schema::Methods::deserialize(deserializer)? {
        schema::Methods::One(method) => vec![method],
        schema::Methods::Many(methods) if methods.is_empty() => {
            return Err(serde::de::Error::invalid_length(0, &"at least one method"));
        }
        schema::Methods::Many(methods) => methods,
    })
}
