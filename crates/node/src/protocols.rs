//! What clients speak beside plain HTTP/1.1, on a runtime of its own: TLS and HTTP/2. The cores never touch it; connections go
//! to and fro by [`gateway::Adoption`] and [`gateway::Departure`].

use crate::{Error, config::TlsOptions};
use contract::Origin;
use gateway::{Adoption, Departing, Departure};
use proxy::{Arrival, Certificates, Counts, Dial, Options, Secure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::{Arc, atomic::Ordering, mpsc},
    time::Duration,
};
use telemetry::metrics::{Exposition, Kind, Metrics};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
    sync::{Notify, mpsc as asynchronous, watch},
    task::JoinHandle,
};
use worker::Shared;

/// Connections on their way from the cores; one that finds no room is closed.
const ARRIVALS: usize = 256;
/// How long clients may take to read what they are owed once the cores have ended.
const GRACE: Duration = Duration::from_secs(5);

/// A port for TLS and what is shown there.
pub(crate) struct Door {
    listener: TcpListener,
    address: SocketAddr,
    certificates: Certificates,
}

impl Door {
    /// Binds the port and reads the files, if the configuration names them.
    pub(crate) fn open(options: &TlsOptions) -> Result<Option<Self>, Error> {
        let (Some(listen), Some(certificate), Some(key)) =
            (options.listen, &options.certificate, &options.key)
        else {
            return Ok(None);
        };
        let certificates = Certificates::load(certificate, key)?;
        let failed = |source| Error::Listen {
            address: listen,
            what: "functions by TLS",
            flag: "tls-listen",
            source,
        };
        let listener = TcpListener::bind(listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Some(Self {
            listener,
            address,
            certificates,
        }))
    }

    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The ways between the cores and this. Exists before either does.
pub(crate) struct Ways {
    /// Goes to the gateways.
    pub(crate) adoption: Adoption,
    /// Goes to the gateways.
    pub(crate) departure: Departure,
    arrivals: asynchronous::Receiver<Arrival>,
}

impl Ways {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let (sender, arrivals) = asynchronous::channel(ARRIVALS);
        let depart = move |departing: Departing| {
            let Departing {
                socket,
                origin,
                read,
                request,
            } = departing;
            // Without room, or at the node's end, the connection is closed: the client may try again.
            let _ = sender.try_send(Arrival {
                socket: TcpStream::from(socket),
                origin,
                read,
                request,
            });
        };
        Self {
            adoption: Adoption::new(shared.clone()),
            departure: Departure(Arc::new(depart)),
            arrivals,
        }
    }
}

/// How much there may be of everything.
pub(crate) struct Bounds {
    /// Threads of the runtime.
    pub(crate) threads: usize,
    /// Descriptors that this process may open.
    pub(crate) files: usize,
    /// Connections of all cores.
    pub(crate) connections: usize,
}

/// The proxy, as it runs.
pub(crate) struct Protocols {
    runtime: Runtime,
    served: JoinHandle<()>,
    draining: watch::Sender<bool>,
}

impl Protocols {
    /// Starts it. What makes it end before it is told to goes to `failed`.
    pub(crate) fn start(
        ways: Ways,
        door: Option<Door>,
        bounds: &Bounds,
        metrics: &Metrics,
        failed: mpsc::Sender<io::Error>,
    ) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(bounds.threads)
            .max_blocking_threads(2)
            .thread_name("proxy")
            .enable_all()
            .build()?;
        let counts = Arc::new(Counts::default());
        let counted = counts.clone();
        metrics.add_source(move |page| render(&counted, page));
        let secure = {
            let _inside = runtime.enter();
            door.map(secure).transpose()?
        };
        // The other half of the descriptors is the gateways', and so is one end of each pair of sockets.
        let sockets = (bounds.files / 4).max(32);
        let options = Options {
            connections: (bounds.files / 8).clamp(16, bounds.connections.max(16)),
            sockets,
            ..Options::default()
        };
        let (draining, drained) = watch::channel(false);
        let served = proxy::serve(
            dial(ways.adoption),
            options,
            secure,
            ways.arrivals,
            drained,
            counts,
        );
        let served = runtime.spawn(async move {
            if let Err(error) = served.await {
                // Nobody listens only when the node has ended already.
                let _ = failed.send(error);
            }
        });
        Ok(Self {
            runtime,
            served,
            draining,
        })
    }

    /// From now on nothing is accepted, and clients are told to go.
    pub(crate) fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// To be called when the cores have ended: lets clients read what they are owed.
    pub(crate) fn stop(self) {
        let Self { runtime, served, .. } = self;
        let ended = runtime.block_on(async { tokio::time::timeout(GRACE, served).await });
        if ended.is_err() {
            tracing::warn!("clients of TLS or HTTP/2 did not read their answers in time, and were dropped");
        }
        runtime.shutdown_background();
    }
}

/// Has SIGHUP read the certificate again.
fn secure(door: Door) -> io::Result<Secure> {
    let again = Arc::new(Notify::new());
    let mut hangup = signal(SignalKind::hangup())?;
    let notified = again.clone();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            notified.notify_one();
        }
    });
    Ok(Secure {
        listener: door.listener,
        certificates: Arc::new(door.certificates),
        again,
    })
}

/// Makes pairs of sockets: one end for a core, one for the proxy.
fn dial(adoption: Adoption) -> Dial {
    Arc::new(move |origin: Origin| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        if adoption.adopt(theirs, origin) {
            Ok(UnixStream::from(ours))
        } else {
            Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                "no core takes connections",
            ))
        }
    })
}

/// What is counted, as metrics.
fn render(counts: &Counts, page: &mut Exposition) {
    page.family(
        Kind::Counter,
        "millpond_tls_handshakes_total",
        "TLS handshakes, by how they ended.",
    )
    .sample(&[("outcome", "ok")], counts.handshakes.load(Ordering::Relaxed))
    .sample(
        &[("outcome", "failed")],
        counts.failed_handshakes.load(Ordering::Relaxed),
    );
    page.family(
        Kind::Counter,
        "millpond_tls_certificate_reloads_total",
        "New TLS certificates, by whether they could be used.",
    )
    .sample(&[("outcome", "ok")], counts.reloads.load(Ordering::Relaxed))
    .sample(
        &[("outcome", "failed")],
        counts.failed_reloads.load(Ordering::Relaxed),
    );
    page.family(
        Kind::Gauge,
        "millpond_proxy_connections_open",
        "Open connections that speak TLS or HTTP/2, by what they speak.",
    )
    .sample(&[("protocol", "http1")], counts.http1.load(Ordering::Relaxed))
    .sample(&[("protocol", "http2")], counts.http2.load(Ordering::Relaxed));
    page.single(
        Kind::Counter,
        "millpond_http2_requests_total",
        "Requests that came in HTTP/2.",
        counts.streams.load(Ordering::Relaxed),
    );
    page.single(
        Kind::Counter,
        "millpond_http2_cancelled_total",
        "Requests of HTTP/2 whose client did not wait for the end of the answer.",
        counts.cancelled.load(Ordering::Relaxed),
    );
}
