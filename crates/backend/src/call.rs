//! Heads of calls and replies, in JSON, and one call from its beginning to the last piece of its reply.
//!
//! A call is made by a task of its own. It waits for its turn, and for the memory of all that it will hold at once: its head; its body if that comes whole, or
//! else [`WINDOW`] bytes of it; and [`REPLY`] bytes of the reply. Nothing of it is copied before, and nothing more is asked for later. So a call that
//! holds memory waits for the service or for its own sandbox alone.

use crate::limits::{Admitted, Memory, Sandbox, Waiting, Way};
use bytes::Bytes;
use contract::{
    Body, BodyError, BodyStream, Call, CallError, Caller, Reply, ResponseHead, Session, Trailers,
};
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// What a sandbox says in the head of a call.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    pub(crate) operation: String,
    pub(crate) target: String,
    #[serde(default)]
    pub(crate) parameters: Fields,
    /// How long the beginning of the reply may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    patience: Option<u64>,
    /// How long its body may pause, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pause: Option<u64>,
}

/// What the head of a reply says.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct ReplyHead {
    pub(crate) status: u16,
    pub(crate) headers: Fields,
}

/// Names, and values of which each byte is a character, as clients of HTTP in Python read them.
pub(crate) type Fields = Vec<(String, String)>;

pub(crate) fn written(fields: Trailers) -> Fields {
    let text = |bytes: Bytes| bytes.iter().map(|byte| char::from(*byte)).collect();
    let fields = fields.into_iter();
    fields
        .map(|(name, value)| (name.into_owned(), text(value)))
        .collect()
}

pub(crate) fn read(fields: Fields) -> Trailers {
    let bytes = |text: String| text.chars().map(|character| character as u8).collect();
    let fields = fields.into_iter();
    fields.map(|(name, value)| (name.into(), bytes(value))).collect()
}

impl From<ResponseHead> for ReplyHead {
    fn from(ResponseHead { status, headers }: ResponseHead) -> Self {
        Self {
            status,
            headers: written(headers),
        }
    }
}

impl From<ReplyHead> for ResponseHead {
    fn from(ReplyHead { status, headers }: ReplyHead) -> Self {
        Self {
            status,
            headers: read(headers),
        }
    }
}

/// Why there is no reply, or no more of it.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Failure {
    pub(crate) kind: Cow<'static, str>,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn broken(message: &str) -> Self {
        Self {
            kind: "broken".into(),
            message: message.to_owned(),
        }
    }

    fn breaks_off(error: BodyError) -> Self {
        let kind = match error {
            BodyError::Damaged => "damaged",
            BodyError::Slow => "timeout",
            _ => "broken",
        };
        Self {
            kind: kind.into(),
            message: format!("the reply breaks off: {error}"),
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
            CallError::Credentials(_) => "credentials",
            CallError::Target(_) => "target",
            CallError::Busy => "busy",
            CallError::Timeout(_) => "timeout",
            CallError::Name(_) | CallError::Refused(_) | CallError::Secure(_) | CallError::Address(_) => {
                "unavailable"
            }
            _ => "broken",
        };
        Self {
            kind: kind.into(),
            message: error.to_string(),
        }
    }
}

/// What comes of a call, for its link.
pub(crate) enum Event {
    /// It has its turn and this memory: what there is of it can be copied.
    Begin(Arc<Memory>),
    /// A slice of its body is wanted.
    Pull,
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

/// Bytes of a call's body that lie in memory of what comes after the first, if not all of it is there at once.
const WINDOW: u64 = 1 << 20;

/// Bytes of such a body that are copied at once.
pub(crate) const SLICE: u64 = 256 << 10;

/// Bytes of a reply: [`CREDIT`], and what a service reads ahead.
const REPLY: u64 = 1 << 20;

/// What a service puts together of a body that comes in slices, if it does that.
const GATHERED: u64 = 8 << 20;

/// Bytes of one reply that the backend holds besides those that lie in the channel.
pub(crate) const CREDIT: u32 = 512 << 10;

/// A call as its link knows it.
pub(crate) struct Asked {
    pub(crate) turn: Turn,
    /// Bytes of its body.
    pub(crate) length: u64,
    /// Head and body, if that is all there, once it may begin.
    pub(crate) begun: oneshot::Receiver<(Vec<u8>, Vec<u8>)>,
    /// The body, if not.
    pub(crate) slices: Option<mpsc::UnboundedReceiver<Vec<u8>>>,
    pub(crate) credit: Arc<Semaphore>,
    pub(crate) events: Events,
}

/// When a call begins.
pub(crate) enum Turn {
    Now(Admitted),
    Later(Waiting),
}

/// What a call holds while it is under way, with a head of so many bytes, a body of so many, and whether that is all there.
pub(crate) fn held(head: u64, length: u64, is_whole: bool) -> u64 {
    let body = match (is_whole, length) {
        (true, length) => length,
        (false, length @ ..=GATHERED) => length + WINDOW,
        (false, _) => WINDOW,
    };
    head + body + REPLY
}

/// Bytes of a call's body, and the memory that was given for them.
struct Held {
    bytes: Vec<u8>,
    _memory: Arc<Memory>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The rest of a body, as it comes from a sandbox.
struct Source {
    slices: mpsc::UnboundedReceiver<Vec<u8>>,
    left: u64,
    window: Arc<Semaphore>,
    sandbox: Arc<Sandbox>,
    memory: Arc<Memory>,
    events: Events,
}

impl Source {
    /// The next slice, `None` if the link has ended.
    async fn next(mut self) -> (Self, Option<Bytes>) {
        // It is never closed.
        let permit = self.window.clone().acquire_many_owned(SLICE as u32).await.ok();
        self.events.tell(Event::Pull);
        let Some(bytes) = self.slices.recv().await else {
            return (self, None);
        };
        let length = bytes.len() as u64;
        self.sandbox.pass(Way::Up, length).await;
        self.left = self.left.saturating_sub(length);
        let held = Held {
            bytes,
            _memory: self.memory.clone(),
            _permit: permit,
        };
        (self, Some(Bytes::from_owner(held)))
    }
}

enum Coming {
    Idle(Source),
    Busy(Pin<Box<dyn Future<Output = (Source, Option<Bytes>)> + Send>>),
    Over(Result<(), BodyError>),
}

impl BodyStream for Coming {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            *self = match std::mem::replace(self, Self::Over(Err(BodyError::Gone))) {
                Self::Over(end) => {
                    *self = Self::Over(end);
                    return Poll::Ready(end.map(|()| None));
                }
                Self::Idle(source) if source.left == 0 => Self::Over(Ok(())),
                Self::Idle(source) => Self::Busy(Box::pin(source.next())),
                Self::Busy(mut next) => match next.as_mut().poll(&mut Context::from_waker(waker)) {
                    Poll::Pending => {
                        *self = Self::Busy(next);
                        return Poll::Pending;
                    }
                    Poll::Ready((_, None)) => Self::Over(Err(BodyError::Gone)),
                    Poll::Ready((source, Some(slice))) => {
                        *self = Self::Idle(source);
                        return Poll::Ready(Ok(Some(slice)));
                    }
                },
            };
        }
    }

    fn trailers(&mut self) -> Trailers {
        Trailers::new()
    }
}

impl Head {
    /// Of a call, which keeps its body.
    pub(crate) fn of(call: &mut Call) -> Self {
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let parameters = call.parameters.iter();
        Self {
            operation: call.operation.clone(),
            target: std::mem::take(&mut call.target),
            parameters: parameters
                .map(|(name, value)| (name.clone().into_owned(), text(value)))
                .collect(),
            patience: call.patience.map(milliseconds),
            pause: call.pause.map(milliseconds),
        }
    }

    /// Bytes of the body, if it says so.
    pub(crate) fn length(&self) -> Option<u64> {
        let is_length = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("content-length");
        self.parameters.iter().find(is_length)?.1.parse().ok()
    }

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
            pause: self.pause.map(Duration::from_millis),
            caller,
        }
    }
}

/// Makes a call when it is its turn, and tells all that comes of it. No more bytes of the reply are under way than there is credit.
pub(crate) async fn make(session: Arc<dyn Session>, caller: Caller, sandbox: Arc<Sandbox>, mut asked: Asked) {
    let (_place, memory) = match asked.turn {
        Turn::Now(admitted) => admitted,
        Turn::Later(waiting) => {
            let admitted = waiting.turn().await;
            asked.events.tell(Event::Begin(admitted.1.clone()));
            admitted
        }
    };
    let Ok((head, bytes)) = (&mut asked.begun).await else {
        return;
    };
    let events = asked.events.clone();
    let end = match Head::read(&head) {
        Ok(head) => {
            let body = match asked.slices.take() {
                Some(slices) => Body::Stream(Box::new(Coming::Idle(Source {
                    slices,
                    left: asked.length,
                    window: Arc::new(Semaphore::new(WINDOW as usize)),
                    sandbox: sandbox.clone(),
                    memory: memory.clone(),
                    events: events.clone(),
                }))),
                None if bytes.is_empty() => Body::Whole(Bytes::new()),
                None => {
                    sandbox.pass(Way::Up, bytes.len() as u64).await;
                    Body::Whole(Bytes::from_owner(Held {
                        bytes,
                        _memory: memory.clone(),
                        _permit: None,
                    }))
                }
            };
            let call = head.call(body, asked.length, caller);
            reply(session, call, &sandbox, &memory, (&asked.credit, &events)).await
        }
        Err(failure) => Err(failure),
    };
    events.tell(Event::End(end));
}

async fn reply(
    session: Arc<dyn Session>,
    call: Call,
    sandbox: &Sandbox,
    memory: &Memory,
    (credit, events): (&Semaphore, &Events),
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
    let encoded = serde_json::to_vec(&ReplyHead::from(head));
    events.tell(Event::Head(encoded.unwrap_or_default(), length));
    let mut stream = match body {
        Body::Whole(bytes) => {
            if !bytes.is_empty() {
                let length = bytes.len() as u64;
                memory.grow(length.saturating_sub(REPLY));
                sandbox.pass(Way::Down, length).await;
                events.tell(Event::Chunk(bytes));
            }
            return Ok(());
        }
        Body::Stream(stream) => stream,
    };
    while let Some(chunk) = poll_fn(|context| stream.poll_next(context.waker()))
        .await
        .map_err(Failure::breaks_off)?
    {
        sandbox.pass(Way::Down, chunk.len() as u64).await;
        let bytes = u32::try_from(chunk.len()).unwrap_or(u32::MAX).min(CREDIT);
        if let Ok(permit) = credit.acquire_many(bytes).await {
            permit.forget();
        }
        events.tell(Event::Chunk(chunk));
    }
    Ok(())
}
