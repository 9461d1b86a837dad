//! What services that speak HTTP have in common: a call runs on their runtime as long as somebody waits for it, and the body of its
//! reply comes from there to a reader on another thread.
//!
//! ```text
//! reader's thread          the service's runtime
//!   call ────────────────▶ spawned task ──▶ request ──▶ the other side
//!   Calling ◀── reply ────────┘
//!   Coming  ◀── pieces ─────────────────── hyper ◀──────────┘
//! ```
//!
//! [`testing`] is the other side for their tests (a feature of dev-dependencies).

#![forbid(unsafe_code)]

#[cfg(feature = "testing")]
pub mod testing;

use bytes::Bytes;
use contract::{BodyError, BodyStream, CallError, Calling, Reply, Trailers};
use http::HeaderMap;
use hyper::body::Incoming;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, oneshot},
    task::AbortHandle,
    time::{self, Sleep},
};

/// Begins a call on this runtime. It ends when what is returned is dropped.
pub fn call(
    runtime: &Handle,
    call: impl Future<Output = Result<Reply, CallError>> + Send + 'static,
) -> Calling {
    let (answer, answered) = oneshot::channel();
    let task = runtime.spawn(async move {
        // Nobody hears it only if the call was given up.
        let _ = answer.send(call.await);
    });
    let task = Abandoned(task.abort_handle());
    Box::pin(async move {
        let reply = answered.await;
        drop(task);
        reply.unwrap_or_else(|_| Err(CallError::Broken("the node is shutting down".into())))
    })
}

/// Ends a call that nobody waits for. A call that has its reply is over already.
struct Abandoned(AbortHandle);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A reply's body, as a sandbox reads it.
pub struct Coming {
    body: Incoming,
    trailers: Trailers,
    end: Option<Result<(), BodyError>>,
    pause: Option<Pause>,
    _place: OwnedSemaphorePermit,
}

/// A body, whatever it is, that may make its reader wait for so long and no longer.
pub struct Paced {
    body: Box<dyn BodyStream>,
    pause: Pause,
    is_late: bool,
}

/// How long a body may make its reader wait.
struct Pause {
    allowed: Duration,
    runtime: Handle,
    /// Runs while the reader waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Coming {
    /// Of what comes on this runtime, with pauses no longer than `pause`. Its place among those under way is kept until it is dropped.
    pub fn new(
        body: Incoming,
        runtime: &Handle,
        pause: Option<Duration>,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            body,
            trailers: Trailers::new(),
            end: None,
            pause: pause.map(|allowed| Pause {
                allowed,
                runtime: runtime.clone(),
                timer: None,
            }),
            _place: place,
        }
    }
}

impl Paced {
    /// Of a body that comes on this runtime.
    pub fn new(body: Box<dyn BodyStream>, runtime: &Handle, allowed: Duration) -> Self {
        Self {
            body,
            pause: Pause {
                allowed,
                runtime: runtime.clone(),
                timer: None,
            },
            is_late: false,
        }
    }
}

impl BodyStream for Paced {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        if self.is_late {
            return Poll::Ready(Err(BodyError::Slow));
        }
        let next = self.body.poll_next(waker);
        if next.is_pending() {
            ready!(self.pause.poll_over(&mut Context::from_waker(waker)));
            self.is_late = true;
            return Poll::Ready(Err(BodyError::Slow));
        }
        self.pause.timer = None;
        next
    }

    fn trailers(&mut self) -> Trailers {
        match self.is_late {
            true => Trailers::new(),
            false => self.body.trailers(),
        }
    }
}

impl Pause {
    /// Whether the reader has waited too long. The waker is woken when it will have.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // Whoever reads is on a thread of its own.
        let _runtime = self.runtime.enter();
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(time::sleep(self.allowed)));
        timer.as_mut().poll(context)
    }
}

impl BodyStream for Coming {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        let context = &mut Context::from_waker(waker);
        loop {
            if let Some(end) = self.end {
                return Poll::Ready(end.map(|()| None));
            }
            let frame = http_body::Body::poll_frame(Pin::new(&mut self.body), context);
            let Poll::Ready(frame) = frame else {
                let Some(pause) = &mut self.pause else {
                    return Poll::Pending;
                };
                ready!(pause.poll_over(context));
                self.end = Some(Err(BodyError::Slow));
                continue;
            };
            if let Some(pause) = &mut self.pause {
                pause.timer = None;
            }
            match frame {
                None => self.end = Some(Ok(())),
                // It ended before its length, or within a chunk.
                Some(Err(_)) => self.end = Some(Err(BodyError::Gone)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) if piece.is_empty() => {}
                    Ok(piece) => return Poll::Ready(Ok(Some(piece))),
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            self.trailers = fields(&trailers);
                        }
                    }
                },
            }
        }
    }

    fn trailers(&mut self) -> Trailers {
        match self.end {
            Some(Ok(())) => std::mem::take(&mut self.trailers),
            _ => Trailers::new(),
        }
    }
}

/// Header fields in the contract's form.
pub fn fields(headers: &HeaderMap) -> Trailers {
    let all = headers.iter();
    all.map(|(name, value)| {
        (
            name.as_str().to_owned().into(),
            Bytes::copy_from_slice(value.as_bytes()),
        )
    })
    .collect()
}
