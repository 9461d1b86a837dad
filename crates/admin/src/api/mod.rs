//! The handlers.

mod answers;
mod applications;
mod audit;
mod calls;
mod code;
mod functions;
mod lines;
mod logs;
mod node;
mod objects;
mod once;
mod secrets;
mod tenants;

use crate::{Context, failure::Failure, guard::Caller, openapi::Description, wire};
use axum::http::{Method, StatusCode, Uri};
use contract::Name;
use registry::Version;
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

type Result<T> = std::result::Result<T, Failure>;

/// Everything that is served, and its description.
pub(crate) fn routes() -> OpenApiRouter<Context> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(node::describe))
        .routes(routes!(node::health))
        .routes(routes!(node::readiness))
        .routes(routes!(node::metrics))
        .routes(routes!(node::counters))
        .routes(routes!(node::openapi))
        .routes(routes!(node::manifest_schema))
        .routes(routes!(code::upload))
        .routes(routes!(once::invoke))
        .routes(routes!(applications::list))
        .routes(routes!(applications::describe, applications::delete))
        .routes(routes!(applications::deploy))
        .routes(routes!(functions::list))
        .routes(routes!(functions::describe, functions::delete))
        .routes(routes!(functions::rollback))
        .routes(routes!(functions::set_alias, functions::delete_alias))
        .routes(routes!(logs::read))
        .routes(routes!(secrets::list))
        .routes(routes!(secrets::set, secrets::delete))
        .routes(routes!(calls::list))
        .routes(routes!(calls::describe, calls::discard))
        .routes(routes!(calls::result))
        .routes(routes!(calls::retry))
        .routes(routes!(objects::buckets))
        .routes(routes!(
            objects::read,
            objects::write,
            objects::change,
            objects::delete
        ))
        .routes(routes!(audit::read))
        .routes(routes!(tenants::list))
        .routes(routes!(
            tenants::describe,
            tenants::create,
            tenants::update,
            tenants::delete
        ))
        .routes(routes!(tenants::list_tokens, tenants::create_token))
        .routes(routes!(tenants::revoke_token))
}

pub(crate) async fn not_found(uri: Uri) -> Failure {
    let detail = format!("the control API has no `{}`", uri.path());
    Failure::new(
        StatusCode::NOT_FOUND,
        "not-found",
        detail,
        "see what it has in GET /openapi.json; functions answer on the data plane's port",
    )
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Failure {
    let detail = format!("`{}` does not take {method}", uri.path());
    Failure::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method-not-allowed",
        detail,
        "see the `Allow` header, or GET /openapi.json",
    )
}

/// Runs what blocks on a thread that may.
async fn blocking<T: Send + 'static>(
    attempt: &str,
    act: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(act).await {
        Ok(result) => result,
        Err(error) => Err(Failure::internal(attempt, &error)),
    }
}

fn function(
    caller: &Caller,
    application: &registry::Application,
    name: &Name,
    function: &registry::Function,
    version: &Arc<Version>,
) -> wire::Function {
    let own = |trigger: &&manifest::HttpTrigger| trigger.function == *name;
    wire::Function {
        function: caller.shown(&version.function),
        version: version.number,
        created: wire::time(version.created),
        code: version.code,
        code_size: version.code_size,
        settings: (&version.settings).into(),
        aliases: function.aliases.clone(),
        routes: application.triggers.iter().filter(own).map(Into::into).collect(),
        schedules: application
            .schedules
            .iter()
            .filter(|trigger| trigger.function == *name)
            .map(Into::into)
            .collect(),
        events: application
            .subscriptions
            .iter()
            .filter(|trigger| trigger.function == *name)
            .map(Into::into)
            .collect(),
        objects: application
            .objects
            .iter()
            .filter(|trigger| trigger.function == *name)
            .map(Into::into)
            .collect(),
    }
}

/// The functions of an application, each with its live version.
fn functions(caller: &Caller, application: &registry::Application) -> Vec<wire::Function> {
    let one = |(name, found): (&Name, &registry::Function)| {
        Some(function(caller, application, name, found, found.live()?))
    };
    application.functions.iter().filter_map(one).collect()
}
