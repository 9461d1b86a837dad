//! Heads of calls and replies, in JSON, and one call from its beginning to the last piece of its reply.

use bytes::Bytes;
use contract::{Body, BodyError, BodyStream, Call, CallError, Caller, Reply, Session};
use serde::{Deserialize, Serialize};
use std::{
    future::poll_fn,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};
use tokio::sync::{Semaphore, mpsc};

/// What a sandbox says in the head of a call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    operation: String,
    target: String,
    #[serde(default)]
    parameters: Vec<(String, String)>,
    /// How long the beginning of the reply may take, in milliseconds.
    #[serde(default)]
    patience: Option<u64>,
}

/// What the head of a reply says.
#[derive(Debug, Serialize)]
struct ReplyHead {
    status: u16,
    headers: Vec<(String, String)>,
}

/// Why there is no reply, or no more of it.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    kind: &'static str,
    message: String,
}

impl Failure {
    pub(crate) fn broken(message: &str) -> Self {
        Self {
            kind: "broken",
            message: message.to_owned(),
        }
    }

    pub(crate) fn encoded(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let kind = match &error {
            CallError::Denied(_) => "denied",
            CallError::Target(_) => "target",
            CallError::Busy => "busy",
            CallError::Timeout(_) => "timeout",
            CallError::Name(_) | CallError::Refused(_) | CallError::Secure(_) | CallError::Address(_) => {
                "unavailable"
            }
            _ => "broken",
        };
        Self {
            kind,
            message: error.to_string(),
        }
    }
}

/// What comes of a call, for its link.
pub(crate) enum Event {
    /// A piece of its body was taken.
    Pulled,
    /// The reply begins: its head, and bytes of its body if they are known.
    Head(Vec<u8>, Option<u64>),
    /// Bytes of the reply's body.
    Chunk(Bytes),
    /// That was all of it.
    End(Result<(), Failure>),
}

/// To the link, with the number that it gave the call.
#[derive(Clone)]
pub(crate) struct Events {
    pub(crate) number: u64,
    pub(crate) to: mpsc::UnboundedSender<(u64, Event)>,
}

impl Events {
    fn tell(&self, event: Event) {
        // Nobody hears it once the link has ended.
        let _ = self.to.send((self.number, event));
    }
}

/// The rest of a body, as it comes from a sandbox.
struct Coming {
    pieces: mpsc::UnboundedReceiver<Bytes>,
    left: u64,
    events: Events,
}

impl BodyStream for Coming {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        if self.left == 0 {
            return Poll::Ready(Ok(None));
        }
        let context = &mut std::task::Context::from_waker(waker);
        match std::task::ready!(self.pieces.poll_recv(context)) {
            Some(piece) => {
                self.left = self.left.saturating_sub(piece.len() as u64);
                if self.left > 0 {
                    self.events.tell(Event::Pulled);
                }
                Poll::Ready(Ok(Some(piece)))
            }
            None => Poll::Ready(Err(BodyError::Gone)),
        }
    }

    fn trailers(&mut self) -> contract::Trailers {
        contract::Trailers::new()
    }
}

/// A body of which there is more to come.
pub(crate) fn body(pieces: mpsc::UnboundedReceiver<Bytes>, length: u64, events: Events) -> Body {
    Body::Stream(Box::new(Coming {
        pieces,
        left: length,
        events,
    }))
}

impl Head {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(bytes)
            .map_err(|error| Failure::broken(&format!("the head of a call: {error}")))
    }

    /// With a body of so many bytes.
    pub(crate) fn call(self, body: Body, length: u64, caller: Caller) -> Call {
        let is_length = |name: &str| name.eq_ignore_ascii_case("content-length");
        let mut parameters: Vec<_> = self
            .parameters
            .into_iter()
            .filter(|(name, _)| !is_length(name))
            .map(|(name, value)| (name.into(), Bytes::from(value)))
            .collect();
        if let Body::Stream(_) = body {
            parameters.push(("content-length".into(), length.to_string().into()));
        }
        Call {
            operation: self.operation,
            target: self.target,
            parameters,
            body,
            patience: self.patience.map(Duration::from_millis),
            pause: None,
            caller,
        }
    }
}

/// Tells that a call is none.
pub(crate) fn refuse(failure: Failure, events: &Events) {
    events.tell(Event::End(Err(failure)));
}

/// Makes a call, and tells all that comes of it. No more bytes of the reply are under way than there is credit.
pub(crate) async fn make(session: Arc<dyn Session>, call: Call, credit: Arc<Semaphore>, events: Events) {
    let end = reply(session, call, &credit, &events).await;
    events.tell(Event::End(end));
}

async fn reply(
    session: Arc<dyn Session>,
    call: Call,
    credit: &Semaphore,
    events: &Events,
) -> Result<(), Failure> {
    let has_body = call.operation != "HEAD";
    let Reply { head, body } = session.call(call).await?;
    let length = match &body {
        Body::Whole(bytes) => Some(bytes.len() as u64),
        Body::Stream(_) if !has_body => Some(0),
        Body::Stream(_) => head
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse().ok()),
    };
    // As clients of HTTP in Python read them: each byte is a character.
    let text = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect();
    let headers = head.headers.iter();
    let encoded = serde_json::to_vec(&ReplyHead {
        status: head.status,
        headers: headers
            .map(|(name, value)| (name.clone().into_owned(), text(value)))
            .collect(),
    });
    events.tell(Event::Head(encoded.unwrap_or_default(), length));
    let mut stream = match body {
        Body::Whole(bytes) => {
            if !bytes.is_empty() {
                events.tell(Event::Chunk(bytes));
            }
            return Ok(());
        }
        Body::Stream(stream) => stream,
    };
    while let Some(chunk) = poll_fn(|context| stream.poll_next(context.waker()))
        .await
        .map_err(|error| Failure::broken(&format!("the reply breaks off: {error}")))?
    {
        let bytes = u32::try_from(chunk.len()).unwrap_or(u32::MAX).min(CREDIT);
        if let Ok(permit) = credit.acquire_many(bytes).await {
            permit.forget();
        }
        events.tell(Event::Chunk(chunk));
    }
    Ok(())
}

/// Bytes of one reply that the backend holds besides those that lie in the channel.
pub(crate) const CREDIT: u32 = 2 << 20;
