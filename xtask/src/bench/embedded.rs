//! Runs `bench-embedded` with the engines it compares: their servers are installed, the folder is beside what is built.

use std::process::Command;

use clap::Args;

use super::build;
use crate::workspace::Workspace;
use crate::{Result, process, tools};

/// What the program calls its engines.
const ENGINES: [&str; 7] = ["onlyonce", "log", "fjall", "redb", "redb-2pc", "postgres", "redis"];

/// How much is measured. What is not given is the program's own default.
#[derive(Debug, Default, Args)]
pub(crate) struct Arguments {
    /// How many records are stored before the second half of the run [default: 10000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    records: Option<u64>,
    /// How long each number of callers is measured in each round, in seconds [default: 5]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// How often everything is measured, each time in another order [default: 3]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: Option<u64>,
    /// Which engines [default: all but redb-2pc]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = ENGINES)]
    engines: Vec<String>,
    /// One short round with 100 000 records, to see that everything works
    #[arg(long, conflicts_with_all = ["records", "seconds", "rounds"])]
    quick: bool,
}

/// Builds the program with all engines and runs it.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::read()?;
    tools::install(&[tools::POSTGRES, tools::REDIS])?;
    let program = build(&workspace, "bench-embedded", &["peers"])?;
    let mut command = Command::new(program);
    command.arg("--folder").arg(workspace.target_dir.join("bench-embedded"));
    process::run(with(&mut command, arguments))
}

fn with<'c>(command: &'c mut Command, arguments: &Arguments) -> &'c mut Command {
    let Arguments { records, seconds, rounds, engines, quick } = arguments;
    for (name, number) in [("--records", records), ("--seconds", seconds), ("--rounds", rounds)] {
        if let Some(number) = number {
            command.arg(name).arg(number.to_string());
        }
    }
    if !engines.is_empty() {
        command.arg("--engines").arg(engines.join(","));
    }
    if *quick {
        command.arg("--quick");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_passed_on_and_nothing_else() {
        let mut command = Command::new("bench-embedded");
        assert_eq!(process::line(with(&mut command, &Arguments::default())), "bench-embedded");
        let given = Arguments {
            records: Some(7),
            engines: vec!["log".into(), "redb".into()],
            ..Arguments::default()
        };
        let line = process::line(with(&mut command, &given));
        assert_eq!(line, "bench-embedded --records 7 --engines log,redb");
    }
}
