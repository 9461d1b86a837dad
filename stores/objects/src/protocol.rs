//! Where s3s 0.14 and S3 differ, mended from outside.
//!
//! - A range that cannot be understood is no range (RFC 9110 section 14.2); s3s refuses the request. So those requests
//!   take a way of their own, behind the check of their signature: without their range, to the same service without keys.
//! - An answer to HEAD with a range is a partial one.
//! - The ETag in an object's attributes has no quotes.
//! - An error has a sentence.
//! - Signatures of version 2 bind neither region nor service, and are refused; and forms are, whose files s3s collects in
//!   memory before it knows who sends them.

use crate::{fault, files::Id};
use bytes::Bytes;
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
};
use s3s::{
    Body, HttpRequest, S3Error, S3Request, S3Response, S3Result, dto, route::S3Route, service::S3Service,
};

/// Whether a request is one that s3s would take and we do not.
pub(crate) fn refusal<B>(request: &Request<B>) -> Option<S3Error> {
    let field = |name: HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
    let old_header = field(header::AUTHORIZATION).is_some_and(|value| value.starts_with("AWS "));
    if old_header || has(request.uri(), "Signature") {
        return Some(s3s::s3_error!(
            InvalidRequest,
            "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."
        ));
    }
    let form = field(header::CONTENT_TYPE).is_some_and(|kind| {
        kind.get(..19)
            .is_some_and(|kind| kind.eq_ignore_ascii_case("multipart/form-data"))
    });
    (request.method() == Method::POST && form).then(|| fault::not_implemented("an upload by a form"))
}

fn has(uri: &Uri, name: &str) -> bool {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.any(|pair| pair.split('=').next() == Some(name))
}

/// What of a request decides how its answer is mended.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    head: bool,
    attributes: bool,
}

impl Asked {
    pub(crate) fn new<B>(request: &Request<B>) -> Self {
        Self {
            head: request.method() == Method::HEAD,
            attributes: request.method() == Method::GET && has(request.uri(), "attributes"),
        }
    }

    /// Mends an answer, and gives it the names that support would ask for.
    pub(crate) fn mend(self, response: &mut Response<Body>) {
        if self.head
            && response.status() == StatusCode::OK
            && response.headers().contains_key(header::CONTENT_RANGE)
        {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        if response.status() == StatusCode::NOT_MODIFIED {
            response.headers_mut().remove(header::CONTENT_TYPE);
        }
        if self.attributes
            && response.status() == StatusCode::OK
            && let Some(document) = response.body().bytes()
            && let Ok(text) = std::str::from_utf8(&document)
        {
            *response.body_mut() = Body::from(Bytes::from(bare_etag(text)));
        }
        if response.status().is_client_error()
            && let Some(document) = response.body().bytes()
            && let Ok(text) = std::str::from_utf8(&document)
            && let Some(text) = with_message(text)
        {
            *response.body_mut() = Body::from(Bytes::from(text));
        }
        if let Ok(id) = Id::fresh() {
            let id = id.to_string().to_uppercase();
            for (name, id) in [("x-amz-request-id", id.get(..16)), ("x-amz-id-2", id.get(16..))] {
                if let Some(id) = id.and_then(|id| HeaderValue::from_str(id).ok()) {
                    response.headers_mut().insert(name, id);
                }
            }
        }
    }
}

/// What AWS says of errors that s3s only names.
const MESSAGES: &[(&str, &str)] = &[
    ("AccessDenied", "Access Denied"),
    ("InvalidBucketName", "The specified bucket is not valid."),
    ("InvalidURI", "Couldn't parse the specified URI."),
    ("KeyTooLongError", "Your key is too long"),
    (
        "MalformedXML",
        "The XML you provided was not well-formed or did not validate against our published schema",
    ),
    (
        "MethodNotAllowed",
        "The specified method is not allowed against this resource.",
    ),
    (
        "MissingContentLength",
        "You must provide the Content-Length HTTP header.",
    ),
    ("MissingRequestBodyError", "Request Body is empty"),
    (
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided. Check your key and signing method.",
    ),
];

/// An error's document with a sentence, if it has none and there is one.
fn with_message(text: &str) -> Option<String> {
    if text.contains("<Message>") {
        return None;
    }
    let (before, rest) = text.split_once("<Code>")?;
    let (code, after) = rest.split_once("</Code>")?;
    let (_, message) = MESSAGES.iter().find(|(one, _)| *one == code)?;
    Some(format!(
        "{before}<Code>{code}</Code><Message>{message}</Message>{after}"
    ))
}

/// The document without quotes around its ETag.
fn bare_etag(text: &str) -> String {
    let bare = |open: &str, close: &str| {
        let (before, rest) = text.split_once(&format!("<ETag>{open}"))?;
        let (etag, after) = rest.split_once(&format!("{close}</ETag>"))?;
        Some(format!("{before}<ETag>{etag}</ETag>{after}"))
    };
    bare("&quot;", "&quot;")
        .or_else(|| bare("\"", "\""))
        .unwrap_or_else(|| text.to_owned())
}

/// The way of requests for ranges that cannot be understood. Signatures were checked, access is.
pub(crate) struct Ranges {
    /// Asks for no signature.
    pub(crate) service: S3Service,
}

#[async_trait::async_trait]
impl S3Route for Ranges {
    fn is_match(&self, method: &Method, _: &Uri, headers: &HeaderMap, _: &mut Extensions) -> bool {
        let Some(range) = headers.get(header::RANGE) else {
            return false;
        };
        let parsed = range
            .to_str()
            .ok()
            .and_then(|range| dto::Range::parse(range).ok());
        matches!(*method, Method::GET | Method::HEAD) && parsed.is_none()
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let failed = |error: &dyn std::fmt::Display| fault::internal("answer a request", error);
        let mut again = HttpRequest::new(Body::empty());
        *again.method_mut() = request.method;
        *again.uri_mut() = unsigned(&request.uri).map_err(|error| failed(&error))?;
        *again.headers_mut() = request.headers;
        again.headers_mut().remove(header::RANGE);
        again.headers_mut().remove(header::AUTHORIZATION);
        let response = self.service.call(again).await;
        let response = response.map_err(|error| failed(&s3s::StdError::from(error)))?;
        let (parts, body) = response.into_parts();
        let mut response = S3Response::with_headers(body, parts.headers);
        response.status = Some(parts.status);
        Ok(response)
    }
}

/// The target without a signature in its query.
fn unsigned(uri: &Uri) -> Result<Uri, http::uri::InvalidUri> {
    let query: Vec<_> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| {
            !pair
                .get(..6)
                .is_some_and(|name| name.eq_ignore_ascii_case("X-Amz-"))
        })
        .collect();
    format!("{}?{}", uri.path(), query.join("&")).parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_lose_their_quotes() {
        for quote in ["&quot;", "\""] {
            let text = format!("<a><ETag>{quote}0f-2{quote}</ETag><b/></a>");
            assert_eq!(bare_etag(&text), "<a><ETag>0f-2</ETag><b/></a>");
        }
        assert_eq!(bare_etag("<a/>"), "<a/>");
    }

    #[test]
    fn errors_get_their_sentences() {
        let text = with_message("<Error><Code>KeyTooLongError</Code></Error>").unwrap();
        assert_eq!(
            text,
            "<Error><Code>KeyTooLongError</Code><Message>Your key is too long</Message></Error>"
        );
        assert_eq!(
            with_message("<Error><Code>KeyTooLongError</Code><Message>x</Message></Error>"),
            None
        );
    }

    #[test]
    fn signatures_leave_the_target() {
        let uri = "/b/k%20y?X-Amz-Signature=0&response-content-type=a&x-amz-date=1"
            .parse()
            .unwrap();
        assert_eq!(unsigned(&uri).unwrap(), "/b/k%20y?response-content-type=a");
    }

    #[test]
    fn old_signatures_and_forms_are_refused() {
        let request = |method, target: &str, name: &str, value: &str| {
            let request = Request::builder().method(method).uri(target).header(name, value);
            refusal(&request.body(()).unwrap()).is_some()
        };
        assert!(request("GET", "/b/k", "authorization", "AWS a:b"));
        assert!(request("GET", "/b/k?AWSAccessKeyId=a&Signature=b", "a", "b"));
        assert!(request(
            "POST",
            "/b",
            "content-type",
            "Multipart/form-data; boundary=x"
        ));
        assert!(!request(
            "GET",
            "/b/k?X-Amz-Signature=b",
            "authorization",
            "AWS4-HMAC-SHA256 c"
        ));
        assert!(!request("POST", "/b?delete", "content-type", "application/xml"));
    }
}
