//! The service against a real server: the seam's suite, and what is HTTP's own.

use contract::{
    Body, BodyStream, Call, CallError, Caller, Grant, HttpGrant, Reply, Service, Trailers, conformance,
};
use egress::testing::{self, Hosts, Server, host};
use millpond_service_http::Http;
use secrets::{SecretId, Secrets, Value, Values};
use std::{
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A reply that takes longer will not come.
const WATCHDOG: Duration = Duration::from_secs(60);

/// The service, its runtime and its secrets.
struct Ours {
    service: Arc<Http>,
    secrets: Secrets,
    _runtime: Runtime,
    _folder: TempDir,
}

impl Ours {
    fn start() -> Self {
        let runtime = testing::runtime().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let secrets = Secrets::open(folder.path()).unwrap();
        let values = Values::of(folder.path().to_owned());
        Self {
            service: Arc::new(Http::new(runtime.handle().clone(), values, 4096)),
            secrets,
            _runtime: runtime,
            _folder: folder,
        }
    }
}

fn grant(http: Vec<HttpGrant>) -> Grant {
    Grant {
        http,
        ..Grant::nothing("shop.f".parse().unwrap())
    }
}

fn call(method: &str, target: String, fields: &[(&'static str, &'static str)]) -> Call {
    let fields = fields
        .iter()
        .map(|(name, value)| ((*name).into(), value.as_bytes().into()));
    Call {
        operation: method.to_owned(),
        target,
        parameters: fields.collect(),
        body: Body::Whole(bytes::Bytes::new()),
        patience: Some(WATCHDOG),
        pause: None,
        caller: Caller::default(),
    }
}

fn with(host: &str, headers: &[(&str, &str)]) -> HttpGrant {
    let headers = headers.iter();
    HttpGrant {
        headers: headers
            .map(|(name, value)| ((*name).to_owned(), value.parse().unwrap()))
            .collect(),
        ..testing::host(host)
    }
}

fn ask(ours: &Ours, grant: &Grant, call: Call) -> Result<Reply, CallError> {
    let session = ours.service.bind(grant).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(session.call(call))
}

fn set(ours: &Ours, name: &str, value: &str) {
    let id = SecretId {
        application: None,
        name: name.parse().unwrap(),
    };
    let value = Value::new(value.as_bytes().to_vec().into()).unwrap();
    ours.secrets.set(&id, value).unwrap();
}

fn values(head: &http::request::Parts, name: &str) -> Vec<String> {
    let all = head.headers.get_all(name).iter();
    all.map(|value| value.to_str().unwrap().to_owned()).collect()
}

#[test]
fn it_conforms() {
    let ours = Ours::start();
    conformance::service::run(&Hosts {
        service: ours.service.clone(),
        server: Server::start().unwrap(),
    });
}

#[test]
fn a_secret_takes_the_place_of_the_functions_own_header_and_follows_its_changes() {
    let (ours, server) = (Ours::start(), Server::start().unwrap());
    let granted = grant(vec![with(
        "127.0.0.1",
        &[("authorization", "Bearer {secret:KEY}"), ("x-kind", "plain")],
    )]);
    let fields = [
        ("Authorization", "mine"),
        ("AUTHORIZATION", "too"),
        ("x-mine", "1"),
    ];
    for value in ["one", "two"] {
        set(&ours, "KEY", value);
        let reply = ask(&ours, &granted, call("GET", server.uri("/echo"), &fields)).unwrap();
        assert_eq!(reply.head.status, 200);
        let head = server.last().unwrap().head;
        assert_eq!(values(&head, "authorization"), [format!("Bearer {value}")]);
        assert_eq!(
            (values(&head, "x-kind"), values(&head, "x-mine")),
            (vec!["plain".to_owned()], vec!["1".to_owned()])
        );
        assert!(!format!("{reply:?}").contains(value));
    }
}

#[test]
fn a_secret_that_is_not_set_fails_the_call_and_nothing_is_sent() {
    let (ours, server) = (Ours::start(), Server::start().unwrap());
    let granted = grant(vec![with("127.0.0.1", &[("authorization", "{secret:KEY}")])]);
    let fields = [("authorization", "mine")];
    let unset = ask(&ours, &granted, call("GET", server.uri("/echo"), &fields)).unwrap_err();
    assert_eq!(unset, CallError::Unset("KEY".parse().unwrap()));
    assert!(unset.to_string().contains("KEY"));
    assert_eq!(server.reached(), 0);
}

#[test]
fn a_secret_goes_to_its_host_only() {
    let (ours, server) = (Ours::start(), Server::start().unwrap());
    set(&ours, "KEY", "hidden");
    let granted = grant(vec![
        with("127.0.0.1", &[("authorization", "{secret:KEY}")]),
        host("localhost"),
        with("192.0.2.1", &[("authorization", "{secret:KEY}")]),
    ]);
    let other = format!("http://localhost:{}/echo", server.address.port());
    let fields = [("authorization", "mine")];
    ask(&ours, &granted, call("GET", other, &fields)).unwrap();
    assert_eq!(values(&server.last().unwrap().head, "authorization"), ["mine"]);
    let userinfo = format!("http://127.0.0.1@localhost:{}/echo", server.address.port());
    // Whatever is made of it, it is not the host before the `@`.
    let _ = ask(&ours, &granted, call("GET", userinfo, &fields));
    assert!(!values(&server.last().unwrap().head, "authorization").contains(&"hidden".to_owned()));

    let before = server.reached();
    for (method, target) in [
        ("GET", "http://192.0.2.1/".to_owned()),
        ("TRACE", server.uri("/echo")),
        ("CONNECT", server.uri("/echo")),
    ] {
        let denied = ask(&ours, &granted, call(method, target.clone(), &[])).unwrap_err();
        assert!(
            matches!(denied, CallError::Denied(_)),
            "{method} {target}: {denied}"
        );
        assert!(!denied.to_string().contains("hidden"));
    }
    assert_eq!(server.reached(), before);
}

/// A body of one piece or none, and trailers.
struct Trailing(Option<bytes::Bytes>, Option<Trailers>);

impl BodyStream for Trailing {
    fn poll_next(&mut self, _: &Waker) -> Poll<Result<Option<bytes::Bytes>, contract::BodyError>> {
        Poll::Ready(Ok(self.0.take()))
    }

    fn trailers(&mut self) -> Trailers {
        self.1.take().unwrap_or_default()
    }
}

#[test]
fn trailers_reach_a_server_that_was_not_told_of_them() {
    let (ours, server) = (Ours::start(), Server::start().unwrap());
    let granted = grant(vec![host("127.0.0.1")]);
    for piece in [Some("0\r\n\r\n"), None, Some("a body")] {
        let trailers: Trailers = vec![("X-Sum".into(), "1".into()), ("x-sum".into(), "2".into())];
        let mut trailed = call("POST", server.uri("/echo"), &[]);
        trailed.body = Body::Stream(Box::new(Trailing(piece.map(Into::into), Some(trailers.clone()))));
        ask(&ours, &granted, trailed).unwrap();
        let came = server.last().unwrap().trailers;
        assert_eq!(came.get_all("x-sum").iter().collect::<Vec<_>>(), ["1", "2"]);
        // The next request on the same connection has none, nor has one whose length is known.
        let mut plain = call("POST", server.uri("/echo"), &[]);
        plain.body = Body::Stream(Box::new(Trailing(piece.map(Into::into), None)));
        ask(&ours, &granted, plain).unwrap();
        assert!(server.last().unwrap().trailers.is_empty());
        let length = piece.map_or("0", |piece| if piece.len() == 5 { "5" } else { "6" });
        let mut sized = call("POST", server.uri("/echo"), &[("content-length", length)]);
        sized.body = Body::Stream(Box::new(Trailing(piece.map(Into::into), Some(trailers))));
        ask(&ours, &granted, sized).unwrap();
        assert!(server.last().unwrap().trailers.is_empty());
    }
}

#[test]
fn trailers_cannot_stand_beside_a_secret_either() {
    let (ours, server) = (Ours::start(), Server::start().unwrap());
    set(&ours, "KEY", "hidden");
    let granted = grant(vec![with("127.0.0.1", &[("x-key", "{secret:KEY}")])]);
    let trailers = vec![("X-Key".into(), "mine".into()), ("x-sum".into(), "1".into())];
    let mut call = call("POST", server.uri("/echo"), &[("trailer", "x-key, x-sum")]);
    call.body = Body::Stream(Box::new(Trailing(None, Some(trailers))));
    ask(&ours, &granted, call).unwrap();
    let came = server.last().unwrap().trailers;
    assert_eq!(came.get("x-sum").unwrap(), "1");
    assert!(!came.contains_key("x-key"));
    assert_eq!(values(&server.last().unwrap().head, "x-key"), ["hidden"]);
}

#[test]
fn a_function_cannot_say_where_its_message_ends() {
    let (ours, server) = (Ours::start(), Server::start().unwrap());
    let granted = grant(vec![host("127.0.0.1")]);
    for fields in [
        &[("content-length", "10")][..],
        &[("content-length", "0"), ("Content-Length", "10")],
        &[("content-length", "+0")],
        &[("transfer-encoding", "chunked")],
        &[("connection", "upgrade"), ("upgrade", "x"), ("host", "elsewhere")],
    ] {
        // Were the other side to wait for more, there would be no reply.
        for _ in 0..2 {
            let reply = ask(&ours, &granted, call("GET", server.uri("/echo"), fields)).unwrap();
            assert_eq!(reply.head.status, 200, "{fields:?}");
        }
        let head = server.last().unwrap().head;
        for name in ["content-length", "transfer-encoding", "connection", "upgrade"] {
            assert!(values(&head, name).is_empty(), "{fields:?}: {name}");
        }
        assert_eq!(values(&head, "host"), [server.address.to_string()]);
    }
    let known = call("POST", server.uri("/echo"), &[("content-length", "0")]);
    ask(&ours, &granted, known).unwrap();
    assert_eq!(values(&server.last().unwrap().head, "content-length"), ["0"]);
}

#[test]
fn an_address_of_version_6_is_granted_as_it_is_written() {
    let ours = Ours::start();
    let granted = grant(vec![host("[::1]")]);
    // Nobody may listen there: that it was tried is enough.
    let tried = ask(&ours, &granted, call("GET", "http://[::1]:9/".to_owned(), &[]));
    assert!(!matches!(tried, Err(CallError::Denied(_))), "{tried:?}");
}

#[test]
fn without_a_tracer_nothing_is_told_of_traces() {
    let (ours, server) = (Ours::start(), Server::start().unwrap());
    let mut call = call("GET", server.uri("/echo"), &[]);
    call.caller.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
    call.caller.tracestate = Some("a=1".into());
    ask(&ours, &grant(vec![host("127.0.0.1")]), call).unwrap();
    assert!(values(&server.last().unwrap().head, "traceparent").is_empty());
    assert!(values(&server.last().unwrap().head, "tracestate").is_empty());
}
