//! The other side of a service in its tests: a real server, which does what the last part of a path says, and remembers what it was sent.

use bytes::Bytes;
use contract::{
    Call, Grant, HttpGrant, Service,
    conformance::service::{Asked, Peer},
};
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
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
};
use tokio::{net::TcpListener, runtime::Runtime};

/// A server on a runtime of its own, which ends with it.
///
/// `/…/silence`, `/…/stall`, `/…/flood` and `/…/break` are what [`Asked`] says of them; whatever else is asked for is answered with the
/// body that was sent, or with what [`Server::answer`] has said.
pub struct Server {
    /// Where it listens, on loopback.
    pub address: SocketAddr,
    state: Arc<State>,
    _runtime: Runtime,
}

/// Both sides of a service that asks hosts, as the seam's suite wants them.
pub struct Hosts {
    /// The service.
    pub service: Arc<dyn Service>,
    /// The host.
    pub server: Server,
}

/// Grants all of a host.
pub fn host(host: &str) -> HttpGrant {
    HttpGrant {
        host: host.to_owned(),
        headers: Vec::new(),
        clear_text: false,
    }
}

impl Peer for Hosts {
    fn service(&self) -> Arc<dyn Service> {
        self.service.clone()
    }

    fn open(&self, grant: &mut Grant) {
        grant.http.push(host("127.0.0.1"));
    }

    fn open_elsewhere(&self, grant: &mut Grant) {
        grant.http.push(host("localhost"));
    }

    fn ask(&self, call: &mut Call, what: Asked) {
        call.operation = "POST".to_owned();
        call.target = self.server.uri(&format!("/{}", Server::path(what)));
    }

    fn reached(&self) -> usize {
        self.server.reached()
    }

    fn under_way(&self) -> usize {
        self.server.under_way()
    }
}

/// A request that came whole.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its head.
    pub head: http::request::Parts,
    /// Its body.
    pub body: Bytes,
    /// What came behind the body.
    pub trailers: http::HeaderMap,
}

/// What is answered: a status, header fields, a body.
pub type Answer = (u16, Vec<(&'static str, String)>, Bytes);

#[derive(Default)]
struct State {
    reached: AtomicUsize,
    under_way: AtomicUsize,
    seen: Mutex<Vec<Seen>>,
    answer: Mutex<Option<Answer>>,
    first: Mutex<Option<Answer>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A runtime with one thread, as a service may have it.
///
/// # Errors
/// The kernel's.
pub fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
}

impl Server {
    /// On a port that was free.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start() -> io::Result<Self> {
        let runtime = runtime()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let (address, state) = (listener.local_addr()?, Arc::<State>::default());
        let shared = state.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = shared.clone();
                let service = service_fn(move |request| answer(request, shared.clone()));
                // It ends with an error whenever a body is broken off.
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(Self {
            address,
            state,
            _runtime: runtime,
        })
    }

    /// Of this path.
    pub fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The last part of the path by which this is asked for.
    pub fn path(what: Asked) -> &'static str {
        match what {
            Asked::Echo => "echo",
            Asked::Silence => "silence",
            Asked::Stall => "stall",
            Asked::Flood => "flood",
            Asked::Break => "break",
        }
    }

    /// Has it answer this from now on.
    pub fn answer(&self, answer: Answer) {
        *lock(&self.state.answer) = Some(answer);
    }

    /// Has it answer the next request so, before what it answers from now on.
    pub fn answer_first(&self, answer: Answer) {
        *lock(&self.state.first) = Some(answer);
    }

    /// The request that came last and whole, if any has.
    pub fn last(&self) -> Option<Seen> {
        lock(&self.state.seen).last().cloned()
    }

    /// How many requests have come.
    pub fn reached(&self) -> usize {
        self.state.reached.load(SeqCst)
    }

    /// How many of them are neither answered to the end nor given up.
    pub fn under_way(&self) -> usize {
        self.state.under_way.load(SeqCst)
    }
}

async fn answer(request: Request<Incoming>, state: Arc<State>) -> Result<Response<Pieces>, Infallible> {
    state.reached.fetch_add(1, SeqCst);
    state.under_way.fetch_add(1, SeqCst);
    let under_way = UnderWay(state.clone());
    let (head, body) = request.into_parts();
    let last = head.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
    let one = || [Bytes::from_static(b"x")].into();
    let mut said = None;
    let (pieces, then) = match &last[..] {
        "silence" => pending().await,
        "stall" => (one(), Then::Nothing),
        "flood" => (one(), Then::More),
        "break" => (one(), Then::Break),
        _ => match body.collect().await {
            Ok(collected) => {
                let trailers = collected.trailers().cloned().unwrap_or_default();
                let body = collected.to_bytes();
                lock(&state.seen).push(Seen {
                    head,
                    body: body.clone(),
                    trailers,
                });
                let first = lock(&state.first).take();
                said = first.or_else(|| lock(&state.answer).clone());
                let body = said.as_ref().map_or(body, |(_, _, body)| body.clone());
                ([body].into(), Then::End)
            }
            Err(_) => (VecDeque::new(), Then::Break),
        },
    };
    let mut response = Response::new(Pieces {
        pieces,
        then,
        _under_way: under_way,
    });
    if let Some((status, fields, _)) = said {
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
        for (name, value) in fields {
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(name, value);
            }
        }
    }
    Ok(response)
}
