use super::function_path;
use crate::{
    client::Client,
    failure::Failure,
    output::{Output, visible},
};
use admin::wire::Record;
use clap::Args;
use contract::{FunctionRef, RequestId};
use std::io::{BufRead, BufReader};

/// Show what a function wrote to its standard error, and what the node says about it
#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// The function
    #[arg(value_name = "FUNCTION")]
    function: FunctionRef,
    /// Go on showing what comes
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines
    #[arg(short = 'n', long, value_name = "N")]
    tail: Option<u32>,
    /// Only what belongs to one request
    #[arg(long, value_name = "ID")]
    request: Option<RequestId>,
}

impl Logs {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        let mut query = Vec::new();
        if self.follow {
            query.push("follow=true".to_owned());
        }
        query.extend(self.tail.map(|tail| format!("tail={tail}")));
        query.extend(self.request.map(|request| format!("request={request}")));
        let mut path = format!("{}/logs", function_path(&self.function));
        if !query.is_empty() {
            path = format!("{path}?{}", query.join("&"));
        }
        let mut lines = BufReader::new(client.open(&path)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = lines.read_until(b'\n', &mut line);
            let read = read.map_err(|error| {
                Failure::local(
                    format!("the log of `{}` broke off: {error}", self.function),
                    "the node may have stopped; try again",
                )
            })?;
            if read == 0 {
                return Ok(());
            }
            if output.json() {
                output.bytes(&line)?;
            } else if !line.trim_ascii().is_empty() {
                output.line(&human(&line))?;
            }
        }
    }
}

/// `time request stream line`.
fn human(line: &[u8]) -> String {
    let Ok(record) = serde_json::from_slice::<Record>(line) else {
        return visible(String::from_utf8_lossy(line).trim_end());
    };
    let omitted = match record.omitted {
        0 => String::new(),
        omitted => format!(" [{omitted} bytes omitted]"),
    };
    let request = record.request_id.as_deref().unwrap_or("-");
    format!(
        "{} {} {:8} {}{omitted}",
        visible(&record.time),
        visible(request),
        visible(&record.stream),
        visible(&record.message)
    )
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn a_record_is_one_line() {
        let line = br#"{"time":"2026-11-21T08:00:00.000001Z","function":"shop.resize","version":1,"request_id":"0000000000000000000000000000002a","stream":"stderr","message":"a\u001b[2Jb\nc","omitted":7}"#;
        assert_eq!(
            human(line),
            "2026-11-21T08:00:00.000001Z 0000000000000000000000000000002a stderr   a\\u{1b}[2Jb\\nc [7 bytes omitted]"
        );
        assert_eq!(human(b"not \x07 json\n"), "not \\u{7} json");
    }
}
