//! The command as a whole, against a server that plays a node and notes what it was asked.

use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
};

#[derive(Clone, Debug)]
struct Asked {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Asked {
    fn line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

enum Answer {
    Json(u16, Value),
    Bytes(u16, &'static str, Vec<u8>),
    /// The headers, each with its line's end.
    Headed(u16, &'static str, Vec<u8>),
    Problem(u16, Value),
    Silence,
}

struct FakeNode {
    address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Rings for each request.
    bell: mpsc::Receiver<()>,
}

impl FakeNode {
    fn start(answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (ring, bell) = mpsc::channel();
        let (log, listen, answer) = (Arc::clone(&asked), address.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, ring, listen, answer) = (
                    Arc::clone(&log),
                    ring.clone(),
                    listen.clone(),
                    Arc::clone(&answer),
                );
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let asked = read_request(&stream);
                    let reply = match asked.target.as_str() {
                        "/v1/node" => Answer::Json(
                            200,
                            json!({
                                "version": "0.1.0",
                                "listen": listen,
                                "admin": listen,
                                "cores": [0],
                                "engines": ["wasmtime"],
                                "code_limit": "256MiB",
                                "started": "2026-11-21T08:00:00Z",
                            }),
                        ),
                        target => answer(&asked.method, target),
                    };
                    log.lock().unwrap().push(asked);
                    ring.send(()).ok();
                    write_answer(&mut stream, reply);
                });
            }
        });
        Self { address, asked, bell }
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    fn lines(&self) -> Vec<String> {
        self.asked().iter().map(Asked::line).collect()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = millpond(arguments);
        command.env("MILLPOND_ADMIN", format!("http://{}", self.address));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

fn read_request(stream: &TcpStream) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let mut asked = Asked {
        method,
        target,
        headers,
        body: Vec::new(),
    };
    let length = asked
        .header("content-length")
        .map_or(0, |length| length.parse().unwrap());
    assert!(asked.header("transfer-encoding").is_none(), "lengths are known");
    asked.body.resize(length, 0);
    reader.read_exact(&mut asked.body).unwrap();
    asked
}

fn write_answer(stream: &mut TcpStream, answer: Answer) {
    let (status, media, extra, body) = match answer {
        Answer::Json(status, value) => (status, "application/json", "", value.to_string().into_bytes()),
        Answer::Bytes(status, media, body) => (status, media, "", body),
        Answer::Headed(status, headers, body) => (status, "text/plain", headers, body),
        Answer::Problem(status, value) => (
            status,
            "application/problem+json",
            "",
            value.to_string().into_bytes(),
        ),
        Answer::Silence => {
            // Until the client has gone.
            stream.read_to_end(&mut Vec::new()).ok();
            return;
        }
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {media}\r\n{extra}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(&body))
        .ok();
}

fn millpond(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("MILLPOND_ADMIN")
        .env_remove("MILLPOND_TOKEN")
        .env_remove("COLUMNS");
    command
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn problem(status: u16, code: &str) -> Answer {
    let id = format!("{:032x}", 42);
    Answer::Problem(
        status,
        json!({ "status": status, "code": code, "detail": "what happened", "hint": "what to try", "request_id": id }),
    )
}

const MANIFEST: &str = r#"
[application]
name = "shop"
[function.resize]
source = "build/resize.wasm"
build = { command = "mkdir -p build && printf '\\0asm' > build/resize.wasm && echo built" }
[function.thumb]
source = "thumb.wasm"
[[trigger.http]]
function = "resize"
path = "/resize/{size}"
method = "POST"
"#;

fn application() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("millpond.toml"), MANIFEST).unwrap();
    fs::create_dir(folder.path().join("build")).unwrap();
    fs::write(folder.path().join("build/resize.wasm"), "resize").unwrap();
    fs::write(folder.path().join("thumb.wasm"), "thumb").unwrap();
    folder
}

fn digest(content: &str) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn deploying_node() -> FakeNode {
    FakeNode::start(|method, target| match (method, target) {
        (
            "POST",
            "/v1/applications/shop/deployments?plan=true" | "/v1/applications/shop/deployments?plan=false",
        ) => Answer::Json(
            200,
            json!({
                "application": "shop",
                "revision": 3,
                "changes": [
                    { "function": "resize", "action": "update", "from": 1, "to": 2, "differences": [{ "key": "code", "from": "a", "to": "b" }] },
                    { "function": "thumb", "action": "unchanged", "from": 1, "to": 1, "differences": [] },
                ],
                "routes": [{ "function": "resize", "path": "/resize/{size}", "method": ["POST"] }],
                "missing_code": [digest("resize")],
            }),
        ),
        ("PUT", _) => Answer::Json(201, json!({})),
        _ => problem(404, "not-found"),
    })
}

#[test]
fn help_texts() {
    let mut text = out(&millpond(&["--help"]).output().unwrap());
    for verb in [
        "new",
        "build",
        "up",
        "serve",
        "deploy",
        "invoke",
        "calls",
        "secret",
        "logs",
        "top",
        "list",
        "describe",
        "delete",
        "rollback",
        "doctor",
        "explain",
        "completions",
        "man",
    ] {
        text.push_str(&format!(
            "\n=== {verb}\n{}",
            out(&millpond(&[verb, "-h"]).output().unwrap())
        ));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn wrong_usage_is_2() {
    for arguments in [
        &[][..],
        &["fly"],
        &["invoke"],
        &["invoke", "Not-A-Name"],
        &["list", "--admin", "ftp://node:9080"],
        &["list", "--timeout", "soon"],
        &["rollback", "f", "--to", "0"],
        &["logs", "f", "--request", "12"],
        &["invoke", "f", "--async", "--output", "file"],
        &["calls"],
        &["calls", "show", "12"],
        &["calls", "list", "--state", "lost"],
        &["calls", "list", "--limit", "0"],
        &["deploy", "no-such-folder"],
        &["deploy", ".", "--file", "millpond.toml"],
        &["-o", "xml", "list"],
    ] {
        let output = millpond(arguments).output().unwrap();
        assert_eq!(code(&output), 2, "{arguments:?}: {}", err(&output));
        assert!(out(&output).is_empty(), "{arguments:?}");
    }
}

#[test]
fn nobody_there_is_1_and_says_how_to_start_a_node() {
    // A port that is a connection's own: nobody listens on it, and nobody else is given it meanwhile.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let address = taken.local_addr().unwrap();
    let output = millpond(&["list", "--admin", &format!("http://{address}")])
        .output()
        .unwrap();
    assert_eq!(code(&output), 1);
    assert!(
        err(&output).contains(&format!(
            "GET http://{address}/v1/functions: nobody listens on {address}"
        )),
        "{}",
        err(&output)
    );
    assert!(err(&output).contains("millpond serve"));
}

#[test]
fn deploy_sends_only_the_code_that_is_missing() {
    let (node, folder) = (deploying_node(), application());
    let output = node.run(&["deploy", folder.path().to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let lines = node.lines();
    let resize = digest("resize");
    assert_eq!(
        lines,
        [
            "POST /v1/applications/shop/deployments?plan=true".to_owned(),
            format!("PUT /v1/code/{resize}"),
            "POST /v1/applications/shop/deployments?plan=false".to_owned(),
            "GET /v1/node".to_owned(),
        ]
    );
    let asked = node.asked();
    assert_eq!(asked[1].body, b"resize");
    assert_eq!(
        asked[2].json()["code"],
        json!({ "resize": resize, "thumb": digest("thumb") })
    );
    assert_eq!(asked[2].json()["manifest"]["application"]["name"], "shop");
    assert_eq!(asked[0].body, asked[2].body);
    insta::assert_snapshot!(out(&output).replace(&node.address, "NODE"));
    assert_eq!(err(&output), "", "no progress bars when there is no terminal");
}

#[test]
fn deploy_answers_machines() {
    let (node, folder) = (deploying_node(), application());
    let output = node.run(&[
        "-o",
        "json",
        "deploy",
        "-f",
        folder.path().join("millpond.toml").to_str().unwrap(),
    ]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["revision"], 3);
    assert_eq!(
        answer["urls"]["shop.resize"],
        json!([
            format!("http://{}/function/shop.resize", node.address),
            format!("http://{}/resize/{{size}}", node.address)
        ])
    );
}

#[test]
fn a_plan_changes_nothing() {
    let (node, folder) = (deploying_node(), application());
    let output = node
        .command(&["deploy", "--plan"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(node.lines(), ["POST /v1/applications/shop/deployments?plan=true"]);
    assert!(
        out(&output).contains("~ resize  version 1 -> 2"),
        "{}",
        out(&output)
    );
}

#[test]
fn deploy_builds_first_when_told() {
    let (node, folder) = (deploying_node(), application());
    fs::remove_dir_all(folder.path().join("build")).unwrap();
    let place = folder.path().to_str().unwrap();
    let output = node.run(&["deploy", place]);
    assert_eq!(code(&output), 2);
    assert!(
        err(&output).contains("cannot read the code of `resize`") && err(&output).contains("--build"),
        "{}",
        err(&output)
    );
    let output = node.run(&["deploy", place, "--build", "-o", "json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(!err(&output).contains("\nbuilt\n"), "{}", err(&output));
    serde_json::from_slice::<Value>(&output.stdout).unwrap();

    let output = node.run(&["deploy", place, "--build", "--verbose", "-o", "json"]);
    assert!(err(&output).contains("\nbuilt\n"), "{}", err(&output));
    serde_json::from_slice::<Value>(&output.stdout).expect("what a build prints is no part of the answer");

    fs::write(
        folder.path().join("millpond.toml"),
        MANIFEST.replace("echo built", "false"),
    )
    .unwrap();
    let output = node.run(&["deploy", place, "--build"]);
    assert_eq!(code(&output), 1);
    assert!(
        err(&output).contains("failed: exit status: 1"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_bad_manifest_is_2_and_goes_nowhere() {
    let (node, folder) = (deploying_node(), application());
    let path = folder.path().join("millpond.toml");
    fs::write(
        &path,
        MANIFEST.replace(
            "source = \"thumb.wasm\"",
            "source = \"thumb.wasm\"\nmemroy = \"1MiB\"",
        ),
    )
    .unwrap();
    let output = node.run(&["deploy", folder.path().to_str().unwrap()]);
    assert_eq!(code(&output), 2);
    assert!(node.lines().is_empty());
    let said = err(&output);
    assert!(
        said.contains("did you mean `memory`?") && said.contains("millpond.toml:9:1"),
        "{said}"
    );
    assert!(
        !said.contains('\u{1b}'),
        "no colours when there is no terminal: {said}"
    );

    let output = node.run(&["deploy", folder.path().to_str().unwrap(), "-o", "json"]);
    let said: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(said["error"]["faults"][0]["code"], "unknown-key");
}

#[test]
fn a_problem_is_told_with_its_hint() {
    let folder = application();
    let node = FakeNode::start(|_, _| problem(422, "grants-unavailable"));
    let output = node.run(&["deploy", folder.path().to_str().unwrap()]);
    assert_eq!(code(&output), 1);
    insta::assert_snapshot!(err(&output).replace(&node.address, "NODE"));
    let output = node.run(&["deploy", folder.path().to_str().unwrap(), "-o", "json"]);
    let said: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(
        (&said["error"]["code"], &said["error"]["status"]),
        (&json!("grants-unavailable"), &json!(422))
    );
}

fn function_node() -> FakeNode {
    FakeNode::start(|_, target| match target {
        "/function/bytes" => Answer::Bytes(200, "application/octet-stream", vec![0, 255, b'\n', 7]),
        "/function/shop.echo:3/a?b=c" => Answer::Headed(
            200,
            "Server-Timing: queue;dur=0.004, run;dur=1.500\r\n",
            b"hello".to_vec(),
        ),
        "/function/own-error" => Answer::Bytes(503, "text/plain", b"busy".to_vec()),
        "/function/moved" => Answer::Bytes(302, "text/plain", b"there".to_vec()),
        "/function/fails" => problem(502, "function-exit"),
        "/function/slow" => problem(504, "limit-timeout"),
        _ => Answer::Silence,
    })
}

#[test]
fn invoke_writes_the_body_as_it_is() {
    let node = function_node();
    let output = node.run(&["invoke", "bytes"]);
    assert_eq!(
        (code(&output), output.stdout.as_slice()),
        (0, &[0, 255, b'\n', 7][..])
    );
    assert_eq!(node.lines(), ["GET /v1/node", "GET /function/bytes"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answer");
    let output = node.run(&["invoke", "bytes", "--output", file.to_str().unwrap()]);
    assert_eq!((code(&output), output.stdout.len()), (0, 0));
    assert_eq!(fs::read(file).unwrap(), [0, 255, b'\n', 7]);
    let output = node.run(&["invoke", "moved"]);
    assert_eq!(
        (code(&output), out(&output)),
        (0, "there".to_owned()),
        "a function's redirection is its answer"
    );
}

#[test]
fn invoke_sends_what_it_is_given() {
    let node = function_node();
    let reference = "shop.echo:3";
    let output = node.run(&[
        "invoke", reference, "--path", "/a?b=c", "--data", "text", "-H", "X-A: b", "--timing",
    ]);
    assert_eq!((code(&output), out(&output)), (0, "hello".to_owned()));
    assert!(
        err(&output).starts_with("queue          0.004 ms\nrun            1.500 ms\ntotal "),
        "{}",
        err(&output)
    );
    let asked = node.asked().pop().unwrap();
    assert_eq!(
        (asked.line().as_str(), asked.body.as_slice()),
        ("POST /function/shop.echo:3/a?b=c", &b"text"[..])
    );
    assert_eq!(asked.header("x-a"), Some("b"));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data");
    fs::write(&file, [1, 2, 3]).unwrap();
    node.run(&[
        "invoke",
        reference,
        "--path",
        "/a?b=c",
        "--data",
        &format!("@{}", file.display()),
        "--method",
        "PURGE",
    ]);
    let asked = node.asked().pop().unwrap();
    assert_eq!(
        (asked.method.as_str(), asked.body.as_slice()),
        ("PURGE", &[1, 2, 3][..])
    );

    let mut child = node.command(&["invoke", reference, "--path", "/a?b=c", "--data", "-"]);
    let mut child = child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"from a pipe").unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(node.asked().pop().unwrap().body, b"from a pipe");

    let output = node.run(&["invoke", reference, "--path", "/a?b=c", "-o", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&answer["status"], &answer["body"]),
        (&json!(200), &json!("hello"))
    );
    assert_eq!(answer["headers"]["content-type"], json!(["text/plain"]));
}

#[test]
fn invoke_tells_errors_by_exit_codes() {
    let node = function_node();
    let output = node.run(&["invoke", "fails"]);
    assert_eq!((code(&output), out(&output).as_str()), (1, ""));
    for words in ["what happened", "what to try", "function-exit", "0000002a"] {
        assert!(err(&output).contains(words), "{}", err(&output));
    }
    let output = node.run(&["invoke", "own-error"]);
    assert_eq!((code(&output), out(&output).as_str()), (1, "busy"));
    assert!(err(&output).contains("status 503"), "{}", err(&output));
    assert_eq!(code(&node.run(&["invoke", "slow"])), 124);
    let output = node.run(&["invoke", "silent", "--timeout", "50ms"]);
    assert_eq!(code(&output), 124);
    assert!(err(&output).contains("no answer within 50ms"), "{}", err(&output));
}

#[test]
fn an_interruption_is_130() {
    let node = function_node();
    let mut child = node
        .command(&["invoke", "silent"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The node was asked for its address, then for the function: the command now waits.
    node.bell.recv().unwrap();
    node.bell.recv().unwrap();
    assert!(
        Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_token_is_sent_to_the_control_api_alone() {
    let node = function_node();
    let output = node
        .command(&["invoke", "bytes"])
        .env("MILLPOND_TOKEN", "secret")
        .output()
        .unwrap();
    assert_eq!(code(&output), 0);
    let asked = node.asked();
    assert_eq!(asked[0].header("authorization"), Some("Bearer secret"));
    assert_eq!(asked[1].header("authorization"), None);
}

#[test]
fn logs_are_lines_for_people_and_for_machines() {
    let record = r#"{"time":"2026-11-21T08:00:00Z","function":"shop.resize","version":1,"request_id":"0000000000000000000000000000002a","stream":"stderr","message":"hello"}"#;
    let node = FakeNode::start(move |_, _| {
        Answer::Bytes(
            200,
            "application/x-ndjson",
            format!("{record}\n{record}\n").into_bytes(),
        )
    });
    let output = node.run(&[
        "logs",
        "shop.resize",
        "-f",
        "--tail",
        "5",
        "--request",
        "0000000000000000000000000000002a",
    ]);
    assert_eq!(
        node.lines(),
        ["GET /v1/functions/shop.resize/logs?follow=true&tail=5&request=0000000000000000000000000000002a"]
    );
    assert_eq!(
        out(&output),
        "2026-11-21T08:00:00Z 0000000000000000000000000000002a stderr   hello\n".repeat(2)
    );
    let output = node.run(&["-o", "json", "logs", "resize"]);
    assert_eq!(out(&output), format!("{record}\n{record}\n"));
}

fn function(name: &str, version: u32, memory: &str) -> Value {
    json!({
        "function": name,
        "version": version,
        "created": "2026-11-21T08:00:00.000Z",
        "code": "00".repeat(32),
        "code_size": 7,
        "settings": {
            "engine": "wasmtime", "memory": memory, "timeout": "30s", "cpu_time": "10s", "request_body": "16MiB",
            "response_body": "16MiB", "concurrency": 256, "queue": 4096, "reuse": 1, "arguments": [], "env": {},
            "protocol": "raw",
        },
        "aliases": { "live": version },
        "routes": [],
    })
}

fn control_node() -> FakeNode {
    FakeNode::start(|method, target| match (method, target) {
        ("GET", "/v1/functions") => Answer::Json(
            200,
            json!({ "functions": [function("shop.resize", 12, "64MiB"), function("shop.t", 1, "1GiB")] }),
        ),
        ("GET", "/v1/functions/resize") => Answer::Json(
            200,
            json!({ "function": "shop.resize", "versions": [{ "version": 1 }] }),
        ),
        ("GET", "/v1/applications/shop" | "/v1/applications/both" | "/v1/functions/both") => {
            Answer::Json(200, json!({}))
        }
        ("GET", "/v1/applications/alone") => {
            Answer::Json(200, json!({ "functions": [function("alone.alone", 1, "1MiB")] }))
        }
        ("GET", "/v1/functions/alone") => Answer::Json(200, json!({})),
        ("POST", "/v1/functions/resize/rollback") => {
            Answer::Json(200, json!({ "function": "shop.resize", "from": 3, "to": 1 }))
        }
        ("DELETE", _) => Answer::Bytes(204, "text/plain", Vec::new()),
        _ => problem(404, "unknown-function"),
    })
}

#[test]
fn list_describe_and_rollback() {
    let node = control_node();
    insta::assert_snapshot!(out(&node.run(&["list"])), @r"
    FUNCTION     VERSION  ENGINE    MEMORY  TIMEOUT  DEPLOYED
    shop.resize  12       wasmtime  64MiB   30s      2026-11-21T08:00:00.000Z
    shop.t       1        wasmtime  1GiB    30s      2026-11-21T08:00:00.000Z
    ");
    insta::assert_snapshot!(out(&node.run(&["describe", "resize"])), @r"
    function: shop.resize
    versions:
      -
        version: 1
    ");
    assert_eq!(code(&node.run(&["describe", "nothing"])), 1);
    assert_eq!(
        out(&node.run(&["rollback", "resize", "--to", "1"])),
        "resize: version 3 -> 1\n"
    );
    assert_eq!(node.asked().pop().unwrap().json(), json!({ "to": 1 }));
    node.run(&["rollback", "resize"]);
    assert_eq!(node.asked().pop().unwrap().json(), json!({}));
}

#[test]
fn delete_finds_out_what_is_meant() {
    let node = control_node();
    for (name, deleted) in [
        ("shop", "DELETE /v1/applications/shop"),
        ("resize", "DELETE /v1/functions/resize"),
        ("shop.resize", "DELETE /v1/functions/shop.resize"),
        // Its only function goes with it, and is called as it is.
        ("alone", "DELETE /v1/applications/alone"),
    ] {
        let output = node.run(&["delete", name, "--yes"]);
        assert_eq!(code(&output), 0, "{}", err(&output));
        let lines = node.lines();
        let last = lines.iter().rfind(|line| line.starts_with("DELETE"));
        assert_eq!(last.unwrap(), deleted);
    }
    for (arguments, expected) in [
        (&["delete", "both", "--yes"][..], 2),
        (&["delete", "nothing", "--yes"], 1),
        (&["delete", "shop"], 2),
    ] {
        let before = node
            .lines()
            .iter()
            .filter(|line| line.starts_with("DELETE"))
            .count();
        let output = node.run(arguments);
        assert_eq!(code(&output), expected, "{}", err(&output));
        assert_eq!(
            node.lines()
                .iter()
                .filter(|line| line.starts_with("DELETE"))
                .count(),
            before
        );
    }
}

#[test]
fn a_stranger_is_no_node() {
    let node = FakeNode::start(|_, _| Answer::Bytes(200, "text/html", b"<h1>It works</h1>".to_vec()));
    let output = node.run(&["list"]);
    assert_eq!(code(&output), 1);
    assert!(
        err(&output).contains("is not what a Millpond node says"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let script = format!("{} doctor -o json | true", env!("CARGO_BIN_EXE_millpond"));
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(err(&output), "");
}

#[test]
fn doctor_needs_no_node() {
    let output = millpond(&["doctor", "-o", "json"]).output().unwrap();
    let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = findings.as_array().unwrap();
    let said = |key: &str| {
        findings
            .iter()
            .map(|finding| finding[key].as_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        said("capability"),
        [
            "platform",
            "cores",
            "kernel",
            "memory",
            "overcommit",
            "memory maps",
            "sandboxes",
            "open files",
            "pagemap scan",
            "no swap",
            "user namespaces",
            "namespaces",
            "landlock",
            "seccomp",
            "cgroups",
            "kvm",
            "clang",
            "wasm-ld",
            "compiler of aot",
            "compiler of rwasm",
            "Python",
            "native executables",
            "limits of executables",
            "TLS",
            "S3",
        ]
    );
    // What is there is not said to come.
    let to_come = |needed_for: &&str| needed_for.contains("(coming)");
    let to_come: Vec<_> = said("needed_for").into_iter().filter(to_come).collect();
    assert_eq!(to_come, ["functions in a virtual machine (coming)"]);
}

#[test]
fn doctor_says_what_is_refused_and_how_it_can_be_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("millpond.toml");
    fs::write(&file, "[process]\nallow_uncounted = true\n").unwrap();
    let limits = |arguments: &[&str]| {
        let output = millpond(&[&["doctor", "-o", "json"], arguments].concat())
            .output()
            .unwrap();
        let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut findings = findings.as_array().unwrap().iter();
        findings
            .find(|finding| finding["capability"] == "limits of executables")
            .unwrap()
            .clone()
    };
    let without = limits(&[]);
    assert!(
        without["remedy"].as_str().unwrap().contains("allow_uncounted"),
        "{without}"
    );
    // With it nothing is refused on any host, and what is kept is said.
    let with = limits(&["--config", file.to_str().unwrap()]);
    assert_eq!(with["state"], "ok", "{with}");
    assert!(with["found"].as_str().unwrap().starts_with("memory"), "{with}");
}

const CALL: &str = "60c820b3de8759560000000000000003";

fn call(state: &str, rest: Value) -> Value {
    let mut call = json!({
        "id": CALL,
        "function": "shop.resize",
        "state": state,
        "accepted": "2026-11-21T08:00:00.000Z",
        "attempts": 3,
    });
    for (key, value) in rest.as_object().unwrap() {
        call[key] = value.clone();
    }
    call
}

fn calling_node() -> FakeNode {
    FakeNode::start(|method, target| {
        let rest = target
            .strip_prefix("/v1/calls")
            .map(|rest| rest.replace(CALL, "ID"));
        match (method, rest.as_deref().unwrap_or(target)) {
            ("POST", "/async-function/shop.resize/a?b=c") => {
                Answer::Headed(202, "X-Call-Id: 60c820b3de8759560000000000000003\r\n", Vec::new())
            }
            ("POST", "/async-function/full") => problem(429, "calls-full"),
            ("POST", "/async-function/odd") => Answer::Bytes(200, "text/plain", b"hello".to_vec()),
            ("GET", "?state=dead&limit=7&after=ID") => Answer::Json(
                200,
                json!({ "calls": [call("dead", json!({ "cause": "attempts", "reason": "exit code 3\u{1b}[2J" }))], "next": CALL }),
            ),
            ("GET", "?state=all&limit=100") => Answer::Json(200, json!({ "calls": [] })),
            ("GET", "/ID") => Answer::Json(
                200,
                call(
                    "waiting",
                    json!({ "due": "2026-11-21T08:00:01.000Z", "reason": "exit code 3" }),
                ),
            ),
            ("GET", "/ID/result") => {
                Answer::Headed(200, "X-Function-Status: 418\r\nX-A: b\r\n", b"\xfftea".to_vec())
            }
            ("POST", "/ID/retry") => Answer::Json(200, call("waiting", json!({}))),
            ("DELETE", "/ID") => Answer::Bytes(204, "text/plain", Vec::new()),
            _ => problem(404, "call-unknown"),
        }
    })
}

#[test]
fn invoke_async_prints_the_id_of_the_call() {
    let node = calling_node();
    let words = [
        "invoke",
        "shop.resize",
        "--async",
        "--path",
        "/a?b=c",
        "-H",
        "X-A: b",
    ];
    let output = node.run(&words);
    assert_eq!(
        (code(&output), out(&output)),
        (0, format!("{CALL}\n")),
        "{}",
        err(&output)
    );
    assert_eq!(node.asked().pop().unwrap().header("x-a"), Some("b"));
    let output = node.run(&[&words[..], &["--data", "text", "-o", "json"]].concat());
    assert_eq!(node.asked().pop().unwrap().body, b"text");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said, json!({ "call": CALL, "function": "shop.resize" }));

    let output = node.run(&["invoke", "full", "--async"]);
    assert_eq!((code(&output), out(&output).as_str()), (1, ""));
    assert!(err(&output).contains("429 calls-full"), "{}", err(&output));
    let output = node.run(&["invoke", "odd", "--async"]);
    assert_eq!((code(&output), out(&output).as_str()), (1, ""));
    assert!(
        err(&output).contains("status 200 instead of 202"),
        "{}",
        err(&output)
    );
}

#[test]
fn calls_are_looked_after() {
    let node = calling_node();
    let mut text = String::new();
    for words in [
        &["list", "--state", "dead", "--limit", "7", "--after", CALL][..],
        &["list"],
        &["show", CALL],
        &["retry", CALL],
        &["drop", CALL],
    ] {
        let output = node.run(&[&["calls"], words].concat());
        assert_eq!(code(&output), 0, "{words:?}: {}", err(&output));
        text.push_str(&format!("=== {}\n{}", words.join(" "), out(&output)));
        let output = node.run(&[&["calls"], words, &["-o", "json"]].concat());
        serde_json::from_slice::<Value>(&output.stdout).unwrap();
    }
    insta::assert_snapshot!(text);
    let other = CALL.replace('6', "7");
    for verb in ["show", "result", "retry", "drop"] {
        let output = node.run(&["calls", verb, &other]);
        assert_eq!((code(&output), out(&output).as_str()), (1, ""), "{verb}");
        assert!(err(&output).contains("404 call-unknown"), "{}", err(&output));
    }
}

#[test]
fn the_result_of_a_call_is_the_functions_answer() {
    let node = calling_node();
    let output = node.run(&["calls", "result", CALL]);
    assert_eq!(
        (code(&output), output.stdout.as_slice()),
        (1, &b"\xfftea"[..]),
        "as with `invoke`, an error of the function is one of the command, and its body is written"
    );
    assert!(err(&output).contains("status 418"), "{}", err(&output));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answer");
    let output = node.run(&[
        "calls",
        "result",
        CALL,
        "-o",
        "json",
        "--output",
        file.to_str().unwrap(),
    ]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&said["status"], &said["length"], &said["headers"]["x-a"]),
        (&json!(418), &json!(4), &json!(["b"]))
    );
    assert!(said["headers"].get("x-function-status").is_none());
    assert_eq!(fs::read(file).unwrap(), b"\xfftea");
}

fn secret_node() -> FakeNode {
    let secret = |application: Option<&str>, functions: &[&str]| {
        let mut secret = json!({ "name": "KEY", "set": "2026-11-21T08:00:00.000Z", "functions": functions });
        if let Some(application) = application {
            secret["application"] = json!(application);
        }
        secret
    };
    FakeNode::start(move |method, target| match (method, target) {
        ("GET", "/v1/secrets") => Answer::Json(
            200,
            json!({ "secrets": [secret(None, &[]), secret(Some("shop"), &["shop.resize", "shop.thumb"])] }),
        ),
        ("PUT", "/v1/secrets/KEY") => Answer::Json(200, secret(None, &[])),
        ("PUT", "/v1/secrets/KEY?application=shop") => {
            Answer::Json(200, secret(Some("shop"), &["shop.resize"]))
        }
        ("DELETE", "/v1/secrets/KEY?force=true" | "/v1/secrets/KEY?application=shop&force=true") => {
            Answer::Json(200, json!(null))
        }
        ("DELETE", _) => problem(409, "secret-in-use"),
        _ => problem(422, "secret-invalid"),
    })
}

#[test]
fn secrets_are_looked_after() {
    let node = secret_node();
    let mut text = String::new();
    for words in [
        &["list"][..],
        &["delete", "KEY", "--force"],
        &["delete", "KEY", "--application", "shop", "--force"],
    ] {
        let output = node.run(&[&["secret"], words].concat());
        assert_eq!(code(&output), 0, "{words:?}: {}", err(&output));
        text.push_str(&format!("=== {}\n{}", words.join(" "), out(&output)));
        let output = node.run(&[&["secret"], words, &["-o", "json"]].concat());
        serde_json::from_slice::<Value>(&output.stdout).unwrap();
    }
    let output = node.run(&["secret", "delete", "KEY"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("409 secret-in-use"), "{}", err(&output));
    insta::assert_snapshot!(text);
}

#[test]
fn a_secrets_value_is_read_and_not_repeated() {
    let node = secret_node();
    let folder = tempfile::tempdir().unwrap();
    for (content, sent) in [
        ("hidden", "hidden"),
        ("hidden\n", "hidden"),
        ("hidden\r\n", "hidden"),
        ("hidden\n\n", "hidden\n"),
        (" hidden ", " hidden "),
    ] {
        let mut command = node.command(&["secret", "set", "KEY"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(content.as_bytes()).unwrap();
        let piped = child.wait_with_output().unwrap();
        let file = folder.path().join("value");
        fs::write(&file, content).unwrap();
        let path = file.to_str().unwrap();
        let read = node.run(&["secret", "set", "KEY", "--application", "shop", "--file", path]);
        for (output, said) in [(&piped, "no function uses it yet"), (&read, "shop.resize")] {
            assert_eq!(code(output), 0, "{}", err(output));
            assert!(out(output).contains(said), "{}", out(output));
            assert!(!out(output).contains("hidden") && !err(output).contains("hidden"));
        }
        for asked in &node.asked()[node.asked().len() - 2..] {
            assert_eq!(asked.body, sent.as_bytes(), "{}", asked.line());
            assert_eq!(asked.header("content-type"), Some("application/octet-stream"));
        }
    }
    let absent = node.run(&["secret", "set", "KEY", "--file", "/nowhere/at/all"]);
    assert_eq!(code(&absent), 1);
    assert!(err(&absent).contains("/nowhere/at/all"), "{}", err(&absent));
    for words in [
        &["set", "KEY", "hidden"][..],
        &["set", "a.b"],
        &["set"],
        &["set", "KEY", "--application", "A"],
        &["delete"],
    ] {
        assert_eq!(code(&node.run(&[&["secret"], words].concat())), 2, "{words:?}");
    }
}
