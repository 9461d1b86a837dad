//! The command against itself: `millpond serve` as the node, everything else as its client.

use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
};

struct Node {
    child: Child,
    out: BufReader<ChildStdout>,
    admin: String,
}

impl Node {
    fn start(data: &Path) -> Self {
        let mut child = millpond(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "-o",
            "json",
            "--data",
        ])
        .arg(data)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        Self {
            child,
            out,
            admin: ready["admin"].as_str().unwrap().to_owned(),
        }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        millpond(arguments)
            .env("MILLPOND_ADMIN", &self.admin)
            .output()
            .unwrap()
    }

    fn good(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ends it as an operator would; whether it ended well.
    fn stop(mut self) -> bool {
        assert!(
            Command::new("kill")
                .args(["-TERM", &self.child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        let mut rest = String::new();
        self.out.read_line(&mut rest).unwrap();
        assert_eq!(rest, "");
        self.child.wait().unwrap().success()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn millpond(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("MILLPOND_ADMIN")
        .env_remove("MILLPOND_TOKEN");
    command.env("RUST_LOG", "warn");
    command
}

/// A WASI command that says a word on standard output and another on standard error.
fn says(word: &str, note: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
            (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (data (i32.const 64) "{word}")
            (data (i32.const 128) "{note}\n")
            (func $say (param i32 i32 i32)
                (i32.store (i32.const 0) (local.get 1))
                (i32.store (i32.const 4) (local.get 2))
                (drop (call $write (local.get 0) (i32.const 0) (i32.const 1) (i32.const 8))))
            (func (export "_start")
                (call $say (i32.const 2) (i32.const 128) (i32.const {}))
                (call $say (i32.const 1) (i32.const 64) (i32.const {}))))"#,
        note.len() + 1,
        word.len(),
    );
    wat::parse_str(text).unwrap()
}

fn write_application(folder: &Path, word: &str) {
    fs::write(folder.join("f.wasm"), says(word, "a note")).unwrap();
    fs::write(
        folder.join("millpond.toml"),
        "[application]\nname = \"shop\"\n[function.hello]\nsource = \"f.wasm\"\n[[trigger.http]]\nfunction = \"hello\"\npath = \"/hi\"\n",
    )
    .unwrap();
}

#[test]
fn a_function_from_deploy_to_delete() {
    let folder = tempfile::tempdir().unwrap();
    let (data, place) = (folder.path().join("data"), folder.path().to_str().unwrap());
    write_application(folder.path(), "one");
    let node = Node::start(&data);
    assert!(node.good(&["list"]).contains("no functions"));

    assert!(node.good(&["deploy", place, "--plan"]).contains("+ hello"));
    let deployed: Value = serde_json::from_str(&node.good(&["deploy", place, "-o", "json"])).unwrap();
    assert_eq!(deployed["changes"][0]["action"], "create");
    assert_eq!(node.good(&["invoke", "hello"]), "one");
    let answer: Value = serde_json::from_str(&node.good(&["invoke", "shop.hello:1", "-o", "json"])).unwrap();
    assert_eq!((&answer["status"], &answer["body"]), (&200.into(), &"one".into()));
    assert!(node.good(&["deploy", place]).contains("= hello  version 1"));

    write_application(folder.path(), "two");
    assert!(
        node.good(&["deploy", place])
            .contains("~ hello  version 1 -> 2  code")
    );
    assert_eq!(node.good(&["invoke", "hello"]), "two");
    assert_eq!(node.good(&["rollback", "hello"]), "hello: version 2 -> 1\n");
    assert_eq!(node.good(&["invoke", "hello"]), "one");
    assert!(node.good(&["list"]).contains("shop.hello  1"));
    assert!(node.good(&["describe", "hello"]).contains("function: shop.hello"));

    let unknown = node.run(&["invoke", "nobody"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&unknown.stderr).contains("nobody"),
        "{unknown:?}"
    );

    assert!(node.stop());
    let node = Node::start(&data);
    assert_eq!(
        node.good(&["invoke", "hello"]),
        "one",
        "what was deployed survives a restart"
    );
    assert!(
        node.good(&["logs", "hello"])
            .lines()
            .filter(|line| line.ends_with("stderr   a note"))
            .count()
            >= 4
    );
    node.good(&["delete", "shop", "--yes"]);
    assert_eq!(node.run(&["invoke", "hello"]).status.code(), Some(1));
}

#[test]
fn a_refused_module_is_told_and_nothing_is_deployed() {
    let folder = tempfile::tempdir().unwrap();
    write_application(folder.path(), "one");
    fs::write(folder.path().join("f.wasm"), "not a module").unwrap();
    let node = Node::start(&folder.path().join("data"));
    let output = node.run(&["deploy", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("shop.hello") && said.contains("422"), "{said}");
    assert!(node.good(&["list"]).contains("no functions"));
}

#[test]
fn an_open_control_api_needs_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let output = millpond(&["serve", "--admin", "0.0.0.0:0", "--data"])
        .arg(folder.path().join("data"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("token"));
}
