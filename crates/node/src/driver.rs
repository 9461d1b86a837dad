//! The thread that runs asynchronous calls: what is due becomes a request like any other, on any core, and what came of
//! it goes back to the calls.

use crate::{callbacks::Courier, schedules::Schedules};
use bytes::Bytes;
use calls::{Attempt, CallId, Callback, Calls, Finished, Outcome, Response, SubmitError, Timestamp, Verdict};
use contract::{Head, HeadBuilder, Log, Name};
use crossbeam_queue::SegQueue;
use dispatcher::Reader;
use gateway::{DEPTH, Later, events::Cause};
use serde::{Deserialize, Serialize};
use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use telemetry::otlp::Tracer;
use triggers::{Event, Message};
use worker::{Answer, Failure, Shared};

/// How asynchronous calls are kept and tried. Keys of `[calls]` in the configuration file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallOptions {
    /// How often a call may fail before it is a dead letter.
    pub attempts: u32,
    /// How old a call may become before it is a dead letter.
    #[serde(with = "contract::units::text")]
    pub maximum_age: Duration,
    /// The delay after a call's first failure, doubled after each further one up to five minutes.
    #[serde(with = "contract::units::text")]
    pub first_delay: Duration,
    /// How long a result is kept.
    #[serde(with = "contract::units::text")]
    pub retention: Duration,
    /// How long a dead letter is kept.
    #[serde(with = "contract::units::text")]
    pub dead_letter_retention: Duration,
    /// Calls that may be accepted and without an outcome.
    pub pending: usize,
    /// Calls that may run at once.
    pub running: usize,
    /// Hosts whose servers may be told outcomes: in lower case, without a scheme or port.
    pub callbacks: Vec<String>,
    /// How often telling a server may fail before that is a dead letter.
    pub callback_attempts: u32,
}

impl CallOptions {
    /// What is wrong with them, if something is.
    pub(crate) fn check(&self) -> Result<(), String> {
        if [self.running, self.pending].contains(&0) || [self.attempts, self.callback_attempts].contains(&0) {
            return Err(
                "`attempts`, `callback_attempts`, `pending` and `running` of `calls` must be at least 1"
                    .into(),
            );
        }
        match self.callbacks.iter().find(|host| !is_host(host)) {
            Some(host) => Err(format!(
                "`callbacks` of `calls` has {host:?}: write the names of hosts or their addresses, in lower case, without \
                 scheme, port, path or pattern"
            )),
            None => Ok(()),
        }
    }

    /// `callbacks`, as their hosts are compared: addresses without brackets.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let hosts = self.callbacks.iter();
        hosts
            .map(|host| host.trim_matches(['[', ']']).to_owned())
            .collect()
    }
}

fn is_host(host: &str) -> bool {
    let url = format!("http://{host}");
    let named = url
        .parse::<Callback>()
        .ok()
        .and_then(|callback| callback.server());
    // With a port or path, the rest of it is something else than the host.
    let port = host.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
    named.as_deref() == Some(&url[..]) && !port && !host.contains('*')
}

impl Default for CallOptions {
    fn default() -> Self {
        let calls = calls::Options::default();
        Self {
            attempts: 3,
            maximum_age: Duration::from_hours(6),
            first_delay: calls.first_delay,
            retention: calls.retention,
            dead_letter_retention: calls.dead_letter_retention,
            pending: calls.pending,
            running: 256,
            callbacks: Vec::new(),
            callback_attempts: calls.callback_attempts,
        }
    }
}

/// Between two looks at what is kept too long.
const MAINTENANCE: Duration = Duration::from_secs(1);
/// Before the disk is tried again that failed.
const DISK_RETRY: Duration = Duration::from_secs(1);
/// Before schedules are looked at again: the clock and the thread's timer do not agree to the millisecond.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
/// What the path of a function begins with.
const FUNCTION: &str = "/function/";

/// The calls of a node, before their thread runs.
pub(crate) struct Opened {
    pub(crate) calls: Calls,
    desk: Arc<Desk>,
    running: usize,
}

/// Where the thread finds what there is to do.
#[derive(Default)]
struct Desk {
    ended: SegQueue<Ended>,
    stop: AtomicBool,
    /// Set once the thread runs.
    thread: OnceLock<Thread>,
}

/// An attempt that has ended.
struct Ended {
    finished: Finished,
    /// Whose function ran; `None` is the node's own tenant.
    tenant: Option<Name>,
    /// The functions that the event which made it has come through, if an event made it.
    hops: Option<u32>,
    /// It was a function's: there is room for another.
    ran: bool,
}

impl Desk {
    fn ring(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Reads what calls there are.
pub(crate) fn open(log: Arc<dyn Log>, options: &CallOptions) -> Result<Opened, calls::Error> {
    let desk = Arc::new(Desk::default());
    let bell = desk.clone();
    let kept = calls::Options {
        pending: options.pending,
        retention: options.retention,
        first_delay: options.first_delay,
        callback_attempts: options.callback_attempts,
        dead_letter_retention: options.dead_letter_retention,
        ..calls::Options::default()
    };
    Ok(Opened {
        calls: Calls::open(log, kept, now(), move || bell.ring())?,
        desk,
        running: options.running,
    })
}

/// What the thread works with beside the calls.
pub(crate) struct Made {
    /// How calls are made of events.
    pub(crate) later: Later,
    /// What is due without being asked for.
    pub(crate) schedules: Schedules,
    /// Who tells servers.
    pub(crate) courier: Courier,
}

/// The thread.
pub(crate) struct Driver {
    desk: Arc<Desk>,
    thread: JoinHandle<()>,
}

impl Driver {
    /// Runs calls from now on.
    pub(crate) fn start(
        opened: Opened,
        shared: Arc<Shared>,
        reader: Reader,
        tracer: Option<Tracer>,
        made: Made,
    ) -> io::Result<Self> {
        let Opened {
            calls,
            desk,
            running: places,
        } = opened;
        let Made {
            later,
            schedules,
            courier,
        } = made;
        let work = Work {
            calls,
            desk: desk.clone(),
            shared,
            reader,
            tracer,
            places,
            later,
            schedules,
            courier,
            schedules_from: Instant::now(),
        };
        let thread = thread::Builder::new()
            .name("calls".into())
            .spawn(move || work.run())?;
        // A bell that rings before this is heard by nobody; the thread has looked at everything by then, or looks now.
        let _ = desk.thread.set(thread.thread().clone());
        desk.ring();
        Ok(Self { desk, thread })
    }

    /// Notes what has ended, and ends. To be called when no core will answer any more: an attempt without an answer is taken
    /// up by the next start.
    pub(crate) fn stop(self) {
        self.desk.stop.store(true, Ordering::SeqCst);
        self.desk.ring();
        // A panic is a bug that its own message tells.
        let _ = self.thread.join();
    }
}

struct Work {
    calls: Calls,
    desk: Arc<Desk>,
    shared: Arc<Shared>,
    reader: Reader,
    tracer: Option<Tracer>,
    /// Attempts that may still be begun.
    places: usize,
    /// How calls are made of events.
    later: Later,
    schedules: Schedules,
    courier: Courier,
    /// Schedules are not looked at before.
    schedules_from: Instant,
}

impl Work {
    fn run(mut self) {
        let mut ended = Vec::new();
        let mut maintained = Instant::now();
        loop {
            let stop = self.desk.stop.load(Ordering::SeqCst);
            while let Some(one) = self.desk.ended.pop() {
                self.places += usize::from(one.ran);
                ended.push(one);
            }
            let mut worked = self.publish(&mut ended).and_then(|()| self.finish(&mut ended));
            if stop {
                return;
            }
            // Before anything is forgotten by which a run would be known that was accepted and not written down.
            if !self.shared.is_draining() {
                self.schedule();
            }
            if worked.is_ok() && !self.shared.is_draining() {
                worked = self.begin();
            }
            if worked.is_ok() && maintained.elapsed() >= MAINTENANCE {
                maintained = Instant::now();
                worked = self.calls.maintain(now());
            }
            match worked {
                Ok(()) => thread::park_timeout(self.pause(maintained)),
                Err(error) => {
                    tracing::error!(%error, "asynchronous calls stand still until their log can be written again");
                    thread::park_timeout(DISK_RETRY);
                }
            }
        }
    }

    /// Has schedules run that are due.
    fn schedule(&mut self) {
        if Instant::now() < self.schedules_from {
            return;
        }
        let snapshot = self.reader.snapshot().clone();
        if let Err(error) = self.schedules.look(&snapshot, &self.later, now().0) {
            self.schedules_from = Instant::now() + DISK_RETRY;
            tracing::error!(%error, "schedules wait: they are tried again, and nothing that is due is forgotten");
        }
    }

    /// Publishes the events with which functions answered events, before it is written down that they did: whoever crashes in
    /// between runs them again, and the calls that their answers make are known by their ids.
    fn publish(&mut self, ended: &mut [Ended]) -> Result<(), calls::Error> {
        let mut made = Vec::new();
        for one in ended.iter_mut() {
            let Some(hops) = one.hops else { continue };
            match answers(one, hops, &self.later, &mut self.reader) {
                Ok(calls) if calls.is_empty() => one.hops = None,
                Ok(calls) => made.push((one, calls)),
                Err(reason) => {
                    one.hops = None;
                    one.finished.outcome = Outcome::Failed { reason, retry: false };
                }
            }
        }
        let all: Vec<_> = made.iter().flat_map(|(_, calls)| calls.iter().cloned()).collect();
        if all.is_empty() {
            return Ok(());
        }
        let together = self.calls.submit_all(&all, now());
        for (one, calls) in made {
            // What cannot be accepted with all others may be accepted alone.
            let submitted = match &together {
                Ok(()) => Ok(()),
                Err(_) => self.calls.submit_all(&calls, now()),
            };
            match submitted {
                Ok(()) => {}
                Err(SubmitError::Log(error)) => return Err(error.into()),
                Err(error @ SubmitError::TooLarge { .. }) => {
                    let reason = format!("the event that it answered was not accepted: {error}");
                    one.finished.outcome = Outcome::Failed { reason, retry: false };
                }
                Err(error) => {
                    let reason = format!("the event that it answered was not accepted: {error}");
                    one.finished.outcome = Outcome::Refused { reason };
                }
            }
            one.hops = None;
        }
        Ok(())
    }

    /// Writes down what came of attempts, all with one flush.
    fn finish(&self, ended: &mut Vec<Ended>) -> Result<(), calls::Error> {
        if ended.is_empty() {
            return Ok(());
        }
        let finished: Vec<_> = ended.iter().map(|one| one.finished.clone()).collect();
        let verdicts = self.calls.finish(&finished, now())?;
        ended.clear();
        for (one, verdict) in finished.into_iter().zip(verdicts) {
            if let (Verdict::Dead(cause), Outcome::Failed { reason, .. } | Outcome::Refused { reason }) =
                (verdict, &one.outcome)
            {
                tracing::warn!(call = %one.id, attempt = one.number, ?cause, reason, "a call is a dead letter");
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), calls::Error> {
        let mut due = self.calls.due(now(), self.places);
        due.extend(self.calls.deliveries(now()));
        if due.is_empty() {
            return Ok(());
        }
        for attempt in self.calls.begin(&due, now())? {
            if attempt.request.is_delivery() {
                self.deliver(attempt);
            } else {
                self.places -= 1;
                self.attempt(attempt);
            }
        }
        Ok(())
    }

    /// Until there is something to do, if no bell rings.
    fn pause(&self, maintained: Instant) -> Duration {
        let maintenance = MAINTENANCE.saturating_sub(maintained.elapsed());
        let held = self.schedules_from.saturating_duration_since(Instant::now());
        let maintenance = match self.schedules.next_due() {
            Some(due) if !self.shared.is_draining() => {
                maintenance.min(Timestamp(due).since(now()).max(held).max(SHORTEST_PAUSE))
            }
            _ => maintenance,
        };
        if self.shared.is_draining() {
            return maintenance;
        }
        let call = self.calls.next_due().filter(|_| self.places > 0);
        let next = [call, self.calls.next_delivery()].into_iter().flatten().min();
        next.map_or(maintenance, |due| maintenance.min(due.since(now())))
    }

    /// Has a server told an outcome.
    fn deliver(&self, attempt: Attempt) {
        let Attempt { id, number, request } = attempt;
        let (desk, begun) = (self.desk.clone(), Instant::now());
        self.courier.deliver(request, move |outcome| {
            let finished = Finished {
                id,
                number,
                outcome,
                took: begun.elapsed(),
            };
            desk.ended.push(Ended {
                finished,
                tenant: None,
                hops: None,
                ran: false,
            });
            desk.ring();
        });
    }

    fn attempt(&mut self, attempt: Attempt) {
        let Attempt { id, number, request } = attempt;
        let (tenant, name) = (
            request.function.tenant.clone(),
            request.function.local().to_string(),
        );
        let begun = Instant::now();
        let found = self
            .reader
            .named(tenant.as_ref(), &name)
            .map_err(|problem| (problem.detail.into_owned(), true));
        let found = found.and_then(|target| {
            let limit = target.grant().limits.request_body;
            // What is asked for from outside was measured at the door; an answer that becomes a request was not.
            if request.body.len() as u64 > limit.0 {
                let size = request.body.len();
                let reason =
                    format!("its body of {size} bytes is larger than the function's limit of {limit}");
                return Err((reason, false));
            }
            Ok(target)
        });
        let target = match found {
            Ok(target) => target,
            Err((reason, retry)) => {
                let finished = Finished {
                    id,
                    number,
                    outcome: Outcome::Failed { reason, retry },
                    took: begun.elapsed(),
                };
                self.desk.ended.push(Ended {
                    finished,
                    tenant,
                    hops: None,
                    ran: true,
                });
                return self.desk.ring();
            }
        };
        let hops = hops(&request);
        let (mut head, body) = unpack(id, &name, request);
        let span = self
            .tracer
            .as_ref()
            .and_then(|tracer| tracer.begin(&mut head, &target.grant().function, target.grant().version));
        let (desk, tracer) = (self.desk.clone(), self.tracer.clone());
        self.shared.submit(target, head, body, 0, move |core, answer| {
            let sample = gateway::record_elsewhere(&answer, core);
            let outcome = outcome(answer);
            if let (Some(span), Some(tracer)) = (span, tracer) {
                let status = match &outcome {
                    Outcome::Succeeded(response) => Some(response.status),
                    _ => None,
                };
                tracer.end(span, &sample, status);
            }
            let finished = Finished {
                id,
                number,
                outcome,
                took: begun.elapsed(),
            };
            desk.ended.push(Ended {
                finished,
                tenant,
                hops,
                ran: true,
            });
            desk.ring();
        });
    }
}

/// The functions that the event has come through which a call is, if it is one.
fn hops(request: &calls::Request) -> Option<u32> {
    let is_count = |name: &str| {
        name.strip_prefix("ce-")
            .is_some_and(|attribute| attribute == triggers::HOPS)
    };
    let (_, value) = request.headers.iter().find(|(name, _)| is_count(name))?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// The calls that the answer to an event makes, if it is an event; why it cannot make them.
fn answers(
    Ended {
        finished: one,
        tenant,
        ..
    }: &Ended,
    hops: u32,
    later: &Later,
    reader: &mut Reader,
) -> Result<Vec<(CallId, calls::Request)>, String> {
    let Outcome::Succeeded(response) = &one.outcome else {
        return Ok(Vec::new());
    };
    let headers = || {
        response
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), &value[..]))
    };
    if !(200..300).contains(&response.status) || !triggers::is_event(headers()) {
        return Ok(Vec::new());
    }
    let message = Message::read(headers(), &response.body)
        .map_err(|error| format!("it answered with something that is no event: {error}"))?;
    let further = |event: Event| event.with_hops(hops.saturating_add(1));
    let events: Vec<_> = message.events.into_iter().map(further).collect();
    let kinds: Vec<_> = events.iter().map(|event| event.kind().to_owned()).collect();
    let calls = later
        .calls_of(events, Cause::Answer(one.id), (tenant.as_ref(), None), reader)
        .map_err(|error| error.to_string())?;
    if calls.is_empty() {
        tracing::debug!(call = %one.id, ?kinds, "no function wants the event that a function answered");
    }
    Ok(calls)
}

/// A kept request, as a core takes it.
fn unpack(id: CallId, name: &str, request: calls::Request) -> (Box<Head>, Bytes) {
    let size = request
        .headers
        .iter()
        .fold(request.target.len() + 64, |size, (name, value)| {
            size + name.len() + value.len()
        });
    let mut builder = HeadBuilder::new(&request.method, &request.target, size);
    let mut depth = 0;
    for (name, value) in &request.headers {
        match name.as_str() {
            DEPTH => depth = deep(value),
            _ => drop(builder.header(name, value)),
        }
    }
    let mut head = builder.build(id.0);
    head.depth = depth;
    head.set_script(FUNCTION.len() + name.len());
    (head, request.body)
}

/// How deep a kept call is. One that does not say so understandably is as deep as can be.
fn deep(value: &[u8]) -> u8 {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(u8::MAX)
}

/// What an answer means for its call.
fn outcome(answer: Answer) -> Outcome {
    match answer.result {
        Ok(response) => {
            let status = response.head.as_ref().map_or(500, |head| head.status);
            if status >= 500 {
                return Outcome::Failed {
                    reason: format!("the function answered with status {status}"),
                    retry: true,
                };
            }
            let headers = response.head.map_or_else(Vec::new, |head| {
                let own =
                    |(name, value): (std::borrow::Cow<'_, str>, Bytes)| (name.into_owned(), value.to_vec());
                head.headers.into_iter().map(own).collect()
            });
            let body = match <[Bytes; 1]>::try_from(response.body.into_vec()) {
                Ok([whole]) => whole,
                Err(pieces) => pieces.concat().into(),
            };
            Outcome::Succeeded(Response {
                status,
                headers,
                body,
                omitted: None,
            })
        }
        Err(Failure::Fault(fault) | Failure::Left(fault)) => Outcome::Failed {
            reason: fault.to_string(),
            retry: true,
        },
        Err(Failure::Refused(refusal)) => Outcome::Refused {
            reason: contract::Problem::of_refusal(refusal).detail.into_owned(),
        },
        Err(Failure::Platform(reason)) => Outcome::Failed {
            reason: format!("the node failed to run the function: {reason}"),
            retry: true,
        },
    }
}

/// The wall clock, as calls count it.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
