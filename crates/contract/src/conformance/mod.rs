//! The conformance suites. They panic with what was broken, so they are only ever called from tests.

/// What every [`crate::Engine`] must do.
pub mod engine;
/// What every [`crate::Store`] must do.
pub mod store;
