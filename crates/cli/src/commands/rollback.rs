use super::function_path;
use crate::{client::Client, failure::Failure, output::Output};
use clap::Args;
use contract::{FunctionRef, VersionNumber};
use serde_json::{Value, json};
use std::num::NonZeroU32;

/// Make an earlier version of a function the live one
///
/// Requests that run finish on the version they began with.
#[derive(Args, Debug)]
pub(crate) struct Rollback {
    /// The function
    #[arg(value_name = "FUNCTION")]
    function: FunctionRef,
    /// The version to go back to [default: the one before the live one]
    #[arg(long, value_name = "VERSION")]
    to: Option<NonZeroU32>,
}

impl Rollback {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        let to = self.to.map(VersionNumber);
        let document = to.map_or_else(|| json!({}), |to| json!({ "to": to }));
        let answer: Value = client.post(&format!("{}/rollback", function_path(&self.function)), &document)?;
        output.answer(&answer, || {
            format!(
                "{}: version {} -> {}\n",
                self.function, answer["from"], answer["to"]
            )
        })
    }
}
