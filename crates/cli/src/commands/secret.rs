use crate::{
    client::Client,
    failure::Failure,
    output::{Output, columns, visible},
};
use admin::wire;
use clap::{Args, Subcommand};
use contract::{Name, SecretName};
use serde_json::json;
use std::{
    fs::File,
    io::{self, IsTerminal as _, Read},
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// Look after secrets: what the node adds to requests of functions, which never see it
///
/// A function's manifest says where a secret goes: [[function.NAME.grants.http]] with headers = { authorization = "Bearer
/// {secret:NAME}" }.
#[derive(Args, Debug)]
pub(crate) struct Secret {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Set a secret to what is on standard input, or in a file
    ///
    /// One line end at its end is left out. The next call of a function that uses it has it, without a deployment.
    Set(Set),
    /// List secrets: their names, when they were set, and which functions use them
    List,
    /// Delete a secret
    Delete(Delete),
}

#[derive(Args, Debug)]
struct Which {
    /// The secret's name
    #[arg(value_name = "NAME")]
    name: SecretName,
    /// For the functions of this application only; it goes before one of the same name that is for all
    #[arg(long, value_name = "APPLICATION")]
    application: Option<Name>,
}

#[derive(Args, Debug)]
struct Set {
    #[command(flatten)]
    which: Which,
    /// Read the value from a file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct Delete {
    #[command(flatten)]
    which: Which,
    /// Even if functions use it: their requests fail from then on
    #[arg(long)]
    force: bool,
}

/// More than a node takes: whatever is longer is not read to its end.
const MOST: usize = 64 << 10;

impl Secret {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        match self.verb {
            Verb::Set(set) => set.run(client, output),
            Verb::List => {
                let secrets: wire::Secrets = client.get("/v1/secrets")?;
                output.answer(&json!(secrets), || table(&secrets))
            }
            Verb::Delete(Delete { which, force }) => {
                let mut path = which.path();
                if force {
                    path.push_str(if which.application.is_some() { "&" } else { "?" });
                    path.push_str("force=true");
                }
                client.delete(&path)?;
                output.answer(&json!({ "deleted": which.said() }), || {
                    format!("deleted the secret {}\n", which.said())
                })
            }
        }
    }
}

impl Which {
    fn path(&self) -> String {
        let whose = self.application.as_ref();
        let whose = whose.map_or_else(String::new, |application| format!("?application={application}"));
        format!("/v1/secrets/{}{whose}", self.name)
    }

    fn said(&self) -> String {
        match &self.application {
            Some(application) => format!("{application}.{}", self.name),
            None => self.name.to_string(),
        }
    }
}

impl Set {
    fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        let value = read(self.file.as_deref())?;
        let set: wire::Secret = client.put_bytes(&self.which.path(), &value)?;
        output.answer(&json!(set), || {
            let users: Vec<_> = set.functions.iter().map(ToString::to_string).collect();
            let used = if users.is_empty() {
                "no function uses it yet".to_owned()
            } else {
                format!("the next calls of {} have it", users.join(", "))
            };
            format!("set the secret {}; {used}\n", self.which.said())
        })
    }
}

/// Reads a value, without the line end that `echo` and editors leave.
fn read(file: Option<&Path>) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut value = Zeroizing::new(Vec::with_capacity(MOST));
    let failed = |what: String| {
        move |error: io::Error| {
            Failure::local(format!("cannot read {what}: {error}"), "check that it is there")
        }
    };
    match file {
        Some(path) => File::open(path)
            .and_then(|file| file.take(MOST as u64).read_to_end(&mut value))
            .map_err(failed(path.display().to_string()))?,
        None if io::stdin().is_terminal() => {
            return Err(Failure::usage(
                "the secret's value is read from standard input, and that is a terminal, which would show it",
                "send it through a pipe: read -rs V && printf %s \"$V\" | millpond secret set NAME; or add --file FILE",
            ));
        }
        None => io::stdin()
            .lock()
            .take(MOST as u64)
            .read_to_end(&mut value)
            .map_err(failed("standard input".to_owned()))?,
    };
    if value.last() == Some(&b'\n') {
        value.pop();
        if value.last() == Some(&b'\r') {
            value.pop();
        }
    }
    Ok(value)
}

fn table(list: &wire::Secrets) -> String {
    if list.secrets.is_empty() {
        return "no secrets; set one with `millpond secret set NAME`\n".to_owned();
    }
    let mut rows = vec![["SECRET", "FOR", "SET", "USED BY"].map(str::to_owned).to_vec()];
    for secret in &list.secrets {
        let users: Vec<_> = secret.functions.iter().map(ToString::to_string).collect();
        rows.push(vec![
            secret.name.to_string(),
            secret
                .application
                .as_ref()
                .map_or_else(|| "all".to_owned(), ToString::to_string),
            visible(&secret.set),
            users.join(", "),
        ]);
    }
    columns(&rows)
}
