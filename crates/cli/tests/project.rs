//! The verbs that need no node: `new`, `build`, `completions`, `man`.

use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

fn millpond(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millpond"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn good(folder: &Path, arguments: &[&str]) -> String {
    let output = millpond(folder, arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// What it says when it leaves with this code.
fn bad(folder: &Path, arguments: &[&str], code: i32) -> String {
    let output = millpond(folder, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said
}

/// A folder with one function `f`, built by this command.
fn application(command: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let manifest = format!(
        "[application]\nname = \"shop\"\n[function.f]\nsource = \"f.wasm\"\n[function.f.build]\ncommand = {command:?}\nwatch = [\"*.c\"]\n\
         [function.g]\nsource = \"g.wasm\"\n"
    );
    fs::write(folder.path().join("millpond.toml"), manifest).unwrap();
    folder
}

#[test]
fn without_arguments_new_lists_the_templates() {
    let folder = tempfile::tempdir().unwrap();
    let text = good(folder.path(), &["new"]);
    let listed: Value = serde_json::from_str(&good(folder.path(), &["new", "-o", "json"])).unwrap();
    let templates = listed["templates"].as_array().unwrap();
    assert!(templates.len() >= 3);
    for template in templates {
        for key in ["template", "summary", "needs"] {
            let said = template[key].as_str().unwrap();
            assert!(!said.is_empty() && text.contains(said), "{key} of {template}");
        }
    }
}

#[test]
fn new_writes_where_it_is_told_and_over_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(good(folder, &["new", "c", "pond"]).contains("millpond up"));
    let manifest = fs::read_to_string(folder.join("pond/millpond.toml")).unwrap();
    assert!(manifest.contains("name = \"pond\""), "{manifest}");

    assert!(bad(folder, &["new", "c", "pond"], 2).contains("pond is not empty"));
    fs::create_dir(folder.join("empty")).unwrap();
    good(folder, &["new", "go", "pond", "--into", "empty"]);
    assert!(folder.join("empty/go.mod").exists());
    good(folder, &["new", "rust", "pond", "--into", "a/deep/one"]);
    assert!(folder.join("a/deep/one/src/main.rs").exists());

    assert!(
        bad(folder, &["new", "cobol", "pond"], 2)
            .contains("there are c, go, js-http, python-http, rust, rust-http")
    );
    assert!(bad(folder, &["new", "c"], 2).contains("NAME"));
    assert!(bad(folder, &["new", "c", "Pond"], 2).contains("a-z"));
    assert!(bad(folder, &["new", "c", "lake", "--into", "pond/main.c"], 2).contains("main.c"));
    assert!(!folder.join("lake").exists());
}

#[test]
fn build_runs_the_commands_and_checks_what_they_made() {
    let folder = application("echo a word; printf '\\0asm\\1\\0\\0\\0' > f.wasm");
    let folder = folder.path();
    fs::write(folder.join("f.c"), "").unwrap();
    let output = millpond(folder, &["build"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("\na word\n"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "f: ./f.wasm (8 bytes)\n");
    let output = millpond(folder, &["build", "-v"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("\na word\n"));
    let answer: Value =
        serde_json::from_str(&good(folder, &["build", ".", "--function", "f", "-o", "json"])).unwrap();
    assert_eq!(
        (&answer["built"][0]["function"], &answer["built"][0]["bytes"]),
        (&"f".into(), &8.into())
    );

    assert!(bad(folder, &["build", "--function", "g"], 2).contains("how `g` is built"));
    assert!(bad(folder, &["build", "--function", "h"], 2).contains("it has f, g"));
    assert!(bad(folder, &["build", "nowhere"], 2).contains("nowhere"));
}

#[test]
fn a_build_that_fails_is_told_with_its_output() {
    let folder = application("echo the reason; exit 3");
    let said = bad(folder.path(), &["build"], 1);
    assert!(
        said.contains("\nthe reason\n") && said.contains("exit status: 3"),
        "{said}"
    );
    let said = bad(folder.path(), &["build", "-o", "json"], 1);
    let error: Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
    assert_eq!(error["error"]["code"], "build");
    assert_eq!(error["error"]["output"], "the reason\n");

    let folder = application("echo no code > f.wasm");
    assert!(bad(folder.path(), &["build"], 1).contains("is neither WebAssembly nor an executable"));
    assert!(
        bad(folder.path(), &["deploy", "--build"], 1).contains("is neither WebAssembly nor an executable")
    );
    let folder = application("true");
    assert!(bad(folder.path(), &["build"], 1).contains("f.wasm, cannot be read"));
}

#[test]
fn code_older_than_its_sources_is_noted() {
    let folder = application("touch -d 2001-01-01 f.wasm");
    fs::write(folder.path().join("f.c"), "").unwrap();
    fs::write(folder.path().join("f.wasm"), b"\0asm\x01\0\0\0").unwrap();
    let output = millpond(folder.path(), &["build"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("note: the code is older"));
}

#[test]
fn completions_and_manual_pages_know_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let verbs = ["new", "build", "up", "serve", "deploy", "invoke", "logs"];
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = good(folder, &["completions", shell]);
        assert!(verbs.iter().all(|verb| script.contains(verb)), "{shell}");
    }
    bad(folder, &["completions", "tea"], 2);
    assert!(good(folder, &["man"]).contains(".SH NAME"));
    good(folder, &["man", "--into", "share/man1"]);
    for verb in verbs {
        let page = fs::read_to_string(folder.join(format!("share/man1/millpond-{verb}.1"))).unwrap();
        assert!(page.contains(".SH NAME"), "{verb}");
    }
}
