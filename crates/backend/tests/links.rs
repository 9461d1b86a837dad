//! Sandboxes and a backend on real channels, in threads of one process: those that keep to the rules, and those that do not.

extern crate millpond_backend as backend;

mod stopping;

use backend::Backend;
use bytes::Bytes;
use contract::{
    Body, BodyError, BodyStream, Call, CallError, Caller, Calling, Grant, Reply, ResponseHead, S3Action,
    S3Grant, Service, Session, Trailers,
};
use exchange::{
    Ask, BEFORE, Broken, CallHandle, KEPT, Kept, Link, MOST_CALLS, MOST_KEPT, PIECE, STEP, Span, Tell,
};
use ring::{Bell, GuestEnd};
use rustix::{
    fd::OwnedFd,
    process::{Pid, Signal, kill_process},
};
use std::{
    borrow::Cow,
    env,
    future::poll_fn,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::mpsc,
    time::sleep,
};

/// A service that answers what it is asked for, in as many pieces as it is told to.
struct Echo;

struct EchoSession;

struct Chunks {
    left: u64,
    chunk: u64,
    breaks: bool,
}

/// Half of what was said comes, and no more.
struct Half(Option<Bytes>);

impl BodyStream for Half {
    fn poll_next(&mut self, _: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        match self.0.take() {
            Some(half) => Poll::Ready(Ok(Some(half))),
            None => {
                BEGUN.fetch_add(1, SeqCst);
                Poll::Pending
            }
        }
    }

    fn trailers(&mut self) -> Trailers {
        Trailers::new()
    }
}

impl BodyStream for Chunks {
    fn poll_next(&mut self, _: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        if self.left == 0 {
            return Poll::Ready(if self.breaks {
                Err(BodyError::Gone)
            } else {
                Ok(None)
            });
        }
        let count = self.left.min(self.chunk);
        self.left -= count;
        Poll::Ready(Ok(Some(pattern(self.left, count))))
    }

    fn trailers(&mut self) -> Trailers {
        Trailers::new()
    }
}

/// Bytes that say where they are, counted from the end.
fn pattern(left: u64, count: u64) -> Bytes {
    (0..count).map(|at| ((left + count - at) % 251) as u8).collect()
}

impl Service for Echo {
    fn name(&self) -> &'static str {
        "s3"
    }

    fn bind(&self, grant: &Grant) -> Option<Arc<dyn Session>> {
        assert_eq!(grant.s3[0].bucket, "pond");
        Some(Arc::new(EchoSession))
    }
}

impl Session for EchoSession {
    fn call(&self, call: Call) -> Calling {
        Box::pin(async move {
            let parameter = |name: &str| {
                let found = call.parameters.iter().find(|(its, _)| its == name);
                found.and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse::<u64>().ok())
            };
            let known = parameter("content-length");
            let _held = match (&call.body, &*call.operation) {
                (Body::Whole(bytes), "held") => Some(Held::new(bytes.len())),
                _ => None,
            };
            let sum = match call.body {
                // Before all of it has come.
                Body::Stream(_) if call.operation == "early" => 0,
                Body::Whole(bytes) => sum(&bytes),
                Body::Stream(mut stream) => {
                    let (mut bytes, mut total) = (0, 0);
                    while let Some(piece) = poll_fn(|context| stream.poll_next(context.waker()))
                        .await
                        .map_err(|error| CallError::Broken(error.to_string()))?
                    {
                        bytes += piece.len() as u64;
                        total += sum(&piece);
                    }
                    assert_eq!(Some(bytes), known);
                    total
                }
            };
            let mut headers = vec![("sum".into(), Bytes::from(sum.to_string()))];
            let mut status = 200;
            let body: Body = match &*call.operation {
                "fail" => return Err(CallError::Denied("this".to_owned())),
                "hang" => std::future::pending().await,
                "PUT" | "POST" | "DELETE" | "HEAD" => {
                    BEGUN.fetch_add(1, SeqCst);
                    std::future::pending().await
                }
                "half" => {
                    let length: usize = call.target.parse().unwrap();
                    headers.push(("content-length".into(), Bytes::from(call.target)));
                    Body::Stream(Box::new(Half(Some(vec![7; length / 2].into()))))
                }
                "begun" => Bytes::from(BEGUN.load(SeqCst).to_string()).into(),
                "small" | "early" => Bytes::from(call.target).into(),
                "turn" => {
                    let turn = TURNS.fetch_add(1, SeqCst);
                    sleep(Duration::from_millis(2)).await;
                    Bytes::from(turn.to_string()).into()
                }
                "held" => {
                    sleep(Duration::from_millis(2)).await;
                    Bytes::from(MOST.load(SeqCst).to_string()).into()
                }
                "GET" => {
                    let length: u64 = call.target.parse().unwrap();
                    let text = |name: &str| {
                        let found = call.parameters.iter().find(|(its, _)| its == name);
                        found.map(|(_, value)| std::str::from_utf8(value).unwrap())
                    };
                    let first = text("range").map_or(0, |range| {
                        let range = range.strip_prefix("bytes=").unwrap();
                        assert_eq!(text("if-match"), Some("\"e\""));
                        range
                            .strip_suffix(&format!("-{}", length - 1))
                            .unwrap()
                            .parse()
                            .unwrap()
                    });
                    headers.push(("content-length".into(), (length - first).to_string().into()));
                    if let Some(etag) = text("etag") {
                        headers.push(("etag".into(), Bytes::from(etag.to_owned())));
                    }
                    if first > 0 {
                        let range = format!("bytes {first}-{}/{length}", length - 1);
                        headers.push(("content-range".into(), range.into()));
                        status = 206;
                    }
                    Body::Stream(Box::new(Chunks {
                        left: length - first,
                        chunk: 64 << 10,
                        breaks: false,
                    }))
                }
                _ => {
                    let left = call.target.parse().unwrap();
                    if call.operation == "known" {
                        headers.push(("content-length".into(), Bytes::from(call.target)));
                    }
                    Body::Stream(Box::new(Chunks {
                        left,
                        chunk: parameter("chunk").unwrap_or(u64::MAX),
                        breaks: call.operation == "breaks",
                    }))
                }
            };
            let head = ResponseHead { status, headers };
            Ok(Reply { head, body })
        })
    }
}

/// Calls that have been begun: of those that take a turn, and of those that never end.
static TURNS: AtomicU64 = AtomicU64::new(0);
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// Bytes of bodies that are here at once, and the most that ever were.
static HELD: AtomicU64 = AtomicU64::new(0);
static MOST: AtomicU64 = AtomicU64::new(0);

struct Held(u64);

impl Held {
    fn new(bytes: usize) -> Self {
        let held = HELD.fetch_add(bytes as u64, SeqCst) + bytes as u64;
        MOST.fetch_max(held, SeqCst);
        Self(bytes as u64)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0, SeqCst);
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

/// The backend's process, if a test of these has started this program as one: the test harness's options are its arguments.
#[test]
fn serves() {
    if let Ok(limits) = env::var(SERVES) {
        let limits: Vec<u64> = limits.split(',').map(|limit| limit.parse().unwrap()).collect();
        let limits = backend::Limits {
            calls: limits[0] as usize,
            memory: limits[1],
            bandwidth: NonZeroU64::new(limits[2]),
            tenant_bandwidth: None,
        };
        let control: OwnedFd = rustix::io::dup(std::io::stdin()).unwrap();
        backend::serve(control, limits, |_| Ok(vec![Arc::new(Echo)])).unwrap();
    }
}

const SERVES: &str = "MILLPOND_TEST_BACKEND";

fn start() -> Backend {
    start_within(1000, 256 << 20, 0)
}

/// With so many calls at once, so many bytes of memory, and so many per second for each sandbox if that is limited.
fn start_within(calls: u64, memory: u64, bandwidth: u64) -> Backend {
    // The variable is for the program alone, and `env` sets it.
    let this = env::current_exe().unwrap().into_os_string();
    let arguments = [
        format!("{SERVES}={calls},{memory},{bandwidth}").into(),
        this,
        "--exact".into(),
        "serves".into(),
    ];
    Backend::start("/usr/bin/env".into(), arguments.into()).unwrap()
}

fn session(backend: &Backend, runtime: &Handle) -> Arc<dyn Session> {
    let grant = Grant {
        s3: vec![S3Grant {
            bucket: "pond".to_owned(),
            prefix: String::new(),
            actions: vec![S3Action::Get],
        }],
        ..Grant::nothing("app.f".parse().unwrap())
    };
    let proxy = backend.service("s3", |grant| !grant.s3.is_empty(), runtime.clone());
    proxy.bind(&grant).unwrap()
}

fn attach(backend: &Backend) -> OwnedFd {
    // Nothing runs on it: these make their calls themselves.
    let idle = Builder::new_current_thread().build().unwrap();
    let session = session(backend, idle.handle());
    session.attach(&Caller::default()).unwrap().bell
}

fn link(backend: &Backend) -> Arc<Link> {
    Link::open(Bell::new(attach(backend))).unwrap()
}

fn head(operation: &str, target: &str, chunk: u64) -> Vec<u8> {
    let chunk = chunk.to_string();
    serde_json::to_vec(&serde_json::json!({
        "operation": operation, "target": target, "parameters": [["chunk", chunk], ["content-length", "7"]],
    }))
    .unwrap()
}

fn ask(link: &Arc<Link>, head: &[u8], body: &[u8]) -> Result<(String, Vec<u8>), Broken> {
    let (call, mut sent) = link.call(head, body, body.len() as u64)?;
    while sent < body.len() {
        match call.send(&body[sent..])? {
            0 => break,
            more => sent += more,
        }
    }
    let reply = call.head()?;
    let mut whole = Vec::new();
    let mut piece = vec![0; 300_000];
    loop {
        match call.read(&mut piece)? {
            0 => break,
            count => whole.extend_from_slice(&piece[..count]),
        }
    }
    if let Some(length) = reply.length {
        assert_eq!(length, whole.len() as u64);
    }
    Ok((String::from_utf8(reply.head).unwrap(), whole))
}

#[test]
fn calls_are_answered_whatever_their_size() {
    let backend = start();
    let link = link(&backend);
    let (head_of, body) = ask(&link, &head("small", "here", 1), b"ab").unwrap();
    assert_eq!(head_of, r#"{"status":200,"headers":[["sum","195"]]}"#);
    assert_eq!(body, b"here");
    for (operation, size, chunk) in [
        ("known", 0, 1),
        ("known", 1, 1),
        ("known", 1 << 20, 16 << 10),
        ("known", (1 << 20) + 1, 100_000),
        ("known", 40 << 20, 1 << 20),
        ("unknown", 3 << 20, 70_000),
        ("unknown", 0, 1),
        ("unknown", 20 << 20, u64::MAX),
    ] {
        let (_, body) = ask(&link, &head(operation, &size.to_string(), chunk), b"").unwrap();
        let mut left = size;
        let mut expected = Vec::new();
        while left > 0 {
            let count = left.min(chunk);
            left -= count;
            expected.extend_from_slice(&pattern(left, count));
        }
        assert!(body == expected, "{operation} {size} {chunk}: {}", body.len());
    }
    for size in [1, 8 << 20, (8 << 20) + 1, 50 << 20] {
        let body = vec![3; size];
        let (head_of, _) = ask(&link, &head("small", "", 1), &body).unwrap();
        assert!(
            head_of.contains(&format!("[\"sum\",\"{}\"]", 3 * size)),
            "{size}: {head_of}"
        );
    }
}

#[test]
fn failures_are_told_and_what_came_before_is_there() {
    let backend = start();
    let link = link(&backend);
    let failed = ask(&link, &head("fail", "", 1), b"").unwrap_err();
    assert_eq!(
        failed.to_string(),
        r#"{"kind":"denied","message":"the manifest does not grant this"}"#
    );
    let (call, _) = link.call(&head("breaks", "1000000", 1000), b"", 0).unwrap();
    call.head().unwrap();
    let mut bytes = vec![0; 2_000_000];
    let mut read = 0;
    let broken = loop {
        match call.read(&mut bytes) {
            Ok(count) => {
                assert_ne!(count, 0, "it breaks, and does not end");
                read += count;
            }
            Err(broken) => break broken,
        }
    };
    assert_eq!(read, 1_000_000);
    assert!(broken.to_string().contains("the other side has gone"), "{broken}");
    let no_head = ask(&link, b"{}", b"").unwrap_err();
    assert!(no_head.to_string().contains("operation"), "{no_head}");
    assert_eq!(link.call(&[b' '; 65 << 10], b"", 0).err(), Some(Broken::TooLarge));
}

#[test]
fn many_threads_call_at_once_and_give_up() {
    let backend = start();
    let link = link(&backend);
    thread::scope(|scope| {
        for thread in 0..2 * MOST_CALLS as u64 {
            let link = &link;
            scope.spawn(move || {
                for round in 0..20 {
                    let size = (thread * 7919 + round * 104_729) % 3_000_000;
                    let what = head("known", &size.to_string(), 64 << 10);
                    if (thread + round) % 3 == 0 {
                        // Whatever has come of it by now.
                        drop(link.call(&what, b"x", 1).unwrap());
                        drop(link.call(&head("hang", "", 1), b"x", 1).unwrap());
                    } else {
                        assert_eq!(ask(link, &what, b"x").unwrap().1.len() as u64, size);
                    }
                }
            });
        }
    });
}

#[test]
fn many_calls_of_one_sandbox_do_not_keep_another_from_its_own() {
    let backend = start_within(1, 256 << 20, 0);
    let (many, one) = (link(&backend), link(&backend));
    let turn = |link: &Arc<Link>| -> u64 {
        let (_, body) = ask(link, &head("turn", "", 1), b"").unwrap();
        String::from_utf8(body).unwrap().parse().unwrap()
    };
    thread::scope(|scope| {
        let test = Arc::new(());
        for _ in 0..MOST_CALLS {
            // Whoever asks ends with the test, however that ends.
            let goes_on = Arc::downgrade(&test);
            let many = &many;
            scope.spawn(move || {
                while goes_on.strong_count() > 0 {
                    turn(many);
                }
            });
        }
        // Until all of them wait.
        while turn(&one) < 2 * MOST_CALLS as u64 {}
        let begun = turn(&one);
        let turns: Vec<_> = (0..10).map(|_| turn(&one)).collect();
        let ended = turns[9];
        drop(test);
        // In the order in which they come there would be 32 before each.
        assert!(
            ended - begun < 160,
            "others had {} turns meanwhile",
            ended - begun - 10
        );
    });
}

#[test]
fn calls_wait_for_memory_and_all_get_it() {
    let backend = start_within(1000, 9 << 20, 0);
    let links: Vec<_> = (0..4).map(|_| link(&backend)).collect();
    let most = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..64 {
            let (link, most) = (&links[thread % 4], &most);
            scope.spawn(move || {
                for _ in 0..3 {
                    let (_, said) = ask(link, &head("held", "", 1), &vec![1; 1 << 20]).unwrap();
                    let said = String::from_utf8(said).unwrap().parse().unwrap();
                    most.fetch_max(said, SeqCst);
                }
                // What comes in pieces, and what is larger than a share, or than all of it.
                let large = vec![1; (3 + thread % 8) << 20];
                ask(link, &head("known", "5000000", 64 << 10), &large).unwrap();
            });
        }
    });
    let most = most.load(SeqCst);
    assert!(
        (1 << 20..=4 << 20).contains(&most),
        "{most} bytes of bodies at once"
    );
}

#[test]
fn a_sandboxs_bandwidth_bounds_what_it_sends_and_what_it_gets() {
    let rate = 64_000_000;
    let backend = start_within(1000, 256 << 20, rate);
    // Of 8 MB in a burst, the rest at the rate.
    let least = |bytes: usize| Duration::from_secs_f64((bytes as f64 - 8e6) / rate as f64);
    let up = vec![1; 20_000_000];
    let begun = Instant::now();
    ask(&link(&backend), &head("small", "", 1), &up).unwrap();
    assert!(begun.elapsed() >= least(up.len()), "{:?} up", begun.elapsed());
    let begun = Instant::now();
    ask(&link(&backend), &head("known", "20000000", 64 << 10), b"").unwrap();
    assert!(begun.elapsed() >= least(20_000_000), "{:?} down", begun.elapsed());
}

#[test]
fn a_sandbox_that_breaks_the_rules_loses_its_link_and_nobody_else() {
    let backend = start();
    let good = link(&backend);
    let outside = Span {
        offset: 1 << 50,
        length: 10,
    };
    let none = Span::default();
    let call = |id, head| Ask::Call {
        id,
        head,
        body: none,
        length: 0,
    };
    let too_long = Span {
        offset: 1 << 16,
        length: 9 << 20,
    };
    let some = Span {
        offset: 1 << 17,
        length: 10,
    };
    // One that waits for its body.
    let waits = head("small", "", 1);
    let coming = |body, length| Ask::Call {
        id: 1,
        head: Span {
            offset: 1 << 16,
            length: waits.len() as u64,
        },
        body,
        length,
    };
    let piece = |body| Ask::Piece { id: 1, body };
    let past = Span {
        offset: u64::MAX - 5,
        length: 10,
    };
    let wrongs: [&[[u64; 8]]; 13] = [
        // Bodies: outside of the channel, longer than was said, of nothing.
        &[coming(past, 10).message()],
        &[coming(some, 100).message(), piece(past).message()],
        &[coming(some, 15).message(), piece(some).message()],
        &[coming(some, 5).message()],
        &[coming(none, u64::MAX).message(), piece(none).message()],
        &[[0; 8]],
        &[[u64::MAX; 8]],
        &[call(1, outside).message()],
        &[Ask::Free { offset: 64 }.message()],
        &[Ask::Keep { offset: 64 }.message()],
        &[Ask::Piece {
            id: 9,
            body: too_long,
        }
        .message()],
        &[Ask::Call {
            id: 1,
            head: none,
            body: too_long,
            length: 1 << 40,
        }
        .message()],
        &[coming(none, 10).message(), coming(none, 10).message()],
    ];
    for wrong in wrongs {
        let bell = Bell::new(attach(&backend));
        let mut end = GuestEnd::open(bell.take().unwrap().unwrap()).unwrap();
        let place = end.place(1 << 16, waits.len() as u64).unwrap();
        end.copy_in(place, &waits).unwrap();
        for message in wrong {
            if end.send(*message).unwrap().must_ring {
                bell.ring().unwrap();
            }
        }
        while bell.wait().unwrap() {}
        assert_eq!(ask(&good, &head("small", "good", 1), b"").unwrap().1, b"good");
    }
}

/// Sends to a backend that may sleep.
fn say(end: &mut GuestEnd, bell: &Bell<OwnedFd>, message: [u64; 8]) {
    if end.send(message).unwrap().must_ring {
        bell.ring().unwrap();
    }
}

#[test]
fn what_a_sandbox_keeps_is_what_it_may_keep() {
    let backend = start();
    let asks = head("known", "600000", 1 << 20);
    // By where the reply's head is, and its body.
    type Wrong = fn(u64, u64) -> [Ask; 2];
    let wrongs: [Wrong; 4] = [
        |_, body| [Ask::Keep { offset: body }, Ask::Keep { offset: body }],
        |_, body| [Ask::Keep { offset: body }, Ask::Free { offset: body }],
        |_, body| [Ask::Free { offset: body }, Ask::Keep { offset: body }],
        |head, body| [Ask::Free { offset: body }, Ask::Keep { offset: head }],
    ];
    for wrong in wrongs {
        let bell = Bell::new(attach(&backend));
        let mut end = GuestEnd::open(bell.take().unwrap().unwrap()).unwrap();
        let place = Span {
            offset: 1 << 16,
            length: asks.len() as u64,
        };
        end.copy_in(end.place(place.offset, place.length).unwrap(), &asks)
            .unwrap();
        let call = Ask::Call {
            id: 1,
            head: place,
            body: Span::default(),
            length: 0,
        };
        say(&mut end, &bell, call.message());
        let mut hear = || loop {
            if let Some(message) = end.receive().unwrap() {
                break Tell::read(message).unwrap();
            }
            if end.sleep().unwrap() {
                bell.wait().unwrap();
            }
        };
        let Tell::Head { head, row, .. } = hear() else {
            panic!("it begins with its head");
        };
        let Tell::Piece { body, last, .. } = hear() else {
            panic!("a piece follows");
        };
        assert_eq!((row, body.length, last), (Some(body.offset), 600_000, true));
        assert_eq!(body.offset % STEP, BEFORE);
        for ask in wrong(head.offset, body.offset) {
            say(&mut end, &bell, ask.message());
        }
        while bell.wait().unwrap() {}
    }
}

fn kept(link: &Arc<Link>, operation: &str, length: u64) -> (CallHandle, Option<Kept>) {
    let asks = head(operation, &length.to_string(), 100_000);
    let (call, _) = link.call(&asks, b"", 0).unwrap();
    call.head().unwrap();
    let kept = call.keep(length as usize).unwrap();
    (call, kept)
}

/// The whole body of `known`.
fn known(length: u64) -> Vec<u8> {
    let (mut left, mut body) = (length, Vec::new());
    while left > 0 {
        let count = left.min(100_000);
        left -= count;
        body.extend_from_slice(&pattern(left, count));
    }
    body
}

fn body(kept: &Kept) -> &[u8] {
    assert!(kept.memory.length() > kept.length + BEFORE as usize);
    // SAFETY: it is there for good, and nobody writes to it.
    unsafe { std::slice::from_raw_parts(kept.memory.start().as_ptr().add(BEFORE as usize), kept.length) }
}

#[test]
fn a_body_that_is_kept_stays_as_it_is() {
    let backend = start();
    let link = link(&backend);
    let mut all = Vec::new();
    let mut keeps = |length: u64| {
        let (call, kept) = kept(&link, "known", length);
        let kept = kept.filter(|kept| kept.length as u64 == length).unwrap();
        assert!(body(&kept) == known(length), "{length}");
        assert_eq!(call.read(&mut [0; 10]), Ok(0), "there is nothing more");
        all.push((length, kept));
    };
    for length in [
        *KEPT.start(),
        PIECE - BEFORE,
        PIECE - BEFORE + 1,
        PIECE,
        3 * PIECE + 5,
    ] {
        keeps(length);
    }
    // Others have what room there is besides.
    for _ in 0..20 {
        ask(&link, &head("known", "9000000", 1 << 20), b"").unwrap();
    }
    // What is read piece by piece is nobody's, however much of it there is, and may be kept the next time.
    keeps(PIECE + 100);
    drop(link);
    drop(backend);
    for (length, kept) in &all {
        assert!(body(kept) == known(*length), "{length}");
    }
}

#[test]
fn what_may_not_be_kept_is_read() {
    let backend = start();
    let link = link(&backend);
    for (operation, length) in [
        ("known", *KEPT.start() - 1),
        ("known", MOST_KEPT),
        ("unknown", *KEPT.start()),
    ] {
        let (call, kept) = kept(&link, operation, length);
        assert!(kept.is_none(), "{operation} {length}");
        let mut count = 0;
        let mut bytes = vec![0; 1 << 20];
        while let more @ 1.. = call.read(&mut bytes).unwrap() {
            count += more as u64;
        }
        assert_eq!(count, length, "{operation}");
    }
    let (call, _) = link.call(&head("known", "1000000", 1 << 20), b"", 0).unwrap();
    call.head().unwrap();
    assert!(call.keep(999_999).unwrap().is_none(), "it is longer than that");
    assert_eq!(call.read(&mut [0; 10]), Ok(10));
    assert!(call.keep(1_000_000).unwrap().is_none(), "it has begun to be read");
    // Of all that there may be, what is kept has so much, and nobody waits for more.
    let lengths = std::iter::repeat_with(|| kept(&link, "known", 600_000).1);
    let total: usize = lengths.map_while(|kept| Some(kept?.length)).sum();
    assert!(total > 600_000 && total as u64 <= MOST_KEPT, "{total}");
    assert_eq!(
        ask(&link, &head("known", "9000000", 1 << 20), b"")
            .unwrap()
            .1
            .len(),
        9_000_000
    );
}

#[test]
fn a_backend_that_is_killed_is_started_again_and_links_are_made_anew() {
    let backend = start();
    let (starts, process) = (backend.starts(), backend.process());
    for round in 1..=3 {
        let (link, idle) = (link(&backend), link(&backend));
        for link in [&link, &idle] {
            assert_eq!(ask(link, &head("small", "x", 1), b"").unwrap().1, b"x");
        }
        assert_eq!(starts(), round);
        let (call, _) = link.call(&head("hang", "", 1), b"", 0).unwrap();
        let killed = process();
        let pid = i32::try_from(killed).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        assert_eq!(call.head(), Err(Broken::Lost), "it may have been done");
        // It has ended: all of its files are closed.
        while process() == killed {
            thread::yield_now();
        }
        drop(call);
        assert!(link.is_gone());
        assert_eq!(link.call(b"{}", b"", 0).err(), Some(Broken::Gone));
        assert_eq!(
            idle.call(b"{}", b"", 0).err(),
            Some(Broken::Gone),
            "nobody has heard of it"
        );
    }
    let pid = Pid::from_raw(i32::try_from(process()).unwrap_or_default());
    drop(backend);
    if let Some(pid) = pid {
        assert!(
            rustix::process::test_kill_process(pid).is_err(),
            "it ends with its node"
        );
    }
}

/// Kills it, until it has ended: one that is only about to may still answer.
fn kill(backend: &Backend) {
    let killed = (backend.process())();
    kill_process(pid(killed), Signal::KILL).unwrap();
    while (backend.process())() == killed {
        thread::yield_now();
    }
}

/// Has it take nothing more.
fn stop(backend: &Backend) {
    stopping::stop(pid((backend.process())()));
}

fn pid(process: u64) -> Pid {
    Pid::from_raw(i32::try_from(process).unwrap()).unwrap()
}

/// What a sandbox has done when its backend is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It has asked for a link, of a backend that does not hear it.
    Asked,
    Attached,
    /// It has made a call, with half of its body.
    Begun,
    Sent,
    /// It has read the reply's head.
    Head,
    Piece,
    End,
}

#[test]
fn at_whichever_step_a_backend_is_killed_its_sandbox_hears_of_it() {
    let length: u64 = 40 << 20;
    let call = head("known", &length.to_string(), 1 << 20);
    for at in [
        Step::Asked,
        Step::Attached,
        Step::Begun,
        Step::Sent,
        Step::Head,
        Step::Piece,
        Step::End,
    ] {
        let backend = start();
        assert_eq!(ask(&link(&backend), &head("small", "x", 1), b"").unwrap().1, b"x");
        let passed = |step: Step| {
            if step == at {
                kill(&backend);
            }
        };
        let mut read = 0;
        let mut done = || -> Result<(), Broken> {
            if at == Step::Asked {
                stop(&backend);
            }
            let bell = attach(&backend);
            passed(Step::Asked);
            let link = Link::open(Bell::new(bell)).unwrap();
            passed(Step::Attached);
            let (call, sent) = link.call(&call, b"123", 7)?;
            assert_eq!(sent, 3);
            passed(Step::Begun);
            // What nobody reads any more may still have a place.
            assert!(matches!(call.send(b"4567"), Ok(4) | Err(Broken::Lost)));
            passed(Step::Sent);
            assert_eq!(call.head()?.length, Some(length));
            passed(Step::Head);
            let mut piece = vec![0; 1 << 20];
            loop {
                let count = call.read(&mut piece)?;
                if count == 0 {
                    break;
                }
                if read == 0 {
                    passed(Step::Piece);
                }
                read += count as u64;
            }
            passed(Step::End);
            Ok(())
        };
        let expected = match at {
            Step::Asked | Step::End => Ok(()),
            // Nobody has heard of the call.
            Step::Attached => Err(Broken::Gone),
            Step::Begun | Step::Sent | Step::Head | Step::Piece => Err(Broken::Lost),
        };
        assert_eq!(done(), expected, "{at:?}");
        let is_whole = read == length;
        assert_eq!(is_whole, expected.is_ok(), "{at:?}: {read} bytes");
        let next = ask(&link(&backend), &head("small", "next", 1), b"");
        assert_eq!(next.unwrap().1, b"next", "{at:?}");
        assert_eq!((backend.starts())(), 2, "{at:?}");
    }
}

#[test]
fn a_short_reply_is_there_with_its_end_or_not_at_all() {
    let backend = start();
    for (length, comes) in [(512 << 10, false), ((512 << 10) + 1, true)] {
        let (link, other) = (link(&backend), link(&backend));
        let (call, _) = link.call(&head("half", &length.to_string(), 1), b"", 0).unwrap();
        thread::scope(|scope| {
            let came = scope.spawn(|| call.head());
            while ask(&other, &head("begun", "", 1), b"").unwrap().1 == b"0" {}
            if comes {
                assert_eq!(came.join().unwrap().unwrap().length, Some(length));
                return;
            }
            let pid = i32::try_from((backend.process())()).unwrap();
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
            assert_eq!(came.join().unwrap(), Err(Broken::Lost));
        });
    }
}

/// The node's side: calls of its own, and a runtime for them.
struct Own {
    backend: Backend,
    runtime: Runtime,
    session: Arc<dyn Session>,
}

impl Own {
    fn start() -> Self {
        let backend = start();
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let session = session(&backend, runtime.handle());
        Self {
            backend,
            runtime,
            session,
        }
    }

    fn kill(&self) {
        kill(&self.backend);
    }

    fn call_with(
        &self,
        operation: &str,
        target: &str,
        parameters: &[(&'static str, &'static str)],
    ) -> Calling {
        let parameters = parameters.iter().filter(|(_, value)| !value.is_empty());
        let parameters = parameters.map(|(name, value)| ((*name).into(), Bytes::from(*value)));
        self.send(operation, target, parameters.collect(), Bytes::new().into())
    }

    fn begin(&self, operation: &str, target: &str, length: Option<usize>, body: impl Into<Body>) -> Calling {
        let length = length.map(|length| ("content-length".into(), Bytes::from(length.to_string())));
        self.send(operation, target, length.into_iter().collect(), body.into())
    }

    fn send(
        &self,
        operation: &str,
        target: &str,
        parameters: Vec<(Cow<'static, str>, Bytes)>,
        body: Body,
    ) -> Calling {
        self.session.call(Call {
            operation: operation.to_owned(),
            target: target.to_owned(),
            parameters,
            body,
            patience: None,
            pause: None,
            caller: Caller::default(),
        })
    }

    /// The sum of what was sent, and the reply's bytes.
    fn call(
        &self,
        operation: &str,
        target: &str,
        length: Option<usize>,
        body: impl Into<Body>,
    ) -> Result<(u64, Vec<u8>), CallError> {
        self.read(self.begin(operation, target, length, body))
    }

    fn read(&self, calling: Calling) -> Result<(u64, Vec<u8>), CallError> {
        self.runtime.block_on(async {
            let Reply { head, body } = calling.await?;
            assert_eq!(head.status, 200);
            let (name, sum) = head.headers.first().unwrap();
            assert_eq!(name, "sum");
            let sum = std::str::from_utf8(sum).unwrap().parse().unwrap();
            Ok((sum, whole(body).await?))
        })
    }
}

async fn whole(body: Body) -> Result<Vec<u8>, CallError> {
    let mut stream = match body {
        Body::Whole(bytes) => return Ok(bytes.to_vec()),
        Body::Stream(stream) => stream,
    };
    let mut whole = Vec::new();
    while let Some(piece) = poll_fn(|context| stream.poll_next(context.waker()))
        .await
        .map_err(|error| CallError::Broken(error.to_string()))?
    {
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}

fn chunks(left: u64, chunk: u64) -> Body {
    let breaks = false;
    Body::Stream(Box::new(Chunks { left, chunk, breaks }))
}

#[test]
fn the_nodes_own_calls_are_answered_whatever_their_size() {
    let own = Own::start();
    assert_eq!(
        own.call("small", "here", None, Bytes::from_static(b"ab"))
            .unwrap(),
        (195, b"here".to_vec())
    );
    for size in [0, 1, 300_000, 40_000_001] {
        let expected = pattern(0, size);
        for operation in ["known", "unknown"] {
            let sent = (Some(size as usize), chunks(size, 70_001));
            let (sum_of, got) = own.call(operation, &size.to_string(), sent.0, sent.1).unwrap();
            assert_eq!(sum_of, sum(&expected), "{size}");
            assert!(got == expected, "{operation} {size}");
        }
    }
    // Without a length, it is put together, up to a bound.
    let (sum_of, _) = own.call("small", "", None, chunks(5_000_000, 70_001)).unwrap();
    assert_eq!(sum_of, sum(&pattern(0, 5_000_000)));
    let Err(CallError::Broken(said)) = own.call("small", "", None, chunks(9 << 20, 70_001)) else {
        panic!("it is too large");
    };
    assert_eq!(said, "a body of more than 8 MiB needs a `content-length`");
}

#[test]
fn the_nodes_own_calls_fail_as_the_service_says() {
    let own = Own::start();
    let Err(CallError::Broken(said)) = own.call("fail", "", None, Bytes::new()) else {
        panic!("it fails");
    };
    assert!(said.contains("this"), "{said}");
    assert!(own.call("breaks", "1000000", None, Bytes::new()).is_err());
    // What is to be sent breaks off, or ends before its time.
    let breaking = Chunks {
        left: 1 << 20,
        chunk: 1 << 16,
        breaks: true,
    };
    assert!(
        own.call("small", "", Some(2 << 20), Body::Stream(Box::new(breaking)))
            .is_err()
    );
    assert!(
        own.call("small", "", Some(2 << 20), chunks(1 << 20, 1 << 16))
            .is_err()
    );
    let mut call = Call {
        operation: "hang".to_owned(),
        target: String::new(),
        parameters: Vec::new(),
        body: Bytes::new().into(),
        patience: Some(Duration::from_millis(20)),
        pause: None,
        caller: Caller::default(),
    };
    let late = own.read(own.session.call(call));
    assert!(matches!(late, Err(CallError::Timeout(_))), "{late:?}");
    call = Call {
        operation: "small".to_owned(),
        target: "x".repeat(1 << 20),
        parameters: Vec::new(),
        body: Bytes::new().into(),
        patience: None,
        pause: None,
        caller: Caller::default(),
    };
    assert!(own.read(own.session.call(call)).is_err(), "its head is too long");
    assert_eq!(own.call("small", "here", None, Bytes::new()).unwrap().1, b"here");
}

/// A body of what is sent here.
struct Fed(mpsc::UnboundedReceiver<Bytes>);

impl BodyStream for Fed {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        self.0.poll_recv(&mut Context::from_waker(waker)).map(Ok)
    }

    fn trailers(&mut self) -> Trailers {
        Trailers::new()
    }
}

#[test]
fn the_nodes_own_calls_are_made_again_when_the_backend_goes_if_they_can_be() {
    let own = Own::start();
    let starts = own.backend.starts();
    // Its turn comes from the backend that lives: each counts for itself.
    for round in 1..=3 {
        assert_eq!(own.call("small", "x", None, Bytes::new()).unwrap().1, b"x");
        assert_eq!(starts(), round);
        own.kill();
        assert_eq!(
            own.call("small", "y", None, Bytes::from_static(b"whole"))
                .unwrap()
                .1,
            b"y"
        );
    }
    // Half of a body has been sent, and it comes once.
    let (feed, fed) = mpsc::unbounded_channel();
    let calling = own.begin("small", "", Some(20), Body::Stream(Box::new(Fed(fed))));
    feed.send(Bytes::from_static(b"0123456789")).unwrap();
    let read = own.begin("small", "x", None, Bytes::new());
    assert_eq!(own.read(read).unwrap().1, b"x", "the backend is there");
    own.kill();
    let gone = Broken::Gone.to_string();
    let is_gone = |result| matches!(result, Err(CallError::Broken(said)) if said == gone);
    assert!(is_gone(own.read(calling)), "nobody waits for the other half");
    drop(feed);
    // Of what does not end, one is made again, and the one that is not the same when it is done twice fails.
    let source = |source: &'static str| [("x-amz-copy-source", source), ("X-Amz-Copy-Source-If-Match", "e")];
    for (operation, parameters, attempts) in [
        ("POST", &[][..], 1),
        ("PUT", &[], 3),
        ("PUT", &[("If-None-Match", "*")], 1),
        ("DELETE", &[("x-amz-if-match-size", "1")], 1),
        ("HEAD", &[("if-none-match", "*")], 3),
        ("PUT", &source("pond/from"), 3),
        ("PUT", &source("pond/to?versionId=v"), 1),
    ] {
        let parameters = parameters
            .iter()
            .map(|(name, value)| ((*name).into(), Bytes::from(*value)));
        // One of its own: what is killed again and again is started after ever longer waits.
        let own = Own::start();
        let calling = own.send(operation, "/pond/to", parameters.collect(), Bytes::new().into());
        for _ in 0..attempts {
            while own.call("begun", "", None, Bytes::new()).unwrap().1 == b"0" {}
            own.kill();
        }
        assert!(is_gone(own.read(calling)), "{operation} {attempts}");
    }
}

#[test]
fn what_comes_of_an_object_goes_on_when_the_backend_goes() {
    let own = Own::start();
    let length = 3_000_001;
    for (etag, goes_on) in [("\"e\"", true), ("", false)] {
        let call = own.call_with("GET", &length.to_string(), &[("etag", etag)]);
        let Body::Stream(mut stream) = own.runtime.block_on(call).unwrap().body else {
            panic!("it is large");
        };
        let mut came = Vec::new();
        let mut kills = 0;
        let end = loop {
            match own
                .runtime
                .block_on(poll_fn(|context| stream.poll_next(context.waker())))
            {
                Ok(Some(piece)) => came.extend_from_slice(&piece),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
            // What is on its way already comes all the same.
            if came.len() > kills * 1_200_000 {
                // There is none while the next one is started.
                let process = Pid::from_raw(i32::try_from((own.backend.process())()).unwrap());
                kills += usize::from(process.is_some_and(|it| kill_process(it, Signal::KILL).is_ok()));
            }
        };
        match goes_on {
            true => {
                assert_eq!(end, Ok(()));
                assert!(came == pattern(0, length), "{}", came.len());
                assert!((own.backend.starts())() > 1);
            }
            false => assert_eq!(end, Err(BodyError::Gone)),
        }
    }
}

#[test]
fn a_reply_that_comes_before_all_is_sent_ends_the_sending() {
    let own = Own::start();
    let (feed, fed) = mpsc::unbounded_channel();
    feed.send(Bytes::from_static(b"0123456789")).unwrap();
    // The rest never comes.
    let calling = own.begin("early", "here", Some(20), Body::Stream(Box::new(Fed(fed))));
    assert_eq!(own.read(calling).unwrap(), (0, b"here".to_vec()));
    drop(feed);
}

#[test]
fn a_reply_that_is_not_read_to_its_end_ends_its_link() {
    let own = Own::start();
    for _ in 0..200 {
        let reply = own
            .runtime
            .block_on(own.begin("known", "40000000", None, Bytes::new()))
            .unwrap();
        let Body::Stream(mut stream) = reply.body else {
            panic!("it is large");
        };
        let first = own
            .runtime
            .block_on(poll_fn(|context| stream.poll_next(context.waker())));
        assert!(!first.unwrap().unwrap().is_empty());
        drop(stream);
        drop(own.begin("hang", "", None, Bytes::new()));
    }
    assert_eq!((own.backend.starts())(), 1);
    assert_eq!(own.call("small", "here", None, Bytes::new()).unwrap().1, b"here");
}
