use crate::{
    client::Client,
    failure::Failure,
    output::{self, Output},
    plan,
};
use admin::wire::Deployment;
use clap::Args;
use contract::{Digest, Name};
use manifest::Manifest;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
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
}

impl Deploy {
    pub(crate) fn run(
        self,
        client: impl FnOnce() -> Result<Client, Failure>,
        output: Output,
    ) -> Result<(), Failure> {
        let path = match self.file {
            Some(file) => file,
            None if self.place.is_dir() => self.place.join("millpond.toml"),
            None => self.place,
        };
        let manifest = read_manifest(&path)?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        if self.build {
            build(&manifest, folder)?;
        }
        let code = read_code(&manifest, folder)?;
        let digests: BTreeMap<&Name, Digest> =
            code.iter().map(|(name, (digest, _))| (*name, *digest)).collect();
        let document = json!({ "manifest": manifest, "code": digests });
        let deployments = format!("/v1/applications/{}/deployments", manifest.application.name);

        let client = client()?;
        let planned: Value = client.post(&format!("{deployments}?plan=true"), &document)?;
        let plan = understood(&planned)?;
        if self.plan {
            return output.answer(&planned, || plan::render(&plan));
        }
        let mut sent = BTreeSet::new();
        for (name, (digest, bytes)) in &code {
            if plan.missing_code.contains(digest) && sent.insert(*digest) {
                client.put_code(name.as_str(), *digest, bytes)?;
            }
        }
        let spinner = output::spinner("deploying");
        let deployed: Result<Value, Failure> = client.post(&format!("{deployments}?plan=false"), &document);
        spinner.finish_and_clear();
        let mut deployed = deployed?;
        let deployment = understood(&deployed)?;
        let addresses = plan::addresses(&deployment, &client.data_plane()?);
        deployed["urls"] = addresses
            .iter()
            .map(|(name, urls)| (name.clone(), json!(urls)))
            .collect();
        output.answer(&deployed, || {
            let rows: Vec<Vec<String>> = addresses
                .iter()
                .flat_map(|(name, urls)| {
                    let names = std::iter::once(name.clone()).chain(std::iter::repeat(String::new()));
                    names.zip(urls).map(|(name, url)| vec![name, url.clone()])
                })
                .collect();
            format!("{}\n{}", plan::render(&deployment), output::columns(&rows))
        })
    }
}

fn understood(answer: &Value) -> Result<Deployment, Failure> {
    serde_json::from_value(answer.clone()).map_err(|error| Failure::Foreign {
        attempt: "deploying".to_owned(),
        reason: error.to_string(),
    })
}

fn read_manifest(path: &Path) -> Result<Manifest, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => "name the manifest or its folder: `millpond deploy FOLDER`",
            io::ErrorKind::InvalidData => "a manifest is TOML in UTF-8",
            _ => "",
        };
        Failure::usage(
            format!("cannot read the manifest {}: {error}", path.display()),
            hint,
        )
    })?;
    manifest::parse(&text).map_err(|faults| Failure::Manifest {
        path: path.to_owned(),
        text,
        faults,
    })
}

/// Runs each build command once, however many functions name it. What it prints goes to standard error.
fn build(manifest: &Manifest, folder: &Path) -> Result<(), Failure> {
    let commands: BTreeSet<&str> = manifest
        .function
        .values()
        .filter_map(|function| Some(function.build.as_ref()?.command.as_str()))
        .collect();
    if commands.is_empty() {
        return Err(Failure::usage(
            "no function of the manifest says how it is built",
            "add a `[function.NAME.build]` table with a `command`, or leave out --build",
        ));
    }
    for command in commands {
        eprintln!("build: {command}");
        let failed = |reason: String| {
            Failure::local(
                format!("the build command `{command}` {reason}"),
                format!("it runs in {}", folder.display()),
            )
        };
        let status = Command::new("sh")
            .args(["-c", command])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(io::stderr())
            .status()
            .map_err(|error| failed(format!("could not be started: {error}")))?;
        if !status.success() {
            return Err(failed(format!("failed: {status}")));
        }
    }
    Ok(())
}

type Code<'a> = BTreeMap<&'a Name, (Digest, Vec<u8>)>;

fn read_code<'a>(manifest: &'a Manifest, folder: &Path) -> Result<Code<'a>, Failure> {
    let read = |(name, function): (&'a Name, &'a manifest::Function)| {
        let path = folder.join(&function.source);
        let bytes = fs::read(&path).map_err(|error| {
            let hint = match (&function.build, error.kind()) {
                (Some(_), io::ErrorKind::NotFound) => "build it with --build",
                (None, io::ErrorKind::NotFound) => "build it first; `source` is relative to the manifest",
                _ => "",
            };
            Failure::usage(
                format!("cannot read the code of `{name}` at {}: {error}", path.display()),
                hint,
            )
        })?;
        Ok((name, (Digest(Sha256::digest(&bytes).into()), bytes)))
    };
    manifest.function.iter().map(read).collect()
}
