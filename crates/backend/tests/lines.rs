//! Calls over lines to the service `http` in a backend's process, which asks real servers: the seam's suite, what lines carry, and what becomes of calls when
//! the backend goes.

extern crate millpond_backend as backend;

mod stopping;

use backend::{Backend, Limits, Lines};
use bytes::Bytes;
use contract::{
    Body, BodyError, BodyStream, Call, CallError, Caller, Calling, Grant, HttpGrant, Reply, Service, Session,
    Trailers, conformance::service,
};
use egress::testing::{Hosts, Server, host};
use rustix::{
    fd::OwnedFd,
    process::{Pid, Signal, kill_process},
};
use secrets::{SecretId, Secrets, Value, Values};
use service_http::Http;
use std::{
    env,
    future::poll_fn,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::sync_channel,
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc,
};

/// What takes longer will not come.
const WATCHDOG: Duration = Duration::from_secs(60);

/// The backend's process, if a test of these has started this program as one: the test harness's options are its arguments.
#[test]
fn serves() {
    if let Some(secrets) = env::var_os(SERVES) {
        if std::fs::remove_file(Path::new(&secrets).join(DROPS)).is_ok() {
            let mut packet = [0; 1000];
            assert!(std::io::stdin().read(&mut packet).unwrap() > 0);
            return;
        }
        let control: OwnedFd = rustix::io::dup(std::io::stdin()).unwrap();
        backend::serve(control, Limits::default(), |runtime| {
            Ok(vec![Arc::new(Http::new(
                runtime,
                Values::of(secrets.into()),
                4096,
            ))])
        })
        .unwrap();
    }
}

const SERVES: &str = "MILLPOND_TEST_LINES";

/// A file beside secrets: whoever finds it takes what comes first, and ends.
const DROPS: &str = ".draft-drops";

/// A node's side, and a backend.
struct Own {
    lines: Arc<Lines>,
    backend: Backend,
    runtime: Runtime,
    secrets: Secrets,
    folder: TempDir,
}

impl Own {
    fn start() -> Self {
        Self::with_places(4096)
    }

    fn with_places(calls: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secrets = Secrets::open(&folder.path().join("secrets")).unwrap();
        let mut serves = std::ffi::OsString::from(format!("{SERVES}="));
        serves.push(folder.path().join("secrets"));
        // The variable is for the program alone, and `env` sets it.
        let this = env::current_exe().unwrap().into_os_string();
        let arguments = vec![serves, this, "--exact".into(), "serves".into()];
        let backend = Backend::start("/usr/bin/env".into(), arguments).unwrap();
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let is_granted = |grant: &Grant| !grant.http.is_empty();
        let lines = backend
            .lines("http", is_granted, runtime.handle().clone(), calls)
            .unwrap();
        Self {
            lines: Arc::new(lines),
            backend,
            runtime,
            secrets,
            folder,
        }
    }

    fn secrets_folder(&self) -> PathBuf {
        self.folder.path().join("secrets")
    }

    fn session(&self) -> Arc<dyn Session> {
        self.lines.bind(&grant(vec![host("127.0.0.1")])).unwrap()
    }

    fn begin(&self, call: Call) -> Calling {
        self.session().call(call)
    }

    fn ask(&self, call: Call) -> Result<Reply, CallError> {
        self.runtime.block_on(self.begin(call))
    }

    fn process(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from((self.backend.process())()).unwrap())
    }

    /// The backend that there is, once there is one.
    fn started(&self) -> Pid {
        let mut process = None;
        eventually("there is a backend", || {
            process = self.process();
            process.is_some()
        });
        process.unwrap()
    }

    fn signal(&self, signal: Signal) -> Pid {
        let process = self.started();
        kill_process(process, signal).unwrap();
        process
    }
}

fn grant(http: Vec<HttpGrant>) -> Grant {
    Grant {
        http,
        ..Grant::nothing("shop.f".parse().unwrap())
    }
}

fn call(method: &str, target: String, body: impl Into<Body>) -> Call {
    Call {
        operation: method.to_owned(),
        target,
        parameters: Vec::new(),
        body: body.into(),
        patience: Some(WATCHDOG),
        pause: None,
        caller: Caller::default(),
    }
}

fn streamed(stream: impl BodyStream + 'static) -> Body {
    Body::Stream(Box::new(stream))
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + WATCHDOG;
    while !condition() {
        assert!(Instant::now() < deadline, "it never came to be that {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn read(own: &Own, body: Body) -> (Vec<u8>, Result<Trailers, BodyError>) {
    let mut stream = match body {
        Body::Whole(bytes) => return (bytes.to_vec(), Ok(Trailers::new())),
        Body::Stream(stream) => stream,
    };
    let mut bytes = Vec::new();
    loop {
        let next = poll_fn(|context| stream.poll_next(context.waker()));
        match own.runtime.block_on(next) {
            Ok(Some(piece)) => bytes.extend_from_slice(&piece),
            Ok(None) => return (bytes, Ok(stream.trailers())),
            Err(error) => return (bytes, Err(error)),
        }
    }
}

/// A body that comes as it is fed, with trailers.
struct Fed(mpsc::UnboundedReceiver<Bytes>, Trailers);

impl BodyStream for Fed {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        self.0.poll_recv(&mut Context::from_waker(waker)).map(Ok)
    }

    fn trailers(&mut self) -> Trailers {
        std::mem::take(&mut self.1)
    }
}

fn fed() -> (mpsc::UnboundedSender<Bytes>, Fed) {
    let (feed, fed) = mpsc::unbounded_channel();
    (feed, Fed(fed, Trailers::new()))
}

#[test]
fn it_conforms() {
    let own = Own::start();
    service::run(&Hosts {
        service: own.lines.clone(),
        server: Server::start().unwrap(),
    });
}

#[test]
fn nobody_is_started_until_something_is_granted() {
    let own = Own::start();
    let starts = own.backend.starts();
    assert!(own.lines.bind(&grant(Vec::new())).is_none());
    assert_eq!(starts(), 0);
    own.session();
    eventually("it is started", || starts() == 1);
}

#[test]
fn a_secret_is_what_it_is_now_and_its_host_alone_has_it() {
    let (own, server) = (Own::start(), Server::start().unwrap());
    let with = HttpGrant {
        headers: vec![("authorization".to_owned(), "Bearer {secret:KEY}".parse().unwrap())],
        ..host("127.0.0.1")
    };
    let session = own.lines.bind(&grant(vec![with, host("localhost")])).unwrap();
    let ask = |target: String| {
        own.runtime
            .block_on(session.call(call("GET", target, Bytes::new())))
    };
    let unset = ask(server.uri("/echo")).unwrap_err();
    assert_eq!(unset, CallError::Unset("KEY".parse().unwrap()));
    assert_eq!(server.reached(), 0);
    let id = SecretId {
        application: None,
        name: "KEY".parse().unwrap(),
    };
    for text in ["one", "two"] {
        let value = Value::new(text.as_bytes().to_vec().into()).unwrap();
        own.secrets.set(&id, value).unwrap();
        ask(server.uri("/echo")).unwrap();
        let seen = server.last().unwrap().head;
        assert_eq!(seen.headers["authorization"], format!("Bearer {text}"));
    }
    ask(format!("http://localhost:{}/echo", server.address.port())).unwrap();
    assert!(!server.last().unwrap().head.headers.contains_key("authorization"));
    own.secrets.delete(&id).unwrap();
    assert!(matches!(ask(server.uri("/echo")), Err(CallError::Unset(_))));
}

#[test]
fn heads_and_trailers_arrive_to_the_byte() {
    let (own, server) = (Own::start(), Server::start().unwrap());
    let strange = Bytes::from_static(b"\xff\x80\xc3\xa9 \"\\");
    server.answer((
        207,
        vec![("x-other", "yes".to_owned())],
        Bytes::from_static(b"said"),
    ));
    for piece in [None, Some("a body")] {
        let (feed, mut body) = fed();
        body.1 = vec![("x-sum".into(), strange.clone()), ("X-Sum".into(), "2".into())];
        if let Some(piece) = piece {
            feed.send(piece.into()).unwrap();
        }
        drop(feed);
        let mut asked = call("POST", server.uri("/a?b=%20c"), streamed(body));
        asked.parameters = vec![("X-Mine".into(), strange.clone()), ("x-mine".into(), "2".into())];
        let reply = own.ask(asked).unwrap();
        assert_eq!(reply.head.status, 207);
        let other = reply.head.headers.iter().find(|(name, _)| name == "x-other");
        assert_eq!(other.unwrap().1, "yes");
        assert_eq!(read(&own, reply.body), (b"said".to_vec(), Ok(Trailers::new())));
        let seen = server.last().unwrap();
        assert_eq!(
            (seen.head.method.as_str(), seen.head.uri.to_string()),
            ("POST", "/a?b=%20c".to_owned())
        );
        assert_eq!(&seen.body[..], piece.unwrap_or_default().as_bytes());
        for (fields, name) in [(&seen.head.headers, "x-mine"), (&seen.trailers, "x-sum")] {
            let values: Vec<_> = fields
                .get_all(name)
                .iter()
                .map(|value| value.as_bytes())
                .collect();
            assert_eq!(values, [&strange[..], b"2"]);
        }
        assert!(seen.head.headers.contains_key("transfer-encoding"));
    }
    // Whole bodies have a length, whatever the function says.
    for length in [1, 40_000, 300_000] {
        let mut asked = call("PUT", server.uri("/"), Bytes::from(vec![7; length]));
        asked.parameters = vec![("Content-Length".into(), "3".into())];
        own.ask(asked).unwrap();
        let seen = server.last().unwrap();
        assert_eq!(seen.head.headers["content-length"], length.to_string());
        assert_eq!(seen.body, vec![7; length]);
    }
    let plain = own.ask(call("GET", server.uri("/"), Bytes::new()));
    assert!(plain.is_ok());
    let head = server.last().unwrap().head;
    assert!(!head.headers.contains_key("content-length") && !head.headers.contains_key("transfer-encoding"));
}

/// A server of one connection, which does what it is told.
fn serve(answer: impl FnOnce(TcpStream) + Send + 'static) -> (String, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("http://{}/", listener.local_addr().unwrap());
    let serving = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        answer(stream);
    });
    (uri, serving)
}

/// Reads until this has come.
fn until(stream: &mut TcpStream, wanted: &[u8]) -> Vec<u8> {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(wanted) {
        stream.read_exact(&mut byte).unwrap();
        all.push(byte[0]);
    }
    all
}

#[test]
fn trailers_of_replies_arrive_and_broken_replies_are_no_whole_ones() {
    let own = Own::start();
    for (sent, body, end) in [
        ("3\r\nabc\r\n0\r\nX-Sum: 3\r\n\r\n", "abc", Ok(1)),
        ("0\r\n\r\n", "", Ok(0)),
        ("3\r\nabc\r\n", "abc", Err(BodyError::Gone)),
        ("3\r\nab", "ab", Err(BodyError::Gone)),
    ] {
        let (uri, serving) = serve(move |mut stream| {
            until(&mut stream, b"\r\n\r\n");
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
            stream.write_all(format!("{head}{sent}").as_bytes()).unwrap();
        });
        let mut asked = call("GET", uri, Bytes::new());
        asked.parameters = vec![("te".into(), "trailers".into())];
        let reply = own.ask(asked).unwrap();
        let (came, ended) = read(&own, reply.body);
        assert_eq!(came, body.as_bytes());
        assert_eq!(ended.map(|trailers| trailers.len()), end, "{sent:?}");
        serving.join().unwrap();
    }
}

#[test]
fn bodies_go_both_ways_at_once() {
    let own = Own::start();
    let (uri, serving) = serve(|mut stream| {
        until(&mut stream, b"\r\n\r\n");
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
            .unwrap();
        let mut piece = vec![0; 1000];
        for _ in 0..5 {
            stream.read_exact(&mut piece).unwrap();
            stream.write_all(&piece).unwrap();
        }
    });
    let (feed, body) = fed();
    let mut asked = call("POST", uri, streamed(body));
    asked.parameters = vec![("content-length".into(), "5000".into())];
    // The reply begins before anything is sent, and each piece of it is of the one before.
    let reply = own.ask(asked).unwrap();
    let Body::Stream(mut stream) = reply.body else {
        panic!("it has only begun");
    };
    for number in 0..5 {
        feed.send(vec![number; 1000].into()).unwrap();
        let mut came = Vec::new();
        while came.len() < 1000 {
            let next = poll_fn(|context| stream.poll_next(context.waker()));
            came.extend_from_slice(&own.runtime.block_on(next).unwrap().unwrap());
        }
        assert_eq!(came, vec![number; 1000]);
    }
    drop(feed);
    let end = own
        .runtime
        .block_on(poll_fn(|context| stream.poll_next(context.waker())));
    assert_eq!(end, Ok(None));
    serving.join().unwrap();
}

/// A body without an end, which counts what was taken of it.
struct Endless(Arc<AtomicUsize>);

impl BodyStream for Endless {
    fn poll_next(&mut self, _: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        self.0.fetch_add(1 << 16, SeqCst);
        Poll::Ready(Ok(Some(Bytes::from_static(&[1; 1 << 16]))))
    }

    fn trailers(&mut self) -> Trailers {
        Trailers::new()
    }
}

/// Of what nobody reads, some is taken, and then nothing more.
fn is_held_back(taken: &AtomicUsize) {
    let (mut before, mut still) = (0, Instant::now());
    eventually("nothing more is taken", || {
        let now = taken.load(SeqCst);
        if now != before {
            (before, still) = (now, Instant::now());
        }
        now > 0 && still.elapsed() > Duration::from_millis(500)
    });
    assert!(
        before < 64 << 20,
        "{before} bytes were taken, and nobody reads them"
    );
}

#[test]
fn who_is_not_read_is_held_back_and_given_up_all_the_same() {
    let own = Own::start();
    let (gone, is_gone) = sync_channel::<()>(0);
    let (uri, serving) = serve(move |mut stream| {
        until(&mut stream, b"\r\n\r\n");
        // Nothing of the body is read until its sender has been given up.
        let _ = is_gone.recv_timeout(WATCHDOG);
        let mut rest = vec![0; 1 << 20];
        // It is closed, or reset: what matters is that this ends.
        while stream.read(&mut rest).is_ok_and(|count| count > 0) {}
    });
    let taken = Arc::new(AtomicUsize::new(0));
    let mut calling = own.begin(call("POST", uri, streamed(Endless(taken.clone()))));
    let mut nobody = Context::from_waker(Waker::noop());
    assert!(calling.as_mut().poll(&mut nobody).is_pending());
    is_held_back(&taken);
    drop(calling);
    gone.send(()).unwrap();
    serving.join().unwrap();
}

#[test]
fn an_upload_that_is_never_read_has_no_connection_once_nobody_waits_for_its_reply() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: ";
    for (answer, gives_up) in [
        // Before there is a reply, in the middle of it, and when it has come.
        (String::new(), true),
        (format!("{head}5\r\n\r\nab"), true),
        (format!("{head}2\r\n\r\nab"), false),
    ] {
        let own = Own::start();
        let has_reply = !answer.is_empty();
        let (uri, serving) = serve(move |mut stream| {
            until(&mut stream, b"\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            eventually("the connection is reset", || {
                stream.take_error().unwrap().is_some()
            });
        });
        let taken = Arc::new(AtomicUsize::new(0));
        let mut calling = own.begin(call("POST", uri, streamed(Endless(taken.clone()))));
        if has_reply {
            let reply = own.runtime.block_on(calling).unwrap();
            is_held_back(&taken);
            if gives_up {
                drop(reply);
            } else {
                assert_eq!(read(&own, reply.body), (b"ab".to_vec(), Ok(Trailers::new())));
            }
        } else {
            let mut nobody = Context::from_waker(Waker::noop());
            assert!(calling.as_mut().poll(&mut nobody).is_pending());
            is_held_back(&taken);
            drop(calling);
        }
        serving.join().unwrap();
        eventually("the node has let go of it, too", || {
            Arc::strong_count(&taken) == 1
        });
    }
}

#[test]
fn a_reply_that_nobody_reads_is_held_back() {
    let own = Own::start();
    let sent = Arc::new(AtomicUsize::new(0));
    let its = sent.clone();
    let (uri, serving) = serve(move |mut stream| {
        until(&mut stream, b"\r\n\r\n");
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        // Until the reader has gone.
        while stream.write_all(&[1; 1 << 16]).is_ok() {
            its.fetch_add(1 << 16, SeqCst);
        }
    });
    let reply = own.ask(call("GET", uri, Bytes::new())).unwrap();
    let (mut before, mut still) = (0, Instant::now());
    eventually("nothing more is sent", || {
        let now = sent.load(SeqCst);
        if now != before {
            (before, still) = (now, Instant::now());
        }
        still.elapsed() > Duration::from_millis(500)
    });
    assert!(
        before < 64 << 20,
        "{before} bytes were sent, and nobody reads them"
    );
    drop(reply);
    serving.join().unwrap();
}

#[test]
fn more_calls_than_there_are_places_for_are_refused_and_each_place_comes_back() {
    let (own, server) = (Own::with_places(2), Server::start().unwrap());
    let silence = || call("GET", server.uri("/silence"), Bytes::new());
    for _ in 0..3 {
        let waiting = [own.begin(silence()), own.begin(silence())];
        assert_eq!(own.ask(silence()).unwrap_err(), CallError::Busy);
        eventually("both are under way", || server.under_way() == 2);
        drop(waiting);
        eventually("they are given up", || server.under_way() == 0);
    }
    let stall = own.ask(call("GET", server.uri("/stall"), Bytes::new())).unwrap();
    let silent = own.begin(silence());
    assert_eq!(
        own.ask(silence()).unwrap_err(),
        CallError::Busy,
        "its reply is not read yet"
    );
    drop((stall, silent));
    assert!(own.ask(call("GET", server.uri("/echo"), Bytes::new())).is_ok());
}

#[test]
fn errors_are_what_they_are() {
    let own = Own::start();
    let granted = grant(["127.0.0.1", "localhost", "nowhere.invalid"].map(host).into());
    let session = own.lines.bind(&granted).unwrap();
    let ask = |target: &str| {
        let calling = session.call(call("GET", target.to_owned(), Bytes::new()));
        own.runtime.block_on(calling).unwrap_err()
    };
    // A port that is a connection's own: nobody listens on it, and nobody else is given it meanwhile.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let closed = taken.local_addr().unwrap();
    assert!(matches!(ask("http://example.org/"), CallError::Denied(what) if what == "the host example.org"));
    assert!(matches!(ask("ftp://127.0.0.1/"), CallError::Target(_)));
    assert!(matches!(ask("/nothing"), CallError::Target(what) if what == "/nothing"));
    assert!(matches!(ask("http://nowhere.invalid/"), CallError::Name(_)));
    assert!(
        matches!(ask(&format!("http://{closed}/")), CallError::Refused(what) if what == closed.to_string())
    );
    let (uri, serving) = serve(|mut stream| stream.write_all(b"this is not HTTP\r\n\r\n").unwrap());
    assert!(matches!(ask(&uri), CallError::Broken(_)));
    serving.join().unwrap();
    let mut large = call("GET", "http://127.0.0.1/".to_owned(), Bytes::new());
    large.parameters = vec![("x".into(), Bytes::from(vec![b'x'; 5 << 20]))];
    assert!(matches!(own.ask(large), Err(CallError::Broken(what)) if what.contains("too large")));
}

const LOST: &str = "the backend ended before there was a reply, and the request may have been done";

fn is_lost(reply: &Result<Reply, CallError>) -> bool {
    matches!(reply, Err(CallError::Broken(said)) if said == LOST)
}

#[test]
fn what_is_the_same_twice_is_asked_again_when_the_backend_goes_and_nothing_else() {
    // A stream that ends at once is the same as none.
    let empty = || {
        let (_, body) = fed();
        streamed(body)
    };
    let begun = || {
        let (feed, body) = fed();
        feed.send(Bytes::from_static(b"begun")).unwrap();
        streamed(body)
    };
    for (method, body, is_again) in [
        ("GET", Bytes::new().into(), true),
        ("DELETE", empty(), true),
        ("PUT", Bytes::from(vec![1; 100_000]).into(), true),
        ("PUT", begun(), false),
        ("POST", empty(), false),
        ("POST", Bytes::new().into(), false),
        ("PATCH", Bytes::from_static(b"1").into(), false),
    ] {
        let (own, server) = (Own::start(), Server::start().unwrap());
        let calling = own.begin(call(method, server.uri("/silence"), body));
        eventually("it is under way", || server.reached() == 1);
        own.signal(Signal::KILL);
        if is_again {
            eventually("it is under way again", || server.reached() == 2);
            drop(calling);
        } else {
            let reply = own.runtime.block_on(calling);
            assert!(is_lost(&reply), "{method}: {reply:?}");
            assert_eq!(server.reached(), 1);
        }
        let next = own.ask(call("POST", server.uri("/echo"), Bytes::from_static(b"here")));
        assert_eq!(read(&own, next.unwrap().body).0, b"here", "it all goes on");
    }
}

#[test]
fn what_ends_every_backend_is_not_asked_for_ever() {
    let (own, server) = (Own::start(), Server::start().unwrap());
    let calling = own.begin(call("GET", server.uri("/silence"), Bytes::new()));
    for reached in 1..=3 {
        eventually("it is under way", || server.reached() == reached);
        own.signal(Signal::KILL);
    }
    let reply = own.runtime.block_on(calling);
    assert!(is_lost(&reply), "{reply:?}");
}

#[test]
fn what_the_backend_had_not_begun_with_is_asked_again_whatever_it_is() {
    for (is_streamed, is_again) in [(true, true), (false, false)] {
        let (own, server) = (Own::start(), Server::start().unwrap());
        // It ends with the first line in its hands.
        std::fs::write(own.secrets_folder().join(DROPS), "").unwrap();
        let (feed, body) = fed();
        feed.send(Bytes::from_static(b"here")).unwrap();
        drop(feed);
        let body = match is_streamed {
            true => streamed(body),
            false => Bytes::from_static(b"here").into(),
        };
        let reply = own.ask(call("POST", server.uri("/echo"), body));
        if is_again {
            assert_eq!(read(&own, reply.unwrap().body).0, b"here");
        } else {
            assert!(is_lost(&reply), "{reply:?}");
        }
        assert_eq!(server.reached(), usize::from(is_again));
        eventually("another is started", || (own.backend.starts())() == 2);
    }
}

#[test]
fn what_waits_for_a_backend_is_not_lost() {
    let (own, server) = (Own::start(), Server::start().unwrap());
    own.ask(call("GET", server.uri("/echo"), Bytes::new())).unwrap();
    // One that takes nothing, and then is no more. More calls than its socket holds wait.
    stopping::stop(own.started());
    let begin = |length: usize| own.begin(call("POST", server.uri("/echo"), Bytes::from(vec![b'x'; length])));
    let calls: Vec<_> = (1..=1000).map(begin).collect();
    own.signal(Signal::KILL);
    for (calling, length) in calls.into_iter().zip(1..) {
        let reply = own.runtime.block_on(calling).unwrap();
        assert_eq!(read(&own, reply.body).0.len(), length);
    }
    assert_eq!(server.reached(), 1001, "each once");
}

#[test]
fn a_reply_that_the_backend_leaves_breaks_off() {
    let (own, server) = (Own::start(), Server::start().unwrap());
    let reply = own.ask(call("GET", server.uri("/flood"), Bytes::new())).unwrap();
    let Body::Stream(mut stream) = reply.body else {
        panic!("it has no end");
    };
    let next = |stream: &mut Box<dyn BodyStream>| {
        own.runtime
            .block_on(poll_fn(|context| stream.poll_next(context.waker())))
    };
    assert!(matches!(next(&mut stream), Ok(Some(_))));
    own.signal(Signal::KILL);
    let error = loop {
        match next(&mut stream) {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert_eq!(error, Err(BodyError::Gone));
    assert_eq!(
        next(&mut stream),
        Err(BodyError::Gone),
        "the error stays the same"
    );
}

#[test]
fn it_does_not_end_with_what_is_said_to_its_node() {
    let (own, server) = (Own::start(), Server::start().unwrap());
    own.ask(call("GET", server.uri("/echo"), Bytes::new())).unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        own.signal(signal);
        own.ask(call("GET", server.uri("/echo"), Bytes::new())).unwrap();
    }
    assert_eq!((own.backend.starts())(), 1);
}
