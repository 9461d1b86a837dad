use crate::{
    answer,
    client::{Client, problem},
    failure::Failure,
    output::Output,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use clap::{ArgGroup, Args};
use contract::{Digest, FunctionRef, Problem, RequestId};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use ureq::{
    Body,
    http::{
        HeaderName, HeaderValue, Method, Request, Response,
        header::{AUTHORIZATION, CONTENT_TYPE},
    },
};

/// Run a function and write its answer to standard output
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("what").required(true)))]
pub(crate) struct Invoke {
    /// The function
    #[arg(value_name = "FUNCTION", group = "what")]
    function: Option<FunctionRef>,
    /// Run this code once, without deploying it, in place of a function
    #[arg(long, value_name = "FILE", group = "what", conflicts_with = "asynchronous")]
    code: Option<PathBuf>,
    /// How that code runs: a key of a function in a manifest, such as `memory=16MiB` or `input_sets=["a"]`; may be given again
    #[arg(long, value_name = "KEY=VALUE", requires = "code", value_parser = setting)]
    set: Vec<toml::Table>,
    /// The request's body: text, @FILE, or - for standard input
    #[arg(short, long, value_name = "TEXT|@FILE|-")]
    data: Option<String>,
    /// The request's method [default: POST with --data, else GET]
    #[arg(short = 'X', long)]
    method: Option<String>,
    /// A header of the request; may be given again
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// What follows the function's name in the URL: path, query, or both
    #[arg(long, value_name = "/PATH?QUERY")]
    path: Option<String>,
    /// Write the answer's body to a file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Tell on standard error how long each part took
    #[arg(long)]
    timing: bool,
    /// Do not wait for the answer: the node keeps the call and runs it. Prints its id, for `millpond calls`
    #[arg(long = "async", conflicts_with_all = ["method", "output", "timing"])]
    asynchronous: bool,
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write it as `Name: value`")?;
    let name = name
        .trim()
        .parse()
        .map_err(|_| format!("`{name}` is not the name of a header"))?;
    let value = value
        .trim()
        .parse()
        .map_err(|_| format!("`{value}` cannot stand in a header"))?;
    Ok((name, value))
}

/// `KEY=VALUE` as a line of TOML, or with a value that is text.
fn setting(text: &str) -> Result<toml::Table, String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    let line = |value: &str| format!("{key} = {value}").parse::<toml::Table>();
    line(value)
        .or_else(|_| line(&toml::Value::from(value).to_string()))
        .map_err(|error| error.message().to_owned())
}

/// Adds what a dotted key sets to what others have set beside it.
fn merge(into: &mut toml::Table, from: toml::Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(toml::Value::Table(known)), toml::Value::Table(more)) => merge(known, more),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// What stands for one value of a query.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                escaped.push(char::from(byte))
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// JSON without characters that a header cannot have.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            ' '..='~' => text.push(character),
            other => {
                let mut units = [0; 2];
                for unit in other.encode_utf16(&mut units) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    text
}

impl Invoke {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        let function = match (&self.code, &self.function) {
            (Some(file), _) => return self.run_code(file, client, output),
            (None, Some(function)) => function,
            (None, None) => {
                return Err(Failure::usage(
                    "there is nothing to run",
                    "name a function, or give --code FILE",
                ));
            }
        };
        if let Some(tenant) = &function.tenant {
            return Err(Failure::usage(
                "a tenant's functions are named without it, and asked for with its token",
                format!(
                    "write {} and give a token of `{tenant}` with --token",
                    function.local()
                ),
            ));
        }
        let data = self.body()?;
        // A call is something sent, if only an empty body.
        let body = data.or_else(|| self.asynchronous.then(Vec::new));
        let url = format!(
            "{}/{}/{}{}",
            client.data_plane()?,
            if self.asynchronous {
                "async-function"
            } else {
                "function"
            },
            function,
            self.suffix()?
        );
        let method = match (&self.method, &body) {
            (Some(method), _) => Method::from_bytes(method.as_bytes()).map_err(|_| {
                Failure::usage(
                    format!("`{method}` is not an HTTP method"),
                    "for example --method PUT",
                )
            })?,
            (None, Some(_)) => Method::POST,
            (None, None) => Method::GET,
        };
        let attempt = format!("{method} {url}");
        let mut request = Request::builder().method(method).uri(&url);
        let own = |(name, _): &(HeaderName, HeaderValue)| *name == AUTHORIZATION;
        if let Some(token) = client.data_token()?
            && !self.header.iter().any(own)
        {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        for (name, value) in &self.header {
            request = request.header(name, value);
        }
        let wrong = |error: ureq::http::Error| Failure::usage(format!("{attempt}: {error}"), "check --path");
        let begun = Instant::now();
        let mut response = match &body {
            Some(body) => client.send(&attempt, request.body(body).map_err(wrong)?, client.timeout()),
            None => client.send(&attempt, request.body(()).map_err(wrong)?, client.timeout()),
        }?;

        let status = response.status().as_u16();
        if status >= 400 && is_problem(&response) {
            let problem = Box::new(read_problem(&mut response));
            self.tell_timing(&response, begun.elapsed());
            return Err(Failure::Answer { attempt, problem });
        }
        if self.asynchronous {
            return self.tell_call(function, attempt, &response, output);
        }
        self.tell(&mut response, status, begun.elapsed(), output)
    }

    /// Uploads code, has it run once, and tells what it said.
    fn run_code(&self, file: &Path, client: &Client, output: Output) -> Result<(), Failure> {
        let data = self.body()?;
        let shown = file.display();
        let code =
            fs::read(file).map_err(|error| Failure::usage(format!("cannot read {shown}: {error}"), ""))?;
        let digest = Digest(Sha256::digest(&code).into());
        let mut settings = toml::Table::new();
        for table in self.set.iter().cloned() {
            merge(&mut settings, table);
        }
        let settings = serde_json::to_string(&settings).map_err(|error| {
            Failure::usage(format!("the settings cannot be sent: {error}"), "check --set")
        })?;
        let suffix = match self.suffix()? {
            query if query.starts_with('?') => format!("/{query}"),
            "" => "/".to_owned(),
            path => path.to_owned(),
        };
        let method = self
            .method
            .as_deref()
            .unwrap_or(if data.is_some() { "POST" } else { "GET" });
        let path = format!(
            "/v1/code/{digest}/invoke?method={}&path={}",
            escaped(method),
            escaped(&suffix)
        );
        let mut headers = vec![(HeaderName::from_static("millpond-function"), ascii(&settings))];
        for (name, value) in &self.header {
            headers.push((
                name.clone(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            ));
        }
        let begun = Instant::now();
        client.put_code(&shown.to_string(), digest, &code)?;
        let sent = client.post_bytes(&path, &headers, &data.unwrap_or_default());
        let (attempt, mut response) = sent?;
        let elapsed = begun.elapsed();
        let mut own = |name: &'static str| {
            response
                .headers_mut()
                .remove(name)?
                .to_str()
                .ok()
                .map(str::to_owned)
        };
        let log = own("x-function-log").and_then(|log| BASE64_STANDARD.decode(log).ok());
        let status = own("x-function-status").and_then(|status| status.parse().ok());
        if let Some(log) = log {
            for line in String::from_utf8_lossy(&log).lines() {
                eprintln!("{}", crate::output::visible(line));
            }
        }
        let status = status.ok_or_else(|| Failure::Foreign {
            attempt,
            reason: "it has no X-Function-Status".to_owned(),
        })?;
        self.tell(&mut response, status, elapsed, output)
    }

    /// Writes an answer.
    fn tell(
        &self,
        response: &mut Response<Body>,
        status: u16,
        elapsed: Duration,
        output: Output,
    ) -> Result<(), Failure> {
        let file = self.output.as_deref();
        if output.json() {
            let mut document = answer::document(response, status, file)?;
            document["milliseconds"] = json!(elapsed.as_secs_f64() * 1e3);
            output.answer(&document, String::new)
        } else {
            answer::write(response, file, output)
        }?;
        self.tell_timing(response, elapsed);
        if status >= 400 {
            Err(Failure::Function { status })
        } else {
            Ok(())
        }
    }

    fn body(&self) -> Result<Option<Vec<u8>>, Failure> {
        let Some(data) = &self.data else { return Ok(None) };
        if data == "-" {
            let mut bytes = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut bytes);
            read.map_err(|error| Failure::local(format!("cannot read standard input: {error}"), ""))?;
            Ok(Some(bytes))
        } else if let Some(file) = data.strip_prefix('@') {
            let hint = "text that begins with @ is the name of a file; give other text through `--data -`";
            fs::read(file)
                .map(Some)
                .map_err(|error| Failure::usage(format!("cannot read {file}: {error}"), hint))
        } else {
            Ok(Some(data.clone().into_bytes()))
        }
    }

    fn suffix(&self) -> Result<&str, Failure> {
        match self.path.as_deref() {
            None => Ok(""),
            Some(path) if path.starts_with(['/', '?']) => Ok(path),
            Some(path) => Err(Failure::usage(
                format!("the path `{path}` does not begin with / or ?"),
                format!("write --path /{path}"),
            )),
        }
    }

    /// Writes the id that the call was accepted with.
    fn tell_call(
        &self,
        function: &FunctionRef,
        attempt: String,
        response: &Response<Body>,
        output: Output,
    ) -> Result<(), Failure> {
        let id = response
            .headers()
            .get("x-call-id")
            .and_then(|value| value.to_str().ok()?.parse::<RequestId>().ok());
        match id {
            Some(id) if response.status().as_u16() == 202 => {
                let answer = json!({ "call": id, "function": function });
                output.answer(&answer, || format!("{id}\n"))
            }
            _ => Err(Failure::Foreign {
                attempt,
                reason: format!(
                    "it has status {} instead of 202 with an X-Call-Id",
                    response.status().as_u16()
                ),
            }),
        }
    }

    fn tell_timing(&self, response: &Response<Body>, elapsed: Duration) {
        if self.timing {
            let phases = response
                .headers()
                .get_all("server-timing")
                .iter()
                .filter_map(|value| value.to_str().ok());
            eprint!("{}", timing(&phases.collect::<Vec<_>>().join(","), elapsed));
        }
    }
}

fn is_problem(response: &Response<Body>) -> bool {
    let media = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    media
        .split(';')
        .next()
        .is_some_and(|media| media.trim().eq_ignore_ascii_case(Problem::MEDIA_TYPE))
}

fn read_problem(response: &mut Response<Body>) -> Problem {
    let status = response.status().as_u16();
    let body = response
        .body_mut()
        .with_config()
        .limit(1 << 20)
        .read_to_vec()
        .unwrap_or_default();
    problem(status, &body)
}

/// `Server-Timing` as a person reads it; the milliseconds are the node's own.
fn timing(server_timing: &str, elapsed: Duration) -> String {
    let mut text = String::new();
    for entry in server_timing.split(',').filter(|entry| !entry.trim().is_empty()) {
        let mut parts = entry.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        if let Some(duration) = parts.find_map(|part| part.strip_prefix("dur=")) {
            text.push_str(&format!(
                "{:8}{:>12} ms\n",
                crate::output::visible(name),
                crate::output::visible(duration)
            ));
        }
    }
    text.push_str(&format!(
        "{:8}{:>12.3} ms, seen from here\n",
        "total",
        elapsed.as_secs_f64() * 1e3
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timing_is_a_table() {
        let text = timing(
            "queue;dur=0.004, boot;dur=0.002,run;desc=\"x\";dur=1.5, cache",
            Duration::from_micros(2345),
        );
        assert_eq!(
            text,
            "queue          0.004 ms\nboot           0.002 ms\nrun              1.5 ms\ntotal          2.345 ms, seen from here\n"
        );
    }

    #[test]
    fn settings_are_toml_or_text() {
        let mut settings = toml::Table::new();
        for text in [
            "memory=16MiB",
            "reuse=3",
            "input_sets=[\"a\", \"b\"]",
            "env.A=1",
            "env.B='two'",
            "text=a = \"b\"",
        ] {
            merge(&mut settings, setting(text).unwrap());
        }
        let expected = json!({
            "memory": "16MiB", "reuse": 3, "input_sets": ["a", "b"], "env": {"A": 1, "B": "two"}, "text": "a = \"b\"",
        });
        assert_eq!(serde_json::to_value(settings).unwrap(), expected);
        assert!(setting("memory").is_err());
        assert!(setting("a b=1").is_err());
        assert_eq!(ascii("\"ö\u{1f600}\n\""), "\"\\u00f6\\ud83d\\ude00\\u000a\"");
    }

    #[test]
    fn headers_are_read() {
        assert_eq!(
            header("X-A: b:c ").unwrap(),
            ("x-a".parse().unwrap(), HeaderValue::from_static("b:c"))
        );
        for bad in ["X-A", "X A: b", "X: a\nb"] {
            assert!(header(bad).is_err(), "{bad}");
        }
    }
}
