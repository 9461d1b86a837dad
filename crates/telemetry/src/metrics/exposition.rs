//! A page of metrics: families of series, as Prometheus text or, through [`Exposition::families`], in any other form.
//!
//! The text exposition format, version 0.0.4, is written here rather than with the `prometheus-client` crate: its
//! histograms are of floats behind atomics shared by all cores, a collector that renders ours must first turn each into
//! vectors of floats, and it writes OpenMetrics, not this format. The format itself is these few functions.

use super::histogram::{Shown, Snapshot, Unit};
use std::fmt::{self, Display, Write};

/// What kind of numbers a family holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only goes up; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Buckets, a sum and a count.
    Histogram,
}

/// Labels of a series.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// A page of metrics under construction.
#[derive(Debug, Default)]
pub struct Exposition {
    families: Vec<Family>,
}

/// One family of series: all that share a name.
#[derive(Debug)]
pub struct Family {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) series: Vec<Series>,
}

/// One series of a family.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: Value,
}

/// What a series is worth.
#[derive(Debug)]
pub(crate) enum Value {
    Number(Number),
    Histogram(Box<Snapshot>),
}

/// A counter's or gauge's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A whole number.
    Whole(i64),
    /// Kept in nanoseconds, shown in seconds.
    Nanoseconds(u64),
}

impl From<u64> for Number {
    /// Beyond 2⁶³, where a counter of anything has no business, it stays there.
    fn from(n: u64) -> Self {
        Self::Whole(i64::try_from(n).unwrap_or(i64::MAX))
    }
}

impl From<i64> for Number {
    fn from(n: i64) -> Self {
        Self::Whole(n)
    }
}

impl From<Shown> for Number {
    fn from(Shown(value, unit): Shown) -> Self {
        match unit {
            Unit::Seconds => Self::Nanoseconds(value),
            Unit::Count => value.into(),
        }
    }
}

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Whole(n) => n.fmt(f),
            Self::Nanoseconds(n) => Shown(n, Unit::Seconds).fmt(f),
        }
    }
}

struct Escaped<'a> {
    text: &'a str,
    quotes: bool,
}

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.text.chars() {
            match c {
                '\\' => f.write_str(r"\\")?,
                '\n' => f.write_str(r"\n")?,
                '"' if self.quotes => f.write_str("\\\"")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

fn write(text: &mut String, arguments: fmt::Arguments<'_>) {
    // Writing to a string cannot fail; only a `Display` that lies could, and would lose its own number.
    let _ = text.write_fmt(arguments);
}

impl Exposition {
    /// The media type of [`Exposition::into_text`].
    pub const MEDIA_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins a family. Each name may be begun once.
    pub fn family(&mut self, kind: Kind, name: &str, help: &str) -> &mut Family {
        let family = Family {
            kind,
            name: name.to_owned(),
            help: help.to_owned(),
            series: Vec::new(),
        };
        let last = self.families.len();
        self.families.push(family);
        &mut self.families[last]
    }

    /// A family of one series without labels.
    pub fn single(&mut self, kind: Kind, name: &str, help: &str, value: impl Into<Number>) {
        self.family(kind, name, help).sample(&[], value);
    }

    /// What was begun, in that order.
    pub(crate) fn families(&self) -> &[Family] {
        &self.families
    }

    /// The finished page.
    pub fn into_text(self) -> String {
        let mut text = String::new();
        self.families.iter().for_each(|family| family.write(&mut text));
        text
    }
}

impl Family {
    /// Adds a series of a counter or gauge.
    pub fn sample(&mut self, labels: Labels<'_>, value: impl Into<Number>) -> &mut Self {
        self.series(labels, Value::Number(value.into()))
    }

    /// Adds a histogram; nothing while it has no values.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, values: &Snapshot) -> &mut Self {
        if values.count() == 0 {
            return self;
        }
        self.series(labels, Value::Histogram(Box::new(values.clone())))
    }

    fn series(&mut self, labels: Labels<'_>, value: Value) -> &mut Self {
        let labels = labels
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        self.series.push(Series { labels, value });
        self
    }

    fn write(&self, text: &mut String) {
        let kind = match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = Escaped {
            text: &self.help,
            quotes: false,
        };
        let name = &self.name;
        write(text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        for Series { labels, value } in &self.series {
            let mut line = |suffix: &str, bound: Option<&dyn Display>, value: &dyn Display| {
                self.line(text, suffix, labels, bound, value);
            };
            match value {
                Value::Number(number) => line("", None, number),
                Value::Histogram(values) => {
                    for (bound, below) in values.cumulative() {
                        line("_bucket", Some(&bound), &below);
                    }
                    line("_bucket", Some(&"+Inf"), &values.count());
                    line("_sum", None, &values.sum());
                    line("_count", None, &values.count());
                }
            }
        }
    }

    fn line(
        &self,
        text: &mut String,
        suffix: &str,
        labels: &[(String, String)],
        bound: Option<&dyn Display>,
        value: &dyn Display,
    ) {
        text.push_str(&self.name);
        text.push_str(suffix);
        let mut separator = '{';
        for (name, value) in labels {
            let value = Escaped {
                text: value,
                quotes: true,
            };
            write(text, format_args!("{separator}{name}=\"{value}\""));
            separator = ',';
        }
        if let Some(bound) = bound {
            write(text, format_args!("{separator}le=\"{bound}\""));
            separator = ',';
        }
        if separator == ',' {
            text.push('}');
        }
        write(text, format_args!(" {value}\n"));
    }
}
