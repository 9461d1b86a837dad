//! What a sandbox may use.

use crate::{ByteSize, FunctionId, FunctionRef, Template, VersionNumber};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::{net::IpAddr, num::NonZeroU32, time::Duration};

/// What one function version's sandboxes may use. Shared by all of them; it never holds a secret.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The function.
    pub function: FunctionId,
    /// Its version.
    pub version: VersionNumber,
    /// What one request may use.
    pub limits: Limits,
    /// Environment variables from the manifest, in its order. CGI metadata is added for each request.
    pub environment: Vec<(String, String)>,
    /// Arguments after the program's name.
    pub arguments: Vec<String>,
    /// How standard output becomes a response.
    pub protocol: Protocol,
    /// Hosts that it may send HTTP requests to, each once.
    pub http: Vec<HttpGrant>,
    /// Objects in S3 that it may use.
    pub s3: Vec<S3Grant>,
    /// Operations of other services of AWS that it may ask for.
    pub aws: Vec<AwsGrant>,
    /// Functions of its tenant that it may invoke, each with its application. Without a qualifier, all versions and aliases.
    pub functions: Vec<FunctionRef>,
}

impl Grant {
    /// The default limits and nothing else, for a function's first version.
    pub fn nothing(function: FunctionId) -> Self {
        Self {
            function,
            version: VersionNumber(NonZeroU32::MIN),
            limits: Limits::default(),
            environment: Vec::new(),
            arguments: Vec::new(),
            protocol: Protocol::Cgi,
            http: Vec::new(),
            s3: Vec::new(),
            aws: Vec::new(),
            functions: Vec::new(),
        }
    }
}

/// A host that a function may send HTTP requests to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpGrant {
    /// Its name in lower case, or its address.
    pub host: String,
    /// Header fields that the node adds to each request to that host, in place of those that the function has set: names in
    /// lower case, each once.
    pub headers: Vec<(String, Template)>,
    /// Whether secrets in them may be sent without TLS to a host beyond this machine.
    pub clear_text: bool,
}

/// Operations of one of AWS's services that a function may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwsGrant {
    /// The service: one of [`AWS_SERVICES`].
    pub service: String,
    /// Its operations, by their names in its API; `*` stands for any text.
    pub actions: Vec<String>,
    /// What they may be about, as requests name it: names, URLs, ARNs; `*` stands for any text.
    pub resources: Vec<String>,
}

/// The services of AWS, beside S3 and Lambda, that requests can be signed for, by the names that boto3 has for them. None of them gives credentials.
pub const AWS_SERVICES: [&str; 11] = [
    "dynamodb",
    "events",
    "firehose",
    "kinesis",
    "kms",
    "logs",
    "secretsmanager",
    "sns",
    "sqs",
    "ssm",
    "stepfunctions",
];

/// Objects that a function may use: those of a bucket whose keys begin with a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct S3Grant {
    /// The bucket.
    pub bucket: String,
    /// How their keys begin; empty for all of them.
    pub prefix: String,
    /// What it may do with them.
    pub actions: Vec<S3Action>,
}

/// What a function may do with objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// What a function claims for its requests. It orders them among those of its tenant, and never before another tenant's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// How soon after its arrival a request is to be answered. One that could not be is refused at once.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "crate::units::maybe"
    )]
    pub deadline: Option<Duration>,
    /// The larger goes first; 0 is usual.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub priority: i8,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_usual(priority: &i8) -> bool {
    *priority == 0
}

/// Whether an environment variable's name is the platform's own: it tells about the request (CGI/1.1, RFC 3875
/// section 4.1, whose `HTTP_` names come from the request's headers; `HTTPS` and `REQUEST_SCHEME` are every server's) or about the function (`MILLPOND_`). A manifest
/// that sets one is mistaken; a guest never sees its value.
pub fn is_reserved_variable(name: &str) -> bool {
    const META_VARIABLES: [&str; 19] = [
        "AUTH_TYPE",
        "CONTENT_LENGTH",
        "CONTENT_TYPE",
        "GATEWAY_INTERFACE",
        "HTTPS",
        "PATH_INFO",
        "PATH_TRANSLATED",
        "QUERY_STRING",
        "REMOTE_ADDR",
        "REMOTE_HOST",
        "REMOTE_IDENT",
        "REMOTE_USER",
        "REQUEST_METHOD",
        "REQUEST_SCHEME",
        "SCRIPT_NAME",
        "SERVER_NAME",
        "SERVER_PORT",
        "SERVER_PROTOCOL",
        "SERVER_SOFTWARE",
    ];
    name.starts_with("HTTP_") || name.starts_with("MILLPOND_") || META_VARIABLES.contains(&name)
}

/// How a request becomes a function's input, and what it leaves a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// All of the standard output is the body, of this media type.
    Raw {
        /// The response's `Content-Type`: visible ASCII, shared by all responses.
        content_type: Bytes,
    },
    /// It begins with header lines and an empty line (RFC 3875, section 6).
    Cgi,
    /// It is a handler of AWS Lambda's: events in JSON in, what it returns out.
    Lambda {
        /// `MODULE.FUNCTION` in its package.
        handler: String,
    },
    /// The function is pure: it gets sets of items, gives back others, and sees nothing else.
    Pure {
        /// Names of the sets that it gets, each once.
        inputs: Vec<String>,
        /// Names of the sets that it gives back, each once.
        outputs: Vec<String>,
        /// The `Content-Type` of a response that is one item.
        content_type: Bytes,
    },
}

/// The limits of one function. Every one has a key of the same name in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Linear memory of one sandbox.
    pub memory: ByteSize,
    /// Wall-clock time from admission to the last byte of the response.
    #[serde(with = "crate::units::text")]
    pub timeout: Duration,
    /// Time on a core.
    #[serde(with = "crate::units::text")]
    pub cpu_time: Duration,
    /// Cores that its processes and threads use at once, all together. A Wasm sandbox has one.
    #[serde(default = "one")]
    pub cpus: u32,
    /// Body of a request.
    pub request_body: ByteSize,
    /// Body of a response.
    pub response_body: ByteSize,
    /// Sandboxes alive at once on this node.
    pub concurrency: u32,
    /// Requests that wait for one.
    pub queue: u32,
    /// Which of these are no defaults.
    #[serde(default, skip_serializing_if = "Demanded::is_nothing")]
    pub demanded: Demanded,
}

/// Limits that a manifest names itself, of those that some hosts cannot keep: there the function does not run. What is limited by default is
/// limited as well as the host can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Demanded {
    /// [`Limits::cpu_time`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cpu_time: bool,
    /// [`Limits::cpus`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cpus: bool,
}

impl Demanded {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

fn one() -> u32 {
    1
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: ByteSize::mib(64),
            timeout: Duration::from_secs(30),
            cpu_time: Duration::from_secs(10),
            cpus: one(),
            request_body: ByteSize::mib(16),
            response_body: ByteSize::mib(16),
            concurrency: 256,
            queue: 4096,
            demanded: Demanded::default(),
        }
    }
}

/// Whether an address is this machine's own, link-local, or nobody's: what listens there may trust whoever can reach it.
pub fn is_own_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_broadcast()
                || v4.is_multicast()
        }
        IpAddr::V6(v6) => {
            v6.to_ipv4_mapped()
                .is_some_and(|v4| is_own_address(IpAddr::V4(v4)))
                || v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unicast_link_local()
        }
    }
}
