//! The conformance suites. They panic with what was broken, so they are only ever called from tests.

/// What every [`crate::Engine`] must do.
pub mod engine;
/// From a guest's text to its end: what the engine suite is made of.
pub mod guest;
/// What every [`crate::Log`] must do.
pub mod log;
/// What every [`crate::Service`] must do.
pub mod service;
/// What every [`crate::Store`] must do.
pub mod store;
