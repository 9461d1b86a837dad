//! Tenants and their tokens.

use super::milliseconds;
use contract::{ByteSize, Name};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// All tenants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tenants {
    /// By name.
    pub tenants: Vec<Tenant>,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Its name.
    #[schema(value_type = String, example = "acme")]
    pub tenant: Name,
    /// When it was made.
    #[schema(format = DateTime)]
    pub created: String,
    /// What it may use.
    pub quotas: Quotas,
    /// The hosts whose requests are for its routes.
    pub hosts: Vec<String>,
    /// Its routes answer requests for these hosts that show no token.
    pub public: bool,
    /// What its functions may be granted of objects and of AWS's services: the node's configuration says it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permitted: Vec<String>,
    /// What it uses.
    pub used: Used,
}

/// What a tenant may use. What is absent is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quotas {
    /// Functions that are deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<u32>,
    /// The sum of the memory limits of sandboxes that serve a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "1GiB")]
    pub memory: Option<ByteSize>,
    /// Sandboxes that serve a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Requests in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Requests that wait because of `concurrency` or `memory`; 1024 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// How large its share of the cores is beside other tenants' that have work; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// What a tenant uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Used {
    /// Applications that are deployed.
    pub applications: usize,
    /// Functions that are deployed.
    pub functions: usize,
    /// The sum of the memory limits of sandboxes that serve a request now.
    #[schema(value_type = String, example = "64MiB")]
    pub memory: ByteSize,
    /// Sandboxes that serve a request now.
    pub concurrency: u32,
}

/// What the operator says of a tenant. What is absent stays as it is; a quota that is `null` is lifted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantRequest {
    /// Functions that may be deployed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    pub functions: Option<Option<u32>>,
    /// What the memory limits of sandboxes that serve a request may add up to.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<String>, example = "1GiB")]
    pub memory: Option<Option<ByteSize>>,
    /// Sandboxes that may serve a request at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    pub concurrency: Option<Option<u32>>,
    /// Requests that are taken in a second.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    pub rate: Option<Option<u32>>,
    /// Requests that may wait because of `concurrency` or `memory`: what comes then is refused.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    pub queue: Option<Option<u32>>,
    /// How large its share of the cores is beside other tenants' that have work, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    pub weight: Option<Option<u32>>,
    /// The hosts whose requests are for its routes: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Whether its routes answer requests for these hosts that show no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<bool>,
}

/// Tells `null` from what is absent.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The tokens of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tokens {
    /// By id.
    pub tokens: Vec<Token>,
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Names it where it is spoken of.
    #[schema(example = "5f0c6a1e9b42")]
    pub id: String,
    /// What it was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "ci")]
    pub name: Option<String>,
    /// What its holder may do.
    pub roles: Vec<Role>,
    /// When it was made.
    #[schema(format = DateTime)]
    pub created: String,
    /// When it ends; never, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires: Option<String>,
}

/// A token that was just made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// What is known of it later.
    #[serde(flatten)]
    pub about: Token,
    /// What its holder shows. It is told here and never again.
    #[schema(example = "mp_5f0c6a1e9b42_…")]
    pub token: String,
}

/// What a token is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// What its holder may do.
    pub roles: Vec<Role>,
    /// What it is called in lists and audit lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "ci")]
    pub name: Option<String>,
    /// How long it is good for; for ever, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "90d")]
    pub expires_in: Option<String>,
}

/// What the holder of a token may do for its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Deploy, roll back and delete.
    Deploy,
    /// Have functions run.
    Invoke,
    /// See what is deployed, logs, calls and their results, numbers.
    Read,
}

impl From<tenants::Role> for Role {
    fn from(role: tenants::Role) -> Self {
        match role {
            tenants::Role::Deploy => Self::Deploy,
            tenants::Role::Invoke => Self::Invoke,
            tenants::Role::Read => Self::Read,
        }
    }
}

impl From<Role> for tenants::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Deploy => Self::Deploy,
            Role::Invoke => Self::Invoke,
            Role::Read => Self::Read,
        }
    }
}

impl From<&tenants::Token> for Token {
    fn from(token: &tenants::Token) -> Self {
        Self {
            id: token.id.clone(),
            name: token.name.clone(),
            roles: token.roles.iter().map(|role| (*role).into()).collect(),
            created: milliseconds(token.created),
            expires: token.expires.map(milliseconds),
        }
    }
}
