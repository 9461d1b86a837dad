//! Why a function was not invoked.

use crate::{MAX_PAYLOAD, REQUEST_ID, Reply, request_uuid};
use contract::{Problem, Refusal, RequestId};
use serde::Serialize;

/// An error of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The HTTP status.
    pub status: u16,
    /// The error's name, for the header `x-amzn-ErrorType`.
    pub error: &'static str,
    /// For a person.
    pub message: String,
    /// When to try again, in seconds, for the header `Retry-After`.
    pub retry_after: Option<u64>,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "Type")]
    by: &'static str,
    // The reference spells it in both ways, from error to error; clients look for both.
    #[serde(rename = "Message")]
    message: &'a str,
    #[serde(rename = "message")]
    again: &'a str,
    #[serde(rename = "Reason", skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

impl Rejection {
    fn new(status: u16, error: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            error,
            message: message.into(),
            retry_after: None,
        }
    }

    pub(crate) fn unknown_operation(method: &str, path: &str) -> Self {
        let message = format!(
            "{method} {path} is no operation of this node; it has POST /2015-03-31/functions/NAME/invocations and \
             POST /2021-11-15/functions/NAME/response-streaming-invocations"
        );
        Self::new(404, "UnknownOperationException", message)
    }

    /// Something of the request that is not what it should be.
    pub fn parameter(message: impl Into<String>) -> Self {
        Self::new(400, "InvalidParameterValueException", message)
    }

    pub(crate) fn payload(error: &serde_json::Error) -> Self {
        let message = format!("Could not parse request body into json: {error}");
        Self::new(400, "InvalidRequestContentException", message)
    }

    pub(crate) fn no_signature() -> Self {
        Self::new(
            403,
            "MissingAuthenticationTokenException",
            "Missing Authentication Token: this node takes requests that are signed by AWS Signature Version 4 in an \
             Authorization header",
        )
    }

    pub(crate) fn incomplete(message: impl Into<String>) -> Self {
        Self::new(400, "IncompleteSignatureException", message)
    }

    pub(crate) fn unknown_key() -> Self {
        Self::new(
            403,
            "UnrecognizedClientException",
            "The security token included in the request is invalid.",
        )
    }

    pub(crate) fn signature(message: impl Into<String>) -> Self {
        Self::new(403, "InvalidSignatureException", message)
    }

    /// A function that was not granted to the one that invokes it.
    pub fn not_granted(caller: &str, function: &str) -> Self {
        let message = format!(
            "{caller} is not authorized to perform: lambda:InvokeFunction on resource: {function} because no grant allows it: \
             name the function in `functions` of `[function.NAME.grants.lambda]` in millpond.toml"
        );
        Self::new(403, "AccessDeniedException", message)
    }

    /// What would be taken at another time.
    pub fn throttled(message: impl Into<String>) -> Self {
        Self {
            retry_after: Some(1),
            ..Self::new(429, "TooManyRequestsException", message)
        }
    }

    /// One more of functions that invoke each other than may.
    pub fn recursive(deepest: u8) -> Self {
        let message = format!(
            "The request comes by {deepest} functions that invoked each other, which is as many as may: it may be a loop"
        );
        Self::new(400, "RecursiveInvocationException", message)
    }

    /// An invocation kind that this node does not take.
    pub fn no_events() -> Self {
        Self::parameter("this node takes no invocations of type Event; use RequestResponse")
    }

    /// A payload of more than `limit` bytes. Lambda's own limit cannot be raised, a function's can.
    pub fn too_large(limit: u64, most: u64) -> Self {
        let message = if limit < most.min(MAX_PAYLOAD) {
            format!(
                "Request must be smaller than {limit} bytes: raise `request_body` of this function in millpond.toml, or send less"
            )
        } else {
            format!("Request must be smaller than {limit} bytes for the InvokeFunction operation")
        };
        Self::new(413, "RequestTooLargeException", message)
    }

    /// A name that leads to no function.
    pub fn of_problem(problem: &Problem) -> Self {
        let message = match &*problem.hint {
            "" => problem.detail.to_string(),
            hint => format!("{}; {hint}", problem.detail),
        };
        match problem.status {
            401 => Self::new(403, "UnrecognizedClientException", message),
            403 => Self::new(403, "AccessDeniedException", message),
            404 => Self::new(404, "ResourceNotFoundException", message),
            413 => Self::new(413, "RequestTooLargeException", message),
            429 => Self {
                retry_after: Some(1),
                ..Self::new(429, "TooManyRequestsException", message)
            },
            400..=499 => Self::parameter(message),
            _ => Self::new(500, "ServiceException", message),
        }
    }

    /// The node would not take the invocation.
    pub fn of_refusal(refusal: Refusal) -> Self {
        let Problem { detail, hint, .. } = Problem::of_refusal(refusal);
        match refusal {
            Refusal::QueueFull { .. } | Refusal::Quota { .. } => Self {
                retry_after: Some(refusal.retry_after().as_secs().max(1)),
                ..Self::new(
                    429,
                    "TooManyRequestsException",
                    format!("Rate Exceeded: {detail}; {hint}"),
                )
            },
            _ => Self {
                retry_after: Some(1),
                ..Self::new(503, "ServiceException", format!("{detail}; {hint}"))
            },
        }
    }

    /// The platform's own failure.
    pub fn of_failure(reason: &str) -> Self {
        Self::new(
            500,
            "ServiceException",
            format!("the node failed to run the function: {reason}"),
        )
    }

    /// The answer.
    pub fn reply(&self, id: RequestId) -> Reply {
        let mut headers = vec![
            ("Content-Type", "application/json".to_owned()),
            ("x-amzn-ErrorType", self.error.to_owned()),
        ];
        headers.extend(self.retry_after.map(|after| ("Retry-After", after.to_string())));
        headers.push((REQUEST_ID, request_uuid(id)));
        Reply {
            status: self.status,
            headers,
            body: self.body(),
        }
    }

    /// The body, as JSON.
    fn body(&self) -> Vec<u8> {
        let body = Body {
            by: if self.status < 500 { "User" } else { "Service" },
            message: &self.message,
            again: &self.message,
            reason: (self.status == 429).then_some("ReservedFunctionConcurrentInvocationLimitExceeded"),
        };
        // It has only texts.
        serde_json::to_vec(&body).unwrap_or_default()
    }
}
