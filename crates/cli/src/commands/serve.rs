use crate::{failure::Failure, output::Output, signals};
use clap::{Args, ValueEnum};
use node::{Config, Node, Overrides};
use serde_json::json;
use std::{env, net::SocketAddr, path::PathBuf, sync::mpsc};
use telemetry::otlp::{Exporter, Options};

/// Run a node
///
/// Options win over the configuration file. SIGINT or SIGTERM drains the node: it answers the requests it has, refuses
/// others, and ends; a second signal ends it at once. The control API listens where --admin says; beyond a loopback
/// address it needs a token. The standard OTEL_* variables have traces, metrics and logs exported, for example
/// OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Where functions are served [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", env = "MILLPOND_LISTEN")]
    listen: Option<SocketAddr>,
    /// The node's folder: code, metadata, logs [default: millpond-data]
    #[arg(long, value_name = "FOLDER", env = "MILLPOND_DATA")]
    data: Option<PathBuf>,
    /// The processors to run on, a thread for each [default: all that this process may use]
    #[arg(long, value_name = "N,N…", value_delimiter = ',')]
    cores: Option<Vec<usize>>,
    /// A configuration file
    #[arg(long, value_name = "FILE", env = "MILLPOND_CONFIG")]
    config: Option<PathBuf>,
    /// How the node's own log is written on standard error; what is written, RUST_LOG says
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "auto")]
    log: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// Text on a terminal, else JSON
    Auto,
    /// For people
    Text,
    /// For machines
    Json,
}

impl Serve {
    pub(crate) fn run(
        self,
        admin: Option<&str>,
        token: Option<String>,
        output: Output,
    ) -> Result<(), Failure> {
        let overrides = Overrides {
            listen: self.listen,
            admin: admin.map(address).transpose()?,
            data: self.data,
            cores: self.cores,
            admin_token: token,
        };
        let config = Config::load(self.config.as_deref(), &overrides)
            .map_err(|error| Failure::usage(error.to_string(), "see `millpond serve --help`"))?;
        let format = match self.log {
            LogFormat::Auto => telemetry::Format::Auto,
            LogFormat::Text => telemetry::Format::Text,
            LogFormat::Json => telemetry::Format::Json,
        };
        let filter = env::var("RUST_LOG").unwrap_or_else(|_| "info".to_owned());
        let exporter = Options::from_variables(|name| env::var(name).ok())
            .map_err(|error| Failure::usage(error.to_string(), "see `millpond serve --help`"))?
            .map(Exporter::start)
            .transpose()
            .map_err(|error| {
                Failure::local(format!("cannot start the exporter of telemetry: {error}"), "")
            })?;
        telemetry::init_exporting(format, &filter, exporter.as_ref())
            .map_err(|error| Failure::usage(error.to_string(), "check RUST_LOG"))?;

        let (ring, stop) = mpsc::channel();
        signals::listen(ring)?;
        let failed = |error: node::Error| Failure::local(error.to_string(), "");
        let node = Node::start_exporting(&config, exporter).map_err(failed)?;
        let (listen, admin) = (
            format!("http://{}", node.listen()),
            format!("http://{}", node.admin()),
        );
        // One line, so that whoever started the node can wait for it.
        match output.json() {
            true => output.line(&json!({ "listen": listen, "admin": admin }).to_string())?,
            false => output.line(&format!("functions at {listen}, control API at {admin}"))?,
        }
        let waited = node.wait(&stop);
        let stopped = node.stop();
        waited.and(stopped).map_err(failed)
    }
}

/// An address to listen on, also when it is written as the URL that clients use.
pub(super) fn address(text: &str) -> Result<SocketAddr, Failure> {
    text.trim_start_matches("http://")
        .trim_end_matches('/')
        .parse()
        .map_err(|_| {
            let message = format!("`{text}` is not an address to listen on");
            Failure::usage(
                message,
                "write an IP address and a port, for example --admin 127.0.0.1:9080",
            )
        })
}
