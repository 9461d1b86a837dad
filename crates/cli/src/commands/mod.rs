//! The verbs.

mod audit;
mod build;
mod calls;
mod completions;
mod delete;
mod deploy;
mod describe;
mod doctor;
mod explain;
mod invoke;
mod lines;
mod list;
mod logs;
mod man;
mod new;
mod rollback;
mod s3;
mod secret;
mod serve;
mod tenant;
mod token;
mod top;
mod up;

use crate::{
    client::Connection,
    failure::Failure,
    output::{Format, Output},
};
use clap::{Parser, Subcommand};
use contract::FunctionRef;

const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 error of a function or a service, 2 wrong usage or manifest, 124 timeout, 130 interrupted.";

/// Serve functions, and manage the ones that a node serves
///
/// A function is written [APPLICATION.]FUNCTION[:VERSION|:ALIAS]; without an application its name must be unique on the
/// node, without a version the live one is meant. On a node with tenants names are those of the tenant whose token is shown;
/// the operator names another's with --tenant.
#[derive(Parser, Debug)]
#[command(name = "millpond", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Millpond {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    connection: Connection,
    /// How to write the answer
    #[arg(
        short = 'o',
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        default_value = "text"
    )]
    format: Format,
}

#[derive(Subcommand, Debug)]
enum Verb {
    New(new::New),
    Build(build::Build),
    Up(up::Up),
    Serve(serve::Serve),
    Deploy(deploy::Deploy),
    Invoke(invoke::Invoke),
    Calls(calls::Calls),
    Secret(secret::Secret),
    S3(s3::S3),
    Logs(logs::Logs),
    Top(top::Top),
    List(list::List),
    Describe(describe::Describe),
    Delete(delete::Delete),
    Rollback(rollback::Rollback),
    Tenant(tenant::Tenant),
    Token(token::Token),
    Audit(audit::Audit),
    Doctor(doctor::Doctor),
    Explain(explain::Explain),
    Completions(completions::Completions),
    Man(man::Man),
}

impl Millpond {
    pub(crate) fn output(&self) -> Output {
        Output { format: self.format }
    }

    pub(crate) fn run(self, output: &Output) -> Result<(), Failure> {
        let client = || self.connection.client();
        match self.verb {
            Verb::New(verb) => verb.run(*output),
            Verb::Build(verb) => verb.run(*output),
            Verb::Up(verb) => verb.run(&self.connection, *output),
            Verb::Serve(verb) => verb.run(self.connection.admin(), self.connection.token(), *output),
            Verb::Deploy(verb) => verb.run(client, *output),
            Verb::Invoke(verb) => verb.run(&client()?, *output),
            Verb::Calls(verb) => verb.run(&client()?, *output),
            Verb::Secret(verb) => verb.run(&client()?, *output),
            Verb::S3(verb) => verb.run(&client()?, *output),
            Verb::Logs(verb) => verb.run(&client()?, *output),
            Verb::Top(verb) => verb.run(&self.connection, *output),
            Verb::List(verb) => verb.run(&client()?, *output),
            Verb::Describe(verb) => verb.run(&client()?, *output),
            Verb::Delete(verb) => verb.run(&client()?, *output),
            Verb::Rollback(verb) => verb.run(&client()?, *output),
            Verb::Tenant(verb) => verb.run(&client()?, *output),
            Verb::Token(verb) => verb.run(&client()?, *output),
            Verb::Audit(verb) => verb.run(&client()?, *output),
            Verb::Doctor(verb) => verb.run(*output),
            Verb::Explain(verb) => verb.run(*output),
            Verb::Completions(verb) => verb.run(*output),
            Verb::Man(verb) => verb.run(*output),
        }
    }
}

/// The path of a function in the control API.
fn function_path(reference: &FunctionRef) -> String {
    // A tenant's, for the operator, has a slash in it.
    format!("/v1/functions/{}", reference.to_string().replace('/', "%2F"))
}
