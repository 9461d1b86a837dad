use super::{Result, blocking, functions, secrets};
use crate::{
    Context,
    failure::{Document, Failure, Names, Options, name},
    wire,
};
use axum::{Json, extract::State, http::StatusCode};
use contract::Name;
use serde::Deserialize;
use utoipa::IntoParams;

fn application(name: &Name, found: &registry::Application) -> wire::Application {
    wire::Application {
        application: name.clone(),
        revision: found.revision.0,
        functions: functions(found),
        routes: found.triggers.iter().map(Into::into).collect(),
    }
}

/// All applications
#[utoipa::path(get, operation_id = "list_applications", path = "/v1/applications", tag = "deployments",
    responses((status = 200, description = "The applications", body = wire::Applications)))]
pub(crate) async fn list(State(context): State<Context>) -> Json<wire::Applications> {
    let snapshot = context.state.registry.snapshot();
    let applications = snapshot
        .applications
        .iter()
        .map(|(name, found)| application(name, found))
        .collect();
    Json(wire::Applications { applications })
}

/// One application
#[utoipa::path(get, operation_id = "describe_application", path = "/v1/applications/{application}", tag = "deployments",
    params(("application" = String, Path, description = "The application's name")),
    responses((status = 200, description = "The application", body = wire::Application)))]
pub(crate) async fn describe(
    State(context): State<Context>,
    Names(text): Names<String>,
) -> Result<Json<wire::Application>> {
    let name: Name = name(&text)?;
    let snapshot = context.state.registry.snapshot();
    Ok(Json(application(&name, snapshot.application(&name)?)))
}

/// Delete an application, with all its functions
///
/// Requests that run finish.
#[utoipa::path(delete, operation_id = "delete_application", path = "/v1/applications/{application}", tag = "deployments",
    params(("application" = String, Path, description = "The application's name")),
    responses((status = 204, description = "It is deleted")))]
pub(crate) async fn delete(State(context): State<Context>, Names(text): Names<String>) -> Result<StatusCode> {
    let name: Name = name(&text)?;
    let registry = context.state.registry.clone();
    blocking("delete an application", move || {
        Ok(registry.delete_application(&name)?)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeployOptions {
    /// Only say what would change.
    #[serde(default)]
    plan: bool,
}

/// Deploy an application, or plan to
///
/// All at once: functions whose code or settings differ get a new version, functions that the manifest no longer has are
/// deleted, and the routes are the manifest's. Requests that run finish on the version they began with.
#[utoipa::path(post, operation_id = "deploy_application", path = "/v1/applications/{application}/deployments", tag = "deployments",
    params(("application" = String, Path, description = "The application's name, as in the manifest"), DeployOptions),
    request_body = wire::DeploymentRequest,
    responses((status = 200, description = "What changed, or would", body = wire::Deployment)))]
pub(crate) async fn deploy(
    State(context): State<Context>,
    Names(text): Names<String>,
    Options(options): Options<DeployOptions>,
    Document(request): Document<wire::DeploymentRequest>,
) -> Result<Json<wire::Deployment>> {
    let name: Name = name(&text)?;
    let manifest = manifest::from_json(&request.manifest).map_err(registry::Error::Manifest)?;
    if manifest.application.name != name {
        return Err(Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "application-mismatch",
            format!(
                "the manifest is of the application `{}`, not of `{name}`",
                manifest.application.name
            ),
            "deploy it under its own name",
        ));
    }
    let registry = context.state.registry.clone();
    let warnings = secrets::warnings(&context.state.secrets, &manifest);
    let plan = blocking("deploy", move || {
        let act = if options.plan {
            registry::Registry::plan
        } else {
            registry::Registry::deploy
        };
        Ok(act(&registry, &manifest, &request.code)?)
    });
    Ok(Json(wire::Deployment {
        warnings,
        ..plan.await?.into()
    }))
}
