//! When schedules are due, and what is done about runs that were missed.

use millpond_triggers::{GRACE, MOST_MISSED, Missed, SETBACK, Timing, decide, rfc3339};
use proptest::prelude::*;
use std::time::Duration;

fn at(text: &str) -> u64 {
    let at: jiff::Timestamp = text.parse().unwrap();
    at.as_millisecond().try_into().unwrap()
}

/// The next times, in UTC.
fn next(pattern: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let timing = Timing::cron(pattern, zone).unwrap();
    let mut last = at(from);
    let mut found = Vec::new();
    for _ in 0..count {
        last = timing.next(last).unwrap();
        found.push(rfc3339(last));
    }
    found
}

#[test]
fn expressions_mean_what_crontabs_mean() {
    for (pattern, from, due) in [
        ("*/5 * * * *", "2026-03-01T10:02:03.5Z", "2026-03-01T10:05:00Z"),
        ("*/5 * * * *", "2026-03-01T10:05:00Z", "2026-03-01T10:10:00Z"),
        ("0 2 * * MON", "2026-03-01T10:00:00Z", "2026-03-02T02:00:00Z"),
        ("30 6 1 1 *", "2026-03-01T10:00:00Z", "2027-01-01T06:30:00Z"),
        ("*/10 * * * * *", "2026-03-01T10:00:01Z", "2026-03-01T10:00:10Z"),
        ("0 0 29 2 *", "2026-03-01T10:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"),
        ("0 0 L * *", "2027-02-01T00:00:00Z", "2027-02-28T00:00:00Z"),
        // Either the day or the weekday, as crontab(5) says.
        ("0 0 13 * FRI", "2026-03-01T00:00:00Z", "2026-03-06T00:00:00Z"),
        ("@daily", "2026-03-01T10:00:00Z", "2026-03-02T00:00:00Z"),
        ("0 0 * * 7", "2026-03-02T00:00:00Z", "2026-03-08T00:00:00Z"),
    ] {
        assert_eq!(next(pattern, "UTC", from, 1), [due], "{pattern}");
    }
}

#[test]
fn a_time_that_the_clock_skips_is_made_up_for_and_one_that_it_repeats_is_due_once() {
    // Berlin: on 29 March 2026 two o'clock becomes three, on 25 October three becomes two.
    assert_eq!(
        next("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 3),
        [
            "2026-03-28T01:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-30T00:30:00Z"
        ]
    );
    assert_eq!(
        next("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    );
    // What runs every half hour does so in real time, through both.
    assert_eq!(
        next("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:20:00Z", 3),
        [
            "2026-03-29T00:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-29T01:30:00Z"
        ]
    );
    assert_eq!(
        next("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:20:00Z", 4),
        [
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-25T02:00:00Z"
        ]
    );
    // New York changes on another day, and at its own hour.
    assert_eq!(
        next("0 9 * * *", "America/New_York", "2026-03-07T20:00:00Z", 2),
        ["2026-03-08T13:00:00Z", "2026-03-09T13:00:00Z"]
    );
}

#[test]
fn what_can_never_be_is_refused() {
    for pattern in [
        "",
        "* * * *",
        "* * * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "a b c d e",
        "*/0 * * * *",
        "5-1 * * * *",
        "0 0 30 2 *",
        "0 0 31 4 *",
        "@reboot",
        "@",
        "1,,2 * * * *",
        "* * * * MONDAY-",
    ] {
        assert!(Timing::cron(pattern, "UTC").is_err(), "{pattern}");
    }
    for zone in ["", "Nowhere/At_All", "+01:00", "UTC+1", "../etc/passwd"] {
        assert!(Timing::cron("* * * * *", zone).is_err(), "{zone}");
    }
}

const MINUTE: u64 = 60_000;

fn every(seconds: u64) -> Timing {
    Timing::every(Duration::from_secs(seconds))
}

#[test]
fn policies_say_what_becomes_of_missed_runs() {
    let (begin, timing) = (at("2026-03-01T10:00:00Z"), every(60));
    let now = begin + 10 * MINUTE + 30_000;
    let runs = |missed| decide(&timing, missed, begin, now);
    assert!(runs(Missed::Skip).runs.is_empty());
    assert_eq!(runs(Missed::Once).runs, [begin + 10 * MINUTE]);
    let each: Vec<_> = (1..=10).map(|nth| begin + nth * MINUTE).collect();
    assert_eq!(runs(Missed::All).runs, each);
    for (missed, left_out) in [(Missed::Skip, true), (Missed::Once, true), (Missed::All, false)] {
        assert_eq!(runs(missed).last, begin + 10 * MINUTE, "{missed:?}");
        assert_eq!(runs(missed).left_out, left_out, "{missed:?}");
        // And then there is nothing left to do.
        assert!(decide(&timing, missed, runs(missed).last, now).runs.is_empty());
    }
}

#[test]
fn what_is_hardly_late_is_not_missed() {
    let begin = at("2026-03-01T10:00:00Z");
    for missed in [Missed::Skip, Missed::Once, Missed::All] {
        let decision = decide(&every(1), missed, begin, begin + 3_000);
        assert_eq!(decision.runs, [begin + 1_000, begin + 2_000, begin + 3_000]);
        assert!(!decision.left_out);
    }
}

#[test]
fn making_up_is_bounded() {
    let begin = at("2026-03-01T10:00:00Z");
    for timing in [every(1), Timing::cron("* * * * * *", "UTC").unwrap()] {
        let now = begin + 365 * 24 * 60 * MINUTE;
        let decision = decide(&timing, Missed::All, begin, now);
        let on_time = usize::try_from(GRACE / 1_000).unwrap() + 1;
        assert_eq!(decision.runs.len(), MOST_MISSED + on_time);
        assert_eq!((decision.last, decision.left_out), (now, true));
    }
}

#[test]
fn a_clock_that_is_set_back_doubles_nothing() {
    let last = at("2026-03-01T10:00:00Z");
    let timing = Timing::cron("* * * * *", "UTC").unwrap();
    for back in [1, 1_000, MINUTE, 60 * MINUTE, SETBACK] {
        let decision = decide(&timing, Missed::All, last, last - back);
        assert_eq!(
            (decision.runs.len(), decision.last, decision.anew),
            (0, last, false)
        );
    }
    let corrected = decide(&timing, Missed::All, last, last - SETBACK - 1);
    assert_eq!(
        (corrected.runs.len(), corrected.last, corrected.anew),
        (0, last - SETBACK - 1, true)
    );
}

const PATTERNS: [&str; 12] = [
    "* * * * *",
    "*/7 * * * *",
    "30 2 * * *",
    "0 */6 * * *",
    "15 1-3 * * *",
    "0 0 1 * *",
    "0 12 * * MON-FRI",
    "59 23 31 12 *",
    "0 0 29 2 *",
    "*/20 * * * * *",
    "0,30 2,3 * * SUN",
    "0 3 L * *",
];
const ZONES: [&str; 5] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
];

fn timing() -> impl Strategy<Value = Timing> {
    prop_oneof![
        (
            proptest::sample::select(&PATTERNS[..]),
            proptest::sample::select(&ZONES[..])
        )
            .prop_map(|(pattern, zone)| Timing::cron(pattern, zone).unwrap()),
        (1..100_000_u64).prop_map(every),
    ]
}

proptest! {
    /// Both ways find the same times: or else runs would be lost or doubled.
    #[test]
    fn forwards_is_backwards(timing in timing(), begin in 1_700_000_000_000..2_000_000_000_000_u64, span in 1..40_u64) {
        let mut forwards = Vec::new();
        let mut at = begin;
        for _ in 0..span {
            at = timing.next(at).unwrap();
            forwards.push(at);
        }
        let mut backwards: Vec<_> = timing.back(begin, at).collect();
        backwards.reverse();
        prop_assert_eq!(forwards, backwards);
    }

    /// However often one looks, and whatever stops in between, each time is due once.
    #[test]
    fn nothing_is_lost_or_doubled(
        timing in timing(),
        begin in 1_700_000_000_000..2_000_000_000_000_u64,
        looks in proptest::collection::vec(0..8_000_000_u64, 1..20),
    ) {
        let (mut last, mut now, mut runs) = (begin, begin, Vec::new());
        for step in looks {
            now += step;
            let decision = decide(&timing, Missed::All, last, now);
            last = decision.last;
            if decision.left_out {
                runs.clear();
            }
            runs.extend(decision.runs);
        }
        let mut expected: Vec<_> = timing.back(begin, now).take(runs.len()).collect();
        expected.reverse();
        prop_assert_eq!(&runs, &expected);
        prop_assert!(timing.next(last).unwrap() > now);
    }

    #[test]
    fn whatever_is_written_panics_nothing(pattern in "[-0-9*/, LW#@A-Z?+]{0,30}", zone in "[A-Za-z/_]{0,20}") {
        let _ = Timing::cron(&pattern, "UTC");
        let _ = Timing::cron("* * * * *", &zone);
    }
}
