//! Who shares a node: tenants, the tokens by which they are known, and what they may use.
//!
//! | module | what |
//! |---|---|
//! | `record` | what the store keeps of a tenant and of a token |
//! | `token` | a token's text: made of random bits, read, compared |
//! | `directory` | all tenants and tokens at one moment, as every core looks them up |
//! | `allowance` | what a tenant uses now, against its quotas; one for all cores |
//! | `tenants` | changes, each on the disk before it is seen |
//!
//! # Whose request it is
//! [`Directory::authenticate`] leads from a token to its tenant and roles, [`Directory::of_host`] from a host name to its
//! tenant. Whoever is neither speaks to the node's own tenant, which is no entry here: it has no quotas and needs no tokens.
//! While there are no tenants, [`Directory::is_empty`] says so and nothing is looked at.
//!
//! # What is kept
//! | key | what |
//! |---|---|
//! | `tenant/NAME` | quotas, hosts, whether its hosts are open to everybody; once it is deleted, only when that was |
//! | `token/ID` | its tenant, roles, name, when it ends, and the SHA-256 of its secret |
//!
//! The record of a deleted tenant stays, so that nobody else is ever given its name: logs, audit lines and results of
//! asynchronous calls outlive a tenant, and must not become another's.

#![forbid(unsafe_code)]

mod allowance;
mod directory;
mod error;
mod record;
mod tenants;
mod token;

pub use allowance::{Allowance, Share};
pub use directory::{Denied, Directory, Tenant, Token};
pub use error::Error;
pub use record::{Quotas, Role, Settings};
pub use tenants::{NewToken, Tenants};
pub use token::{Secret, is_token};
