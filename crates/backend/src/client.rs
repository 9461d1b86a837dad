//! The node's own calls, for sandboxes that have no process of their own to make them.

use crate::{
    call::{Failure, Head, ReplyHead},
    link::heard,
};
use bytes::Bytes;
use contract::{Attachment, Body, BodyError, BodyStream, Call, CallError, Reply, ResponseHead, Trailers};
use exchange::{Broken, Id, Talk};
use parking_lot::Mutex;
use ring::{Bell, Heard};
use std::{
    future::poll_fn,
    io,
    os::unix::net::UnixStream as Socket,
    sync::Arc,
    task::{Poll, Waker, ready},
};
use tokio::{io::Interest, net::UnixStream, task::AbortHandle, time::timeout};

/// Bytes of a reply that are handed on at once.
const CHUNK: usize = 256 << 10;

/// Bytes of a body whose length nobody has said: it is put together first.
const GATHERED: usize = 8 << 20;

/// How often a call is made, if the backend goes before its reply has begun.
const ATTEMPTS: u32 = 3;

/// Makes a call over a link of its own, to be polled on a runtime. What may be made again is, with another backend where one has gone: S3's operations are the same when
/// they are done twice, but for those by `POST`.
pub(crate) async fn make(
    attach: impl Fn() -> Result<Attachment, CallError>,
    mut call: Call,
) -> Result<Reply, CallError> {
    let patience = call.patience;
    let reply = async {
        let head = Head::of(&mut call);
        let mut body = Upload::of(call.body, head.length()).await?;
        let head = serde_json::to_vec(&head).map_err(|error| CallError::Broken(error.to_string()))?;
        let mut attempts = 1..ATTEMPTS;
        loop {
            let client = Client::open(attach()?).await;
            let made = match client {
                Ok(client) => client.call(&head, &mut body).await,
                Err(error) => Err(if error.kind() == io::ErrorKind::ConnectionReset {
                    Broken::Gone
                } else {
                    return Err(CallError::Broken(format!("no link to the backend: {error}")));
                }),
            };
            match made {
                Err(Broken::Gone)
                    if body.is_whole() && call.operation != "POST" && attempts.next().is_some() => {}
                Err(broken) => return Err(failed(&broken)),
                Ok(reply) => return Ok(reply),
            }
        }
    };
    match patience {
        // The service has the same, and says more; but there may be no backend.
        Some(patience) => timeout(patience, reply)
            .await
            .unwrap_or(Err(CallError::Timeout("the reply"))),
        None => reply.await,
    }
}

/// What is sent.
enum Upload {
    Whole(Bytes),
    Stream { stream: Box<dyn BodyStream>, left: u64 },
}

impl Upload {
    async fn of(body: Body, length: Option<u64>) -> Result<Self, CallError> {
        let mut stream = match (body, length) {
            (Body::Whole(bytes), _) => return Ok(Self::Whole(bytes)),
            (Body::Stream(stream), Some(left)) => return Ok(Self::Stream { stream, left }),
            (Body::Stream(stream), None) => stream,
        };
        let mut whole = Vec::new();
        while let Some(piece) = next(&mut *stream).await? {
            if whole.len() + piece.len() > GATHERED {
                let most = GATHERED >> 20;
                return Err(CallError::Broken(format!(
                    "a body of more than {most} MiB needs a `content-length`"
                )));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(Self::Whole(whole.into()))
    }

    fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    fn length(&self) -> u64 {
        match self {
            Self::Whole(bytes) => bytes.len() as u64,
            Self::Stream { left, .. } => *left,
        }
    }
}

async fn next(stream: &mut dyn BodyStream) -> Result<Option<Bytes>, CallError> {
    let piece = poll_fn(|context| stream.poll_next(context.waker())).await;
    piece.map_err(|error| CallError::Broken(breaks_off(error)))
}

fn breaks_off(error: BodyError) -> String {
    format!("what was to be sent breaks off: {error}")
}

/// A link of one call. It ends with this.
struct Client {
    shared: Arc<Shared>,
    listener: AbortHandle,
}

struct Shared {
    bell: Bell<UnixStream>,
    state: Mutex<State>,
}

struct State {
    talk: Talk,
    /// Of who waits for something to be said.
    waker: Option<Waker>,
}

impl Client {
    async fn open(attachment: Attachment) -> io::Result<Self> {
        let bell = Socket::from(attachment.bell);
        bell.set_nonblocking(true)?;
        let bell = Bell::new(UnixStream::from_std(bell)?);
        let socket = bell.get_ref();
        let take = || bell.take().map_err(io::Error::from);
        let file = socket.async_io(Interest::READABLE, take).await?;
        let talk = Talk::open(file.ok_or(io::ErrorKind::ConnectionReset)?)?;
        let shared = Arc::new(Shared {
            bell,
            state: Mutex::new(State { talk, waker: None }),
        });
        let listener = tokio::spawn(listen(shared.clone())).abort_handle();
        Ok(Self { shared, listener })
    }

    async fn call(self, head: &[u8], body: &mut Upload) -> Result<Reply, Broken> {
        let id = self.wait(|talk| talk.begin(head)).await?;
        let place = self.wait(|talk| talk.put_head(id, head)).await?;
        let length = body.length();
        let mut rest = match body {
            Upload::Whole(bytes) => bytes.clone(),
            Upload::Stream { .. } => Bytes::new(),
        };
        let first = self.wait(|talk| talk.put_first(id, &rest)).await?;
        let begin = |talk: &mut Talk| Some(talk.call(id, place, first, length));
        self.wait(begin).await?;
        let _ = rest.split_to(first.length as usize);
        loop {
            if rest.is_empty() {
                let Upload::Stream { stream, left } = body else {
                    break;
                };
                if *left == 0 {
                    break;
                }
                let Some(piece) = self.next_piece(id, &mut **stream).await? else {
                    break;
                };
                // A body that is longer than it says is cut: the service hears of a whole one.
                rest = piece.slice(..piece.len().min(usize::try_from(*left).unwrap_or(usize::MAX)));
                *left -= rest.len() as u64;
            }
            match self.wait(|talk| talk.send(id, &rest)).await? {
                // There is a reply already.
                0 => break,
                sent => drop(rest.split_to(sent)),
            }
        }
        let exchange::Head { head, length } = self.wait(|talk| talk.head(id)).await?;
        let read: ReplyHead = serde_json::from_slice(&head).map_err(|_| Broken::Gone)?;
        let body = match length {
            Some(0) => Body::Whole(Bytes::new()),
            _ => Body::Stream(Box::new(Incoming {
                client: self,
                id,
                end: None,
            })),
        };
        Ok(Reply {
            head: read.into(),
            body,
        })
    }

    /// What comes next of a body that is streamed; nothing once there is a reply, which does not wait for the rest of it.
    async fn next_piece(&self, id: Id, stream: &mut dyn BodyStream) -> Result<Option<Bytes>, Broken> {
        let ended = |talk: &mut Talk| talk.is_answered(id).then_some(Ok(()));
        poll_fn(|context| {
            if let Poll::Ready(ended) = self.shared.poll(context.waker(), ended) {
                return Poll::Ready(ended.map(|()| None));
            }
            // Who breaks off has no reply: the call is given up.
            let broken = |why: &str| Err(Broken::Failed(Failure::broken(why).encoded()));
            Poll::Ready(match ready!(stream.poll_next(context.waker())) {
                Ok(Some(piece)) => Ok(Some(piece)),
                Ok(None) => broken("what was to be sent is shorter than its `content-length`"),
                Err(error) => broken(&breaks_off(error)),
            })
        })
        .await
    }

    async fn wait<T>(
        &self,
        mut attempt: impl FnMut(&mut Talk) -> Option<Result<T, Broken>>,
    ) -> Result<T, Broken> {
        poll_fn(|context| self.shared.poll(context.waker(), &mut attempt)).await
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Shared {
    fn poll<T>(
        &self,
        waker: &Waker,
        mut attempt: impl FnMut(&mut Talk) -> Option<Result<T, Broken>>,
    ) -> Poll<Result<T, Broken>> {
        let mut state = self.state.lock();
        loop {
            state.talk.hear();
            if let Some(done) = attempt(&mut state.talk) {
                if state.talk.must_ring() && self.bell.ring().is_err() {
                    state.talk.end();
                }
                return Poll::Ready(done);
            }
            if state.talk.is_gone() {
                return Poll::Ready(Err(Broken::Gone));
            }
            if state.talk.sleep() {
                state.waker = Some(waker.clone());
                return Poll::Pending;
            }
        }
    }
}

/// Wakes who waits, whenever the other end rings.
async fn listen(shared: Arc<Shared>) {
    let mut is_there = true;
    while is_there {
        is_there = matches!(heard(&shared.bell).await, Ok(Heard::Rung | Heard::Nothing));
        let mut state = shared.state.lock();
        if !is_there {
            // What it said before is heard before.
            state.talk.hear();
            state.talk.end();
        }
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

/// The body of a reply.
struct Incoming {
    client: Client,
    id: Id,
    end: Option<Result<(), BodyError>>,
}

impl BodyStream for Incoming {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        if let Some(end) = self.end {
            return Poll::Ready(end.map(|()| None));
        }
        let read = |talk: &mut Talk| match talk.ready(self.id)? {
            Ok(ready) => {
                let mut bytes = vec![0; ready.min(CHUNK)];
                let count = talk.read(self.id, &mut bytes)?;
                Some(count.map(|_| Bytes::from(bytes)))
            }
            Err(broken) => Some(Err(broken)),
        };
        let end = match ready!(self.client.shared.poll(waker, read)) {
            Ok(piece) if !piece.is_empty() => return Poll::Ready(Ok(Some(piece))),
            Ok(_) => Ok(()),
            Err(broken) => Err(match failure(&broken) {
                Some(Failure { kind, .. }) if kind == "timeout" => BodyError::Slow,
                Some(Failure { kind, .. }) if kind == "damaged" => BodyError::Damaged,
                _ => BodyError::Gone,
            }),
        };
        self.end = Some(end);
        Poll::Ready(end.map(|()| None))
    }

    fn trailers(&mut self) -> Trailers {
        Trailers::new()
    }
}

fn failure(broken: &Broken) -> Option<Failure> {
    match broken {
        Broken::Failed(said) => serde_json::from_slice(said).ok(),
        Broken::Gone | Broken::TooLarge => None,
    }
}

fn failed(broken: &Broken) -> CallError {
    match failure(broken) {
        Some(Failure { kind, .. }) if kind == "busy" => CallError::Busy,
        Some(Failure { kind, .. }) if kind == "timeout" => CallError::Timeout("the reply"),
        Some(Failure { message, .. }) => CallError::Broken(message),
        None => CallError::Broken(broken.to_string()),
    }
}

impl From<ReplyHead> for ResponseHead {
    fn from(ReplyHead { status, headers }: ReplyHead) -> Self {
        // Each character is a byte, as `call` has it.
        let bytes = |text: String| text.chars().map(|character| character as u8).collect();
        Self {
            status,
            headers: headers
                .into_iter()
                .map(|(name, value)| (name.into(), bytes(value)))
                .collect(),
        }
    }
}
