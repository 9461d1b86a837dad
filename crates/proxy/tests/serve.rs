//! The proxy between real sockets: clients of HTTP/2 by the `h2` crate on one side, on the other a thread for each socket that
//! answers as a gateway would, or does not.

use bytes::Bytes;
use contract::Origin;
use millpond_proxy::{Arrival, Counts, Dial, Options, Timeouts, serve};
use std::{
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc as blocking,
    },
    thread,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Nothing takes this long; who waits longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a gateway's end of a socket does.
type Gateway = Arc<dyn Fn(UnixStream, Origin) + Send + Sync>;

struct Proxy {
    arrivals: mpsc::Sender<Arrival>,
    draining: watch::Sender<bool>,
    served: JoinHandle<io::Result<()>>,
    counts: Arc<Counts>,
}

impl Proxy {
    fn start(options: Options, dial: Dial) -> Self {
        let (arrivals, arriving) = mpsc::channel(8);
        let (draining, drained) = watch::channel(false);
        let counts = Arc::new(Counts::default());
        let served = tokio::spawn(serve(dial, options, None, arriving, drained, counts.clone()));
        Self {
            arrivals,
            draining,
            served,
            counts,
        }
    }

    /// A client's connection that a gateway handed over.
    async fn connect(&self) -> Result<TcpStream, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let client = TcpStream::connect(listener.local_addr()?).await?;
        let (socket, remote) = listener.accept().await?;
        let arrival = Arrival {
            socket: socket.into_std()?,
            origin: Origin {
                remote: Some(remote),
                ..Origin::default()
            },
            read: Vec::new(),
            request: None,
        };
        self.arrivals.send(arrival).await?;
        Ok(client)
    }

    async fn client(&self) -> Result<h2::client::SendRequest<Bytes>, Error> {
        let (sender, connection) = h2::client::handshake(self.connect().await?).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// Sockets whose other end goes to a thread of its own.
fn dial(gateway: Gateway) -> Dial {
    Arc::new(move |origin| {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let gateway = gateway.clone();
        thread::spawn(move || gateway(theirs, origin));
        Ok(ours)
    })
}

/// Reads a head.
fn head(socket: &mut UnixStream) -> io::Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn hello(socket: &mut UnixStream) -> io::Result<()> {
    socket.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\nX-Mine: 1\r\n\r\nhello",
    )
}

fn options(timeouts: impl FnOnce(&mut Timeouts)) -> Options {
    let mut options = Options::default();
    timeouts(&mut options.timeouts);
    options
}

async fn ask(client: &h2::client::SendRequest<Bytes>) -> Result<(http::StatusCode, Bytes), Error> {
    let mut client = client.clone().ready().await?;
    let request = http::Request::get("http://example.org/a?b").body(())?;
    let (answer, _) = client.send_request(request, true)?;
    let answer = timeout(PATIENCE, answer).await??;
    let (parts, mut body) = answer.into_parts();
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        all.extend_from_slice(&piece);
    }
    Ok((parts.status, all.into()))
}

#[tokio::test]
async fn a_request_reaches_a_gateway_with_its_origin() -> Result<(), Error> {
    let (tell, told) = blocking::channel();
    let tell = Mutex::new(tell);
    let gateway: Gateway = Arc::new(move |mut socket, origin| {
        let head = head(&mut socket).unwrap();
        tell.lock().unwrap().send((head, origin)).unwrap();
        hello(&mut socket).unwrap();
    });
    let proxy = Proxy::start(Options::default(), dial(gateway));
    let client = proxy.client().await?;
    assert_eq!(
        ask(&client).await?,
        (http::StatusCode::OK, Bytes::from_static(b"hello"))
    );
    let (head, origin) = told.recv_timeout(PATIENCE)?;
    assert!(head.starts_with("GET /a?b HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("host: example.org\r\n"), "{head}");
    assert!(origin.http2 && !origin.secure);
    assert!(
        origin
            .remote
            .is_some_and(|remote: SocketAddr| remote.ip().is_loopback())
    );
    assert_eq!(proxy.counts.streams.load(Ordering::Relaxed), 1);
    Ok(())
}

#[tokio::test]
async fn trailers_that_were_not_announced_reach_a_gateway() -> Result<(), Error> {
    let (tell, told) = blocking::channel();
    let tell = Mutex::new(tell);
    let gateway: Gateway = Arc::new(move |mut socket, _| {
        let asked = head(&mut socket).unwrap();
        let end: &[u8] = if asked.contains("content-length: 3\r\n") {
            b"one"
        } else {
            b"\r\n\r\n"
        };
        let mut body = Vec::new();
        while !body.ends_with(end) {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            body.push(byte[0]);
        }
        tell.lock()
            .unwrap()
            .send(String::from_utf8(body).unwrap())
            .unwrap();
        hello(&mut socket).unwrap();
    });
    let proxy = Proxy::start(Options::default(), dial(gateway));
    let client = proxy.client().await?;
    for (length, piece, came) in [
        (None, "one", "3\r\none\r\n0\r\nx-sum: 12\r\nx-last: yes\r\n\r\n"),
        (None, "", "0\r\nx-sum: 12\r\nx-last: yes\r\n\r\n"),
        // There is no place for them.
        (Some("3"), "one", "one"),
    ] {
        let mut request = http::Request::post("http://h/");
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        let mut client = client.clone().ready().await?;
        let (answer, mut stream) = client.send_request(request.body(())?, false)?;
        if !piece.is_empty() {
            stream.send_data(Bytes::from_static(piece.as_bytes()), false)?;
        }
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-sum", "12".parse()?);
        trailers.insert("x-last", "yes".parse()?);
        stream.send_trailers(trailers)?;
        assert_eq!(timeout(PATIENCE, answer).await??.status(), 200);
        assert_eq!(told.recv_timeout(PATIENCE)?, came);
    }
    Ok(())
}

#[tokio::test]
async fn a_request_that_no_gateway_takes_is_told_so() -> Result<(), Error> {
    let refused: Dial = Arc::new(|_| Err(io::ErrorKind::ConnectionRefused.into()));
    let closed = dial(Arc::new(|socket, _| drop(socket)));
    for dial in [refused, closed] {
        let proxy = Proxy::start(Options::default(), dial);
        let (status, body) = ask(&proxy.client().await?).await?;
        assert_eq!(status, 503);
        assert!(String::from_utf8_lossy(&body).contains("no-core"));
    }
    Ok(())
}

#[tokio::test]
async fn streams_wait_for_sockets() -> Result<(), Error> {
    let most = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let counted = most.clone();
    let gateway: Gateway = Arc::new(move |mut socket, _| {
        let now = counted.0.fetch_add(1, Ordering::SeqCst) + 1;
        counted.1.fetch_max(now, Ordering::SeqCst);
        let asked = head(&mut socket);
        // Before the answer: once that is read, the next stream may have its socket.
        counted.0.fetch_sub(1, Ordering::SeqCst);
        let _ = asked.and_then(|_| hello(&mut socket));
        let _ = socket.read(&mut [0]);
    });
    let options = Options {
        sockets: 2,
        connections: 2,
        ..Options::default()
    };
    let proxy = Proxy::start(options, dial(gateway));
    let client = proxy.client().await?;
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let client = client.clone();
        asked.spawn(async move { ask(&client).await });
    }
    while let Some(answer) = timeout(PATIENCE, asked.join_next()).await? {
        assert_eq!(answer??.0, 200);
    }
    assert!(most.1.load(Ordering::SeqCst) <= 2);
    Ok(())
}

#[tokio::test]
async fn a_stream_that_is_cancelled_closes_its_socket() -> Result<(), Error> {
    let (tell, told) = blocking::channel();
    let tell = Mutex::new(tell);
    let gateway: Gateway = Arc::new(move |mut socket, _| {
        head(&mut socket).unwrap();
        tell.lock().unwrap().send("asked").unwrap();
        // Nothing is answered: this ends when the other end has gone.
        assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0);
        tell.lock().unwrap().send("gone").unwrap();
    });
    let proxy = Proxy::start(Options::default(), dial(gateway));
    let told = Arc::new(Mutex::new(told));
    let next = async || {
        let told = told.clone();
        tokio::task::spawn_blocking(move || told.lock().unwrap().recv_timeout(PATIENCE)).await
    };
    let mut client = proxy.client().await?.ready().await?;
    let (_answer, mut stream) = client.send_request(http::Request::get("http://h/").body(())?, false)?;
    assert_eq!(next().await??, "asked");
    stream.send_reset(h2::Reason::CANCEL);
    assert_eq!(next().await??, "gone");
    // The same for a client that vanishes.
    let connection = proxy.connect().await?;
    let (sender, driver) = h2::client::handshake(connection).await?;
    let driver = tokio::spawn(driver);
    let mut sender = sender.ready().await?;
    let _open = sender.send_request(http::Request::get("http://h/").body(())?, true)?;
    assert_eq!(next().await??, "asked");
    driver.abort();
    drop(_open);
    drop(sender);
    assert_eq!(next().await??, "gone");
    Ok(())
}

/// Reads until the proxy closes, and says whether a GOAWAY was among what came.
async fn goodbye(client: &mut TcpStream) -> Result<bool, Error> {
    let mut all = Vec::new();
    timeout(PATIENCE, client.read_to_end(&mut all)).await??;
    let mut rest = &all[..];
    let mut said = false;
    while let [a, b, c, kind, _, _, _, _, _, more @ ..] = rest {
        said |= *kind == 7;
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        rest = more.get(length..).unwrap_or_default();
    }
    Ok(said)
}

const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn a_client_that_only_sits_there_is_told_to_go() -> Result<(), Error> {
    let quick = options(|timeouts| {
        timeouts.idle = Duration::from_millis(50);
        timeouts.linger = Duration::from_millis(50);
    });
    let proxy = Proxy::start(quick, dial(Arc::new(|_, _| {})));
    let mut silent = proxy.connect().await?;
    silent.write_all(BEGINNING).await?;
    assert!(goodbye(&mut silent).await?);
    // Not even a preface.
    let mut mute = proxy.connect().await?;
    goodbye(&mut mute).await?;
    // Half a head.
    let mut half = proxy.connect().await?;
    half.write_all(BEGINNING).await?;
    half.write_all(&[0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82]).await?;
    goodbye(&mut half).await?;
    Ok(())
}

#[tokio::test]
async fn draining_finishes_what_is_in_work() -> Result<(), Error> {
    let (go, gone) = blocking::channel::<()>();
    let gone = Mutex::new(gone);
    let (tell, mut asked) = mpsc::unbounded_channel();
    let gateway: Gateway = Arc::new(move |mut socket, _| {
        head(&mut socket).unwrap();
        tell.send(()).unwrap();
        gone.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        hello(&mut socket).unwrap();
        let _ = socket.read(&mut [0]);
    });
    let quick = options(|timeouts| timeouts.linger = Duration::from_millis(50));
    let proxy = Proxy::start(quick, dial(gateway));
    let client = proxy.client().await?;
    let mut idle = proxy.connect().await?;
    idle.write_all(BEGINNING).await?;
    let answer = tokio::spawn(async move { ask(&client).await });
    timeout(PATIENCE, asked.recv()).await?;
    proxy.draining.send_replace(true);
    assert!(goodbye(&mut idle).await?);
    go.send(())?;
    assert_eq!(timeout(PATIENCE, answer).await???.0, 200);
    timeout(PATIENCE, proxy.served).await???;
    Ok(())
}
