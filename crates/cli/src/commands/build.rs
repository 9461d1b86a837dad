use crate::{builds, failure::Failure, output::Output, project::Project, signals};
use clap::Args;
use contract::Name;
use manifest::Manifest;
use serde_json::{Value, json};
use std::{path::PathBuf, sync::mpsc};

/// Run the build commands of a manifest, and check what they made
#[derive(Args, Debug)]
pub(crate) struct Build {
    /// The manifest, or the folder with a millpond.toml
    #[arg(value_name = "FOLDER|FILE", default_value = ".")]
    place: PathBuf,
    /// Only what this function is made by
    #[arg(long, value_name = "NAME")]
    function: Option<Name>,
    /// Show what the commands print, not only when they fail
    #[arg(short, long)]
    verbose: bool,
}

impl Build {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let project = Project::at(self.place);
        let manifest = project.manifest()?;
        let built = build(&project, &manifest, self.function.as_ref(), self.verbose)?;
        let answer = json!({ "built": built });
        output.answer(&answer, || {
            let line = |built: &Value| {
                let text = |key: &str| built[key].as_str().unwrap_or_default().to_owned();
                format!(
                    "{}: {} ({} bytes)\n",
                    text("function"),
                    text("code"),
                    built["bytes"]
                )
            };
            built.iter().map(line).collect()
        })
    }
}

/// Builds all functions that say how, or one; says which command runs, and what was made.
pub(super) fn build(
    project: &Project,
    manifest: &Manifest,
    only: Option<&Name>,
    verbose: bool,
) -> Result<Vec<Value>, Failure> {
    let (ring, _rung) = mpsc::channel();
    let stop = signals::listen(ring, ())?;
    let mut built = Vec::new();
    for unit in builds::some_units(manifest, project, only)? {
        eprintln!("build: {}", unit.command);
        unit.build(project, verbose, &stop)?;
        let sources = unit.sources(project)?;
        if !sources.is_empty() && !unit.is_fresh(&sources) {
            eprintln!(
                "  note: the code is older than files that `watch` names; the command may have found nothing to do"
            );
        }
        for (name, path) in &unit.makes {
            let bytes = path.metadata().map(|metadata| metadata.len()).unwrap_or_default();
            built.push(json!({ "function": name, "code": path, "bytes": bytes }));
        }
    }
    Ok(built)
}
