//! How much is taken of calls, how often they are tried, and how long they are kept.

use std::time::Duration;

/// How much is taken, how often it is tried, and how long it is kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// Calls that may be pending (accepted and without an outcome).
    pub pending: usize,
    /// Bytes of pending calls' requests in the log.
    pub pending_bytes: u64,
    /// Bytes of one request's body; at most 6 MiB, so that it is one record.
    pub body: usize,
    /// Bytes of one response's body that are kept; at most 6 MiB. A larger one is omitted.
    pub response_body: usize,
    /// Results that are kept; the oldest give way.
    pub results: usize,
    /// Bytes of results that are kept; the oldest give way.
    pub result_bytes: u64,
    /// How long a result is kept.
    pub retention: Duration,
    /// Dead letters that are kept; the oldest give way.
    pub dead_letters: usize,
    /// Bytes of dead letters that are kept; the oldest give way.
    pub dead_letter_bytes: u64,
    /// How long a dead letter is kept.
    pub dead_letter_retention: Duration,
    /// The delay after a call's first failure, doubled after each further one.
    pub first_delay: Duration,
    /// No delay is longer.
    pub longest_delay: Duration,
    /// How often the delivery of an outcome may fail before it is a dead letter.
    pub callback_attempts: u32,
    /// Attempts one after the other that the node's end may interrupt, before the call is taken for its cause.
    pub interruptions: u32,
    /// Bytes of garbage in the log that are not worth carrying what is among them.
    pub garbage: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pending: 100_000,
            pending_bytes: 1 << 30,
            body: 6 << 20,
            response_body: 6 << 20,
            results: 100_000,
            result_bytes: 1 << 30,
            retention: Duration::from_hours(1),
            dead_letters: 10_000,
            dead_letter_bytes: 256 << 20,
            dead_letter_retention: Duration::from_hours(14 * 24),
            first_delay: Duration::from_secs(1),
            longest_delay: Duration::from_mins(5),
            callback_attempts: 16,
            interruptions: 5,
            garbage: 16 << 20,
        }
    }
}
