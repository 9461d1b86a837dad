//! The shell: events go to the log, and then to the index.

mod accept;
mod attempts;
mod look;
mod options;
mod storage;
mod upkeep;

pub use look::{Counts, Kind};
pub use options::Options;

use crate::{Error, Timestamp, index::Index};
use contract::Log;
use parking_lot::Mutex;
use std::sync::Arc;

/// The name of the log.
const LOG: &str = "calls";
/// Bytes of a request or response beside its body. As JSON text they can become six times as many.
const HEAD_LIMIT: usize = 256 << 10;
/// Bytes of events in one append, give or take one.
const APPEND_BYTES: usize = 8 << 20;
/// Records that are read at a time in a replay, or carried forward.
const STRIDE: usize = 64;
/// One server may be what this part of all pending calls, or of their bytes, waits for.
const SHARE: usize = 2;

/// All asynchronous calls of a node. Clones are the same calls. Every method but [`Calls::submit_then`] and those that
/// only look at the index may block on the disk.
#[derive(Clone)]
pub struct Calls(Arc<Shared>);

struct Shared {
    log: Arc<dyn Log>,
    options: Options,
    bell: Box<dyn Fn() + Send + Sync>,
    /// Held for lookups and updates only, never across a wait.
    index: Mutex<Index>,
}

impl Calls {
    /// Reads what is in the log. What was running when the last owner ended is due again.
    ///
    /// `bell` is rung, on any thread, when a call has become due because of somebody other than the driver: by a
    /// submission or a retry by hand. It must be quick.
    pub fn open(
        log: Arc<dyn Log>,
        options: Options,
        now: Timestamp,
        bell: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let mut index = Index::default();
        index.reached(log.extent(LOG)?.first);
        loop {
            let records = log.read(LOG, index.end(), STRIDE)?;
            if records.is_empty() {
                break;
            }
            for record in records {
                let bytes = record.data.len() as u64;
                let (event, _) = storage::decode(record.position, record.data)?;
                index.apply(record.position, bytes, &event);
            }
        }
        index.recover(now, options.longest_delay);
        Ok(Self(Arc::new(Shared {
            log,
            options,
            bell: Box::new(bell),
            index: Mutex::new(index),
        })))
    }
}

fn headers_size(headers: &[(String, Vec<u8>)]) -> usize {
    headers.iter().map(|(name, value)| name.len() + value.len()).sum()
}
