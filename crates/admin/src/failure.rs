//! Every error as a [`Problem`].

use crate::DOCUMENT_LIMIT;
use axum::{
    body::BodyDataStream,
    extract::{
        FromRequest, FromRequestParts, Json, Path, Query, Request,
        path::ErrorKind,
        rejection::{JsonRejection, PathRejection},
    },
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use contract::{ByteSize, LogError, NameError, Problem};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use std::{borrow::Cow, error::Error, str::FromStr, time::Duration};

/// An answer of 400 or above.
#[derive(Debug)]
pub(crate) struct Failure(Problem);

/// The code of an answer's problem, for audit lines.
#[derive(Clone, Debug)]
pub(crate) struct Code(pub(crate) String);

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        if problem.status >= 500 {
            tracing::error!(code = &*problem.code, "{}", problem.detail);
        }
        Self(problem)
    }
}

impl From<tenants::Error> for Failure {
    fn from(error: tenants::Error) -> Self {
        error.problem().into()
    }
}

impl Failure {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
        hint: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self(Problem::new(status.as_u16(), code, detail, hint))
    }

    /// What a function came to: its owner's to mend, whatever its status.
    pub(crate) fn of_function(problem: Problem) -> Self {
        Self(problem)
    }

    /// The platform's own failure: its detail goes to the log.
    pub(crate) fn internal(attempt: &str, error: &dyn Error) -> Self {
        let cause = error
            .source()
            .map(|source| format!(": {source}"))
            .unwrap_or_default();
        tracing::error!("{attempt}: {error}{cause}");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            format!("the node failed to {attempt}"),
            "see the node's log",
        )
    }
}

impl From<registry::Error> for Failure {
    fn from(error: registry::Error) -> Self {
        error.problem().into()
    }
}

impl From<calls::Error> for Failure {
    fn from(error: calls::Error) -> Self {
        use calls::Error;
        let (status, code, hint) = match &error {
            Error::Unknown(_) => (
                StatusCode::NOT_FOUND,
                "call-unknown",
                "see which there are with `millpond calls list`",
            ),
            Error::NotDead(_) => (
                StatusCode::CONFLICT,
                "call-not-dead",
                "see its state with `millpond calls show ID`",
            ),
            Error::Changing(_) => (StatusCode::CONFLICT, "call-changing", "try again"),
            Error::Full(_) | Error::Log(LogError::Busy) => (
                StatusCode::TOO_MANY_REQUESTS,
                "calls-full",
                "try again when some have ended",
            ),
            _ => return Self::internal("use the log of calls", &error),
        };
        Self::new(status, code, error.to_string(), hint)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&self.0)).into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(Problem::MEDIA_TYPE),
        );
        response.extensions_mut().insert(Code(self.0.code.into_owned()));
        if status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// How much of a refused body is read, so that the client comes to reading the answer instead of meeting a closed
/// connection in the middle of what it sends.
const DRAIN: u64 = 64 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Reads on what nobody wants, within bounds.
pub(crate) async fn drain(body: &mut BodyDataStream) {
    let all = async {
        let mut left = DRAIN;
        while let Some(Ok(piece)) = body.next().await {
            left = left.saturating_sub(piece.len() as u64);
            if left == 0 {
                break;
            }
        }
    };
    // Whether it was all or the time is over makes no difference.
    let _ = tokio::time::timeout(DRAIN_TIME, all).await;
}

/// A JSON body.
pub(crate) struct Document<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Document<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let is_json = is_json(request.headers());
        let mut body = request.into_body().into_data_stream();
        if !is_json {
            drain(&mut body).await;
            return Err(Failure::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "media-type",
                "this wants a JSON document",
                "send `Content-Type: application/json`",
            ));
        }
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| {
                Failure::new(
                    StatusCode::BAD_REQUEST,
                    "document-invalid",
                    format!("the body broke off: {error}"),
                    "send it again, as long as its `Content-Length` says",
                )
            })?;
            if bytes.len() + piece.len() > DOCUMENT_LIMIT {
                drain(&mut body).await;
                return Err(Failure::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "document-too-large",
                    format!("a document has at most {}", ByteSize(DOCUMENT_LIMIT as u64)),
                    "code is uploaded with PUT /v1/code/SHA256",
                ));
            }
            bytes.extend_from_slice(&piece);
        }
        let read = Json::from_bytes(&bytes).map(|Json(document)| Self(document));
        read.map_err(|rejection| {
            let cause = cause(&rejection);
            let (detail, hint) = match rejection {
                JsonRejection::JsonSyntaxError(_) => (
                    format!("the body is not JSON: {cause}"),
                    "look for a comma or a quote too many or too few, and for quotes that a shell took away",
                ),
                _ => (
                    format!("the body is JSON, but not the document that this wants: {cause}"),
                    "the documents are described in GET /openapi.json",
                ),
            };
            Failure::new(rejection.status(), "document-invalid", detail, hint)
        })
    }
}

/// What was wrong for an extractor, without the library's words for what it was doing.
fn cause(rejection: &dyn Error) -> String {
    rejection.source().unwrap_or(rejection).to_string()
}

fn is_json(headers: &HeaderMap) -> bool {
    let media_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The parts of the path, as text.
pub(crate) struct Names<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Names<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(names)| Self(names)).map_err(|rejection| {
            let hint = "the paths are described in GET /openapi.json";
            Failure::new(rejection.status(), "name-invalid", wrong_path(&rejection), hint)
        })
    }
}

fn wrong_path(rejection: &PathRejection) -> String {
    match rejection {
        PathRejection::FailedToDeserializePathParams(error) => match error.kind() {
            ErrorKind::InvalidUtf8InPathParam { key } => {
                format!("the `{key}` that the path names is not UTF-8, once its escapes are read")
            }
            other => format!("the path is not one that this takes: {other}"),
        },
        other => format!("the path is not one that this takes: {}", cause(other)),
    }
}

/// Characters of a query that an answer repeats.
const SHOWN: usize = 100;

/// The query.
pub(crate) struct Options<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Options<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        let hint = "the parameters are described in GET /openapi.json";
        query.map(|Query(options)| Self(options)).map_err(|rejection| {
            let asked = parts.uri.query().unwrap_or_default();
            let asked: String = asked.chars().take(SHOWN).collect();
            let detail = format!(
                "the query `{asked}` is not one that this takes: {}",
                cause(&rejection)
            );
            Failure::new(rejection.status(), "query-invalid", detail, hint)
        })
    }
}

/// Reads a name that a path holds.
pub(crate) fn name<T: FromStr<Err = NameError>>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|error: NameError| {
        Failure::new(StatusCode::BAD_REQUEST, "name-invalid", error.to_string(), "")
    })
}
