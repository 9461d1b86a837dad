//! Requests that came by Lambda's Invoke API: what the worker is given, and how its answer is written. The words are crate
//! `lambda`'s.

use crate::{
    begin::within_rate,
    connection::{Connection, Reply},
    respond::{outcome, plain},
};
use bytes::Bytes;
use contract::{Body, RequestId, VersionNumber};
use lambda::{Invoke, Kind, LOG_TAIL, Log, Rejection};
use smallvec::SmallVec;
use std::time::Instant;
use telemetry::metrics::Outcome;
use worker::{Answer, Failure, Response, Target};

/// Makes the payload what was asked for and says how much of the log's end its answer is to carry, in bytes; or says what to answer
/// in place of invoking.
pub(crate) fn prepare(
    invoke: &Invoke,
    target: &Target,
    (id, arrived): (RequestId, Instant),
    body: &mut Body,
) -> Result<usize, Box<Reply>> {
    let rejected = |rejection: Rejection| {
        Box::new(Reply::Rejection {
            rejection: rejection.into(),
            id,
            arrived,
        })
    };
    let Body::Whole(body) = body else {
        return Err(rejected(Rejection::of_failure("its payload was not collected")));
    };
    invoke.check_payload(body).map_err(rejected)?;
    match invoke.kind {
        // An event does not come here: it is kept.
        Kind::RequestResponse | Kind::Event => {}
        Kind::DryRun => {
            let version = target.grant().version;
            return Err(Box::new(Reply::Dry { version, id, arrived }));
        }
    }
    if body.is_empty() {
        *body = Bytes::from_static(b"{}");
    }
    within_rate(target, arrived).map_err(rejected)?;
    Ok(if invoke.tail { LOG_TAIL } else { 0 })
}

/// The answer to an invocation that was given to the worker.
pub(crate) fn answered(
    connection: &mut Connection,
    invoke: &Invoke,
    answer: &Answer,
    result: &Result<Response, Failure>,
    timing: &[u8],
    date: [u8; 29],
) -> (Outcome, u64) {
    let id = answer.id;
    let pieces: SmallVec<[&[u8]; 1]>;
    let came = lambda::Outcome {
        result: match result {
            Ok(response) => {
                pieces = response.body.iter().map(Bytes::as_ref).collect();
                Ok(&pieces)
            }
            Err(Failure::Fault(fault) | Failure::Left(fault)) => Err(fault),
            Err(Failure::Refused(refusal)) => {
                rejected(connection, &Rejection::of_refusal(*refusal), id, timing, date);
                return (outcome(result), 0);
            }
            Err(Failure::Platform(reason)) => {
                rejected(connection, &Rejection::of_failure(reason), id, timing, date);
                return (outcome(result), 0);
            }
        },
        id,
    };
    let grant = answer.target.grant();
    let log = invoke.tail.then(|| Log {
        tail: &answer.log_tail,
        id,
        version: grant.version,
        duration: answer.timing.boot + answer.timing.run,
        memory: grant.limits.memory.0,
        used: answer.memory,
    });
    let reply = came.reply(grant.version, log.as_ref(), invoke.stream);
    let length = reply.body.len() as u64;
    write(connection, reply, id, timing, date);
    (outcome(result), length)
}

/// The answer to a request that invoked nothing.
pub(crate) fn rejected(
    connection: &mut Connection,
    rejection: &Rejection,
    id: RequestId,
    timing: &[u8],
    date: [u8; 29],
) {
    write(connection, rejection.reply(id), id, timing, date);
}

/// The answer to a `DryRun`: this version would have been invoked.
pub(crate) fn dry(
    connection: &mut Connection,
    version: VersionNumber,
    id: RequestId,
    timing: &[u8],
    date: [u8; 29],
) {
    write(connection, lambda::Reply::dry(version, id), id, timing, date);
}

fn write(connection: &mut Connection, reply: lambda::Reply, id: RequestId, timing: &[u8], date: [u8; 29]) {
    let hex = id.hex();
    let said = reply.headers.iter();
    let mut headers: SmallVec<[(&str, &[u8]); 8]> =
        said.map(|(name, value)| (*name, value.as_bytes())).collect();
    headers.push(("Server-Timing", timing));
    headers.push(("X-Request-Id", &hex));
    plain(connection, reply.status, &headers, reply.body, date);
}
