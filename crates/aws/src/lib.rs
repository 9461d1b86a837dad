//! What services of AWS have in common: as whom the node asks them, how that is signed, the connections to them, and what functions were denied.

#![forbid(unsafe_code)]

mod client;
mod credentials;
mod denials;
mod place;
mod sign;

pub use aws_smithy_runtime_api::{client::identity::Identity, http::Headers as Fields};
pub use client::{Client, Progress, TrustError};
pub use credentials::{
    Credentials, CredentialsError, Role, RoleError, RoleOptions, RoleSessionError, identity,
};
pub use denials::Denials;
pub use place::{domain, is_region, origin};
pub use sign::Signer;
