//! What a sandbox may use.

use crate::{ByteSize, FunctionId, FunctionRef, Template, VersionNumber};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::{net::IpAddr, num::NonZeroU32, time::Duration};

/// What one function version's sandboxes may use. Shared by all of them; it never holds a secret.
///
/// How many have it changes with each request. That is counted before it, and so on another line of the cache than what is read of it.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Grant {
    /// The function.
    pub function: FunctionId,
    /// Its version.
    pub version: VersionNumber,
    /// What one request may use.
    pub limits: Limits,
    /// Requests that one sandbox serves before it is dropped; 1 is a fresh sandbox for each.
    pub reuse: u32,
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
            reuse: 1,
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

impl AwsGrant {
    /// Whether this lets everything be asked for that `asked` does.
    pub fn covers(&self, asked: &Self) -> bool {
        let has_action = |action: &String| self.actions.iter().any(|own| pattern_matches(own, action));
        let has_resource = |resource: &String| {
            self.resources.iter().any(|own| match resource.as_str() {
                // It alone is of operations that are about nothing in particular.
                "*" => own == "*",
                resource => pattern_matches(own, resource),
            })
        };
        self.service == asked.service
            && asked.actions.iter().all(has_action)
            && asked.resources.iter().all(has_resource)
    }
}

/// Whether a pattern, in which `*` stands for any text, is of this text. If that is a pattern itself, whether it is of all texts that the other is of: what
/// stands for any text is then a character that no pattern has.
pub fn pattern_matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(start) else {
        return false;
    };
    // The last piece has to be the end, those between may be anywhere, one behind the other.
    let (mut pieces, mut text) = (rest.split('*').peekable(), text);
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return text.ends_with(piece);
        }
        match text.find(piece) {
            Some(at) => text = &text[at + piece.len()..],
            None => return false,
        }
    }
    true
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

impl S3Grant {
    /// Whether this lets everything be done that `asked` does.
    pub fn covers(&self, asked: &Self) -> bool {
        self.bucket == asked.bucket
            && asked.prefix.starts_with(&self.prefix)
            && asked.actions.iter().all(|action| self.actions.contains(action))
    }
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

/// Those that most functions give. A copy of another one's text changes a count that all cores change, for each response.
const COMMON_TYPES: [&str; 10] = [
    "application/javascript",
    "application/json",
    "application/octet-stream",
    "image/jpeg",
    "image/png",
    "text/css",
    "text/html",
    "text/html; charset=utf-8",
    "text/plain",
    "text/plain; charset=utf-8",
];

/// A content type as [`Protocol`] has it.
pub fn content_type(text: impl Into<String>) -> Bytes {
    let text = text.into();
    match COMMON_TYPES.iter().find(|common| **common == text) {
        Some(common) => Bytes::from_static(common.as_bytes()),
        None => text.into(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// All texts of these characters that are no longer than this.
    fn texts(characters: &str, longest: usize) -> Vec<String> {
        let (mut all, mut last) = (vec![String::new()], vec![String::new()]);
        for _ in 0..longest {
            let longer = |text: &String| {
                let text = text.clone();
                characters
                    .chars()
                    .map(move |character| format!("{text}{character}"))
            };
            last = last.iter().flat_map(longer).collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    /// Character by character, trying all.
    fn fits(pattern: &str, text: &str) -> bool {
        let mut rest = text.chars();
        match pattern.chars().next() {
            None => text.is_empty(),
            Some('*') => fits(&pattern[1..], text) || (rest.next().is_some() && fits(pattern, rest.as_str())),
            Some(first) => rest.next() == Some(first) && fits(&pattern[1..], rest.as_str()),
        }
    }

    #[test]
    fn patterns() {
        for (pattern, text, fits) in [
            ("orders", "orders", true),
            ("orders", "orders2", false),
            ("orders*", "orders2", true),
            ("*", "", true),
            ("*", "x", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("*b", "ab", true),
            ("*b", "ba", false),
            ("arn:*:table/o", "arn:aws:dynamodb:r:1:table/o", true),
            ("a**c", "abc", true),
        ] {
            assert_eq!(pattern_matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_covers_another_that_has_no_other_texts() {
        // `c` is in no pattern: a text that one has and the other has not, if there is any, is one with `c` for each `*`.
        let (patterns, texts) = (texts("ab*", 4), texts("abc", 4));
        let of = |pattern: &str| -> Vec<bool> { texts.iter().map(|text| fits(pattern, text)).collect() };
        let sets: Vec<_> = patterns.iter().map(|pattern| of(pattern)).collect();
        for (wide, its) in patterns.iter().zip(&sets) {
            for (text, fits) in texts.iter().zip(its) {
                assert_eq!(pattern_matches(wide, text), *fits, "{wide} {text}");
            }
            for (narrow, other) in patterns.iter().zip(&sets) {
                let has_all = its.iter().zip(other).all(|(its, other)| *its || !other);
                assert_eq!(pattern_matches(wide, narrow), has_all, "{wide} {narrow}");
            }
        }
    }

    #[test]
    fn a_grant_of_objects_covers_another_that_grants_no_more() {
        let actions = [S3Action::Get, S3Action::Put];
        let grants: Vec<_> = ["pond", "sea"]
            .iter()
            .flat_map(|bucket| texts("a/", 2).into_iter().map(move |prefix| (*bucket, prefix)))
            .flat_map(|(bucket, prefix)| {
                [&actions[..1], &actions[1..], &actions[..]].map(|actions| S3Grant {
                    bucket: bucket.to_owned(),
                    prefix: prefix.clone(),
                    actions: actions.to_vec(),
                })
            })
            .collect();
        let keys = texts("a/", 3);
        let may = |grant: &S3Grant, bucket: &str, key: &str, action: S3Action| {
            grant.bucket == bucket && key.starts_with(&grant.prefix) && grant.actions.contains(&action)
        };
        for wide in &grants {
            for narrow in &grants {
                let has_all = actions.iter().all(|action| {
                    let mut keys = keys
                        .iter()
                        .filter(|key| may(narrow, &narrow.bucket, key, *action));
                    keys.all(|key| may(wide, &narrow.bucket, key, *action))
                });
                assert_eq!(wide.covers(narrow), has_all, "{wide:?} {narrow:?}");
            }
        }
    }

    #[test]
    fn a_grant_of_operations_covers_another_in_all_its_parts() {
        let grant = |service: &str, actions: &[&str], resources: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            AwsGrant {
                service: service.to_owned(),
                actions: owned(actions),
                resources: owned(resources),
            }
        };
        let own = grant("dynamodb", &["Get*", "PutItem"], &["orders", "bills-*"]);
        for (asked, is_covered) in [
            (grant("dynamodb", &["GetItem", "PutItem"], &["orders"]), true),
            (grant("dynamodb", &["Get*"], &["bills-*", "bills-2026*"]), true),
            (grant("sqs", &["GetItem"], &["orders"]), false),
            (grant("dynamodb", &["GetItem", "DeleteItem"], &["orders"]), false),
            (grant("dynamodb", &["*"], &["orders"]), false),
            (grant("dynamodb", &["GetItem"], &["orders", "users"]), false),
            (grant("dynamodb", &["GetItem"], &["*"]), false),
        ] {
            assert_eq!(own.covers(&asked), is_covered, "{asked:?}");
        }
        // Any text is not yet what is about nothing in particular.
        let any = grant("sns", &["*"], &["**"]);
        assert!(any.covers(&grant("sns", &["Publish"], &["news"])));
        assert!(!any.covers(&grant("sns", &["Publish"], &["*"])));
        assert!(grant("sns", &["*"], &["*"]).covers(&any));
    }
}
