//! What services of AWS have in common: as whom the node asks them, the connections to them, and what functions were denied.

#![forbid(unsafe_code)]

mod client;
mod credentials;
mod denials;

pub use aws_smithy_runtime_api::client::identity::Identity;
pub use client::{Client, Progress, TrustError};
pub use credentials::{Credentials, CredentialsError, identity};
pub use denials::Denials;
