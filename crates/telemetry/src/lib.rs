//! Metrics, logs and traces of a node.
//!
//! - [`metrics`]: counters and histograms that a worker's core writes without a lock, an allocation or a cache line
//!   that another core writes; rendered as Prometheus text for the admin port.
//! - [`logs`]: what guests say, line by line, with the request that said it; kept in files of bounded size, read back
//!   and followed by the admin port.
//! - [`usage`]: what each version of a function uses, for the scheduler at once and for the registry's history.
//! - [`otlp`]: all of it, and traces, sent to an OpenTelemetry collector.
//! - [`init`]: the node's own log on standard error.
//!
//! Neighbours: `worker` and `gateway` record and log, `admin` reads, `node` makes one [`metrics::Metrics`] and one
//! [`logs::Logs`] and hands them out, with the binary's [`otlp::Exporter`] if there is one. Nothing here reads the
//! environment.

#![forbid(unsafe_code)]

/// What guests and the platform say about requests, by function and request id.
pub mod logs;
/// Counters and histograms, sharded by core.
pub mod metrics;
mod node_log;
/// Export to an OpenTelemetry collector.
pub mod otlp;
/// What one version of a function uses.
pub mod usage;

pub use node_log::{Format, InitError, init, init_exporting};
