//! The node's own calls, for sandboxes that have no process of their own to make them.

use crate::{
    call::{Failure, Head, ReplyHead},
    link::heard,
};
use bytes::Bytes;
use contract::{Attachment, Body, BodyError, BodyStream, Call, CallError, Reply, Trailers};
use exchange::{Broken, Id, Talk};
use parking_lot::Mutex;
use ring::{Bell, Heard};
use std::{
    future::{Future, poll_fn},
    io,
    os::unix::net::UnixStream as Socket,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};
use tokio::{
    io::Interest,
    net::UnixStream,
    runtime::Handle,
    task::{AbortHandle, JoinHandle},
    time::timeout,
};

/// Bytes of a reply that are handed on at once.
const CHUNK: usize = 256 << 10;

/// Bytes of a body whose length nobody has said: it is put together first.
const GATHERED: usize = 8 << 20;

/// How often a call is made, if the backend goes before its reply has begun.
const ATTEMPTS: u32 = 3;

/// Where links come from.
type Attach = Arc<dyn Fn() -> Result<Attachment, CallError> + Send + Sync>;

/// Makes a call over a link of its own, to be polled on a runtime. What may be made again is, with another backend where one has gone: S3's operations are the same when
/// they are done twice, but for those by `POST` and those on a condition. What comes of an object goes on where it was.
pub(crate) async fn make(attach: Attach, mut call: Call) -> Result<Reply, CallError> {
    let patience = call.patience;
    let reply = async {
        let head = Head::of(&mut call);
        let mut body = Upload::of(call.body, head.length()).await?;
        let (said, coming) = answered(&attach, &head, &mut body).await?;
        let rest = Rest::of(attach, head, &said);
        Ok(Reply {
            head: said.into(),
            body: match coming.length {
                Some(0) => Body::Whole(Bytes::new()),
                _ => Body::Stream(Box::new(Incoming {
                    coming,
                    rest,
                    again: None,
                    end: None,
                })),
            },
        })
    };
    match patience {
        // The service has the same, and says more; but there may be no backend.
        Some(patience) => timeout(patience, reply)
            .await
            .unwrap_or(Err(CallError::Timeout("the reply"))),
        None => reply.await,
    }
}

/// Makes a call, again if it can be, until it has a reply.
async fn answered(attach: &Attach, head: &Head, body: &mut Upload) -> Result<(ReplyHead, Coming), CallError> {
    let text = serde_json::to_vec(head).map_err(|error| CallError::Broken(error.to_string()))?;
    let mut attempts = 1..ATTEMPTS;
    loop {
        let client = Client::open(attach()?).await;
        let made = match client {
            Ok(client) => client.call(&text, body).await,
            Err(error) => Err(if error.kind() == io::ErrorKind::ConnectionReset {
                Broken::Gone
            } else {
                return Err(CallError::Broken(format!("no link to the backend: {error}")));
            }),
        };
        match made {
            Err(Broken::Gone) if body.is_whole() && is_same_twice(head) && attempts.next().is_some() => {}
            Err(broken) => return Err(failed(&broken)),
            Ok(reply) => return Ok(reply),
        }
    }
}

/// Whether what is done twice is as if it were done once, and answered the same: a change on a condition finds what it has changed itself.
fn is_same_twice(head: &Head) -> bool {
    match &head.operation[..] {
        "POST" => false,
        "GET" | "HEAD" => true,
        _ => {
            let begins = |name: &str, how: &str| {
                name.get(..how.len())
                    .is_some_and(|it| it.eq_ignore_ascii_case(how))
            };
            let path = head.target.split('?').next().unwrap_or_default();
            let mut fields = head.parameters.iter();
            let copies_itself = fields.any(|(name, value)| {
                let source = value.split('?').next().unwrap_or_default();
                name.eq_ignore_ascii_case("x-amz-copy-source")
                    && source.trim_start_matches('/') == path.trim_start_matches('/')
            });
            !head.parameters.iter().any(|(name, _)| {
                begins(name, "if-")
                    || begins(name, "x-amz-if-")
                    || (copies_itself && begins(name, "x-amz-copy-source-if-"))
            })
        }
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

    async fn call(self, head: &[u8], body: &mut Upload) -> Result<(ReplyHead, Coming), Broken> {
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
        let said = serde_json::from_slice(&head).map_err(|_| Broken::Gone)?;
        let coming = Coming {
            client: self,
            id,
            length,
        };
        Ok((said, coming))
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

/// The bytes of a reply's body, as they come over a link.
struct Coming {
    client: Client,
    id: Id,
    length: Option<u64>,
}

impl Coming {
    /// The next of them; none at the end.
    fn poll(&self, waker: &Waker) -> Poll<Result<Bytes, Broken>> {
        self.client.shared.poll(waker, |talk| match talk.ready(self.id)? {
            Ok(ready) => {
                let mut bytes = vec![0; ready.min(CHUNK)];
                let count = talk.read(self.id, &mut bytes)?;
                Some(count.map(|_| Bytes::from(bytes)))
            }
            Err(broken) => Some(Err(broken)),
        })
    }
}

/// How the rest of an object comes, if the backend goes on the way.
struct Rest {
    runtime: Handle,
    attach: Attach,
    /// Of a call for all that is still to come.
    head: Head,
    /// Of the object, the first byte that is to come, and the last.
    first: u64,
    last: u64,
}

impl Rest {
    /// Of what a call is answered; `None` if that is not an object of which it could be told that it is the same.
    fn of(attach: Attach, mut head: Head, said: &ReplyHead) -> Option<Self> {
        let field = |name: &str| {
            let found = said
                .headers
                .iter()
                .find(|(its, _)| its.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str())
        };
        if head.operation != "GET" || head.target.contains("partNumber=") {
            return None;
        }
        let etag = field("etag")?.to_owned();
        let (first, last) = match (said.status, field("content-range")) {
            (200, _) => (0, field("content-length")?.parse::<u64>().ok()?.checked_sub(1)?),
            (206, Some(range)) => {
                let (first, rest) = range.strip_prefix("bytes ")?.split_once('-')?;
                (first.parse().ok()?, rest.split_once('/')?.0.parse().ok()?)
            }
            _ => return None,
        };
        // What comes in parts has no checksum of all of it.
        head.parameters.retain(|(name, _)| {
            let name = name.to_ascii_lowercase();
            !(name == "range" || name == "x-amz-checksum-mode" || name.starts_with("if-"))
        });
        head.parameters.push(("if-match".to_owned(), etag));
        Some(Self {
            runtime: Handle::current(),
            attach,
            head,
            first,
            last,
        })
    }

    /// So many bytes have come.
    fn advance(&mut self, bytes: usize) {
        self.first += bytes as u64;
    }

    /// All that is to come, and how more of it would; `None` if it is not to be had.
    async fn come(mut self) -> Option<(Coming, Self)> {
        if self.first > self.last {
            return None;
        }
        let range = format!("{}-{}", self.first, self.last);
        self.head
            .parameters
            .push(("range".to_owned(), format!("bytes={range}")));
        let none = &mut Upload::Whole(Bytes::new());
        let (said, coming) = answered(&self.attach, &self.head, none).await.ok()?;
        self.head.parameters.pop();
        let expected = format!("bytes {range}/");
        let mut fields = said.headers.iter();
        let is_it = said.status == 206
            && fields.any(|(name, value)| {
                name.eq_ignore_ascii_case("content-range") && value.starts_with(&expected)
            });
        is_it.then_some((coming, self))
    }
}

/// The body of a reply.
struct Incoming {
    coming: Coming,
    rest: Option<Rest>,
    /// The rest is being asked for, where links can be made.
    again: Option<JoinHandle<Option<(Coming, Rest)>>>,
    end: Option<Result<(), BodyError>>,
}

impl BodyStream for Incoming {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            if let Some(end) = self.end {
                return Poll::Ready(end.map(|()| None));
            }
            if let Some(again) = &mut self.again {
                let found = ready!(Pin::new(again).poll(&mut Context::from_waker(waker)));
                self.again = None;
                match found {
                    Ok(Some((coming, rest))) => (self.coming, self.rest) = (coming, Some(rest)),
                    _ => self.end = Some(Err(BodyError::Gone)),
                }
                continue;
            }
            let end = match ready!(self.coming.poll(waker)) {
                Ok(piece) if !piece.is_empty() => {
                    if let Some(rest) = &mut self.rest {
                        rest.advance(piece.len());
                    }
                    return Poll::Ready(Ok(Some(piece)));
                }
                Ok(_) => Ok(()),
                Err(Broken::Gone) if self.rest.is_some() => {
                    self.again = self
                        .rest
                        .take()
                        .map(|rest| rest.runtime.clone().spawn(rest.come()));
                    continue;
                }
                Err(broken) => Err(match failure(&broken) {
                    Some(Failure { kind, .. }) if kind == "timeout" => BodyError::Slow,
                    Some(Failure { kind, .. }) if kind == "damaged" => BodyError::Damaged,
                    _ => BodyError::Gone,
                }),
            };
            self.end = Some(end);
        }
    }

    fn trailers(&mut self) -> Trailers {
        Trailers::new()
    }
}

fn failure(broken: &Broken) -> Option<Failure> {
    match broken {
        Broken::Failed(said) => serde_json::from_slice(said).ok(),
        Broken::Gone | Broken::Lost | Broken::TooLarge => None,
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
