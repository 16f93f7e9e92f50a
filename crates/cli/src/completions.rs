//! `onlyonce completions`: scripts that complete our command line, made from its definition.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::Failure;
use crate::output::write_line;

/// Print a script that completes this command line in a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  onlyonce completions bash > /usr/share/bash-completion/completions/onlyonce
  onlyonce completions zsh > /usr/share/zsh/vendor-completions/_onlyonce
  onlyonce completions fish > ~/.config/fish/completions/onlyonce.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "onlyonce", &mut script);
    write_line(String::from_utf8_lossy(&script).trim_end())
}
