use crate::{
    client::Client,
    failure::Failure,
    output::{Output, columns, visible},
};
use admin::wire::{NewToken, Role, TokenRequest, Tokens};
use clap::{Args, Subcommand, ValueEnum};
use contract::Name;
use serde_json::json;

/// Manage the tokens of a tenant
#[derive(Args, Debug)]
pub(crate) struct Token {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Make a token and print it, once: the node keeps only its SHA-256
    Create(Create),
    /// List a tenant's tokens, without their secrets
    List(Whose),
    /// End a token at once
    Revoke(Revoke),
}

#[derive(Args, Debug)]
struct Whose {
    /// The tenant
    #[arg(id = "managed", value_name = "TENANT")]
    tenant: Name,
}

#[derive(Args, Debug)]
struct Create {
    #[command(flatten)]
    whose: Whose,
    /// What its holder may do; may be given again
    #[arg(long, value_enum, value_name = "ROLE", required = true)]
    role: Vec<Which>,
    /// What it is called in lists and audit lines
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How long it is good for, for example 90d [default: for ever]
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
}

#[derive(Args, Debug)]
struct Revoke {
    #[command(flatten)]
    whose: Whose,
    /// The token's id
    #[arg(value_name = "ID")]
    id: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    /// Deploy, roll back and delete
    Deploy,
    /// Have functions run
    Invoke,
    /// See what is deployed, logs, calls and their results, metrics
    Read,
}

impl Whose {
    fn path(&self) -> String {
        format!("/v1/tenants/{}/tokens", self.tenant)
    }
}

impl Token {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        match self.verb {
            Verb::Create(create) => {
                let request = TokenRequest {
                    roles: create
                        .role
                        .iter()
                        .map(|role| match role {
                            Which::Deploy => Role::Deploy,
                            Which::Invoke => Role::Invoke,
                            Which::Read => Role::Read,
                        })
                        .collect(),
                    name: create.name,
                    expires_in: create.expires,
                };
                let made: NewToken = client.post(&create.whose.path(), &request)?;
                output.answer(&json!(made), || format!("{}\n", visible(&made.token)))
            }
            Verb::List(whose) => {
                let all: Tokens = client.get(&whose.path())?;
                output.answer(&json!(all), || table(&whose.tenant, &all))
            }
            Verb::Revoke(revoke) => {
                if !revoke.id.bytes().all(|b| b.is_ascii_alphanumeric()) || revoke.id.is_empty() {
                    return Err(Failure::usage(
                        "this is not the id of a token",
                        "it has 12 digits, which stand behind `mp_` and in `millpond token list`",
                    ));
                }
                client.delete(&format!("{}/{}", revoke.whose.path(), revoke.id))?;
                let answer = json!({ "revoked": revoke.id, "tenant": revoke.whose.tenant });
                output.answer(&answer, || format!("revoked {}\n", revoke.id))
            }
        }
    }
}

fn table(tenant: &Name, list: &Tokens) -> String {
    if list.tokens.is_empty() {
        return format!("no tokens; make one with `millpond token create {tenant} --role deploy`\n");
    }
    let mut rows = vec![
        ["ID", "NAME", "ROLES", "MADE", "EXPIRES"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for token in &list.tokens {
        let roles: Vec<_> = token
            .roles
            .iter()
            .map(|role| match role {
                Role::Deploy => "deploy",
                Role::Invoke => "invoke",
                Role::Read => "read",
            })
            .collect();
        rows.push(vec![
            visible(&token.id),
            visible(token.name.as_deref().unwrap_or("-")),
            roles.join(", "),
            visible(&token.created),
            visible(token.expires.as_deref().unwrap_or("never")),
        ]);
    }
    columns(&rows)
}
