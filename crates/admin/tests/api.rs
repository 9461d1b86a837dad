//! The API as a client sees it: over TCP, with the real registry, store, engine and logs behind it.

use admin::{Audit, NodeInfo, Once, Ran, State, wire};
use bytes::Bytes;
use calls::{CallId, Calls, Finished, Outcome, Timestamp, Verdict};
use contract::{Digest, HeadBuilder, Problem, RequestId};
use engine_wasmtime::Wasmtime;
use registry::{Registry, Version};
use secrets::Secrets;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    pin::Pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant, SystemTime},
};
use store_embedded::Embedded;
use telemetry::{
    logs::{LogOptions, Logs, Stream},
    metrics::Metrics,
};
use tempfile::TempDir;
use tenants::Tenants;
use tokio::{net::TcpListener, sync::oneshot};

/// One for all tests: each reserves address space.
static ENGINE: LazyLock<Arc<Wasmtime>> = LazyLock::new(|| {
    let options = engine_wasmtime::Options {
        sandboxes: 4,
        ..engine_wasmtime::Options::default()
    };
    Arc::new(Wasmtime::new(&options).unwrap())
});

/// Here is nobody to run anything: tests/suite/test_oneshot.py has a whole node.
struct Nobody;

impl Once for Nobody {
    fn run(&self, _: Arc<Version>, _: HeadBuilder, _: Bytes) -> Pin<Box<dyn Future<Output = Ran> + Send>> {
        Box::pin(async {
            Ran {
                answer: Err(Problem::new(500, "platform", "nobody runs it", "")),
                log: Vec::new(),
                timing: String::new(),
            }
        })
    }
}

struct Node {
    address: SocketAddr,
    ready: Arc<AtomicBool>,
    logs: Logs,
    calls: Calls,
    stop: Option<oneshot::Sender<()>>,
    stopped: mpsc::Receiver<std::io::Result<()>>,
    // Dropped last.
    folder: TempDir,
}

impl Node {
    fn start() -> Self {
        Self::with("127.0.0.1:0", None)
    }

    fn with(listen: &str, token: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let metrics = Arc::new(Metrics::new(1));
        let logs = Logs::open(&folder.path().join("logs"), LogOptions::default()).unwrap();
        let store = Arc::new(Embedded::open(&folder.path().join("store.redb")).unwrap());
        let options = calls::Options {
            response_body: 1000,
            ..calls::Options::default()
        };
        let calls = Calls::open(store.clone(), options, Timestamp(0), || {}).unwrap();
        let tenants = Arc::new(Tenants::open(store.clone()).unwrap());
        let registry = registry(store, folder.path());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind(listen)).unwrap();
        let address = listener.local_addr().unwrap();
        let ready = Arc::new(AtomicBool::new(true));
        let state = State {
            agenda: triggers::Agenda::default(),
            once: Arc::new(Nobody),
            objects: None,
            secrets: Secrets::open(&folder.path().join("secrets")).unwrap(),
            registry: Arc::new(registry),
            tenants,
            audit: Audit::open(folder.path()).unwrap(),
            logs: logs.clone(),
            calls: Some(calls.clone()),
            metrics,
            node: NodeInfo {
                version: "1.2.3".to_owned(),
                listen: "127.0.0.1:8080".parse().unwrap(),
                tls: None,
                s3: None,
                admin: address,
                cores: vec![0],
                started: SystemTime::UNIX_EPOCH,
            },
            token: token.map(str::to_owned),
            ready: ready.clone(),
        };
        let (stop, stopping) = oneshot::channel::<()>();
        let (ended, stopped) = mpsc::channel();
        std::thread::spawn(move || {
            let served = runtime.block_on(admin::serve(listener, state, async {
                let _ = stopping.await;
            }));
            let _ = ended.send(served);
        });
        Self {
            address,
            ready,
            logs,
            calls,
            stop: Some(stop),
            stopped,
            folder,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        let (status, body) = self.call("GET", path, &[], b"");
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn json(&self, method: &str, path: &str, document: &Value) -> (u16, Vec<u8>) {
        let body = document.to_string();
        self.call(
            method,
            path,
            &[("Content-Type", "application/json")],
            body.as_bytes(),
        )
    }

    /// A document that must be accepted.
    fn send<T: DeserializeOwned>(&self, method: &str, path: &str, document: &Value) -> T {
        let (status, body) = self.json(method, path, document);
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    fn exchange(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> ureq::http::Response<ureq::Body> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .build()
            .into();
        let mut request = ureq::http::Request::builder().method(method).uri(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        match body {
            b"" if method != "PUT" => agent.run(request.body(()).unwrap()),
            body => agent.run(request.body(body).unwrap()),
        }
        .unwrap()
    }

    fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, Vec<u8>) {
        let mut response = self.exchange(method, path, headers, body);
        let status = response.status().as_u16();
        let media_type = response
            .headers()
            .get("content-type")
            .map(|value| value.to_str().unwrap().to_owned());
        let body = response.body_mut().read_to_vec().unwrap();
        if status >= 400 {
            assert_eq!(
                media_type.as_deref(),
                Some(Problem::MEDIA_TYPE),
                "{method} {path}"
            );
            let problem: Problem = serde_json::from_slice(&body).unwrap();
            assert_eq!(problem.status, status);
        }
        (status, body)
    }

    /// A call that must fail, and its code.
    fn fails(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
        let (status, body) = self.call(method, path, headers, body);
        let problem: Problem = serde_json::from_slice(&body)
            .unwrap_or_else(|_| panic!("{method} {path}: {status} {}", String::from_utf8_lossy(&body)));
        (status, problem.code.into_owned())
    }

    fn upload(&self, code: &[u8]) -> String {
        let digest = digest(code);
        let (status, body) = self.call("PUT", &format!("/v1/code/{digest}"), &[], code);
        assert!(
            status == 200 || status == 201,
            "{}",
            String::from_utf8_lossy(&body)
        );
        digest
    }

    fn deploy(&self, manifest: Value, code: &[(&str, &[u8])]) -> wire::Deployment {
        let digests: Value = code
            .iter()
            .map(|(name, code)| ((*name).to_owned(), json!(self.upload(code))))
            .collect();
        let path = format!(
            "/v1/applications/{}/deployments",
            manifest["application"]["name"].as_str().unwrap()
        );
        self.send("POST", &path, &json!({ "manifest": manifest, "code": digests }))
    }

    /// A call that was accepted at `now` and may fail once.
    fn accept(&self, number: u128, now: Timestamp) -> String {
        self.accept_for(number, None, now)
    }

    /// The same, whose outcome is told to somebody.
    fn accept_for(&self, number: u128, callback: Option<&str>, now: Timestamp) -> String {
        let request = calls::Request {
            function: "shop.resize".parse().unwrap(),
            method: "POST".to_owned(),
            target: "/".to_owned(),
            headers: Vec::new(),
            body: bytes::Bytes::new(),
            callback: callback.map(|text| text.parse().unwrap()),
            tells: None,
            attempts: 1,
            maximum_age: Duration::from_hours(1),
        };
        let id = CallId(RequestId(number));
        self.calls.submit(id, &request, now).unwrap().to_string()
    }

    /// Runs the calls that are due at `now`, each with this outcome, and says what came of it.
    fn run(&self, outcome: &Outcome, now: Timestamp) -> Vec<Verdict> {
        let attempts = self.calls.begin(&self.calls.due(now, 100), now).unwrap();
        let finished = attempts.into_iter().map(|attempt| Finished {
            id: attempt.id,
            number: attempt.number,
            outcome: outcome.clone(),
            took: Duration::ZERO,
        });
        self.calls.finish(&finished.collect::<Vec<_>>(), now).unwrap()
    }

    /// The first line of the answer to a request as it stands.
    fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

fn registry(store: Arc<Embedded>, data: &Path) -> Registry {
    let options = registry::Options {
        code: contract::ByteSize::mib(2),
        services: vec!["http"],
        ..registry::Options::default()
    };
    Registry::open(store, data, vec![ENGINE.clone()], options).unwrap()
}

fn digest(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    Digest(sha2::Sha256::digest(bytes).into()).to_string()
}

/// A command that differs by a number.
fn program(number: u32) -> Vec<u8> {
    let text = format!(
        "(module (memory (export \"memory\") 1) (global i32 (i32.const {number})) (func (export \"_start\")))"
    );
    wat::parse_str(text).unwrap()
}

fn manifest() -> Value {
    json!({
        "application": { "name": "shop" },
        "function": { "resize": { "source": "resize.wasm", "memory": "32MiB", "env": { "LEVEL": "3" } } },
        "trigger": { "http": [{ "function": "resize", "path": "/resize/{size}", "method": "POST" }] },
    })
}

#[test]
fn a_function_lives() {
    let node = Node::start();
    let code = program(1);
    let request = json!({ "manifest": manifest(), "code": { "resize": digest(&code) } });
    let deployments = "/v1/applications/shop/deployments";
    let plan: wire::Deployment = node.send("POST", &format!("{deployments}?plan=true"), &request);
    assert_eq!(
        plan.missing_code
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        [digest(&code)]
    );
    assert_eq!(plan.changes[0].action, wire::Action::Create);
    let (status, body) = node.json("POST", deployments, &request);
    assert_eq!(
        (
            status,
            serde_json::from_slice::<Problem>(&body).unwrap().code.as_ref()
        ),
        (409, "code-missing")
    );

    assert_eq!(
        node.call("PUT", &format!("/v1/code/{}", digest(&code)), &[], &code)
            .0,
        201
    );
    assert_eq!(
        node.call("PUT", &format!("/v1/code/{}", digest(&code)), &[], &code)
            .0,
        200
    );
    let deployed: wire::Deployment = node.send("POST", deployments, &request);
    assert_eq!(deployed.missing_code, []);
    assert_eq!(deployed.routes[0].path, "/resize/{size}");

    let functions: wire::Functions = node.get("/v1/functions");
    let function = &functions.functions[0];
    assert_eq!(
        (function.function.to_string(), function.version.0.get()),
        ("shop.resize".to_owned(), 1)
    );
    assert_eq!(function.settings.memory, contract::ByteSize::mib(32));
    assert_eq!(
        (
            function.settings.timeout.as_str(),
            function.settings.env["LEVEL"].as_str()
        ),
        ("30s", "3")
    );
    assert_eq!(
        (function.code_size, function.routes.len()),
        (code.len() as u64, 1)
    );

    let second = node.deploy(manifest(), &[("resize", &program(2))]);
    assert_eq!(second.changes[0].action, wire::Action::Update);
    assert_eq!(second.changes[0].differences[0].key, "code");
    let detail: wire::FunctionDetail = node.get("/v1/functions/shop.resize:1");
    assert_eq!((detail.function.version.0.get(), detail.versions.len()), (1, 2));
    assert_eq!(detail.function.code.to_string(), digest(&code));

    let blue: wire::AliasChange = node.send(
        "PUT",
        "/v1/functions/resize/aliases/blue",
        &json!({ "version": 2 }),
    );
    assert_eq!((blue.from, blue.to.0.get()), (None, 2));
    let back: wire::AliasChange = node.send("POST", "/v1/functions/resize/rollback", &json!({}));
    assert_eq!((back.from.unwrap().0.get(), back.to.0.get()), (2, 1));
    let back: wire::AliasChange = node.send("POST", "/v1/functions/resize/rollback", &json!({ "to": 2 }));
    assert_eq!(
        (back.function.to_string(), back.to.0.get()),
        ("shop.resize".to_owned(), 2)
    );
    assert_eq!(
        node.call("DELETE", "/v1/functions/resize/aliases/blue", &[], b""),
        (204, Vec::new())
    );

    let applications: wire::Applications = node.get("/v1/applications");
    let application: wire::Application = node.get("/v1/applications/shop");
    assert_eq!(applications.applications, [application]);
    assert_eq!(node.call("DELETE", "/v1/functions/resize", &[], b"").0, 204);
    assert_eq!(
        node.fails("GET", "/v1/applications/shop", &[], b""),
        (404, "application-unknown".to_owned())
    );
    node.deploy(manifest(), &[("resize", &program(1))]);
    assert_eq!(node.call("DELETE", "/v1/applications/shop", &[], b"").0, 204);
    assert_eq!(node.get::<wire::Functions>("/v1/functions").functions, []);
}

#[test]
fn every_error_is_a_problem() {
    let node = Node::start();
    node.deploy(manifest(), &[("resize", &program(1))]);
    let json_type = [("Content-Type", "application/json")];
    let deployments = "/v1/applications/shop/deployments";
    let absent = digest(b"absent");
    let put = format!("/v1/code/{absent}");
    let not_code = node.upload(b"not a module");
    let body = |manifest: Value, code: Value| json!({ "manifest": manifest, "code": code }).to_string();
    let refused = body(manifest(), json!({ "resize": not_code }));
    let mut typo = manifest();
    typo["function"]["resize"]["memroy"] = json!("1MiB");
    let typo = body(typo, json!({ "resize": not_code }));
    let mut grants = manifest();
    grants["function"]["resize"]["grants"] = json!({ "s3": [{ "bucket": "photos", "actions": ["get"] }] });
    let grants = body(grants, json!({ "resize": not_code }));
    let good = body(manifest(), json!({ "resize": digest(&program(1)) }));
    let deep = "[".repeat(100_000);
    let large = vec![b' '; admin::DOCUMENT_LIMIT + 1];
    for (method, path, headers, body, status, code) in [
        ("GET", "/", &[][..], &b""[..], 404, "not-found"),
        ("GET", "/v2/functions", &[], b"", 404, "not-found"),
        ("POST", "/v1/functions", &[], b"x", 405, "method-not-allowed"),
        ("DELETE", "/v1/node", &[], b"", 405, "method-not-allowed"),
        ("GET", "/v1/functions/nobody", &[], b"", 404, "function-unknown"),
        (
            "GET",
            "/v1/functions/shop.resize:7",
            &[],
            b"",
            404,
            "version-unknown",
        ),
        (
            "GET",
            "/v1/functions/Not%20A%20Name",
            &[],
            b"",
            400,
            "name-invalid",
        ),
        ("GET", "/v1/functions/%ff", &[], b"", 400, "name-invalid"),
        (
            "GET",
            "/v1/functions/resize/logs?tail=many",
            &[],
            b"",
            400,
            "query-invalid",
        ),
        (
            "GET",
            "/v1/functions/resize/logs?folow=true",
            &[],
            b"",
            400,
            "query-invalid",
        ),
        (
            "GET",
            "/v1/functions/nobody/logs",
            &[],
            b"",
            404,
            "function-unknown",
        ),
        (
            "GET",
            "/v1/applications/nobody",
            &[],
            b"",
            404,
            "application-unknown",
        ),
        (
            "DELETE",
            "/v1/applications/nobody",
            &[],
            b"",
            404,
            "application-unknown",
        ),
        (
            "DELETE",
            "/v1/functions/resize:1",
            &[],
            b"",
            422,
            "reference-qualified",
        ),
        (
            "DELETE",
            "/v1/functions/resize/aliases/live",
            &[],
            b"",
            409,
            "alias-live",
        ),
        (
            "DELETE",
            "/v1/functions/resize/aliases/blue",
            &[],
            b"",
            404,
            "version-unknown",
        ),
        (
            "PUT",
            "/v1/functions/resize/aliases/blue",
            &json_type,
            b"{\"version\":0}",
            422,
            "document-invalid",
        ),
        (
            "PUT",
            "/v1/functions/resize/aliases/blue",
            &json_type,
            b"{\"version\":9}",
            404,
            "version-unknown",
        ),
        (
            "POST",
            "/v1/functions/resize/rollback",
            &json_type,
            b"{}",
            409,
            "version-none-earlier",
        ),
        (
            "POST",
            "/v1/functions/resize/rollback",
            &json_type,
            b"{\"too\":1}",
            422,
            "document-invalid",
        ),
        (
            "POST",
            "/v1/functions/resize/rollback",
            &[],
            b"{}",
            415,
            "media-type",
        ),
        ("PUT", "/v1/code/short", &[], b"x", 400, "name-invalid"),
        ("PUT", &put, &[], b"present", 422, "code-digest"),
        ("PUT", &put, &[], &large, 413, "code-too-large"),
        ("POST", deployments, &json_type, b"{", 400, "document-invalid"),
        ("POST", deployments, &json_type, b"{}", 422, "document-invalid"),
        (
            "POST",
            deployments,
            &json_type,
            deep.as_bytes(),
            400,
            "document-invalid",
        ),
        ("POST", deployments, &json_type, &large, 413, "document-too-large"),
        (
            "POST",
            deployments,
            &json_type,
            refused.as_bytes(),
            422,
            "code-refused",
        ),
        (
            "POST",
            deployments,
            &json_type,
            typo.as_bytes(),
            422,
            "manifest-invalid",
        ),
        (
            "POST",
            deployments,
            &json_type,
            grants.as_bytes(),
            422,
            "grants-unavailable",
        ),
        (
            "POST",
            "/v1/applications/blog/deployments",
            &json_type,
            good.as_bytes(),
            422,
            "application-mismatch",
        ),
        (
            "POST",
            "/v1/applications/shop/deployments?plan=perhaps",
            &json_type,
            good.as_bytes(),
            400,
            "query-invalid",
        ),
    ] {
        let found = node.fails(method, path, headers, body);
        assert_eq!(
            (found.0, found.1.as_str()),
            (status, code),
            "{method} {path} {}",
            String::from_utf8_lossy(&body[..body.len().min(80)])
        );
    }
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .into();
    let refused = agent.delete(node.url("/v1/node")).call().unwrap();
    assert_eq!(refused.headers()["allow"], "GET,HEAD");
    assert_eq!(
        node.get::<wire::Functions>("/v1/functions").functions.len(),
        1,
        "nothing of this changed anything"
    );
}

#[test]
fn what_is_wrong_is_said_in_the_platforms_words() {
    let node = Node::start();
    let json_type = [("content-type", "application/json")];
    let deployments = "/v1/applications/shop/deployments";
    for (method, path, body, detail) in [
        (
            "GET",
            "/v1/functions/%ff",
            "",
            "the `function` that the path names is not UTF-8, once its escapes are read",
        ),
        (
            "GET",
            "/v1/calls?limit=many",
            "",
            "the query `limit=many` is not one that this takes: limit: invalid digit found in string",
        ),
        (
            "GET",
            "/v1/audit?folow=true",
            "",
            "the query `folow=true` is not one that this takes: folow: unknown field `folow`, expected `follow` or `tail`",
        ),
        (
            "POST",
            deployments,
            "{",
            "the body is not JSON: EOF while parsing an object at line 1 column 1",
        ),
        (
            "POST",
            deployments,
            "{}",
            "the body is JSON, but not the document that this wants: missing field `manifest` at line 1 column 2",
        ),
    ] {
        let headers: &[_] = if body.is_empty() { &[] } else { &json_type };
        let (_, answer) = node.call(method, path, headers, body.as_bytes());
        let problem: Problem = serde_json::from_slice(&answer).unwrap();
        assert_eq!(problem.detail, detail);
        assert!(!problem.hint.is_empty(), "{detail}");
    }
}

#[test]
fn large_code_is_streamed_and_broken_uploads_leave_nothing() {
    let node = Node::start();
    let large: Vec<u8> = (0..2 << 20).map(|i: u32| (i % 251) as u8).collect();
    let digest = digest(&large);
    let half = format!(
        "PUT /v1/code/{digest} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        large.len()
    );
    let mut stream = TcpStream::connect(node.address).unwrap();
    stream.write_all(half.as_bytes()).unwrap();
    stream.write_all(&large[..large.len() / 2]).unwrap();
    drop(stream);
    // An upload in chunks, whose length nobody says.
    let mut stream = TcpStream::connect(node.address).unwrap();
    write!(
        stream,
        "PUT /v1/code/{digest} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .unwrap();
    for chunk in large.chunks(100_000) {
        write!(stream, "{:x}\r\n", chunk.len()).unwrap();
        stream.write_all(chunk).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), "HTTP/1.1 201 Created");
    let more = format!(
        "PUT /v1/code/{digest} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n200001\r\n"
    );
    let mut stream = TcpStream::connect(node.address).unwrap();
    stream.write_all(more.as_bytes()).unwrap();
    stream.write_all(&vec![0; (2 << 20) + 1]).unwrap();
    stream.write_all(b"\r\n0\r\n\r\n").unwrap();
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).unwrap();
    assert_eq!(answer.trim_end(), "HTTP/1.1 413 Payload Too Large");

    // The node notices in its own time that the first upload broke off.
    let files = || fs::read_dir(node.folder.path().join("code")).unwrap().count();
    let deadline = Instant::now() + Duration::from_secs(60);
    while files() > 1 {
        assert!(Instant::now() < deadline, "a broken upload left something behind");
        std::thread::yield_now();
    }
}

#[test]
fn health_documents_and_metrics() {
    let node = Node::start();
    assert_eq!(node.get::<wire::Health>("/healthz").status, "ok");
    assert_eq!(node.get::<wire::Health>("/readyz").status, "ready");
    node.ready.store(false, Ordering::Release);
    assert_eq!(
        node.fails("GET", "/readyz", &[], b""),
        (503, "not-ready".to_owned())
    );
    assert_eq!(node.get::<Value>("/openapi.json"), admin::openapi());
    assert_eq!(&node.get::<Value>("/manifest.schema.json"), manifest::schema());
    let about: wire::Node = node.get("/v1/node");
    assert_eq!(
        (about.version.as_str(), about.listen.as_str()),
        ("1.2.3", "127.0.0.1:8080")
    );
    assert_eq!(
        (about.engines, about.started.as_str()),
        (vec!["wasmtime".to_owned()], "1970-01-01T00:00:00.000Z")
    );
    let (status, page) = node.call("GET", "/metrics", &[], b"");
    assert_eq!(status, 200);
    assert!(String::from_utf8(page).unwrap().contains("# TYPE "));
}

#[test]
fn a_token_opens() {
    let node = Node::with("127.0.0.1:0", Some("secret"));
    for headers in [
        &[][..],
        &[("Authorization", "Bearer wrong")],
        &[("Authorization", "Basic secret")],
    ] {
        assert_eq!(
            node.fails("GET", "/v1/functions", headers, b""),
            (401, "unauthorized".to_owned())
        );
        assert_eq!(node.fails("GET", "/metrics", headers, b"").0, 401);
        assert_eq!(
            node.fails("GET", "/nowhere", headers, b"").0,
            401,
            "strangers do not learn what there is"
        );
    }
    assert_eq!(
        node.call("GET", "/v1/functions", &[("Authorization", "Bearer secret")], b"")
            .0,
        200
    );
    assert_eq!(node.call("GET", "/healthz", &[], b"").0, 200);
    let request = "GET /v1/functions HTTP/1.1\r\nHost: node.example\r\nAuthorization: Bearer secret\r\n\r\n";
    assert_eq!(
        node.raw(request),
        "HTTP/1.1 200 OK",
        "with a token, any name of the node is good"
    );
}

#[test]
fn without_a_token_only_this_machine_is_answered() {
    let node = Node::start();
    let status = |headers: &str| node.raw(&format!("GET /v1/functions HTTP/1.1\r\n{headers}\r\n\r\n"));
    for good in [
        "Host: localhost",
        "Host: 127.0.0.1:9080",
        "Host: [::1]:9080",
        "Host: localhost\r\nOrigin: http://localhost",
    ] {
        assert_eq!(status(good), "HTTP/1.1 200 OK", "{good}");
    }
    for bad in [
        "Host: evil.example",
        "Host: 127.0.0.1.evil.example",
        "Host:",
        "X: y",
        "Host: localhost\r\nOrigin: http://evil.example",
        "Host: localhost\r\nOrigin: http://localhost:3000",
        "Host: localhost\r\nOrigin: null",
    ] {
        assert_eq!(status(bad), "HTTP/1.1 403 Forbidden", "{bad}");
    }
}

#[test]
fn beyond_loopback_there_is_no_api_without_a_token() {
    let node = Node::with("0.0.0.0:0", None);
    let error = node.stopped.recv().unwrap().unwrap_err();
    assert!(error.to_string().contains("without a token"), "{error}");
}

#[test]
fn logs_are_read_and_followed_until_the_node_ends() {
    let mut node = Node::start();
    node.deploy(manifest(), &[("resize", &program(1))]);
    let log = node
        .logs
        .function(&"shop.resize".parse().unwrap(), wire_version(1));
    let other = node
        .logs
        .function(&"shop.resize".parse().unwrap(), wire_version(2));
    for i in 0..5 {
        log.lines(RequestId(i), Stream::Stderr)
            .write(format!("line {i}\n").as_bytes());
    }
    other.platform(None, "another version");
    let read = |path: &str| {
        let (status, body) = node.call("GET", path, &[], b"");
        assert_eq!(status, 200);
        let lines = String::from_utf8(body).unwrap();
        lines
            .lines()
            .map(|line| serde_json::from_str::<wire::Record>(line).unwrap().message)
            .collect::<Vec<_>>()
    };
    assert_eq!(read("/v1/functions/resize/logs").len(), 6);
    assert_eq!(
        read("/v1/functions/resize/logs?tail=2"),
        ["line 4", "another version"]
    );
    assert_eq!(
        read(&format!("/v1/functions/resize/logs?request={}", RequestId(3))),
        ["line 3"]
    );
    assert_eq!(read("/v1/functions/resize:2/logs"), ["another version"]);
    assert_eq!(read("/v1/functions/resize:live/logs?tail=1"), ["line 4"]);

    let agent: ureq::Agent = ureq::Agent::config_builder().proxy(None).build().into();
    let response = agent
        .get(node.url("/v1/functions/resize/logs?follow=true&tail=1"))
        .call()
        .unwrap();
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let mut lines = BufReader::new(response.into_body().into_reader()).lines();
    let mut next = || {
        serde_json::from_str::<wire::Record>(&lines.next().unwrap().unwrap())
            .unwrap()
            .message
    };
    assert_eq!(next(), "another version");
    for i in 0..3 {
        log.lines(RequestId(9), Stream::Stdout)
            .write(format!("new {i}\n").as_bytes());
        assert_eq!(next(), format!("new {i}"));
    }
    drop(node.stop.take());
    assert!(lines.next().is_none(), "the log ends, and not in the middle");
    node.stopped
        .recv_timeout(Duration::from_secs(60))
        .unwrap()
        .unwrap();
}

fn wire_version(number: u32) -> contract::VersionNumber {
    contract::VersionNumber(number.try_into().unwrap())
}

#[test]
fn a_connection_that_does_nothing_does_not_keep_the_node() {
    let mut node = Node::start();
    let mut idle = TcpStream::connect(node.address).unwrap();
    idle.write_all(b"PUT /v1/code/").unwrap();
    let mut kept = TcpStream::connect(node.address).unwrap();
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    kept.read_exact(&mut [0; 12]).unwrap();
    drop(node.stop.take());
    node.stopped
        .recv_timeout(Duration::from_secs(60))
        .unwrap()
        .unwrap();
}

fn succeeded(headers: &[(&str, &str)], body: &'static [u8]) -> Outcome {
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()));
    Outcome::Succeeded(calls::Response {
        status: 201,
        headers: headers.collect(),
        body: body.into(),
        omitted: None,
    })
}

fn failed() -> Outcome {
    Outcome::Failed {
        reason: "exit code 3".to_owned(),
        retry: true,
    }
}

const START: Timestamp = Timestamp(1_790_000_000_000);

#[test]
fn a_call_is_seen_from_its_acceptance_to_its_result() {
    let node = Node::start();
    let id = node.accept(7, START);
    let path = format!("/v1/calls/{id}");
    let call: wire::Call = node.get(&path);
    assert_eq!((call.id, call.state), (RequestId(7), wire::CallState::Waiting));
    assert_eq!(call.function.to_string(), "shop.resize");
    assert_eq!((call.attempts, call.due.as_ref()), (0, Some(&call.accepted)));
    assert_eq!(call.accepted, "2026-09-21T14:13:20.000Z");
    let result = format!("{path}/result");
    assert_eq!(
        node.fails("GET", &result, &[], b""),
        (409, "call-pending".to_owned())
    );

    let headers = [
        ("Content-Type", "text/html"),
        ("X-Part", "a"),
        ("X-Part", "b"),
        ("Content-Length", "7"),
        ("Connection", "close"),
        ("Content-Security-Policy", "default-src *"),
        ("X-Function-Status", "999"),
        ("not a name", "x"),
    ];
    assert_eq!(
        node.run(&succeeded(&headers, b"<p>\x00\xff"), START),
        [Verdict::Succeeded]
    );
    let call: wire::Call = node.get(&path);
    assert_eq!(
        (call.state, call.status, call.attempts),
        (wire::CallState::Succeeded, Some(201), 1)
    );
    assert_eq!((call.ended.as_ref(), call.due), (Some(&call.accepted), None));
    let mut answer = node.exchange("GET", &result, &[], b"");
    let values = |name: &str| {
        let values = answer.headers().get_all(name).iter();
        values
            .map(|value| value.to_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(values("x-function-status"), ["201"]);
    assert_eq!(values("content-type"), ["text/html"]);
    assert_eq!(values("x-part"), ["a", "b"]);
    assert_eq!(values("content-length"), ["5"]);
    assert_eq!(values("connection"), [""; 0]);
    assert_eq!(
        (
            values("content-security-policy"),
            values("x-content-type-options")
        ),
        (vec!["sandbox".to_owned()], vec!["nosniff".to_owned()]),
        "what a function wrote is no page of the control API"
    );
    assert_eq!(answer.body_mut().read_to_vec().unwrap(), b"<p>\x00\xff");

    node.accept(8, START);
    node.run(&succeeded(&[], &[0; 1001]), START);
    let result = format!("/v1/calls/{:032x}/result", 8);
    assert_eq!(
        node.fails("GET", &result, &[], b""),
        (410, "call-result-omitted".to_owned())
    );
}

#[test]
fn a_dead_letter_is_looked_at_retried_and_dropped() {
    let node = Node::start();
    let path = format!("/v1/calls/{}", node.accept(7, START));
    assert_eq!(
        node.fails("POST", &format!("{path}/retry"), &[], b""),
        (409, "call-not-dead".to_owned())
    );
    node.run(&failed(), START);
    let call: wire::Call = node.get(&path);
    assert_eq!(
        (call.state, call.cause, call.reason.as_deref()),
        (
            wire::CallState::Dead,
            Some(wire::CallCause::Attempts),
            Some("exit code 3")
        )
    );
    let (status, body) = node.call("GET", &format!("{path}/result"), &[], b"");
    let problem: Problem = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &*problem.code), (410, "call-dead"));
    assert!(problem.detail.contains("exit code 3"), "{}", problem.detail);

    let (status, body) = node.call("POST", &format!("{path}/retry"), &[], b"");
    let call: wire::Call = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, call.state), (200, wire::CallState::Waiting));
    assert_eq!(node.get::<wire::Call>(&path), call);
    let now = Timestamp(
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_millis() as u64,
    );
    assert_eq!(
        node.run(&failed(), now).len(),
        1,
        "it is due at once, by the wall clock"
    );
    assert_eq!(node.get::<wire::Call>(&path).attempts, 2);
    assert_eq!(node.call("DELETE", &path, &[], b""), (204, Vec::new()));
    for (method, path) in [
        ("GET", path.clone()),
        ("GET", format!("{path}/result")),
        ("POST", format!("{path}/retry")),
        ("DELETE", path),
    ] {
        assert_eq!(
            node.fails(method, &path, &[], b""),
            (404, "call-unknown".to_owned()),
            "{method} {path}"
        );
    }
}

#[test]
fn a_call_shows_whom_its_outcome_is_told_and_how_far_that_is() {
    const URL: &str = "http://example.org/done";
    let node = Node::start();
    let path = format!("/v1/calls/{}", node.accept_for(7, Some(URL), START));
    let wanted: wire::Call = node.get(&path);
    assert_eq!(
        wanted.callback,
        Some(wire::Callback {
            id: None,
            state: None
        })
    );
    node.run(&succeeded(&[], b"x"), START);
    let told: wire::Call = node.get(&path);
    assert_eq!(told.callback_url.as_deref(), Some(URL));
    let callback = told.callback.unwrap();
    assert_eq!(callback.state, Some(wire::CallState::Waiting));
    let id = callback.id.unwrap();
    let delivery: wire::Call = node.get(&format!("/v1/calls/{id}"));
    assert_eq!(
        (
            delivery.callback_of,
            delivery.callback_url.as_deref(),
            delivery.callback
        ),
        (Some(RequestId(7)), Some(URL), None)
    );
    let page: wire::Calls = node.get("/v1/calls");
    assert_eq!(page.calls.len(), 2);
    assert!(
        page.calls.iter().all(|call| call.callback_url.is_none()),
        "a list reads no log"
    );
}

#[test]
fn calls_are_listed_by_state_and_page_by_page() {
    let node = Node::start();
    node.accept(1, START);
    node.run(&succeeded(&[], b"x"), START);
    node.accept(2, START);
    node.run(&failed(), START);
    for number in 3..=5 {
        node.accept(number, START);
    }
    let list = |query: &str| -> (Vec<u128>, Option<u128>) {
        let page: wire::Calls = node.get(&format!("/v1/calls{query}"));
        let ids = page.calls.iter().map(|call| call.id.0).collect();
        (ids, page.next.map(|id| id.0))
    };
    assert_eq!(list(""), (vec![1, 2, 3, 4, 5], None));
    assert_eq!(list("?state=all"), list(""));
    assert_eq!(list("?state=succeeded"), (vec![1], None));
    assert_eq!(list("?state=dead"), (vec![2], None));
    assert_eq!(list("?state=pending&limit=2"), (vec![3, 4], Some(4)));
    assert_eq!(
        list(&format!("?state=pending&limit=1&after={:032x}", 4)),
        (vec![5], None)
    );
    assert_eq!(list("?limit=0"), (vec![1], Some(1)), "one at least");
    for (path, code) in [
        ("/v1/calls?state=lost", "query-invalid"),
        ("/v1/calls?limit=many", "query-invalid"),
        ("/v1/calls?after=7", "query-invalid"),
        ("/v1/calls/7", "name-invalid"),
    ] {
        assert_eq!(
            node.fails("GET", path, &[], b""),
            (400, code.to_owned()),
            "{path}"
        );
    }
}

#[test]
fn a_secret_is_set_and_used_and_never_told() {
    let node = Node::start();
    let hidden = "hidden-6d1f";
    let set = |path: &str, value: &str| {
        let (status, body) = node.call("PUT", path, &[], value.as_bytes());
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        assert!(!String::from_utf8_lossy(&body).contains(value));
        serde_json::from_slice::<wire::Secret>(&body).unwrap()
    };
    let mut manifest = manifest();
    manifest["function"]["resize"]["grants"] = json!({ "http": [{
        "host": "api.example.org",
        "headers": { "Authorization": "Bearer {secret:KEY}", "x-other": "{secret:OTHER}", "x-plain": "yes" },
    }] });
    let code = program(1);
    let request = json!({ "manifest": manifest, "code": { "resize": node.upload(&code) } });
    let deployments = "/v1/applications/shop/deployments";
    let own = set("/v1/secrets/KEY?application=shop", hidden);
    assert_eq!(own.application.unwrap().to_string(), "shop");
    let plan: wire::Deployment = node.send("POST", &format!("{deployments}?plan=true"), &request);
    assert_eq!(plan.warnings.len(), 1, "{:?}", plan.warnings);
    assert!(
        plan.warnings[0].contains("`OTHER`") && plan.warnings[0].contains("`resize`"),
        "{:?}",
        plan.warnings
    );
    let deployed: wire::Deployment = node.send("POST", deployments, &request);
    assert_eq!(deployed.warnings, plan.warnings);
    set("/v1/secrets/OTHER", "other");
    set("/v1/secrets/KEY", "of the node");
    let again: wire::Deployment = node.send("POST", deployments, &request);
    assert_eq!(again.warnings, [""; 0]);
    assert_eq!(again.changes[0].action, wire::Action::Unchanged);

    let settings = node
        .get::<wire::FunctionDetail>("/v1/functions/shop.resize")
        .function
        .settings;
    assert_eq!(settings.http, ["api.example.org"]);
    assert_eq!(
        settings.headers["api.example.org"]["authorization"],
        "Bearer {secret:KEY}"
    );

    let listed: wire::Secrets = node.get("/v1/secrets");
    let listed: Vec<_> = listed
        .secrets
        .iter()
        .map(|secret| {
            let users: Vec<_> = secret.functions.iter().map(ToString::to_string).collect();
            let application = secret.application.as_ref().map(ToString::to_string);
            (
                application.unwrap_or_default(),
                secret.name.to_string(),
                users.join(" "),
            )
        })
        .collect();
    let row = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    assert_eq!(
        listed,
        [
            row("", "KEY", ""),
            row("", "OTHER", "shop.resize"),
            row("shop", "KEY", "shop.resize")
        ],
        "its own goes before the node's"
    );

    let path = "/v1/secrets/KEY?application=shop";
    let (status, body) = node.call("DELETE", path, &[], b"");
    let problem: Problem = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &problem.code[..]), (409, "secret-in-use"));
    assert!(problem.detail.contains("shop.resize"), "{}", problem.detail);
    assert_eq!(
        node.call("DELETE", &format!("{path}&force=true"), &[], b"").0,
        204
    );
    assert_eq!(
        node.fails("DELETE", path, &[], b""),
        (404, "secret-unknown".to_owned())
    );
    let listed: wire::Secrets = node.get("/v1/secrets");
    assert_eq!(
        listed.secrets[0].functions[0].to_string(),
        "shop.resize",
        "it means the node's now"
    );
    // Whoever uses it no longer holds it.
    assert_eq!(node.call("DELETE", "/v1/functions/shop.resize", &[], b"").0, 204);
    assert_eq!(node.call("DELETE", "/v1/secrets/KEY", &[], b"").0, 204);
}

#[test]
fn a_bad_secret_is_refused_without_a_word_of_it() {
    let node = Node::start();
    let long = "x".repeat(8193);
    for (path, value, status, code) in [
        ("/v1/secrets/KEY", "hidden\n", 422, "secret-invalid"),
        ("/v1/secrets/KEY", " hidden", 422, "secret-invalid"),
        ("/v1/secrets/KEY", "", 422, "secret-invalid"),
        ("/v1/secrets/KEY", &long, 422, "secret-invalid"),
        ("/v1/secrets/a.b", "hidden", 400, "name-invalid"),
        ("/v1/secrets/..%2Fx", "hidden", 400, "name-invalid"),
        ("/v1/secrets/KEY?application=A", "hidden", 400, "name-invalid"),
        ("/v1/secrets/KEY?app=a", "hidden", 400, "query-invalid"),
    ] {
        let (found, body) = node.call("PUT", path, &[], value.as_bytes());
        let body = String::from_utf8(body).unwrap();
        assert_eq!(found, status, "{path}: {body}");
        assert!(body.contains(code) && !body.contains("hidden"), "{body}");
    }
    assert_eq!(node.get::<wire::Secrets>("/v1/secrets").secrets, []);
}
