//! A server that does what the key says, and remembers what it was sent.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    Request, Response,
    body::{Body, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use std::{
    collections::VecDeque,
    convert::Infallible,
    future::pending,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
};
use tokio::{net::TcpListener, runtime::Runtime};

/// The other side, on a runtime of its own.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    _runtime: Runtime,
}

#[derive(Default)]
struct State {
    reached: AtomicUsize,
    under_way: AtomicUsize,
    seen: Mutex<Vec<(http::request::Parts, Bytes)>>,
    /// What is answered to whatever has no meaning of its own.
    answer: Mutex<Option<(u16, &'static str, &'static str)>>,
}

/// A request that is under way.
struct UnderWay(Arc<State>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, SeqCst);
    }
}

/// A body of these pieces, and what comes after them.
struct Pieces {
    pieces: VecDeque<Bytes>,
    then: Then,
    _under_way: UnderWay,
}

#[derive(Clone, Copy)]
enum Then {
    End,
    Nothing,
    More,
    Break,
    Broken,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(piece) = self.pieces.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match self.then {
            Then::End => Poll::Ready(None),
            Then::Nothing => Poll::Pending,
            Then::More => {
                // Others have their turn.
                context.waker().wake_by_ref();
                self.pieces.push_back(Bytes::from_static(&[b'x'; 4096]));
                Poll::Pending
            }
            Then::Break => {
                // What came before it goes out first.
                self.then = Then::Broken;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Then::Broken => Poll::Ready(Some(Err(io::ErrorKind::BrokenPipe.into()))),
        }
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        let runtime = super::runtime();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::<State>::default());
        let shared = state.clone();
        runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let shared = shared.clone();
                let service = service_fn(move |request| answer(request, shared.clone()));
                // It ends with an error whenever a body is broken off.
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self {
            address,
            state,
            _runtime: runtime,
        }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Has it answer this from now on.
    pub(crate) fn answer(&self, status: u16, media_type: &'static str, body: &'static str) {
        *self.state.answer.lock().unwrap() = Some((status, media_type, body));
    }

    /// What came last.
    pub(crate) fn last(&self) -> (http::request::Parts, Bytes) {
        self.state.seen.lock().unwrap().last().unwrap().clone()
    }

    pub(crate) fn reached(&self) -> usize {
        self.state.reached.load(SeqCst)
    }

    pub(crate) fn under_way(&self) -> usize {
        self.state.under_way.load(SeqCst)
    }
}

async fn answer(request: Request<Incoming>, state: Arc<State>) -> Result<Response<Pieces>, Infallible> {
    state.reached.fetch_add(1, SeqCst);
    state.under_way.fetch_add(1, SeqCst);
    let under_way = UnderWay(state.clone());
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let one = || [Bytes::from_static(b"x")].into();
    let mut response = Response::builder();
    let (pieces, then) = match &path[..] {
        "/bucket/silence" => pending().await,
        "/bucket/stall" => (one(), Then::Nothing),
        "/bucket/flood" => (one(), Then::More),
        "/bucket/break" => (one(), Then::Break),
        _ => match body.collect().await {
            Ok(collected) => {
                let bytes = collected.to_bytes();
                state.seen.lock().unwrap().push((head, bytes.clone()));
                let said = *state.answer.lock().unwrap();
                match said {
                    None => ([bytes].into(), Then::End),
                    Some((status, media_type, body)) => {
                        response = response.status(status).header("content-type", media_type);
                        ([Bytes::from_static(body.as_bytes())].into(), Then::End)
                    }
                }
            }
            Err(_) => (VecDeque::new(), Then::Break),
        },
    };
    let body = Pieces {
        pieces,
        then,
        _under_way: under_way,
    };
    Ok(response.body(body).unwrap())
}
