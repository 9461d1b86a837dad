use super::{function_path, lines::Lines};
use crate::{
    client::Client,
    failure::Failure,
    output::{Output, visible},
};
use admin::wire::Record;
use clap::Args;
use contract::{FunctionRef, RequestId};

/// Show what a function wrote to its standard error, and what the node says about it
#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// The function
    #[arg(value_name = "FUNCTION")]
    function: FunctionRef,
    #[command(flatten)]
    lines: Lines,
    /// Only what belongs to one request
    #[arg(long, value_name = "ID")]
    request: Option<RequestId>,
}

impl Logs {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        let path = format!("{}/logs", function_path(&self.function));
        let request = self.request.map(|request| format!("request={request}"));
        let what = format!("the log of `{}`", self.function);
        self.lines.show(client, output, &path, request, &what, human)
    }
}

/// `time request stream line`.
fn human(record: Record) -> String {
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
            human(serde_json::from_slice(line).unwrap()),
            "2026-11-21T08:00:00.000001Z 0000000000000000000000000000002a stderr   a\\u{1b}[2Jb\\nc [7 bytes omitted]"
        );
    }
}
