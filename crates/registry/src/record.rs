//! The documents in the store. They outlive the release that wrote them: a field is added with a default, never
//! renamed.

use crate::Error;
use contract::{
    ApplicationId, AwsGrant, Claim, Digest, Entry, FunctionId, FunctionRef, Grant, HttpGrant, Limits, Name,
    Protocol, S3Grant, SecretName, Template, VersionNumber,
};
use manifest::{CloudEventsTrigger, HttpTrigger, ObjectTrigger, ScheduleTrigger};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

/// The alias that routes and unqualified references mean.
pub static LIVE: LazyLock<Name> = LazyLock::new(|| "live".parse().expect("`live` is a name"));

pub(crate) const APPLICATIONS: &str = "application/";
pub(crate) const VERSIONS: &str = "version/";
pub(crate) const USAGE: &str = "usage/";
pub(crate) const ARTEFACTS: &str = "artefact/";

pub(crate) fn application_key(application: &ApplicationId) -> String {
    format!("{APPLICATIONS}{application}")
}

pub(crate) fn counter_key(application: &ApplicationId) -> String {
    format!("counter/{application}")
}

pub(crate) fn version_key(application: &ApplicationId, function: &Name, number: VersionNumber) -> String {
    format!("{VERSIONS}{application}/{function}/{number}")
}

pub(crate) fn usage_key(application: &ApplicationId, function: &Name, number: VersionNumber) -> String {
    format!("{USAGE}{application}/{function}/{number}")
}

/// Of one engine's artefacts: [`shared`](artefact_key), and those that are [one function's own](own_artefacts).
pub(crate) fn artefacts(engine: &str, fingerprint: &str) -> String {
    format!("{ARTEFACTS}{engine}/{fingerprint}/")
}

pub(crate) fn artefact_key(engine: &str, fingerprint: &str, code: Digest) -> String {
    format!("{}{code}", artefacts(engine, fingerprint))
}

/// The beginning of the keys of those that are one function's own; the code's digest follows.
pub(crate) fn own_artefacts(engine: &str, fingerprint: &str, function: &FunctionId) -> String {
    format!("{}{function}/", artefacts(engine, fingerprint))
}

/// `application/…`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ApplicationRecord {
    pub(crate) functions: BTreeMap<Name, FunctionRecord>,
    #[serde(default)]
    pub(crate) triggers: Vec<HttpTrigger>,
    #[serde(default)]
    pub(crate) schedules: Vec<ScheduleTrigger>,
    #[serde(default)]
    pub(crate) subscriptions: Vec<CloudEventsTrigger>,
    #[serde(default)]
    pub(crate) objects: Vec<ObjectTrigger>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FunctionRecord {
    pub(crate) aliases: BTreeMap<Name, VersionNumber>,
    pub(crate) versions: BTreeSet<VersionNumber>,
}

/// `counter/…`: the last number that was given to a version of each function.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct CounterRecord(pub(crate) BTreeMap<Name, u32>);

/// `version/…`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionRecord {
    pub(crate) code: Digest,
    /// Its length in bytes.
    pub(crate) code_size: u64,
    /// Milliseconds since 1970.
    pub(crate) created: u64,
    pub(crate) settings: Settings,
}

/// `artefact/…`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ArtefactRecord {
    pub(crate) digest: Digest,
}

/// How one version of a function runs. Resolved when it was deployed: a later release's defaults do not change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The engine's name.
    pub engine: String,
    /// What one request may use.
    #[serde(flatten)]
    pub limits: Limits,
    /// How many requests one sandbox serves.
    pub reuse: u32,
    /// When its requests want to run.
    #[serde(flatten)]
    pub claim: Claim,
    /// Whose share and quotas it uses, if it is the node's own and not to use those of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Name>,
    /// Arguments after the program's name.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// How standard output becomes a response.
    #[serde(flatten, with = "protocol")]
    pub protocol: Protocol,
    /// Hosts that it may send HTTP requests to.
    #[serde(default, rename = "grants.http")]
    pub http: Vec<String>,
    /// Header fields that the node adds to them, by host and by name in lower case.
    #[serde(
        default,
        rename = "grants.http.headers",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub headers: BTreeMap<String, BTreeMap<String, Template>>,
    /// Hosts that secrets in those may be sent to without TLS.
    #[serde(
        default,
        rename = "grants.http.clear_text",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub clear_text: BTreeSet<String>,
    /// Objects that it may use.
    #[serde(default, rename = "grants.s3", skip_serializing_if = "Vec::is_empty")]
    pub s3: Vec<S3Grant>,
    /// Operations of AWS's services that it may ask for.
    #[serde(default, rename = "grants.aws", skip_serializing_if = "Vec::is_empty")]
    pub aws: Vec<AwsGrant>,
    /// Functions that it may invoke, as the manifest has them.
    #[serde(default, rename = "grants.lambda", skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionRef>,
}

impl Settings {
    /// Of a function of this tenant, or of the node.
    pub(crate) fn of(owner: Option<&Name>, function: &manifest::Function, engine: &str) -> Self {
        let granted = &function.grants.http;
        let headers = granted.iter().filter(|grant| !grant.headers.is_empty());
        let headers = headers.map(|grant| {
            let headers = grant.headers.iter();
            let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
            (grant.host.clone(), headers.collect())
        });
        let clear_text = granted.iter().filter(|grant| grant.clear_text);
        Self {
            engine: engine.to_owned(),
            limits: function.limits(),
            reuse: function.reuse,
            claim: Claim {
                deadline: function.deadline,
                priority: function.priority,
            },
            // Whose a tenant's are is in their name.
            tenant: function.tenant.clone().filter(|_| owner.is_none()),
            arguments: function.arguments.clone(),
            env: function.env.clone(),
            protocol: function.protocol(),
            http: granted.iter().map(|grant| grant.host.clone()).collect(),
            headers: headers.collect(),
            clear_text: clear_text.map(|grant| grant.host.clone()).collect(),
            s3: function.objects(),
            aws: function.operations(),
            functions: function.invoked(),
        }
    }

    /// The secrets that its headers name, each once.
    pub fn secrets(&self) -> BTreeSet<&SecretName> {
        let headers = self.headers.values().flat_map(BTreeMap::values);
        headers.flat_map(Template::secrets).collect()
    }

    pub(crate) fn grant(&self, function: &FunctionId, version: VersionNumber) -> Grant {
        Grant {
            function: function.clone(),
            version,
            limits: self.limits,
            reuse: self.reuse,
            environment: self.env.clone().into_iter().collect(),
            arguments: self.arguments.clone(),
            protocol: self.protocol.clone(),
            http: self.hosts(),
            s3: self.s3.clone(),
            aws: self.aws.clone(),
            functions: self.invoked(function),
        }
    }

    /// The functions that it may invoke: those without an application are of its own.
    fn invoked(&self, function: &FunctionId) -> Vec<FunctionRef> {
        let named = self.functions.iter().cloned();
        named
            .map(|named| FunctionRef {
                application: named
                    .application
                    .or_else(|| Some(function.application.name.clone())),
                tenant: function.tenant().cloned(),
                ..named
            })
            .collect()
    }

    fn hosts(&self) -> Vec<HttpGrant> {
        let hosts: BTreeSet<&String> = self.http.iter().collect();
        let granted = hosts.into_iter().map(|host| {
            let headers = self.headers.get(host).cloned().unwrap_or_default();
            HttpGrant {
                host: host.clone(),
                headers: headers.into_iter().collect(),
                clear_text: self.clear_text.contains(host),
            }
        });
        granted.collect()
    }
}

/// [`Protocol`] as the manifest's keys.
mod protocol {
    use contract::Protocol;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    #[derive(Serialize, Deserialize)]
    struct Keys {
        protocol: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content_type: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input_sets: Option<Vec<String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_sets: Option<Vec<String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        handler: Option<String>,
    }

    pub(super) fn serialize<S: Serializer>(named: &Protocol, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |bytes| Some(String::from_utf8_lossy(bytes).into_owned());
        let (protocol, content_type, input_sets, output_sets) = match named {
            Protocol::Raw { content_type } => ("raw", text(content_type), None, None),
            Protocol::Cgi => ("cgi", None, None, None),
            Protocol::Lambda { .. } => ("lambda", None, None, None),
            Protocol::Pure {
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
        let handler = match &named {
            Protocol::Lambda { handler } => Some(handler.clone()),
            _ => None,
        };
        Keys {
            protocol: protocol.to_owned(),
            content_type,
            input_sets,
            output_sets,
            handler,
        }
        .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Protocol, D::Error> {
        let keys = Keys::deserialize(deserializer)?;
        match (keys.protocol.as_str(), keys.content_type) {
            ("pure", Some(content_type)) => Ok(Protocol::Pure {
                inputs: keys.input_sets.unwrap_or_default(),
                outputs: keys.output_sets.unwrap_or_default(),
                content_type: contract::content_type(content_type),
            }),
            ("raw", Some(content_type)) => Ok(Protocol::Raw {
                content_type: contract::content_type(content_type),
            }),
            ("cgi", None) => Ok(Protocol::Cgi),
            ("lambda", None) => Ok(Protocol::Lambda {
                handler: keys.handler.unwrap_or_default(),
            }),
            (other, _) => Err(D::Error::custom(format!(
                "`{other}` is not a protocol, or has no content type"
            ))),
        }
    }
}

pub(crate) fn read<T: DeserializeOwned>(entry: &Entry) -> Result<T, Error> {
    serde_json::from_slice(&entry.value).map_err(|error| Error::Record {
        key: entry.key.clone(),
        reason: error.to_string(),
    })
}

pub(crate) fn write<T: Serialize>(key: &str, record: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(record).map_err(|error| Error::Record {
        key: key.to_owned(),
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::num::NonZeroU32;

    fn written(more: &Value) -> Value {
        let mut record = json!({
            "engine": "wasmtime", "memory": "64MiB", "timeout": "30s", "cpu_time": "10s", "request_body": "16MiB",
            "response_body": "16MiB", "concurrency": 256, "queue": 4096, "reuse": 1, "protocol": "cgi",
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            record[key] = value.clone();
        }
        record
    }

    fn granted(more: &Value) -> Vec<HttpGrant> {
        let settings: Settings = serde_json::from_value(written(more)).unwrap();
        let function = "shop.f".parse().unwrap();
        settings.grant(&function, VersionNumber(NonZeroU32::MIN)).http
    }

    #[test]
    fn what_an_earlier_release_wrote_of_hosts_is_read() {
        assert_eq!(granted(&json!({})), []);
        let earlier = json!({ "grants.http": ["b.example", "a.example", "b.example"] });
        let hosts: Vec<_> = granted(&earlier).into_iter().map(|grant| grant.host).collect();
        assert_eq!(hosts, ["a.example", "b.example"], "each once");
    }

    #[test]
    fn headers_go_to_their_hosts() {
        let record = json!({
            "grants.http": ["a.example", "b.example"],
            "grants.http.headers": { "b.example": { "x-key": "{secret:KEY}" } },
            "grants.http.clear_text": ["b.example"],
        });
        let [a, b] = &granted(&record)[..] else {
            panic!("two hosts")
        };
        assert!(a.headers.is_empty() && !a.clear_text && b.clear_text);
        let [(name, value)] = &b.headers[..] else {
            panic!("one header")
        };
        assert_eq!(
            (&name[..], value.to_string()),
            ("x-key", "{secret:KEY}".to_owned())
        );
        let settings: Settings = serde_json::from_value(written(&record)).unwrap();
        assert_eq!(
            serde_json::to_value(&settings).unwrap()["grants.http.headers"],
            record["grants.http.headers"]
        );
        let damaged = json!({ "grants.http.headers": { "b.example": { "x-key": "{KEY}" } } });
        assert!(serde_json::from_value::<Settings>(written(&damaged)).is_err());
    }
}
