//! Objects of functions: where S3 is.

use crate::limits::free_memory;
use backend::{Backend, Limits, Proxy};
use contract::ByteSize;
use registry::Fits;
use serde::{Deserialize, Serialize};
use service_s3::{Credentials, S3};
use std::{
    env,
    net::SocketAddr,
    num::NonZeroU64,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::runtime::Handle;

/// Where S3 is. Keys of `[s3]` in the configuration file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct S3Options {
    /// Where the node serves an S3 of its own, on its folder, in place of one elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedded: Option<SocketAddr>,
    /// Its endpoint, as `https://host:port`; AWS's in the region, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Its region.
    pub region: String,
    /// Whether a bucket is named in the path or in the host's name; the path if there is an endpoint, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addressing: Option<Addressing>,
    /// Whether signatures are of bodies, too.
    pub payload: Payload,
    /// The file with the keys, in the form of AWS's `credentials`, which nobody but its owner may read; or
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_file: Option<PathBuf>,
    /// of which this profile is used, not `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// the program that writes them, as AWS's `credential_process`, with its arguments; or
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_command: Option<Vec<String>>,
    /// none: requests are not signed. When nothing is said, they are in the node's environment, as `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
    pub anonymous: bool,
    /// The ARN of a role that these keys may take, for one function at a time: its calls are signed with keys that can do what was granted to it and nothing else.
    /// The node's own keys sign, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Where STS is, which gives such keys, as `https://host:port`; AWS's in the region, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sts: Option<String>,
    /// Connections to it, and calls under way, at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<usize>,
    /// Bytes of calls and replies on their way that the backend has in memory at once; an eighth of what is free when the node starts, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// Megabits per second in each direction for one sandbox; 0: as many as there are.
    pub bandwidth: u32,
    /// The same for all sandboxes of a tenant.
    pub tenant_bandwidth: u32,
    /// Time between two looks for new objects that functions want, where S3 is elsewhere.
    #[serde(with = "contract::units::text")]
    pub poll: Duration,
}

/// Where a bucket is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Addressing {
    /// In the path.
    Path,
    /// In the host's name.
    Virtual,
}

/// Whether signatures are of bodies, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// Where TLS does not keep them from change already.
    #[default]
    Auto,
    /// They are.
    Signed,
    /// They are not.
    Unsigned,
}

impl Default for S3Options {
    fn default() -> Self {
        Self {
            embedded: None,
            endpoint: None,
            region: "us-east-1".to_owned(),
            addressing: None,
            payload: Payload::Auto,
            credentials_file: None,
            profile: None,
            credentials_command: None,
            anonymous: false,
            role: None,
            sts: None,
            connections: None,
            memory: None,
            bandwidth: 600,
            tenant_bandwidth: 0,
            poll: Duration::from_secs(10),
        }
    }
}

impl S3Options {
    /// Whether it can be meant. What of it is not there shows when it is used.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.embedded.is_some() {
            let elsewhere = [
                ("endpoint", self.endpoint.is_some()),
                ("addressing", self.addressing.is_some()),
                ("credentials_file", self.credentials_file.is_some()),
                ("profile", self.profile.is_some()),
                ("credentials_command", self.credentials_command.is_some()),
                ("anonymous", self.anonymous),
                ("role", self.role.is_some()),
                ("sts", self.sts.is_some()),
            ];
            return match elsewhere.iter().find(|(_, is_set)| *is_set) {
                Some((key, _)) => Err(format!(
                    "`{key}` of `[s3]` is set beside `embedded`, whose address and key the node knows: remove one of them"
                )),
                None => Ok(()),
            };
        }
        let sources = [
            self.credentials_file.is_some(),
            self.credentials_command.is_some(),
            self.anonymous,
        ];
        if sources.iter().filter(|is_set| **is_set).count() > 1 {
            return Err(
                "`[s3]` takes one of `credentials_file`, `credentials_command` and `anonymous`: remove the others".to_owned(),
            );
        }
        if self.profile.is_some() && self.credentials_file.is_none() {
            return Err("`profile` of `[s3]` is one of a `credentials_file`: name that, too".to_owned());
        }
        if self.credentials_command.as_ref().is_some_and(Vec::is_empty) {
            return Err("`credentials_command` of `[s3]` is empty: name a program".to_owned());
        }
        if self.role.is_some() && self.anonymous {
            return Err("`role` of `[s3]` is taken by somebody who has keys: remove `anonymous`".to_owned());
        }
        if self.sts.is_some() && self.role.is_none() {
            return Err("`sts` of `[s3]` gives keys of a `role`: name that, too".to_owned());
        }
        if self.role.is_some() && self.endpoint.is_some() && self.sts.is_none() {
            return Err(
                "`role` of `[s3]` needs `sts` beside an `endpoint`: say where STS is, with many servers at the same address"
                    .to_owned(),
            );
        }
        if self.poll < Duration::from_millis(100) || self.poll > Duration::from_hours(24) {
            return Err("`poll` of `[s3]` must be between 100ms and 24h".to_owned());
        }
        if self.memory.is_some_and(|memory| memory < LEAST_MEMORY) {
            return Err(format!("`memory` of `[s3]` must be at least {LEAST_MEMORY}"));
        }
        Ok(())
    }

    /// What sandboxes may use of the backend.
    pub(crate) fn limits(&self) -> Limits {
        let default = Limits::default();
        // A megabit is a million bits.
        let rate = |megabits: u32| NonZeroU64::new(u64::from(megabits) * 125_000);
        Limits {
            calls: self.connections.unwrap_or(default.calls),
            memory: self.memory.map_or(default.memory, |memory| memory.0),
            bandwidth: rate(self.bandwidth),
            tenant_bandwidth: rate(self.tenant_bandwidth),
        }
    }

    fn credentials(&self) -> Result<Credentials, String> {
        match self.anonymous {
            true => Ok(Credentials::anonymous()),
            false => credentials(
                self.credentials_file.as_deref(),
                self.profile.as_deref(),
                self.credentials_command.as_ref(),
            ),
        }
    }

    /// With as many connections, and memory that is free, unless the configuration says otherwise.
    pub(crate) fn filled(&self, connections: usize) -> Self {
        Self {
            connections: Some(self.connections.unwrap_or(connections)),
            memory: self.memory.or_else(|| {
                let share = free_memory()? / MEMORY_SHARE;
                Some(ByteSize(share.clamp(LEAST_MEMORY.0, MOST_MEMORY)))
            }),
            ..self.clone()
        }
    }

    pub(crate) fn service(&self, runtime: Handle) -> Result<S3, String> {
        S3::new(runtime, self.credentials()?, &self.options()).map_err(|error| error.to_string())
    }

    /// What a function's grants must be together, if there is something.
    pub(crate) fn fits(&self) -> Result<Option<Fits>, String> {
        let policies = self.options().policies().map_err(|error| error.to_string())?;
        let policies = policies.map(|policies| -> Fits {
            Arc::new(move |grants| match policies.text(grants) {
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            })
        });
        Ok(policies)
    }

    fn options(&self) -> service_s3::Options {
        let default = service_s3::Options::default();
        service_s3::Options {
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            role: self.role.as_ref().map(|arn| service_s3::RoleOptions {
                arn: arn.clone(),
                sts: self.sts.clone(),
            }),
            addressing: self.addressing.map(|addressing| match addressing {
                Addressing::Path => service_s3::Addressing::Path,
                Addressing::Virtual => service_s3::Addressing::Virtual,
            }),
            payload: match self.payload {
                Payload::Auto => service_s3::Payload::Auto,
                Payload::Signed => service_s3::Payload::Signed,
                Payload::Unsigned => service_s3::Payload::Unsigned,
            },
            // Those of the backend are fewer; what has just been given up may still be here.
            calls: self.connections.unwrap_or(default.calls).saturating_mul(2),
            ..default
        }
    }
}

/// As whom the node asks: a profile of a file, what a program writes, or, where neither is said, what is in the environment.
pub(crate) fn credentials(
    file: Option<&Path>,
    profile: Option<&str>,
    command: Option<&Vec<String>>,
) -> Result<Credentials, String> {
    let found = match (file, command) {
        (Some(path), _) => Credentials::file(path, profile),
        (None, Some(command)) => Ok(Credentials::command(command.clone())),
        (None, None) => Credentials::environment(|name| env::var(name).ok()),
    };
    found.map_err(|error| error.to_string())
}

/// The least that lets several calls with the largest bodies that come whole be under way.
const LEAST_MEMORY: ByteSize = ByteSize::mib(32);

/// Without a word about it, one of so many parts of the memory that is free when the node starts; and bytes that it is at most.
const MEMORY_SHARE: u64 = 8;
const MOST_MEMORY: u64 = 4 << 30;

/// Objects, as the backend has them. Calls of the node's own wait on this runtime.
pub(crate) fn service(backend: &Backend, runtime: Handle) -> Proxy {
    backend.service("s3", |grant| !grant.s3.is_empty(), runtime)
}
