//! The suite of [`crate::Log`].

use crate::{Appended, Extent, Log, LogError, Position, Record};
use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

/// Every part of the suite, on logs that are empty.
///
/// `open` opens the logs over the same data each time; what it gave before has been dropped by then.
pub fn run(open: &mut dyn FnMut() -> Arc<dyn Log>) {
    records_read_back(&*open());
    logs_are_apart(&*open());
    reads_are_bounded(&*open());
    rules_are_kept(&*open());
    trimmed_records_are_gone(&*open());
    appends_call_back(&open());
    tails_ring(&*open());
    concurrent_appends_are_whole_and_dense(&open());
    reopening_keeps_everything(open);
}

fn append(log: &dyn Log, name: &str, records: &[&[u8]]) -> Position {
    let records = records.iter().map(|record| record.to_vec()).collect();
    log.append(name, records)
        .unwrap_or_else(|error| panic!("append to `{name}`: {error}"))
}

fn read(log: &dyn Log, name: &str, from: u64, most: usize) -> Vec<Record> {
    log.read(name, Position(from), most)
        .unwrap_or_else(|error| panic!("read `{name}` from {from}: {error}"))
}

/// All that is there, whatever a single read gives.
fn all(log: &dyn Log, name: &str) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let from = records.last().map_or(0, |record| record.position.0 + 1);
        let more = read(log, name, from, 100);
        if more.is_empty() {
            return records;
        }
        records.extend(more);
    }
}

fn extent(log: &dyn Log, name: &str) -> Extent {
    log.extent(name)
        .unwrap_or_else(|error| panic!("extent of `{name}`: {error}"))
}

fn span(first: u64, end: u64, bytes: u64) -> Extent {
    Extent {
        first: Position(first),
        end: Position(end),
        bytes,
    }
}

fn trim(log: &dyn Log, name: &str, before: u64) {
    log.trim(name, Position(before))
        .unwrap_or_else(|error| panic!("trim `{name}` before {before}: {error}"));
}

fn record(position: u64, data: &[u8]) -> Record {
    Record {
        position: Position(position),
        data: data.to_vec(),
    }
}

fn records_read_back(log: &dyn Log) {
    assert_eq!(extent(log, "records"), Extent::default(), "a new log is empty");
    assert_eq!(read(log, "records", 0, 10), []);
    assert_eq!(
        append(log, "records", &[b"one"]),
        Position(0),
        "positions begin at 0"
    );
    let binary: Vec<u8> = (0..=255).collect();
    assert_eq!(
        append(log, "records", &[b"two", b"", &binary]),
        Position(1),
        "an append says where its first record is"
    );
    let expected = [
        record(0, b"one"),
        record(1, b"two"),
        record(2, b""),
        record(3, &binary),
    ];
    assert_eq!(all(log, "records"), expected);
    assert_eq!(
        read(log, "records", 1, 2),
        expected[1..3],
        "from a position, so many"
    );
    assert_eq!(read(log, "records", 3, 100), expected[3..]);
    assert_eq!(read(log, "records", 4, 100), [], "nothing after the end");
    assert_eq!(read(log, "records", u64::MAX, 100), []);
    assert_eq!(read(log, "records", 0, 0), []);
    assert_eq!(extent(log, "records"), span(0, 4, 3 + 3 + 256));
    let none = log.append("records", Vec::new());
    assert!(none.is_ok(), "an append of nothing succeeds");
    assert_eq!(
        extent(log, "records"),
        span(0, 4, 3 + 3 + 256),
        "and changes nothing"
    );
}

fn logs_are_apart(log: &dyn Log) {
    for name in ["apart", "apart/b", "apart0", "apar"] {
        assert_eq!(append(log, name, &[name.as_bytes(), b"x"]), Position(0));
    }
    trim(log, "apart", 2);
    assert_eq!(all(log, "apart"), []);
    for name in ["apart/b", "apart0", "apar"] {
        assert_eq!(
            all(log, name),
            [record(0, name.as_bytes()), record(1, b"x")],
            "`{name}` is not `apart`"
        );
    }
}

fn reads_are_bounded(log: &dyn Log) {
    let large = vec![7; 3 << 20];
    for _ in 0..4 {
        append(log, "large", &[&large]);
    }
    let some = read(log, "large", 0, 100);
    assert!(
        (1..=3).contains(&some.len()),
        "a read gives some and stops after 4 MiB, not {} records of 3 MiB",
        some.len()
    );
    let whole = all(log, "large");
    assert!(whole.len() == 4 && whole.iter().all(|record| record.data == large));
    trim(log, "large", 4);
}

fn rules_are_kept(log: &dyn Log) {
    let longest = "l".repeat(512);
    let largest = vec![7; 8 << 20];
    append(log, &longest, &[&largest]);
    assert_eq!(
        read(log, &longest, 0, 1),
        [record(0, &largest)],
        "the longest name, the largest record"
    );
    trim(log, &longest, 1);

    let too_long = "l".repeat(513);
    for name in ["", "A", "a b", "a:b", "é", "a\n", "a\0", too_long.as_str()] {
        let invalid = |result: Result<(), LogError>, what: &str| {
            assert!(
                matches!(result, Err(LogError::Invalid { .. })),
                "{what} of the log {name:?} must be refused, got {result:?}"
            );
        };
        invalid(log.append(name, vec![vec![1]]).map(drop), "an append");
        invalid(log.append_then(name, vec![vec![1]], Box::new(drop)), "an append");
        invalid(log.read(name, Position(0), 1).map(drop), "a read");
        invalid(log.extent(name).map(drop), "the extent");
        invalid(log.tail(name).map(drop), "a tail");
        invalid(log.trim(name, Position(1)), "a trim");
    }
    let records = || vec![vec![1], vec![0; (8 << 20) + 1]];
    assert!(
        matches!(log.append("rules", records()), Err(LogError::Invalid { .. }))
            && matches!(
                log.append_then("rules", records(), Box::new(drop)),
                Err(LogError::Invalid { .. })
            ),
        "a record of more than 8 MiB must be refused"
    );
    assert_eq!(
        extent(log, "rules"),
        Extent::default(),
        "and none of its append is there"
    );
}

fn trimmed_records_are_gone(log: &dyn Log) {
    append(log, "trim", &[b"a", b"bb", b"ccc", b"dddd"]);
    trim(log, "trim", 2);
    assert_eq!(extent(log, "trim"), span(2, 4, 7));
    let rest = [record(2, b"ccc"), record(3, b"dddd")];
    assert_eq!(
        read(log, "trim", 0, 10),
        rest,
        "a read from before the first gives what is there"
    );
    trim(log, "trim", 1);
    assert_eq!(all(log, "trim"), rest, "a trim behind another changes nothing");
    trim(log, "trim", 1_000);
    assert_eq!(
        extent(log, "trim"),
        span(4, 4, 0),
        "a trim beyond the end is one to the end"
    );
    assert_eq!(append(log, "trim", &[b"e"]), Position(4), "positions go on");
    assert_eq!(all(log, "trim"), [record(4, b"e")]);
    trim(log, "never-appended-to", 3);
    assert_eq!(append(log, "never-appended-to", &[b"x"]), Position(0));
}

fn appends_call_back(log: &Arc<dyn Log>) {
    const APPENDS: u64 = 100;
    let (ended, ends) = mpsc::channel::<(u64, Appended)>();
    for i in 0..APPENDS {
        loop {
            let ended = ended.clone();
            let done = Box::new(move |result| {
                // The receiver is there until all have come.
                let _ = ended.send((i, result));
            });
            match log.append_then("callback", vec![i.to_string().into_bytes()], done) {
                Ok(()) => break,
                Err(LogError::Busy) => {
                    // Waits for those that are ahead.
                    append(&**log, "callback", &[]);
                }
                Err(error) => panic!("append without waiting: {error}"),
            }
        }
    }
    drop(ended);
    let mut positions = Vec::new();
    for _ in 0..APPENDS {
        let (i, result) = ends
            .recv_timeout(Duration::from_secs(60))
            .unwrap_or_else(|error| panic!("an append did not call back: {error}"));
        let position = result.unwrap_or_else(|error| panic!("append {i}: {error}"));
        assert_eq!(
            read(&**log, "callback", position.0, 1),
            [record(position.0, i.to_string().as_bytes())]
        );
        positions.push(position.0);
    }
    assert!(ends.recv().is_err(), "an append calls back once");
    positions.sort_unstable();
    assert!(
        positions.iter().copied().eq(0..APPENDS),
        "each append has a position of its own"
    );
}

fn tails_ring(log: &dyn Log) {
    append(log, "tail", &[b"before"]);
    let tail = log.tail("tail").unwrap_or_else(|error| panic!("tail: {error}"));
    append(log, "tail-of-another", &[b"x"]);
    append(log, "tail", &[]);
    assert!(
        tail.try_recv().is_err(),
        "nothing rings but a record that is appended later"
    );
    for i in 1..=3 {
        append(log, "tail", &[b"x"]);
        tail.recv_timeout(Duration::from_secs(60))
            .unwrap_or_else(|error| panic!("the tail did not ring: {error}"));
        assert_eq!(read(log, "tail", i, 10), [record(i, b"x")]);
    }
    for _ in 0..100 {
        append(log, "tail", &[b"y"]);
    }
    assert!(
        tail.recv_timeout(Duration::from_secs(60)).is_ok(),
        "a tail that nobody listens to keeps its bell"
    );
    assert_eq!(read(log, "tail", 4, 1000).len(), 100);
}

fn concurrent_appends_are_whole_and_dense(log: &Arc<dyn Log>) {
    const THREADS: u8 = 8;
    const APPENDS: u8 = 20;
    let running: Vec<_> = (0..THREADS)
        .map(|thread| {
            let log = Arc::clone(log);
            thread::spawn(move || {
                let mut last = None;
                for i in 0..APPENDS {
                    let records: Vec<Vec<u8>> = (0..=i % 3).map(|part| vec![thread, i, part]).collect();
                    let position = log
                        .append("order", records.clone())
                        .unwrap_or_else(|error| panic!("append: {error}"));
                    assert!(Some(position) > last, "one thread's appends are in its order");
                    last = Some(position);
                    let found = read(&*log, "order", position.0, records.len());
                    assert!(
                        found.into_iter().map(|record| record.data).eq(records),
                        "a read after an append sees it, in one piece"
                    );
                }
            })
        })
        .collect();
    for thread in running {
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
    let records = all(&**log, "order");
    let appended: usize = (0..APPENDS).map(|i| usize::from(i % 3) + 1).sum();
    assert_eq!(records.len(), appended * usize::from(THREADS));
    assert!(
        records
            .iter()
            .map(|record| record.position.0)
            .eq(0..records.len() as u64),
        "positions are dense"
    );
}

fn reopening_keeps_everything(open: &mut dyn FnMut() -> Arc<dyn Log>) {
    let log = open();
    append(&*log, "reopen", &[b"a", b"bb", b"ccc"]);
    append(&*log, "emptied", &[b"x", b"y"]);
    trim(&*log, "reopen", 1);
    trim(&*log, "emptied", 2);
    drop(log);

    let log = open();
    assert_eq!(all(&*log, "reopen"), [record(1, b"bb"), record(2, b"ccc")]);
    assert_eq!(extent(&*log, "reopen"), span(1, 3, 5));
    assert_eq!(append(&*log, "reopen", &[b"d"]), Position(3));
    assert_eq!(
        append(&*log, "emptied", &[b"z"]),
        Position(2),
        "a log that was emptied does not begin anew"
    );
}
