//! Secrets, without their values.

use contract::{ApplicationId, FunctionId, SecretName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The secrets of a node. Values are never told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secrets {
    /// By application, those of the node first, and by name.
    pub secrets: Vec<Secret>,
}

/// A secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    /// Its name.
    #[schema(value_type = String, example = "API_KEY")]
    pub name: SecretName,
    /// The application whose secret it is; that of all applications, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "shop")]
    pub application: Option<ApplicationId>,
    /// When its value was set.
    #[schema(format = DateTime)]
    pub set: String,
    /// The functions of which a version that has an alias uses it.
    #[schema(value_type = Vec<String>, example = json!(["shop.resize"]))]
    pub functions: Vec<FunctionId>,
}
