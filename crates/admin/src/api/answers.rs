//! What functions answered, as answers of the control API.

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use std::borrow::Cow;

/// The status that the function answered with: 200 is that of the control API.
const FUNCTION_STATUS: HeaderName = HeaderName::from_static("x-function-status");

/// What speaks of one connection, or is the server's own to say.
const NOT_THE_FUNCTIONS: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::DATE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

pub(super) fn answer(status: u16, fields: Vec<(Cow<'static, str>, Bytes)>, body: Bytes) -> Response {
    let mut answer = Body::from(body).into_response();
    let headers = answer.headers_mut();
    for (name, value) in fields {
        let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_bytes(&value),
        ) else {
            continue;
        };
        if !NOT_THE_FUNCTIONS.contains(&name) {
            headers.append(name, value);
        }
    }
    headers.insert(FUNCTION_STATUS, HeaderValue::from(status));
    // A page that a function wrote must not become one of the control API's origin, which could deploy.
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("sandbox"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    answer
}
