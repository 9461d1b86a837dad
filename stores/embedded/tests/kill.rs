//! A store that is killed at random moments keeps all that it acknowledged.
//!
//! The test runs itself: with `write FILE` as arguments it is the child, which changes the store and a log from several
//! threads and prints each change once it is acknowledged; the parent kills it after a random number of lines, which may fall
//! into the making of the file, and reads the store back.

use contract::{Expect, Log, Position, Store};
use rand::{RngExt, SeedableRng};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
};
use store_embedded::Embedded;

const ROUNDS: usize = 30;
const THREADS: usize = 4;

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("write") => write(Path::new(&arguments[2])),
        // What `cargo test` and test runners may pass: a list, or filters.
        Some("--list") => println!("kill: test"),
        _ => {
            kill_and_check();
            println!("kill: {ROUNDS} kills, nothing lost");
        }
    }
}

/// A value that shows when it is torn.
fn value(thread: usize, count: u64) -> Vec<u8> {
    let length = 100 + (count as usize * 977) % 6000;
    format!("{thread}/{count};")
        .into_bytes()
        .into_iter()
        .cycle()
        .take(length)
        .collect()
}

fn write(path: &Path) {
    let store = Embedded::open(path).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || write_for_ever(store, thread));
        }
    });
}

fn write_for_ever(store: &Embedded, thread: usize) {
    let latest = format!("latest/{thread}");
    loop {
        let entry = store.get(&latest).unwrap();
        let count = entry
            .as_ref()
            .map_or(0, |e| String::from_utf8_lossy(&e.value).parse::<u64>().unwrap())
            + 1;
        let log = store
            .put(
                &format!("log/{thread}/{count}"),
                &value(thread, count),
                Expect::Any,
            )
            .unwrap();
        let at = entry.map_or(Expect::Absent, |e| Expect::At(e.revision));
        let revision = store.put(&latest, count.to_string().as_bytes(), at).unwrap();
        let gone = store
            .delete(&format!("log/{thread}/{}", count.saturating_sub(50)), Expect::Any)
            .unwrap();
        assert!(log < revision && revision <= gone);
        let records: Vec<_> = (0..=count % 3).map(|_| value(thread, count)).collect();
        let position = Log::append(store, "events", records).unwrap();
        if count % 16 == 0 {
            store
                .trim("events", Position(position.0.saturating_sub(100)))
                .unwrap();
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "{thread} {count} {} {}", log.0, position.0).unwrap();
        out.flush().unwrap();
    }
}

fn kill_and_check() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let mut random = rand::rngs::StdRng::seed_from_u64(0x9a7d);
    let mut total = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("write")
            .arg(&path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The first rounds are killed before the first acknowledgement: in the making of the file, or in a repair.
        let wanted = if round < 5 { 0 } else { random.random_range(1..40) };
        let mut acknowledged: Vec<String> = lines.by_ref().take(wanted).map(Result::unwrap).collect();
        if wanted == 0 {
            thread::sleep(std::time::Duration::from_micros(random.random_range(0..30_000)));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged.extend(lines.map_while(Result::ok));
        assert!(
            acknowledged.len() >= wanted,
            "round {round}: the child ended by itself"
        );
        total += acknowledged.len();
        check(&path, round, &acknowledged);
    }
    assert!(total > ROUNDS, "only {total} changes were acknowledged");
}

fn check(path: &Path, round: usize, acknowledged: &[String]) {
    let store = Embedded::open(path).unwrap_or_else(|error| panic!("round {round}: {error}"));
    let mut latest = BTreeMap::new();
    let mut last = 0;
    let first = store.extent("events").unwrap().first.0;
    for line in acknowledged {
        let fields: Vec<u64> = line.split(' ').filter_map(|field| field.parse().ok()).collect();
        // The last line may be torn by the kill.
        let [thread, count, revision, position] = fields[..] else {
            continue;
        };
        for at in (position..=position + count % 3).filter(|at| *at >= first) {
            let found = store.read("events", Position(at), 1).unwrap();
            assert!(
                found.len() == 1
                    && found[0].position.0 == at
                    && found[0].data == value(thread as usize, count),
                "round {round}: record {at} was acknowledged and is lost"
            );
        }
        latest.insert(thread, (count, revision));
        last = last.max(revision);
    }
    for (thread, (count, revision)) in latest {
        let log = store.get(&format!("log/{thread}/{count}")).unwrap();
        let log =
            log.unwrap_or_else(|| panic!("round {round}: log/{thread}/{count} was acknowledged and is lost"));
        assert_eq!(log.revision.0, revision, "round {round}");
        let newest = store
            .get(&format!("latest/{thread}"))
            .unwrap()
            .map(|e| String::from_utf8(e.value).unwrap());
        let newest: u64 = newest.expect("acknowledged and lost").parse().unwrap();
        assert!(
            newest >= count,
            "round {round}: {count} was acknowledged, {newest} is there"
        );
        assert!(
            store
                .get(&format!("log/{thread}/{}", count.saturating_sub(50)))
                .unwrap()
                .is_none(),
            "a deletion came back"
        );
    }
    for entry in store.list("log/").unwrap() {
        let (thread, count) = entry.key["log/".len()..].split_once('/').unwrap();
        assert_eq!(
            entry.value,
            value(thread.parse().unwrap(), count.parse().unwrap()),
            "{} is torn",
            entry.key
        );
    }
    check_log(&store, round);
    assert!(
        store.put("check", b"x", Expect::Any).unwrap().0 > last,
        "round {round}: a revision was used again"
    );
}

/// Appends are whole, positions are dense, and the extent says what is there.
fn check_log(store: &Embedded, round: usize) {
    let extent = store.extent("events").unwrap();
    let mut records = Vec::new();
    loop {
        let more = store
            .read("events", Position(extent.first.0 + records.len() as u64), 100)
            .unwrap();
        if more.is_empty() {
            break;
        }
        records.extend(more);
    }
    assert!(
        records
            .iter()
            .map(|record| record.position.0)
            .eq(extent.first.0..extent.end.0),
        "round {round}: positions are not dense"
    );
    let bytes: usize = records.iter().map(|record| record.data.len()).sum();
    assert_eq!(extent.bytes, bytes as u64, "round {round}");
    // The first append may have been cut by a trim.
    let mut groups: Vec<_> = records.chunk_by(|a, b| a.data == b.data).collect();
    if extent.first.0 > 0 && !groups.is_empty() {
        groups.remove(0);
    }
    for group in groups {
        let text = String::from_utf8_lossy(&group[0].data);
        let count: usize = text
            .split_once('/')
            .unwrap()
            .1
            .split_once(';')
            .unwrap()
            .0
            .parse()
            .unwrap();
        assert_eq!(group.len(), count % 3 + 1, "round {round}: an append is torn");
    }
}
