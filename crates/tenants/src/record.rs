//! The documents in the store. They outlive the release that wrote them: a field is added with a default, never renamed.

use crate::Error;
use contract::{ByteSize, Digest, Entry, Name};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{collections::BTreeSet, fmt};

pub(crate) const TENANTS: &str = "tenant/";
pub(crate) const TOKENS: &str = "token/";

/// What the holder of a token may do for its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Deploy, roll back and delete.
    Deploy,
    /// Have functions run.
    Invoke,
    /// See what is deployed, logs, calls and their results, numbers.
    Read,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deploy => "deploy",
            Self::Invoke => "invoke",
            Self::Read => "read",
        })
    }
}

/// What a tenant may use. What is absent is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quotas {
    /// Functions that are deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<u32>,
    /// The sum of the memory limits of sandboxes that serve a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// Sandboxes that serve a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Requests in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Requests that wait because of `concurrency` or `memory`; [`Quotas::QUEUE`] if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// How large its share of the cores is beside other tenants' that have work; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

impl Quotas {
    /// How many requests wait for a tenant's quotas, unless they say otherwise.
    pub const QUEUE: u32 = 1024;
}

/// What the operator says of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// What it may use.
    pub quotas: Quotas,
    /// The names of hosts whose requests are for its routes, in lower case.
    pub hosts: Vec<String>,
    /// Its routes answer requests for these hosts that show no token.
    pub public: bool,
}

/// `tenant/…`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TenantRecord {
    /// Milliseconds since 1970, as all times here.
    pub(crate) created: u64,
    #[serde(flatten)]
    pub(crate) settings: Settings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deleted: Option<u64>,
}

/// `token/…`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TokenRecord {
    pub(crate) tenant: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) roles: BTreeSet<Role>,
    pub(crate) created: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<u64>,
    /// Of the secret.
    pub(crate) digest: Digest,
}

pub(crate) fn read<T: DeserializeOwned>(entry: &Entry) -> Result<T, Error> {
    serde_json::from_slice(&entry.value).map_err(|error| Error::Record {
        key: entry.key.clone(),
        reason: error.to_string(),
    })
}

pub(crate) fn write<T: Serialize>(key: &str, record: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(record).map_err(|error| Error::Record {
        key: key.to_owned(),
        reason: error.to_string(),
    })
}
