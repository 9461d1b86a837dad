use super::{Result, answers, blocking};
use crate::{
    Context, Ran,
    failure::{Failure, Names, Options, name},
    guard::Caller,
};
use axum::{
    body::{Body, to_bytes},
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use contract::{ByteSize, Digest, HeadBuilder};
use manifest::Manifest;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use utoipa::IntoParams;

/// The settings of what runs: keys of a function in a manifest, in JSON.
const FUNCTION: HeaderName = HeaderName::from_static("millpond-function");
const LOG: HeaderName = HeaderName::from_static("x-function-log");
const TIMING: HeaderName = HeaderName::from_static("server-timing");

/// What the application is called while it runs.
const ONESHOT: &str = "oneshot";

/// Makes a function's name its own.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// What a request says to the control API, and not to the function.
const NOT_FOR_THE_FUNCTION: [HeaderName; 13] = [
    FUNCTION,
    HeaderName::from_static("x-millpond-tenant"),
    HeaderName::from_static("keep-alive"),
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::COOKIE,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Bytes of what is not the body in a request's head, at a guess.
const HEAD: usize = 1024;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InvokeOptions {
    /// The request's method.
    #[serde(default = "post")]
    method: String,
    /// The request's path and query.
    #[serde(default = "root")]
    path: String,
}

fn post() -> String {
    "POST".to_owned()
}

fn root() -> String {
    "/".to_owned()
}

/// Run code that is not deployed
///
/// Once, by what was uploaded before under this SHA-256: it is compiled on the way, by what is ready soonest unless an engine is named. Nothing is
/// deployed, and the log comes with the answer. The body and the headers are the function's request; the answer has its headers and its body, with its status in
/// `X-Function-Status`.
#[utoipa::path(post, operation_id = "invoke_code", path = "/v1/code/{sha256}/invoke", tag = "functions",
    params(("sha256" = String, Path, description = "SHA-256 of the code, in hexadecimal digits"), InvokeOptions,
        ("Millpond-Function" = Option<String>, Header, description = "Keys of a `[function.NAME]` of a manifest, as a JSON object, without `source`")),
    request_body(content = Vec<u8>, content_type = "*/*", description = "The function's request"),
    responses((status = 200, description = "The function's answer", body = Vec<u8>, content_type = "*/*",
        headers(("X-Function-Status" = u16, description = "The function's status"),
            ("X-Function-Log" = String, description = "The end of its log, in base64"),
            ("Server-Timing" = String, description = "What preparing its code and running it took, in milliseconds")))))]
pub(crate) async fn invoke(
    State(context): State<Context>,
    caller: Caller,
    Names(sha256): Names<String>,
    Options(options): Options<InvokeOptions>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let begun = Instant::now();
    let digest: Digest = name(&sha256)?;
    let manifest = manifest_of(headers.get(&FUNCTION))?;
    let head = head(&options, &headers)?;
    let (function, limit) = match manifest.function.iter().next() {
        Some((name, function)) => (name.clone(), function.limits().request_body),
        None => return Err(invalid("it has no function")),
    };
    let body = to_bytes(body, limit.bytes())
        .await
        .map_err(|_| too_large(limit))?;
    let registry = context.state.registry.clone();
    let tenant = caller.tenant().cloned();
    let tenants = context.state.tenants.clone();
    let version = blocking("prepare code", move || {
        super::applications::payers_are_known(&tenants, tenant.as_ref(), &manifest)?;
        let code = BTreeMap::from([(function, digest)]);
        Ok(registry.once(tenant.as_ref(), &manifest, &code)?)
    })
    .await?;
    let prepared = begun.elapsed();
    let Ran { answer, log, timing } = context.state.once.run(Arc::new(version), head, body).await;
    let (head, body) = answer.map_err(Failure::of_function)?;
    let mut answer = answers::answer(head.status, head.headers, body);
    let headers = answer.headers_mut();
    let timing = format!("prepare;dur={:.3}, {timing}", prepared.as_secs_f64() * 1e3);
    for (name, value) in [(LOG, BASE64_STANDARD.encode(log)), (TIMING, timing)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    Ok(answer)
}

fn invalid(reason: impl Display) -> Failure {
    Failure::new(
        StatusCode::BAD_REQUEST,
        "document-invalid",
        format!("the header `Millpond-Function` does not say how to run this: {reason}"),
        "write keys of a function in a manifest as a JSON object, for example {\"memory\": \"64MiB\"}",
    )
}

fn too_large(limit: ByteSize) -> Failure {
    Failure::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "limit-request-body",
        format!(
            "the request's body did not come to its end, or is larger than the function's limit of {limit}"
        ),
        "raise `request_body`",
    )
}

/// A manifest of one function, whose name nobody else has.
fn manifest_of(settings: Option<&HeaderValue>) -> Result<Manifest> {
    let mut function: Map<String, Value> = match settings {
        None => Map::new(),
        Some(text) => serde_json::from_slice(text.as_bytes()).map_err(invalid)?,
    };
    if function.insert("source".to_owned(), ONESHOT.into()).is_some() {
        return Err(invalid("`source` is the code that was uploaded"));
    }
    let name = format!("{ONESHOT}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let manifest = json!({ "application": { "name": ONESHOT }, "function": { name: function } });
    Ok(manifest::from_json(&manifest).map_err(registry::Error::Manifest)?)
}

fn head(options: &InvokeOptions, headers: &HeaderMap) -> Result<HeadBuilder> {
    let refused = |reason: &str| {
        Failure::new(
            StatusCode::BAD_REQUEST,
            "query-invalid",
            reason.to_owned(),
            "for example ?method=PUT&path=/a%3Fb=c",
        )
    };
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if options.method.is_empty() || !options.method.bytes().all(is_token) {
        return Err(refused("`method` is not an HTTP method"));
    }
    if !options.path.starts_with('/') || !options.path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(refused(
            "`path` is not the path of a request: it begins with `/` and has no spaces",
        ));
    }
    let mut builder = HeadBuilder::new(&options.method, &options.path, HEAD);
    builder.header("Host", b"localhost");
    for (name, value) in headers {
        if !NOT_FOR_THE_FUNCTION.contains(name) {
            builder.header(name.as_str(), value.as_bytes());
        }
    }
    Ok(builder)
}
