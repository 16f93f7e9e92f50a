//! Runs `bench-claims` with the service as it is shipped: the folder is beside what is built.

use std::process::Command;

use clap::Args;

use super::{build, build_package, number, pass_on};
use crate::workspace::Workspace;
use crate::{Result, process};

/// How much is measured. What is not given is the program's own default.
#[derive(Debug, Default, Args)]
pub(crate) struct Arguments {
    /// How often everything is measured, each time in another order [default: 5]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: Option<u64>,
    /// How long each measurement takes, in seconds, after one of warm-up [default: 4]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: Option<u64>,
    /// How many long polls wait for one record [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=20_000))]
    waiters: Option<u64>,
    /// Let the kernel choose the processors; otherwise the service has one for itself
    #[arg(long)]
    unpinned: bool,
    /// One short round, to see that everything works
    #[arg(long, conflicts_with_all = ["rounds", "seconds", "waiters"])]
    quick: bool,
}

/// Builds the service and the program that measures it, and runs that.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::read()?;
    // One after the other: in one build the features that one asks for would change the other.
    let onlyonce = build_package(&workspace, "crates/cli", "onlyonce", &[])?;
    let program = build(&workspace, "bench-claims", &["claims"])?;
    let mut command = Command::new(program);
    command.arg("--folder").arg(workspace.target_dir.join("bench-claims")).arg("--onlyonce").arg(onlyonce);
    process::run(with(&mut command, arguments))
}

fn with<'c>(command: &'c mut Command, arguments: &Arguments) -> &'c mut Command {
    let Arguments { rounds, seconds, waiters, unpinned, quick } = arguments;
    let options =
        [("--rounds", number(*rounds)), ("--seconds", number(*seconds)), ("--waiters", number(*waiters))];
    pass_on(command, &options, &[("--unpinned", *unpinned), ("--quick", *quick)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_passed_on_and_nothing_else() {
        let mut command = Command::new("bench-claims");
        assert_eq!(process::line(with(&mut command, &Arguments::default())), "bench-claims");
        let given = Arguments { waiters: Some(500), unpinned: true, ..Arguments::default() };
        assert_eq!(process::line(with(&mut command, &given)), "bench-claims --waiters 500 --unpinned");
    }
}
