use super::{Result, blocking};
use crate::{
    Context,
    failure::{Failure, Options},
    guard::Caller,
    wire::{self, AuditLine},
};
use axum::{
    body::Body,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use std::convert::Infallible;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;

/// Lines that are sent when the caller does not say how many.
const TAIL: usize = 1000;
/// Lines that a caller may ask for.
const TAIL_LIMIT: usize = 100_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditOptions {
    /// Go on sending what comes, until the caller leaves.
    #[serde(default)]
    follow: bool,
    /// How many of the last lines to send, 1000 when absent, at most 100000.
    tail: Option<usize>,
}

/// Who changed what, or was refused
///
/// One JSON object a line, oldest first. The operator sees all lines, a tenant those about its own.
#[utoipa::path(get, operation_id = "read_audit", path = "/v1/audit", tag = "tenants",
    params(AuditOptions),
    responses((status = 200, description = "The lines", body = wire::AuditLine, content_type = "application/x-ndjson")))]
pub(crate) async fn read(
    State(context): State<Context>,
    caller: Caller,
    Options(options): Options<AuditOptions>,
) -> Result<Response> {
    let audit = context.state.audit.clone();
    let tail = options.tail.unwrap_or(TAIL).min(TAIL_LIMIT);
    let whose = caller.clone();
    let (lines, followed) = blocking("read the audit", move || {
        audit
            .read(whose.tenant(), tail, |line| whose.sees(line.tenant.as_ref()))
            .map_err(|error| Failure::internal("read the audit", &error))
    })
    .await?;
    let kept: Vec<u8> = lines.into_iter().flat_map(|line| shown(&caller, line)).collect();
    let body = if options.follow {
        let mut ending = context.ending.clone();
        let shut_out = caller.clone().shut_out(context.state.tenants.clone());
        let end = async move {
            tokio::select! {
                // An error says that the node has ended.
                _ = ending.wait_for(|ending| *ending) => {}
                () = shut_out => {}
            }
        };
        let next = stream::unfold((followed, caller), |(mut followed, caller)| async move {
            loop {
                match followed.recv().await {
                    Ok(line) if caller.sees(line.tenant.as_ref()) => {
                        let text = shown(&caller, AuditLine::clone(&line));
                        return Some((text, (followed, caller)));
                    }
                    // Whoever reads too slowly finds what is missing in the file.
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        let all = stream::iter([kept]).chain(next).map(Ok::<_, Infallible>);
        Body::from_stream(all.take_until(Box::pin(end)))
    } else {
        Body::from(kept)
    };
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// A line as this caller may read it.
fn shown(caller: &Caller, mut line: AuditLine) -> Vec<u8> {
    if !caller.is_operator() && line.by != "token" {
        line.remote = None;
    }
    line.json()
}
