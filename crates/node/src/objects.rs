//! Objects of functions: where S3 is, and the backend that asks it for them.

use crate::limits::free_memory;
use backend::{Backend, Limits, Proxy};
use contract::{ByteSize, Service};
use rustix::{fd::OwnedFd, io::dup};
use serde::{Deserialize, Serialize};
use service_s3::{Credentials, S3};
use std::{
    env,
    ffi::OsString,
    io::{self, Write as _},
    net::SocketAddr,
    num::NonZeroU64,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};
use telemetry::metrics::{Kind, Metrics};
use tokio::runtime::{Builder, Handle};

/// The argument with which a node starts its own program as its backend. What it is to serve comes after it, in JSON.
pub(crate) const SERVE: &str = "serve-backend";

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
        if self.poll < Duration::from_millis(100) || self.poll > Duration::from_hours(24) {
            return Err("`poll` of `[s3]` must be between 100ms and 24h".to_owned());
        }
        if self.memory.is_some_and(|memory| memory < LEAST_MEMORY) {
            return Err(format!("`memory` of `[s3]` must be at least {LEAST_MEMORY}"));
        }
        Ok(())
    }

    /// What sandboxes may use of the backend.
    fn limits(&self) -> Limits {
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
        let found = match (&self.credentials_file, &self.credentials_command) {
            (Some(path), _) => Credentials::file(path, self.profile.as_deref()),
            (None, Some(command)) => Ok(Credentials::command(command.clone())),
            (None, None) if self.anonymous => Ok(Credentials::anonymous()),
            (None, None) => Credentials::environment(|name| env::var(name).ok()),
        };
        found.map_err(|error| error.to_string())
    }

    fn service(&self, runtime: Handle) -> Result<S3, String> {
        let default = service_s3::Options::default();
        let options = service_s3::Options {
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
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
        };
        S3::new(runtime, self.credentials()?, &options).map_err(|error| error.to_string())
    }

    /// Whether a node can use it: the endpoint can be one, and the credentials are there. Nobody is asked but a process like the backend, so that this one
    /// never has them.
    pub fn probe(&self) -> Result<(), String> {
        let told = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let said = Command::new(PROGRAM)
            .args([SERVE, &told, PROBE])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("the backend cannot be started: {error}"))?;
        match said.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&said.stderr).trim().to_owned()),
        }
    }
}

/// The least that lets several calls with the largest bodies that come whole be under way.
const LEAST_MEMORY: ByteSize = ByteSize::mib(32);

/// Without a word about it, one of so many parts of the memory that is free when the node starts; and bytes that it is at most.
const MEMORY_SHARE: u64 = 8;
const MOST_MEMORY: u64 = 4 << 30;

/// This very program, whatever has become of its file.
const PROGRAM: &str = "/proc/self/exe";

/// The last argument of a backend that is to say only whether it could serve.
const PROBE: &str = "probe";

/// The backend of a node whose S3 this is, with as many connections, and memory that is free, unless the configuration says otherwise.
pub(crate) fn start(options: &S3Options, connections: usize, metrics: &Metrics) -> io::Result<Backend> {
    let options = S3Options {
        connections: Some(options.connections.unwrap_or(connections)),
        memory: options.memory.or_else(|| {
            let share = free_memory()? / MEMORY_SHARE;
            Some(ByteSize(share.clamp(LEAST_MEMORY.0, MOST_MEMORY)))
        }),
        ..options.clone()
    };
    let told = serde_json::to_string(&options).map_err(io::Error::other)?;
    let backend = Backend::start(PROGRAM.into(), vec![SERVE.into(), told.into()])?;
    let starts = backend.starts();
    metrics.add_source(move |page| {
        let help = "Times that the backend was started: once, and again whenever it ended.";
        let family = page.family(Kind::Counter, "millpond_backend_starts_total", help);
        family.sample(&[], starts());
    });
    Ok(backend)
}

/// Objects, as the backend has them. Calls of the node's own wait on this runtime.
pub(crate) fn service(backend: &Backend, runtime: Handle) -> Proxy {
    backend.service("s3", |grant| !grant.s3.is_empty(), runtime)
}

/// In the backend's process.
pub(crate) fn answer(arguments: &[OsString]) -> ExitCode {
    let is_probe = arguments.get(1).is_some_and(|last| last == PROBE);
    if !is_probe {
        let filter = env::var("RUST_LOG").unwrap_or_else(|_| "info,h2=error".to_owned());
        // What cannot be told there is told by the node, which finds that this process has ended.
        let _ = telemetry::init(telemetry::Format::Auto, &filter);
    }
    match serve(arguments, is_probe) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) if is_probe => {
            let _ = writeln!(io::stderr(), "{reason}");
            ExitCode::FAILURE
        }
        Err(reason) => {
            tracing::error!(reason, "the backend cannot serve");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &[OsString], is_probe: bool) -> Result<(), String> {
    let told = arguments
        .first()
        .and_then(|told| told.to_str())
        .unwrap_or_default();
    let options: S3Options = serde_json::from_str(told).map_err(|error| error.to_string())?;
    if is_probe {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        return options.service(runtime.handle().clone()).map(|_| ());
    }
    let control: OwnedFd = dup(io::stdin()).map_err(|error| error.to_string())?;
    let make = |runtime| {
        let service = options.service(runtime).map_err(io::Error::other)?;
        Ok(vec![Arc::new(service) as Arc<dyn Service>])
    };
    backend::serve(control, options.limits(), make).map_err(|error| error.to_string())
}
