//! The command line: what is measured, how long, and where.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use onlyonce_bench::starter::sidecar_program;

use crate::Result;

/// How many claims are sent in one request.
pub(crate) const BATCH: usize = 100;

/// Measure `onlyonce serve`: claim and complete over HTTP/1.1, and how soon many long polls are answered.
///
/// Prints tables in Markdown; progress goes to stderr. Exits with 1 when something failed or a measurement is not sound
/// (an answer that is not the expected one), and with 2 when the arguments are wrong.
#[derive(Debug, Parser)]
#[command(after_help = "Example: bench-claims --folder target/bench-claims --rounds 1 --seconds 2")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Where the embedded store keeps its files: emptied before and removed after the run.
    #[arg(long, value_name = "DIR", default_value = "target/bench-claims")]
    pub(crate) folder: PathBuf,
    /// The program whose `serve` is measured [default: `onlyonce` beside this program]
    #[arg(long, value_name = "FILE")]
    onlyonce: Option<PathBuf>,
    /// How often everything is measured. The order changes with each round.
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each measurement takes, after one second of warm-up.
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// How many long polls wait for one record.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    waiters: u32,
    /// Let the kernel choose the processors. Otherwise the service has the first one for itself, and the callers the second.
    #[arg(long)]
    pub(crate) unpinned: bool,
    /// One short round with fewer long polls, to see that everything works.
    #[arg(long, conflicts_with_all = ["rounds", "seconds", "waiters"])]
    pub(crate) quick: bool,
    /// Measure on a file system in memory too, where syncs cost nothing: for tests of this program.
    #[arg(long, hide = true)]
    pub(crate) any_disk: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The callers in a process of their own: only this program calls it.
    #[command(hide = true)]
    Load(Asked),
    /// The long polls, likewise.
    #[command(hide = true)]
    Wait {
        /// Where the service listens.
        address: SocketAddr,
        /// How many wait.
        waiters: u32,
    },
}

/// What callers do.
#[derive(Debug, Clone, Args)]
pub(crate) struct Asked {
    /// Where the service listens.
    pub(crate) address: SocketAddr,
    /// On how many connections.
    pub(crate) connections: u32,
    /// How many claims in one request: one is asked for by itself, more as a batch.
    pub(crate) batch: usize,
    /// For how long.
    pub(crate) millis: u64,
    /// What every key begins with: keys are new in each measurement.
    pub(crate) name: String,
}

impl Arguments {
    pub(crate) fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs(u64::from(if self.quick { 1 } else { self.seconds }))
    }

    pub(crate) fn waiters(&self) -> u32 {
        if self.quick { 100 } else { self.waiters }
    }

    /// The program whose `serve` is measured.
    pub(crate) fn onlyonce(&self) -> Result<PathBuf> {
        sidecar_program(self.onlyonce.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn quick_is_smaller_than_the_default() {
        let quick = Arguments::parse_from(["bench-claims", "--quick"]);
        let full = Arguments::parse_from(["bench-claims"]);
        assert!(quick.rounds() < full.rounds() && quick.window() < full.window());
        assert!(quick.waiters() < full.waiters());
        assert!(Arguments::try_parse_from(["bench-claims", "--quick", "--rounds", "7"]).is_err());
    }
}
