//! Lines: of a function's log, and of the audit.

use contract::{FunctionId, Name, VersionNumber};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use utoipa::ToSchema;

/// A line of a function's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Record {
    /// When the line was complete.
    #[schema(format = DateTime)]
    pub time: String,
    /// The function.
    #[schema(value_type = String, example = "shop.resize")]
    pub function: FunctionId,
    /// Its version.
    #[schema(value_type = u32)]
    pub version: VersionNumber,
    /// The request that said it, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// `stdout`, `stderr`, or `platform` for the node's own words.
    pub stream: String,
    /// The line, without its end.
    pub message: String,
    /// How many bytes of it were left out because it was too long.
    #[serde(default)]
    pub omitted: u64,
}

/// A line of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditLine {
    /// When it was.
    #[schema(format = DateTime)]
    pub time: String,
    /// Whose things it is about; the node's own, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub tenant: Option<Name>,
    /// `operator`, `token`, or `unknown`.
    pub by: String,
    /// The token's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// What the token is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_name: Option<String>,
    /// Where the request came from. A tenant is not told the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub remote: Option<SocketAddr>,
    /// The operation, as this description names it.
    pub action: String,
    /// What it was about: path and query of the request.
    pub what: String,
    /// `done`, `refused`, or `failed`.
    pub outcome: String,
    /// The status of the answer.
    pub status: u16,
    /// The code of the answer's problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Refusals of unknown callers before this line that were too many to be kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}
