use super::function_path;
use crate::{
    client::Client,
    failure::Failure,
    output::{self, Output},
};
use clap::Args;
use contract::{ApplicationId, FunctionRef};
use serde_json::{Value, json};

/// Delete an application, or one function of it, with all versions
#[derive(Args, Debug)]
pub(crate) struct Delete {
    /// The name of an application, or a function
    #[arg(value_name = "APPLICATION|FUNCTION")]
    what: FunctionRef,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

impl Delete {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        let (path, kind) = self.resolve(client)?;
        if !self.yes {
            output::confirm(&format!(
                "Delete the {kind} `{}` with all its versions?",
                self.what
            ))?;
        }
        client.delete(&path)?;
        let answer = json!({ "deleted": self.what.to_string(), "kind": kind });
        output.answer(&answer, || format!("deleted the {kind} {}\n", self.what))
    }

    /// A bare name may be an application's or a function's.
    fn resolve(&self, client: &Client) -> Result<(String, &'static str), Failure> {
        let function = function_path(&self.what);
        if self.what.application.is_some() || self.what.qualifier.is_some() {
            return Ok((function, "function"));
        }
        let named = ApplicationId {
            tenant: self.what.tenant.clone(),
            name: self.what.function.clone(),
        };
        // A tenant's, for the operator, has a slash in it.
        let application = format!("/v1/applications/{}", named.to_string().replace('/', "%2F"));
        match (
            client.find::<Value>(&application)?,
            client.find::<Value>(&function)?,
        ) {
            (Some(_), None) => Ok((application, "application")),
            // Its only function goes with it, and it with its only function.
            (Some(found), Some(_)) if found["functions"].as_array().is_some_and(|all| all.len() == 1) => {
                Ok((application, "application"))
            }
            (None, Some(_)) => Ok((function, "function")),
            (Some(_), Some(_)) => Err(Failure::usage(
                format!("`{}` is the name of an application and of a function", self.what),
                "write APPLICATION.FUNCTION for the function; the application goes with its last function",
            )),
            (None, None) => Err(Failure::local(
                format!("there is no application or function `{}` on this node", self.what),
                "see what there is with `millpond list`",
            )),
        }
    }
}
