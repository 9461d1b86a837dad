//! What a schema cannot say.

use crate::{
    Diagnostic, Manifest, Protocol,
    diagnostic::Diagnostics,
    model::{AwsGrant, Engine, Function, HttpGrant, HttpTrigger, S3Grant, ScheduleTrigger},
    reader::{Spans, join, nearest, nth},
};
use contract::{AWS_SERVICES, FunctionRef, format_duration, is_reserved_variable, parse_duration};
use std::{collections::HashMap, net::Ipv6Addr, time::Duration};
use triggers::{Pattern, SHORTEST, Timing, TimingError};

/// First segments of paths that the data plane keeps for itself.
const RESERVED_SEGMENTS: [&str; 7] = [
    "function",
    "async-function",
    "events",
    "healthz",
    "readyz",
    "2015-03-31",
    "2021-11-15",
];

/// Arguments and environment of one function, in bytes: they are written into every sandbox.
const MAXIMUM_START: usize = 64 << 10;

/// The body that a schedule sends, in bytes.
const MAXIMUM_PAYLOAD: usize = 64 << 10;
/// The longest time between two runs of a schedule.
const LONGEST_INTERVAL: Duration = Duration::from_hours(366 * 24);

/// A rule that was broken, and what to try.
type Broken = (String, String);

fn broken(reason: impl Into<String>, help: impl Into<String>) -> Result<(), Broken> {
    Err((reason.into(), help.into()))
}

pub(crate) fn check(manifest: &Manifest, spans: &Spans, faults: &mut Diagnostics) {
    let mut rules = Rules { spans, faults };
    for (name, function) in &manifest.function {
        rules.function(function, &join("function", name.as_str()));
        rules.invoked(manifest, function, &join("function", name.as_str()));
    }
    rules.triggers(manifest);
    rules.schedules(manifest);
    rules.subscriptions(manifest);
    rules.objects(manifest);
}

struct Rules<'a> {
    spans: &'a Spans,
    faults: &'a mut Diagnostics,
}

impl Rules<'_> {
    fn check(&mut self, code: &str, at: &str, result: Result<(), Broken>) {
        if let Err((reason, help)) = result {
            let diagnostic = Diagnostic::new(code, at, format!("`{at}` {reason}"));
            self.faults
                .push(diagnostic.span(self.spans.value(at)).label("here").help(help));
        }
    }

    fn function(&mut self, function: &Function, at: &str) {
        if let Some(content_type) = &function.content_type {
            let path = join(at, "content_type");
            if function.protocol == Protocol::Cgi {
                let help = "remove it, or remove `protocol = \"cgi\"`";
                self.check(
                    "contradiction",
                    &path,
                    broken(
                        "is set beside `protocol = \"cgi\"`, where the function says it",
                        help,
                    ),
                );
            } else {
                self.check("bad-content-type", &path, media_type(content_type));
            }
        }
        self.handler(function, at);
        self.sets(function, at);
        if let (Some(most), Some(memory)) = (function.engine.most_memory(), function.memory)
            && memory > most
        {
            let help = format!("use at most {most}, or another engine");
            let reason = format!("is {memory}, and its engine gives a sandbox at most {most}");
            self.check("out-of-range", &join(at, "memory"), broken(reason, help));
        }
        let variables = join(at, "env");
        for name in function.env.keys() {
            let path = join(&variables, name);
            if let Err((reason, help)) = variable(name) {
                let diagnostic = Diagnostic::new("bad-variable", &path, format!("`{path}` {reason}"));
                self.faults.push(
                    diagnostic
                        .span(self.spans.key(&path))
                        .label("this name")
                        .help(help),
                );
            }
        }
        let start = function
            .env
            .iter()
            .map(|(name, value)| name.len() + value.len() + 2)
            .sum::<usize>()
            + function
                .arguments
                .iter()
                .map(|argument| argument.len() + 1)
                .sum::<usize>();
        if start > MAXIMUM_START {
            let reason =
                format!("has {start} bytes of arguments and environment; it may have {MAXIMUM_START}");
            self.check(
                "too-large",
                at,
                broken(reason, "send what is large with the request"),
            );
        }
        let grants = join(at, "grants");
        self.hosts(&function.grants.http, &join(&grants, "http"));
        for (i, grant) in function.grants.s3.iter().enumerate() {
            self.check(
                "bad-bucket",
                &join(&nth(&join(&grants, "s3"), i), "bucket"),
                bucket(&grant.bucket),
            );
        }
        for (i, grant) in function.grants.aws.iter().enumerate() {
            self.operations(grant, &nth(&join(&grants, "aws"), i));
        }
    }

    /// Operations of one of AWS's services.
    fn operations(&mut self, grant: &AwsGrant, at: &str) {
        if !AWS_SERVICES.contains(&grant.service.as_str()) {
            let help = match grant.service.as_str() {
                "s3" => "use `[[function.NAME.grants.s3]]`".to_owned(),
                "lambda" => "use `[function.NAME.grants.lambda]`".to_owned(),
                _ => format!("write one of {}", AWS_SERVICES.join(", ")),
            };
            let reason = format!(
                "is {:?}, and the node signs no requests to that service",
                grant.service
            );
            self.check("bad-name", &join(at, "service"), broken(reason, help));
        }
        for (key, texts) in [("actions", &grant.actions), ("resources", &grant.resources)] {
            for (i, text) in texts.iter().enumerate() {
                self.check("bad-name", &nth(&join(at, key), i), operand(text));
            }
        }
    }

    /// The functions that it may invoke.
    fn invoked(&mut self, manifest: &Manifest, function: &Function, at: &str) {
        let at = join(&join(&join(at, "grants"), "lambda"), "functions");
        for (i, name) in function.grants.lambda.functions.iter().enumerate() {
            let at = nth(&at, i);
            let help = "write [APPLICATION.]FUNCTION[:VERSION|:ALIAS], for example resize";
            match name.parse::<FunctionRef>() {
                Err(error) => {
                    let reason = format!("is {name:?}, which names no function: {error}");
                    self.check("bad-name", &at, broken(reason, help));
                }
                Ok(named) if named.tenant.is_some() => {
                    let reason = format!("is {name:?}, and functions invoke those of their own tenant only");
                    self.check("bad-name", &at, broken(reason, "leave the tenant out"));
                }
                Ok(named) if named.application.is_none() => self.known(manifest, &named.function, &at),
                Ok(_) => {}
            }
        }
    }

    /// A handler, and what it cannot have beside it.
    fn handler(&mut self, function: &Function, at: &str) {
        let Some(handler) = &function.handler else {
            if function.requirements.is_some() {
                let help = "remove it, or name the function's `handler`";
                let path = join(at, "requirements");
                self.check(
                    "contradiction",
                    &path,
                    broken("is of functions in Python, and this is none", help),
                );
            }
            return;
        };
        let is_name = handler.rsplit_once('.').is_some_and(|(module, function)| {
            let plain =
                |text: &str| !text.is_empty() && !text.contains(char::is_whitespace) && !text.contains('\0');
            plain(module) && plain(function)
        });
        if !is_name {
            let help = "write MODULE.FUNCTION, for example app.handler";
            self.check(
                "bad-handler",
                &join(at, "handler"),
                broken("is no name of a function in a module", help),
            );
        }
        if function.protocol != Protocol::Raw {
            let help = "remove it, or remove `handler`";
            let reason = "is set beside `handler`, whose requests are events";
            self.check("contradiction", &join(at, "protocol"), broken(reason, help));
        }
        if !matches!(function.engine, Engine::Auto | Engine::Process) {
            let help = "remove it, or write \"process\"";
            let reason = "runs no functions in Python";
            self.check("contradiction", &join(at, "engine"), broken(reason, help));
        }
    }

    /// A pure function's sets, and what it cannot have beside them.
    fn sets(&mut self, function: &Function, at: &str) {
        let named = [
            ("input_sets", &function.input_sets),
            ("output_sets", &function.output_sets),
        ];
        let is_pure = function.protocol == Protocol::Pure;
        for (key, sets) in named {
            let (path, Some(sets)) = (join(at, key), sets) else {
                continue;
            };
            if !is_pure {
                let help = "remove it, or say `protocol = \"pure\"`";
                self.check(
                    "contradiction",
                    &path,
                    broken("is of pure functions, and this is none", help),
                );
            }
            for (i, set) in sets.iter().enumerate() {
                let path = nth(&path, i);
                if let Err(why) = pure::check_name(set) {
                    self.check(
                        "bad-name",
                        &path,
                        broken(format!("is no name of a set: {why}"), "name it otherwise"),
                    );
                } else if sets[..i].contains(set) {
                    self.check(
                        "bad-name",
                        &path,
                        broken("is another set's name", "name each set once"),
                    );
                }
            }
        }
        if !is_pure {
            return;
        }
        if function.reuse > 1 {
            let help = "remove it, or `protocol = \"pure\"`";
            let reason = "is above 1, and what a pure function gives back depends on its inputs alone";
            self.check("contradiction", &join(at, "reuse"), broken(reason, help));
        }
        if !function.grants.is_empty() {
            let help = "remove them, or `protocol = \"pure\"`";
            let reason = "let it reach others, and a pure function reaches nobody";
            self.check("contradiction", &join(at, "grants"), broken(reason, help));
        }
    }

    fn hosts(&mut self, granted: &[HttpGrant], at: &str) {
        for (i, grant) in granted.iter().enumerate() {
            let at = nth(at, i);
            self.check("bad-host", &join(&at, "host"), host(&grant.host));
            let headers = join(&at, "headers");
            for (k, name) in grant.headers.keys().enumerate() {
                let path = join(&headers, name);
                let mut before = grant.headers.keys().take(k);
                let result = match before.find(|other| other.eq_ignore_ascii_case(name)) {
                    Some(other) => broken(format!("is the same header as {other:?}"), "remove one"),
                    None => field(name),
                };
                if let Err((reason, help)) = result {
                    let diagnostic = Diagnostic::new("bad-header", &path, format!("`{path}` {reason}"));
                    let span = self.spans.key(&path);
                    self.faults
                        .push(diagnostic.span(span).label("this name").help(help));
                }
            }
            if grant.clear_text
                && grant
                    .headers
                    .values()
                    .all(|value| value.secrets().next().is_none())
            {
                let reason = "is set, and no header has a secret that it could be about";
                let help = "remove it; requests without secrets may go by `http` anyway";
                self.check("contradiction", &join(&at, "clear_text"), broken(reason, help));
            }
            let same = |other: &HttpGrant| other.host == grant.host;
            if let Some(k) = granted[..i].iter().position(same)
                && (granted[k] != *grant || !grant.headers.is_empty())
            {
                let reason = format!("is {:?}, which another grant has already", grant.host);
                let help = "write one grant for each host, with all of its headers";
                self.check("duplicate-grant", &join(&at, "host"), broken(reason, help));
            }
        }
    }

    fn triggers(&mut self, manifest: &Manifest) {
        // One table of patterns for each host and method, as the routes are looked up.
        let mut tables: HashMap<(Option<&str>, Option<&str>), matchit::Router<usize>> = HashMap::new();
        for (i, trigger) in manifest.trigger.http.iter().enumerate() {
            let at = nth("trigger.http", i);
            self.named(manifest, &trigger.function, &at);
            if let Some(name) = &trigger.host {
                self.check("bad-host", &join(&at, "host"), host(name));
            }
            for (k, name) in trigger.method.iter().enumerate() {
                let path = join(&at, "method");
                let path = if trigger.method.len() > 1 {
                    nth(&path, k)
                } else {
                    path
                };
                let result = if trigger.method[..k].contains(name) {
                    broken(format!("lists {name:?} twice"), "")
                } else {
                    method(name)
                };
                self.check("bad-method", &path, result);
            }
            let path = join(&at, "path");
            if let Err(code_and_rule) = pattern(&trigger.path) {
                let (code, rule) = code_and_rule;
                self.check(code, &path, Err(rule));
                continue;
            }
            let methods: Vec<Option<&str>> = match trigger.method.as_slice() {
                [] => vec![None],
                methods => methods.iter().map(|method| Some(method.as_str())).collect(),
            };
            for method in methods {
                let table = tables.entry((trigger.host.as_deref(), method)).or_default();
                if let Err(error) = table.insert(trigger.path.as_str(), i)
                    && self.route(manifest, i, method, &error)
                {
                    break;
                }
            }
        }
    }

    /// A trigger names a function of its manifest.
    fn named(&mut self, manifest: &Manifest, function: &contract::Name, at: &str) {
        self.known(manifest, function, &join(at, "function"));
    }

    /// Of a name at this place, that it is a function's.
    fn known(&mut self, manifest: &Manifest, function: &contract::Name, at: &str) {
        if manifest.function.contains_key(function) {
            return;
        }
        let known = manifest.function.keys().map(contract::Name::as_str);
        let help = match nearest(function.as_str(), known.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "functions of this application: {}",
                known.collect::<Vec<_>>().join(", ")
            ),
        };
        let reason = format!("names `{function}`, which is not a function of this manifest");
        self.check("unknown-function", at, broken(reason, help));
    }

    fn schedules(&mut self, manifest: &Manifest) {
        let mut known: HashMap<(&contract::Name, String), usize> = HashMap::new();
        for (i, trigger) in manifest.trigger.schedule.iter().enumerate() {
            let at = nth("trigger.schedule", i);
            self.named(manifest, &trigger.function, &at);
            match (&trigger.cron, &trigger.every) {
                (Some(_), Some(_)) => self.check(
                    "contradiction",
                    &join(&at, "every"),
                    broken("is set beside `cron`", "remove one of them"),
                ),
                (None, None) => self.check(
                    "missing-key",
                    &join(&at, "cron"),
                    broken(
                        "is missing, and so is `every`: nothing says when it is due",
                        "add `cron = \"*/5 * * * *\"` or `every = \"5m\"`",
                    ),
                ),
                (Some(cron), None) => self.cron(trigger, cron, &at),
                (None, Some(every)) => {
                    self.check("bad-duration", &join(&at, "every"), interval(every));
                    if trigger.timezone.is_some() {
                        self.check(
                            "contradiction",
                            &join(&at, "timezone"),
                            broken("is set beside `every`, which is the same everywhere", "remove it"),
                        );
                    }
                }
            }
            let length = trigger.payload.len();
            if length > MAXIMUM_PAYLOAD {
                let reason = format!("has {length} bytes; it may have {MAXIMUM_PAYLOAD}");
                self.check(
                    "too-large",
                    &join(&at, "payload"),
                    broken(reason, "have the function fetch what is large"),
                );
            }
            if let Some(other) = known.insert((&trigger.function, trigger.when()), i) {
                let reason = format!("is due whenever `trigger.schedule[{other}]` is, for the same function");
                self.check("duplicate-schedule", &at, broken(reason, "remove one"));
            }
        }
    }

    fn cron(&mut self, trigger: &ScheduleTrigger, cron: &str, at: &str) {
        if let Some(zone) = &trigger.timezone
            && !Timing::is_zone(zone)
        {
            let reason = format!("is {zone:?}, not a time zone of the IANA database");
            let help = "for example \"UTC\" or \"Europe/Berlin\"";
            return self.check("bad-timezone", &join(at, "timezone"), broken(reason, help));
        }
        if let Err(error) = trigger.timing() {
            let help = "minute, hour, day, month, weekday: \"*/5 * * * *\" is every five minutes, \"0 2 * * MON\" is Mondays at two";
            let reason = match error {
                TimingError::Pattern(_) | TimingError::Fields(_) | TimingError::Never => {
                    format!("({cron:?}) {error}")
                }
                other => other.to_string(),
            };
            self.check("bad-cron", &join(at, "cron"), broken(reason, help));
        }
    }

    fn subscriptions(&mut self, manifest: &Manifest) {
        let mut known = HashMap::new();
        for (i, trigger) in manifest.trigger.cloudevents.iter().enumerate() {
            let at = nth("trigger.cloudevents", i);
            self.named(manifest, &trigger.function, &at);
            let source = trigger.source.as_ref().map(|source| ("source", source));
            for (key, text) in std::iter::once(("type", &trigger.kind)).chain(source) {
                if let Err(error) = text.parse::<Pattern>() {
                    let reason = format!("is {text:?}: it {error}");
                    let help = "write all of it, or how it begins and a `*`: \"com.example.order.*\"";
                    self.check("bad-event-pattern", &join(&at, key), broken(reason, help));
                }
            }
            if let Some(other) = known.insert((&trigger.function, &trigger.kind, &trigger.source), i) {
                let reason =
                    format!("wants the same events as `trigger.cloudevents[{other}]`, for the same function");
                self.check("duplicate-subscription", &at, broken(reason, "remove one"));
            }
        }
    }

    fn objects(&mut self, manifest: &Manifest) {
        let mut known = HashMap::new();
        for (i, trigger) in manifest.trigger.object.iter().enumerate() {
            let at = nth("trigger.object", i);
            self.named(manifest, &trigger.function, &at);
            self.check("bad-bucket", &join(&at, "bucket"), bucket(&trigger.bucket));
            let what = (
                &trigger.function,
                &trigger.bucket,
                &trigger.prefix,
                &trigger.suffix,
            );
            if let Some(other) = known.insert(what, i) {
                let reason =
                    format!("wants the same objects as `trigger.object[{other}]`, for the same function");
                self.check("duplicate-subscription", &at, broken(reason, "remove one"));
            }
        }
    }

    /// Reports a pattern that the route table refused; whether it did.
    fn route(
        &mut self,
        manifest: &Manifest,
        i: usize,
        method: Option<&str>,
        error: &matchit::InsertError,
    ) -> bool {
        let triggers = &manifest.trigger.http;
        let (at, trigger) = (nth("trigger.http", i), &triggers[i]);
        let matchit::InsertError::Conflict { with } = error else {
            let reason = format!("is {:?}: {}", trigger.path, error.to_string().to_lowercase());
            self.check("bad-path", &join(&at, "path"), broken(reason, PATTERN_HELP));
            return true;
        };
        let rival = |other: &HttpTrigger| {
            other.host == trigger.host
                && match method {
                    None => other.method.is_empty(),
                    Some(method) => other.method.iter().any(|other| other == method),
                }
        };
        let same = |other: &HttpTrigger| shape(&other.path) == shape(&trigger.path);
        let earlier = || triggers[..i].iter().enumerate().filter(|(_, other)| rival(other));
        let Some((k, other)) = earlier()
            .find(|(_, other)| same(other))
            .or_else(|| earlier().find(|(_, other)| other.path == *with))
            .or_else(|| earlier().next())
        else {
            return false;
        };
        let (code, what) = if same(other) {
            ("duplicate-route", "the same requests as")
        } else {
            ("ambiguous-route", "requests that cannot be told from those of")
        };
        let reason = format!(
            "({}, for `{}`) matches {what} `trigger.http[{k}]` ({}, for `{}`)",
            said(trigger, method),
            trigger.function,
            said(other, method),
            other.function
        );
        self.check(
            code,
            &at,
            broken(
                reason,
                "remove one, or give them different methods, hosts or paths",
            ),
        );
        true
    }
}

/// A route as a person would say it: `GET img.example.org/resize/{size}`.
fn said(trigger: &HttpTrigger, method: Option<&str>) -> String {
    format!(
        "{} {}{}",
        method.unwrap_or("any method"),
        trigger.host.as_deref().unwrap_or_default(),
        trigger.path
    )
}

/// A pattern without the names of its parameters.
fn shape(pattern: &str) -> String {
    let mut shape = String::new();
    let mut inside = false;
    for c in pattern.chars() {
        match c {
            '{' => inside = true,
            '}' => inside = false,
            _ if inside && c != '*' => continue,
            _ => {}
        }
        shape.push(c);
    }
    shape
}

/// An interval between runs.
fn interval(text: &str) -> Result<(), Broken> {
    let help = "for example \"30s\", \"5m\" or \"24h\"";
    match parse_duration(text) {
        Err(error) => broken(format!("({text:?}) is no duration: {error}"), help),
        Ok(interval) if interval < SHORTEST || interval > LONGEST_INTERVAL => broken(
            format!(
                "is {}; it can be {} to {}",
                text.trim(),
                format_duration(SHORTEST),
                format_duration(LONGEST_INTERVAL)
            ),
            help,
        ),
        Ok(_) => Ok(()),
    }
}

fn token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Header fields that are the connection's or the body's, and so not the manifest's.
const FRAMING: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

fn field(name: &str) -> Result<(), Broken> {
    if !token(name) {
        broken(
            format!("({name:?}) is not the name of a header"),
            "for example \"authorization\" or \"x-api-key\"",
        )
    } else if FRAMING.iter().any(|its| name.eq_ignore_ascii_case(its)) {
        broken(
            "is the connection's to say",
            "remove it; the node sees to it for each request",
        )
    } else {
        Ok(())
    }
}

fn method(name: &str) -> Result<(), Broken> {
    let upper = name.to_ascii_uppercase();
    if !token(name) {
        broken(
            format!("is {name:?}, not an HTTP method"),
            "for example \"GET\"; leave it out for any method",
        )
    } else if upper != name {
        broken(
            format!("is {name:?}; methods are case-sensitive"),
            format!("write \"{upper}\""),
        )
    } else {
        Ok(())
    }
}

fn media_type(value: &str) -> Result<(), Broken> {
    let help = "for example \"image/png\" or \"text/html; charset=utf-8\"";
    if !value.bytes().all(|b| matches!(b, b' '..=b'~' | b'\t')) || value.trim() != value {
        return broken(format!("is {value:?}, which cannot stand in a header"), help);
    }
    let mut parts = value.split(';');
    let media = parts.next().unwrap_or_default().trim_end();
    let good = media
        .split_once('/')
        .is_some_and(|(kind, subtype)| token(kind) && token(subtype))
        && parts.all(|part| {
            part.trim()
                .split_once('=')
                .is_some_and(|(name, value)| token(name) && !value.is_empty())
        });
    if good {
        Ok(())
    } else {
        broken(format!("is {value:?}, not a media type"), help)
    }
}

fn variable(name: &str) -> Result<(), Broken> {
    let start = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if !start || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        broken(
            "is not the name of a variable",
            "use A-Z, a-z, 0-9 and `_`, beginning with a letter or `_`",
        )
    } else if is_reserved_variable(name) {
        broken(
            "is a variable that every request sets itself",
            "choose another name",
        )
    } else {
        Ok(())
    }
}

fn bucket(name: &str) -> Result<(), Broken> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let good = (3..=63).contains(&name.len())
        && name.bytes().all(|b| inner(b) || b == b'-' || b == b'.')
        && name.bytes().next().is_some_and(inner)
        && name.bytes().last().is_some_and(inner);
    let help = "use 3 to 63 of a-z, 0-9, `-` and `.`, beginning and ending with a letter or digit";
    if good {
        Ok(())
    } else {
        broken(format!("is {name:?}, not the name of a bucket"), help)
    }
}

/// An operation of AWS's, or what it is about.
fn operand(text: &str) -> Result<(), Broken> {
    if !text.is_empty() && !text.chars().any(|it| it.is_whitespace() || it.is_control()) {
        return Ok(());
    }
    broken(
        format!("is {text:?}, which is no name"),
        "write a name, in which `*` stands for any text",
    )
}

/// A list that says something.
fn some<T>(list: &[T]) -> Result<(), Broken> {
    if list.is_empty() {
        return broken("is empty", "write at least one");
    }
    Ok(())
}

/// In one line, where there is no manifest to show.
fn told(key: &str, result: Result<(), Broken>) -> Result<(), String> {
    result.map_err(|(reason, help)| format!("`{key}` {reason}: {help}"))
}

impl S3Grant {
    /// What is wrong with it, where it does not stand in a manifest.
    pub fn check(&self) -> Result<(), String> {
        told("bucket", bucket(&self.bucket))?;
        told("actions", some(&self.actions))
    }
}

impl AwsGrant {
    /// What is wrong with it, where it does not stand in a manifest.
    pub fn check(&self) -> Result<(), String> {
        if !AWS_SERVICES.contains(&self.service.as_str()) {
            let services = AWS_SERVICES.join(", ");
            return Err(format!(
                "`service` is {:?}, which is none of {services}",
                self.service
            ));
        }
        for (key, texts) in [("actions", &self.actions), ("resources", &self.resources)] {
            told(key, some(texts))?;
            texts.iter().try_for_each(|text| told(key, operand(text)))?;
        }
        Ok(())
    }
}

fn host(name: &str) -> Result<(), Broken> {
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = address {
        return match address.parse::<Ipv6Addr>() {
            Ok(parsed) if parsed.to_string() == address => Ok(()),
            Ok(parsed) => broken(
                format!("is {name:?}, an address in another form than usual"),
                format!("write \"[{parsed}]\""),
            ),
            Err(_) => broken(
                format!("is {name:?}, not an address"),
                "for example \"[2001:db8::1]\"",
            ),
        };
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let reason = format!("is {name:?}, not the name of a host");
    if name.contains("://") || name.contains('/') {
        broken(reason, "write the name alone, without a scheme or path")
    } else if name.contains(':') {
        broken(reason, "write it without a port: any port is meant")
    } else if name.contains('*') {
        broken(
            reason,
            "patterns of hosts are not available; name each host, or leave it out for any",
        )
    } else if name.bytes().any(|b| b.is_ascii_uppercase()) {
        broken(
            format!("is {name:?}; hosts are written in lower case"),
            format!("write {:?}", name.to_ascii_lowercase()),
        )
    } else if name.len() > 253 || !name.split('.').all(label) {
        broken(reason, "for example \"img.example.org\"")
    } else {
        Ok(())
    }
}

const PATTERN_HELP: &str =
    "for example \"/resize/{size}\" or \"/files/{*path}\"; one parameter in each segment";

/// Checks a path pattern beyond what the route table itself refuses. The characters are checked first: the table is
/// handed ASCII only.
fn pattern(text: &str) -> Result<(), (&'static str, Broken)> {
    let bad = |reason: String, help: &str| Err(("bad-path", (reason, help.to_owned())));
    let Some(rest) = text.strip_prefix('/') else {
        return bad(format!("is {text:?}; a path begins with `/`"), PATTERN_HELP);
    };
    if text.len() > 1024 {
        return bad(format!("has {} characters; it may have 1024", text.len()), "");
    }
    if let Some(c) = text
        .chars()
        .find(|c| !c.is_ascii_graphic() || "?#\"<>\\^`|".contains(*c))
    {
        let help = match c {
            '?' => "a pattern matches the path only; the function reads the query from QUERY_STRING",
            _ => "percent-encode it, as clients will send it",
        };
        return bad(format!("contains {c:?}, which cannot stand in a path"), help);
    }
    let segment = rest.split('/').next().unwrap_or_default();
    if RESERVED_SEGMENTS.contains(&segment) {
        let reason = format!("is {text:?}; paths below `/{segment}` belong to the platform");
        return Err((
            "reserved-path",
            (reason, "choose another first segment".to_owned()),
        ));
    }
    if rest.split('/').any(|segment| segment == "." || segment == "..") {
        return bad(
            format!("is {text:?}; clients resolve `.` and `..` before they send a path"),
            "",
        );
    }
    if !percent_encoded(text) {
        return bad(
            format!("is {text:?}; `%` begins two hexadecimal digits"),
            "write `%25` for the character `%`",
        );
    }
    for (i, name) in parameters(text)
        .map_err(|reason| ("bad-path", (reason, PATTERN_HELP.to_owned())))?
        .iter()
        .enumerate()
    {
        let first = name
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if !first || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            let help = "use letters, digits and `_`, beginning with a letter or `_`";
            return bad(
                format!("is {text:?}; {name:?} is not the name of a parameter"),
                help,
            );
        }
        if parameters(text).is_ok_and(|names| names[..i].contains(name)) {
            return bad(
                format!("is {text:?}; it has two parameters `{name}`"),
                "give each its own name",
            );
        }
    }
    Ok(())
}

fn percent_encoded(text: &str) -> bool {
    text.match_indices('%').all(|(i, _)| {
        text.as_bytes()
            .get(i + 1..i + 3)
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// The names of a pattern's parameters.
fn parameters(pattern: &str) -> Result<Vec<&str>, String> {
    let mut names = Vec::new();
    let mut rest = pattern;
    while let Some(i) = rest.find(['{', '}']) {
        let brace = &rest[i..=i];
        if rest[i + 1..].starts_with(brace) {
            rest = &rest[i + 2..];
        } else if brace == "}" {
            return Err(format!("is {pattern:?}; a `}}` has no `{{` before it"));
        } else {
            let Some(end) = rest[i..].find('}') else {
                return Err(format!("is {pattern:?}; a `{{` has no `}}` after it"));
            };
            let name = &rest[i + 1..i + end];
            names.push(name.strip_prefix('*').unwrap_or(name));
            rest = &rest[i + end + 1..];
        }
    }
    Ok(names)
}
