use super::function_path;
use crate::{
    client::Client,
    failure::Failure,
    output::{self, Output},
};
use admin::wire;
use clap::Args;
use contract::{ApplicationId, FunctionRef, SecretName};
use serde_json::{Value, json};

/// Delete an application, or one function of it, with all versions
///
/// Secrets that were set for the application stay, for the next of that name; `secret delete` deletes one.
#[derive(Args, Debug)]
pub(crate) struct Delete {
    /// The name of an application, or a function
    #[arg(value_name = "APPLICATION|FUNCTION")]
    what: FunctionRef,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

const APPLICATION: &str = "application";

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
        let mut answer = json!({ "deleted": self.what.to_string(), "kind": kind });
        let left = match kind {
            APPLICATION => self.secrets(client),
            _ => Vec::new(),
        };
        if !left.is_empty() {
            answer["secrets"] = json!(left);
        }
        output.answer(&answer, || {
            let mut text = format!("deleted the {kind} {}\n", self.what);
            if let Some(first) = left.first() {
                let names: Vec<_> = left.iter().map(ToString::to_string).collect();
                let tenant = self.what.tenant.as_ref();
                let tenant = tenant.map_or_else(String::new, |tenant| format!(" --tenant {tenant}"));
                text.push_str(&format!(
                    "its secrets stay: {}\n  to delete one: millpond secret delete {first} --application {}{tenant}\n",
                    names.join(", "),
                    self.what.function
                ));
            }
            text
        })
    }

    /// The secrets of the application that was deleted. Whoever may not see them is told of none.
    fn secrets(&self, client: &Client) -> Vec<SecretName> {
        let listed: Option<wire::Secrets> = client.get("/v1/secrets").ok();
        let all = listed.into_iter().flat_map(|listed| listed.secrets);
        let own = all.filter(|secret| secret.application.as_ref() == Some(&self.application()));
        own.map(|secret| secret.name).collect()
    }

    fn application(&self) -> ApplicationId {
        ApplicationId {
            tenant: self.what.tenant.clone(),
            name: self.what.function.clone(),
        }
    }

    /// A bare name may be an application's or a function's.
    fn resolve(&self, client: &Client) -> Result<(String, &'static str), Failure> {
        let function = function_path(&self.what);
        if self.what.application.is_some() || self.what.qualifier.is_some() {
            return Ok((function, "function"));
        }
        // A tenant's, for the operator, has a slash in it.
        let application = self.application().to_string().replace('/', "%2F");
        let application = format!("/v1/applications/{application}");
        match (
            client.find::<Value>(&application)?,
            client.find::<Value>(&function)?,
        ) {
            (Some(_), None) => Ok((application, APPLICATION)),
            // Its only function goes with it, and it with its only function.
            (Some(found), Some(_)) if found["functions"].as_array().is_some_and(|all| all.len() == 1) => {
                Ok((application, APPLICATION))
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
