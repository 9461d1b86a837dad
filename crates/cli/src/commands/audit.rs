use super::lines::Lines;
use crate::{
    client::Client,
    failure::Failure,
    output::{Output, visible},
};
use admin::wire::AuditLine;
use clap::Args;

/// Show who changed what, and who was refused
#[derive(Args, Debug)]
pub(crate) struct Audit {
    #[command(flatten)]
    lines: Lines,
}

impl Audit {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        self.lines
            .show(client, output, "/v1/audit", None, "the audit", human)
    }
}

/// `time outcome action what by whom from where`.
fn human(line: AuditLine) -> String {
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
            human(serde_json::from_slice(line).unwrap()),
            "2026-11-21T08:00:00.001Z refused acme: delete_function /v1/functions/shop.f [role-missing] by token 0a (c\\u{1b}i) from 127.0.0.1:5"
        );
    }
}
