//! The command line: what is measured, how long, and where.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::engine::Kind;

/// The most time a round may take: one that is longer measures the machine's day, not the engine.
const SECONDS_MAX: f64 = 3600.0;
const CALLERS_MAX: usize = 4096;
const RECORDS_MAX: u64 = 1_000_000_000;

/// Measure durable claim+complete pairs a second of the embedded store, a bare log and other engines.
///
/// Prints tables in Markdown; progress goes to stderr. Exits with 1 when an engine failed or lost a record, and with 2
/// when the arguments are wrong.
#[derive(Debug, Parser)]
#[command(after_help = "Example: bench-embedded --folder target/bench-embedded --records 200000 --seconds 2")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Where the engines keep their files: emptied before and removed after the run.
    #[arg(long, value_name = "DIR", default_value = "target/bench-embedded")]
    pub(crate) folder: PathBuf,
    /// How many records are stored before the second half of the run.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=RECORDS_MAX))]
    pub(crate) records: u64,
    /// How long each number of callers is measured in each round.
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// How often everything is measured. The order of the engines changes with each round.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// How many callers there are at a time.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 16, 64, 256], value_parser = callers)]
    pub(crate) callers: Vec<usize>,
    /// Which engines.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum, default_values_t = Kind::STANDARD.to_vec())]
    pub(crate) engines: Vec<Kind>,
    /// One short round with 100 000 records, to see that everything works.
    #[arg(long, conflicts_with_all = ["records", "seconds", "rounds"])]
    pub(crate) quick: bool,
    /// Measure on a file system in memory too, where no figure means anything: for tests of this program.
    #[arg(long, hide = true)]
    pub(crate) any_disk: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One engine's part of a run, described in JSON: only this program calls it.
    #[command(hide = true)]
    Worker {
        /// What to do.
        task: String,
    },
}

impl Arguments {
    pub(crate) fn records(&self) -> u64 {
        if self.quick { 100_000 } else { self.records }
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs_f64(if self.quick { 1.0 } else { self.seconds })
    }

    pub(crate) fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.05..=SECONDS_MAX).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("not between 0.05 and {SECONDS_MAX}"))
    }
}

fn callers(text: &str) -> Result<usize, String> {
    let callers = text.parse().map_err(|error| format!("{error}"))?;
    if (1..=CALLERS_MAX).contains(&callers) {
        Ok(callers)
    } else {
        Err(format!("not between 1 and {CALLERS_MAX}"))
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
        let quick = Arguments::parse_from(["bench-embedded", "--quick"]);
        let full = Arguments::parse_from(["bench-embedded"]);
        assert!(quick.records() < full.records() && quick.window() < full.window());
        assert!(Arguments::try_parse_from(["bench-embedded", "--quick", "--records", "7"]).is_err());
    }
}
