//! Runs `bench-sweep` with its stores: what is missing is installed, the folder is beside what is built.

use std::process::Command;

use clap::Args;

use super::{build, number, pass_on};
use crate::workspace::Workspace;
use crate::{Result, process, tools};

/// How much is measured. What is not given is the program's own default.
#[derive(Debug, Default, Args)]
pub(crate) struct Arguments {
    /// Which stores [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = ["file", "redis", "postgres"])]
    store: Vec<String>,
    /// How many records expire and are swept [default: 10000000; with --quick 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    records: Option<u64>,
    /// How many operations a second are begun [default: 500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: Option<u64>,
    /// How long each turn with or without a sweep takes, in seconds [default: 20; with --quick 1]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// How many turns of each kind there are before it is swept until nothing is left [default: 6; with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    turns: Option<u64>,
    /// How many records one batch touches at the most [default: 500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: Option<u64>,
    /// Write everything that was measured into this file too, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Few records and short turns, to see that everything works
    #[arg(long)]
    quick: bool,
}

/// Builds the program and runs it.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::read()?;
    tools::install(&[tools::POSTGRES, tools::REDIS])?;
    let mut command = Command::new(build(&workspace, "bench-sweep", &["sweep"])?);
    command.arg("--folder").arg(workspace.target_dir.join("bench-sweep"));
    process::run(with(&mut command, arguments))
}

fn with<'c>(command: &'c mut Command, arguments: &Arguments) -> &'c mut Command {
    let Arguments { store, records, rate, seconds, turns, batch, json, quick } = arguments;
    let options = [
        ("--store", (!store.is_empty()).then(|| store.join(","))),
        ("--records", number(*records)),
        ("--rate", number(*rate)),
        ("--seconds", number(*seconds)),
        ("--turns", number(*turns)),
        ("--batch", number(*batch)),
        ("--json", json.clone()),
    ];
    pass_on(command, &options, &[("--quick", *quick)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_passed_on_and_nothing_else() {
        let mut command = Command::new("bench-sweep");
        assert_eq!(process::line(with(&mut command, &Arguments::default())), "bench-sweep");
        let given = Arguments {
            store: vec!["file".into(), "redis".into()],
            records: Some(5000),
            quick: true,
            ..Arguments::default()
        };
        let line = process::line(with(&mut command, &given));
        assert_eq!(line, "bench-sweep --store file,redis --records 5000 --quick");
    }
}
