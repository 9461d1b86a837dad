use crate::{
    client::Client,
    failure::Failure,
    output::{Output, columns, visible},
    wire,
};
use clap::Args;
use serde_json::Value;

/// List the functions that the node serves
#[derive(Args, Debug)]
pub(crate) struct List {}

impl List {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        let answer: Value = client.get("/v1/functions")?;
        output.answer(&answer, || table(&wire::items(&answer, "functions")))
    }
}

fn table(functions: &[Value]) -> String {
    if functions.is_empty() {
        return "no functions; deploy some with `millpond deploy`\n".to_owned();
    }
    let cell = |value: &Value| match value {
        Value::String(text) => visible(text),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let mut rows = vec![
        ["FUNCTION", "VERSION", "ENGINE", "MEMORY", "TIMEOUT"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for function in functions {
        let settings = &function["settings"];
        rows.push(vec![
            cell(&function["function"]),
            cell(&function["version"]),
            cell(&settings["engine"]),
            cell(&settings["memory"]),
            cell(&settings["timeout"]),
        ]);
    }
    columns(&rows)
}
