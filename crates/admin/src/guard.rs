//! Who may call, and for what: one table for all operations, and one place that looks at it.
//!
//! The operator shows the node's token, or on a node without one is whoever calls from this machine; he may do everything, as
//! himself or for a tenant that `X-Millpond-Tenant` names. A tenant shows one of its tokens and may do what the token's roles
//! say, within what is its own. Handlers are told by a [`Caller`], which leads every name into its tenant's space: what
//! another tenant has cannot be named, so that it does not exist for them.

use crate::{
    Context, api,
    audit::{Outcome, Who},
    failure::{Code, Failure, name},
};
use axum::{
    extract::{ConnectInfo, FromRequestParts, MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use contract::{ApplicationId, FunctionId, FunctionRef, Name, Problem};
use sha2::{Digest, Sha256};
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use subtle::ConstantTimeEq;
use tenants::{Directory, Role, Tenants, Token, is_token};

/// How often a token is looked at while something is followed.
const LOOK: Duration = Duration::from_secs(1);

/// The tenant that the operator acts for.
const TENANT: HeaderName = HeaderName::from_static("x-millpond-tenant");

/// Who may call an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Everybody, without a token: it says nothing but a state, and load balancers ask for it.
    Open,
    /// Whoever has a token, whatever its roles.
    Any,
    /// Tokens with this role, for what is their tenant's.
    Role(Role),
    /// The operator.
    Operator,
}

/// An operation and its rule.
#[derive(Debug)]
pub(crate) struct Operation {
    method: &'static str,
    path: &'static str,
    /// As in the published description, and in audit lines.
    pub(crate) id: &'static str,
    pub(crate) rule: Rule,
}

const OPEN: Rule = Rule::Open;
const ANY: Rule = Rule::Any;
const DEPLOY: Rule = Rule::Role(Role::Deploy);
const INVOKE: Rule = Rule::Role(Role::Invoke);
const READ: Rule = Rule::Role(Role::Read);
const OPERATOR: Rule = Rule::Operator;

macro_rules! operations {
    ($($method:ident $path:literal $id:ident $rule:ident;)*) => {
        &[$(Operation {
            method: stringify!($method),
            path: $path,
            id: stringify!($id),
            rule: $rule,
        },)*]
    };
}

/// All of them. A handler that is not here is nobody's but the operator's, and fails a test.
static OPERATIONS: &[Operation] = operations! {
    GET    "/healthz"                                   health               OPEN;
    GET    "/readyz"                                    readiness            OPEN;
    GET    "/v1/node"                                   describe_node        ANY;
    GET    "/openapi.json"                              openapi              ANY;
    GET    "/manifest.schema.json"                      manifest_schema      ANY;
    GET    "/metrics"                                   metrics              READ;
    GET    "/v1/counters"                               read_counters        READ;
    PUT    "/v1/code/{sha256}"                          upload_code          DEPLOY;
    POST   "/v1/code/{sha256}/invoke"                   invoke_code          DEPLOY;
    GET    "/v1/applications"                           list_applications    READ;
    GET    "/v1/applications/{application}"             describe_application READ;
    DELETE "/v1/applications/{application}"             delete_application   DEPLOY;
    POST   "/v1/applications/{application}/deployments" deploy_application   DEPLOY;
    GET    "/v1/functions"                              list_functions       READ;
    GET    "/v1/functions/{function}"                   describe_function    READ;
    DELETE "/v1/functions/{function}"                   delete_function      DEPLOY;
    POST   "/v1/functions/{function}/rollback"          rollback_function    DEPLOY;
    PUT    "/v1/functions/{function}/aliases/{alias}"   set_alias            DEPLOY;
    DELETE "/v1/functions/{function}/aliases/{alias}"   delete_alias         DEPLOY;
    GET    "/v1/functions/{function}/logs"              read_logs            READ;
    GET    "/v1/calls"                                  list_calls           READ;
    GET    "/v1/calls/{id}"                             describe_call        READ;
    GET    "/v1/calls/{id}/result"                      call_result          READ;
    POST   "/v1/calls/{id}/retry"                       retry_call           INVOKE;
    DELETE "/v1/calls/{id}"                             discard_call         INVOKE;
    GET    "/v1/secrets"                                list_secrets         READ;
    PUT    "/v1/secrets/{name}"                         set_secret           DEPLOY;
    DELETE "/v1/secrets/{name}"                         delete_secret        DEPLOY;
    GET    "/v1/s3"                                     list_buckets         OPERATOR;
    GET    "/v1/s3/{*path}"                             read_objects         OPERATOR;
    PUT    "/v1/s3/{*path}"                             write_objects        OPERATOR;
    POST   "/v1/s3/{*path}"                             change_objects       OPERATOR;
    DELETE "/v1/s3/{*path}"                             delete_objects       OPERATOR;
    GET    "/v1/audit"                                  read_audit           READ;
    GET    "/v1/tenants"                                list_tenants         OPERATOR;
    GET    "/v1/tenants/{tenant}"                       describe_tenant      OPERATOR;
    PUT    "/v1/tenants/{tenant}"                       create_tenant        OPERATOR;
    PATCH  "/v1/tenants/{tenant}"                       update_tenant        OPERATOR;
    DELETE "/v1/tenants/{tenant}"                       delete_tenant        OPERATOR;
    GET    "/v1/tenants/{tenant}/tokens"                list_tokens          OPERATOR;
    POST   "/v1/tenants/{tenant}/tokens"                create_token         OPERATOR;
    DELETE "/v1/tenants/{tenant}/tokens/{token}"        revoke_token         OPERATOR;
};

/// The operation of this name.
pub(crate) fn operation_of(id: &str) -> Option<&'static Operation> {
    OPERATIONS.iter().find(|operation| operation.id == id)
}

impl Operation {
    fn find(method: &Method, path: &str) -> Option<&'static Self> {
        let method = match method.as_str() {
            "HEAD" => "GET",
            method => method,
        };
        OPERATIONS
            .iter()
            .find(|operation| operation.method == method && operation.path == path)
    }

    fn is_change(&self) -> bool {
        self.method != "GET"
    }
}

/// Who calls, and whose names he means.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    /// What was shown, if it is a tenant's.
    token: Option<Arc<Token>>,
    /// Whose names are meant; `None` is the node's own tenant, whose operator sees those of all.
    tenant: Option<Name>,
}

impl Caller {
    /// The tenant; `None` is the node's own.
    pub(crate) fn tenant(&self) -> Option<&Name> {
        self.tenant.as_ref()
    }

    /// Whether what this tenant has is shown.
    pub(crate) fn sees(&self, tenant: Option<&Name>) -> bool {
        self.tenant.is_none() || self.tenant.as_ref() == tenant
    }

    /// Whether operators' addresses are this caller's to see.
    pub(crate) fn is_operator(&self) -> bool {
        self.token.is_none()
    }

    /// Ends when what this caller showed is good no more; never for the operator. What is followed ends with it.
    pub(crate) async fn shut_out(self, tenants: Arc<Tenants>) {
        let Some(token) = self.token else {
            return std::future::pending().await;
        };
        while is_good(&tenants.directory(), &token) {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Reads a function's name in a path.
    pub(crate) fn function(&self, text: &str) -> Result<FunctionRef, Failure> {
        let reference: FunctionRef = name(text)?;
        match (&self.tenant, &reference.tenant) {
            (None, _) => Ok(reference),
            (Some(tenant), None) => Ok(reference.of(Some(tenant.clone()))),
            (Some(_), Some(_)) => Err(foreign(text)),
        }
    }

    /// Reads an application's name in a path.
    pub(crate) fn application(&self, text: &str) -> Result<ApplicationId, Failure> {
        let id: ApplicationId = name(text)?;
        match (&self.tenant, &id.tenant) {
            (None, _) => Ok(id),
            (Some(tenant), None) => Ok(ApplicationId {
                tenant: Some(tenant.clone()),
                ..id
            }),
            (Some(_), Some(_)) => Err(foreign(text)),
        }
    }

    /// A function's name as this caller knows it.
    pub(crate) fn shown(&self, function: &FunctionId) -> FunctionId {
        match self.tenant {
            Some(_) => function.local(),
            None => function.clone(),
        }
    }

    /// An application's name as this caller knows it.
    pub(crate) fn shown_application(&self, application: &ApplicationId) -> ApplicationId {
        match self.tenant {
            Some(_) => application.local(),
            None => application.clone(),
        }
    }

    /// An error in the names that this caller knows.
    pub(crate) fn told(&self, error: registry::Error) -> Failure {
        match self.tenant {
            Some(_) => error.local().into(),
            None => error.into(),
        }
    }
}

/// What a tenant is told that names another, or itself: the same as of any other text that is no name.
fn foreign(text: &str) -> Failure {
    let detail = format!("`{}` is not a name", text.escape_debug());
    Failure::new(StatusCode::BAD_REQUEST, "name-invalid", detail, "")
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        // Everything but what is open has passed `check`.
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| unauthorized().into())
    }
}

/// Lets a request through, or answers it; writes down what it changed or was not allowed to.
pub(crate) async fn check(State(context): State<Context>, mut request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let operation = matched
        .as_ref()
        .and_then(|matched| Operation::find(request.method(), matched.as_str()));
    if operation.is_some_and(|operation| operation.rule == Rule::Open) {
        return next.run(request).await;
    }
    let remote = request
        .extensions()
        .get::<ConnectInfo<SocketAddr>>()
        .map(|ConnectInfo(remote)| *remote);
    let what = request.uri().path_and_query().map_or("/", |what| what.as_str());
    let what = what.chars().take(500).collect::<String>();
    let (caller, allowed) = match identify(&context, &request) {
        Ok(caller) => {
            let allowed = match operation {
                Some(operation) => may(&caller, operation.rule),
                // Nothing is there, or nothing that takes this method: a handler without a rule would be.
                None if matched.is_some() && !caller.is_operator() => {
                    let (method, uri) = (request.method().clone(), request.uri().clone());
                    return api::method_not_allowed(method, uri).await.into_response();
                }
                None => Ok(()),
            };
            (Some(caller), allowed)
        }
        Err(problem) => (None, Err(problem)),
    };
    let mut who = Who {
        tenant: caller.as_ref().and_then(|caller| caller.tenant.clone()),
        token: caller.as_ref().and_then(|caller| caller.token.clone()),
        known: caller.is_some(),
        remote,
    };
    // What is done about a tenant is the tenant's to read.
    if let Some(tenant) = what
        .strip_prefix("/v1/tenants/")
        .filter(|_| who.known && who.token.is_none())
    {
        who.tenant = tenant.split(['/', '?']).next().and_then(|name| name.parse().ok());
    }
    let action = operation.map_or("none", |operation| operation.id);
    match (allowed, caller) {
        (Ok(()), Some(caller)) => {
            request.extensions_mut().insert(caller);
            let response = next.run(request).await;
            if operation.is_some_and(Operation::is_change) {
                let code = response.extensions().get::<Code>();
                context.state.audit.write(
                    &who,
                    action,
                    &what,
                    Outcome::of(response.status(), code.map(|Code(code)| code.as_str())),
                );
            }
            response
        }
        (allowed, _) => {
            let problem = allowed.err().unwrap_or_else(unauthorized);
            let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::FORBIDDEN);
            let outcome = Outcome::of(status, Some(&problem.code));
            context.state.audit.write(&who, action, &what, outcome);
            Failure::from(problem).into_response()
        }
    }
}

fn may(caller: &Caller, rule: Rule) -> Result<(), Problem> {
    match (&caller.token, rule) {
        (None, _) | (_, Rule::Open | Rule::Any) => Ok(()),
        (Some(token), Rule::Role(role)) => token.allows(role),
        (Some(_), Rule::Operator) => Err(Problem::new(
            403,
            "operator-only",
            "only the node's operator may do this",
            "ask him, or use the node's own token",
        )),
    }
}

fn identify(context: &Context, request: &Request) -> Result<Caller, Problem> {
    let state = &context.state;
    let headers = request.headers();
    let shown = bearer(headers);
    let operator = state.token.as_deref().filter(|token| !token.is_empty());
    let is_operator = operator.is_some_and(|token| shown.is_some_and(|shown| same(shown, token)));
    let directory = state.tenants.directory();
    match (shown.filter(|shown| is_token(shown)), operator) {
        _ if is_operator => {}
        (Some(text), _) if !directory.is_empty() => {
            let found = directory.authenticate(text, now());
            let token = found.map_err(|denied| denied.problem())?.clone();
            let tenant = Some(token.tenant.clone());
            if tenant_header(headers)?.is_some_and(|named| Some(&named) != tenant.as_ref()) {
                return Err(Problem::new(
                    403,
                    "tenant-forbidden",
                    "this token is another tenant's",
                    "leave out --tenant and MILLPOND_TENANT: a token says whose it is",
                ));
            }
            return Ok(Caller {
                token: Some(token),
                tenant,
            });
        }
        (_, Some(_)) => return Err(unauthorized()),
        (_, None) => check_local(request)?,
    }
    let tenant = tenant_header(headers)?;
    if let Some(name) = tenant.as_ref().filter(|name| directory.tenant(name).is_none()) {
        return Err(tenants::Error::Unknown(name.clone()).problem());
    }
    Ok(Caller { token: None, tenant })
}

/// Whether a token that was good still is.
fn is_good(directory: &Directory, token: &Token) -> bool {
    directory.tokens(&token.tenant).any(|known| known.id == token.id)
        && token.expires.is_none_or(|end| end > now())
}

fn tenant_header(headers: &HeaderMap) -> Result<Option<Name>, Problem> {
    let Some(value) = headers.get(TENANT) else {
        return Ok(None);
    };
    let name = value.to_str().unwrap_or("?").parse::<Name>();
    name.map(Some).map_err(|error| {
        let hint = "`X-Millpond-Tenant` is the name of a tenant";
        Problem::new(400, "name-invalid", error.to_string(), hint)
    })
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, text) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| text.trim())
}

fn unauthorized() -> Problem {
    Problem::new(
        401,
        "unauthorized",
        "this node's control API needs its token",
        "send `Authorization: Bearer TOKEN`; for the command set MILLPOND_TOKEN",
    )
}

/// In a time that depends on neither text: their digests have one length.
fn same(a: &str, b: &str) -> bool {
    Sha256::digest(a).ct_eq(&Sha256::digest(b)).into()
}

/// Without a token, only what was meant for this machine: a name that an attacker points at 127.0.0.1 is his own in the
/// browser's `Host`, and his page is in its `Origin`.
fn check_local(request: &Request) -> Result<(), Problem> {
    let text = |name| {
        request
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap_or("?"))
    };
    // An absolute target speaks of its own host, whatever the header says.
    let host = request
        .uri()
        .authority()
        .map(|authority| authority.as_str())
        .or_else(|| text(header::HOST));
    let forbidden = |code: &'static str, detail: String| {
        let hint = "ask for http://127.0.0.1, http://localhost or http://[::1], or give the node a token";
        Err(Problem::new(403, code, detail, hint))
    };
    let Some(host) = host.filter(|host| is_loopback(host)) else {
        return forbidden(
            "host-forbidden",
            format!(
                "this control API does not answer for the host `{}`",
                host.unwrap_or_default()
            ),
        );
    };
    match text(header::ORIGIN) {
        Some(origin) if origin.strip_prefix("http://") != Some(host) => forbidden(
            "origin-forbidden",
            format!("this control API does not answer pages of `{origin}`"),
        ),
        _ => Ok(()),
    }
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    host.eq_ignore_ascii_case("localhost") || host == "127.0.0.1" || host == "[::1]"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn loopback_has_few_names() {
        for good in [
            "localhost",
            "LOCALHOST:9080",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:9080",
        ] {
            assert!(is_loopback(good), "{good}");
        }
        for bad in [
            "",
            ":",
            "::1",
            "localhost.evil.example",
            "evil.example:80",
            "127.0.0.1.nip.example",
            "127.0.0.1:x",
            "[::1",
            "127.0.0.2",
        ] {
            assert!(!is_loopback(bad), "{bad}");
        }
    }

    #[test]
    fn tokens_are_compared_whole() {
        let shown = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            bearer(&headers).is_some_and(|shown| same(shown, "secret"))
        };
        assert!(shown("Bearer secret") && shown("bearer  secret "));
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer secre",
            "Bearer secrets",
            "Basic secret",
            "secret",
        ] {
            assert!(!shown(bad), "{bad}");
        }
        assert!(bearer(&HeaderMap::new()).is_none());
    }

    /// The published description is made of the handlers that serve: one without a rule is not let through.
    #[test]
    fn every_operation_has_one_rule() {
        let document = crate::openapi();
        let mut served = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, described) in methods.as_object().unwrap() {
                let id = described["operationId"].as_str().unwrap();
                let method: Method = method.to_uppercase().parse().unwrap();
                let found = Operation::find(&method, path).unwrap_or_else(|| panic!("{method} {path}"));
                assert_eq!(found.id, id);
                assert!(served.insert(id.to_owned()));
            }
        }
        assert_eq!(served.len(), OPERATIONS.len(), "a rule has no handler");
    }

    #[test]
    fn a_tenant_names_nothing_of_others() {
        let tenant = Caller {
            tenant: Some("acme".parse().unwrap()),
            ..Caller::default()
        };
        assert_eq!(tenant.function("shop.f:2").unwrap().to_string(), "acme/shop.f:2");
        assert_eq!(tenant.application("shop").unwrap().to_string(), "acme/shop");
        for foreign in ["other/shop.f", "acme/shop.f"] {
            assert!(tenant.function(foreign).is_err());
        }
        assert!(tenant.application("other/shop").is_err());
        assert!(!tenant.sees(None) && !tenant.sees(Some(&"other".parse().unwrap())));
        let operator = Caller::default();
        assert_eq!(
            operator.function("acme/shop.f").unwrap().to_string(),
            "acme/shop.f"
        );
        assert!(operator.sees(None) && operator.sees(tenant.tenant()));
    }
}
