//! Where a sandbox's words go: the response into a slot that the core reads at the end, the rest to the log.

use crate::{Response, Target};
use bytes::Bytes;
use contract::{RequestId, ResponseHead, ResponseSink};
use parking_lot::Mutex;
use std::{mem, sync::Arc};
use telemetry::logs::{Lines, Stream};

/// Both ends of a response that is being collected on one core. The lock is never contended: `ResponseSink` must be
/// `Send` because engines keep it where `Send` is asked for, but it stays on its thread.
#[derive(Clone, Default)]
pub(crate) struct Slot(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    response: Response,
    log_tail: Vec<u8>,
}

impl Slot {
    /// The response so far, and the end of the log.
    pub(crate) fn take(&self) -> (Response, Vec<u8>) {
        let Collected { response, log_tail } = mem::take(&mut *self.0.lock());
        (response, log_tail)
    }
}

pub(crate) struct Sink {
    slot: Slot,
    target: Arc<Target>,
    request: RequestId,
    /// How much of the log's end is kept.
    log_tail: usize,
    lines: Option<Lines>,
}

impl Sink {
    pub(crate) fn new(slot: Slot, target: Arc<Target>, request: RequestId, log_tail: usize) -> Self {
        Self {
            slot,
            target,
            request,
            log_tail,
            lines: None,
        }
    }
}

impl ResponseSink for Sink {
    fn head(&mut self, head: ResponseHead) {
        self.slot.0.lock().response.head = Some(head);
    }

    fn body(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.slot.0.lock().response.body.push(chunk);
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
        if self.log_tail > 0 {
            let tail = &mut self.slot.0.lock().log_tail;
            tail.extend_from_slice(&bytes[bytes.len().saturating_sub(self.log_tail)..]);
            let over = tail.len().saturating_sub(self.log_tail);
            tail.drain(..over);
        }
    }
}
