//! Quantities as people write them: `"64MiB"`, `"30s"`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr, time::Duration};

/// A number of bytes. Written `"64MiB"` (binary) or `"6MB"` (decimal); a bare number is bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(pub u64);

/// A quantity that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not {expected}")]
pub struct UnitError {
    given: String,
    expected: &'static str,
}

const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

const DURATIONS: [(&str, u64); 6] = [
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
];

fn parse(text: &str, units: &[(&str, u64)], bare: Option<u64>) -> Option<u64> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = (&text[..split], text[split..].trim());
    let scale = match unit {
        "" => bare?,
        _ => units.iter().find(|(name, _)| *name == unit)?.1,
    };
    match number.split_once('.') {
        None => number.parse::<u64>().ok()?.checked_mul(scale),
        Some((whole, fraction)) if !fraction.is_empty() && fraction.len() <= 9 => {
            let parts = 10u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
            let fraction = fraction.parse::<u64>().ok()?.checked_mul(scale)? / parts;
            whole
                .parse::<u64>()
                .ok()?
                .checked_mul(scale)?
                .checked_add(fraction)
        }
        Some(_) => None,
    }
}

impl ByteSize {
    /// `n` mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// As `usize`, saturating on 32-bit hosts.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, &SIZES, Some(1)).map(Self).ok_or_else(|| UnitError {
            given: text.to_owned(),
            expected: "a size: write a number and B, KiB, MiB, GiB, KB, MB or GB, for example \"64MiB\"",
        })
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, scale) in SIZES {
            if self.0 >= scale && self.0.is_multiple_of(scale) {
                return write!(f, "{}{name}", self.0 / scale);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl fmt::Debug for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Reads a duration: a number and `us`, `ms`, `s`, `m` or `h`.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    parse(text, &DURATIONS, None)
        .map(Duration::from_nanos)
        .ok_or_else(|| UnitError {
            given: text.to_owned(),
            expected: "a duration: write a number and us, ms, s, m or h, for example \"30s\"",
        })
}

/// Writes a duration so that [`parse_duration`] reads it back.
pub fn format_duration(duration: Duration) -> String {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    for (name, scale) in [
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
    ] {
        if nanos >= scale && nanos.is_multiple_of(scale) {
            return format!("{}{name}", nanos / scale);
        }
    }
    format!("{}us", nanos / 1_000)
}

/// `#[serde(with = "contract::units::text")]` for durations.
pub mod text {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    /// Writes it as text.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&super::format_duration(*duration))
    }

    /// Reads it from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_duration(&text).map_err(serde::de::Error::custom)
    }
}

/// `#[serde(with = "contract::units::maybe")]` for durations that may be absent.
pub mod maybe {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    /// Writes it as text.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.collect_str(&super::format_duration(*duration)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads it from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| super::parse_duration(&text))
            .transpose()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("6MB", 6_000_000),
            ("1.5GiB", 3 << 29),
            ("0B", 0),
            ("17", 17),
        ] {
            assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize(bytes)), "{text}");
            let size = ByteSize(bytes);
            assert_eq!(size.to_string().parse::<ByteSize>(), Ok(size));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "MiB",
            "64 mib",
            "-1B",
            "1.B",
            "1..2KB",
            "99999999999TiB",
            "1e9",
            "18446744073709551616",
        ] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        for text in ["", "30", "s", "5 parsecs", "-1s", "999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_read_back() {
        for text in ["30s", "250ms", "2h", "90m", "15us"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }
}
