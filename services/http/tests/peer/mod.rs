//! The other side: a real server, on a runtime of its own.

use bytes::Bytes;
use contract::{Call, Grant, HttpGrant, Service, conformance::service};
use http_body_util::BodyExt;
use hyper::{
    Request, Response,
    body::{Body, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use millpond_service_http::Http;
use secrets::Secrets;
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
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime::Runtime};

/// A server that does what the path says, and remembers what it was sent.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    _runtime: Runtime,
}

#[derive(Default)]
struct State {
    reached: AtomicUsize,
    under_way: AtomicUsize,
    heads: Mutex<Vec<http::request::Parts>>,
    trailers: Mutex<Vec<http::HeaderMap>>,
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
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
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

    pub(crate) fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The head that came last.
    pub(crate) fn last(&self) -> http::request::Parts {
        self.state.heads.lock().unwrap().last().unwrap().clone()
    }

    pub(crate) fn last_trailers(&self) -> http::HeaderMap {
        self.state.trailers.lock().unwrap().last().unwrap().clone()
    }

    pub(crate) fn reached(&self) -> usize {
        self.state.reached.load(SeqCst)
    }
}

async fn answer(request: Request<Incoming>, state: Arc<State>) -> Result<Response<Pieces>, Infallible> {
    state.reached.fetch_add(1, SeqCst);
    state.under_way.fetch_add(1, SeqCst);
    let under_way = UnderWay(state.clone());
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    state.heads.lock().unwrap().push(head);
    let one = || [Bytes::from_static(b"x")].into();
    let (pieces, then) = match &path[..] {
        "/silence" => pending().await,
        "/stall" => (one(), Then::Nothing),
        "/flood" => (one(), Then::More),
        "/break" => (one(), Then::Break),
        _ => match body.collect().await {
            Ok(collected) => {
                let trailers = collected.trailers().cloned().unwrap_or_default();
                state.trailers.lock().unwrap().push(trailers);
                ([collected.to_bytes()].into(), Then::End)
            }
            Err(_) => (VecDeque::new(), Then::Break),
        },
    };
    Ok(Response::new(Pieces {
        pieces,
        then,
        _under_way: under_way,
    }))
}

/// The service, its runtime and its secrets.
pub(crate) struct Ours {
    pub(crate) service: Arc<Http>,
    pub(crate) secrets: Secrets,
    _runtime: Runtime,
    _folder: TempDir,
}

impl Ours {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let secrets = Secrets::open(folder.path()).unwrap();
        Self {
            service: Arc::new(Http::new(runtime.handle().clone(), secrets.clone(), None, 4096)),
            secrets,
            _runtime: runtime,
            _folder: folder,
        }
    }
}

/// Both sides, as the suite wants them.
pub(crate) struct Peer {
    pub(crate) ours: Ours,
    pub(crate) server: Server,
}

pub(crate) fn host(host: &str) -> HttpGrant {
    HttpGrant {
        host: host.to_owned(),
        headers: Vec::new(),
        clear_text: false,
    }
}

impl service::Peer for Peer {
    fn service(&self) -> Arc<dyn Service> {
        self.ours.service.clone()
    }

    fn open(&self, grant: &mut Grant) {
        grant.http.push(host("127.0.0.1"));
    }

    fn open_elsewhere(&self, grant: &mut Grant) {
        grant.http.push(host("localhost"));
    }

    fn ask(&self, call: &mut Call, what: service::Asked) {
        use service::Asked;
        call.operation = "POST".to_owned();
        call.target = self.server.uri(match what {
            Asked::Echo => "/echo",
            Asked::Silence => "/silence",
            Asked::Stall => "/stall",
            Asked::Flood => "/flood",
            Asked::Break => "/break",
        });
    }

    fn reached(&self) -> usize {
        self.server.reached()
    }

    fn under_way(&self) -> usize {
        self.server.state.under_way.load(SeqCst)
    }
}
