use super::{Result, blocking};
use crate::{
    Context,
    failure::{Document, Failure, Names, name},
    wire,
};
use axum::{Json, extract::State, http::StatusCode};
use contract::{ByteSize, Name};
use std::time::{SystemTime, UNIX_EPOCH};
use tenants::{Settings, Tenant};

/// The longest name of a token.
const LONGEST_NAME: usize = 100;

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn shown(context: &Context, tenant: &Tenant) -> wire::Tenant {
    let snapshot = context.state.registry.snapshot();
    let applications: Vec<_> = snapshot.of_tenant(Some(&tenant.name)).collect();
    let (concurrency, memory) = tenant.allowance.used();
    let quotas = tenant.quotas();
    wire::Tenant {
        tenant: tenant.name.clone(),
        created: wire::milliseconds(tenant.created),
        quotas: wire::Quotas {
            functions: quotas.functions,
            memory: quotas.memory,
            concurrency: quotas.concurrency,
            rate: quotas.rate,
            queue: quotas.queue,
            weight: quotas.weight,
        },
        hosts: tenant.settings.hosts.clone(),
        public: tenant.settings.public,
        permitted: context.state.registry.permits().of(&tenant.name).told().collect(),
        used: wire::Used {
            applications: applications.len(),
            functions: applications
                .iter()
                .map(|(_, application)| application.functions.len())
                .sum(),
            memory: ByteSize(memory),
            concurrency,
        },
    }
}

fn change(settings: &mut Settings, request: wire::TenantRequest) {
    let wire::TenantRequest {
        functions,
        memory,
        concurrency,
        rate,
        queue,
        weight,
        hosts,
        public,
    } = request;
    let quotas = &mut settings.quotas;
    quotas.functions = functions.unwrap_or(quotas.functions);
    quotas.memory = memory.unwrap_or(quotas.memory);
    quotas.concurrency = concurrency.unwrap_or(quotas.concurrency);
    quotas.rate = rate.unwrap_or(quotas.rate);
    quotas.queue = queue.unwrap_or(quotas.queue);
    quotas.weight = weight.unwrap_or(quotas.weight);
    if let Some(hosts) = hosts {
        settings.hosts = hosts;
    }
    settings.public = public.unwrap_or(settings.public);
}

fn check(request: &wire::TenantRequest) -> Result<()> {
    if request.rate == Some(Some(0)) {
        return Err(Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "tenant-quota",
            "a rate of 0 requests in a second would let nothing in",
            "leave the tenant no token with the role invoke, or set its concurrency to 0",
        ));
    }
    if let Some(Some(weight)) = request.weight
        && !(1..=1000).contains(&weight)
    {
        return Err(Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "tenant-quota",
            format!("a weight of {weight} is none: weights are 1 to 1000"),
            "give tenants that are to have more than others a larger weight; `none` is 1",
        ));
    }
    Ok(())
}

/// All tenants, with what they may use and what they use
#[utoipa::path(get, operation_id = "list_tenants", path = "/v1/tenants", tag = "tenants",
    responses((status = 200, description = "The tenants", body = wire::Tenants)))]
pub(crate) async fn list(State(context): State<Context>) -> Json<wire::Tenants> {
    let directory = context.state.tenants.directory();
    let tenants = directory.tenants().map(|tenant| shown(&context, tenant));
    Json(wire::Tenants {
        tenants: tenants.collect(),
    })
}

/// One tenant
#[utoipa::path(get, operation_id = "describe_tenant", path = "/v1/tenants/{tenant}", tag = "tenants",
    params(("tenant" = String, Path, description = "The tenant's name")),
    responses((status = 200, description = "The tenant", body = wire::Tenant)))]
pub(crate) async fn describe(
    State(context): State<Context>,
    Names(text): Names<String>,
) -> Result<Json<wire::Tenant>> {
    let name: Name = name(&text)?;
    let directory = context.state.tenants.directory();
    let tenant = directory.tenant(&name).ok_or(tenants::Error::Unknown(name))?;
    Ok(Json(shown(&context, tenant)))
}

/// Make a tenant
///
/// 409 if there is one of this name, or was: names are not given again.
#[utoipa::path(put, operation_id = "create_tenant", path = "/v1/tenants/{tenant}", tag = "tenants",
    params(("tenant" = String, Path, description = "The tenant's name")),
    request_body = wire::TenantRequest,
    responses((status = 201, description = "The tenant", body = wire::Tenant)))]
pub(crate) async fn create(
    State(context): State<Context>,
    Names(text): Names<String>,
    Document(request): Document<wire::TenantRequest>,
) -> Result<(StatusCode, Json<wire::Tenant>)> {
    let name: Name = name(&text)?;
    check(&request)?;
    let tenants = context.state.tenants.clone();
    let made = blocking("make a tenant", move || {
        let mut settings = Settings::default();
        change(&mut settings, request);
        Ok(tenants.create(&name, settings, now())?)
    })
    .await?;
    Ok((StatusCode::CREATED, Json(shown(&context, &made))))
}

/// Change a tenant's quotas and hosts
///
/// They hold from now on; what runs is not ended.
#[utoipa::path(patch, operation_id = "update_tenant", path = "/v1/tenants/{tenant}", tag = "tenants",
    params(("tenant" = String, Path, description = "The tenant's name")),
    request_body = wire::TenantRequest,
    responses((status = 200, description = "The tenant", body = wire::Tenant)))]
pub(crate) async fn update(
    State(context): State<Context>,
    Names(text): Names<String>,
    Document(request): Document<wire::TenantRequest>,
) -> Result<Json<wire::Tenant>> {
    let name: Name = name(&text)?;
    check(&request)?;
    let tenants = context.state.tenants.clone();
    let changed = blocking("change a tenant", move || {
        Ok(tenants.update(&name, |settings| change(settings, request))?)
    })
    .await?;
    Ok(Json(shown(&context, &changed)))
}

/// Delete a tenant, its tokens and its secrets
///
/// 409 while it has applications.
#[utoipa::path(delete, operation_id = "delete_tenant", path = "/v1/tenants/{tenant}", tag = "tenants",
    params(("tenant" = String, Path, description = "The tenant's name")),
    responses((status = 204, description = "It is deleted")))]
pub(crate) async fn delete(State(context): State<Context>, Names(text): Names<String>) -> Result<StatusCode> {
    let name: Name = name(&text)?;
    let (registry, tenants) = (context.state.registry.clone(), context.state.tenants.clone());
    let secrets = context.state.secrets.clone();
    blocking("delete a tenant", move || {
        // Nothing is deployed between the count and the deletion, and after it deployments find no tenant.
        registry.while_unchanged(|snapshot| {
            let applications = snapshot.of_tenant(Some(&name)).count();
            tenants.delete(&name, applications, now())
        })?;
        // Nobody could use them any more: its name is not given again.
        for (id, _) in secrets.list() {
            let application = id.application.as_ref();
            if application.and_then(|id| id.tenant.as_ref()) == Some(&name) {
                let deleted = secrets.delete(&id);
                deleted.map_err(|error| Failure::internal("delete the tenant's secrets", &error))?;
            }
        }
        Ok(())
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A tenant's tokens
#[utoipa::path(get, operation_id = "list_tokens", path = "/v1/tenants/{tenant}/tokens", tag = "tenants",
    params(("tenant" = String, Path, description = "The tenant's name")),
    responses((status = 200, description = "Its tokens, without their secrets", body = wire::Tokens)))]
pub(crate) async fn list_tokens(
    State(context): State<Context>,
    Names(text): Names<String>,
) -> Result<Json<wire::Tokens>> {
    let name: Name = name(&text)?;
    let directory = context.state.tenants.directory();
    if directory.tenant(&name).is_none() {
        return Err(tenants::Error::Unknown(name).into());
    }
    let tokens = directory.tokens(&name).map(|token| (&**token).into()).collect();
    Ok(Json(wire::Tokens { tokens }))
}

/// Make a token for a tenant
///
/// The answer has the token, which is told nowhere else: the node keeps its SHA-256.
#[utoipa::path(post, operation_id = "create_token", path = "/v1/tenants/{tenant}/tokens", tag = "tenants",
    params(("tenant" = String, Path, description = "The tenant's name")),
    request_body = wire::TokenRequest,
    responses((status = 201, description = "The token", body = wire::NewToken)))]
pub(crate) async fn create_token(
    State(context): State<Context>,
    Names(text): Names<String>,
    Document(request): Document<wire::TokenRequest>,
) -> Result<(StatusCode, Json<wire::NewToken>)> {
    let name: Name = name(&text)?;
    let wrong =
        |detail: String, hint| Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "token-request", detail, hint);
    let is_bad = |name: &String| name.is_empty() || name.chars().count() > LONGEST_NAME;
    if request.name.as_ref().is_some_and(is_bad) {
        let detail = format!("the name of a token has 1 to {LONGEST_NAME} characters");
        return Err(wrong(detail, "leave it out, or shorten it"));
    }
    let now = now();
    let expires = match &request.expires_in {
        None => None,
        Some(text) => {
            let after = humantime::parse_duration(text).map_err(|error| {
                let detail = format!("`{text}` is not a time for which a token is good: {error}");
                wrong(detail, "for example 12h or 90d")
            })?;
            Some(now.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)))
        }
    };
    let new = tenants::NewToken {
        name: request.name,
        roles: request.roles.into_iter().map(Into::into).collect(),
        expires,
    };
    let tenants = context.state.tenants.clone();
    let (token, secret) =
        blocking("make a token", move || Ok(tenants.create_token(&name, new, now)?)).await?;
    let answer = wire::NewToken {
        about: (&*token).into(),
        token: secret.reveal(),
    };
    Ok((StatusCode::CREATED, Json(answer)))
}

/// Revoke a token
///
/// It opens nothing from now on.
#[utoipa::path(delete, operation_id = "revoke_token", path = "/v1/tenants/{tenant}/tokens/{token}", tag = "tenants",
    params(
        ("tenant" = String, Path, description = "The tenant's name"),
        ("token" = String, Path, description = "The token's id"),
    ),
    responses((status = 204, description = "It is revoked")))]
pub(crate) async fn revoke_token(
    State(context): State<Context>,
    Names((text, id)): Names<(String, String)>,
) -> Result<StatusCode> {
    let name: Name = name(&text)?;
    let tenants = context.state.tenants.clone();
    blocking("revoke a token", move || Ok(tenants.revoke(&name, &id)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}
