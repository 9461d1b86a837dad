//! Where a sandbox's words go: the response into a slot that the core reads at the end, the rest to the log.

use crate::{Response, Target};
use bytes::Bytes;
use contract::{RequestId, ResponseHead, ResponseSink};
use parking_lot::Mutex;
use std::sync::Arc;
use telemetry::logs::{Lines, Stream};

/// Both ends of a response that is being collected on one core. The lock is never contended: `ResponseSink` must be
/// `Send` because engines keep it where `Send` is asked for, but it stays on its thread.
#[derive(Clone, Default)]
pub(crate) struct Slot(Arc<Mutex<Response>>);

impl Slot {
    pub(crate) fn take(&self) -> Response {
        std::mem::take(&mut *self.0.lock())
    }
}

pub(crate) struct Sink {
    slot: Slot,
    target: Arc<Target>,
    request: RequestId,
    lines: Option<Lines>,
}

impl Sink {
    pub(crate) fn new(slot: Slot, target: Arc<Target>, request: RequestId) -> Self {
        Self {
            slot,
            target,
            request,
            lines: None,
        }
    }
}

impl ResponseSink for Sink {
    fn head(&mut self, head: ResponseHead) {
        self.slot.0.lock().head = Some(head);
    }

    fn body(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.slot.0.lock().body.push(chunk);
        }
    }

    fn log(&mut self, bytes: &[u8]) {
        let Self {
            target,
            request,
            lines,
            ..
        } = self;
        lines
            .get_or_insert_with(|| target.log.lines(*request, Stream::Stderr))
            .write(bytes);
    }
}
