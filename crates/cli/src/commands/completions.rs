use super::Millpond;
use crate::{failure::Failure, output::Output};
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

/// Print the completions for a shell
///
/// For example, in ~/.bashrc: source <(millpond completions bash)
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Millpond::command(), "millpond", &mut script);
        output.bytes(&script)
    }
}
