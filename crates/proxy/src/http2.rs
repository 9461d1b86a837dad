//! A connection of HTTP/2, each of whose streams is a connection of HTTP/1.1 to a gateway.

use crate::{
    forward,
    server::{Inner, drained},
};
use bytes::Bytes;
use contract::Origin;
use http::header::TRANSFER_ENCODING;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::{Request, Response, body::Incoming, client, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    error::Error,
    future::pending,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
    runtime::Handle,
    sync::{Notify, OwnedSemaphorePermit, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};
use trailers::{Slip, Trailing};

/// Fields of one message, compressed, take this at most. More than the gateway takes, so that it is the gateway that says so.
const HEAD: u32 = 64 << 10;
/// Of an answer; a function may send more of them than a client.
const ANSWER_FIELDS: usize = 1024;
/// What is read ahead of a stream's gateway, and of all of them.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What is kept of a stream's answer until the client takes it: for HTTP/2, and while it is read from the gateway. A head must
/// fit in the latter.
const SEND_BUFFER: usize = 64 << 10;
const ANSWER_BUFFER: usize = 128 << 10;
/// How often a client that says nothing is asked whether it is there.
const PING: Duration = Duration::from_secs(30);
/// Requests that a connection may cancel before it matters how many it lets finish.
const CANCELLED: u64 = 100;

/// What a connection's streams have in common.
struct Connection {
    inner: Arc<Inner>,
    origin: Origin,
    /// Streams in work.
    active: watch::Sender<usize>,
    finished: AtomicU64,
    cancelled: AtomicU64,
    /// The client cancels more than it lets finish.
    abused: Notify,
}

/// Ends when the client has gone, has been idle for too long, or was told to go and has been answered.
pub(crate) async fn serve<IO>(io: IO, origin: Origin, inner: Arc<Inner>, mut draining: watch::Receiver<bool>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let timeouts = inner.options.timeouts;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(inner.options.streams)
        .max_header_list_size(HEAD)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING)
        .keep_alive_timeout(timeouts.ping);
    let (active, mut watched) = watch::channel(0);
    let shared = Arc::new(Connection {
        inner,
        origin: Origin {
            http2: true,
            ..origin
        },
        active,
        finished: AtomicU64::new(0),
        cancelled: AtomicU64::new(0),
        abused: Notify::new(),
    });
    let streams = shared.clone();
    let service = service_fn(move |request| {
        let stream = Stream::new(streams.clone());
        async move { Ok::<_, Infallible>(exchange(stream, request).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);
    let abused = tokio::select! {
        // An error is the client's, and it knows.
        _ = connection.as_mut() => return,
        () = idle(&mut watched, timeouts.idle) => false,
        () = shared.abused.notified() => true,
        () = drained(&mut draining) => false,
    };
    // It says GOAWAY, and goes on until the streams are done and the client knows; a client that does not say so is left.
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = idle(&mut watched, timeouts.linger), if !abused => {}
        () = sleep(timeouts.linger), if abused => {}
    }
}

/// Ends when there has been no stream for so long.
async fn idle(active: &mut watch::Receiver<usize>, limit: Duration) {
    loop {
        if active.wait_for(|count| *count == 0).await.is_err() {
            // The streams are gone, and with them the connection, which its own future tells.
            pending::<()>().await;
        }
        if timeout(limit, active.changed()).await.is_err() {
            return;
        }
    }
}

/// A stream, from its request to the end of its answer.
struct Stream {
    connection: Arc<Connection>,
    done: bool,
}

impl Stream {
    fn new(connection: Arc<Connection>) -> Self {
        connection.active.send_modify(|count| *count += 1);
        connection.inner.counts.streams.fetch_add(1, Ordering::Relaxed);
        Self {
            connection,
            done: false,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.active.send_modify(|count| *count -= 1);
        if self.done {
            connection.finished.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let cancelled = connection.cancelled.fetch_add(1, Ordering::Relaxed) + 1;
        connection.inner.counts.cancelled.fetch_add(1, Ordering::Relaxed);
        if cancelled > CANCELLED && cancelled > connection.finished.load(Ordering::Relaxed) {
            connection.abused.notify_one();
        }
    }
}

/// Has a gateway answer a request.
async fn exchange(stream: Stream, request: Request<Incoming>) -> Response<Answer> {
    match try_exchange(&stream, request).await {
        Ok((response, wire)) => {
            let (mut parts, body) = response.into_parts();
            forward::response(&mut parts);
            Response::from_parts(parts, Answer::new(stream, Source::Gateway { body, _wire: wire }))
        }
        Err(error) => {
            tracing::debug!(%error, "a request was not taken by a gateway");
            let (parts, body) = forward::not_taken();
            Response::from_parts(parts, Answer::new(stream, Source::Own(body.into())))
        }
    }
}

/// A connection to a gateway. It is closed when this is dropped.
struct Wire {
    driver: JoinHandle<()>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn try_exchange(
    stream: &Stream,
    request: Request<Incoming>,
) -> Result<(Response<Incoming>, Wire), Box<dyn Error + Send + Sync>> {
    let connection = &stream.connection;
    let permit = connection.inner.sockets.clone().acquire_owned().await?;
    let socket = UnixStream::from_std((connection.inner.dial)(connection.origin)?)?;
    let (socket, slip) = Trailing::new(socket);
    let (mut sender, driver) = client::conn::http1::Builder::new()
        .max_headers(ANSWER_FIELDS)
        .max_buf_size(ANSWER_BUFFER)
        .handshake(TokioIo::new(socket))
        .await?;
    let wire = Wire {
        driver: tokio::spawn(async move {
            // What goes wrong reaches the request, too.
            let _ = driver.await;
        }),
        _permit: permit,
    };
    let (mut parts, body) = request.into_parts();
    forward::request(&mut parts, !body.is_end_stream());
    let body = Upload {
        body: Some(body),
        // A request with a length has no place for trailers in HTTP/1.1.
        slip: parts.headers.contains_key(TRANSFER_ENCODING).then_some(slip),
        linger: connection.inner.options.timeouts.linger,
    };
    let response = sender.send_request(Request::from_parts(parts, body)).await?;
    Ok((response, wire))
}

/// A request's body. A gateway that answers before it has all of it takes no more; then the rest is discarded for a moment, as
/// the gateway does on a client's own connection, because many clients take the reset of a stream for an error although the
/// answer was complete (RFC 9113, section 8.1).
struct Upload {
    body: Option<Incoming>,
    /// Where its trailers go, which hyper would drop unless they were announced.
    slip: Option<Slip>,
    linger: Duration,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if let (Some(Ok(frame)), Some(slip)) = (&frame, &this.slip)
            && let Some(trailers) = frame.trailers_ref()
        {
            slip.put(trailers);
            return Poll::Ready(None);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        // What goes in chunks has no length, whatever the client said of it.
        let body = self.body.as_ref().filter(|_| self.slip.is_none());
        body.map(Body::size_hint).unwrap_or_default()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(mut body) = self.body.take().filter(|body| !body.is_end_stream())
            && let Ok(runtime) = Handle::try_current()
        {
            let linger = self.linger;
            runtime.spawn(async move {
                let discard = async { while let Some(Ok(_)) = body.frame().await {} };
                let _ = timeout(linger, discard).await;
            });
        }
    }
}

/// An answer's body, and what ends with it.
struct Answer {
    source: Source,
    stream: Stream,
}

enum Source {
    Gateway { body: Incoming, _wire: Wire },
    Own(Bytes),
}

impl Answer {
    fn new(stream: Stream, source: Source) -> Self {
        let mut answer = Self { source, stream };
        answer.stream.done = answer.is_end_stream();
        answer
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = match &mut this.source {
            Source::Gateway { body, .. } => match Pin::new(body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => return Poll::Pending,
            },
            Source::Own(body) if body.is_empty() => None,
            Source::Own(body) => Some(Ok(Frame::data(std::mem::take(body)))),
        };
        this.stream.done = frame.is_none() || this.is_end_stream();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Gateway { body, .. } => body.is_end_stream(),
            Source::Own(body) => body.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Gateway { body, .. } => body.size_hint(),
            Source::Own(body) => SizeHint::with_exact(body.len() as u64),
        }
    }
}
