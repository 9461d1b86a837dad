use crate::{
    client::Client,
    failure::Failure,
    output::{Output, visible},
};
use admin::wire::AuditLine;
use clap::Args;
use std::io::{BufRead, BufReader};

/// Show who changed what, and who was refused
#[derive(Args, Debug)]
pub(crate) struct Audit {
    /// Go on showing what comes
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines
    #[arg(short = 'n', long, value_name = "N")]
    tail: Option<u32>,
}

impl Audit {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        let mut path = format!("/v1/audit?follow={}", self.follow);
        if let Some(tail) = self.tail {
            path.push_str(&format!("&tail={tail}"));
        }
        let mut lines = BufReader::new(client.open(&path)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = lines.read_until(b'\n', &mut line);
            let read = read.map_err(|error| {
                Failure::local(
                    format!("the audit broke off: {error}"),
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

/// `time outcome action what by whom from where`.
fn human(line: &[u8]) -> String {
    let Ok(line) = serde_json::from_slice::<AuditLine>(line) else {
        return visible(String::from_utf8_lossy(line).trim_end());
    };
    let tenant = line.tenant.map_or(String::new(), |tenant| format!("{tenant}: "));
    let by = match (&line.token, &line.token_name) {
        (Some(id), Some(name)) => format!("token {id} ({name})"),
        (Some(id), None) => format!("token {id}"),
        (None, _) => line.by.clone(),
    };
    let code = line.code.map_or(String::new(), |code| format!(" [{code}]"));
    let from = line
        .remote
        .map_or(String::new(), |remote| format!(" from {remote}"));
    let text = format!(
        "{} {:7} {tenant}{} {}{code} by {by}{from}",
        line.time, line.outcome, line.action, line.what
    );
    visible(&text)
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn a_line_is_one_line() {
        let line = br#"{"time":"2026-11-21T08:00:00.001Z","tenant":"acme","by":"token","token":"0a","token_name":"c\u001bi","remote":"127.0.0.1:5","action":"delete_function","what":"/v1/functions/shop.f","outcome":"refused","status":403,"code":"role-missing"}"#;
        assert_eq!(
            human(line),
            "2026-11-21T08:00:00.001Z refused acme: delete_function /v1/functions/shop.f [role-missing] by token 0a (c\\u{1b}i) from 127.0.0.1:5"
        );
        assert_eq!(human(b"not \x07 json\n"), "not \\u{7} json");
    }
}
