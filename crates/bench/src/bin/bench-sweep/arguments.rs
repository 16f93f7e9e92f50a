//! The command line: which stores, how many records, and under which load.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::place::Kind;

/// How many records expire.
const RECORDS: u64 = 10_000_000;
const QUICK_RECORDS: u64 = 20_000;

/// Measure the latency of claims and completions while expired records are swept, beside that while nothing is.
///
/// Prints tables in Markdown; progress goes to stderr. Exits with 1 when something failed or a measurement is not sound (an
/// expired record that stayed, a live one that went, a batch that was too large), and with 2 when the arguments are wrong.
/// Goals that are not met are shown, and are no failure.
#[derive(Debug, Parser)]
#[command(after_help = "Example: bench-sweep --folder target/bench-sweep --store postgres --quick")]
pub(crate) struct Arguments {
    /// Where the embedded store keeps its files: emptied before and removed after the run. Redis and `PostgreSQL` take folders
    /// of their own among the machine's temporary ones (`TMPDIR`).
    #[arg(long, value_name = "DIR", default_value = "target/bench-sweep")]
    pub(crate) folder: PathBuf,
    /// Which stores [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    store: Vec<Kind>,
    /// How many records expire and are swept [default: 10000000; with --quick 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    records: Option<u64>,
    /// How many records live beside them and must all be left.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) live: u64,
    /// How many operations a second are begun, each a claim and a completion.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) rate: u64,
    /// How long each turn with or without a sweep takes, in seconds [default: 20; with --quick 1]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// How many turns of each kind there are at first; then sweeps are six times as long, until nothing is left [default: 6;
    /// with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: Option<u32>,
    /// How many records one batch touches at the most.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Few records and short turns, to see that everything works.
    #[arg(long)]
    quick: bool,
    /// Write everything that was measured into this file too, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Measure on a file system in memory too, where syncs cost nothing: for tests of this program.
    #[arg(long, hide = true)]
    pub(crate) any_disk: bool,
}

impl Arguments {
    pub(crate) fn records(&self) -> u64 {
        self.records.unwrap_or(if self.quick { QUICK_RECORDS } else { RECORDS })
    }

    pub(crate) fn turn(&self) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(if self.quick { 1 } else { 20 }))
    }

    pub(crate) fn turns(&self) -> u32 {
        self.turns.unwrap_or(if self.quick { 1 } else { 6 })
    }

    pub(crate) fn batch(&self) -> usize {
        usize::try_from(self.batch).unwrap_or(1)
    }

    pub(crate) fn stores(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|kind| self.store.is_empty() || self.store.contains(kind)).collect()
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
        let quick = Arguments::parse_from(["bench-sweep", "--quick"]);
        let full = Arguments::parse_from(["bench-sweep", "--store", "redis,file"]);
        assert!(
            quick.records() < full.records() && quick.turn() < full.turn() && quick.turns() < full.turns()
        );
        assert_eq!((quick.stores().len(), full.stores()), (3, vec![Kind::File, Kind::Redis]));
        assert_eq!(full.records(), 10_000_000);
    }
}
