//! Who runs code that is not deployed.

use bytes::Bytes;
use contract::{HeadBuilder, Problem, ResponseHead};
use registry::Version;
use std::{future::Future, pin::Pin, sync::Arc};

/// Runs a version that no name leads to, for one request.
pub trait Once: Send + Sync {
    /// Gives the request its id. What was measured and logged of the version is gone with its answer.
    fn run(
        &self,
        version: Arc<Version>,
        head: HeadBuilder,
        body: Bytes,
    ) -> Pin<Box<dyn Future<Output = Ran> + Send>>;
}

/// What a request came to.
#[derive(Debug)]
pub struct Ran {
    /// The function's answer, or why there is none.
    pub answer: Result<(ResponseHead, Bytes), Problem>,
    /// The end of its log.
    pub log: Vec<u8>,
    /// How long each phase took, as the `Server-Timing` header has it.
    pub timing: String,
}
