//! What the standard `OTEL_*` variables say.

use super::context::Sampler;
use std::time::Duration;

/// Where one signal goes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) timeout: Duration,
}

/// How finished records are put together (`OTEL_BSP_*`, `OTEL_BLRP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    /// How long a record waits for others.
    pub(crate) delay: Duration,
    /// Records that wait; more are dropped.
    pub(crate) queue: usize,
    /// Records of one message.
    pub(crate) size: usize,
    /// How long a message is tried again before it is given up.
    pub(crate) patience: Duration,
}

/// What is exported, and where to: made from the environment by [`Options::from_variables`].
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub(crate) traces: Option<Endpoint>,
    pub(crate) metrics: Option<Endpoint>,
    pub(crate) logs: Option<Endpoint>,
    pub(crate) sampler: Sampler,
    pub(crate) spans: Batch,
    pub(crate) records: Batch,
    /// Between two exports of all metrics.
    pub(crate) interval: Duration,
    /// Attributes of the resource, `service.name` among them.
    pub(crate) resource: Vec<(String, String)>,
    /// What was said and cannot be understood: the standard has it reported and ignored.
    pub(crate) ignored: Vec<String>,
}

/// Telemetry cannot be exported as the environment asks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// A transport that is not here.
    #[error(
        "{variable} asks for `{given}`, but this node exports `http/protobuf` only: unset it, and use the collector's port for HTTP (4318)"
    )]
    Protocol {
        /// The variable.
        variable: String,
        /// What it says.
        given: String,
    },
    /// Not a URL that can be posted to.
    #[error("{variable} is `{given}`, which is not a URL that begins with `http://`: {reason}")]
    Endpoint {
        /// The variable.
        variable: String,
        /// What it says.
        given: String,
        /// What is wrong, and what to try.
        reason: &'static str,
    },
}

/// The variables as they are read; an empty one counts as unset, as the standard has it.
struct Variables<F> {
    read: F,
    ignored: Vec<String>,
}

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    fn text(&self, name: &str) -> Option<String> {
        (self.read)(name)
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
    }

    fn ignore(&mut self, name: &str, given: &str, expected: &str) {
        self.ignored
            .push(format!("{name} is `{given}`, which is not {expected}"));
    }

    fn number(&mut self, name: &str, default: u64) -> u64 {
        let Some(text) = self.text(name) else {
            return default;
        };
        match text.parse() {
            Ok(number) => number,
            Err(_) => {
                self.ignore(name, &text, "a whole number");
                default
            }
        }
    }

    fn milliseconds(&mut self, name: &str, default: u64) -> Duration {
        Duration::from_millis(self.number(name, default))
    }

    /// `name=value,name=value`, each percent-encoded.
    fn pairs(&mut self, name: &str) -> Option<Vec<(String, String)>> {
        let text = self.text(name)?;
        let mut pairs = Vec::new();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            match pair.split_once('=') {
                Some((key, value)) if !key.trim().is_empty() => {
                    pairs.push((decoded(key.trim()), decoded(value.trim())));
                }
                _ => self.ignore(name, pair, "of the form name=value"),
            }
        }
        Some(pairs)
    }

    fn batch(&mut self, prefix: &str, delay: u64) -> Batch {
        let mut positive = |name: &str, default| {
            let number = self.number(&format!("{prefix}_{name}"), default).max(1);
            usize::try_from(number).unwrap_or(usize::MAX).min(MOST)
        };
        let queue = positive("MAX_QUEUE_SIZE", 2048);
        let size = positive("MAX_EXPORT_BATCH_SIZE", 512).min(queue);
        Batch {
            delay: self.milliseconds(&format!("{prefix}_SCHEDULE_DELAY"), delay),
            queue,
            size,
            patience: self.milliseconds(&format!("{prefix}_EXPORT_TIMEOUT"), 30_000),
        }
    }

    /// Where a signal goes; `None` if nowhere.
    fn endpoint(&mut self, signal: &str, path: &str) -> Result<Option<Endpoint>, OptionsError> {
        let exporter = format!("OTEL_{signal}_EXPORTER");
        match self.text(&exporter).as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => {
                let other = other.to_owned();
                self.ignore(&exporter, &other, "`otlp` or `none`");
            }
        }
        let own = |what: &str| format!("OTEL_EXPORTER_OTLP_{signal}_{what}");
        let common = |what: &str| format!("OTEL_EXPORTER_OTLP_{what}");
        let (variable, given, url) = match (self.text(&own("ENDPOINT")), self.text(&common("ENDPOINT"))) {
            (Some(own_url), _) => (own("ENDPOINT"), own_url.clone(), own_url),
            (None, Some(base)) => {
                let url = format!("{}/{path}", base.trim_end_matches('/'));
                (common("ENDPOINT"), base, url)
            }
            (None, None) => return Ok(None),
        };
        if let Err(reason) = check(&url) {
            return Err(OptionsError::Endpoint {
                variable,
                given,
                reason,
            });
        }
        for variable in [own("PROTOCOL"), common("PROTOCOL")] {
            match self.text(&variable) {
                None => {}
                Some(given) if given == "http/protobuf" => break,
                Some(given) => return Err(OptionsError::Protocol { variable, given }),
            }
        }
        let headers = match self.pairs(&own("HEADERS")) {
            Some(headers) => headers,
            None => self.pairs(&common("HEADERS")).unwrap_or_default(),
        };
        let timeout = self.number(&common("TIMEOUT"), 10_000);
        Ok(Some(Endpoint {
            url,
            headers,
            timeout: self
                .milliseconds(&own("TIMEOUT"), timeout)
                .max(Duration::from_millis(1)),
        }))
    }

    fn sampler(&mut self) -> Sampler {
        const NAME: &str = "OTEL_TRACES_SAMPLER";
        let text = self
            .text(NAME)
            .unwrap_or_else(|| "parentbased_always_on".to_owned());
        let (by_parent, root) = match text.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, &text[..]),
        };
        let share = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => self.share(),
            _ => {
                self.ignore(NAME, &text, "a sampler of this node");
                return Sampler {
                    by_parent: true,
                    share: 1.0,
                };
            }
        };
        Sampler { by_parent, share }
    }

    fn share(&mut self) -> f64 {
        const NAME: &str = "OTEL_TRACES_SAMPLER_ARG";
        let Some(text) = self.text(NAME) else { return 1.0 };
        match text.parse() {
            Ok(share) if (0.0..=1.0).contains(&share) => share,
            _ => {
                self.ignore(NAME, &text, "a number from 0 to 1");
                1.0
            }
        }
    }

    fn resource(&mut self) -> Vec<(String, String)> {
        let mut resource = self.pairs("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        if let Some(name) = self.text("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), name));
        }
        resource
    }
}

/// The largest queue: beyond it a record is dropped in any case.
const MOST: usize = 1 << 20;

impl Options {
    /// Reads the standard's variables by `read`, which is the environment's reader in a binary. `None` if nothing is to
    /// be exported: no endpoint is named, or `OTEL_SDK_DISABLED` is `true`.
    pub fn from_variables(read: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, OptionsError> {
        let mut variables = Variables {
            read,
            ignored: Vec::new(),
        };
        if variables
            .text("OTEL_SDK_DISABLED")
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
        {
            return Ok(None);
        }
        let options = Self {
            traces: variables.endpoint("TRACES", "v1/traces")?,
            metrics: variables.endpoint("METRICS", "v1/metrics")?,
            logs: variables.endpoint("LOGS", "v1/logs")?,
            sampler: variables.sampler(),
            spans: variables.batch("OTEL_BSP", 5_000),
            records: variables.batch("OTEL_BLRP", 1_000),
            interval: variables
                .milliseconds("OTEL_METRIC_EXPORT_INTERVAL", 60_000)
                .max(Duration::from_millis(10)),
            resource: variables.resource(),
            ignored: variables.ignored,
        };
        let any = [&options.traces, &options.metrics, &options.logs]
            .iter()
            .any(|endpoint| endpoint.is_some());
        Ok(any.then_some(options))
    }

    /// Which signals go where, as URLs without what is secret in them.
    pub fn places(&self) -> Vec<(&'static str, String)> {
        let signals = [
            ("traces", &self.traces),
            ("metrics", &self.metrics),
            ("logs", &self.logs),
        ];
        let place =
            |(signal, endpoint): (_, &Option<Endpoint>)| Some((signal, shown(&endpoint.as_ref()?.url)));
        signals.into_iter().filter_map(place).collect()
    }
}

/// Without a user and a password.
fn shown(url: &str) -> String {
    let rest = url.trim_start_matches("http://");
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    format!("http://{host}{path}")
}

fn check(url: &str) -> Result<(), &'static str> {
    if url.starts_with("https://") {
        return Err(
            "the node speaks no TLS to collectors; run an OpenTelemetry collector on this host and let that one speak it",
        );
    }
    match url.strip_prefix("http://") {
        None => Err("write it as http://HOST:PORT"),
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Err("it names no host"),
        Some(_) if url.parse::<ureq::http::Uri>().is_err() => Err("it has characters that a URL cannot have"),
        Some(_) => Ok(()),
    }
}

/// Without percent-encoding; what is no escape stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digit = |index: usize| after.get(index).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Options>, OptionsError> {
        Options::from_variables(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/");

    #[test]
    fn places_are_told_without_secrets() {
        let options = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:secret@collector:4318"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://logs/of@all"),
            ("OTEL_METRICS_EXPORTER", "none"),
        ]);
        assert_eq!(
            options.unwrap().unwrap().places(),
            [
                ("traces", "http://collector:4318/v1/traces".to_owned()),
                ("logs", "http://logs/of@all".to_owned()),
            ]
        );
    }

    #[test]
    fn nothing_is_exported_unless_an_endpoint_is_named() {
        for variables in [
            &[][..],
            &[("OTEL_SERVICE_NAME", "x"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
            &[BASE, ("OTEL_SDK_DISABLED", "TRUE")],
            &[
                BASE,
                ("OTEL_TRACES_EXPORTER", "none"),
                ("OTEL_METRICS_EXPORTER", "none"),
                ("OTEL_LOGS_EXPORTER", "none"),
            ],
        ] {
            assert_eq!(read(variables).unwrap(), None, "{variables:?}");
        }
    }

    #[test]
    fn the_defaults_are_the_standards() {
        let options = read(&[BASE]).unwrap().unwrap();
        let traces = options.traces.unwrap();
        assert_eq!(traces.url, "http://127.0.0.1:4318/v1/traces");
        assert_eq!(traces.timeout, Duration::from_secs(10));
        assert_eq!(options.metrics.unwrap().url, "http://127.0.0.1:4318/v1/metrics");
        assert_eq!(options.logs.unwrap().url, "http://127.0.0.1:4318/v1/logs");
        assert_eq!(options.interval, Duration::from_secs(60));
        assert_eq!((options.spans.queue, options.spans.size), (2048, 512));
        assert_eq!(options.spans.delay, Duration::from_secs(5));
        assert_eq!(options.records.delay, Duration::from_secs(1));
        assert_eq!(
            options.sampler,
            Sampler {
                by_parent: true,
                share: 1.0
            }
        );
        assert!(options.resource.is_empty() && options.ignored.is_empty());
    }

    #[test]
    fn a_signals_own_variables_win() {
        let options = read(&[
            BASE,
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:1/exactly"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "20"),
            ("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "30"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1, b=x%20y"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "c=2"),
            ("OTEL_SERVICE_NAME", "mill"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.name=pond,deployment.environment.name=a%2Cb",
            ),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ])
        .unwrap()
        .unwrap();
        let (traces, metrics, logs) = (
            options.traces.unwrap(),
            options.metrics.unwrap(),
            options.logs.unwrap(),
        );
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(traces.url, "http://traces:1/exactly");
        assert_eq!(traces.headers, [pair("a", "1"), pair("b", "x y")]);
        assert_eq!(metrics.headers, [pair("c", "2")]);
        assert_eq!(traces.timeout, Duration::from_millis(20));
        assert_eq!(logs.timeout, Duration::from_millis(30));
        assert_eq!(
            options.resource,
            [
                pair("deployment.environment.name", "a,b"),
                pair("service.name", "mill")
            ]
        );
    }

    #[test]
    fn samplers_have_the_standards_names() {
        for (name, argument, by_parent, share) in [
            ("always_on", "", false, 1.0),
            ("always_off", "", false, 0.0),
            ("traceidratio", "0.25", false, 0.25),
            ("parentbased_always_off", "", true, 0.0),
            ("parentbased_traceidratio", "0.5", true, 0.5),
            ("parentbased_traceidratio", "", true, 1.0),
        ] {
            let variables = [
                BASE,
                ("OTEL_TRACES_SAMPLER", name),
                ("OTEL_TRACES_SAMPLER_ARG", argument),
            ];
            let options = read(&variables).unwrap().unwrap();
            assert_eq!(options.sampler, Sampler { by_parent, share }, "{name}");
            assert!(options.ignored.is_empty());
        }
    }

    #[test]
    fn what_cannot_be_understood_is_told_and_ignored() {
        let options = read(&[
            BASE,
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b,c"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!(options.ignored.len(), 4, "{:?}", options.ignored);
        assert_eq!(options.spans.queue, 2048);
        assert_eq!(options.resource.len(), 1);
    }

    #[test]
    fn what_cannot_be_done_is_an_error() {
        for (variable, value, word) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "4318"),
            ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/json", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://a", "TLS"),
            (
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                "localhost:4318",
                "http://HOST",
            ),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http:///v1", "no host"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://a b", "characters"),
        ] {
            let error = read(&[BASE, (variable, value)]).unwrap_err().to_string();
            assert!(error.contains(variable) && error.contains(word), "{error}");
        }
    }
}
