//! The log's records: the length of a JSON text (4 bytes, little-endian), the text, and the bytes of a body.

use crate::{CallId, Callback, Cause, Request, Response, State, Timestamp, call::milliseconds, callback};
use bytes::Bytes;
use contract::FunctionRef;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Names and values. A value's bytes are written as the characters of the same numbers (Latin-1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Headers(Vec<(String, String)>);

impl Headers {
    fn pack(headers: &[(String, Vec<u8>)]) -> Self {
        let text = |value: &[u8]| value.iter().map(|byte| char::from(*byte)).collect();
        Self(
            headers
                .iter()
                .map(|(name, value)| (name.clone(), text(value)))
                .collect(),
        )
    }

    fn unpack(self) -> Vec<(String, Vec<u8>)> {
        // No other characters are ever written; one that cannot be a byte becomes `?`.
        let bytes = |value: String| value.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect();
        self.0
            .into_iter()
            .map(|(name, value)| (name, bytes(value)))
            .collect()
    }
}

/// A [`Request`] without its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestHead {
    pub(crate) function: FunctionRef,
    method: String,
    pub(crate) target: String,
    headers: Headers,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) callback: Option<Callback>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tells: Option<CallId>,
    pub(crate) attempts: u32,
    maximum_age_ms: u64,
}

impl RequestHead {
    pub(crate) fn pack(request: &Request) -> Self {
        Self {
            function: request.function.clone(),
            method: request.method.clone(),
            target: request.target.clone(),
            headers: Headers::pack(&request.headers),
            callback: request.callback.clone(),
            tells: request.tells,
            attempts: request.attempts,
            maximum_age_ms: milliseconds(request.maximum_age),
        }
    }

    pub(crate) fn unpack(self, body: Bytes) -> Request {
        Request {
            maximum_age: self.maximum_age(),
            function: self.function,
            method: self.method,
            target: self.target,
            headers: self.headers.unpack(),
            body,
            callback: self.callback,
            tells: self.tells,
            attempts: self.attempts,
        }
    }

    pub(crate) fn maximum_age(&self) -> Duration {
        Duration::from_millis(self.maximum_age_ms)
    }

    /// The server that is told an outcome, now by this request or later by another.
    pub(crate) fn server(&self) -> Option<String> {
        callback::server_of(&self.target, self.tells, self.callback.as_ref())
    }
}

/// How far a call has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// From when its age counts: its acceptance, or its last retry by hand.
    pub(crate) since: Timestamp,
    pub(crate) state: State,
    /// Attempts that were begun, ever.
    pub(crate) begun: u32,
    /// Attempts that failed.
    pub(crate) failures: u32,
    /// Attempts since the last failure of which nothing was heard before the node ended.
    pub(crate) interruptions: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Box<str>>,
}

impl Progress {
    /// That of a call which is to be run now, for the first time or anew.
    pub(crate) fn new(now: Timestamp, begun: u32) -> Self {
        Self {
            since: now,
            state: State::Waiting { due: now },
            begun,
            failures: 0,
            interruptions: 0,
            reason: None,
        }
    }
}

/// What happens to calls. Fields may be added with a default; a meaning never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    /// A request, its body, and how far it has come: a call that was accepted, retried by hand, or carried forward.
    Held {
        id: CallId,
        accepted: Timestamp,
        request: RequestHead,
        progress: Progress,
    },
    Begun {
        id: CallId,
    },
    Failed {
        id: CallId,
        due: Timestamp,
        reason: Box<str>,
    },
    /// The attempt did not count.
    Postponed {
        id: CallId,
        due: Timestamp,
        reason: Box<str>,
    },
    Died {
        id: CallId,
        at: Timestamp,
        cause: Cause,
        /// Failures in all.
        failures: u32,
        reason: Option<Box<str>>,
    },
    /// A response, its body, and what is to be known of the call without its request.
    Succeeded {
        id: CallId,
        at: Timestamp,
        accepted: Timestamp,
        function: FunctionRef,
        begun: u32,
        status: u16,
        headers: Headers,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        omitted: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        callback: Option<Callback>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tells: Option<CallId>,
    },
    Discarded {
        id: CallId,
    },
}

impl Event {
    pub(crate) fn id(&self) -> CallId {
        match self {
            Self::Held { id, .. }
            | Self::Begun { id }
            | Self::Failed { id, .. }
            | Self::Postponed { id, .. }
            | Self::Died { id, .. }
            | Self::Succeeded { id, .. }
            | Self::Discarded { id } => *id,
        }
    }

    pub(crate) fn succeeded(
        id: CallId,
        at: Timestamp,
        call: &crate::index::Entry,
        response: &Response,
    ) -> Self {
        Self::Succeeded {
            id,
            at,
            accepted: call.accepted,
            function: call.function.clone(),
            begun: call.progress.begun,
            status: response.status,
            headers: Headers::pack(&response.headers),
            omitted: response.omitted,
            callback: None,
            tells: call.tells,
        }
    }

    pub(crate) fn encode(&self, body: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
        let mut record = vec![0; 4];
        serde_json::to_writer(&mut record, self)?;
        // What is accepted is bounded far below 4 GiB, and so is a record of the log.
        let length = u32::try_from(record.len() - 4).unwrap_or(u32::MAX);
        record[..4].copy_from_slice(&length.to_le_bytes());
        record.extend_from_slice(body);
        Ok(record)
    }

    pub(crate) fn decode(record: Vec<u8>) -> Result<(Self, Bytes), String> {
        let record = Bytes::from(record);
        let (length, rest) = record.split_first_chunk::<4>().ok_or("it is cut off")?;
        let length = u32::from_le_bytes(*length) as usize;
        let text = rest.get(..length).ok_or("it is cut off")?;
        let event = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        Ok((event, record.slice(4 + length..)))
    }
}

/// The response of [`Event::Succeeded`]; `None` of another event.
pub(crate) fn response(event: Event, body: Bytes) -> Option<Response> {
    let Event::Succeeded {
        status,
        headers,
        omitted,
        ..
    } = event
    else {
        return None;
    };
    Some(Response {
        status,
        headers: headers.unpack(),
        body,
        omitted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests_read_back(
            headers in proptest::collection::vec(("[a-z-]{1,9}", proptest::collection::vec(any::<u8>(), 0..20)), 0..4),
            body in proptest::collection::vec(any::<u8>(), 0..100),
            callback in proptest::option::of(prop_oneof![Just("/function/a.b:3/c?d"), Just("https://example.org:1/x")]),
            tells in proptest::option::of(any::<u128>()),
            target in "[ -~]{0,20}",
        ) {
            let request = Request {
                function: "shop.resize:3".parse().unwrap(),
                method: "POST".to_owned(),
                target, headers,
                callback: callback.map(|text| text.parse().unwrap()),
                tells: tells.map(|id| CallId(contract::RequestId(id))),
                body: Bytes::from(body),
                attempts: 3,
                maximum_age: Duration::from_millis(1234),
            };
            let id: CallId = "0123456789abcdef0123456789abcdef".parse().unwrap();
            let held = Event::Held {
                id, accepted: Timestamp(7), request: RequestHead::pack(&request), progress: Progress::new(Timestamp(7), 0),
            };
            let (event, body) = Event::decode(held.encode(&request.body).unwrap()).unwrap();
            prop_assert_eq!(&event, &held);
            let Event::Held { request: head, .. } = event else { unreachable!() };
            prop_assert_eq!(head.unpack(body), request);
        }

        #[test]
        fn anything_decodes_or_is_refused(record in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Event::decode(record);
        }
    }
}
