use crate::{
    client::Client,
    failure::Failure,
    output::{self, Output, columns, outline, visible},
};
use admin::wire::{Tenant as Told, TenantRequest, Tenants};
use clap::{Args, Subcommand};
use contract::{ByteSize, Name};
use serde_json::{Value, json};
use std::str::FromStr;

/// Manage who shares the node: tenants, their quotas and hosts
#[derive(Args, Debug)]
pub(crate) struct Tenant {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Make a tenant
    Create(Edit),
    /// Change a tenant's quotas and hosts; what is not given stays
    Update(Edit),
    /// List the tenants
    List,
    /// Show a tenant: its quotas, its hosts, what its functions may be granted, what it uses
    Describe(One),
    /// Delete a tenant that has no applications any more, its tokens and its secrets. Its name is not given again
    Delete(Delete),
}

#[derive(Args, Debug)]
struct One {
    /// The tenant
    #[arg(id = "managed", value_name = "TENANT")]
    name: Name,
}

#[derive(Args, Debug)]
struct Delete {
    #[command(flatten)]
    one: One,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

#[derive(Args, Debug)]
struct Edit {
    #[command(flatten)]
    one: One,
    /// Functions that may be deployed, or `none` for no limit
    #[arg(long, value_name = "N")]
    functions: Option<Quota<u32>>,
    /// What the memory limits of its running sandboxes may add up to, or `none`
    #[arg(long, value_name = "SIZE")]
    memory: Option<Quota<ByteSize>>,
    /// Sandboxes that may run at once, or `none`
    #[arg(long, value_name = "N")]
    concurrency: Option<Quota<u32>>,
    /// Requests that are taken in a second, for example 100/s, or `none`
    #[arg(long, value_name = "N/s", value_parser = rate)]
    rate: Option<Quota<u32>>,
    /// Requests that wait while its concurrency or memory is used up; `none` is 1024
    #[arg(long, value_name = "N")]
    queue: Option<Quota<u32>>,
    /// How large its share of the cores is beside other tenants' that have work, 1 to 1000; `none` is 1
    #[arg(long, value_name = "N")]
    weight: Option<Quota<u32>>,
    /// A host whose requests are for its routes; may be given again. Together they replace those before; `none` is none
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// Let its routes answer requests for its hosts that show no token
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    public: Option<bool>,
}

/// A number, or none.
#[derive(Clone, Copy, Debug)]
struct Quota<T>(Option<T>);

impl<T: FromStr<Err: ToString>> FromStr for Quota<T> {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            text => text
                .parse()
                .map(|some| Self(Some(some)))
                .map_err(|error: T::Err| error.to_string()),
        }
    }
}

fn rate(text: &str) -> Result<Quota<u32>, String> {
    text.strip_suffix("/s").unwrap_or(text).parse()
}

impl One {
    fn path(&self) -> String {
        format!("/v1/tenants/{}", self.name)
    }
}

impl Edit {
    fn request(&self) -> TenantRequest {
        TenantRequest {
            functions: self.functions.map(|quota| quota.0),
            memory: self.memory.map(|quota| quota.0),
            concurrency: self.concurrency.map(|quota| quota.0),
            rate: self.rate.map(|quota| quota.0),
            queue: self.queue.map(|quota| quota.0),
            weight: self.weight.map(|quota| quota.0),
            hosts: (!self.host.is_empty())
                .then(|| self.host.iter().filter(|host| *host != "none").cloned().collect()),
            public: self.public,
        }
    }
}

impl Tenant {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        match self.verb {
            Verb::Create(edit) => {
                let made: Told = client.put(&edit.one.path(), &edit.request())?;
                output.answer(&json!(made), || {
                    let name = &made.tenant;
                    format!(
                        "made the tenant {name}; `millpond token create {name} --role deploy` gives it a token\n"
                    )
                })
            }
            Verb::Update(edit) => {
                let changed: Value = client.patch(&edit.one.path(), &edit.request())?;
                output.answer(&changed, || outline(&changed))
            }
            Verb::List => {
                let all: Tenants = client.get("/v1/tenants")?;
                output.answer(&json!(all), || table(&all))
            }
            Verb::Describe(one) => {
                let found: Value = client.get(&one.path())?;
                output.answer(&found, || outline(&found))
            }
            Verb::Delete(delete) => {
                let name = &delete.one.name;
                if !delete.yes {
                    output::confirm(&format!(
                        "Delete the tenant `{name}`, its tokens and its secrets?"
                    ))?;
                }
                client.delete(&delete.one.path())?;
                output.answer(&json!({ "deleted": name, "kind": "tenant" }), || {
                    format!("deleted the tenant {name}\n")
                })
            }
        }
    }
}

fn table(list: &Tenants) -> String {
    if list.tenants.is_empty() {
        return "no tenants; make one with `millpond tenant create`\n".to_owned();
    }
    let mut rows = vec![
        ["TENANT", "FUNCTIONS", "CONCURRENCY", "MEMORY", "RATE", "HOSTS"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let of = |used: String, most: Option<String>| match most {
        Some(most) => format!("{used} of {most}"),
        None => used,
    };
    for tenant in &list.tenants {
        let (used, quotas) = (&tenant.used, &tenant.quotas);
        let public = if tenant.public { " (public)" } else { "" };
        rows.push(vec![
            tenant.tenant.to_string(),
            of(
                used.functions.to_string(),
                quotas.functions.map(|n| n.to_string()),
            ),
            of(
                used.concurrency.to_string(),
                quotas.concurrency.map(|n| n.to_string()),
            ),
            of(used.memory.to_string(), quotas.memory.map(|n| n.to_string())),
            quotas
                .rate
                .map_or_else(|| "-".to_owned(), |rate| format!("{rate}/s")),
            visible(&format!("{}{public}", tenant.hosts.join(", "))),
        ]);
    }
    columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_numbers_or_none() {
        assert_eq!(rate("100/s").unwrap().0, Some(100));
        assert_eq!(rate("5").unwrap().0, Some(5));
        assert_eq!(rate("none").unwrap().0, None);
        assert_eq!(
            "64MiB".parse::<Quota<ByteSize>>().unwrap().0,
            Some(ByteSize::mib(64))
        );
        for bad in ["", "-1", "x", "1/m"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
