use crate::{
    client::Client,
    failure::Failure,
    output::{self, Output},
    plan,
    project::{Code, Project},
};
use admin::wire::Deployment;
use clap::Args;
use contract::{Digest, Name};
use manifest::Manifest;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// Deploy an application from its manifest
///
/// Functions that changed get a new version, which takes over at once while requests that run finish on the old one;
/// functions that the manifest no longer has are deleted. Code that the node already has is not sent again.
#[derive(Args, Debug)]
pub(crate) struct Deploy {
    /// The manifest, or the folder with a millpond.toml
    #[arg(value_name = "FOLDER|FILE", default_value = ".")]
    place: PathBuf,
    /// The manifest
    #[arg(short, long, value_name = "FILE", conflicts_with = "place")]
    file: Option<PathBuf>,
    /// Only show what would change
    #[arg(long)]
    plan: bool,
    /// First run the build commands of the manifest
    #[arg(long)]
    build: bool,
    /// With --build: show what the build commands print, not only when they fail
    #[arg(short, long, requires = "build")]
    verbose: bool,
}

impl Deploy {
    pub(crate) fn run(
        self,
        client: impl FnOnce() -> Result<Client, Failure>,
        output: Output,
    ) -> Result<(), Failure> {
        let project = Project::at(self.file.unwrap_or(self.place));
        let manifest = project.manifest()?;
        if self.build {
            super::build::build(&project, &manifest, None, self.verbose)?;
        }
        let code = project.code(&manifest)?;
        let request = Request::new(&manifest, &code);
        let client = client()?;
        if self.plan {
            let (planned, plan) = request.plan(&client)?;
            return output.answer(&planned, || plan::render(&plan));
        }
        let Deployed {
            answer,
            deployment,
            addresses,
        } = request.deploy(&client)?;
        output.answer(&answer, || {
            format!("{}\n{}", plan::render(&deployment), plan::listed(&addresses))
        })
    }
}

/// What a deployment asks of a node.
pub(super) struct Request<'a> {
    code: &'a Code<'a>,
    path: String,
    document: Value,
}

/// What the node answered.
pub(super) struct Deployed {
    /// All of it, and `urls`.
    pub(super) answer: Value,
    /// The same, understood.
    pub(super) deployment: Deployment,
    /// Where each function can be reached.
    pub(super) addresses: Vec<(String, Vec<String>)>,
}

impl<'a> Request<'a> {
    pub(super) fn new(manifest: &Manifest, code: &'a Code<'a>) -> Self {
        let digests: BTreeMap<&Name, Digest> =
            code.iter().map(|(name, (digest, _))| (*name, *digest)).collect();
        Self {
            code,
            path: format!("/v1/applications/{}/deployments", manifest.application.name),
            document: json!({ "manifest": manifest, "code": digests }),
        }
    }

    fn plan(&self, client: &Client) -> Result<(Value, Deployment), Failure> {
        let planned: Value = client.post(&format!("{}?plan=true", self.path), &self.document)?;
        let plan = understood(&planned)?;
        Ok((planned, plan))
    }

    /// Sends the code that the node does not have, and makes the manifest the live state.
    pub(super) fn deploy(&self, client: &Client) -> Result<Deployed, Failure> {
        let (_, plan) = self.plan(client)?;
        let mut sent = BTreeSet::new();
        for (name, (digest, bytes)) in self.code {
            if plan.missing_code.contains(digest) && sent.insert(*digest) {
                client.put_code(name.as_str(), *digest, bytes)?;
            }
        }
        let spinner = output::spinner("deploying");
        let deployed: Result<Value, Failure> =
            client.post(&format!("{}?plan=false", self.path), &self.document);
        spinner.finish_and_clear();
        let mut answer = deployed?;
        let deployment = understood(&answer)?;
        let addresses = plan::addresses(&deployment, &client.data_plane()?);
        answer["urls"] = addresses
            .iter()
            .map(|(name, urls)| (name.clone(), json!(urls)))
            .collect();
        Ok(Deployed {
            answer,
            deployment,
            addresses,
        })
    }
}

fn understood(answer: &Value) -> Result<Deployment, Failure> {
    serde_json::from_value(answer.clone()).map_err(|error| Failure::Foreign {
        attempt: "deploying".to_owned(),
        reason: error.to_string(),
    })
}
