//! Requests that came by Lambda's Invoke API: what the worker is given, and how its answer is written. The words are crate
//! `lambda`'s.

use crate::{
    connection::{Connection, Reply},
    respond::{outcome, plain},
};
use bytes::Bytes;
use contract::{Body, RequestId, VersionNumber};
use lambda::{Invoke, Kind, LOG_TAIL, Log, REQUEST_ID, Rejection, request_uuid};
use smallvec::SmallVec;
use telemetry::metrics::Outcome;
use worker::{Answer, Failure, Invocation, Response};

/// Makes the invocation what was asked for, or says what to answer in its place.
pub(crate) fn prepare(invoke: &Invoke, invocation: &mut Invocation) -> Result<(), Box<Reply>> {
    let (id, arrived) = (invocation.head.id, invocation.arrived);
    let rejected = |rejection| {
        Box::new(Reply::Rejection {
            rejection,
            id,
            arrived,
        })
    };
    let Body::Whole(body) = &mut invocation.body else {
        return Err(rejected(Rejection::of_failure("its payload was not collected")));
    };
    invoke.check_payload(body).map_err(rejected)?;
    match invoke.kind {
        // An event does not come here: it is kept.
        Kind::RequestResponse | Kind::Event => {}
        Kind::DryRun => {
            let version = invocation.target.grant().version;
            return Err(Box::new(Reply::Dry { version, id, arrived }));
        }
    }
    if body.is_empty() {
        *body = Bytes::from_static(b"{}");
    }
    if invoke.tail {
        invocation.log_tail = LOG_TAIL;
    }
    Ok(())
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
    let (uuid, hex, version) = (request_uuid(id), id.hex(), grant.version.to_string());
    let encoded;
    let mut headers: SmallVec<[(&str, &[u8]); 8]> = SmallVec::new();
    let body = if invoke.stream {
        headers.push(("Content-Type", b"application/vnd.amazon.eventstream"));
        came.events(log.as_ref())
    } else {
        headers.push(("Content-Type", b"application/json"));
        if let Some(error) = came.function_error() {
            headers.push(("X-Amz-Function-Error", error.as_bytes()));
        }
        if let Some(log) = log {
            encoded = log.encoded();
            headers.push(("X-Amz-Log-Result", encoded.as_bytes()));
        }
        came.payload()
    };
    headers.push(("X-Amz-Executed-Version", version.as_bytes()));
    headers.push((REQUEST_ID, uuid.as_bytes()));
    headers.push(("Server-Timing", timing));
    headers.push(("X-Request-Id", &hex));
    let length = body.len() as u64;
    plain(connection, 200, &headers, body, date);
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
    let (uuid, hex) = (request_uuid(id), id.hex());
    let retry = rejection.retry_after.map(|after| after.to_string());
    let mut headers: SmallVec<[(&str, &[u8]); 6]> = SmallVec::new();
    headers.push(("Content-Type", b"application/json"));
    headers.push(("x-amzn-ErrorType", rejection.error.as_bytes()));
    headers.extend(retry.as_ref().map(|after| ("Retry-After", after.as_bytes())));
    headers.push((REQUEST_ID, uuid.as_bytes()));
    headers.push(("Server-Timing", timing));
    headers.push(("X-Request-Id", &hex));
    plain(connection, rejection.status, &headers, rejection.body(), date);
}

/// The answer to a `DryRun`: this version would have been invoked.
pub(crate) fn dry(
    connection: &mut Connection,
    version: VersionNumber,
    id: RequestId,
    timing: &[u8],
    date: [u8; 29],
) {
    let (uuid, hex, version) = (request_uuid(id), id.hex(), version.to_string());
    let headers = [
        ("X-Amz-Executed-Version", version.as_bytes()),
        (REQUEST_ID, uuid.as_bytes()),
        ("Server-Timing", timing),
        ("X-Request-Id", &hex),
    ];
    plain(connection, 204, &headers, Bytes::new(), date);
}
