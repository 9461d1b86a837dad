//! Accepting, what is open, and shutting down.

use crate::{
    Certificates, Reloaded, http2,
    pipe::{self, Patience},
    splice::{Insert, Resumed},
};
use contract::{Head, Origin, Problem};
use rustls::ServerConfig;
use std::{
    io,
    net::SocketAddr,
    os::unix::net::UnixStream as StdUnixStream,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixStream},
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch},
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

/// Opens a stream to a gateway, for a client. What comes back is non-blocking, and its other end is adopted.
pub type Dial = Arc<dyn Fn(Origin) -> io::Result<StdUnixStream> + Send + Sync>;

/// What the proxy takes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Clients' connections; more wait in the kernel.
    pub connections: usize,
    /// Sockets to gateways; streams for which there is none wait. At least as many as connections.
    pub sockets: usize,
    /// Streams of one connection.
    pub streams: u32,
    /// How long a client may take.
    pub timeouts: Timeouts,
}

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For TLS's handshake.
    pub handshake: Duration,
    /// Without a request on a connection of HTTP/2.
    pub idle: Duration,
    /// To take a piece of an answer, through TLS.
    pub write: Duration,
    /// To read the last answer after which we close.
    pub linger: Duration,
    /// To say that it is still there.
    pub ping: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 2_000,
            sockets: 4_000,
            streams: 128,
            timeouts: Timeouts {
                handshake: Duration::from_secs(10),
                idle: Duration::from_secs(75),
                write: Duration::from_secs(30),
                linger: Duration::from_secs(2),
                ping: Duration::from_secs(20),
            },
        }
    }
}

/// Where TLS is spoken, and with what.
#[derive(Debug)]
pub struct Secure {
    /// Bound, and non-blocking.
    pub listener: std::net::TcpListener,
    /// Read again every few seconds.
    pub certificates: Arc<Certificates>,
    /// Has them read again at once.
    pub again: Arc<Notify>,
}

/// A client's connection that goes on in HTTP/2, from a gateway.
#[derive(Debug)]
pub struct Arrival {
    /// Non-blocking.
    pub socket: std::net::TcpStream,
    /// Where the client is.
    pub origin: Origin,
    /// What was read of it and is HTTP/2's.
    pub read: Vec<u8>,
    /// The request that asked for HTTP/2 and is to be answered on stream 1 (RFC 7540, section 3.2): it has no body.
    pub request: Option<Box<Head>>,
}

/// What is counted.
#[derive(Debug, Default)]
pub struct Counts {
    /// Handshakes of TLS that succeeded.
    pub handshakes: AtomicU64,
    /// Handshakes of TLS that failed.
    pub failed_handshakes: AtomicU64,
    /// Open connections on which HTTP/1.1 is spoken through TLS.
    pub http1: AtomicI64,
    /// Open connections on which HTTP/2 is spoken.
    pub http2: AtomicI64,
    /// Requests that came in HTTP/2.
    pub streams: AtomicU64,
    /// Those whose client did not wait for the end of the answer.
    pub cancelled: AtomicU64,
    /// New certificates that are in use.
    pub reloads: AtomicU64,
    /// New certificates that could not be used.
    pub failed_reloads: AtomicU64,
}

/// Counts a connection for as long as it lives.
struct Open<'a>(&'a AtomicI64);

impl<'a> Open<'a> {
    fn new(count: &'a AtomicI64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What all connections share.
pub(crate) struct Inner {
    pub(crate) dial: Dial,
    pub(crate) options: Options,
    pub(crate) sockets: Arc<Semaphore>,
    pub(crate) counts: Arc<Counts>,
}

/// How often certificates are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How long accepting pauses when there are no descriptors or no memory for it.
const BREATH: Duration = Duration::from_millis(100);

/// Serves clients until `draining` becomes true and all of them have been answered. Dropping it drops them.
///
/// # Errors
/// If TLS cannot be set up, before anything is served.
pub async fn serve(
    dial: Dial,
    options: Options,
    secure: Option<Secure>,
    mut arrivals: mpsc::Receiver<Arrival>,
    draining: watch::Receiver<bool>,
    counts: Arc<Counts>,
) -> io::Result<()> {
    let connections = Arc::new(Semaphore::new(options.connections));
    let inner = Arc::new(Inner {
        dial,
        options,
        sockets: Arc::new(Semaphore::new(options.sockets)),
        counts,
    });
    let mut tasks = JoinSet::new();
    let mut door = None;
    let mut looking = JoinSet::new();
    if let Some(Secure {
        listener,
        certificates,
        again,
    }) = secure
    {
        let acceptor = acceptor(&certificates)?;
        let listener = TcpListener::from_std(listener)?;
        let local = listener.local_addr()?;
        looking.spawn(keep_current(certificates, again, inner.counts.clone()));
        door = Some((listener, acceptor, local));
    }
    let mut ending = draining.clone();
    loop {
        // Whoever comes while there is no room waits: in the kernel, or in the channel, which a gateway finds full.
        let permit = tokio::select! {
            permit = connections.clone().acquire_owned() => permit.map_err(io::Error::other)?,
            () = drained(&mut ending) => break,
        };
        tokio::select! {
            () = drained(&mut ending) => break,
            Some(arrival) = arrivals.recv() => {
                tasks.spawn(arrive(arrival, inner.clone(), draining.clone(), permit));
            }
            (accepted, acceptor, local) = accept(&door) => match accepted {
                Ok((socket, remote)) => {
                    let origin = Origin {
                        remote: Some(remote),
                        local: Some(local),
                        secure: true,
                        http2: false,
                    };
                    tasks.spawn(secured(socket, acceptor, origin, inner.clone(), draining.clone(), permit));
                }
                // The client left between its handshake and now.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "connections for TLS wait until there are descriptors and memory for them");
                    sleep(BREATH).await;
                }
            },
            // Tasks that have ended are forgotten; there is always a next turn.
            Some(ended) = tasks.join_next() => note(ended),
        }
    }
    drop(door);
    while let Some(ended) = tasks.join_next().await {
        note(ended);
    }
    Ok(())
}

/// Waits until the node drains. Who could have said so may be gone: then nothing goes on either.
pub(crate) async fn drained(draining: &mut watch::Receiver<bool>) {
    let _ = draining.wait_for(|draining| *draining).await;
}

fn note(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection of the proxy ended by a bug of ours");
    }
}

/// The next connection at the door; never, if there is none.
async fn accept(
    door: &Option<(TcpListener, TlsAcceptor, SocketAddr)>,
) -> (io::Result<(TcpStream, SocketAddr)>, TlsAcceptor, SocketAddr) {
    match door {
        Some((listener, acceptor, local)) => (listener.accept().await, acceptor.clone(), *local),
        None => std::future::pending().await,
    }
}

fn acceptor(certificates: &Arc<Certificates>) -> io::Result<TlsAcceptor> {
    let mut config = ServerConfig::builder_with_provider(certificates.provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(certificates.clone());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Sessions are resumed from what clients keep, and nothing of them is kept here.
    config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(io::Error::other)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Looks at the files of the certificate every few seconds, and when it is told to.
async fn keep_current(certificates: Arc<Certificates>, again: Arc<Notify>, counts: Arc<Counts>) {
    loop {
        tokio::select! {
            () = sleep(LOOK) => {}
            () = again.notified() => {}
        }
        let looked = certificates.clone();
        match spawn_blocking(move || looked.reload()).await {
            Ok(Ok(Reloaded::Same)) => {}
            Ok(Ok(Reloaded::New)) => {
                counts.reloads.fetch_add(1, Ordering::Relaxed);
                tracing::info!("new connections are shown the new TLS certificate");
            }
            Ok(Err(error)) => {
                counts.failed_reloads.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, "the TLS certificate was not replaced; the one before stays in use");
            }
            // The runtime ends.
            Err(_) => return,
        }
    }
}

/// A connection to the port that speaks TLS.
async fn secured(
    socket: TcpStream,
    acceptor: TlsAcceptor,
    origin: Origin,
    inner: Arc<Inner>,
    draining: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
) {
    let timeouts = inner.options.timeouts;
    // It only ever fails for a connection that is gone already.
    let _ = socket.set_nodelay(true);
    let shaken = timeout(timeouts.handshake, async {
        let mut first = [0];
        if socket.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
            clear_text(socket, timeouts.linger).await;
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the client speaks no TLS",
            ));
        }
        acceptor.accept(socket).await
    });
    let mut ending = draining.clone();
    let shaken = tokio::select! {
        shaken = shaken => shaken,
        // Who is quick still gets an answer.
        () = async { drained(&mut ending).await; sleep(timeouts.linger).await } => return,
    };
    let stream = match shaken {
        Ok(Ok(stream)) => {
            inner.counts.handshakes.fetch_add(1, Ordering::Relaxed);
            stream
        }
        failed => {
            inner.counts.failed_handshakes.fetch_add(1, Ordering::Relaxed);
            match failed {
                Ok(Err(error)) => tracing::debug!(%error, remote = ?origin.remote, "a TLS handshake failed"),
                _ => tracing::debug!(remote = ?origin.remote, "a TLS handshake took too long"),
            }
            return;
        }
    };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let counts = inner.counts.clone();
        let _open = Open::new(&counts.http2);
        return http2::serve(stream, origin, inner, draining).await;
    }
    let Ok(_socket) = inner.sockets.clone().acquire_owned().await else {
        return;
    };
    let _open = Open::new(&inner.counts.http1);
    match (inner.dial)(origin).and_then(UnixStream::from_std) {
        Ok(gateway) => {
            let patience = Patience {
                write: timeouts.write,
                linger: timeouts.linger,
            };
            pipe::pipe(stream, gateway, patience).await;
        }
        Err(error) => tracing::debug!(%error, "a connection was not taken by a gateway"),
    }
}

/// Tells a client that speaks HTTP in clear text on the port of TLS.
async fn clear_text(mut socket: TcpStream, linger: Duration) {
    let problem = Problem::new(
        400,
        "http-clear-text",
        "a request in clear text arrived at a port that speaks TLS",
        "use https:// instead of http://",
    );
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: {}\r\nX-Millpond-Error: {}\r\nContent-Length: {}\r\n\r\n{body}",
        Problem::MEDIA_TYPE,
        problem.code,
        body.len(),
    );
    if socket.write_all(answer.as_bytes()).await.is_ok() && socket.shutdown().await.is_ok() {
        // Closing with something unread would reset the connection before the answer is read.
        let discard = async { while matches!(socket.read(&mut [0; 1024]).await, Ok(1..)) {} };
        let _ = timeout(linger, discard).await;
    }
}

/// A connection from a gateway.
async fn arrive(
    arrival: Arrival,
    inner: Arc<Inner>,
    draining: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
) {
    const SWITCHING: &[u8] =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let Arrival {
        socket,
        origin,
        read,
        request,
    } = arrival;
    let Ok(mut socket) = TcpStream::from_std(socket) else {
        return;
    };
    let insert = request.map(|head| Insert::new(&head));
    if insert.is_some() {
        let told = timeout(inner.options.timeouts.write, socket.write_all(SWITCHING));
        if !matches!(told.await, Ok(Ok(()))) {
            return;
        }
    }
    let counts = inner.counts.clone();
    let _open = Open::new(&counts.http2);
    http2::serve(Resumed::new(socket, read, insert), origin, inner, draining).await;
}
