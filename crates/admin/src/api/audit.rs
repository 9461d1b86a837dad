use super::{Result, blocking, lines};
use crate::{
    Context,
    failure::{Failure, Options},
    guard::Caller,
    wire::{self, AuditLine},
};
use axum::{extract::State, response::Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;

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
    let tail = lines::tail(options.tail);
    let whose = caller.clone();
    let (last, followed) = blocking("read the audit", move || {
        audit
            .read(whose.tenant(), tail, |line| whose.sees(line.tenant.as_ref()))
            .map_err(|error| Failure::internal("read the audit", &error))
    })
    .await?;
    let last: Vec<u8> = last.into_iter().flat_map(|line| shown(&caller, line)).collect();
    if !options.follow {
        return Ok(lines::answer(last));
    }
    let next = stream::unfold((followed, caller.clone()), |(mut followed, caller)| async move {
        loop {
            match followed.recv().await {
                Ok(line) if caller.sees(line.tenant.as_ref()) => {
                    let text = shown(&caller, AuditLine::clone(&line));
                    return Some((Bytes::from(text), (followed, caller)));
                }
                // Whoever reads too slowly finds what is missing in the file.
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let pieces = stream::iter([Bytes::from(last)]).chain(next);
    Ok(lines::follow(&context, caller, pieces))
}

/// A line as this caller may read it.
fn shown(caller: &Caller, mut line: AuditLine) -> Vec<u8> {
    if !caller.is_operator() && line.by != "token" {
        line.remote = None;
    }
    line.json()
}
