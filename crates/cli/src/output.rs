//! What goes to standard output, and how.

use crate::failure::Failure;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

/// How answers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For machines
    Json,
}

/// The way to standard output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) format: Format,
}

impl Output {
    pub(crate) fn json(self) -> bool {
        self.format == Format::Json
    }

    /// Writes an answer: the text for people, or the value for machines.
    pub(crate) fn answer(self, value: &Value, text: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.format {
            Format::Json => self.line(&format!("{value:#}")),
            Format::Text => self.bytes(text().as_bytes()),
        }
    }

    /// Writes a line at once.
    pub(crate) fn line(self, line: &str) -> Result<(), Failure> {
        self.bytes(format!("{line}\n").as_bytes())
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)
            .and_then(|()| out.flush())
            .map_err(Failure::Output)
    }
}

/// A bar for bytes; hidden when standard error is not a terminal.
pub(crate) fn bytes_bar(what: &str, bytes: u64) -> ProgressBar {
    let bar = on_terminal(ProgressBar::new(bytes));
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes}") {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}

/// A sign of life during long work; hidden when standard error is not a terminal.
pub(crate) fn spinner(what: &str) -> ProgressBar {
    let bar = on_terminal(ProgressBar::new_spinner());
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Whether bars and spinners are seen: on a terminal.
pub(crate) fn shows_progress() -> bool {
    io::stderr().is_terminal()
}

fn on_terminal(bar: ProgressBar) -> ProgressBar {
    if shows_progress() {
        bar
    } else {
        ProgressBar::hidden()
    }
}

/// Whether a person can be asked.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks before something is deleted.
pub(crate) fn confirm(question: &str) -> Result<(), Failure> {
    if !can_ask() {
        return Err(Failure::usage(
            "deleting needs a confirmation, and this is not a terminal",
            "add --yes",
        ));
    }
    let mut answer = String::new();
    let mut err = io::stderr().lock();
    let asked = write!(err, "{question} [y/N] ").and_then(|()| err.flush());
    asked
        .and_then(|()| io::stdin().read_line(&mut answer).map(drop))
        .map_err(|error| Failure::local(format!("cannot ask for a confirmation: {error}"), "add --yes"))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::local("nothing was deleted", "")),
    }
}

/// Rows in columns, two spaces apart, without trailing spaces.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..count)
        .map(|column| width(column).unwrap_or_default())
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A value as indented `key: value` lines.
pub(crate) fn outline(value: &Value) -> String {
    let mut text = String::new();
    write_outline(value, 0, &mut text);
    text
}

fn write_outline(value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                text.push_str(&format!("{indent}{key}:"));
                write_below(value, depth, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                text.push_str(&format!("{indent}-"));
                write_below(item, depth, text);
            }
        }
        scalar => text.push_str(&format!("{indent}{}\n", plain(scalar))),
    }
}

fn write_below(value: &Value, depth: usize, text: &mut String) {
    let empty = match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match value {
        _ if empty => text.push_str(" none\n"),
        Value::Object(_) | Value::Array(_) => {
            text.push('\n');
            write_outline(value, depth + 1, text);
        }
        scalar => text.push_str(&format!(" {}\n", plain(scalar))),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => visible(text),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

/// Text that a guest or a node may have chosen, so that a terminal obeys none of it.
pub(crate) fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\t' {
            visible.extend(c.escape_default())
        } else {
            visible.push(c)
        }
    }
    visible
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".to_owned(), "bcd".to_owned()],
            vec!["éfg".to_owned(), "h".to_owned()],
            vec![],
        ];
        assert_eq!(columns(&rows), "a    bcd\néfg  h\n\n");
    }

    #[test]
    fn an_outline_is_indented() {
        let value =
            json!({ "a": 1, "b": { "c": ["x", { "d": true }], "e": [] }, "f": null, "g": "\u{1b}[2J" });
        let text = "a: 1\nb:\n  c:\n    - x\n    -\n      d: true\n  e: none\nf: none\ng: \\u{1b}[2J\n";
        assert_eq!(outline(&value), text);
    }
}
