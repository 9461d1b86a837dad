use crate::{failure::Failure, output::Output, signals};
use clap::{Args, ValueEnum};
use node::{Config, Node, Overrides, TlsOptions};
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
    /// Where functions are served by TLS, too, in HTTP/1.1 and HTTP/2
    #[arg(long, value_name = "ADDRESS", env = "MILLPOND_TLS_LISTEN")]
    tls_listen: Option<SocketAddr>,
    /// The certificate that TLS shows, with those that lead to its root: a file in PEM, read again when it changes
    #[arg(long, value_name = "FILE", env = "MILLPOND_TLS_CERTIFICATE")]
    tls_certificate: Option<PathBuf>,
    /// The private key of the certificate: a file in PEM, read again when it changes
    #[arg(long, value_name = "FILE", env = "MILLPOND_TLS_KEY")]
    tls_key: Option<PathBuf>,
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
        node::keep_freed_pieces();
        let overrides = Overrides {
            listen: self.listen,
            admin: admin.map(address).transpose()?,
            data: self.data,
            cores: self.cores,
            admin_token: token,
            tls: TlsOptions {
                listen: self.tls_listen,
                certificate: self.tls_certificate,
                key: self.tls_key,
            },
        };
        let config = Config::load(self.config.as_deref(), &overrides)
            .map_err(|error| Failure::usage(error.to_string(), "see `millpond serve --help`"))?;
        let format = match self.log {
            LogFormat::Auto => telemetry::Format::Auto,
            LogFormat::Text => telemetry::Format::Text,
            LogFormat::Json => telemetry::Format::Json,
        };
        // What `h2` warns of, and `s3s` calls errors, their clients decide.
        let filter = env::var("RUST_LOG").unwrap_or_else(|_| "info,h2=error,s3s=off".to_owned());
        let exporter = exporter(exported()?)?;
        telemetry::init_exporting(format, &filter, exporter.as_ref())
            .map_err(|error| Failure::usage(error.to_string(), "check RUST_LOG"))?;

        let (ring, stop) = mpsc::channel();
        signals::listen(ring, ())?;
        let failed = |error: node::Error| Failure::local(error.to_string(), "");
        let node = Node::start_with(&config, exporter, |engines| engines).map_err(failed)?;
        if node.tls().is_none() {
            signals::ignore_hangups()?;
        }
        let (listen, admin) = (
            format!("http://{}", node.listen()),
            format!("http://{}", node.admin()),
        );
        // One line, so that whoever started the node can wait for it.
        let tls = node.tls().map(|tls| format!("https://{tls}"));
        let s3 = node.s3().map(|s3| format!("http://{s3}"));
        match output.json() {
            true => {
                let mut places = json!({ "listen": listen, "admin": admin });
                if let Some(tls) = tls {
                    places["tls"] = tls.into();
                }
                if let Some(s3) = s3 {
                    places["s3"] = s3.into();
                }
                output.line(&places.to_string())?;
            }
            false => {
                let tls = tls.map(|tls| format!(" and {tls}")).unwrap_or_default();
                let s3 = s3.map(|s3| format!(", S3 at {s3}")).unwrap_or_default();
                output.line(&format!("functions at {listen}{tls}, control API at {admin}{s3}"))?;
            }
        }
        let waited = node.wait(&stop);
        let stopped = node.stop();
        waited.and(stopped).map_err(failed)
    }
}

/// What the environment wants exported.
pub(super) fn exported() -> Result<Option<Options>, Failure> {
    Options::from_variables(|name| env::var(name).ok())
        .map_err(|error| Failure::usage(error.to_string(), "see `millpond serve --help`"))
}

/// Begins to export.
pub(super) fn exporter(options: Option<Options>) -> Result<Option<Exporter>, Failure> {
    options
        .map(Exporter::start)
        .transpose()
        .map_err(|error| Failure::local(format!("cannot start the exporter of telemetry: {error}"), ""))
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
