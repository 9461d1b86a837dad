use crate::{
    failure::Failure,
    output::{self, Output},
    templates::{self, Template},
};
use clap::Args;
use contract::Name;
use serde_json::{Value, json};
use std::{fs, io, path::PathBuf};

/// Begin an application from a template; without arguments, list the templates
#[derive(Args, Debug)]
pub(crate) struct New {
    /// The template
    #[arg(value_name = "TEMPLATE", requires = "name")]
    template: Option<String>,
    /// The name of the application and its function
    #[arg(value_name = "NAME")]
    name: Option<Name>,
    /// The folder to write it into, new or empty [default: NAME]
    #[arg(long, value_name = "FOLDER", requires = "name")]
    into: Option<PathBuf>,
}

impl New {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let templates = templates::all();
        let (Some(template), Some(name)) = (self.template, self.name) else {
            return list(&templates, output);
        };
        let Some(template) = templates.iter().find(|known| known.name == template) else {
            let names: Vec<&str> = templates.iter().map(|template| template.name).collect();
            return Err(Failure::usage(
                format!("there is no template `{template}`"),
                format!("there are {}", names.join(", ")),
            ));
        };
        let folder = self.into.unwrap_or_else(|| PathBuf::from(name.as_str()));
        match fs::read_dir(&folder).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => {
                return Err(Failure::usage(
                    format!("the folder {} is not empty", folder.display()),
                    "choose another with --into",
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(Failure::usage(
                    format!("cannot use the folder {}: {error}", folder.display()),
                    "choose another with --into",
                ));
            }
        }
        template.write(&name, &folder).map_err(|error| {
            Failure::local(
                format!("cannot write the application into {}: {error}", folder.display()),
                "choose a folder that you may write to with --into",
            )
        })?;
        let answer = json!({ "application": name, "template": template.name, "folder": folder });
        output.answer(&answer, || {
            format!(
                "{name} is in {}; it needs {}\n\n  cd {}\n  millpond up\n",
                folder.display(),
                template.about.needs,
                folder.display()
            )
        })
    }
}

fn list(templates: &[Template], output: Output) -> Result<(), Failure> {
    let described: Vec<Value> = templates
        .iter()
        .map(|Template { name, about, .. }| json!({ "template": name, "summary": about.summary, "needs": about.needs }))
        .collect();
    output.answer(&json!({ "templates": described }), || {
        let rows: Vec<Vec<String>> = templates
            .iter()
            .flat_map(|Template { name, about, .. }| {
                [
                    vec![(*name).to_owned(), about.summary.clone()],
                    vec![String::new(), format!("needs {}", about.needs)],
                ]
            })
            .collect();
        format!(
            "{}\nBegin with: millpond new TEMPLATE NAME\n",
            output::columns(&rows)
        )
    })
}
