//! What guests and the platform say about requests, line by line.
//!
//! ```text
//! core 0: FunctionLog ─▶ Lines ─┐                      ┌─▶ files: DIR/shop.resize.log, .log.1
//! core 1: FunctionLog ─▶ Lines ─┼─ bounded queue ─▶ writer ─▶ followers, a bounded queue each
//! deploy: FunctionLog::platform ┘                      └─ says what was dropped
//! ```
//!
//! A core never waits for the log. It splits a guest's output into lines and offers each to a bounded queue; what does
//! not fit is dropped and counted, and the writer reports the count in the log itself. Three bounds hold, so that one
//! noisy function costs others nothing:
//! - each function has a budget of bytes a second ([`LogOptions::rate`]),
//! - each function has at most [`LogOptions::queue_bytes_per_function`] in the queue,
//! - all of them together have at most [`LogOptions::queue_bytes`] and [`LogOptions::queue_lines`].
//!
//! Records are read from the files, which the operating system keeps in memory while they are fresh; there is no second
//! copy here that could differ from them or outgrow the node. [`Logs::follow`] joins the two without a gap or a
//! repetition: under the writer's lock it registers the follower and notes how long the files are.
//!
//! # Shutdown
//! [`Logs::close`] (or dropping the last [`Logs`]) writes what was queued before it, ends the followers and then the
//! writer's thread. What is logged later is dropped.

mod budget;
mod files;
mod follow;
mod lines;
mod record;
mod writer;

pub use follow::Follower;
pub use record::{Filter, Record, Stream};

use crate::metrics::{Exposition, Kind};
use budget::Budget;
use contract::{FunctionId, RequestId, VersionNumber};
use files::Files;
use lines::Splitter;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst},
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Instant, SystemTime},
};
use writer::{Output, Tap, Writer};

/// What a line costs beyond its own bytes, in a budget and in the queue.
const LINE_OVERHEAD: usize = 128;

/// Sizes of a node's log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Size at which a function's file is ended and a new one begun; the one before is kept, so a function has twice this
    /// on disk.
    pub file_bytes: u64,
    /// Bytes a second that one function may log, each line counted as its length and 128 bytes.
    pub rate: u64,
    /// Bytes that one function may log at once.
    pub burst: u64,
    /// Lines that may wait for the writer.
    pub queue_lines: usize,
    /// Bytes that may wait for the writer.
    pub queue_bytes: usize,
    /// Bytes of one function that may wait for the writer.
    pub queue_bytes_per_function: usize,
    /// Records that may wait for one follower.
    pub follower_lines: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            file_bytes: 8 << 20,
            rate: 2 << 20,
            burst: 1 << 20,
            queue_lines: 4096,
            queue_bytes: 8 << 20,
            queue_bytes_per_function: 1 << 20,
            follower_lines: 1024,
        }
    }
}

/// The log could not be opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Its folder cannot be used.
    #[error("failed to open the log folder {}: check that it can be written", folder.display())]
    Open {
        /// The folder.
        folder: PathBuf,
        /// What came of it.
        source: io::Error,
    },
    /// The writer's thread did not start.
    #[error("failed to start the log's writer thread")]
    Thread(#[source] io::Error),
    /// A function's files cannot be read or deleted.
    #[error("failed to {attempt} the log of {function}")]
    File {
        /// What was attempted.
        attempt: &'static str,
        /// Whose files.
        function: FunctionId,
        /// What came of it.
        source: io::Error,
    },
}

/// The log of a node. Cloning gives another handle.
#[derive(Clone)]
pub struct Logs {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    options: LogOptions,
    accounts: Mutex<HashMap<FunctionId, Weak<Account>>>,
    writer: Mutex<Option<thread::JoinHandle<()>>>,
}

/// What the cores, the writer and the readers share.
#[derive(Debug)]
struct Shared {
    queue: SyncSender<Message>,
    queued_bytes: AtomicUsize,
    queue_bytes: usize,
    queue_bytes_per_function: usize,
    /// The clock of the budgets starts here.
    started: Instant,
    /// Those who had a line dropped that was not reported yet.
    debtors: Mutex<Vec<Arc<Account>>>,
    output: Mutex<Output>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// What is known of one function, all its versions together.
#[derive(Debug)]
struct Account {
    function: FunctionId,
    budget: Budget,
    queued_bytes: AtomicUsize,
    dropped: AtomicU64,
    /// Of the line that was dropped last.
    dropped_version: AtomicU32,
    /// Is among the debtors.
    listed: AtomicBool,
}

#[derive(Debug)]
enum Message {
    Line(Line),
    /// Answered when all before it is written.
    Barrier(SyncSender<()>),
    /// There are debtors.
    Nudge,
    Close,
}

#[derive(Debug)]
struct Line {
    log: Arc<FunctionLog>,
    time: SystemTime,
    request: Option<RequestId>,
    stream: Stream,
    message: String,
    omitted: u64,
    /// What it takes of the queue.
    cost: usize,
}

/// The log of one version of a function: keep it beside the version's image.
#[derive(Debug)]
pub struct FunctionLog {
    version: VersionNumber,
    account: Arc<Account>,
    shared: Arc<Shared>,
}

/// One stream of one request, whatever pieces it comes in. Dropping it ends the stream: an unfinished line becomes one.
#[derive(Debug)]
pub struct Lines {
    log: Arc<FunctionLog>,
    request: RequestId,
    stream: Stream,
    splitter: Splitter,
}

impl Logs {
    /// Opens the log in a folder, which is made if need be, and starts its writer.
    pub fn open(folder: &Path, options: LogOptions) -> Result<Self, Error> {
        let files = Files::open(folder, options.file_bytes).map_err(|source| Error::Open {
            folder: folder.to_owned(),
            source,
        })?;
        let (queue, messages) = sync_channel(options.queue_lines.max(1));
        let shared = Arc::new(Shared {
            queue,
            queued_bytes: AtomicUsize::new(0),
            queue_bytes: options.queue_bytes,
            queue_bytes_per_function: options.queue_bytes_per_function,
            started: Instant::now(),
            debtors: Mutex::default(),
            output: Mutex::new(Output::new(files)),
            counts: Counts::default(),
        });
        let writer = Writer::new(messages, shared.clone());
        let writer = thread::Builder::new()
            .name("millpond-log".to_owned())
            .spawn(move || writer.run())
            .map_err(Error::Thread)?;
        let inner = Inner {
            shared,
            options,
            accounts: Mutex::default(),
            writer: Mutex::new(Some(writer)),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The log of a version. Takes a lock: call it at deploy, not for each request.
    pub fn function(&self, function: &FunctionId, version: VersionNumber) -> Arc<FunctionLog> {
        let mut accounts = self.inner.accounts.lock();
        let account = accounts.get(function).and_then(Weak::upgrade).unwrap_or_else(|| {
            accounts.retain(|_, account| account.strong_count() > 0);
            let account = Arc::new(Account {
                function: function.clone(),
                budget: Budget::new(self.inner.options.rate, self.inner.options.burst),
                queued_bytes: AtomicUsize::new(0),
                dropped: AtomicU64::new(0),
                dropped_version: AtomicU32::new(1),
                listed: AtomicBool::new(false),
            });
            accounts.insert(function.clone(), Arc::downgrade(&account));
            account
        });
        Arc::new(FunctionLog {
            version,
            account,
            shared: self.inner.shared.clone(),
        })
    }

    /// The last `n` records of a filter, oldest first; everything that was logged before the call is among those
    /// considered. Blocks for the writer and the disk.
    pub fn tail(&self, filter: &Filter, n: usize) -> Result<Vec<Record>, Error> {
        self.flush();
        let reader = self.inner.shared.output.lock().files.read(&filter.function);
        reader
            .and_then(|reader| reader.tail(filter, n))
            .map_err(|source| Error::file("read", filter, source))
    }

    /// The last `tail` records of a filter and then every one that comes. Blocks for the disk; the follower does not.
    pub fn follow(&self, filter: &Filter, tail: usize) -> Result<Follower, Error> {
        if tail > 0 {
            self.flush();
        }
        let (feed, follower) = follow::channel(filter.clone(), self.inner.options.follower_lines);
        let mut output = self.inner.shared.output.lock();
        let reader = if tail > 0 {
            Some(output.files.read(&filter.function))
        } else {
            None
        };
        output.follow(feed);
        drop(output);
        let records = reader
            .map_or(Ok(Vec::new()), |reader| {
                reader.and_then(|reader| reader.tail(filter, tail))
            })
            .map_err(|source| Error::file("read", filter, source))?;
        follower.prepend(records);
        Ok(follower)
    }

    /// Has every record shown to `tap` from now on, on the writer's thread: it must not block.
    pub fn tap(&self, tap: impl Fn(&Arc<Record>) + Send + 'static) {
        self.inner.shared.output.lock().tap(Tap(Box::new(tap)));
    }

    /// Deletes what a function has logged. To be called when the function is deleted and its last request has ended.
    pub fn delete(&self, function: &FunctionId) -> Result<(), Error> {
        self.flush();
        let deleted = self.inner.shared.output.lock().files.delete(function);
        deleted.map_err(|source| Error::file("delete", &Filter::function(function.clone()), source))
    }

    /// Waits until everything that was logged before is written.
    pub fn flush(&self) {
        self.inner.flush();
    }

    /// Writes what was logged before, ends all followers and the writer. Does nothing the second time.
    pub fn close(&self) {
        self.inner.close();
    }

    /// Adds the log's own counts to a page of metrics.
    pub fn render(&self, page: &mut Exposition) {
        let counts = &self.inner.shared.counts;
        for (name, help, count) in [
            (
                "millpond_log_lines_total",
                "Lines written to the logs of functions.",
                &counts.written,
            ),
            (
                "millpond_log_lines_dropped_total",
                "Lines dropped because a function logged too fast or the queue was full.",
                &counts.dropped,
            ),
            (
                "millpond_log_lines_failed_total",
                "Lines that could not be written to disk.",
                &counts.failed,
            ),
        ] {
            page.single(Kind::Counter, name, help, count.load(Relaxed));
        }
    }
}

impl Error {
    fn file(attempt: &'static str, filter: &Filter, source: io::Error) -> Self {
        Self::File {
            attempt,
            function: filter.function.clone(),
            source,
        }
    }
}

impl Inner {
    fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.shared.queue.send(Message::Barrier(done)).is_ok() {
            // An error says that the writer has ended, and with it everything there was to wait for.
            let _ = wait.recv();
        }
    }

    fn close(&self) {
        if let Some(writer) = self.writer.lock().take() {
            // The writer has gone if nobody takes the message, or panicked if it cannot be joined: it is over either way.
            let _ = self.shared.queue.send(Message::Close);
            let _ = writer.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logs")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

impl FunctionLog {
    /// A stream of a request. Make it when the guest first says something: most never do, and this counts a reference.
    pub fn lines(self: &Arc<Self>, request: RequestId, stream: Stream) -> Lines {
        Lines {
            log: self.clone(),
            request,
            stream,
            splitter: Splitter::default(),
        }
    }

    /// A line of the platform's about a request, or about the function as a whole. Never blocks.
    pub fn platform(self: &Arc<Self>, request: Option<RequestId>, message: &str) {
        let mut splitter = Splitter::default();
        let mut line = |line: &[u8], omitted| self.offer(request, Stream::Platform, line, omitted);
        splitter.push(message.as_bytes(), &mut line);
        splitter.finish(&mut line);
    }

    fn offer(self: &Arc<Self>, request: Option<RequestId>, stream: Stream, line: &[u8], omitted: u64) {
        let cost = line.len() + LINE_OVERHEAD;
        if !self.account.budget.take(self.shared.started.elapsed(), cost) || !self.reserve(cost) {
            return self.dropped();
        }
        let line = Line {
            log: self.clone(),
            time: SystemTime::now(),
            request,
            stream,
            message: lines::text(line).into_owned(),
            omitted,
            cost,
        };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.shared.queue.try_send(Message::Line(line))
        {
            self.release(cost);
            self.dropped();
        }
    }

    /// Takes room in the queue.
    fn reserve(&self, cost: usize) -> bool {
        let account = self.account.queued_bytes.fetch_add(cost, Relaxed) + cost;
        let all = self.shared.queued_bytes.fetch_add(cost, Relaxed) + cost;
        let fits = account <= self.shared.queue_bytes_per_function && all <= self.shared.queue_bytes;
        if !fits {
            self.release(cost);
        }
        fits
    }

    fn release(&self, cost: usize) {
        self.account.queued_bytes.fetch_sub(cost, Relaxed);
        self.shared.queued_bytes.fetch_sub(cost, Relaxed);
    }

    fn dropped(&self) {
        self.shared.counts.dropped.fetch_add(1, Relaxed);
        self.account.dropped_version.store(self.version.0.get(), Relaxed);
        self.account.dropped.fetch_add(1, SeqCst);
        if !self.account.listed.swap(true, SeqCst) {
            self.shared.debtors.lock().push(self.account.clone());
            // If the queue is full the writer is at work, and looks for debtors before it rests.
            let _ = self.shared.queue.try_send(Message::Nudge);
        }
    }
}

impl Lines {
    /// Takes the next piece of output. Never blocks.
    pub fn write(&mut self, piece: &[u8]) {
        let Self {
            log,
            request,
            stream,
            splitter,
        } = self;
        splitter.push(piece, |line, omitted| {
            log.offer(Some(*request), *stream, line, omitted)
        });
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let Self {
            log,
            request,
            stream,
            splitter,
        } = self;
        splitter.finish(|line, omitted| log.offer(Some(*request), *stream, line, omitted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    #[test]
    fn a_full_queue_blocks_nobody_and_what_it_dropped_is_reported() {
        for options in [
            LogOptions {
                queue_lines: 16,
                ..LogOptions::default()
            },
            LogOptions {
                queue_bytes: 16 * 200,
                ..LogOptions::default()
            },
            LogOptions {
                queue_bytes_per_function: 16 * 200,
                ..LogOptions::default()
            },
        ] {
            const LINES: usize = 5_000;
            let folder = tempfile::tempdir().unwrap();
            let logs = Logs::open(folder.path(), options).unwrap();
            let function = "shop.resize".parse::<FunctionId>().unwrap();
            let log = logs.function(&function, VersionNumber(NonZeroU32::MIN));

            // The writer takes at most two batches and what the queue holds, then stands still.
            let writer = logs.inner.shared.output.lock();
            for _ in 0..LINES {
                log.platform(None, "line");
            }
            let dropped = logs.inner.shared.counts.dropped.load(Relaxed);
            drop(writer);
            logs.close();

            assert!(dropped > 0);
            let filter = Filter::function(function);
            let records = logs.tail(&filter, usize::MAX).unwrap();
            let kept = records.iter().filter(|record| record.message == "line").count();
            let reported: u64 = records
                .iter()
                .filter_map(|record| record.message.split_once(" lines dropped")?.0.parse::<u64>().ok())
                .sum();
            assert_eq!(reported, dropped);
            assert_eq!(kept as u64 + dropped, LINES as u64);
            assert_eq!(logs.inner.shared.queued_bytes.load(Relaxed), 0);
            let mut page = Exposition::default();
            logs.render(&mut page);
            let expected = format!("\nmillpond_log_lines_dropped_total {dropped}\n");
            assert!(page.into_text().contains(&expected));
        }
    }
}
