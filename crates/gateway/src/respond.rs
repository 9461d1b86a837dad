//! From what a request came to, to the bytes of its response.

use crate::{
    connection::{Connection, Header, Reply},
    events,
    http1::{ResponseLine, write_head},
    invoke,
    refusals::{Novel, Refusals, whole_seconds},
    streams::{self, Download},
};
use bytes::Bytes;
use contract::{CoreId, Problem, Refusal, RequestId};
use smallvec::SmallVec;
use std::{
    mem,
    time::{Duration, Instant},
};
use telemetry::metrics::{Outcome, Sample, Start};
use worker::{Answer, Failure, Response, Target, Timing};

/// Appends the reply's bytes to the connection's output, and records what it is an answer to. Returns what was recorded,
/// now or when the request was refused.
pub(crate) fn respond(
    connection: &mut Connection,
    reply: Reply,
    refusals: &mut Refusals,
    core: CoreId,
    date: [u8; 29],
    now: Instant,
) -> Option<Sample> {
    match reply {
        Reply::Text {
            status,
            text,
            arrived,
        } => {
            let said = server_timing(&Timing::unstarted(arrived, now), Duration::ZERO);
            let headers = [
                ("Content-Type", &b"text/plain; charset=utf-8"[..]),
                ("Server-Timing", &said),
            ];
            plain(connection, status, &headers, text.as_bytes(), date);
        }
        Reply::Problem {
            mut problem,
            id,
            header,
            arrived,
        } => {
            problem.request_id = Some(id);
            let said = server_timing(&Timing::unstarted(arrived, now), Duration::ZERO);
            problem_response(connection, &problem, header, &said, date);
        }
        Reply::Refused { refusal, id, arrived } => {
            let said = server_timing(&Timing::unstarted(arrived, now), Duration::ZERO);
            refused(connection, refusals, (refusal, id), &said, date);
        }
        Reply::Rejection {
            rejection,
            id,
            arrived,
        } => {
            let said = server_timing(&Timing::unstarted(arrived, now), Duration::ZERO);
            invoke::rejected(connection, &rejection, id, &said, date);
        }
        Reply::Dry { version, id, arrived } => {
            let said = server_timing(&Timing::unstarted(arrived, now), Duration::ZERO);
            invoke::dry(connection, version, id, &said, date);
        }
        Reply::Accepted { id, arrived } => {
            let said = server_timing(&Timing::unstarted(arrived, now), Duration::ZERO);
            let (hex, uuid) = (id.hex(), lambda::request_uuid(id));
            let mut headers: SmallVec<[(&str, &[u8]); 4]> = SmallVec::new();
            headers.push(("X-Call-Id", &hex));
            if connection.invoke.take().is_some() {
                headers.push((lambda::REQUEST_ID, uuid.as_bytes()));
            }
            headers.push(("Server-Timing", &said));
            headers.push(("X-Request-Id", &hex));
            plain(connection, 202, &headers, Bytes::new(), date);
        }
        Reply::Published { calls, id, arrived } => {
            let said = server_timing(&Timing::unstarted(arrived, now), Duration::ZERO);
            let hex = id.hex();
            let headers: [(&str, &[u8]); 3] = [
                ("Content-Type", b"application/json"),
                ("Server-Timing", &said),
                ("X-Request-Id", &hex),
            ];
            plain(connection, 202, &headers, events::accepted(&calls), date);
        }
        Reply::Answer(mut answer) => {
            let write = now.saturating_duration_since(answer.timing.ended);
            let said = server_timing(&answer.timing, write);
            let result = mem::replace(&mut answer.result, Ok(Response::default()));
            let (outcome, response_bytes) = match (connection.invoke.take(), result) {
                (Some(invoke), result) => {
                    invoke::answered(connection, &invoke, &answer, &result, &said, date)
                }
                (None, Ok(response)) => success(connection, refusals, answer.id, response, &said, date),
                (None, Err(failure)) => failed(connection, refusals, answer.id, &failure, &said, date),
            };
            return Some(record(&answer, core, outcome, write, response_bytes));
        }
    }
    connection.refused.take().map(|sample| *sample)
}

/// Ends a response that went out in pieces. `false` if it is not what its head said: the connection must be closed.
pub(crate) fn conclude(
    connection: &mut Connection,
    mut download: Download,
    answer: &Answer,
    core: CoreId,
    now: Instant,
) -> (Option<Sample>, bool) {
    connection.status = download.status;
    let write = now.saturating_duration_since(answer.timing.ended);
    let said = server_timing(&answer.timing, write);
    let complete = answer.result.is_ok()
        && download.is_ended()
        && download.conclude(&mut connection.output, connection.manner, &said);
    let outcome = outcome(&answer.result);
    let sample = record(answer, core, outcome, write, download.sent);
    (Some(sample), complete)
}

/// Records an answer whose client has gone: what it cost still counts.
pub(crate) fn record_unread(answer: &Answer, core: CoreId) -> Sample {
    record(answer, core, outcome(&answer.result), Duration::ZERO, 0)
}

/// Records an answer that goes to no client here. To be called on the core that has it.
pub fn record_elsewhere(answer: &Answer, core: CoreId) -> Sample {
    let bytes = match &answer.result {
        Ok(response) => response.body.iter().map(Bytes::len).sum::<usize>() as u64,
        Err(_) => 0,
    };
    record(answer, core, outcome(&answer.result), Duration::ZERO, bytes)
}

pub(crate) fn outcome(result: &Result<Response, Failure>) -> Outcome {
    match result {
        Ok(_) => Outcome::Ok,
        Err(Failure::Fault(fault)) => Outcome::Fault(fault.code()),
        Err(Failure::Left(_)) => Outcome::Left,
        Err(Failure::Refused(refusal)) => Outcome::Refused(Problem::refusal_code(*refusal)),
        Err(Failure::Platform(_)) => Outcome::Platform(PLATFORM),
    }
}

fn record(answer: &Answer, core: CoreId, outcome: Outcome, write: Duration, response_bytes: u64) -> Sample {
    let Timing {
        queue,
        boot,
        run,
        cpu,
        ..
    } = answer.timing;
    let sample = Sample {
        queue,
        boot,
        run,
        write,
        cpu,
        outcome,
        start: answer.start,
        request_bytes: answer.request_bytes,
        response_bytes,
        memory_bytes: answer.memory,
    };
    answer.target.record(core, &sample);
    sample
}

/// Records a request that was not admitted.
pub(crate) fn record_refused(target: &Target, core: CoreId, refusal: Refusal, request_bytes: u64) -> Sample {
    let sample = Sample {
        queue: Duration::ZERO,
        boot: Duration::ZERO,
        run: Duration::ZERO,
        write: Duration::ZERO,
        cpu: Duration::ZERO,
        outcome: Outcome::Refused(Problem::refusal_code(refusal)),
        start: Start::None,
        request_bytes,
        response_bytes: 0,
        memory_bytes: 0,
    };
    target.record(core, &sample);
    sample
}

fn success(
    connection: &mut Connection,
    refusals: &mut Refusals,
    id: RequestId,
    response: Response,
    timing: &[u8],
    date: [u8; 29],
) -> (Outcome, u64) {
    let Response { head, body, trailers } = response;
    let Some(head) = head else {
        // An engine owes a head before `Done`.
        return failed(
            connection,
            refusals,
            id,
            &Failure::Platform("the engine gave no response".into()),
            timing,
            date,
        );
    };
    let length = body.iter().map(Bytes::len).sum::<usize>() as u64;
    let mut line = line(connection, head.status, length, date);
    let trails = !trailers.is_empty() && connection.manner.trailers;
    if trails {
        line.length = None;
    } else if line.to_head {
        // The answer to a HEAD tells the length of what it leaves out.
        line.length = streams::declared(&head).or(line.length);
    }
    let id_text = id.hex();
    let ours = [("Server-Timing", timing), ("X-Request-Id", &id_text[..])];
    let theirs = head.headers.iter();
    let theirs = theirs.map(|(name, value)| (name.as_ref(), value.as_ref()));
    let theirs = theirs.filter(|(name, _)| !ours.iter().any(|(our, _)| our.eq_ignore_ascii_case(name)));
    match write_head(connection.output.head(), &line, theirs, &ours) {
        Ok(true) if trails => {
            let output = &mut connection.output;
            body.into_iter().for_each(|piece| output.chunk(piece));
            output.last_chunk(streams::shown(&trailers));
        }
        Ok(true) => body.into_iter().for_each(|piece| connection.output.body(piece)),
        Ok(false) => {}
        Err(bad) => {
            let fault = contract::Fault::BadOutput {
                reason: bad.to_string(),
            };
            return failed(connection, refusals, id, &Failure::Fault(fault), timing, date);
        }
    }
    (Outcome::Ok, length)
}

fn failed(
    connection: &mut Connection,
    refusals: &mut Refusals,
    id: RequestId,
    failure: &Failure,
    timing: &[u8],
    date: [u8; 29],
) -> (Outcome, u64) {
    let (outcome, mut problem) = match failure {
        Failure::Fault(fault) => (Outcome::Fault(fault.code()), Problem::of_fault(fault)),
        // Whoever reads this has closed one half of its connection, or sent what is no body.
        Failure::Left(fault) => (Outcome::Left, Problem::of_fault(fault)),
        Failure::Refused(refusal) => {
            refused(connection, refusals, (*refusal, id), timing, date);
            return (Outcome::Refused(Problem::refusal_code(*refusal)), 0);
        }
        Failure::Platform(reason) => {
            let problem = Problem::new(
                500,
                PLATFORM,
                format!("the node failed to run the function: {reason}"),
                "this is the platform's fault: see the node's own log and `millpond doctor`; `millpond deploy` sends code again that was damaged",
            );
            (Outcome::Platform(PLATFORM), problem)
        }
    };
    problem.request_id = Some(id);
    problem_response(connection, &problem, None, timing, date);
    (outcome, 0)
}

const PLATFORM: &str = "platform";

/// To a request that was not admitted.
fn refused(
    connection: &mut Connection,
    refusals: &mut Refusals,
    (refusal, id): (Refusal, RequestId),
    timing: &[u8],
    date: [u8; 29],
) {
    let (hex, manner) = (id.hex(), connection.manner);
    let novel = Novel {
        date: &date,
        timing,
        id: &hex,
    };
    let is_usual = manner.keep_alive && !manner.http10 && !manner.to_head;
    if is_usual && let Some(status) = refusals.repeat(connection.output.head(), refusal, novel) {
        connection.status = status;
        return;
    }
    let start = connection.output.head().len();
    let mut problem = Problem::of_refusal(refusal);
    problem.request_id = Some(id);
    let seconds = match whole_seconds(refusal.retry_after()) {
        1 => "1".into(),
        more => more.to_string().into(),
    };
    problem_response(connection, &problem, Some(("Retry-After", seconds)), timing, date);
    if is_usual {
        refusals.keep(refusal, problem.status, &connection.output.head()[start..], novel);
    }
}

/// Room for most problems, in bytes.
const PROBLEM: usize = 512;

fn problem_response(
    connection: &mut Connection,
    problem: &Problem,
    header: Option<Header>,
    timing: &[u8],
    date: [u8; 29],
) {
    let mut body = Vec::with_capacity(PROBLEM);
    if serde_json::to_writer(&mut body, problem).is_err() {
        body.clear();
    }
    body.push(b'\n');
    let id = problem.request_id.map(RequestId::hex);
    let mut headers: SmallVec<[(&str, &[u8]); 6]> = SmallVec::new();
    headers.push(("Content-Type", Problem::MEDIA_TYPE.as_bytes()));
    headers.push(("X-Millpond-Error", problem.code.as_bytes()));
    headers.extend(header.as_ref().map(|(name, value)| (*name, value.as_bytes())));
    headers.push(("Server-Timing", timing));
    headers.extend(id.as_ref().map(|id| ("X-Request-Id", &id[..])));
    plain(connection, problem.status, &headers, body, date);
}

/// A response of the gateway's own making: its status and headers are known to be good.
pub(crate) fn plain(
    connection: &mut Connection,
    status: u16,
    headers: &[(&str, &[u8])],
    body: impl Into<Bytes>,
    date: [u8; 29],
) {
    let body = body.into();
    let line = line(connection, status, body.len() as u64, date);
    if let Ok(true) = write_head(connection.output.head(), &line, [], headers) {
        connection.output.body(body);
    }
}

fn line(connection: &mut Connection, status: u16, length: u64, date: [u8; 29]) -> ResponseLine {
    connection.status = status;
    let manner = connection.manner;
    ResponseLine {
        status,
        length: Some(length),
        to_head: manner.to_head,
        keep_alive: manner.keep_alive,
        http10: manner.http10,
        date: Some(date),
    }
}

/// The `Server-Timing` header: milliseconds with three decimals. What is rounded is the time up to each boundary, so that
/// the phases still add up to the whole.
fn server_timing(timing: &Timing, write: Duration) -> SmallVec<[u8; 96]> {
    /// Of nearly all requests: no phase takes ten milliseconds.
    const SHORT: &[u8; 63] = b"queue;dur=0.000, boot;dur=0.000, run;dur=0.000, write;dur=0.000";
    const PLACES: [usize; 4] = [10, 26, 41, 58];
    let mut elapsed = 0_u64;
    let mut said = 0;
    let phases = [timing.queue, timing.boot, timing.run, write].map(|phase| {
        let nanos = phase.as_secs().saturating_mul(1_000_000_000);
        elapsed = elapsed.saturating_add(nanos.saturating_add(phase.subsec_nanos().into()));
        let until = elapsed.saturating_add(500) / 1_000;
        let micros = until - said;
        said = until;
        micros
    });
    let mut out = SmallVec::new();
    if phases.iter().all(|micros| *micros < 10_000) {
        let mut text = *SHORT;
        for (place, micros) in PLACES.into_iter().zip(phases) {
            if micros == 0 {
                continue;
            }
            let micros = u32::try_from(micros).unwrap_or_default();
            for (place, unit) in [(place, 1_000), (place + 2, 100), (place + 3, 10), (place + 4, 1)] {
                text[place] = b'0' + u8::try_from(micros / unit % 10).unwrap_or_default();
            }
        }
        out.extend_from_slice(&text);
        return out;
    }
    for (name, micros) in ["queue", "boot", "run", "write"].into_iter().zip(phases) {
        if !out.is_empty() {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b";dur=");
        milliseconds(&mut out, micros);
    }
    out
}

fn milliseconds(out: &mut SmallVec<[u8; 96]>, micros: u64) {
    let mut digits = [b'0'; 24];
    let mut start = digits.len();
    let mut left = micros;
    let mut count = 0;
    while left > 0 || count < 4 {
        if count == 3 {
            start -= 1;
            digits[start] = b'.';
        }
        start -= 1;
        digits[start] = b'0' + u8::try_from(left % 10).unwrap_or_default();
        left /= 10;
        count += 1;
    }
    out.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(queue: u64, boot: u64, run: u64, write: u64) -> String {
        let ns = Duration::from_nanos;
        let timing = Timing {
            queue: ns(queue),
            boot: ns(boot),
            run: ns(run),
            cpu: ns(run),
            ended: Instant::now(),
        };
        String::from_utf8(server_timing(&timing, ns(write)).to_vec()).unwrap()
    }

    #[test]
    fn timing_is_in_milliseconds_and_adds_up() {
        assert_eq!(
            said(0, 0, 0, 0),
            "queue;dur=0.000, boot;dur=0.000, run;dur=0.000, write;dur=0.000"
        );
        assert_eq!(
            said(1_234_567_000, 2_000, 999_000, 10_000),
            "queue;dur=1234.567, boot;dur=0.002, run;dur=0.999, write;dur=0.010"
        );
        assert_eq!(
            said(9_999_499, 0, 9_999_000, 0),
            "queue;dur=9.999, boot;dur=0.000, run;dur=9.999, write;dur=0.000"
        );
        assert_eq!(
            said(9_999_500, 1_000, 0, 0),
            "queue;dur=10.000, boot;dur=0.001, run;dur=0.000, write;dur=0.000"
        );
        // 4 x 400 ns: no phase is a microsecond, together they are two.
        assert_eq!(
            said(400, 400, 400, 400),
            "queue;dur=0.000, boot;dur=0.001, run;dur=0.000, write;dur=0.001"
        );
    }
}
