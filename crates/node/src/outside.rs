//! The backend's process, and what it serves: HTTP, S3, and other services of AWS.

use crate::objects::{S3Options, credentials};
use backend::{Backend, Lines, Proxy};
use contract::Service;
use rustix::{fd::OwnedFd, io::dup};
use secrets::Values;
use serde::{Deserialize, Serialize};
use service_aws::Aws;
use service_http::Http;
use std::{
    env,
    ffi::OsString,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::Arc,
};
use telemetry::metrics::{Kind, Metrics};
use tokio::runtime::{Builder, Handle};

/// The argument with which a node starts its own program as its backend. What it is to serve comes after it, in JSON, and then the folder of secrets.
pub(crate) const SERVE: &str = "serve-backend";

/// This very program, whatever has become of its file.
const PROGRAM: &str = "/proc/self/exe";

/// In place of the folder: the backend is to say only whether it could serve.
const PROBE: &str = "probe";

/// Where AWS's services are, beside S3. Keys of `[aws]` in the configuration file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AwsOptions {
    /// The endpoint of all of them, as `https://host:port`; AWS's own in the region, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Their region; that of `[s3]` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The file with the keys, in the form of AWS's `credentials`, which nobody but its owner may read; or
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_file: Option<PathBuf>,
    /// of which this profile is used, not `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// the program that writes them, as AWS's `credential_process`, with its arguments. When nothing is said, they are in the node's environment, as
    /// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_command: Option<Vec<String>>,
}

impl AwsOptions {
    /// Whether it can be meant. What of it is not there shows when it is used.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.credentials_file.is_some() && self.credentials_command.is_some() {
            return Err(
                "`[aws]` takes one of `credentials_file` and `credentials_command`: remove the other"
                    .to_owned(),
            );
        }
        if self.profile.is_some() && self.credentials_file.is_none() {
            return Err("`profile` of `[aws]` is one of a `credentials_file`: name that, too".to_owned());
        }
        if self.credentials_command.as_ref().is_some_and(Vec::is_empty) {
            return Err("`credentials_command` of `[aws]` is empty: name a program".to_owned());
        }
        Ok(())
    }

    /// Whether a node can use them.
    pub fn probe(&self) -> Result<(), String> {
        Outside::of(None, Some(self.clone()), 0).probe()
    }

    fn service(&self, runtime: Handle, shared: &S3Options) -> Result<Aws, String> {
        let default = service_aws::Options::default();
        let options = service_aws::Options {
            endpoint: self.endpoint.clone(),
            region: self.region.as_ref().unwrap_or(&shared.region).clone(),
            // Those of the backend are fewer; what has just been given up may still be here.
            calls: shared.connections.unwrap_or(default.calls).saturating_mul(2),
            ..default
        };
        let (file, profile) = (self.credentials_file.as_deref(), self.profile.as_deref());
        let credentials = credentials(file, profile, self.credentials_command.as_ref())?;
        Aws::new(runtime, credentials, &options).map_err(|error| error.to_string())
    }
}

impl S3Options {
    /// Whether a node can use it.
    pub fn probe(&self) -> Result<(), String> {
        Outside::of(Some(self.clone()), None, 0).probe()
    }
}

/// What the backend is to serve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outside {
    /// Connections, memory and bandwidth of all of it, and where S3 is,
    s3: S3Options,
    /// if it is anywhere.
    has_s3: bool,
    aws: Option<AwsOptions>,
    /// HTTP requests of functions under way at once.
    calls: usize,
}

impl Outside {
    /// HTTP, and what the configuration says.
    pub(crate) fn of(s3: Option<S3Options>, aws: Option<AwsOptions>, calls: usize) -> Self {
        Self {
            has_s3: s3.is_some(),
            s3: s3.unwrap_or_default(),
            aws,
            calls,
        }
    }

    /// Whether a node can use it: the endpoints can be some, and the credentials are there. Nobody is asked but a process like the backend, so that this one
    /// never has them.
    fn probe(&self) -> Result<(), String> {
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

    /// The backend of a node, with as many connections unless the configuration says otherwise. It reads secrets in this folder. It runs as soon as a
    /// function or the configuration has something for it.
    pub(crate) fn start(&self, connections: usize, secrets: &Path, metrics: &Metrics) -> io::Result<Backend> {
        let filled = Self {
            s3: self.s3.filled(connections),
            ..self.clone()
        };
        let told = serde_json::to_string(&filled).map_err(io::Error::other)?;
        let arguments = vec![SERVE.into(), told.into(), secrets.into()];
        let backend = Backend::start(PROGRAM.into(), arguments)?;
        if self.has_s3 || self.aws.is_some() {
            backend.want();
        }
        let starts = backend.starts();
        metrics.add_source(move |page| {
            let help =
                "Times that the backend was started: once if it is needed, and again whenever it ended.";
            let family = page.family(Kind::Counter, "millpond_backend_starts_total", help);
            family.sample(&[], starts());
        });
        Ok(backend)
    }

    fn services(&self, runtime: &Handle, secrets: PathBuf) -> Result<Vec<Arc<dyn Service>>, String> {
        // The node counts those under way; what has just been given up may still be here.
        let calls = self.calls.saturating_mul(2);
        let http = Http::new(runtime.clone(), Values::of(secrets), calls);
        let mut services: Vec<Arc<dyn Service>> = vec![Arc::new(http)];
        if self.has_s3 {
            services.push(Arc::new(self.s3.service(runtime.clone())?));
        }
        if let Some(aws) = &self.aws {
            services.push(Arc::new(aws.service(runtime.clone(), &self.s3)?));
        }
        Ok(services)
    }
}

/// AWS's services, as the backend has them. Calls of the node's own wait on this runtime.
pub(crate) fn operations(backend: &Backend, runtime: Handle) -> Proxy {
    backend.service("aws", |grant| !grant.aws.is_empty(), runtime)
}

/// HTTP, as the backend has it: for so many calls of the node's at once, which wait on this runtime.
pub(crate) fn http(backend: &Backend, runtime: Handle, calls: usize) -> io::Result<Lines> {
    backend.lines("http", |grant| !grant.http.is_empty(), runtime, calls)
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
    let outside: Outside = serde_json::from_str(told).map_err(|error| error.to_string())?;
    let secrets = arguments.get(1).map(PathBuf::from).unwrap_or_default();
    if is_probe {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        return outside.services(runtime.handle(), secrets).map(|_| ());
    }
    let control: OwnedFd = dup(io::stdin()).map_err(|error| error.to_string())?;
    let make = |runtime| outside.services(&runtime, secrets).map_err(io::Error::other);
    backend::serve(control, outside.s3.limits(), make).map_err(|error| error.to_string())
}
