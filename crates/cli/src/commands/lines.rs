//! Lines of the node, those of a log and those of the audit, shown as they come.

use crate::{
    client::Client,
    failure::Failure,
    output::{Output, visible},
};
use clap::Args;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Read};

/// Which lines.
#[derive(Args, Debug)]
pub(super) struct Lines {
    /// Go on showing what comes
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines
    #[arg(short = 'n', long, value_name = "N")]
    tail: Option<u32>,
}

impl Lines {
    /// Shows what the node has at a path, with one `more` of the query, to people as `human` says. `what` is the name of all
    /// of it.
    pub(super) fn show<T: DeserializeOwned>(
        &self,
        client: &Client,
        output: Output,
        path: &str,
        more: Option<String>,
        what: &str,
        human: impl Fn(T) -> String,
    ) -> Result<(), Failure> {
        let follow = self.follow.then(|| "follow=true".to_owned());
        let tail = self.tail.map(|tail| format!("tail={tail}"));
        let query: Vec<_> = [follow, tail, more].into_iter().flatten().collect();
        let path = match query.join("&") {
            query if query.is_empty() => path.to_owned(),
            query => format!("{path}?{query}"),
        };
        each(client.open(&path)?, what, |line| match output.json() {
            true => output.bytes(&[line, b"\n"].concat()),
            false => output.line(&text(line, &human)),
        })
    }
}

/// Passes on each line as it comes, but for the empty ones that only say that the node is there.
pub(super) fn each(
    from: impl Read,
    what: &str,
    mut pass_on: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for line in BufReader::new(from).split(b'\n') {
        let line = line.map_err(|error| {
            Failure::local(
                format!("{what} broke off: {error}"),
                "the node may have stopped; try again",
            )
        })?;
        if !line.trim_ascii().is_empty() {
            pass_on(&line)?;
        }
    }
    Ok(())
}

/// A line for people. What cannot be read is shown as it is.
fn text<T: DeserializeOwned>(line: &[u8], human: impl Fn(T) -> String) -> String {
    match serde_json::from_slice(line) {
        Ok(read) => human(read),
        Err(_) => visible(String::from_utf8_lossy(line).trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn what_cannot_be_read_is_shown_as_it_is() {
        assert_eq!(text(b"7\n", |number: u32| format!("<{number}>")), "<7>");
        assert_eq!(
            text(b"not \x07 json\n", |_: u32| String::new()),
            "not \\u{7} json"
        );
    }
}
