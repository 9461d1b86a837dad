use super::{Result, blocking};
use crate::{
    Context,
    failure::{Failure, Names, Options, drain, name},
    guard::Caller,
    wire,
};
use axum::{
    Json,
    body::Body,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use contract::{ApplicationId, FunctionId};
use futures_util::StreamExt;
use manifest::Manifest;
use registry::Snapshot;
use secrets::{LONGEST, SecretId, Secrets, Value, ValueError};
use serde::Deserialize;
use utoipa::IntoParams;
use zeroize::Zeroizing;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Whose {
    /// The application whose secret it is; that of all applications, when absent.
    #[param(value_type = Option<String>)]
    application: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeleteOptions {
    /// The application whose secret it is; that of all applications, when absent.
    #[param(value_type = Option<String>)]
    application: Option<String>,
    /// Even if functions use it.
    #[serde(default)]
    force: bool,
}

/// All secrets, without their values
#[utoipa::path(get, operation_id = "list_secrets", path = "/v1/secrets", tag = "secrets",
    responses((status = 200, description = "The secrets", body = wire::Secrets)))]
pub(crate) async fn list(State(context): State<Context>, caller: Caller) -> Json<wire::Secrets> {
    let all = context.state.secrets.list().into_iter();
    let listed = all
        .filter(|(id, _)| caller.sees(id.application.as_ref().and_then(|id| id.tenant.as_ref())))
        .map(|(id, set)| shown(&context, &caller, id, wire::time(set)));
    Json(wire::Secrets {
        secrets: listed.collect(),
    })
}

fn shown(context: &Context, caller: &Caller, id: SecretId, set: String) -> wire::Secret {
    let users = users(&context.state.secrets, &context.state.registry.snapshot(), &id);
    wire::Secret {
        functions: users.iter().map(|function| caller.shown(function)).collect(),
        name: id.name,
        application: id.application.map(|id| caller.shown_application(&id)),
        set,
    }
}

/// Set a secret
///
/// The body is the value: 1 to 8192 bytes that can stand in a header. The next call of a function that uses it has it. No answer
/// ever holds a value.
#[utoipa::path(put, operation_id = "set_secret", path = "/v1/secrets/{name}", tag = "secrets",
    params(("name" = String, Path, description = "The secret's name"), Whose),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The value"),
    responses((status = 200, description = "It is set", body = wire::Secret)))]
pub(crate) async fn set(
    State(context): State<Context>,
    caller: Caller,
    Names(text): Names<String>,
    Options(whose): Options<Whose>,
    body: Body,
) -> Result<Response> {
    // The body is taken whatever is wrong with the rest: its sender would not see the answer else.
    let value = receive(body).await;
    let id = secret(&caller, &text, whose.application.as_deref())?;
    let value = value?;
    let secrets = context.state.secrets.clone();
    let setting = id.clone();
    let set = blocking("keep a secret", move || {
        let set = secrets.set(&setting, value);
        set.map_err(|error| Failure::internal("keep a secret", &error))
    })
    .await?;
    let listed = shown(&context, &caller, id, wire::time(set));
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(listed)).into_response())
}

/// Delete a secret
///
/// Refused while a function uses it, unless `force` is set: such a function's requests then fail.
#[utoipa::path(delete, operation_id = "delete_secret", path = "/v1/secrets/{name}", tag = "secrets",
    params(("name" = String, Path, description = "The secret's name"), DeleteOptions),
    responses((status = 204, description = "It is deleted")))]
pub(crate) async fn delete(
    State(context): State<Context>,
    caller: Caller,
    Names(text): Names<String>,
    Options(options): Options<DeleteOptions>,
) -> Result<StatusCode> {
    let id = secret(&caller, &text, options.application.as_deref())?;
    let (secrets, snapshot) = (context.state.secrets.clone(), context.state.registry.snapshot());
    let used = users(&secrets, &snapshot, &id);
    if !(used.is_empty() || options.force) {
        let used: Vec<_> = used.iter().map(|one| caller.shown(one).to_string()).collect();
        return Err(Failure::new(
            StatusCode::CONFLICT,
            "secret-in-use",
            format!("the secret `{}` is used by {}", local(&id), used.join(", ")),
            "deploy them without it first; with force=true (`--force`) it goes anyway, and their requests fail",
        ));
    }
    let deleting = id.clone();
    let deleted = blocking("delete a secret", move || {
        let deleted = secrets.delete(&deleting);
        deleted.map_err(|error| Failure::internal("delete a secret", &error))
    })
    .await?;
    if !deleted {
        return Err(Failure::new(
            StatusCode::NOT_FOUND,
            "secret-unknown",
            format!("there is no secret `{}`", local(&id)),
            "see which there are with `millpond secret list`; one of an application is named with --application",
        ));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// What a deployment of this manifest should know of secrets.
pub(super) fn warnings(secrets: &Secrets, id: &ApplicationId, manifest: &Manifest) -> Vec<String> {
    let application = &id.name;
    let mut warnings = Vec::new();
    for (function, settings) in &manifest.function {
        for name in settings.grants.secrets() {
            if secrets.meant(id, name).is_none() {
                warnings.push(format!(
                    "the secret `{name}` is not set, and requests of `{function}` that need it will fail: \
                     millpond secret set {name} --application {application}"
                ));
            }
        }
    }
    warnings
}

/// The functions that use a secret: of which a version that has an alias means it.
fn users(secrets: &Secrets, snapshot: &Snapshot, id: &SecretId) -> Vec<FunctionId> {
    let means = |application: &ApplicationId, function: &registry::Function| {
        let mut versions = function.versions.iter();
        versions.any(|(number, version)| {
            function.is_aliased(*number)
                && version.settings.secrets().contains(&id.name)
                && secrets.meant(application, &id.name).as_ref() == Some(id)
        })
    };
    let mut users = Vec::new();
    for (application, found) in &snapshot.applications {
        for (function, its) in &found.functions {
            if means(application, its) {
                users.push(FunctionId {
                    application: application.clone(),
                    function: function.clone(),
                });
            }
        }
    }
    users
}

/// A secret as its tenant writes it.
fn local(id: &SecretId) -> SecretId {
    SecretId {
        application: id.application.as_ref().map(ApplicationId::local),
        name: id.name.clone(),
    }
}

fn secret(caller: &Caller, text: &str, application: Option<&str>) -> Result<SecretId> {
    if application.is_none() && caller.tenant().is_some() {
        return Err(Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "secret-whose",
            "a tenant's secrets belong to one application each",
            "name it with `application` (`--application`)",
        ));
    }
    Ok(SecretId {
        application: application.map(|text| caller.application(text)).transpose()?,
        name: name(text)?,
    })
}

/// Reads a value. Nothing that is said of a bad one quotes it.
async fn receive(body: Body) -> Result<Value> {
    let mut body = body.into_data_stream();
    // Room for all of it: a buffer that grew would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST));
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| {
            Failure::new(
                StatusCode::BAD_REQUEST,
                "document-invalid",
                format!("the body broke off: {error}"),
                "send it again, as long as its `Content-Length` says",
            )
        })?;
        if bytes.len() + piece.len() > LONGEST {
            drain(&mut body).await;
            return Err(invalid(ValueError::Long));
        }
        bytes.extend_from_slice(&piece);
    }
    Value::new(bytes).map_err(invalid)
}

fn invalid(error: ValueError) -> Failure {
    Failure::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "secret-invalid",
        error.to_string(),
        "a secret is sent in a header: give it without a line end, in base64 if it is binary",
    )
}
