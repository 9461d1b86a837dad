//! A line of a log, and what a reader asks for.

use contract::{FunctionId, RequestId, VersionNumber};
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// The guest's standard output, where that is not the response.
    Stdout,
    /// The guest's standard error.
    Stderr,
    /// The platform, about this function.
    Platform,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When the line was complete. Written as RFC 3339 in UTC with microseconds.
    #[serde(with = "rfc3339")]
    pub time: SystemTime,
    /// The function.
    pub function: FunctionId,
    /// Its version.
    pub version: VersionNumber,
    /// The request, unless the line is about the function as a whole.
    #[serde(rename = "request_id", default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// Where the line comes from.
    pub stream: Stream,
    /// The line, without its end. What was not UTF-8 is replaced by U+FFFD.
    pub message: String,
    /// How many bytes of the line were left out because it was too long.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Record {
    /// Appends the record as one JSON object and a newline. Control characters of the message stay escaped, so a
    /// terminal that shows the line obeys none of them.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let start = out.len();
        match serde_json::to_writer(&mut *out, self) {
            Ok(()) => out.push(b'\n'),
            // Strings and numbers into memory: nothing here can fail, and half a line must not stay if it did.
            Err(_) => out.truncate(start),
        }
    }

    /// Reads what [`Record::write_json`] wrote; `None` for anything else.
    pub fn from_json(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}

/// Which records of a function are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Those of this function,
    pub function: FunctionId,
    /// if given, of this version only,
    pub version: Option<VersionNumber>,
    /// and, if given, of this request only.
    pub request: Option<RequestId>,
}

impl Filter {
    /// All records of a function.
    pub fn function(function: FunctionId) -> Self {
        Self {
            function,
            version: None,
            request: None,
        }
    }

    /// Whether a record is meant.
    pub fn accepts(&self, record: &Record) -> bool {
        record.function == self.function
            && self.version.is_none_or(|version| record.version == version)
            && self.request.is_none_or(|request| record.request == Some(request))
    }
}

mod rfc3339 {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::time::{Duration, SystemTime};

    pub(super) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        // A clock before 1970 or after 9999 is a broken clock, and the format has no such times.
        let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
        let time = (*time).clamp(SystemTime::UNIX_EPOCH, last);
        serializer.collect_str(&humantime::format_rfc3339_micros(time))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_rfc3339(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{num::NonZeroU32, time::Duration};

    fn record(message: &str) -> Record {
        Record {
            time: SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456),
            function: "shop.resize".parse().unwrap(),
            version: VersionNumber(NonZeroU32::MIN),
            request: Some(RequestId(0xabc)),
            stream: Stream::Stderr,
            message: message.to_owned(),
            omitted: 0,
        }
    }

    #[test]
    fn the_format_is_what_readers_were_promised() {
        let mut line = Vec::new();
        record("a \u{1b}[31m\"b\"\n").write_json(&mut line);
        assert_eq!(
            String::from_utf8(line).unwrap(),
            concat!(
                r#"{"time":"2023-11-14T22:13:20.123456Z","function":"shop.resize","version":1,"#,
                r#""request_id":"00000000000000000000000000000abc","stream":"stderr","#,
                r#""message":"a \u001b[31m\"b\"\n"}"#,
                "\n"
            )
        );
    }

    #[test]
    fn broken_clocks_do_no_harm() {
        let (epoch, far) = (SystemTime::UNIX_EPOCH, Duration::from_secs(1 << 40));
        for (time, shown) in [
            (epoch - Duration::from_secs(1), "1970-01-01T00:00:00.000000Z"),
            (epoch + far, "9999-12-31T23:59:59.000000Z"),
        ] {
            let mut line = Vec::new();
            Record { time, ..record("x") }.write_json(&mut line);
            assert!(line.starts_with(format!(r#"{{"time":"{shown}""#).as_bytes()));
            assert!(Record::from_json(&line).is_some());
        }
    }

    proptest! {
        #[test]
        fn records_read_back(message: String, micros in 0u64..1 << 52, request: Option<u128>, omitted: u64) {
            let record = Record {
                time: SystemTime::UNIX_EPOCH + Duration::from_micros(micros),
                request: request.map(RequestId),
                omitted,
                ..record(&message)
            };
            let mut line = Vec::new();
            record.write_json(&mut line);
            prop_assert_eq!(line.iter().filter(|b| **b < b' ').count(), 1, "one newline and no other control character");
            prop_assert_eq!(Record::from_json(&line), Some(record));
        }
    }
}
