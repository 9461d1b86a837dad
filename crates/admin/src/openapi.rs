//! The published description of the API.
//!
//! Paths and documents come from the handlers themselves. Two things are added to what they say: the manifest's own JSON
//! schema, which is of OpenAPI 3.1's dialect as it stands, and the answer that every operation may give, a problem.

use crate::{
    api,
    guard::{Rule, operation_of},
};
use contract::Problem;
use serde_json::{Value, json};
use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Millpond control API",
        description = "Deploys functions to a node and looks after them. Errors are `application/problem+json`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    components(schemas(crate::wire::Record)),
    modifiers(&Token),
    tags(
        (name = "deployments", description = "Code and applications"),
        (name = "functions", description = "Functions, versions, aliases and logs"),
        (name = "secrets", description = "What the node adds to requests of functions, never told"),
        (name = "calls", description = "Asynchronous calls, their results, and dead letters"),
        (name = "objects", description = "The node's own S3, if it has one: S3's REST interface without signatures"),
        (name = "tenants", description = "Who shares the node, their tokens, and who did what"),
        (name = "node", description = "The node itself"),
    )
)]
pub(crate) struct Description;

struct Token;

impl Modify for Token {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The node's own token, needed when it was given one, or a tenant's, whose roles say what it is good for."))
            .build();
        openapi
            .components
            .get_or_insert_default()
            .add_security_scheme("token", SecurityScheme::Http(token));
    }
}

/// The OpenAPI document, as it stands in `docs/openapi.json` and is served at `/openapi.json`.
pub fn openapi() -> Value {
    let (_, description) = api::routes().split_for_parts();
    // Strings, numbers, lists and maps: turning them into JSON does not fail.
    let mut document = serde_json::to_value(description).unwrap_or_default();
    let schemas = &mut document["components"]["schemas"];
    schemas["Manifest"] = manifest::schema().clone();
    if let Some(manifest) = schemas["Manifest"].as_object_mut() {
        manifest.remove("$schema");
    }
    schemas["Problem"] = problem_schema();
    document["security"] = json!([{}, { "token": [] }]);
    let failure = json!({
        "description": "What went wrong",
        "content": { Problem::MEDIA_TYPE: { "schema": { "$ref": "#/components/schemas/Problem" } } },
    });
    let paths = document["paths"]
        .as_object_mut()
        .into_iter()
        .flat_map(|paths| paths.values_mut());
    for operation in paths
        .filter_map(Value::as_object_mut)
        .flat_map(|path| path.values_mut())
    {
        if operation.get("responses").is_some() {
            operation["responses"]["default"] = failure.clone();
            let rule = operation["operationId"].as_str().and_then(operation_of);
            operation["x-millpond-role"] = json!(match rule.map(|operation| operation.rule) {
                Some(Rule::Open) => "none".to_owned(),
                Some(Rule::Any) => "any".to_owned(),
                Some(Rule::Role(role)) => role.to_string(),
                Some(Rule::Operator) | None => "operator".to_owned(),
            });
        }
    }
    document
}

fn problem_schema() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "type": "object",
        "description": "An error for a person and for a machine (RFC 9457).",
        "required": ["status", "code", "detail"],
        "properties": {
            "status": { "type": "integer", "description": "The HTTP status.", "minimum": 400, "maximum": 599 },
            "code": text("A stable code, for example `code-missing`."),
            "detail": text("What was attempted, on what, and what came of it."),
            "hint": text("What to try."),
            "request_id": text("The request it happened to."),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::RequestId;

    #[test]
    fn a_problem_is_what_its_schema_says() {
        let problem = Problem {
            request_id: Some(RequestId(1)),
            ..Problem::new(409, "code", "detail", "hint")
        };
        let (written, schema) = (serde_json::to_value(problem).unwrap(), problem_schema());
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&written), keys(&schema["properties"]));
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let document = openapi();
        let paths = document["paths"].as_object().unwrap().values();
        let names: Vec<_> = paths
            .flat_map(|path| path.as_object().unwrap().values())
            .map(|o| &o["operationId"])
            .collect();
        let distinct: std::collections::HashSet<_> =
            names.iter().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = openapi();
        let mut open = vec![&document];
        let mut references = 0;
        while let Some(value) = open.pop() {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(reference)) = map.get("$ref") {
                        let pointer = reference.strip_prefix('#').unwrap();
                        assert!(document.pointer(pointer).is_some(), "{reference}");
                        references += 1;
                    }
                    open.extend(map.values());
                }
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        assert!(references > 20);
    }
}
