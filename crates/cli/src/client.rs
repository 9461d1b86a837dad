//! A client of the control API and of the data plane, over HTTP/1.1 in clear text.

use crate::{failure::Failure, output};
use admin::wire;
use clap::Args;
use contract::{Digest, Name, Problem};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{io::Read, net::SocketAddr, sync::mpsc, thread, time::Duration};
use tokio::signal::unix::{SignalKind, signal};
use ureq::{
    Agent, AsSendBody, Body, SendBody,
    http::{HeaderName, Method, Request, Response, Uri, header},
};

/// How to reach a node's control API.
#[derive(Args, Clone, Debug)]
pub(crate) struct Connection {
    /// The control API: where a node is reached, and where `serve` listens [default: 127.0.0.1:9080]
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS",
        env = "MILLPOND_ADMIN",
        help_heading = "Connection"
    )]
    admin: Option<String>,
    /// Bearer token of the control API
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "MILLPOND_TOKEN",
        hide_env_values = true
    )]
    #[arg(help_heading = "Connection")]
    token: Option<String>,
    /// The tenant whose functions are meant, for the node's operator: a tenant's token says whose it is
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "MILLPOND_TENANT",
        help_heading = "Connection"
    )]
    tenant: Option<Name>,
    /// How long to wait for an answer to begin [default: 5m; for invoke, as long as it takes]
    #[arg(long, global = true, value_name = "DURATION", value_parser = contract::parse_duration)]
    #[arg(help_heading = "Connection")]
    timeout: Option<Duration>,
}

/// Where a node's control API is unless it was told otherwise.
const DEFAULT_ADMIN: &str = "127.0.0.1:9080";
/// Compiling large code is the longest that a node takes for an answer.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(300);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers of the control API are read to this size.
const ANSWER: u64 = 256 << 20;

/// A connection to one node.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    agent: Agent,
    base: Uri,
    token: Option<String>,
    tenant: Option<Name>,
    timeout: Option<Duration>,
}

impl Connection {
    /// The control API's address, if one was given.
    pub(crate) fn admin(&self) -> Option<&str> {
        self.admin.as_deref()
    }

    /// The control API's token, if one was given.
    pub(crate) fn token(&self) -> Option<String> {
        self.token.clone()
    }

    /// Makes a client. Nothing is sent yet. From here on an interruption ends the process with 130.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let client = self.client_without_signals()?;
        exit_on_interrupt();
        Ok(client)
    }

    /// The same for a verb that sees to interruptions itself.
    pub(crate) fn client_without_signals(&self) -> Result<Client, Failure> {
        self.client_of(self.admin.as_deref().unwrap_or(DEFAULT_ADMIN))
    }

    /// Makes a client of the node whose control API is here, for a verb that sees to interruptions itself.
    pub(crate) fn client_of(&self, admin: &str) -> Result<Client, Failure> {
        let base = base_uri(admin)?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("millpond/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .build();
        Ok(Client {
            agent: config.into(),
            base,
            token: self.token(),
            tenant: self.tenant.clone(),
            timeout: self.timeout,
        })
    }
}

fn base_uri(text: &str) -> Result<Uri, Failure> {
    let hint = "write HOST:PORT or http://HOST:PORT, for example 127.0.0.1:9080";
    let wrong = |reason: &str| {
        Failure::usage(
            format!("`{text}` is not the address of a control API: {reason}"),
            hint,
        )
    };
    let whole = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let uri: Uri = whole.parse().map_err(|error| wrong(&format!("{error}")))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(Failure::usage(
                format!("`{text}`: this command speaks HTTP without TLS"),
                "reach the node through a tunnel, for example ssh -L 9080:127.0.0.1:9080 HOST",
            ));
        }
        _ => return Err(wrong("it is not HTTP")),
    }
    if uri.path() != "/" || uri.query().is_some() {
        return Err(wrong("it has a path"));
    }
    Ok(uri)
}

/// Ends the process with 130 on SIGINT, as shells report it. Returns when the handler is in place.
fn exit_on_interrupt() {
    let (ready, wait) = mpsc::channel::<()>();
    thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else {
            return;
        };
        runtime.block_on(async move {
            let Ok(mut interrupts) = signal(SignalKind::interrupt()) else {
                return;
            };
            drop(ready);
            if interrupts.recv().await.is_some() {
                std::process::exit(130);
            }
        });
    });
    // Ends when the thread dropped its side; where the handler could not be made, the kernel's default stays.
    let _ = wait.recv();
}

impl Client {
    fn url(&self, path: &str) -> String {
        let authority = self.base.authority().map_or("", |authority| authority.as_str());
        format!("http://{authority}{path}")
    }

    /// Sends a request to the control API; an answer of 400 or above is a failure.
    pub(crate) fn control(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, String)],
        body: impl AsSendBody,
    ) -> Result<(String, Response<Body>), Failure> {
        let url = self.url(path);
        let attempt = format!("{method} {url}");
        let mut request = Request::builder()
            .method(method)
            .uri(&url)
            .header(header::ACCEPT, "application/json, */*");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(tenant) = &self.tenant {
            request = request.header("X-Millpond-Tenant", tenant.as_str());
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request
            .body(body)
            .map_err(|error| Failure::usage(format!("{attempt}: {error}"), ""))?;
        let mut response = self.send(&attempt, request, Some(self.timeout.unwrap_or(CONTROL_TIMEOUT)))?;
        if response.status().as_u16() < 400 {
            return Ok((attempt, response));
        }
        let status = response.status().as_u16();
        let body = response
            .body_mut()
            .with_config()
            .limit(ANSWER)
            .read_to_vec()
            .unwrap_or_default();
        let problem = problem(status, &body);
        if problem.code == "route-unknown" {
            return Err(Failure::Foreign {
                attempt,
                reason: "functions are served there; the control API has a port of its own".to_owned(),
            });
        }
        Err(Failure::Answer {
            attempt,
            problem: Box::new(problem),
        })
    }

    /// Sends any request. `timeout` ends the wait for the head of the answer.
    pub(crate) fn send(
        &self,
        attempt: &str,
        request: Request<impl AsSendBody>,
        timeout: Option<Duration>,
    ) -> Result<Response<Body>, Failure> {
        let host = request
            .uri()
            .authority()
            .map(ToString::to_string)
            .unwrap_or_default();
        let request = self
            .agent
            .configure_request(request)
            .timeout_recv_response(timeout)
            .build();
        self.agent
            .run(request)
            .map_err(|error| unreachable(attempt, &host, error, timeout))
    }

    fn read<T: DeserializeOwned>(answer: (String, Response<Body>)) -> Result<T, Failure> {
        let (attempt, mut response) = answer;
        let bytes = response.body_mut().with_config().limit(ANSWER).read_to_vec();
        let bytes = bytes.map_err(|error| Failure::Foreign {
            attempt: attempt.clone(),
            reason: error.to_string(),
        })?;
        let bytes = if bytes.is_empty() {
            b"null"
        } else {
            bytes.as_slice()
        };
        serde_json::from_slice(bytes).map_err(|error| Failure::Foreign {
            attempt,
            reason: error.to_string(),
        })
    }

    /// Reads a resource.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        Self::read(self.fetch(path)?)
    }

    /// Reads a resource, if it is there.
    pub(crate) fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        match self.get(path) {
            Err(Failure::Answer { problem, .. }) if problem.status == 404 => Ok(None),
            other => other.map(Some),
        }
    }

    /// Deletes a resource.
    pub(crate) fn delete(&self, path: &str) -> Result<Value, Failure> {
        Self::read(self.control(Method::DELETE, path, &[], ())?)
    }

    /// Sends a document.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        document: &impl Serialize,
    ) -> Result<T, Failure> {
        self.document(Method::POST, path, document)
    }

    /// Makes a resource of a document.
    pub(crate) fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        document: &impl Serialize,
    ) -> Result<T, Failure> {
        self.document(Method::PUT, path, document)
    }

    /// Changes a resource as a document says.
    pub(crate) fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        document: &impl Serialize,
    ) -> Result<T, Failure> {
        self.document(Method::PATCH, path, document)
    }

    fn document<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        document: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(document)
            .map_err(|error| Failure::local(format!("cannot write the request: {error}"), ""))?;
        Self::read(self.control(
            method,
            path,
            &[(header::CONTENT_TYPE, "application/json".to_owned())],
            &body,
        )?)
    }

    /// Sets a resource to these bytes.
    pub(crate) fn put_bytes<T: DeserializeOwned>(&self, path: &str, bytes: &[u8]) -> Result<T, Failure> {
        let media_type = (header::CONTENT_TYPE, "application/octet-stream".to_owned());
        Self::read(self.control(Method::PUT, path, &[media_type], bytes)?)
    }

    /// Sends bytes, and gives the answer with the words for what was attempted.
    pub(crate) fn post_bytes(
        &self,
        path: &str,
        headers: &[(HeaderName, String)],
        bytes: &[u8],
    ) -> Result<(String, Response<Body>), Failure> {
        self.control(Method::POST, path, headers, bytes)
    }

    /// Uploads code under its digest.
    pub(crate) fn put_code(&self, name: &str, digest: Digest, code: &[u8]) -> Result<(), Failure> {
        let bar = output::bytes_bar(&format!("upload {name}"), code.len() as u64);
        let mut reader = bar.wrap_read(code);
        let sent = self.control(
            Method::PUT,
            &format!("/v1/code/{digest}"),
            &[
                (header::CONTENT_TYPE, "application/wasm".to_owned()),
                (header::CONTENT_LENGTH, code.len().to_string()),
            ],
            SendBody::from_reader(&mut reader),
        );
        bar.finish_and_clear();
        sent.map(drop)
    }

    /// Opens a resource for reading as it comes.
    pub(crate) fn open(&self, path: &str) -> Result<impl Read + use<>, Failure> {
        Ok(self.fetch(path)?.1.into_body().into_reader())
    }

    /// Asks for a resource whose headers matter; with the answer, the words for what was attempted.
    pub(crate) fn fetch(&self, path: &str) -> Result<(String, Response<Body>), Failure> {
        self.control(Method::GET, path, &[], ())
    }

    /// The base URL of the node's data plane.
    pub(crate) fn data_plane(&self) -> Result<String, Failure> {
        let node: wire::Node = self.get("/v1/node")?;
        Ok(format!("http://{}", self.seen_from_here(&node.listen)))
    }

    /// An address the node listens on, as it is reached from here: a node that listens on every address is reached
    /// where its control API was.
    fn seen_from_here(&self, listen: &str) -> String {
        match listen.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_unspecified() => {
                format!("{}:{}", self.base.host().unwrap_or("127.0.0.1"), address.port())
            }
            _ => listen.to_owned(),
        }
    }

    /// What functions are asked for with: a tenant's token. The node's own is for its control API alone, and goes nowhere else.
    pub(crate) fn data_token(&self) -> Result<Option<&str>, Failure> {
        let token = self.token.as_deref().filter(|token| token.starts_with("mp_"));
        match (&self.tenant, token) {
            (Some(tenant), None) => Err(Failure::usage(
                format!("the functions of the tenant `{tenant}` take its own tokens only"),
                format!("give one with --token: `millpond token create {tenant} --role invoke --role read`"),
            )),
            (_, token) => Ok(token),
        }
    }

    /// How long to wait for a function, if the user said so.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

/// Reads the problem that an answer of 400 or above holds.
pub(crate) fn problem(status: u16, body: &[u8]) -> Problem {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(body);
        let text = text.trim();
        let detail = match text.char_indices().nth(500) {
            _ if text.is_empty() => format!("the answer has status {status} and no body"),
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        };
        Problem::new(status, "http-status", detail, "")
    })
}

fn unreachable(attempt: &str, host: &str, error: ureq::Error, timeout: Option<Duration>) -> Failure {
    use std::io::ErrorKind;
    let attempt = attempt.to_owned();
    let start = "is a node running? start one with `millpond serve`, or name another with --admin";
    let (reason, hint) = match &error {
        ureq::Error::Timeout(ureq::Timeout::Connect) => {
            return Failure::Timeout {
                attempt,
                after: CONNECT_TIMEOUT,
            };
        }
        ureq::Error::Timeout(_) => {
            return Failure::Timeout {
                attempt,
                after: timeout.unwrap_or_default(),
            };
        }
        ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
            (format!("nobody listens on {host}"), start)
        }
        ureq::Error::ConnectionFailed => (format!("nobody listens on {host}"), start),
        ureq::Error::HostNotFound => (
            format!("there is no host of the name in {host}"),
            "check the name in --admin",
        ),
        ureq::Error::Io(error)
            if matches!(
                error.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
            ) =>
        {
            (
                "the connection was closed before an answer came".to_owned(),
                "the node may have stopped: see its log, and try again",
            )
        }
        _ => (
            error.to_string(),
            "check that --admin is the address of a node's control API",
        ),
    };
    Failure::Unreachable {
        attempt,
        reason,
        hint: hint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_control_apis() {
        for good in ["127.0.0.1:9080", "node", "http://node:9080/", "http://[::1]:1"] {
            assert!(base_uri(good).is_ok(), "{good}");
        }
        for bad in [
            "https://node",
            "ftp://x",
            "http://node/api",
            "node:9080/?x",
            "http://",
            "a b",
            "",
        ] {
            assert!(matches!(base_uri(bad), Err(Failure::Usage { .. })), "{bad}");
        }
    }

    #[test]
    fn what_is_no_problem_document_is_told_as_it_is() {
        assert_eq!(problem(404, b"").detail, "the answer has status 404 and no body");
        assert_eq!(problem(502, b"<h1>no</h1>\n").detail, "<h1>no</h1>");
        assert!(problem(502, "é".repeat(5000).as_bytes()).detail.ends_with('…'));
        let said = Problem::new(409, "code-missing", "a", "b");
        assert_eq!(problem(409, &serde_json::to_vec(&said).unwrap()), said);
    }
}
