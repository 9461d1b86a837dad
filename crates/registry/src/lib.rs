//! What is deployed on this node: applications, their functions, immutable versions, aliases, and the code and images
//! behind them.
//!
//! Below it lie the [`contract::Store`] for what must be atomic and the node's data folder for what is large; above it
//! the dispatcher turns each [`Snapshot`] into its table of routes, and the control API calls [`Registry::deploy`] and
//! its like. Everything here may block on a disk or a compiler: nobody calls it on a worker's core, but for
//! [`Version::loaded`] and what hangs on a [`Snapshot`].
//!
//! # What is kept where
//!
//! | where | what |
//! |---|---|
//! | `code/SHA256.wasm` | code as it was uploaded |
//! | `artefacts/ENGINE-FINGERPRINT/SHA256` | code as an engine compiled it; the last part is the *code's* digest |
//! | `pieces/ENGINE-FINGERPRINT/APPLICATION.FUNCTION/pieces` | what the last compile of a large module left for the next of the same function |
//! | beside it: `SHA256` | an artefact that was compiled with pieces, which is that function's alone |
//! | key `artefact/ENGINE/FINGERPRINT/[APPLICATION.FUNCTION/]SHA256` | the digest of that file: what does not match it is never mapped |
//! | key `counter/APPLICATION` (here and below `TENANT/APPLICATION` for a tenant's) | the last version number of each function it ever had; never deleted |
//! | key `version/APPLICATION/FUNCTION/NUMBER` | one immutable version: its code's digest and its settings |
//! | key `usage/APPLICATION/FUNCTION/NUMBER` | what that version's requests used: its [`History`]. Advisory: what cannot be read is forgotten |
//! | key `application/APPLICATION` | which versions there are, which aliases, which routes |
//!
//! # The way of a deployment
//!
//! 1. Plan: compare the manifest with what is live. Pure; see the module `plan`.
//! 2. Compile and load what is new. Files are written under another name, flushed and renamed; an artefact's record
//!    follows its file.
//! 3. Reserve version numbers, by a compare-and-set of `counter/…`. A number that a crash wastes stays wasted.
//! 4. Write the version records.
//! 5. Compare-and-set `application/…`: the moment of the deployment. A crash before it leaves the old state and litter,
//!    which the next start collects; a crash after it leaves the new one.
//! 6. Publish the new snapshot to the subscribers. Requests that are under way keep the [`Version`] they have.
//! 7. Delete the records of versions that fell off the end.

#![forbid(unsafe_code)]

mod crash;
mod disk;
mod error;
mod history;
mod images;
mod once;
mod permits;
mod plan;
mod record;
mod registry;
mod routes;
mod snapshot;
mod tiers;

pub use disk::Stored;
pub use error::Error;
pub use history::{Distribution, HALF_LIFE, History, Usage, ticks};
pub use permits::{Beyond, Permit, Permits};
pub use plan::{Action, Difference, FunctionChange, Plan};
pub use record::{LIVE, Settings};
pub use registry::{Admit, Fits, Options, Registry};
pub use snapshot::{Application, Function, Snapshot, Version};
pub use tiers::{AUTO, Next, NextState, Tier, Tiers};

#[cfg(test)]
mod tests;
