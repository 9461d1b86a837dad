//! When a schedule is due.

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{Timestamp, Zoned, tz::TimeZone};
use std::time::Duration;

/// Milliseconds since the Unix epoch, by the wall clock.
pub type Milliseconds = u64;

/// The shortest interval of a schedule; cron expressions know no shorter one either.
pub const SHORTEST: Duration = Duration::from_secs(1);

/// When a schedule is due.
///
/// Daylight saving is treated as Vixie's cron does: a time of day that the clock skips is made up for as soon as it goes on,
/// one that it repeats is due the first time; what runs every so many minutes or hours goes on with the real time.
#[derive(Clone, Debug)]
pub enum Timing {
    /// At times of the calendar in a time zone.
    Cron {
        /// Which.
        pattern: Box<Cron>,
        /// Where.
        zone: TimeZone,
    },
    /// So many milliseconds after the last time.
    Every(Milliseconds),
}

/// A schedule that cannot be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimingError {
    /// Not five or six fields.
    #[error(
        "has {0} fields; it needs five (minute, hour, day, month, weekday), or six with the second first"
    )]
    Fields(usize),
    /// A field that means nothing.
    #[error("is not a cron expression: {0}")]
    Pattern(String),
    /// A date that does not exist.
    #[error("is never due: there is no such date")]
    Never,
    /// No such zone in the IANA database.
    #[error("is not a time zone of the IANA database")]
    Zone,
}

fn zoned(at: Milliseconds, zone: &TimeZone) -> Option<Zoned> {
    let at = Timestamp::from_millisecond(i64::try_from(at).ok()?).ok()?;
    Some(at.to_zoned(zone.clone()))
}

fn milliseconds(at: &Zoned) -> Option<Milliseconds> {
    at.timestamp().as_millisecond().try_into().ok()
}

/// A time as RFC 3339 writes it, in UTC, to the millisecond.
pub fn rfc3339(at: Milliseconds) -> String {
    let at = i64::try_from(at)
        .ok()
        .and_then(|at| Timestamp::from_millisecond(at).ok());
    at.unwrap_or(Timestamp::MAX).to_string()
}

impl Timing {
    /// Reads a cron expression and the name of a time zone.
    pub fn cron(pattern: &str, zone: &str) -> Result<Self, TimingError> {
        let zone = Self::zone(zone)?;
        let fields = pattern.split_whitespace().count();
        let nickname = fields == 1 && pattern.trim().starts_with('@');
        if !nickname && !(5..=6).contains(&fields) {
            return Err(TimingError::Fields(fields));
        }
        // The parser takes them for nothing.
        let empty = |field: &str| field.split(',').any(str::is_empty);
        if pattern.split_whitespace().any(empty) {
            return Err(TimingError::Pattern("a list has an empty entry".to_owned()));
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Optional)
            .year(Year::Disallowed)
            .build();
        let parsed = parser
            .parse(pattern)
            .map_err(|error| TimingError::Pattern(error.to_string()))?;
        let timing = Self::Cron {
            pattern: Box::new(parsed),
            zone,
        };
        // Whatever the calendar can do, it does within 28 years of any day of this century.
        match timing.next(SOME_DAY) {
            Some(_) => Ok(timing),
            None => Err(TimingError::Never),
        }
    }

    fn zone(name: &str) -> Result<TimeZone, TimingError> {
        TimeZone::get(name).map_err(|_| TimingError::Zone)
    }

    /// Whether the IANA database has a zone of this name.
    pub fn is_zone(name: &str) -> bool {
        Self::zone(name).is_ok()
    }

    /// An interval, at least [`SHORTEST`].
    pub fn every(interval: Duration) -> Self {
        let interval = interval.max(SHORTEST);
        Self::Every(u64::try_from(interval.as_millis()).unwrap_or(u64::MAX))
    }

    /// The first time after `last` when it is due; of an interval, counted from there.
    pub fn next(&self, last: Milliseconds) -> Option<Milliseconds> {
        match self {
            Self::Cron { pattern, zone } => {
                let found = pattern.find_next_occurrence(&zoned(last, zone)?, false).ok()?;
                // The expression counts whole seconds, whatever fraction it was asked from.
                milliseconds(&found).filter(|next| *next > last)
            }
            Self::Every(interval) => last.checked_add(*interval),
        }
    }

    /// The times in `(last, until]` when it is due, the latest first.
    pub fn back(
        &self,
        last: Milliseconds,
        until: Milliseconds,
    ) -> Box<dyn Iterator<Item = Milliseconds> + '_> {
        match self {
            Self::Every(interval) => {
                let interval = (*interval).max(1);
                let count = until.saturating_sub(last) / interval;
                Box::new((1..=count).rev().map(move |nth| last + nth * interval))
            }
            Self::Cron { pattern, zone } => {
                let mut at = zoned(until, zone).map(|at| (at, true));
                Box::new(std::iter::from_fn(move || {
                    let (from, inclusive) = at.take()?;
                    let found = pattern.find_previous_occurrence(&from, inclusive).ok()?;
                    let due = milliseconds(&found)?;
                    at = Some((found, false));
                    (due > last && due <= until).then_some(due)
                }))
            }
        }
    }
}

/// The beginning of 2024.
const SOME_DAY: Milliseconds = 1_704_067_200_000;
