//! The node about itself.

use contract::ByteSize;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A node about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Of the program.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// Where functions are served.
    #[schema(example = "127.0.0.1:8080")]
    pub listen: String,
    /// Where functions are served by TLS, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "127.0.0.1:8443")]
    pub tls: Option<String>,
    /// Where its own S3 is, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "127.0.0.1:9000")]
    pub s3: Option<String>,
    /// Where the control API is.
    #[schema(example = "127.0.0.1:9080")]
    pub admin: String,
    /// The processors of its worker threads.
    pub cores: Vec<usize>,
    /// What isolates functions here.
    #[schema(example = json!(["wasmtime"]))]
    pub engines: Vec<String>,
    /// The largest code that may be uploaded.
    #[schema(value_type = String, example = "256MiB")]
    pub code_limit: ByteSize,
    /// When it was started.
    #[schema(format = DateTime)]
    pub started: String,
}

/// A state in a word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or `ready`.
    pub status: String,
}
