//! The node's end.
//!
//! # What is made again
//! If the backend ends before a reply has begun, another is asked: by methods that are the same when they are done twice (RFC 9110, section 9.2.2), as long as
//! nothing of the body has left; by any method, if the backend had not begun with it. What waited in the node's socket was not lost. All else fails: nobody
//! knows what the other side has done, or the body is gone.

use super::{Asked, Coming, Ear, Granted, LARGEST, PIECE, Said, encoded, end, send, send_body};
use crate::{
    call::{ReplyHead, written},
    control::{self, Open},
    supervisor::Shared,
};
use bytes::Bytes;
use contract::{
    Body, BodyError, BodyStream, Call, CallError, Calling, Grant, Reply, ResponseHead, Service, Session,
    Trailers,
};
use egress::Paced;
use ring::bells;
use rustix::io::Errno;
use std::{
    future::poll_fn,
    io, mem,
    os::{fd::AsFd as _, unix::net::UnixDatagram as Socket},
    sync::Arc,
    task::{Poll, Waker},
};
use tokio::{
    io::Interest,
    net::{UnixDatagram, UnixStream},
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
    time::timeout,
};

/// How often a call is made, if the backend goes before its reply has begun.
const ATTEMPTS: u32 = 3;

/// Bytes of a body that go with its call at once.
const SHORT: usize = PIECE / 2;

/// A service of the backend's, for the node's own calls.
pub struct Lines {
    name: &'static str,
    is_granted: fn(&Grant) -> bool,
    ways: Arc<Ways>,
}

/// How lines are made.
struct Ways {
    runtime: Handle,
    shared: Arc<Shared>,
    /// What the supervisor has. Not that there were datagrams: what matters is what the socket says it is ready for.
    control: UnixDatagram,
    places: Arc<Semaphore>,
}

impl Lines {
    pub(crate) fn new(
        name: &'static str,
        is_granted: fn(&Grant) -> bool,
        runtime: Handle,
        calls: usize,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let _runtime = runtime.enter();
        let control = Socket::from(shared.control.try_clone()?);
        control.set_nonblocking(true)?;
        let ways = Ways {
            control: UnixDatagram::from_std(control)?,
            places: Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS))),
            runtime: runtime.clone(),
            shared,
        };
        Ok(Self {
            name,
            is_granted,
            ways: Arc::new(ways),
        })
    }
}

impl Service for Lines {
    fn name(&self) -> &'static str {
        self.name
    }

    fn bind(&self, grant: &Grant) -> Option<Arc<dyn Session>> {
        (self.is_granted)(grant).then(|| {
            // By the first call it is there.
            self.ways.shared.want();
            let mut told = Vec::new();
            let granted = encoded(&Granted::of(self.name, grant));
            Said::Grant(granted.into()).write(&mut told);
            Arc::new(LinesSession {
                granted: told.into(),
                ways: self.ways.clone(),
            }) as Arc<dyn Session>
        })
    }
}

struct LinesSession {
    /// As it is said.
    granted: Arc<[u8]>,
    ways: Arc<Ways>,
}

impl Session for LinesSession {
    fn call(&self, call: Call) -> Calling {
        let Ok(place) = self.ways.places.clone().try_acquire_owned() else {
            return Box::pin(async { Err(CallError::Busy) });
        };
        let (ways, granted) = (self.ways.clone(), self.granted.clone());
        egress::call(&self.ways.runtime, async move {
            ways.make(&granted, call, place).await
        })
    }
}

impl Ways {
    /// A line to the backend that is there, or to the next.
    async fn open(&self) -> Result<Arc<UnixStream>, CallError> {
        let opened: io::Result<_> = async {
            let (far, near) = bells()?;
            let sent = || control::send(&self.control, &Open::Line, far.as_fd()).map_err(io::Error::from);
            // Where the backend is far behind, this waits.
            self.control.async_io(Interest::WRITABLE, sent).await?;
            end(near.into_inner())
        }
        .await;
        opened.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::TOOMANYREFS | Errno::NOMEM) => {
                CallError::Busy
            }
            _ => CallError::Broken(format!("no line to the backend: {error}")),
        })
    }

    async fn make(
        &self,
        granted: &[u8],
        mut call: Call,
        place: OwnedSemaphorePermit,
    ) -> Result<Reply, CallError> {
        let (patience, pause) = (call.patience, call.pause);
        let answered = async {
            let mut upload = Upload::of(&mut call);
            let is_idempotent = IDEMPOTENT.contains(&&*call.operation);
            let words = upload.words(granted, call)?;
            let mut attempts = 1..ATTEMPTS;
            loop {
                match self.attempt(&words, &mut upload).await {
                    Ok(answer) => return Ok(answer),
                    Err(NoReply::Failed(error)) => return Err(error),
                    Err(NoReply::Lost { had_begun })
                        if upload.is_here() && (is_idempotent || !had_begun) && attempts.next().is_some() => {
                    }
                    Err(NoReply::Lost { .. }) => return Err(CallError::Broken(LOST.to_owned())),
                }
            }
        };
        let Answer {
            head,
            mut ear,
            sending,
        } = match patience {
            Some(patience) => {
                let late = CallError::Timeout("the beginning of a reply");
                timeout(patience, answered).await.unwrap_or(Err(late))?
            }
            None => answered.await?,
        };
        if sending.is_none()
            && let Some(bytes) = ear.whole()
        {
            let body = Body::Whole(bytes);
            return Ok(Reply { head, body });
        }
        let taken = Box::new(Taken {
            coming: Coming::new(ear),
            sending,
            _place: place,
        });
        let body = Body::Stream(match pause {
            Some(pause) => Box::new(Paced::new(taken, &self.runtime, pause)),
            None => taken,
        });
        Ok(Reply { head, body })
    }

    /// Makes a call once.
    async fn attempt(&self, words: &[u8], upload: &mut Upload) -> Result<Answer, NoReply> {
        let socket = self.open().await.map_err(NoReply::Failed)?;
        let mut ear = Ear::new(socket.clone());
        // If it is not taken, what is heard says why.
        let _ = send(&socket, words).await;
        let (mut begun, mut sending) = (false, None);
        let waits = upload.waits();
        loop {
            let said = tokio::select! {
                said = ear.next() => said,
                // Of a body that is streamed, something has come.
                first = upload.first(), if begun && upload.is_stream() => {
                    sending = upload.begin(first, &socket).await;
                    continue;
                }
            };
            match said {
                Ok(Some(Said::Begun)) if waits && !begun => {
                    begun = true;
                    sending = upload.again(&socket).await;
                }
                Ok(Some(Said::Head(head))) => {
                    let head = serde_json::from_slice::<ReplyHead>(&head).ok();
                    let Some(head) = head.filter(|head| (100..1000).contains(&head.status)) else {
                        return Err(nonsense());
                    };
                    return Ok(Answer {
                        head: head.into(),
                        ear,
                        sending: sending.or_else(|| upload.rest(&socket)),
                    });
                }
                Ok(Some(Said::Failed(error))) => return Err(NoReply::Failed(error)),
                Ok(Some(_)) => return Err(nonsense()),
                Ok(None) | Err(_) => {
                    let had_begun = begun || !waits;
                    return Err(NoReply::Lost { had_begun });
                }
            }
        }
    }
}

/// Methods that are the same when they are done twice.
const IDEMPOTENT: [&str; 6] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];

const LOST: &str = "the backend ended before there was a reply, and the request may have been done";

/// The reply begins, and what of the body is still being sent.
struct Answer {
    head: ResponseHead,
    ear: Ear,
    sending: Option<Sending>,
}

fn nonsense() -> NoReply {
    NoReply::Failed(CallError::Broken("what the backend says is no reply".to_owned()))
}

enum NoReply {
    Failed(CallError),
    /// The backend has gone.
    Lost {
        had_begun: bool,
    },
}

/// The body of a call, as far as it is here.
enum Upload {
    None,
    /// It goes with the call.
    Short(Bytes),
    Long(Bytes),
    /// Nothing of it was taken.
    Stream(Box<dyn BodyStream>),
    /// It had nothing but an end.
    Ended(Trailers),
    /// Some of it was taken.
    Gone,
}

impl Upload {
    /// Takes it, and says its length if that is known.
    fn of(call: &mut Call) -> Self {
        match mem::replace(&mut call.body, Body::Whole(Bytes::new())) {
            Body::Stream(stream) => Self::Stream(stream),
            Body::Whole(bytes) if bytes.is_empty() => Self::None,
            Body::Whole(bytes) => {
                let is_length = |name: &str| name.eq_ignore_ascii_case("content-length");
                call.parameters.retain(|(name, _)| !is_length(name));
                let length = bytes.len().to_string();
                call.parameters.push(("content-length".into(), length.into()));
                match bytes.len() <= SHORT {
                    true => Self::Short(bytes),
                    false => Self::Long(bytes),
                }
            }
        }
    }

    /// What is said first.
    fn words(&self, granted: &[u8], call: Call) -> Result<Vec<u8>, CallError> {
        let asked = encoded(&Asked {
            operation: call.operation,
            target: call.target,
            parameters: written(call.parameters),
            has_body: !matches!(self, Self::None),
            waits: self.waits(),
        });
        if asked.len() > LARGEST {
            return Err(CallError::Broken("the request's head is too large".to_owned()));
        }
        let mut words = granted.to_vec();
        Said::Call(asked.into()).write(&mut words);
        if let Self::Short(bytes) = self {
            Said::Piece(bytes.clone()).write(&mut words);
            Said::End(Trailers::new()).write(&mut words);
        }
        Ok(words)
    }

    fn waits(&self) -> bool {
        matches!(self, Self::Long(_) | Self::Stream(_) | Self::Ended(_))
    }

    fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// Whether it can be sent from its beginning.
    fn is_here(&self) -> bool {
        !matches!(self, Self::Gone)
    }

    /// The first piece of a stream.
    async fn first(&mut self) -> Result<Option<Bytes>, BodyError> {
        match self {
            Self::Stream(stream) => poll_fn(|context| stream.poll_next(context.waker())).await,
            _ => Err(BodyError::Gone),
        }
    }

    /// Sends a stream, of which this is the first.
    async fn begin(
        &mut self,
        first: Result<Option<Bytes>, BodyError>,
        socket: &Arc<UnixStream>,
    ) -> Option<Sending> {
        let Self::Stream(mut stream) = mem::replace(self, Self::Gone) else {
            return None;
        };
        let mut words = Vec::new();
        match first {
            Ok(Some(piece)) => return Some(Sending::start(socket, Some(piece), stream)),
            Ok(None) => {
                let trailers = stream.trailers();
                *self = Self::Ended(trailers.clone());
                Said::End(trailers).write(&mut words);
            }
            Err(error) => Said::Broke(error).write(&mut words),
        }
        // Whether it is taken is heard.
        let _ = send(socket, &words).await;
        None
    }

    /// Sends what was here before the backend had begun.
    async fn again(&mut self, socket: &Arc<UnixStream>) -> Option<Sending> {
        match self {
            Self::Long(bytes) => Some(Sending::start(socket, None, Box::new(Slices(bytes.clone())))),
            Self::Ended(trailers) => {
                let mut words = Vec::new();
                Said::End(trailers.clone()).write(&mut words);
                let _ = send(socket, &words).await;
                None
            }
            _ => None,
        }
    }

    /// Sends a stream of which nothing has come before there is a reply.
    fn rest(&mut self, socket: &Arc<UnixStream>) -> Option<Sending> {
        match mem::replace(self, Self::Gone) {
            Self::Stream(stream) => Some(Sending::start(socket, None, stream)),
            _ => None,
        }
    }
}

/// A body in pieces.
struct Slices(Bytes);

impl BodyStream for Slices {
    fn poll_next(&mut self, _: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        let piece = self.0.split_to(self.0.len().min(PIECE));
        Poll::Ready(Ok((!piece.is_empty()).then_some(piece)))
    }

    fn trailers(&mut self) -> Trailers {
        Trailers::new()
    }
}

/// A body is being sent, until this is dropped.
struct Sending(Option<AbortHandle>);

impl Sending {
    fn start(socket: &Arc<UnixStream>, first: Option<Bytes>, mut stream: Box<dyn BodyStream>) -> Self {
        let socket = socket.clone();
        let task = tokio::spawn(async move {
            // Who does not take it has said why, or has gone.
            let _ = send_body(&socket, Vec::new(), first, &mut *stream).await;
        });
        Self(Some(task.abort_handle()))
    }

    /// It goes on for itself.
    fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// The body of a reply. Dropping it gives up what has not come.
struct Taken {
    coming: Coming,
    sending: Option<Sending>,
    _place: OwnedSemaphorePermit,
}

impl BodyStream for Taken {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        let next = self.coming.poll_next(waker);
        if matches!(next, Poll::Ready(Ok(None)))
            && let Some(sending) = self.sending.take()
        {
            // The other side may still read what it has answered.
            sending.leave();
        }
        next
    }

    fn trailers(&mut self) -> Trailers {
        self.coming.trailers()
    }
}
