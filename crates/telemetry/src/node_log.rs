//! The node's own log: events of the `tracing` crate, on standard error.

use crate::otlp::Exporter;
use std::io::{self, IsTerminal};
use tracing_subscriber::{
    EnvFilter, Layer as _, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// How the node's own log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// [`Format::Text`] when standard error is a terminal, else [`Format::Json`].
    #[default]
    Auto,
    /// One JSON object a line, for machines.
    Json,
    /// For people.
    Text,
}

/// The node's log could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The filter does not parse.
    #[error(
        "`{filter}` is not a log filter: {reason}. Write levels and targets as in `info,millpond_worker=debug`"
    )]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Somebody was faster.
    #[error("the log of this process is already set up: call `telemetry::init` once")]
    AlreadySet,
}

/// Sends the process's `tracing` events to standard error.
///
/// `filter` has the syntax of `RUST_LOG` (which the binary reads, not this crate), for example `info` or
/// `warn,millpond_gateway=debug`. Writing blocks when standard error does, so nothing on the way of a request may log
/// above `debug`.
pub fn init(format: Format, filter: &str) -> Result<(), InitError> {
    init_exporting(format, filter, None)
}

/// As [`init`], and to the collector too if there is an exporter and it exports logs.
pub fn init_exporting(format: Format, filter: &str, exporter: Option<&Exporter>) -> Result<(), InitError> {
    let filter = parse_filter(filter)?;
    let terminal = io::stderr().is_terminal();
    let layer = fmt::layer().with_writer(io::stderr).with_ansi(terminal);
    let layer = match (format, terminal) {
        (Format::Text, _) | (Format::Auto, true) => layer.boxed(),
        (Format::Json, _) | (Format::Auto, false) => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer)
        .with(exporter.and_then(Exporter::layer))
        .with(filter)
        .try_init()
        .map_err(|_| InitError::AlreadySet)
}

fn parse_filter(filter: &str) -> Result<EnvFilter, InitError> {
    EnvFilter::builder()
        .parse(filter)
        .map_err(|error| InitError::Filter {
            filter: filter.to_owned(),
            reason: error.to_string(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_filter_is_named() {
        for good in ["", "info", "warn,millpond_gateway=debug", "off"] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        let error = parse_filter("info,millpond=loud").unwrap_err().to_string();
        assert!(error.contains("`info,millpond=loud`"), "{error}");
    }

    #[test]
    fn a_second_call_is_refused() {
        assert!(init(Format::Json, "off").is_ok());
        assert!(matches!(init(Format::Auto, "off"), Err(InitError::AlreadySet)));
    }
}
