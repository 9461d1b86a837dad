use super::{Result, blocking, functions, secrets};
use crate::{
    Context,
    failure::{Document, Failure, Names, Options},
    guard::Caller,
    wire,
};
use axum::{Json, extract::State, http::StatusCode};
use contract::{ApplicationId, Name};
use serde::Deserialize;
use tenants::Tenants;
use utoipa::IntoParams;

fn application(caller: &Caller, id: &ApplicationId, found: &registry::Application) -> wire::Application {
    wire::Application {
        application: caller.shown_application(id),
        revision: found.revision.0,
        functions: functions(caller, found),
        routes: found.triggers.iter().map(Into::into).collect(),
    }
}

/// All applications
#[utoipa::path(get, operation_id = "list_applications", path = "/v1/applications", tag = "deployments",
    responses((status = 200, description = "The applications", body = wire::Applications)))]
pub(crate) async fn list(State(context): State<Context>, caller: Caller) -> Json<wire::Applications> {
    let snapshot = context.state.registry.snapshot();
    let applications = snapshot
        .applications
        .iter()
        .filter(|(id, _)| caller.sees(id.tenant.as_ref()))
        .map(|(id, found)| application(&caller, id, found))
        .collect();
    Json(wire::Applications { applications })
}

/// One application
#[utoipa::path(get, operation_id = "describe_application", path = "/v1/applications/{application}", tag = "deployments",
    params(("application" = String, Path, description = "The application's name")),
    responses((status = 200, description = "The application", body = wire::Application)))]
pub(crate) async fn describe(
    State(context): State<Context>,
    caller: Caller,
    Names(text): Names<String>,
) -> Result<Json<wire::Application>> {
    let id = caller.application(&text)?;
    let snapshot = context.state.registry.snapshot();
    let found = snapshot.application(&id).map_err(|error| caller.told(error))?;
    Ok(Json(application(&caller, &id, found)))
}

/// Delete an application, with all its functions
///
/// Requests that run finish.
#[utoipa::path(delete, operation_id = "delete_application", path = "/v1/applications/{application}", tag = "deployments",
    params(("application" = String, Path, description = "The application's name")),
    responses((status = 204, description = "It is deleted")))]
pub(crate) async fn delete(
    State(context): State<Context>,
    caller: Caller,
    Names(text): Names<String>,
) -> Result<StatusCode> {
    let id = caller.application(&text)?;
    let registry = context.state.registry.clone();
    blocking("delete an application", move || {
        registry
            .delete_application(&id)
            .map_err(|error| caller.told(error))
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
    caller: Caller,
    Names(text): Names<String>,
    Options(options): Options<DeployOptions>,
    Document(request): Document<wire::DeploymentRequest>,
) -> Result<Json<wire::Deployment>> {
    let id = caller.application(&text)?;
    let manifest = manifest::from_json(&request.manifest).map_err(registry::Error::Manifest)?;
    if manifest.application.name != id.name {
        return Err(Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "application-mismatch",
            format!(
                "the manifest is of the application `{}`, not of `{}`",
                manifest.application.name, id.name
            ),
            "deploy it under its own name",
        ));
    }
    let (registry, tenants) = (context.state.registry.clone(), context.state.tenants.clone());
    let mut warnings = secrets::warnings(&context.state.secrets, &id, &manifest);
    warnings.extend(circles(&manifest));
    let plan = blocking("deploy", move || {
        let act = if options.plan {
            registry::Registry::plan_for
        } else {
            registry::Registry::deploy_for
        };
        let tenant = id.tenant.as_ref();
        payers_are_known(&tenants, tenant, &manifest)?;
        let admit = |functions| within_quota(&tenants, tenant, functions);
        act(&registry, tenant, &manifest, &request.code, &admit).map_err(|error| caller.told(error))
    });
    Ok(Json(wire::Deployment {
        warnings,
        ..plan.await?.into()
    }))
}

/// Functions that may write what makes them run.
fn circles(manifest: &manifest::Manifest) -> impl Iterator<Item = String> {
    let may_write = |trigger: &manifest::ObjectTrigger| {
        let function = manifest.function.get(&trigger.function)?;
        let overlaps = |one: &str, other: &str| one.starts_with(other) || other.starts_with(one);
        let mut grants = function.grants.s3.iter();
        grants.find(|grant| {
            grant.bucket == trigger.bucket
                && grant.actions.contains(&manifest::S3Action::Put)
                && overlaps(&grant.prefix, &trigger.prefix)
        })
    };
    let triggers = manifest.trigger.object.iter();
    triggers.filter(move |trigger| may_write(trigger).is_some()).map(|trigger| {
        let manifest::ObjectTrigger { function, bucket, prefix, .. } = trigger;
        format!(
            "`{function}` may write to `{bucket}` what makes it run: an object that it writes under {prefix:?} runs it again; \
             grant it another prefix for what it writes"
        )
    })
}

/// Whether the tenants exist for whom functions of the node are to run. What a tenant's function names is the registry's to judge:
/// nobody learns here who else there is.
pub(super) fn payers_are_known(
    tenants: &Tenants,
    owner: Option<&Name>,
    manifest: &manifest::Manifest,
) -> std::result::Result<(), registry::Error> {
    let directory = tenants.directory();
    let mut named = manifest
        .function
        .values()
        .filter_map(|function| function.tenant.as_ref());
    match named.find(|name| owner.is_none() && directory.tenant(name).is_none()) {
        Some(unknown) => Err(registry::Error::UnknownTenant(unknown.clone())),
        None => Ok(()),
    }
}

/// Whether a tenant that is still there may have so many functions.
fn within_quota(
    tenants: &Tenants,
    tenant: Option<&Name>,
    functions: usize,
) -> std::result::Result<(), registry::Error> {
    let Some(name) = tenant else { return Ok(()) };
    let directory = tenants.directory();
    let tenant = directory
        .tenant(name)
        .ok_or_else(|| registry::Error::UnknownTenant(name.clone()))?;
    let limit = tenant.quotas().functions.map(|limit| limit as usize);
    match limit.filter(|limit| functions > *limit) {
        Some(limit) => Err(registry::Error::FunctionQuota { functions, limit }),
        None => Ok(()),
    }
}
