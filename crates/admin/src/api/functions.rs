use super::{Result, blocking, function, functions};
use crate::{
    Context,
    failure::{Document, Names, name},
    guard::Caller,
    wire,
};
use axum::{Json, extract::State, http::StatusCode};
use contract::Name;
use registry::LIVE;

/// All functions, each with its live version
#[utoipa::path(get, operation_id = "list_functions", path = "/v1/functions", tag = "functions",
    responses((status = 200, description = "The functions", body = wire::Functions)))]
pub(crate) async fn list(State(context): State<Context>, caller: Caller) -> Json<wire::Functions> {
    let snapshot = context.state.registry.snapshot();
    let functions = snapshot
        .applications
        .iter()
        .filter(|(id, _)| caller.sees(id.tenant.as_ref()))
        .flat_map(|(_, application)| functions(&caller, application))
        .collect();
    Json(wire::Functions { functions })
}

/// One function and its versions
#[utoipa::path(get, operation_id = "describe_function", path = "/v1/functions/{function}", tag = "functions",
    params(("function" = String, Path, description = "`[APPLICATION.]FUNCTION[:VERSION|:ALIAS]`")),
    responses((status = 200, description = "The function", body = wire::FunctionDetail)))]
pub(crate) async fn describe(
    State(context): State<Context>,
    caller: Caller,
    Names(text): Names<String>,
) -> Result<Json<wire::FunctionDetail>> {
    let reference = caller.function(&text)?;
    let snapshot = context.state.registry.snapshot();
    let version = snapshot.version(&reference).map_err(|error| caller.told(error))?;
    let (id, found) = snapshot
        .function(&reference)
        .map_err(|error| caller.told(error))?;
    let application = snapshot.application(&id.application)?;
    let mut function = function(&caller, application, &id.function, found, version);
    for schedule in &mut function.schedules {
        let key = triggers::key(&id.application.to_string(), id.function.as_str(), &schedule.when);
        schedule.next = context.state.agenda.next(&key).map(triggers::rfc3339);
    }
    let history = version.history();
    let seen = history.requests > 0 || history.gap.mean().is_some();
    Ok(Json(wire::FunctionDetail {
        function,
        tier: version.tier().into(),
        usage: seen.then(|| (&history).into()),
        versions: found
            .versions
            .values()
            .rev()
            .map(|version| (&**version).into())
            .collect(),
    }))
}

/// Delete a function with all its versions, aliases and routes
///
/// Requests that run finish. Its application goes with its last function.
#[utoipa::path(delete, operation_id = "delete_function", path = "/v1/functions/{function}", tag = "functions",
    params(("function" = String, Path, description = "`[APPLICATION.]FUNCTION`")),
    responses((status = 204, description = "It is deleted")))]
pub(crate) async fn delete(
    State(context): State<Context>,
    caller: Caller,
    Names(text): Names<String>,
) -> Result<StatusCode> {
    let reference = caller.function(&text)?;
    let registry = context.state.registry.clone();
    blocking("delete a function", move || {
        registry
            .delete_function(&reference)
            .map_err(|error| caller.told(error))
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Make an earlier version the live one
#[utoipa::path(post, operation_id = "rollback_function", path = "/v1/functions/{function}/rollback", tag = "functions",
    params(("function" = String, Path, description = "`[APPLICATION.]FUNCTION`")),
    request_body = wire::RollbackRequest,
    responses((status = 200, description = "What `live` named, and names now", body = wire::AliasChange)))]
pub(crate) async fn rollback(
    State(context): State<Context>,
    caller: Caller,
    Names(text): Names<String>,
    Document(request): Document<wire::RollbackRequest>,
) -> Result<Json<wire::AliasChange>> {
    let reference = caller.function(&text)?;
    let told = caller.clone();
    let registry = context.state.registry.clone();
    let (function, from, to) = blocking("roll back", move || {
        registry
            .rollback(&reference, request.to)
            .map_err(|error| told.told(error))
    })
    .await?;
    Ok(Json(wire::AliasChange {
        function: caller.shown(&function),
        alias: LIVE.clone(),
        from: Some(from),
        to,
    }))
}

/// Point an alias at a version
#[utoipa::path(put, operation_id = "set_alias", path = "/v1/functions/{function}/aliases/{alias}", tag = "functions",
    params(
        ("function" = String, Path, description = "`[APPLICATION.]FUNCTION`"),
        ("alias" = String, Path, description = "The alias; `live` is what routes mean"),
    ),
    request_body = wire::AliasRequest,
    responses((status = 200, description = "What it named, and names now", body = wire::AliasChange)))]
pub(crate) async fn set_alias(
    State(context): State<Context>,
    caller: Caller,
    Names((text, alias)): Names<(String, String)>,
    Document(request): Document<wire::AliasRequest>,
) -> Result<Json<wire::AliasChange>> {
    let (reference, alias): (_, Name) = (caller.function(&text)?, name(&alias)?);
    let told = caller.clone();
    let registry = context.state.registry.clone();
    let named = alias.clone();
    let (function, from) = blocking("set an alias", move || {
        registry
            .set_alias(&reference, &named, request.version)
            .map_err(|error| told.told(error))
    })
    .await?;
    Ok(Json(wire::AliasChange {
        function: caller.shown(&function),
        alias,
        from,
        to: request.version,
    }))
}

/// Delete an alias
#[utoipa::path(delete, operation_id = "delete_alias", path = "/v1/functions/{function}/aliases/{alias}", tag = "functions",
    params(
        ("function" = String, Path, description = "`[APPLICATION.]FUNCTION`"),
        ("alias" = String, Path, description = "The alias"),
    ),
    responses((status = 204, description = "It is deleted")))]
pub(crate) async fn delete_alias(
    State(context): State<Context>,
    caller: Caller,
    Names((text, alias)): Names<(String, String)>,
) -> Result<StatusCode> {
    let (reference, alias): (_, Name) = (caller.function(&text)?, name(&alias)?);
    let registry = context.state.registry.clone();
    blocking("delete an alias", move || {
        registry
            .delete_alias(&reference, &alias)
            .map_err(|error| caller.told(error))
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}
