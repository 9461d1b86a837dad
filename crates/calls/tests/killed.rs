//! Calls survive a node that is killed at random moments.
//!
//! The test runs itself: with `serve FILE ROUND` as arguments it is the child, which submits calls from several threads and runs
//! them, and prints each call that was accepted, begun and finished; the parent kills it after a random number of
//! lines. In the last round nothing is submitted, and everything that is left is run.

use bytes::Bytes;
use calls::{
    Attempt, CallId, Calls, Finished, Options, Outcome, Request, Response, State, Timestamp, Verdict,
};
use contract::{Log, RequestId};
use rand::{RngExt, SeedableRng};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use store_embedded::Embedded;

const ROUNDS: u32 = 25;
const THREADS: u32 = 4;

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("serve") => serve(Path::new(&arguments[2]), arguments[3].parse().unwrap()),
        // What `cargo test` and test runners may pass: a list, or filters.
        Some("--list") => println!("killed: test"),
        _ => kill_and_check(),
    }
}

fn now() -> Timestamp {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp(u64::try_from(time.as_millis()).unwrap())
}

fn open(path: &Path) -> (Arc<Embedded>, Calls) {
    let store = Arc::new(Embedded::open(path).unwrap());
    let options = Options {
        first_delay: Duration::from_millis(5),
        longest_delay: Duration::from_millis(20),
        interruptions: 1000,
        // So little that the log is shortened all the time.
        garbage: 64 << 10,
        ..Options::default()
    };
    let calls = Calls::open(Arc::clone(&store) as Arc<dyn Log>, options, now(), || {}).unwrap();
    (store, calls)
}

fn body(id: CallId) -> Bytes {
    let length = (id.0.0 % 5000) as usize;
    id.to_string()
        .into_bytes()
        .into_iter()
        .cycle()
        .take(length)
        .collect()
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

fn serve(path: &Path, round: u32) {
    let (_store, calls) = open(path);
    let last = round == ROUNDS;
    for thread in 0..if last { 0 } else { THREADS } {
        let calls = calls.clone();
        thread::spawn(move || submit_for_ever(&calls, round, thread));
    }
    loop {
        let attempts = calls.begin(&calls.due(now(), 20), now()).unwrap();
        for attempt in &attempts {
            assert_eq!(attempt.request.body, body(attempt.id));
            say(&format!("begun {}", attempt.id));
        }
        let finished: Vec<_> = attempts.iter().map(run).collect();
        let verdicts = calls.finish(&finished, now()).unwrap();
        for (one, verdict) in finished.iter().zip(verdicts) {
            match verdict {
                Verdict::Succeeded | Verdict::Dead(_) => say(&format!("finished {}", one.id)),
                Verdict::RetryAt(_) => {}
                Verdict::Stale => panic!("{} was begun and is stale", one.id),
            }
        }
        calls.maintain(now()).unwrap();
        if last && calls.counts().pending == 0 {
            return;
        }
    }
}

fn submit_for_ever(calls: &Calls, round: u32, thread: u32) {
    let mut random = rand::rngs::StdRng::seed_from_u64(u64::from(round * THREADS + thread));
    loop {
        let id = CallId(RequestId(random.random()));
        let request = Request {
            function: "shop.resize".parse().unwrap(),
            method: "POST".to_owned(),
            target: "/".to_owned(),
            headers: Vec::new(),
            body: body(id),
            callback: None,
            tells: None,
            attempts: 3,
            maximum_age: Duration::from_hours(1),
        };
        calls.submit(id, &request, now()).unwrap();
        say(&format!("accepted {id}"));
    }
}

/// Some fail once, some always.
fn run(attempt: &Attempt) -> Finished {
    let fails = match attempt.id.0.0 % 8 {
        0 => true,
        1 => attempt.number == 1,
        _ => false,
    };
    let outcome = if fails {
        Outcome::Failed {
            reason: "it fell over".to_owned(),
            retry: true,
        }
    } else {
        Outcome::Succeeded(Response {
            status: 200,
            body: body(attempt.id),
            ..Response::default()
        })
    };
    Finished {
        id: attempt.id,
        number: attempt.number,
        outcome,
        took: Duration::ZERO,
    }
}

#[derive(Default)]
struct Seen {
    accepted: BTreeSet<CallId>,
    begun: BTreeMap<CallId, u32>,
    /// By what was printed before a kill; of later rounds it is not known yet.
    finished: BTreeSet<CallId>,
}

impl Seen {
    fn take(&mut self, lines: &[String], round: u32) {
        for line in lines {
            // The last line may be torn by the kill.
            let Some((what, id)) = line.split_once(' ') else {
                continue;
            };
            let Ok(id) = id.parse::<CallId>() else { continue };
            match what {
                "accepted" => assert!(self.accepted.insert(id)),
                "begun" => {
                    assert!(
                        !self.finished.contains(&id),
                        "round {round}: {id} was finished and is run again"
                    );
                    *self.begun.entry(id).or_default() += 1;
                }
                _ => drop(self.finished.insert(id)),
            }
        }
    }
}

fn kill_and_check() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let mut random = rand::rngs::StdRng::seed_from_u64(0xca11);
    let mut seen = Seen::default();
    for round in 0..=ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("serve")
            .arg(&path)
            .arg(round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let wanted = if round == ROUNDS {
            usize::MAX
        } else {
            random.random_range(1..120)
        };
        let mut told: Vec<String> = lines.by_ref().take(wanted).map_while(Result::ok).collect();
        if round < ROUNDS {
            child.kill().unwrap();
        }
        let status = child.wait().unwrap();
        assert!(
            round < ROUNDS || status.success(),
            "the last round failed: {status}"
        );
        assert!(
            round == ROUNDS || told.len() == wanted,
            "round {round}: the child ended by itself"
        );
        told.extend(lines.map_while(Result::ok));
        seen.take(&told, round);
    }

    let (store, calls) = open(&path);
    assert!(
        seen.accepted.len() > 100,
        "only {} calls were accepted",
        seen.accepted.len()
    );
    assert!(seen.begun.values().any(|times| *times > 1));
    for id in &seen.accepted {
        assert!(seen.begun.contains_key(id), "{id} was accepted and never run");
        match calls.get(*id).map(|call| call.state) {
            Some(State::Succeeded { .. }) => {
                assert_eq!(calls.result(*id).unwrap().unwrap().body, body(*id));
            }
            Some(State::Dead { .. }) => {
                assert_eq!(id.0.0 % 8, 0, "{id} is dead");
                assert_eq!(calls.request(*id).unwrap().body, body(*id));
            }
            other => panic!("{id} was accepted and is {other:?}"),
        }
    }
    let extent = store.extent("calls").unwrap();
    assert!(extent.first.0 > 0, "the log was never trimmed");
    println!(
        "killed: {ROUNDS} kills, {} calls accepted, {} attempts, none lost, none run again after its end",
        seen.accepted.len(),
        seen.begun.values().sum::<u32>(),
    );
}
