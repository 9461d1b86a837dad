//! A server whose disk is full refuses, loses nothing, and goes on once there is room.
//!
//! The test runs itself on a small file system in memory, in a mount namespace of its own: with `serve FOLDER` as arguments it
//! is the server, which prints its address and its process.

mod common;

use common::{Answer, Client, eventually, serve};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};
use store_objects::{Objects, Options};

/// Bytes of the disk.
const DISK: usize = 24 << 20;

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("serve") => {
            let objects = Objects::open(Path::new(&arguments[2]), Options::default()).unwrap();
            serve(
                objects,
                |address| println!("{address} {}", std::process::id()),
                std::future::pending(),
            );
        }
        Some("--list") => println!("full: test"),
        _ => fill_and_check(),
    }
}

/// Content that shows when it is torn or mixed.
fn content(number: usize, length: usize) -> Vec<u8> {
    format!("{number};")
        .into_bytes()
        .into_iter()
        .cycle()
        .take(length)
        .collect()
}

fn next(lines: &mut BufReader<ChildStdout>) -> Option<(Client, String)> {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let (address, process) = line.trim().split_once(' ')?;
    Some((Client::new(address.parse().ok()?), process.to_owned()))
}

fn kill(process: &str) {
    let _ = Command::new("kill").args(["-9", process]).status();
}

/// The shell and the server that it runs, which do not outlive the test, however that ends.
struct Victim {
    shell: Child,
    process: String,
}

impl Drop for Victim {
    fn drop(&mut self) {
        // The shell first: it would start the next one.
        let _ = self.shell.kill();
        kill(&self.process);
        let _ = self.shell.wait();
    }
}

fn is_refused_for_room(answer: &Answer) -> bool {
    answer.status == 507 && answer.text().contains("InternalError")
}

/// Puts objects until one is refused, which must be for lack of room; returns how many were taken.
fn fill(client: &Client, kind: &str, length: usize, kept: &mut BTreeMap<String, Vec<u8>>) -> usize {
    for number in 0..DISK / length.max(1) * 4 {
        let path = format!("/pond/{kind}/{number}");
        let body = content(number, length);
        let answer = client.put(&path, &body);
        if answer.status != 200 {
            assert!(is_refused_for_room(&answer), "{}", answer.text());
            assert_eq!(client.get(&path).status, 404, "what was refused is there");
            return number;
        }
        kept.insert(path, body);
    }
    panic!("the disk is never full");
}

fn check(client: &Client, kept: &BTreeMap<String, Vec<u8>>) {
    for (path, body) in kept {
        let got = client.get(path);
        assert!(
            got.status == 200 && got.body == *body,
            "{path}: {} {}",
            got.status,
            got.text().len()
        );
    }
}

fn fill_and_check() {
    let folder = tempfile::TempDir::new().unwrap();
    let script = format!(
        "mount -t tmpfs -o size={DISK} tmpfs \"$2\" && {{ \"$1\" serve \"$2\"; \"$1\" serve \"$2\"; }}"
    );
    let started = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .arg(folder.path())
        .stdout(Stdio::piped())
        .spawn();
    let mut shell = match started {
        Ok(shell) => shell,
        Err(error) => {
            println!("skipped: there is no unshare ({error})");
            return;
        }
    };
    let mut lines = BufReader::new(shell.stdout.take().unwrap());
    let Some((client, process)) = next(&mut lines) else {
        println!("skipped: the system gives no mount namespace of its own");
        return;
    };
    let mut victim = Victim { shell, process };
    assert_eq!(client.put("/pond", b"").status, 200);
    let mut kept = BTreeMap::new();
    assert!(fill(&client, "large", 1 << 20, &mut kept) > 5);
    check(&client, &kept);
    // What is left is for the index, which then has no room itself.
    assert!(fill(&client, "small", 8 << 10, &mut kept) > 5);
    check(&client, &kept);
    for attempt in 0..5 {
        assert!(is_refused_for_room(
            &client.put("/pond/more", &content(attempt, 2 << 20))
        ));
    }
    // Deletions need room in the index, too, and have it.
    let large: Vec<_> = kept
        .keys()
        .filter(|path| path.contains("large"))
        .cloned()
        .collect();
    for path in large.iter().take(8) {
        let deleted = client.call("DELETE", path, &[], &[], b"");
        assert_eq!(deleted.status, 204, "{}", deleted.text());
        kept.remove(path);
    }
    eventually("there is room", || {
        client.put("/pond/again", &content(1, 1 << 20)).status == 200
    });
    kept.insert("/pond/again".to_owned(), content(1, 1 << 20));
    check(&client, &kept);
    kill(&victim.process);
    let (client, process) = next(&mut lines).expect("it starts on a full disk");
    victim.process = process;
    check(&client, &kept);
    assert_eq!(client.get("/pond/more").status, 404);
    drop(victim);
    println!("full: {} objects kept, nothing lost", kept.len());
}
