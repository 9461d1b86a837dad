//! The thread that sends: batches, posts, tries again, gives up.

use super::{
    CLOSING, Fate, LogRecord, Shared,
    context::Context,
    encode::Encoder,
    options::{Batch, Endpoint},
};
use contract::RequestId;
use crossbeam_queue::ArrayQueue;
use std::{
    collections::{HashMap, VecDeque},
    iter,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};
use ureq::Agent;

/// The pauses between tries: the first, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// How much of a collector's answer is read.
const ANSWER: u64 = 64 << 10;

/// Requests whose trace is remembered for their log lines.
const REMEMBERED: usize = 1 << 16;

pub(super) struct Sender {
    shared: Arc<Shared>,
    encoder: Encoder,
    post: Post,
    contexts: Contexts,
    traces: Option<Lane>,
    metrics: Option<Lane>,
    logs: Option<Lane>,
}

/// One signal's way.
struct Lane {
    signal: &'static str,
    endpoint: Endpoint,
    /// How often what waits is sent.
    every: Duration,
    due: Instant,
    /// A message that the collector has not taken yet.
    waiting: Option<Message>,
}

struct Message {
    body: Vec<u8>,
    records: u64,
    made: Instant,
    pause: Duration,
    again: Instant,
}

/// Posts messages, and says in the node's log when a collector goes away and when it is back.
struct Post {
    agent: Agent,
    /// Signals that failed last time, and where they go.
    failing: Vec<(&'static str, String)>,
    /// When the node closes, the time until which it waits.
    until: Option<Instant>,
}

enum Refused {
    /// It may be taken later.
    Now(String),
    /// It will never be.
    Forever(String),
}

/// Where in which trace the last requests are.
#[derive(Default)]
struct Contexts {
    of: HashMap<RequestId, Context>,
    order: VecDeque<RequestId>,
}

impl Contexts {
    fn add(&mut self, (request, context): (RequestId, Context)) {
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.of.remove(&oldest);
        }
        if self.of.insert(request, context).is_none() {
            self.order.push_back(request);
        }
    }
}

impl Sender {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let options = &shared.options;
        let lane = |signal, endpoint: &Option<Endpoint>, every| {
            endpoint.clone().map(|endpoint| Lane {
                signal,
                endpoint,
                every,
                due: Instant::now() + every,
                waiting: None,
            })
        };
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("millpond/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Self {
            encoder: Encoder::new(&options.resource),
            post: Post {
                agent,
                failing: Vec::new(),
                until: None,
            },
            contexts: Contexts::default(),
            traces: lane("traces", &options.traces, options.spans.delay),
            metrics: lane("metrics", &options.metrics, options.interval),
            logs: lane("logs", &options.logs, options.records.delay),
            shared,
        }
    }

    /// Runs until the node closes.
    pub(super) fn run(mut self) {
        loop {
            let closing = self.shared.closing.load(SeqCst);
            if closing {
                self.post.until = Some(Instant::now() + CLOSING);
            }
            // Before the queues are looked at: who fills one after that wakes again.
            self.shared.woken.store(false, SeqCst);
            self.send();
            if closing {
                return;
            }
            let lanes = [&self.traces, &self.metrics, &self.logs];
            if lanes.into_iter().flatten().any(|lane| lane.waiting.is_some()) {
                // Until a collector that is away is asked again there is nothing to do, however full the queues are: each
                // request would wake this thread for nothing.
                self.shared.woken.store(true, SeqCst);
            }
            let next = lanes.into_iter().flatten().map(Lane::next).min();
            let pause = next.map(|next| next.saturating_duration_since(Instant::now()));
            if !self.shared.closing.load(SeqCst) {
                thread::park_timeout(pause.unwrap_or(LONGEST));
            }
        }
    }

    fn send(&mut self) {
        let Self {
            shared,
            encoder,
            post,
            contexts,
            traces,
            metrics,
            logs,
        } = self;
        let counts = &shared.counts;
        if let Some(lane) = traces {
            let batch = shared.options.spans;
            lane.drain(post, &shared.spans, batch, &counts.spans, |spans| {
                encoder.spans(spans)
            });
        }
        if let Some(lane) = logs {
            let batch = shared.options.records;
            lane.drain(
                post,
                &shared.records,
                batch,
                &counts.records,
                |records: &[LogRecord]| {
                    // A request begins before it says anything: whoever's line was taken is here.
                    iter::from_fn(|| shared.begun.pop()).for_each(|begun| contexts.add(begun));
                    encoder.logs(records, |request| contexts.of.get(request).copied())
                },
            );
        }
        iter::from_fn(|| shared.begun.pop()).for_each(|begun| contexts.add(begun));
        // Last, so that they count what became of the others.
        if let (Some(lane), Some(metrics)) = (metrics, shared.metrics.get())
            && (post.until.is_some() || lane.due <= Instant::now())
        {
            lane.due = Instant::now() + lane.every;
            // Not tried again: the next export says all of it.
            let _ = post.post(lane, &encoder.metrics(metrics));
        }
    }
}

impl Lane {
    /// When there may be something to do without being woken.
    fn next(&self) -> Instant {
        self.waiting.as_ref().map_or(self.due, |message| message.again)
    }

    /// Sends full batches, and what waits long enough.
    fn drain<T>(
        &mut self,
        post: &mut Post,
        queue: &ArrayQueue<T>,
        batch: Batch,
        fate: &Fate,
        mut encode: impl FnMut(&[T]) -> Vec<u8>,
    ) {
        let closing = post.until.is_some();
        loop {
            let now = Instant::now();
            if self.waiting.is_none() {
                let due = closing || self.due <= now;
                if queue.is_empty() || !due && queue.len() < batch.size {
                    if due {
                        self.due = now + self.every;
                    }
                    return;
                }
                let records: Vec<T> = iter::from_fn(|| queue.pop()).take(batch.size).collect();
                self.waiting = Some(Message {
                    body: encode(&records),
                    records: records.len() as u64,
                    made: now,
                    pause: PAUSE,
                    again: now,
                });
            }
            let Some(mut message) = self.waiting.take() else {
                return;
            };
            if message.again > now && !closing {
                self.waiting = Some(message);
                return;
            }
            match post.post(self, &message.body) {
                Ok(()) => {
                    fate.exported.fetch_add(message.records, Relaxed);
                }
                Err(Refused::Now(_)) if !closing && message.made.elapsed() < batch.patience => {
                    let jitter = rand::random_range(0.5..1.0);
                    message.again = Instant::now() + message.pause.mul_f64(jitter);
                    message.pause = (message.pause * 2).min(LONGEST);
                    self.waiting = Some(message);
                    return;
                }
                Err(_) => {
                    fate.failed.fetch_add(message.records, Relaxed);
                }
            }
        }
    }
}

impl Post {
    fn post(&mut self, lane: &Lane, body: &[u8]) -> Result<(), Refused> {
        let Lane { signal, endpoint, .. } = lane;
        let result = self.attempt(endpoint, body);
        let place = || {
            let url = endpoint.url.trim_start_matches("http://");
            url.split('/').next().unwrap_or_default().to_owned()
        };
        match &result {
            Ok(()) => {
                let before = self.failing.len();
                self.failing.retain(|(failing, _)| failing != signal);
                if before > 0 && self.failing.is_empty() {
                    tracing::info!(url = endpoint.url, "telemetry is exported again");
                }
            }
            Err(Refused::Now(reason) | Refused::Forever(reason)) => {
                let place = place();
                if self.failing.iter().all(|(_, failing)| *failing != place) {
                    tracing::warn!(
                        signal,
                        url = endpoint.url,
                        reason,
                        "failed to export telemetry; what is lost meanwhile is counted in millpond_telemetry_dropped_total. \
                         Check that a collector listens there"
                    );
                }
                if self.failing.iter().all(|(failing, _)| failing != signal) {
                    self.failing.push((signal, place));
                }
            }
        }
        result
    }

    fn attempt(&self, endpoint: &Endpoint, body: &[u8]) -> Result<(), Refused> {
        let left = self
            .until
            .map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(endpoint.timeout, |left| left.min(endpoint.timeout));
        if timeout.is_zero() {
            return Err(Refused::Forever("the node ends".to_owned()));
        }
        let mut request = self
            .agent
            .post(&endpoint.url)
            .config()
            .timeout_global(Some(timeout))
            .build()
            .header("Content-Type", "application/x-protobuf");
        for (name, value) in &endpoint.headers {
            request = request.header(name, value);
        }
        let mut response = request.send(body).map_err(|error| match error {
            // A header's name or value, which the operator gave.
            ureq::Error::Http(_) | ureq::Error::BadUri(_) => Refused::Forever(error.to_string()),
            _ => Refused::Now(error.to_string()),
        })?;
        // Read, so that the connection can be used again; what it says is for people.
        let said = response.body_mut().with_config().limit(ANSWER).read_to_vec();
        let status = response.status().as_u16();
        let reason = || {
            let said = String::from_utf8_lossy(said.as_deref().unwrap_or_default()).into_owned();
            let said: String = said.chars().filter(|c| !c.is_control()).take(200).collect();
            format!("the collector answered {status} {said}")
        };
        match status {
            200..300 => Ok(()),
            429 | 502 | 503 | 504 => Err(Refused::Now(reason())),
            _ => Err(Refused::Forever(reason())),
        }
    }
}
