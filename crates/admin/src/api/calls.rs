use super::{Result, answers, blocking};
use crate::{
    Context,
    failure::{Failure, Names, Options, name},
    guard::Caller,
    wire,
};
use axum::{Json, extract::State, http::StatusCode, response::Response};
use calls::{CallId, Calls, Kind, Timestamp};
use contract::RequestId;
use serde::Deserialize;
use std::time::SystemTime;
use utoipa::{IntoParams, ToSchema};

/// Calls in a list when the caller does not say how many.
const PAGE: usize = 100;
/// Calls that a caller may ask for.
const PAGE_LIMIT: usize = 1000;

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Which {
    #[default]
    All,
    Pending,
    Succeeded,
    Dead,
}

impl From<Which> for Kind {
    fn from(which: Which) -> Self {
        match which {
            Which::All => Self::All,
            Which::Pending => Self::Pending,
            Which::Succeeded => Self::Succeeded,
            Which::Dead => Self::Dead,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct CallOptions {
    /// Only those that are `pending`, have `succeeded`, or are `dead` letters; `all` when absent.
    #[serde(default)]
    #[param(inline)]
    state: Which,
    /// Only what follows this call: `next` of the answer before.
    #[param(value_type = Option<String>)]
    after: Option<RequestId>,
    /// How many at most, 100 when absent, at most 1000.
    limit: Option<usize>,
}

/// Asynchronous calls, in the order of their ids
#[utoipa::path(get, operation_id = "list_calls", path = "/v1/calls", tag = "calls",
    params(CallOptions),
    responses((status = 200, description = "The calls", body = wire::Calls)))]
pub(crate) async fn list(
    State(context): State<Context>,
    caller: Caller,
    Options(options): Options<CallOptions>,
) -> Result<Json<wire::Calls>> {
    let calls = calls(&context)?;
    let limit = options.limit.unwrap_or(PAGE).clamp(1, PAGE_LIMIT);
    let after = options.after.map(CallId);
    let whose = caller.clone();
    let mut found = blocking("list calls", move || {
        Ok(
            calls.list_where(options.state.into(), after, limit + 1, |function| {
                whose.sees(function.tenant.as_ref())
            }),
        )
    })
    .await?;
    let is_more = found.len() > limit;
    found.truncate(limit);
    Ok(Json(wire::Calls {
        next: found.last().filter(|_| is_more).map(|last| last.id.0),
        calls: found.into_iter().map(|call| shown(&caller, call)).collect(),
    }))
}

/// One asynchronous call
#[utoipa::path(get, operation_id = "describe_call", path = "/v1/calls/{id}", tag = "calls",
    params(("id" = String, Path, description = "The `X-Call-Id` that it was accepted with")),
    responses((status = 200, description = "The call", body = wire::Call)))]
pub(crate) async fn describe(
    State(context): State<Context>,
    caller: Caller,
    Names(text): Names<String>,
) -> Result<Json<wire::Call>> {
    let id: CallId = name(&text)?;
    let calls = calls(&context)?;
    let described = blocking("read a call", move || {
        let call = known(&caller, &calls, id)?;
        // It may be being accepted, or have been forgotten just now.
        let told_to = match call.callback.is_some() || call.tells.is_some() {
            true => calls.told_to(id).or_else(|error| match error {
                calls::Error::Unknown(_) => Ok(None),
                other => Err(other),
            })?,
            false => None,
        };
        Ok(wire::Call {
            callback_url: told_to,
            ..shown(&caller, call)
        })
    });
    Ok(Json(described.await?))
}

/// What the function answered
///
/// Its headers and its body, with its status in `X-Function-Status`. 409 while the call is pending, 410 when it is a dead
/// letter.
#[utoipa::path(get, operation_id = "call_result", path = "/v1/calls/{id}/result", tag = "calls",
    params(("id" = String, Path, description = "The `X-Call-Id` that it was accepted with")),
    responses((status = 200, description = "The function's answer", body = Vec<u8>, content_type = "*/*",
        headers(("X-Function-Status" = u16, description = "The function's status")))))]
pub(crate) async fn result(
    State(context): State<Context>,
    caller: Caller,
    Names(text): Names<String>,
) -> Result<Response> {
    let id: CallId = name(&text)?;
    let calls = calls(&context)?;
    let found = blocking("read a call's result", move || {
        known(&caller, &calls, id)?;
        calls.result(id)?.ok_or_else(|| match known(&caller, &calls, id) {
            Ok(call) => without_result(&call),
            Err(unknown) => unknown,
        })
    })
    .await?;
    answer(id, found)
}

/// Try a dead letter again
///
/// It is due at once, and has as many attempts as a new call.
#[utoipa::path(post, operation_id = "retry_call", path = "/v1/calls/{id}/retry", tag = "calls",
    params(("id" = String, Path, description = "The call's id")),
    responses((status = 200, description = "The call, which is pending now", body = wire::Call)))]
pub(crate) async fn retry(
    State(context): State<Context>,
    caller: Caller,
    Names(text): Names<String>,
) -> Result<Json<wire::Call>> {
    let id: CallId = name(&text)?;
    let calls = calls(&context)?;
    let whose = caller.clone();
    let call = blocking("retry a call", move || {
        known(&whose, &calls, id)?;
        calls.retry(id, now())?;
        known(&whose, &calls, id)
    })
    .await?;
    Ok(Json(shown(&caller, call)))
}

/// Discard a dead letter
#[utoipa::path(delete, operation_id = "discard_call", path = "/v1/calls/{id}", tag = "calls",
    params(("id" = String, Path, description = "The call's id")),
    responses((status = 204, description = "It is discarded")))]
pub(crate) async fn discard(
    State(context): State<Context>,
    caller: Caller,
    Names(text): Names<String>,
) -> Result<StatusCode> {
    let id: CallId = name(&text)?;
    let calls = calls(&context)?;
    blocking("discard a call", move || {
        known(&caller, &calls, id)?;
        Ok(calls.discard(id)?)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

fn calls(context: &Context) -> Result<Calls> {
    context.state.calls.clone().ok_or_else(|| {
        Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "calls-unavailable",
            "this node takes no asynchronous calls",
            "call the function at /function/NAME",
        )
    })
}

/// A call that is there for this caller: another tenant's is not.
fn known(caller: &Caller, calls: &Calls, id: CallId) -> Result<calls::Call> {
    calls
        .get(id)
        .filter(|call| caller.sees(call.function.tenant.as_ref()))
        .ok_or_else(|| calls::Error::Unknown(id).into())
}

fn shown(caller: &Caller, mut call: calls::Call) -> wire::Call {
    if caller.tenant().is_some() {
        call.function = call.function.local();
    }
    call.into()
}

fn without_result(call: &calls::Call) -> Failure {
    let id = call.id;
    if call.state.is_pending() {
        return Failure::new(
            StatusCode::CONFLICT,
            "call-pending",
            format!("the call {id} has no result yet"),
            "ask again later; GET /v1/calls/ID says when it is due",
        );
    }
    let reason = call
        .reason
        .as_deref()
        .unwrap_or("it was too old before it could be run");
    Failure::new(
        StatusCode::GONE,
        "call-dead",
        format!(
            "the call {id} is a dead letter after {} attempts and will have no result: {reason}",
            call.begun
        ),
        "mend the function and retry the call with `millpond calls retry ID`, or drop it",
    )
}

/// The function's answer as the control API's own.
fn answer(id: CallId, result: calls::Response) -> Result<Response> {
    if let Some(bytes) = result.omitted {
        return Err(Failure::new(
            StatusCode::GONE,
            "call-result-omitted",
            format!(
                "the function answered the call {id} with status {}, and the {bytes} bytes of its answer were too many to keep",
                result.status
            ),
            "let the function store what is large, and answer where it is",
        ));
    }
    let headers = result.headers.into_iter();
    let headers = headers.map(|(name, value)| (name.into(), value.into()));
    Ok(answers::answer(result.status, headers.collect(), result.body))
}

/// The wall clock. One that is before 1970 makes what waits due at once.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp::default().after(since.unwrap_or_default())
}
