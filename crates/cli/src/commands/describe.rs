use super::function_path;
use crate::{
    client::Client,
    failure::Failure,
    output::{Output, outline},
};
use clap::Args;
use contract::FunctionRef;
use serde_json::Value;

/// Show a function: its versions, aliases, settings and routes
#[derive(Args, Debug)]
pub(crate) struct Describe {
    /// The function
    #[arg(value_name = "FUNCTION")]
    function: FunctionRef,
}

impl Describe {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        let answer: Value = client.get(&function_path(&self.function))?;
        output.answer(&answer, || outline(&answer))
    }
}
