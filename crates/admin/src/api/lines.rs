//! Answers of lines, those of a log and those of the audit: the last ones, and if the caller wants it what comes after them.

use crate::{Context, guard::Caller};
use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use std::convert::Infallible;

/// Lines that are sent when the caller does not say how many.
const TAIL: usize = 1000;
/// Lines that a caller may ask for.
const TAIL_LIMIT: usize = 100_000;

/// How many of the last lines are sent.
pub(super) fn tail(asked: Option<usize>) -> usize {
    asked.unwrap_or(TAIL).min(TAIL_LIMIT)
}

/// An answer of lines, each a JSON object.
pub(super) fn answer(lines: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, "application/x-ndjson")], lines.into()).into_response()
}

/// An answer that goes on as lines come: until the caller leaves, what he showed is good no more, or the node ends.
pub(super) fn follow(
    context: &Context,
    caller: Caller,
    lines: impl Stream<Item = Bytes> + Send + 'static,
) -> Response {
    let mut ending = context.ending.clone();
    let shut_out = caller.shut_out(context.state.tenants.clone());
    let end = async move {
        tokio::select! {
            // An error says that the node has ended.
            _ = ending.wait_for(|ending| *ending) => {}
            () = shut_out => {}
        }
    };
    let lines = lines.map(Ok::<_, Infallible>).take_until(Box::pin(end));
    answer(Body::from_stream(lines))
}
