use crate::{
    client::Client,
    failure::Failure,
    output::{Output, columns},
};
use admin::wire::Functions;
use clap::Args;
use serde_json::json;

/// List the functions that the node serves
#[derive(Args, Debug)]
pub(crate) struct List {}

impl List {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        let functions: Functions = client.get("/v1/functions")?;
        output.answer(&json!(functions), || table(&functions))
    }
}

fn table(list: &Functions) -> String {
    if list.functions.is_empty() {
        return "no functions; deploy some with `millpond deploy`\n".to_owned();
    }
    let mut rows = vec![
        ["FUNCTION", "VERSION", "ENGINE", "MEMORY", "TIMEOUT", "DEPLOYED"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for function in &list.functions {
        let settings = &function.settings;
        rows.push(vec![
            function.function.to_string(),
            function.version.to_string(),
            settings.engine.clone(),
            settings.memory.to_string(),
            settings.timeout.clone(),
            function.created.clone(),
        ]);
    }
    columns(&rows)
}
