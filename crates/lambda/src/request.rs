//! What a request asks for.

use crate::{Claim, Rejection};
use contract::{FunctionRef, Head, Qualifier};
use percent_encoding::percent_decode_str;
use serde::de::IgnoredAny;

/// Largest payload of a synchronous invocation, in bytes (6 MB).
pub const MAX_PAYLOAD: u64 = 6 << 20;
/// Largest payload of an asynchronous invocation, in bytes (1 MB).
pub const MAX_EVENT: u64 = 1 << 20;

const INVOKE: (&str, &str) = ("/2015-03-31/functions/", "/invocations");
const STREAM: (&str, &str) = ("/2021-11-15/functions/", "/response-streaming-invocations");

/// How the caller wants to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With the function's result.
    RequestResponse,
    /// As soon as the invocation is kept.
    Event,
    /// Whether the function could be invoked; it is not.
    DryRun,
}

/// One `Invoke`, or one `InvokeWithResponseStream`.
#[derive(Debug)]
pub struct Invoke {
    /// The function as the caller named it, its name and qualifier together.
    pub function: FunctionRef,
    /// How to answer.
    pub kind: Kind,
    /// `LogType: Tail`: the answer carries the end of the log.
    pub tail: bool,
    /// The answer is an event stream.
    pub stream: bool,
    /// The signature that its payload must bear out, where keys are configured.
    pub claim: Option<Claim>,
}

/// Whether a path is one of this API's, so that nobody else answers it.
pub fn is_invoke(path: &str) -> bool {
    path.starts_with(INVOKE.0) || path.starts_with(STREAM.0)
}

impl Invoke {
    /// Reads a request whose path [`is_invoke`]. What the body must be is checked by [`Invoke::check_payload`].
    pub fn read(head: &Head) -> Result<Self, Rejection> {
        let path = head.path();
        let named = |(before, after): (&str, &str)| {
            let name = path.strip_prefix(before)?.strip_suffix(after)?;
            (!name.contains('/')).then(|| percent_decode_str(name).decode_utf8_lossy().into_owned())
        };
        let (name, stream) = match (named(INVOKE), named(STREAM)) {
            (Some(name), _) => (name, false),
            (None, Some(name)) => (name, true),
            (None, None) => {
                return Err(Rejection::unknown_operation(head.method(), path));
            }
        };
        if head.method() != "POST" {
            return Err(Rejection::unknown_operation(head.method(), path));
        }
        let kind = match text(head, "x-amz-invocation-type") {
            "" | "RequestResponse" => Kind::RequestResponse,
            "DryRun" => Kind::DryRun,
            "Event" if !stream => Kind::Event,
            other => {
                return Err(Rejection::parameter(format!(
                    "the invocation type `{other}` is not one of RequestResponse, Event and DryRun{}",
                    if stream {
                        "; a streamed response has no Event"
                    } else {
                        ""
                    }
                )));
            }
        };
        let tail = match text(head, "x-amz-log-type") {
            "" | "None" => false,
            "Tail" => true,
            other => {
                return Err(Rejection::parameter(format!(
                    "the log type `{other}` is neither None nor Tail"
                )));
            }
        };
        Ok(Self {
            function: function(&name, qualifier(head)?.as_deref())?,
            kind,
            tail,
            stream,
            claim: None,
        })
    }

    /// Largest payload that this invocation may have, in bytes.
    pub fn largest_payload(&self) -> u64 {
        match self.kind {
            Kind::Event => MAX_EVENT,
            Kind::RequestResponse | Kind::DryRun => MAX_PAYLOAD,
        }
    }

    /// A payload is what was signed, and it is JSON, or absent: then the function is given an empty object.
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), Rejection> {
        if let Some(claim) = &self.claim {
            claim.check(payload)?;
        }
        if payload.is_empty() {
            return Ok(());
        }
        // What is ignored is not decoded, so that the text must be looked at by itself.
        let checked = str::from_utf8(payload)
            .map_err(serde::de::Error::custom)
            .and_then(serde_json::from_str::<IgnoredAny>);
        match checked {
            Ok(_) => Ok(()),
            Err(error) => Err(Rejection::payload(&error)),
        }
    }
}

fn text<'a>(head: &'a Head, name: &str) -> &'a str {
    let value = head.header(name).unwrap_or_default();
    std::str::from_utf8(value).unwrap_or("\u{fffd}")
}

fn qualifier(head: &Head) -> Result<Option<String>, Rejection> {
    let decode = |text| percent_decode_str(text).decode_utf8_lossy();
    let pairs = head.query().split('&');
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    // The name as well, and no second one: a signature is good for every way to encode a query, and for its parts in any order.
    let mut values = pairs.filter(|(name, _)| decode(name) == "Qualifier");
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some((_, value)), None) => Ok(Some(decode(value).into_owned())),
        (Some(_), Some(_)) => Err(Rejection::parameter("there is more than one Qualifier")),
    }
}

/// `NAME`, `NAME:QUALIFIER`, `ACCOUNT:function:NAME`, or `arn:PARTITION:lambda:REGION:ACCOUNT:function:NAME[:QUALIFIER]`;
/// the name as [`FunctionRef`] has it, with or without its application.
fn function(name: &str, qualifier: Option<&str>) -> Result<FunctionRef, Rejection> {
    let invalid = |why: String| Rejection::parameter(format!("the function name `{name}` {why}"));
    let parts: Vec<_> = name.split(':').collect();
    let own = match parts.as_slice() {
        ["arn", _, "lambda", _, _, "function", own @ ..] | [_, "function", own @ ..] => own,
        own => own,
    };
    let (own, with) = match own {
        [own] => (*own, None),
        [own, with] => (*own, Some(*with)),
        _ => {
            return Err(invalid(
                "is neither a name, nor a partial or full ARN of a function".into(),
            ));
        }
    };
    let qualifier = match (with, qualifier.filter(|text| !text.is_empty())) {
        (Some(inside), Some(outside)) if inside != outside => {
            return Err(invalid(format!(
                "has the qualifier `{inside}`, and the request the qualifier `{outside}`"
            )));
        }
        (inside, outside) => outside.or(inside),
    };
    let mut function: FunctionRef = own
        .parse()
        .map_err(|error| invalid(format!("is not one: {error}")))?;
    if function.tenant.is_some() {
        return Err(invalid("has a slash in it".into()));
    }
    function.qualifier = match qualifier {
        // What is deployed last is what the alias `live` names.
        None | Some("$LATEST") => None,
        Some(text) => Some(match text.parse() {
            Ok(number) => Qualifier::Version(contract::VersionNumber(number)),
            Err(_) => Qualifier::Alias(text.parse().map_err(|error| {
                Rejection::parameter(format!(
                    "the qualifier `{text}` is no version and no alias: {error}"
                ))
            })?),
        }),
    };
    Ok(function)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{HeadBuilder, RequestId};

    fn read(target: &str, headers: &[(&str, &str)]) -> Result<Invoke, Rejection> {
        let mut head = HeadBuilder::new("POST", target, 256);
        for (name, value) in headers {
            head.header(name, value.as_bytes());
        }
        Invoke::read(&head.build(RequestId(1)))
    }

    fn named(name: &str) -> Result<String, Rejection> {
        read(&format!("/2015-03-31/functions/{name}/invocations"), &[])
            .map(|invoke| invoke.function.to_string())
    }

    #[test]
    fn functions_are_named_in_all_of_lambdas_ways() {
        for (name, function) in [
            ("resize", "resize"),
            ("shop.resize", "shop.resize"),
            ("resize:7", "resize:7"),
            ("resize:beta", "resize:beta"),
            ("resize:$LATEST", "resize"),
            ("resize%3Abeta", "resize:beta"),
            ("123456789012:function:resize", "resize"),
            (
                "arn:aws:lambda:eu-central-1:123456789012:function:shop.resize:3",
                "shop.resize:3",
            ),
            (
                "arn%3Aaws%3Alambda%3Aus-east-1%3A000000000000%3Afunction%3Aresize",
                "resize",
            ),
            ("resize/invocations?Qualifier=5&x=", "resize:5"),
        ] {
            let target = match name.split_once('?') {
                Some((path, query)) => format!("/2015-03-31/functions/{path}?{query}"),
                None => format!("/2015-03-31/functions/{name}/invocations"),
            };
            let invoke = read(&target, &[]).unwrap();
            assert_eq!(invoke.function.to_string(), function, "{target}");
        }
        for name in [
            "",
            "a:b:c:d",
            "-",
            "a b",
            "resize:7/invocations?Qualifier=8",
            "x%2Fy",
        ] {
            let error = named(name).unwrap_err();
            assert!([400, 404].contains(&error.status), "{name}: {error:?}");
        }
    }

    #[test]
    fn headers_say_how_to_answer() {
        let path = "/2015-03-31/functions/f/invocations";
        let invoke = read(
            path,
            &[("X-Amz-Invocation-Type", "Event"), ("X-Amz-Log-Type", "Tail")],
        )
        .unwrap();
        assert_eq!(
            (invoke.kind, invoke.tail, invoke.stream),
            (Kind::Event, true, false)
        );
        assert_eq!(invoke.largest_payload(), MAX_EVENT);
        let stream = "/2021-11-15/functions/f/response-streaming-invocations";
        let invoke = read(stream, &[]).unwrap();
        assert_eq!(
            (invoke.kind, invoke.tail, invoke.stream),
            (Kind::RequestResponse, false, true)
        );
        for (path, header, value) in [
            (path, "X-Amz-Invocation-Type", "Later"),
            (stream, "X-Amz-Invocation-Type", "Event"),
            (path, "X-Amz-Log-Type", "All"),
        ] {
            assert_eq!(
                read(path, &[(header, value)]).unwrap_err().error,
                "InvalidParameterValueException"
            );
        }
        for path in [
            "/2015-03-31/functions/f",
            "/2015-03-31/functions/",
            "/2015-03-31/functions/a/b/invocations",
        ] {
            assert_eq!(read(path, &[]).unwrap_err().status, 404);
        }
    }

    #[test]
    fn a_qualifier_is_found_as_it_was_signed() {
        let path = "/2015-03-31/functions/f/invocations";
        for query in ["Qualifier=7", "%51ualifier=%37", "&x&Qualifier=7&y="] {
            let invoke = read(&format!("{path}?{query}"), &[]).unwrap();
            assert_eq!(invoke.function.to_string(), "f:7", "{query}");
        }
        for query in ["", "Qualifier", "qualifier=7", "x=Qualifier=7"] {
            let invoke = read(&format!("{path}?{query}"), &[]).unwrap();
            assert_eq!(invoke.function.to_string(), "f", "{query}");
        }
        let error = read(&format!("{path}?Qualifier=7&%51ualifier=8"), &[]).unwrap_err();
        assert_eq!(error.error, "InvalidParameterValueException");
    }

    #[test]
    fn payloads_are_json() {
        let invoke = read("/2015-03-31/functions/f/invocations", &[]).unwrap();
        for good in ["", "{}", "null", " [1, \"ü\"] ", "1e300"] {
            assert_eq!(invoke.check_payload(good.as_bytes()), Ok(()));
        }
        for bad in [&b"{"[..], b"{} x", b"\"\xff\"", b"pong", &[b'['; 100_000]] {
            assert_eq!(
                invoke.check_payload(bad).unwrap_err().error,
                "InvalidRequestContentException"
            );
        }
    }
}
