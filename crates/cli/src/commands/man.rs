use super::Millpond;
use crate::{failure::Failure, output::Output};
use clap::{Args, CommandFactory as _};
use std::{fs, path::PathBuf};

/// Print the manual page of the command, or write those of all verbs
///
/// For example: millpond man --into ~/.local/share/man/man1
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// Write a page for each verb into this folder
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let command = Millpond::command();
        if let Some(folder) = self.into {
            let written =
                fs::create_dir_all(&folder).and_then(|()| clap_mangen::generate_to(command, &folder));
            return written.map_err(|error| {
                Failure::local(
                    format!("cannot write manual pages into {}: {error}", folder.display()),
                    "name a folder that you may write to",
                )
            });
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .render(&mut page)
            .map_err(Failure::Output)?;
        output.bytes(&page)
    }
}
