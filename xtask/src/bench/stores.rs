//! Runs `bench-stores` with the sidecar as it is shipped: servers and peers are installed, the folder is beside what is
//! built.

mod packages;

use std::process::Command;

use clap::Args;

use super::{build, build_package, list, number, pass_on};
use crate::workspace::Workspace;
use crate::{Result, process, tools};

/// How much is measured. What is not given is the program's own default.
#[derive(Debug, Default, Args)]
pub(crate) struct Arguments {
    /// How often everything is measured, each time in another order [default: 3]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: Option<u64>,
    /// How long each measurement takes, in seconds, after a warm-up [default: 5]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: Option<u64>,
    /// At how many connections [default: 64,256; with --quick 64]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1024))]
    connections: Vec<u64>,
    /// Only this part [default: all]
    #[arg(long, value_name = "PART", value_parser = ["redis", "postgres", "alone"])]
    part: Option<String>,
    /// Which Redis; axum-idempotent is left out over Debian's, which is too old for it [default: valkey]
    #[arg(long, value_name = "PRODUCT", value_parser = ["valkey", "redis"])]
    redis: Option<String>,
    /// When Redis syncs its file of commands [default: there is none, only snapshots, as Redis is shipped]
    #[arg(long, value_name = "WHEN", value_parser = ["always", "everysec", "no"])]
    appendfsync: Option<String>,
    /// Write everything that was measured into this file too, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Let the kernel choose the processors; otherwise what is measured has one for itself
    #[arg(long)]
    unpinned: bool,
    /// One short round at 64 connections, to see that everything works
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
}

/// Builds the sidecar and the program that measures it, and runs that.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::read()?;
    let needed =
        [tools::WRK, tools::REDIS, tools::POSTGRES, tools::NODE, tools::NPM, tools::PYTHON, tools::PIP];
    tools::install(&needed)?;
    tools::install(&[tools::VALKEY])?;
    let (node_modules, python_path) = (packages::node()?, packages::python()?);
    // One after the other: in one build the features that one asks for would change the other.
    let onlyonce = build_package(&workspace, "crates/cli", "onlyonce", &[])?;
    let program = build(&workspace, "bench-stores", &["stores"])?;
    let mut command = Command::new(program);
    let valkey = tools::command(&tools::VALKEY, &workspace.root)?;
    command.env("ONLYONCE_VALKEY_SERVER", valkey.get_program());
    command.arg("--folder").arg(workspace.target_dir.join("bench-stores")).arg("--onlyonce").arg(onlyonce);
    command.arg("--node-modules").arg(node_modules).arg("--python-path").arg(python_path);
    process::run(with(&mut command, arguments))
}

fn with<'c>(command: &'c mut Command, arguments: &Arguments) -> &'c mut Command {
    let Arguments { rounds, seconds, connections, part, redis, appendfsync, json, unpinned, quick } =
        arguments;
    let options = [
        ("--rounds", number(*rounds)),
        ("--seconds", number(*seconds)),
        ("--connections", list(connections)),
        ("--part", part.clone()),
        ("--redis", redis.clone()),
        ("--appendfsync", appendfsync.clone()),
        ("--json", json.clone()),
    ];
    pass_on(command, &options, &[("--unpinned", *unpinned), ("--quick", *quick)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_passed_on_and_nothing_else() {
        let mut command = Command::new("bench-stores");
        assert_eq!(process::line(with(&mut command, &Arguments::default())), "bench-stores");
        let given = Arguments {
            rounds: Some(5),
            connections: vec![64, 256],
            part: Some("redis".into()),
            json: Some("figures.json".into()),
            unpinned: true,
            ..Arguments::default()
        };
        let line = process::line(with(&mut command, &given));
        assert_eq!(
            line,
            "bench-stores --rounds 5 --connections 64,256 --part redis --json figures.json --unpinned"
        );
    }
}
