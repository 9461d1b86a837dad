//! What the control API answers, as far as this command reads it. Unknown fields are ignored: a node may be newer.

use manifest::HttpTrigger;
use serde::Deserialize;
use serde_json::Value;

/// `GET /v1/node`.
#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    /// Where the data plane listens.
    pub(crate) listen: String,
}

/// The answer to a deployment or its plan.
#[derive(Debug, Deserialize)]
pub(crate) struct Deployment {
    pub(crate) application: String,
    #[serde(default)]
    pub(crate) changes: Vec<Change>,
    #[serde(default)]
    pub(crate) routes: Vec<HttpTrigger>,
    #[serde(default)]
    pub(crate) missing_code: Vec<String>,
}

/// What happens to one function.
#[derive(Debug, Deserialize)]
pub(crate) struct Change {
    pub(crate) function: String,
    pub(crate) action: String,
    #[serde(default)]
    pub(crate) from: Option<u32>,
    #[serde(default)]
    pub(crate) to: Option<u32>,
    #[serde(default)]
    pub(crate) differences: Vec<Difference>,
}

/// One setting that differs.
#[derive(Debug, Deserialize)]
pub(crate) struct Difference {
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) from: Option<String>,
    #[serde(default)]
    pub(crate) to: Option<String>,
}

/// A line of a log.
#[derive(Debug, Deserialize)]
pub(crate) struct Record {
    pub(crate) time: String,
    #[serde(default)]
    pub(crate) request_id: Option<String>,
    pub(crate) stream: String,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) omitted: u64,
}

/// A list under one key, or bare.
pub(crate) fn items(value: &Value, key: &str) -> Vec<Value> {
    value
        .as_array()
        .or_else(|| value[key].as_array())
        .cloned()
        .unwrap_or_default()
}
