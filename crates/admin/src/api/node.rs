use super::Result;
use crate::{Context, failure::Failure, guard::Caller, wire};
use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
};
use serde_json::Value;
use std::time::SystemTime;
use telemetry::metrics::{Exposition, Reading};

/// The node about itself
#[utoipa::path(get, operation_id = "describe_node", path = "/v1/node", tag = "node", responses((status = 200, description = "The node", body = wire::Node)))]
pub(crate) async fn describe(State(context): State<Context>) -> Json<wire::Node> {
    let node = &context.state.node;
    Json(wire::Node {
        version: node.version.clone(),
        listen: node.listen.to_string(),
        tls: node.tls.map(|tls| tls.to_string()),
        s3: node.s3.map(|s3| s3.to_string()),
        admin: node.admin.to_string(),
        cores: node.cores.clone(),
        engines: context
            .state
            .registry
            .engines()
            .into_iter()
            .map(str::to_owned)
            .collect(),
        code_limit: context.state.registry.code_limit(),
        started: wire::time(node.started),
    })
}

/// Whether the process lives
#[utoipa::path(get, operation_id = "health", path = "/healthz", tag = "node", responses((status = 200, description = "It does", body = wire::Health)))]
pub(crate) async fn health() -> Json<wire::Health> {
    Json(wire::Health {
        status: "ok".to_owned(),
    })
}

/// Whether the node serves functions
#[utoipa::path(get, operation_id = "readiness", path = "/readyz", tag = "node", responses((status = 200, description = "It does", body = wire::Health)))]
pub(crate) async fn readiness(State(context): State<Context>) -> Result<Json<wire::Health>> {
    if context.is_ready() {
        Ok(Json(wire::Health {
            status: "ready".to_owned(),
        }))
    } else {
        let detail = "this node does not serve functions now: it starts, or shuts down";
        Err(Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "not-ready",
            detail,
            "ask again",
        ))
    }
}

/// Metrics in Prometheus' text format
///
/// A tenant sees those of its own functions.
#[utoipa::path(get, operation_id = "metrics", path = "/metrics", tag = "node", responses((status = 200, description = "The metrics", body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(State(context): State<Context>, caller: Caller) -> impl IntoResponse {
    let metrics = &context.state.metrics;
    (
        [(header::CONTENT_TYPE, Exposition::MEDIA_TYPE)],
        match caller.tenant() {
            None => metrics.render(),
            Some(tenant) => metrics.render_tenant(tenant),
        },
    )
}

/// What is counted, as numbers
///
/// The rates and percentiles of an interval are the difference of two of these. A tenant sees those of its own functions.
#[utoipa::path(get, operation_id = "read_counters", path = "/v1/counters", tag = "node", responses((status = 200, description = "The counters", body = wire::Counters)))]
pub(crate) async fn counters(State(context): State<Context>, caller: Caller) -> Json<wire::Counters> {
    let reading = context.state.metrics.read(|id| caller.sees(id.tenant()));
    let node = caller.tenant().is_none().then(|| wire::NodeCounters {
        resident: reading.resident,
        cores: reading.cores.iter().map(Into::into).collect(),
    });
    let functions = reading.functions.into_iter();
    Json(wire::Counters {
        time: wire::time(SystemTime::now()),
        started: wire::time(reading.started),
        uptime: reading.uptime.as_secs_f64(),
        bounds: Reading::bounds().map(|bound| bound.as_secs_f64()).collect(),
        node,
        functions: functions
            .map(|(id, reading)| wire::FunctionCounters::new(caller.shown(&id), reading))
            .collect(),
    })
}

/// This description
#[utoipa::path(get, operation_id = "openapi", path = "/openapi.json", tag = "node", responses((status = 200, description = "An OpenAPI document", body = Object)))]
pub(crate) async fn openapi() -> Json<Value> {
    Json(crate::openapi())
}

/// The JSON schema of `millpond.toml`
#[utoipa::path(get, operation_id = "manifest_schema", path = "/manifest.schema.json", tag = "node", responses((status = 200, description = "A JSON schema", body = Object)))]
pub(crate) async fn manifest_schema() -> Json<&'static Value> {
    Json(manifest::schema())
}
