//! A server that is killed at random moments keeps all that it acknowledged, and nothing by halves.
//!
//! The test runs itself: with `serve FOLDER` as arguments it is the server, which prints its address. The parent writes,
//! replaces and deletes from several threads, kills the server, which may fall into its start, and starts it again. Of each
//! key it knows what was acknowledged last and what was under way: one of these must be there, whole.

mod common;

use common::{Client, files, serve};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};
use store_objects::{Objects, Options};

const ROUNDS: u64 = 25;
const THREADS: u64 = 6;

/// What a key may have: nothing, or the content of a number.
type States = BTreeMap<String, Vec<Option<u64>>>;

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("serve") => {
            let objects = Objects::open(Path::new(&arguments[2]), Options::default()).unwrap();
            serve(objects, |address| println!("{address}"), std::future::pending());
        }
        // What `cargo test` and test runners may pass: a list, or filters.
        Some("--list") => println!("kill: test"),
        _ => kill_and_check(),
    }
}

/// Content that shows when it is torn or mixed. Some lies in the index, some in a file.
fn content(number: u64) -> Vec<u8> {
    let length = match number % 4 {
        0 => 0,
        1 => number % 3000,
        2 => 16_000 + number % 1000,
        _ => 100_000 + (number % 7) * 300_000,
    };
    format!("{number};")
        .into_bytes()
        .into_iter()
        .cycle()
        .take(length as usize)
        .collect()
}

/// A server that does not outlive the test, however that ends.
struct Victim(Child);

impl Victim {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(folder: &Path) -> (Victim, Option<Client>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg("serve")
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut address)
        .unwrap();
    let client = address.trim().parse().ok().map(Client::new);
    (Victim(child), client)
}

/// One change of a key; returns whether it was acknowledged, and keeps book.
fn change(client: &Client, states: &Mutex<States>, key: &str, number: u64, way: u64) -> bool {
    let path = format!("/pond/{key}");
    let state = (way != 0).then_some(number);
    states
        .lock()
        .unwrap()
        .entry(key.to_owned())
        .or_insert_with(|| vec![None])
        .push(state);
    let body = content(number);
    let done = match way {
        0 => client
            .try_call("DELETE", &path, &[], &[], b"")
            .is_ok_and(|answer| answer.status == 204),
        1 => in_parts(client, &path, &body).is_some(),
        _ => client
            .try_call("PUT", &path, &[], &[], &body)
            .is_ok_and(|answer| answer.status == 200),
    };
    if done {
        states.lock().unwrap().insert(key.to_owned(), vec![state]);
    }
    done
}

fn in_parts(client: &Client, path: &str, body: &[u8]) -> Option<()> {
    let begun = client.try_call("POST", path, &[("uploads", "")], &[], b"").ok()?;
    if begun.status != 200 {
        return None;
    }
    let upload = begun.between("<UploadId>", "</UploadId>");
    let query = [("partNumber", "1"), ("uploadId", upload.as_str())];
    let part = client.try_call("PUT", path, &query, &[], body).ok()?;
    let etag = part.field("etag")?;
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    let done = client
        .try_call("POST", path, &[("uploadId", &upload)], &[], document.as_bytes())
        .ok()?;
    (done.status == 200).then_some(())
}

fn check(client: &Client, states: &mut States, round: u64) {
    for (key, allowed) in states {
        let got = client.call("GET", &format!("/pond/{key}"), &[], &[], b"");
        let found = match got.status {
            404 => None,
            200 => {
                let number = allowed
                    .iter()
                    .flatten()
                    .find(|number| content(**number) == got.body);
                Some(*number.unwrap_or_else(|| {
                    panic!(
                        "round {round}: {key} has {} bytes of nothing that was written",
                        got.body.len()
                    )
                }))
            }
            status => panic!("round {round}: {key} answers {status}: {}", got.text()),
        };
        assert!(
            allowed.contains(&found),
            "round {round}: {key} has {found:?}, and was left at {allowed:?}"
        );
        *allowed = vec![found];
    }
}

fn kill_and_check() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut states = States::new();
    let mut random = SmallRng::seed_from_u64(7);
    let (mut acknowledged, mut made) = (0, false);
    for round in 0..ROUNDS {
        if round % 5 == 4 {
            // Into the start.
            let mut child = Command::new(std::env::current_exe().unwrap())
                .arg("serve")
                .arg(folder.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            thread::sleep(Duration::from_millis(random.random_range(0..30)));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let (mut child, client) = start(folder.path());
        let client = client.expect("it starts after a kill");
        if !made {
            made = client.put("/pond", b"").status == 200;
        }
        check(&client, &mut states, round);
        let shared = Mutex::new(std::mem::take(&mut states));
        let life = Duration::from_millis(random.random_range(5..400));
        let counts: u64 = thread::scope(|scope| {
            let writers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (client, shared) = (&client, &shared);
                    let mut random = SmallRng::seed_from_u64(round * THREADS + thread);
                    scope.spawn(move || {
                        let mut count = 0;
                        loop {
                            let key = format!("{thread}/{}", random.random_range(0..12));
                            let number = (round * THREADS + thread) * 100_000 + count;
                            if !change(client, shared, &key, number, random.random_range(0..6)) {
                                return count;
                            }
                            count += 1;
                        }
                    })
                })
                .collect();
            thread::sleep(life);
            child.kill();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        acknowledged += counts;
        states = shared.into_inner().unwrap();
    }
    let (mut child, client) = start(folder.path());
    check(&client.unwrap(), &mut states, ROUNDS);
    child.kill();
    // What lies in files is what is named, but for parts of uploads that were never completed.
    let named = states
        .values()
        .flatten()
        .flatten()
        .filter(|number| content(**number).len() > 16 << 10)
        .count();
    assert!(files(folder.path()) >= named);
    assert!(
        acknowledged > ROUNDS,
        "the server was killed before it did anything: {acknowledged}"
    );
    println!("kill: {ROUNDS} kills, {acknowledged} changes acknowledged, nothing lost");
}
