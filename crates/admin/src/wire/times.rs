//! Times as text.

use std::time::{Duration, SystemTime};

/// A time that is kept in milliseconds since 1970.
pub(crate) fn milliseconds(since: u64) -> String {
    moment(calls::Timestamp(since))
}

/// A time as the API writes it. Clocks before 1970 or after 9999 are broken, and the format has no such times.
pub(crate) fn time(time: SystemTime) -> String {
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_millis(time.clamp(SystemTime::UNIX_EPOCH, last)).to_string()
}

pub(super) fn moment(timestamp: calls::Timestamp) -> String {
    let since = timestamp.since(calls::Timestamp::default());
    time(
        SystemTime::UNIX_EPOCH
            .checked_add(since)
            .unwrap_or(SystemTime::UNIX_EPOCH),
    )
}
