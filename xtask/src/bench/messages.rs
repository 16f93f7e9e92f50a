//! Runs `bench-messages` with its brokers and stores: what is missing is installed, the folder is beside what is built.

use std::process::Command;

use clap::Args;

use super::{build, number, pass_on};
use crate::workspace::Workspace;
use crate::{Result, process, tools};

/// How much is measured. What is not given is the program's own default.
#[derive(Debug, Default, Args)]
pub(crate) struct Arguments {
    /// How often everything is measured, each time in another order [default: 5]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: Option<u64>,
    /// How many messages are delivered to ours; a tenth of them to the naive loop [default: 200000; with --quick 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=500_000))]
    messages: Option<u64>,
    /// Only this broker and store [default: all]
    #[arg(long, value_name = "PAIR", value_parser = ["kafka-postgres", "nats-redis", "streams-embedded"])]
    pair: Option<String>,
    /// How many messages share a transaction on `PostgreSQL`, at the most [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    batch: Option<u64>,
    /// How many transactions run at a time on `PostgreSQL` [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    lanes: Option<u64>,
    /// Write everything that was measured into this file too, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// One short round, to see that everything works
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
}

/// Builds the program and runs it.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::read()?;
    tools::install(&[tools::POSTGRES, tools::REDIS, tools::NATS])?;
    let mut command = Command::new(build(&workspace, "bench-messages", &["messages"])?);
    command.env("ONLYONCE_NATS_SERVER", tools::command(&tools::NATS, &workspace.root)?.get_program());
    command.arg("--folder").arg(workspace.target_dir.join("bench-messages"));
    process::run(with(&mut command, arguments))
}

fn with<'c>(command: &'c mut Command, arguments: &Arguments) -> &'c mut Command {
    let Arguments { rounds, messages, pair, batch, lanes, json, quick } = arguments;
    let options = [
        ("--rounds", number(*rounds)),
        ("--messages", number(*messages)),
        ("--pair", pair.clone()),
        ("--batch", number(*batch)),
        ("--lanes", number(*lanes)),
        ("--json", json.clone()),
    ];
    pass_on(command, &options, &[("--quick", *quick)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_passed_on_and_nothing_else() {
        let mut command = Command::new("bench-messages");
        assert_eq!(process::line(with(&mut command, &Arguments::default())), "bench-messages");
        let given = Arguments {
            messages: Some(5000),
            pair: Some("nats-redis".into()),
            quick: true,
            ..Arguments::default()
        };
        let line = process::line(with(&mut command, &given));
        assert_eq!(line, "bench-messages --messages 5000 --pair nats-redis --quick");
    }
}
