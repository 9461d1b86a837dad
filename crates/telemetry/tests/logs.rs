//! The log as the worker writes it and the admin port reads it.

use contract::{FunctionId, RequestId, VersionNumber};
use millpond_telemetry::logs::{Filter, FunctionLog, LogOptions, Logs, Record, Stream};
use std::{
    fs,
    io::Write,
    num::NonZeroU32,
    path::Path,
    sync::{Arc, mpsc::RecvTimeoutError},
    thread,
    time::Duration,
};

/// Longer than anything here takes; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn id(name: &str) -> FunctionId {
    name.parse().unwrap()
}

fn version(n: u32) -> VersionNumber {
    VersionNumber(NonZeroU32::new(n).unwrap())
}

fn all(name: &str) -> Filter {
    Filter::function(id(name))
}

fn messages(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| &*record.message).collect()
}

/// Bounds that no test meets unless it narrows them.
fn roomy() -> LogOptions {
    LogOptions {
        file_bytes: 64 << 20,
        rate: 1 << 40,
        burst: 1 << 40,
        queue_lines: 100_000,
        queue_bytes: 1 << 30,
        queue_bytes_per_function: 1 << 30,
        follower_lines: 100_000,
    }
}

fn open(folder: &Path, options: LogOptions) -> (Logs, Arc<FunctionLog>) {
    let logs = Logs::open(folder, options).unwrap();
    let function = logs.function(&id("shop.resize"), version(1));
    (logs, function)
}

#[test]
fn lines_are_found_by_function_version_request_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    {
        let (logs, first) = open(folder.path(), roomy());
        let second = logs.function(&id("shop.resize"), version(2));
        let other = logs.function(&id("shop.ocr"), version(1));
        let mut lines = first.lines(RequestId(1), Stream::Stderr);
        lines.write(b"one\ntw");
        second.lines(RequestId(2), Stream::Stderr).write(b"between");
        lines.write(b"o\r\n\n\xff unfinished");
        drop(lines);
        first.platform(Some(RequestId(1)), "the function trapped");
        other.platform(None, "about itself");

        assert_eq!(logs.tail(&all("shop.ocr"), 9).unwrap()[0].request, None);
        assert_eq!(logs.tail(&all("shop.none"), 9).unwrap(), []);
        assert_eq!(
            messages(&logs.tail(&all("shop.resize"), 1).unwrap()),
            ["the function trapped"]
        );
        assert_eq!(logs.tail(&all("shop.resize"), 0).unwrap(), []);
    }
    // As a process leaves its file that is killed in the middle of a line.
    let file = folder.path().join("shop.resize.log");
    fs::File::options()
        .append(true)
        .open(file)
        .unwrap()
        .write_all(b"{\"time\":\"2026-")
        .unwrap();

    let (logs, first) = open(folder.path(), roomy());
    first.platform(Some(RequestId(1)), "after");
    let records = logs
        .tail(
            &Filter {
                request: Some(RequestId(1)),
                ..all("shop.resize")
            },
            99,
        )
        .unwrap();
    assert_eq!(
        messages(&records),
        [
            "one",
            "two",
            "",
            "\u{fffd} unfinished",
            "the function trapped",
            "after"
        ]
    );
    assert!(
        records
            .iter()
            .all(|record| record.request == Some(RequestId(1)) && record.version == version(1))
    );
    let records = logs
        .tail(
            &Filter {
                version: Some(version(2)),
                ..all("shop.resize")
            },
            99,
        )
        .unwrap();
    assert_eq!(messages(&records), ["between"]);

    logs.delete(&id("shop.resize")).unwrap();
    logs.delete(&id("shop.resize")).unwrap();
    assert_eq!(logs.tail(&all("shop.resize"), 99).unwrap(), []);
    first.platform(None, "anew");
    assert_eq!(messages(&logs.tail(&all("shop.resize"), 99).unwrap()), ["anew"]);
}

#[test]
fn the_disk_holds_two_files_of_bounded_size() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, function) = open(
        folder.path(),
        LogOptions {
            file_bytes: 10_000,
            ..roomy()
        },
    );
    for n in 0..2_000 {
        function.platform(None, &n.to_string());
        if n % 50 == 0 {
            logs.flush();
        }
    }
    let records = logs.tail(&all("shop.resize"), usize::MAX).unwrap();
    let first: usize = records[0].message.parse().unwrap();
    let expected: Vec<String> = (first..2_000).map(|n| n.to_string()).collect();
    assert_eq!(
        messages(&records),
        expected,
        "what is left is the end, without a gap"
    );
    assert!(first > 1_000);
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                entry.metadata().unwrap().len(),
            )
        })
        .collect();
    names.sort();
    assert_eq!(
        names.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
        ["shop.resize.log", "shop.resize.log.1"]
    );
    // One batch may cross the limit: 50 lines of 120 bytes here.
    assert!(
        names.iter().all(|(_, size)| *size < 10_000 + 50 * 150),
        "{names:?}"
    );
}

/// How many lines the log itself says were dropped.
fn reported(records: &[Record]) -> u64 {
    records
        .iter()
        .filter(|record| record.stream == Stream::Platform)
        .filter_map(|record| record.message.split_once(" lines dropped")?.0.parse::<u64>().ok())
        .sum()
}

#[test]
fn a_noisy_function_is_cut_and_told_and_others_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, noisy) = open(
        folder.path(),
        LogOptions {
            rate: 1,
            burst: 50_000,
            ..roomy()
        },
    );
    let quiet = logs.function(&id("shop.ocr"), version(1));
    let mut lines = noisy.lines(RequestId(1), Stream::Stderr);
    for _ in 0..10_000 {
        lines.write(b"noise\n");
    }
    drop(lines);
    quiet.lines(RequestId(2), Stream::Stderr).write(b"heard");
    logs.close();

    let logs = Logs::open(folder.path(), roomy()).unwrap();
    assert_eq!(messages(&logs.tail(&all("shop.ocr"), 9).unwrap()), ["heard"]);
    let records = logs.tail(&all("shop.resize"), usize::MAX).unwrap();
    let kept = records.iter().filter(|record| record.message == "noise").count() as u64;
    assert!((300..=400).contains(&kept), "{kept} lines of 133 bytes in 50,000");
    assert_eq!(kept + reported(&records), 10_000);
}

#[test]
fn a_report_does_not_wait_for_the_next_line() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, function) = open(
        folder.path(),
        LogOptions {
            rate: 1,
            burst: 1,
            ..roomy()
        },
    );
    let mut follower = logs.follow(&all("shop.resize"), 0).unwrap();
    function.platform(None, "too long for this budget");
    let record = follower.recv_timeout(PATIENCE).unwrap();
    assert_eq!(reported(&[(*record).clone()]), 1);
}

#[test]
fn lines_of_many_cores_all_arrive_each_core_in_order() {
    const CORES: u128 = 4;
    const EACH: usize = 3_000;
    let folder = tempfile::tempdir().unwrap();
    let (logs, function) = open(folder.path(), roomy());
    thread::scope(|scope| {
        for core in 0..CORES {
            let function = &function;
            scope.spawn(move || {
                for n in 0..EACH {
                    let mut lines = function.lines(RequestId(core), Stream::Stdout);
                    lines.write(b"line ");
                    lines.write(n.to_string().as_bytes());
                }
            });
        }
    });
    for core in 0..CORES {
        let records = logs
            .tail(
                &Filter {
                    request: Some(RequestId(core)),
                    ..all("shop.resize")
                },
                usize::MAX,
            )
            .unwrap();
        let expected: Vec<String> = (0..EACH).map(|n| format!("line {n}")).collect();
        assert_eq!(messages(&records), expected);
    }
}

#[test]
fn a_follower_joins_tail_and_future_without_gap_or_repetition() {
    const LINES: usize = 5_000;
    let folder = tempfile::tempdir().unwrap();
    let (logs, function) = open(
        folder.path(),
        LogOptions {
            file_bytes: 100_000_000,
            ..roomy()
        },
    );
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..LINES {
                function.platform(None, &n.to_string());
            }
        });
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let mut follower = logs.follow(&all("shop.resize"), usize::MAX).unwrap();
                    for n in 0..LINES {
                        assert_eq!(follower.recv_timeout(PATIENCE).unwrap().message, n.to_string());
                    }
                }
            });
        }
    });
}

#[test]
fn a_slow_follower_is_told_what_it_missed() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, function) = open(
        folder.path(),
        LogOptions {
            follower_lines: 10,
            ..roomy()
        },
    );
    let mut follower = logs.follow(&all("shop.resize"), 0).unwrap();
    let write = |range: std::ops::Range<u32>| {
        range.for_each(|n| function.platform(None, &n.to_string()));
        logs.flush();
    };
    write(0..100);
    for n in 0..5 {
        assert_eq!(follower.recv_timeout(PATIENCE).unwrap().message, n.to_string());
    }
    write(100..101);
    let rest: Vec<_> = (0..7).map(|_| follower.recv_timeout(PATIENCE).unwrap()).collect();
    assert_eq!(rest[4].message, "9");
    assert!(
        rest[5].message.starts_with("90 lines left out"),
        "{}",
        rest[5].message
    );
    assert_eq!(rest[6].message, "100");
    assert_eq!(
        follower.recv_timeout(Duration::ZERO),
        Err(RecvTimeoutError::Timeout)
    );

    write(0..15);
    for n in 0..10 {
        assert_eq!(follower.recv_timeout(PATIENCE).unwrap().message, n.to_string());
    }
    let last = follower.recv_timeout(PATIENCE).unwrap();
    assert!(
        last.message.starts_with("5 lines left out"),
        "also when nothing follows"
    );
}

#[test]
fn followers_work_in_tokio_and_end_with_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, function) = open(folder.path(), roomy());
    function.platform(None, "before");
    let mut follower = logs.follow(&all("shop.resize"), 10).unwrap();
    let mut blocking = logs.follow(&all("shop.ocr"), 0).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let writer = thread::spawn(move || {
        for n in 0..1_000 {
            function.platform(None, &n.to_string());
        }
        logs.close();
        function.platform(None, "too late");
        (logs, function)
    });
    let received = runtime.block_on(async {
        let mut received = Vec::new();
        while let Some(record) = tokio::time::timeout(PATIENCE, follower.recv()).await.unwrap() {
            received.push(record.message.clone());
        }
        received
    });
    assert_eq!(received.len(), 1_001);
    assert_eq!(received[0], "before");
    assert_eq!(
        blocking.recv_timeout(PATIENCE),
        Err(RecvTimeoutError::Disconnected)
    );
    let (logs, _function) = writer.join().unwrap();
    let mut late = logs.follow(&all("shop.resize"), 1).unwrap();
    assert_eq!(late.recv_timeout(PATIENCE).unwrap().message, "999");
    assert_eq!(late.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn a_file_that_cannot_be_written_harms_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, broken) = open(folder.path(), roomy());
    let fine = logs.function(&id("shop.ocr"), version(1));
    let obstacle = folder.path().join("shop.resize.log");
    fs::create_dir(&obstacle).unwrap();
    let mut follower = logs.follow(&all("shop.resize"), 0).unwrap();
    broken.platform(None, "lost to the disk");
    fine.platform(None, "kept");
    assert_eq!(
        follower.recv_timeout(PATIENCE).unwrap().message,
        "lost to the disk"
    );
    assert_eq!(messages(&logs.tail(&all("shop.ocr"), 9).unwrap()), ["kept"]);
    assert!(
        logs.tail(&all("shop.resize"), 9)
            .unwrap_err()
            .to_string()
            .contains("shop.resize")
    );
    fs::remove_dir(obstacle).unwrap();
    broken.platform(None, "written again");
    assert_eq!(
        messages(&logs.tail(&all("shop.resize"), 9).unwrap()),
        ["written again"]
    );
}

#[test]
fn more_functions_than_open_files() {
    let folder = tempfile::tempdir().unwrap();
    let logs = Logs::open(folder.path(), roomy()).unwrap();
    let names: Vec<String> = (0..150).map(|n| format!("many.f{n}")).collect();
    for round in ["first", "second"] {
        for name in &names {
            logs.function(&id(name), version(1)).platform(None, round);
        }
        logs.flush();
    }
    for name in &names {
        assert_eq!(messages(&logs.tail(&all(name), 9).unwrap()), ["first", "second"]);
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Logs::open(file.path(), roomy()).unwrap_err().to_string();
    assert!(error.contains(&file.path().display().to_string()), "{error}");
}
