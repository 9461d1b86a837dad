//! The manifest as values. The doc comments of these types are the descriptions in the JSON schema.

use crate::schema;
use contract::{ByteSize, Limits, Name};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::{collections::BTreeMap, time::Duration};

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
    /// Path of the code, relative to the manifest.
    #[schemars(length(min = 1), extend("examples" = ["build/resize.wasm"]))]
    pub source: String,
    /// What isolates the function.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "auto"))]
    pub engine: Engine,
    /// Linear memory of one sandbox, 64KiB to 4GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Size", extend("default" = "64MiB"))]
    pub memory: Option<ByteSize>,
    /// Wall-clock time from admission to the last byte of the response, 1ms to 1h.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "duration")]
    #[schemars(with = "schema::Span", extend("default" = "30s"))]
    pub timeout: Option<Duration>,
    /// Time on a core for one request, 1ms to 1h.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "duration")]
    #[schemars(with = "schema::Span", extend("default" = "10s"))]
    pub cpu_time: Option<Duration>,
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
    /// How many requests one sandbox serves; 1 is a fresh sandbox for every request.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 1))]
    pub reuse: u32,
    /// Arguments after the program's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// `Content-Type` of the response under `protocol = "raw"`; `text/plain; charset=utf-8` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 3), extend("examples" = ["image/png"]))]
    pub content_type: Option<String>,
    /// How standard output becomes a response.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "raw"))]
    pub protocol: Protocol,
    /// Environment variables. Names that every request sets itself (`HTTP_*`, `MILLPOND_*` and CGI's) are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<schema::Variable, String>")]
    pub env: BTreeMap<String, String>,
    /// How `millpond deploy --build` makes the code.
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
    /// WebAssembly by Wasmtime: WASI 0.1 commands.
    Wasmtime,
}

/// How standard output becomes a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// All of it is the body.
    #[default]
    Raw,
    /// It begins with header lines and an empty line (RFC 3875, section 6).
    Cgi,
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
}

/// A host that a function may send HTTP requests to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpGrant {
    /// Name or address of the host, in lower case, without a port.
    #[schemars(length(min = 1), extend("examples" = ["api.example.org"]))]
    pub host: String,
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

/// What makes functions run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Triggers {
    /// Routes of the data plane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<HttpTrigger>,
}

/// A route: requests that match it run the function.
///
/// Among routes that match, one with the request's host goes before one without a host, then one with the request's
/// method before one without a method, then the more exact path.
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
            request_body: self.request_body.unwrap_or(default.request_body),
            response_body: self.response_body.unwrap_or(default.response_body),
            concurrency: self.concurrency.unwrap_or(default.concurrency),
            queue: self.queue.unwrap_or(default.queue),
        }
    }

    /// How standard output becomes a response.
    pub fn protocol(&self) -> contract::Protocol {
        match self.protocol {
            Protocol::Raw => contract::Protocol::Raw {
                content_type: self
                    .content_type
                    .clone()
                    .unwrap_or_else(|| DEFAULT_CONTENT_TYPE.to_owned()),
            },
            Protocol::Cgi => contract::Protocol::Cgi,
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

impl Grants {
    /// Whether the function may reach nothing.
    pub fn is_empty(&self) -> bool {
        self.http.is_empty() && self.s3.is_empty()
    }
}

impl Triggers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.http.is_empty()
    }
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

/// An optional duration as text.
mod duration {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    #[expect(clippy::ref_option, reason = "serde calls it with a reference")]
    pub(super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.collect_str(&contract::format_duration(*duration)),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| contract::parse_duration(&text))
            .transpose()
            .map_err(serde::de::Error::custom)
    }
}
