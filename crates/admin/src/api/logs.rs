use super::{Result, blocking, lines};
use crate::{
    Context,
    failure::{Failure, Names, Options},
    guard::Caller,
    wire,
};
use axum::{extract::State, response::Response};
use bytes::Bytes;
use contract::{FunctionRef, Qualifier, RequestId};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use telemetry::logs::{Filter, Record};
use utoipa::IntoParams;

/// Records that are sent in one piece while they come fast.
const PIECE: usize = 64;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogOptions {
    /// Go on sending what comes, until the caller leaves.
    #[serde(default)]
    follow: bool,
    /// How many of the last lines to send, 1000 when absent, at most 100000.
    tail: Option<usize>,
    /// Only lines of this request.
    #[param(value_type = Option<String>)]
    request: Option<RequestId>,
}

/// What a function said
///
/// One JSON object a line, oldest first. With a version or an alias, only that version's lines.
#[utoipa::path(get, operation_id = "read_logs", path = "/v1/functions/{function}/logs", tag = "functions",
    params(("function" = String, Path, description = "`[APPLICATION.]FUNCTION[:VERSION|:ALIAS]`"), LogOptions),
    responses((status = 200, description = "The lines", body = wire::Record, content_type = "application/x-ndjson")))]
pub(crate) async fn read(
    State(context): State<Context>,
    caller: Caller,
    Names(text): Names<String>,
    Options(options): Options<LogOptions>,
) -> Result<Response> {
    let reference = caller.function(&text)?;
    let found = filter(&context, &reference, options.request);
    let filter = found.map_err(|error| caller.told(error))?;
    let tail = lines::tail(options.tail);
    let logs = context.state.logs.clone();
    let failed = |error: telemetry::logs::Error| Failure::internal("read a log", &error);
    if !options.follow {
        let records = blocking("read a log", move || logs.tail(&filter, tail).map_err(failed)).await?;
        return Ok(lines::answer(shown(&caller, &records)));
    }
    let follower = blocking("follow a log", move || logs.follow(&filter, tail).map_err(failed));
    let mut follower = follower.await?;
    let records = stream::poll_fn(move |context| follower.poll_recv(context)).ready_chunks(PIECE);
    let reader = caller.clone();
    let pieces = records.map(move |records| shown(&reader, records.iter().map(|record| &**record)));
    Ok(lines::follow(&context, caller, pieces))
}

/// A version's number is taken at its word: its lines outlive it.
fn filter(
    context: &Context,
    reference: &FunctionRef,
    request: Option<RequestId>,
) -> std::result::Result<Filter, registry::Error> {
    let snapshot = context.state.registry.snapshot();
    let (function, _) = snapshot.function(reference)?;
    let version = match &reference.qualifier {
        None => None,
        Some(Qualifier::Version(number)) => Some(*number),
        Some(Qualifier::Alias(_)) => Some(snapshot.version(reference)?.number),
    };
    Ok(Filter {
        function,
        version,
        request,
    })
}

/// Records as this caller may read them.
fn shown<'a>(caller: &Caller, records: impl IntoIterator<Item = &'a Record>) -> Bytes {
    let mut lines = Vec::new();
    for record in records {
        match caller.tenant() {
            None => record.write_json(&mut lines),
            Some(_) => Record {
                function: caller.shown(&record.function),
                ..record.clone()
            }
            .write_json(&mut lines),
        }
    }
    lines.into()
}
