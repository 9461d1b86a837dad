//! Whom a call's outcome is told: the call that tells it, made as the other ends.
//!
//! It is a call like any other, so it is durable, tried again and listed as they are, and it has no callback of its own: chains
//! end with it. Its id comes from the attempt that led to the outcome.

use crate::{CallId, Cause, Request, Response};
use bytes::Bytes;
use contract::{FunctionRef, Problem, RequestId};
use http::Uri;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, time::Duration};

/// What the path of a function begins with.
const FUNCTION: &str = "/function/";
/// Bytes of a callback.
const LONGEST: usize = 2048;
/// What of an answer's header says how to read its body.
const REPRESENTATION: [&str; 3] = ["content-type", "content-encoding", "content-language"];

/// Whom the outcome of a call is told. As text: `/function/NAME`, perhaps with more of a path and a query, or a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Callback {
    /// A function of this node, by an asynchronous call.
    Function {
        /// Which.
        function: FunctionRef,
        /// The path, which begins with `/function/`, and the query.
        target: String,
    },
    /// A server, by a POST. The URI is absolute, of `http` or `https`, and names a host and no user.
    Url(Uri),
}

/// A text that is no callback.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an outcome cannot be told there: {0}")]
pub struct CallbackError(String);

impl Callback {
    /// The host, if it is a URL: as it is written, in lower case, and an IPv6 address without brackets.
    pub fn host(&self) -> Option<String> {
        match self {
            Self::Function { .. } => None,
            Self::Url(uri) => uri
                .host()
                .map(|host| host.trim_matches(['[', ']']).to_ascii_lowercase()),
        }
    }

    /// Scheme, host and port of the server, if it is one.
    pub fn server(&self) -> Option<String> {
        match self {
            Self::Function { .. } => None,
            Self::Url(uri) => server(uri),
        }
    }
}

fn server(uri: &Uri) -> Option<String> {
    Some(format!("{}://{}", uri.scheme_str()?, uri.authority()?).to_ascii_lowercase())
}

impl fmt::Display for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function { target, .. } => f.write_str(target),
            Self::Url(uri) => uri.fmt(f),
        }
    }
}

impl From<Callback> for String {
    fn from(callback: Callback) -> Self {
        callback.to_string()
    }
}

impl TryFrom<String> for Callback {
    type Error = CallbackError;
    fn try_from(text: String) -> Result<Self, CallbackError> {
        text.parse()
    }
}

impl FromStr for Callback {
    type Err = CallbackError;
    fn from_str(text: &str) -> Result<Self, CallbackError> {
        let wrong = |reason: &str| Err(CallbackError(reason.to_owned()));
        if text.len() > LONGEST {
            return Err(CallbackError(format!("it is longer than {LONGEST} bytes")));
        }
        let uri: Uri = match text.parse() {
            Ok(_) if text.contains('#') => return wrong("it has a fragment, which nobody is sent"),
            Ok(uri) => uri,
            Err(error) => return Err(CallbackError(format!("it is not a URL: {error}"))),
        };
        if let Some(rest) = text.strip_prefix(FUNCTION) {
            let name = rest.split(['/', '?']).next().unwrap_or_default();
            let function = name
                .parse::<FunctionRef>()
                .map_err(|error| CallbackError(error.to_string()))?;
            return Ok(Self::Function {
                function,
                target: text.to_owned(),
            });
        }
        match (uri.scheme_str(), uri.host()) {
            (Some("http" | "https"), Some(host)) if !host.is_empty() => {}
            _ => return wrong("it is neither /function/NAME nor a URL of http or https"),
        }
        if uri
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
        {
            return wrong("it names a user; give the server a token in the query instead");
        }
        Ok(Self::Url(uri))
    }
}

impl Request {
    /// Whether it tells an outcome to a server, and not to a function: `target` is a URL then.
    pub fn is_delivery(&self) -> bool {
        self.tells.is_some() && !self.target.starts_with('/')
    }
}

/// The server that is told an outcome, now by this request or later by another.
pub(crate) fn server_of(target: &str, tells: Option<CallId>, callback: Option<&Callback>) -> Option<String> {
    match tells {
        Some(_) if target.starts_with('/') => None,
        Some(_) => server(&target.parse().ok()?),
        None => callback?.server(),
    }
}

/// The id of the call that tells to what so many attempts at a call have led.
pub(crate) fn id(call: CallId, attempts: u32) -> CallId {
    let parts: [&[u8]; 3] = [b"callback", &call.0.0.to_le_bytes(), &attempts.to_le_bytes()];
    CallId(RequestId(triggers::identity(&parts)))
}

/// A call that has ended.
pub(crate) struct Ended<'a> {
    pub(crate) id: CallId,
    pub(crate) function: &'a FunctionRef,
    /// Attempts that were begun.
    pub(crate) begun: u32,
    /// How long the last of them took, if one of them has led to this.
    pub(crate) took: Option<Duration>,
    pub(crate) end: End<'a>,
}

/// What a call has come to.
pub(crate) enum End<'a> {
    Succeeded(&'a Response),
    Dead(Cause, Option<&'a str>),
}

/// How often something may be tried, and how old it may become.
pub(crate) struct Patience {
    pub(crate) attempts: u32,
    pub(crate) maximum_age: Duration,
}

/// The request that tells it.
pub(crate) fn request(callback: &Callback, ended: &Ended<'_>, patience: &Patience) -> Request {
    let id = ended.id;
    let mut headers = Vec::new();
    let mut add = |name: &str, value: String| headers.push((name.to_owned(), value.into_bytes()));
    add("User-Agent", "millpond".to_owned());
    add("X-Call-Id", id.to_string());
    add("X-Function-Name", ended.function.local().to_string());
    if let Some(took) = ended.took {
        add("X-Duration-Seconds", format!("{:.6}", took.as_secs_f64()));
    }
    let body = match &ended.end {
        End::Succeeded(response) => {
            add("X-Call-Status", "succeeded".to_owned());
            add("X-Function-Status", response.status.to_string());
            if let Some(bytes) = response.omitted {
                add(OMITTED, bytes.to_string());
            }
            let told = response.headers.iter().filter(|(name, _)| {
                let mut known = REPRESENTATION.iter();
                known.any(|known| known.eq_ignore_ascii_case(name))
            });
            headers.extend(told.cloned());
            response.body.clone()
        }
        End::Dead(cause, reason) => {
            let problem = dead(id, ended.begun, *cause, *reason);
            add("X-Call-Status", "dead".to_owned());
            add("X-Function-Status", DEAD.to_owned());
            add("Content-Type", Problem::MEDIA_TYPE.to_owned());
            serde_json::to_vec(&problem).unwrap_or_default().into()
        }
    };
    let (function, target) = match callback {
        // A function of the tenant whose call it was, whoever else has one of the name.
        Callback::Function { function, target } => {
            let tenant = ended.function.tenant.clone();
            (function.clone().of(tenant), target.clone())
        }
        Callback::Url(uri) => (ended.function.clone(), uri.to_string()),
    };
    Request {
        function,
        method: "POST".to_owned(),
        target,
        headers,
        body,
        callback: None,
        tells: Some(id),
        attempts: patience.attempts,
        maximum_age: patience.maximum_age,
    }
}

/// The status that whoever knows nothing of dead letters takes for a failure.
const DEAD: &str = "500";
/// Says how large the body is that is not sent.
const OMITTED: &str = "X-Call-Omitted";

/// Leaves the body out of a request that tells an outcome.
pub(crate) fn omit(request: &mut Request) {
    let bytes = std::mem::replace(&mut request.body, Bytes::new()).len();
    if bytes > 0 {
        let field = (OMITTED.to_owned(), bytes.to_string().into_bytes());
        request.headers.push(field);
    }
}

/// What whoever waits for a call's outcome reads if it is a dead letter: what asking for its result is answered, too.
fn dead(id: CallId, begun: u32, cause: Cause, reason: Option<&str>) -> Problem {
    let reason = reason.unwrap_or(match cause {
        Cause::Age => "it was too old before it could be run",
        Cause::Interrupted => "the node ended each time it ran",
        Cause::Attempts | Cause::Final => "it failed",
    });
    let mut problem = Problem::new(
        410,
        "call-dead",
        format!("the call {id} is a dead letter after {begun} attempts: {reason}"),
        "mend the function and retry the call with `millpond calls retry ID`, or drop it",
    );
    problem.request_id = Some(id.0);
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callbacks_are_functions_and_urls_and_nothing_else() {
        for (text, host) in [
            ("/function/shop.resize", None),
            ("/function/resize:3/a/b?c=d", None),
            ("http://Example.org/done?token=x", Some("example.org")),
            ("https://example.org:8443/", Some("example.org")),
            ("http://127.0.0.1:9/x", Some("127.0.0.1")),
            ("http://[::1]:9/x", Some("::1")),
        ] {
            let callback: Callback = text.parse().unwrap();
            assert_eq!(callback.host().as_deref(), host, "{text}");
            assert_eq!(callback.to_string().parse(), Ok(callback), "{text}");
        }
        for text in [
            "",
            "resize",
            "/function/",
            "/function/a b",
            "/function/UPPER",
            "/function/f#part",
            "/async-function/f",
            "//example.org/x",
            "example.org:80",
            "ftp://example.org/",
            "file:///etc/passwd",
            "http:///x",
            "http://",
            "http://user@example.org/",
            "http://listed.org:80@evil.org/",
            "http://exa mple.org/",
            "http://example.org/\r\nX: y",
            "gopher://x",
            &format!("http://example.org/{}", "x".repeat(LONGEST)),
        ] {
            assert!(text.parse::<Callback>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_outcome_has_an_id_of_its_own() {
        let call = |number| CallId(RequestId(number));
        assert_eq!(id(call(1), 1), id(call(1), 1));
        assert_ne!(id(call(1), 1), id(call(1), 2));
        assert_ne!(id(call(1), 1), id(call(2), 1));
    }

    #[test]
    fn who_is_told_can_read_the_answer_and_is_sent_nothing_else_of_it() {
        let response = Response {
            status: 201,
            headers: vec![
                ("Content-Type".to_owned(), b"text/plain".to_vec()),
                ("Authorization".to_owned(), b"Bearer x".to_vec()),
                ("Host".to_owned(), b"elsewhere".to_vec()),
                ("X-Function-Status".to_owned(), b"500".to_vec()),
            ],
            body: Bytes::from_static(b"made"),
            omitted: None,
        };
        let function = "shop.resize".parse().unwrap();
        let patience = Patience {
            attempts: 2,
            maximum_age: Duration::from_secs(9),
        };
        let mut ended = Ended {
            id: CallId(RequestId(7)),
            function: &function,
            begun: 3,
            took: Some(Duration::from_millis(1500)),
            end: End::Succeeded(&response),
        };
        let url = "http://example.org/done".parse().unwrap();
        let told = request(&url, &ended, &patience);
        assert!(told.is_delivery() && told.callback.is_none());
        let server = server_of(&told.target, told.tells, None);
        assert_eq!(server.as_deref(), Some("http://example.org"));
        let text = |request: &Request| {
            let headers = request.headers.iter();
            let lines = headers.map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)));
            lines.collect::<Vec<_>>().join("\n")
        };
        let id = CallId(RequestId(7));
        assert_eq!(
            text(&told),
            format!(
                "User-Agent: millpond\nX-Call-Id: {id}\nX-Function-Name: shop.resize\nX-Duration-Seconds: 1.500000\n\
                 X-Call-Status: succeeded\nX-Function-Status: 201\nContent-Type: text/plain"
            )
        );
        ended.end = End::Dead(Cause::Attempts, Some("it fell over"));
        ended.took = None;
        let target = "/function/app.next/x?y=z".parse().unwrap();
        let told = request(&target, &ended, &patience);
        assert!(!told.is_delivery() && server_of(&told.target, told.tells, None).is_none());
        assert_eq!(
            (told.function.to_string().as_str(), told.attempts),
            ("app.next", 2)
        );
        assert!(
            text(&told).contains(
                "X-Call-Status: dead\nX-Function-Status: 500\nContent-Type: application/problem+json"
            )
        );
        let problem: Problem = serde_json::from_slice(&told.body).unwrap();
        assert!(
            problem.detail.contains("after 3 attempts: it fell over"),
            "{}",
            problem.detail
        );
    }
}
