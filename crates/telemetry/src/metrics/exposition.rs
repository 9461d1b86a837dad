//! The Prometheus text exposition format, version 0.0.4.
//!
//! Written here rather than with the `prometheus-client` crate: its histograms are of floats behind atomics shared by all
//! cores, a collector that renders ours must first turn each into vectors of floats, and it writes OpenMetrics, not this
//! format. The format itself is these few functions.

use super::histogram::Snapshot;
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
    text: String,
}

/// One family of series: all that share a name.
#[derive(Debug)]
pub struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
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
    /// The media type of the page.
    pub const MEDIA_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins a family. Each name may be begun once.
    pub fn family<'a>(&'a mut self, kind: Kind, name: &'a str, help: &str) -> Family<'a> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = Escaped {
            text: help,
            quotes: false,
        };
        write(
            &mut self.text,
            format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"),
        );
        Family {
            text: &mut self.text,
            name,
        }
    }

    /// A family of one series without labels.
    pub fn single(&mut self, kind: Kind, name: &str, help: &str, value: impl Display) {
        self.family(kind, name, help).sample(&[], value);
    }

    /// The finished page.
    pub fn into_text(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// Adds a series of a counter or gauge.
    pub fn sample(&mut self, labels: Labels<'_>, value: impl Display) -> &mut Self {
        self.line("", labels, None, value)
    }

    /// Adds a histogram; nothing while it has no values.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, values: &Snapshot) -> &mut Self {
        let count = values.count();
        if count == 0 {
            return self;
        }
        for (bound, below) in values.cumulative() {
            self.line("_bucket", labels, Some(&bound), below);
        }
        self.line("_bucket", labels, Some(&"+Inf"), count);
        self.line("_sum", labels, None, values.sum());
        self.line("_count", labels, None, count)
    }

    fn line(
        &mut self,
        suffix: &str,
        labels: Labels<'_>,
        bound: Option<&dyn Display>,
        value: impl Display,
    ) -> &mut Self {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        let mut separator = '{';
        for (name, text) in labels {
            write(
                self.text,
                format_args!("{separator}{name}=\"{}\"", Escaped { text, quotes: true }),
            );
            separator = ',';
        }
        if let Some(bound) = bound {
            write(self.text, format_args!("{separator}le=\"{bound}\""));
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        write(self.text, format_args!(" {value}\n"));
        self
    }
}
