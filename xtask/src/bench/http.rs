//! Runs `bench-http` with the sidecar as it is shipped: nginx and wrk are installed, the folder is beside what is built.

use std::path::PathBuf;
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
    /// How long each measurement takes, in seconds, after one of warm-up [default: 5]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: Option<u64>,
    /// Afterwards, put load on the proxy for so many minutes with each store and watch its memory [default: not at all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: Option<u64>,
    /// At how many connections the proxies are measured [default: 64,256]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1024))]
    connections: Vec<u64>,
    /// Measure this program [default: a release build is made]
    #[arg(long, value_name = "FILE")]
    onlyonce: Option<PathBuf>,
    /// What the proxies are in front of; a bare one takes less of the processor that it shares with wrk [default: hyper]
    #[arg(long, value_name = "KIND", value_parser = ["hyper", "bare"])]
    upstream: Option<String>,
    /// Which proxies tell the application who asks; to read that takes time of the processor that it shares with wrk [default:
    /// shipped, where the sidecar tells and nginx does not]
    #[arg(long, value_name = "WHO", value_parser = ["shipped", "neither", "both"])]
    telling: Option<String>,
    /// Only this part [default: both]
    #[arg(long, value_name = "PART", value_parser = ["proxies", "layers"])]
    part: Option<String>,
    /// Let the kernel choose the processors; otherwise what is measured has one for itself
    #[arg(long)]
    unpinned: bool,
    /// One short round, to see that everything works
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
}

/// Builds the sidecar and the program that measures it, and runs that.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::read()?;
    tools::install(&[tools::NGINX, tools::WRK])?;
    // One after the other: in one build the features that one asks for would change the other.
    let onlyonce = match &arguments.onlyonce {
        // A name without a folder would be looked for among the programs of the machine.
        Some(onlyonce) => {
            onlyonce.canonicalize().map_err(|error| format!("{}: {error}", onlyonce.display()))?
        }
        None => build_package(&workspace, "crates/cli", "onlyonce", &[])?,
    };
    let program = build(&workspace, "bench-http", &["http"])?;
    let mut command = Command::new(program);
    command.arg("--folder").arg(workspace.target_dir.join("bench-http")).arg("--onlyonce").arg(onlyonce);
    process::run(with(&mut command, arguments))
}

fn with<'c>(command: &'c mut Command, arguments: &Arguments) -> &'c mut Command {
    let Arguments {
        rounds,
        seconds,
        minutes,
        connections,
        onlyonce: _,
        upstream,
        telling,
        part,
        unpinned,
        quick,
    } = arguments;
    let options = [
        ("--rounds", number(*rounds)),
        ("--seconds", number(*seconds)),
        ("--minutes", number(*minutes)),
        ("--connections", list(connections)),
        ("--upstream", upstream.clone()),
        ("--telling", telling.clone()),
        ("--part", part.clone()),
    ];
    pass_on(command, &options, &[("--unpinned", *unpinned), ("--quick", *quick)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_passed_on_and_nothing_else() {
        let mut command = Command::new("bench-http");
        assert_eq!(process::line(with(&mut command, &Arguments::default())), "bench-http");
        let given = Arguments {
            minutes: Some(10),
            connections: vec![64, 256],
            part: Some("layers".into()),
            quick: true,
            ..Arguments::default()
        };
        let line = process::line(with(&mut command, &given));
        assert_eq!(line, "bench-http --minutes 10 --connections 64,256 --part layers --quick");
    }
}
