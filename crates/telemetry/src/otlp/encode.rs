//! From what was recorded to OTLP's messages, with the names of OpenTelemetry's semantic conventions.

use super::{Call, Finished, LogRecord, NodeRecord, Recorded, context::Context};
use crate::{
    logs::Stream,
    metrics::{CLIENT_CLOSED, Kind, Metrics, Number, Outcome, Sample, Series, Start, Value},
};
use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
        trace::v1::ExportTraceServiceRequest,
    },
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    logs::v1::{LogRecord as Line, ResourceLogs, ScopeLogs, SeverityNumber},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
    },
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span, SpanFlags, Status, span::SpanKind, status::StatusCode},
};
use prost::Message;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What does not change while the process runs.
pub(super) struct Encoder {
    resource: Resource,
    scope: InstrumentationScope,
}

/// The semantic conventions that names are taken from.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";

impl Encoder {
    pub(super) fn new(resource: &[(String, String)]) -> Self {
        let mut attributes: Vec<KeyValue> = resource.iter().map(|(key, value)| text(key, value)).collect();
        for (key, value) in [
            ("service.name", "millpond".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", instance(rand::random())),
            ("telemetry.sdk.name", "millpond".to_owned()),
            ("telemetry.sdk.language", "rust".to_owned()),
            ("telemetry.sdk.version", env!("CARGO_PKG_VERSION").to_owned()),
        ] {
            if attributes.iter().all(|attribute| attribute.key != key) {
                attributes.push(text(key, &value));
            }
        }
        Self {
            resource: Resource {
                attributes,
                ..Resource::default()
            },
            scope: InstrumentationScope {
                name: "millpond".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..InstrumentationScope::default()
            },
        }
    }

    pub(super) fn spans(&self, recorded: &[Recorded]) -> Vec<u8> {
        let spans = recorded.iter().flat_map(|one| match one {
            Recorded::Invocation(finished) => spans(finished),
            Recorded::Call(call) => vec![call_span(call)],
        });
        let spans = spans.collect();
        let message = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(self.scope.clone()),
                    spans,
                    schema_url: SCHEMA.to_owned(),
                }],
                schema_url: SCHEMA.to_owned(),
            }],
        };
        message.encode_to_vec()
    }

    /// `of` knows where in which trace a request is.
    pub(super) fn logs(
        &self,
        records: &[LogRecord],
        of: impl Fn(&contract::RequestId) -> Option<Context>,
    ) -> Vec<u8> {
        let now = nanos(SystemTime::now());
        let log_records = records
            .iter()
            .map(|record| Line {
                observed_time_unix_nano: now,
                ..line(record, &of)
            })
            .collect();
        let message = ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                resource: Some(self.resource.clone()),
                scope_logs: vec![ScopeLogs {
                    scope: Some(self.scope.clone()),
                    log_records,
                    schema_url: SCHEMA.to_owned(),
                }],
                schema_url: SCHEMA.to_owned(),
            }],
        };
        message.encode_to_vec()
    }

    pub(super) fn metrics(&self, metrics: &Metrics) -> Vec<u8> {
        let (start, now) = (nanos(metrics.started()), nanos(SystemTime::now()));
        let page = metrics.page();
        let metrics = page
            .families()
            .iter()
            .filter(|family| !family.series.is_empty())
            .map(|family| {
                let Name { name, unit } = Name::of(&family.name, family.kind);
                Metric {
                    name,
                    unit: unit.to_owned(),
                    description: family.help.clone(),
                    data: Some(data(family.kind, &family.series, start, now)),
                    ..Metric::default()
                }
            })
            .collect();
        let message = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(self.scope.clone()),
                    metrics,
                    schema_url: SCHEMA.to_owned(),
                }],
                schema_url: SCHEMA.to_owned(),
            }],
        };
        message.encode_to_vec()
    }
}

/// A random UUID.
fn instance(random: u128) -> String {
    let id = (random & !(0xf << 76) & !(0b11 << 62)) | (4 << 76) | (0b10 << 62);
    let hex = format!("{id:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.to_owned()))
}

/// The invocation's span, then one for each phase that it had.
fn spans(finished: &Finished) -> Vec<Span> {
    let Finished {
        span,
        sample,
        status,
        ended,
    } = finished;
    let phases = [
        ("queue", sample.queue),
        ("boot", sample.boot),
        ("run", sample.run),
        ("write", sample.write),
    ];
    let whole: Duration = phases.iter().map(|(_, time)| *time).sum();
    let start = ended.checked_sub(whole).unwrap_or(UNIX_EPOCH);
    let trace_id = span.context.trace.to_be_bytes().to_vec();
    let is_remote = span.parent.map_or(0, |_| SpanFlags::ContextIsRemoteMask as u32);
    let flags = 1 | SpanFlags::ContextHasIsRemoteMask as u32;
    let error = error(sample, *status);
    let root = Span {
        trace_id: trace_id.clone(),
        span_id: span.context.span.to_be_bytes().to_vec(),
        parent_span_id: span
            .parent
            .map(|id| id.to_be_bytes().to_vec())
            .unwrap_or_default(),
        trace_state: span.state.clone(),
        flags: flags | is_remote,
        name: span.function.to_string(),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: nanos(start),
        end_time_unix_nano: nanos(*ended),
        status: error.as_ref().map(|_| Status {
            code: StatusCode::Error.into(),
            message: String::new(),
        }),
        attributes: attributes(finished, error),
        ..Span::default()
    };
    let mut spans = vec![root];
    if sample.start == Start::None {
        // It had no sandbox, and so nothing but waiting.
        return spans;
    }
    let mut at = start;
    for (index, (name, time)) in (1u64..).zip(phases) {
        let end = at.checked_add(time).unwrap_or(at);
        let id = phase_id(&span.context, index);
        spans.push(Span {
            trace_id: trace_id.clone(),
            span_id: id.to_be_bytes().to_vec(),
            parent_span_id: span.context.span.to_be_bytes().to_vec(),
            trace_state: span.state.clone(),
            flags,
            name: name.to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: nanos(at),
            end_time_unix_nano: nanos(end),
            ..Span::default()
        });
        at = end;
    }
    spans
}

/// Which of an invocation's phases is `run`, counted from 1.
const RUN: u64 = 3;

/// The id of the span of a phase. Ids must differ within the trace only: neighbours of a random one are as good as other random
/// ones.
fn phase_id(invocation: &Context, phase: u64) -> u64 {
    invocation.span.wrapping_add(phase).max(1)
}

/// A call to a service, by the conventions of HTTP clients. Neither its query nor its headers are told.
fn call_span(call: &Call) -> Span {
    let (scheme, host, path) = (&call.scheme, &call.host, &call.path);
    let port = call.port.map_or_else(String::new, |port| format!(":{port}"));
    let default = if scheme == "https" { 443 } else { 80 };
    let mut attributes = vec![
        text("server.address", host.trim_matches(['[', ']'])),
        attribute(
            "server.port",
            any_value::Value::IntValue(call.port.unwrap_or(default).into()),
        ),
        text("url.full", &format!("{scheme}://{host}{port}{path}")),
    ];
    attributes.extend(method_attributes(&call.method));
    let error = match call.outcome {
        Ok(status) => {
            let status_code = any_value::Value::IntValue(status.into());
            attributes.push(attribute("http.response.status_code", status_code));
            (status >= 400).then(|| status.to_string())
        }
        Err(error) => Some(error.to_owned()),
    };
    attributes.extend(error.as_ref().map(|error| text("error.type", error)));
    let is_known = METHODS.contains(&&call.method[..]);
    Span {
        trace_id: call.context.trace.to_be_bytes().to_vec(),
        span_id: call.context.span.to_be_bytes().to_vec(),
        parent_span_id: phase_id(&call.parent, RUN).to_be_bytes().to_vec(),
        trace_state: call.state.clone(),
        flags: 1 | SpanFlags::ContextHasIsRemoteMask as u32,
        name: if is_known {
            call.method.clone()
        } else {
            "HTTP".to_owned()
        },
        kind: SpanKind::Client.into(),
        start_time_unix_nano: nanos(call.started),
        end_time_unix_nano: nanos(call.ended.max(call.started)),
        status: error.map(|_| Status {
            code: StatusCode::Error.into(),
            message: String::new(),
        }),
        attributes,
        ..Span::default()
    }
}

/// The conventions' `error.type`: our code, or the status of a function's own 5xx.
fn error(sample: &Sample, status: Option<u16>) -> Option<String> {
    match sample.outcome {
        Outcome::Fault(code) | Outcome::Refused(code) | Outcome::Platform(code) => Some(code.to_owned()),
        Outcome::Left => Some(CLIENT_CLOSED.to_owned()),
        Outcome::Ok => status
            .filter(|status| *status >= 500)
            .map(|status| status.to_string()),
    }
}

const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

fn method_attributes(method: &str) -> Vec<KeyValue> {
    if METHODS.contains(&method) {
        return vec![text("http.request.method", method)];
    }
    vec![
        text("http.request.method", "_OTHER"),
        text("http.request.method_original", method),
    ]
}

fn attributes(finished: &Finished, error: Option<String>) -> Vec<KeyValue> {
    let Finished {
        span, sample, status, ..
    } = finished;
    let mut attributes = vec![
        text("faas.name", &span.function.to_string()),
        text("faas.version", &span.version.to_string()),
        text("faas.invocation_id", &span.request.to_string()),
        text("faas.trigger", "http"),
        attribute(
            "faas.coldstart",
            any_value::Value::BoolValue(sample.start == Start::Image),
        ),
        text("url.scheme", span.scheme),
        text("url.path", &span.path),
    ];
    attributes.extend(method_attributes(&span.method));
    if let Some(status) = status {
        let status = any_value::Value::IntValue((*status).into());
        attributes.push(attribute("http.response.status_code", status));
    }
    attributes.extend(error.map(|error| text("error.type", &error)));
    attributes
}

fn line(record: &LogRecord, of: &impl Fn(&contract::RequestId) -> Option<Context>) -> Line {
    let said = |text: &str| {
        Some(AnyValue {
            value: Some(any_value::Value::StringValue(text.to_owned())),
        })
    };
    match record {
        LogRecord::Node(NodeRecord {
            time,
            level,
            target,
            message,
            fields,
        }) => {
            let severity = match *level {
                tracing::Level::ERROR => SeverityNumber::Error,
                tracing::Level::WARN => SeverityNumber::Warn,
                tracing::Level::INFO => SeverityNumber::Info,
                tracing::Level::DEBUG => SeverityNumber::Debug,
                tracing::Level::TRACE => SeverityNumber::Trace,
            };
            let mut attributes = vec![text("millpond.target", target)];
            attributes.extend(fields.iter().map(|(name, value)| text(name, value)));
            Line {
                time_unix_nano: nanos(*time),
                severity_number: severity.into(),
                severity_text: level.to_string(),
                body: said(message),
                attributes,
                ..Line::default()
            }
        }
        LogRecord::Function(record) => {
            let mut attributes = vec![
                text("faas.name", &record.function.to_string()),
                text("faas.version", &record.version.to_string()),
            ];
            let severity = match record.stream {
                // What a guest says carries no level.
                Stream::Stdout => {
                    attributes.push(text("log.iostream", "stdout"));
                    SeverityNumber::Unspecified
                }
                Stream::Stderr => {
                    attributes.push(text("log.iostream", "stderr"));
                    SeverityNumber::Unspecified
                }
                Stream::Platform => SeverityNumber::Warn,
            };
            if let Some(request) = record.request {
                attributes.push(text("faas.invocation_id", &request.to_string()));
            }
            let context = record.request.as_ref().and_then(of);
            Line {
                time_unix_nano: nanos(record.time),
                severity_number: severity.into(),
                body: said(&record.message),
                attributes,
                trace_id: context
                    .map(|context| context.trace.to_be_bytes().to_vec())
                    .unwrap_or_default(),
                span_id: context
                    .map(|context| context.span.to_be_bytes().to_vec())
                    .unwrap_or_default(),
                flags: context.map_or(0, |context| u32::from(context.sampled)),
                ..Line::default()
            }
        }
    }
}

/// A metric's name as OpenTelemetry has it.
///
/// Its compatibility document says how names become Prometheus': dots become underscores, then unit and `_total` follow.
/// This is the way back, so that a collector that writes to Prometheus arrives at the very names of the node's own page.
struct Name {
    name: String,
    unit: &'static str,
}

impl Name {
    fn of(prometheus: &str, kind: Kind) -> Self {
        let name = match kind {
            Kind::Counter => prometheus.strip_suffix("_total").unwrap_or(prometheus),
            Kind::Gauge | Kind::Histogram => prometheus,
        };
        let (name, unit) = [("_seconds", "s"), ("_bytes", "By")]
            .into_iter()
            .find_map(|(suffix, unit)| Some((name.strip_suffix(suffix)?, unit)))
            .unwrap_or((name, ""));
        Self {
            name: name.replacen('_', ".", 1),
            unit,
        }
    }
}

fn data(kind: Kind, series: &[Series], start: u64, now: u64) -> metric::Data {
    let cumulative = AggregationTemporality::Cumulative.into();
    let numbers = || {
        series
            .iter()
            .filter_map(|one| match &one.value {
                Value::Number(number) => Some(NumberDataPoint {
                    attributes: labels(one),
                    start_time_unix_nano: if kind == Kind::Counter { start } else { 0 },
                    time_unix_nano: now,
                    value: Some(number_value(*number)),
                    ..NumberDataPoint::default()
                }),
                Value::Histogram(_) => None,
            })
            .collect()
    };
    match kind {
        Kind::Gauge => metric::Data::Gauge(Gauge {
            data_points: numbers(),
        }),
        Kind::Counter => metric::Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        Kind::Histogram => {
            let points = series.iter().filter_map(|one| match &one.value {
                Value::Histogram(values) => {
                    let (explicit_bounds, bucket_counts) = values.buckets();
                    Some(HistogramDataPoint {
                        attributes: labels(one),
                        start_time_unix_nano: start,
                        time_unix_nano: now,
                        count: values.count(),
                        sum: Some(values.sum_shown()),
                        bucket_counts,
                        explicit_bounds,
                        ..HistogramDataPoint::default()
                    })
                }
                Value::Number(_) => None,
            });
            metric::Data::Histogram(Histogram {
                data_points: points.collect(),
                aggregation_temporality: cumulative,
            })
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds are floats to OTLP")]
fn number_value(number: Number) -> number_data_point::Value {
    match number {
        Number::Whole(n) => number_data_point::Value::AsInt(n),
        Number::Nanoseconds(n) => number_data_point::Value::AsDouble(n as f64 / 1e9),
    }
}

fn labels(series: &Series) -> Vec<KeyValue> {
    series
        .labels
        .iter()
        .map(|(name, value)| match &name[..] {
            "faas_name" => text("faas.name", value),
            name => text(name, value),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a collector does it.
    fn prometheus(name: &Name, kind: Kind) -> String {
        let mut text = name.name.replace('.', "_");
        match name.unit {
            "s" => text.push_str("_seconds"),
            "By" => text.push_str("_bytes"),
            _ => {}
        }
        if kind == Kind::Counter {
            text.push_str("_total");
        }
        text
    }

    #[test]
    fn names_lead_back_to_the_page() {
        let metrics = Metrics::new(1);
        let page = metrics.page();
        assert!(page.families().len() > 20);
        for family in page.families() {
            let name = Name::of(&family.name, family.kind);
            assert_eq!(prometheus(&name, family.kind), family.name);
            assert!(name.name.contains('.'), "{}", name.name);
        }
        let name = Name::of("faas_invoke_duration_seconds", Kind::Histogram);
        assert_eq!((&name.name[..], name.unit), ("faas.invoke_duration", "s"));
    }

    #[test]
    fn an_instance_is_a_random_uuid() {
        assert_eq!(instance(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(instance(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
