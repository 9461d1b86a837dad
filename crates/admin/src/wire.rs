//! What requests and answers hold. Times are RFC 3339 in UTC, sizes and durations as in a manifest.

mod calls;
mod counters;
mod deployments;
mod functions;
mod lines;
mod node;
mod secrets;
mod tenants;
mod times;
mod triggers;

pub use calls::{Call, CallCause, CallState, Callback, Calls};
pub use counters::{CoreCounters, Counters, FunctionCounters, NodeCounters, Times};
pub use deployments::{Action, Change, Code, Deployment, DeploymentRequest, Difference};
pub use functions::{
    AliasChange, AliasRequest, Application, Applications, Function, FunctionDetail, Functions,
    RollbackRequest, Settings, Version,
};
pub use lines::{AuditLine, Record};
pub use node::{Health, Node};
pub use secrets::{Secret, Secrets};
pub use tenants::{
    NewToken, Quotas, Role, Tenant, TenantRequest, Tenants, Token, TokenRequest, Tokens, Used,
};
pub(crate) use times::{milliseconds, time};
pub use triggers::{ObjectSubscription, Route, Schedule, Subscription};
