//! Who has the objects.

use axum::{
    body::Body,
    http::{Request, Response},
};
use std::{future::Future, pin::Pin};

/// The S3 of the node, for its operator.
pub trait Objects: Send + Sync {
    /// What it answers to a request whose path is that of a bucket or object, and which needs no signature.
    fn answer(&self, request: Request<Body>) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
}
