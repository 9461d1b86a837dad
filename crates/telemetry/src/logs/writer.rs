//! The log's one writer.

use super::{Account, Line, Message, Record, Shared, Stream, files::Files, follow::Feed};
use contract::{FunctionId, VersionNumber};
use std::{
    collections::HashMap,
    fmt,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
        mpsc::{Receiver, RecvTimeoutError, SyncSender},
    },
    time::{Duration, Instant, SystemTime},
};

/// Messages taken before anything is written: one write for each function then, not one for each line.
const BATCH: usize = 256;

/// A function's dropped lines are reported at most this often.
const REPORT_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Writer {
    messages: Receiver<Message>,
    shared: Arc<Shared>,
    /// When the last report of dropped lines was written.
    reported: Option<Instant>,
}

/// Where records go; whoever holds its lock sees files and followers agree.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) files: Files,
    feeds: Option<HashMap<FunctionId, Vec<Feed>>>,
    tap: Option<Tap>,
    failing: bool,
}

/// Sees every record.
pub(super) struct Tap(pub(super) Box<See>);

type See = dyn Fn(&Arc<Record>) + Send;

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

/// What one round of the writer has to do.
#[derive(Default)]
struct Round {
    records: Vec<Arc<Record>>,
    barriers: Vec<SyncSender<()>>,
    close: bool,
}

impl Writer {
    pub(super) fn new(messages: Receiver<Message>, shared: Arc<Shared>) -> Self {
        Self {
            messages,
            shared,
            reported: None,
        }
    }

    /// Runs until [`Message::Close`]. Rests only when the queue is empty and either nobody is owed a report or it is too
    /// early for the next.
    pub(super) fn run(mut self) {
        loop {
            let first = match self.report_due() {
                None => self.messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wait) => self.messages.recv_timeout(wait),
            };
            let mut round = Round::default();
            match first {
                Ok(message) => self.take(message, &mut round),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => round.close = true,
            }
            while round.records.len() < BATCH && !round.close {
                match self.messages.try_recv() {
                    Ok(message) => self.take(message, &mut round),
                    Err(_) => break,
                }
            }
            if round.close || self.report_due().is_some_and(|wait| wait.is_zero()) {
                self.report(&mut round);
            }
            self.perform(round.records);
            for barrier in round.barriers {
                // Whoever asked may have given up.
                let _ = barrier.send(());
            }
            if round.close {
                self.shared.output.lock().feeds = None;
                return;
            }
        }
    }

    fn take(&self, message: Message, round: &mut Round) {
        match message {
            Message::Line(line) => {
                line.log.release(line.cost);
                round.records.push(Arc::new(line.into_record()));
            }
            Message::Barrier(done) => round.barriers.push(done),
            Message::Nudge => {}
            Message::Close => round.close = true,
        }
    }

    /// How long until dropped lines may be reported; `None` if there are none.
    fn report_due(&self) -> Option<Duration> {
        if self.shared.debtors.lock().is_empty() {
            return None;
        }
        Some(self.reported.map_or(Duration::ZERO, |reported| {
            REPORT_EVERY.saturating_sub(reported.elapsed())
        }))
    }

    fn report(&mut self, round: &mut Round) {
        self.reported = Some(Instant::now());
        let debtors = std::mem::take(&mut *self.shared.debtors.lock());
        for account in debtors {
            // In this order: whoever drops a line after the count was taken lists the account again.
            account.listed.store(false, SeqCst);
            let dropped = account.dropped.swap(0, SeqCst);
            if dropped > 0 {
                round.records.push(Arc::new(report(&account, dropped)));
            }
        }
    }

    fn perform(&self, records: Vec<Arc<Record>>) {
        if records.is_empty() {
            return;
        }
        let mut lines: HashMap<&FunctionId, (Vec<u8>, u64)> = HashMap::new();
        for record in &records {
            let (bytes, count) = lines.entry(&record.function).or_default();
            record.write_json(bytes);
            *count += 1;
        }
        let mut output = self.shared.output.lock();
        for (function, (bytes, count)) in lines {
            let counter = match output.append(function, &bytes) {
                true => &self.shared.counts.written,
                false => &self.shared.counts.failed,
            };
            counter.fetch_add(count, Relaxed);
        }
        output.publish(&records);
    }
}

fn report(account: &Account, dropped: u64) -> Record {
    let version = NonZeroU32::new(account.dropped_version.load(Relaxed)).unwrap_or(NonZeroU32::MIN);
    Record {
        time: SystemTime::now(),
        function: account.function.clone(),
        version: VersionNumber(version),
        request: None,
        stream: Stream::Platform,
        message: format!("{dropped} lines dropped: this function logs faster than the node takes"),
        omitted: 0,
    }
}

impl Line {
    fn into_record(self) -> Record {
        Record {
            time: self.time,
            function: self.log.account.function.clone(),
            version: self.log.version,
            request: self.request,
            stream: self.stream,
            message: self.message,
            omitted: self.omitted,
        }
    }
}

impl Output {
    pub(super) fn new(files: Files) -> Self {
        Self {
            files,
            feeds: Some(HashMap::new()),
            tap: None,
            failing: false,
        }
    }

    /// Adds a follower; after the end it is ended at once.
    pub(super) fn follow(&mut self, feed: Feed) {
        if let Some(feeds) = &mut self.feeds {
            let of_function = feeds.entry(feed.filter.function.clone()).or_default();
            of_function.retain(Feed::is_open);
            of_function.push(feed);
        }
    }

    fn append(&mut self, function: &FunctionId, lines: &[u8]) -> bool {
        let result = self.files.append(function, lines);
        match &result {
            Err(error) if !self.failing => {
                tracing::error!(%function, %error, "failed to write the log of a function; further failures are counted");
            }
            Ok(()) if self.failing => tracing::info!(%function, "the log of functions can be written again"),
            _ => {}
        }
        self.failing = result.is_err();
        !self.failing
    }

    pub(super) fn tap(&mut self, tap: Tap) {
        self.tap = Some(tap);
    }

    fn publish(&mut self, records: &[Arc<Record>]) {
        if let Some(Tap(tap)) = &self.tap {
            records.iter().for_each(tap);
        }
        let Some(feeds) = &mut self.feeds else { return };
        for record in records {
            if let Some(of_function) = feeds.get_mut(&record.function) {
                of_function.retain(|feed| feed.push(record));
                if of_function.is_empty() {
                    feeds.remove(&record.function);
                }
            }
        }
    }
}
