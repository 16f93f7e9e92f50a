//! The command line: what is measured, with how many messages, and where.

use std::path::PathBuf;

use clap::Parser;

use crate::pair::{Pair, Way};

/// How many messages each way gets. The naive loops are slow: as many would take minutes.
const MESSAGES: u64 = 200_000;
const NAIVE_SHARE: u64 = 10;
/// Librdkafka's mock keeps 5 MiB of each partition.
const MESSAGES_MAX: u64 = 500_000;

/// Measure messages a second with each effect once, beside a loop with one row for each message.
///
/// Prints tables in Markdown; progress goes to stderr. Exits with 1 when something failed or a measurement is not
/// sound (an effect that is missing, or there twice), and with 2 when the arguments are wrong. Goals that are not met
/// are shown, and are no failure. `ONLYONCE_NATS_SERVER` names that server's program if it is not on the path.
#[derive(Debug, Parser)]
#[command(
    after_help = "Example: bench-messages --folder target/bench-messages --pair kafka-postgres --quick"
)]
pub(crate) struct Arguments {
    /// Where the embedded store keeps its files: emptied before and removed after the run. Redis, `PostgreSQL` and NATS
    /// take folders of their own among the machine's temporary ones (`TMPDIR`).
    #[arg(long, value_name = "DIR", default_value = "target/bench-messages")]
    pub(crate) folder: PathBuf,
    /// How often everything is measured. The order changes with each round.
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How many messages are delivered to ours; a tenth of them to the naive loop [default: 200000; with --quick 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=MESSAGES_MAX))]
    messages: Option<u64>,
    /// Only this broker and store.
    #[arg(long, value_name = "PAIR", value_enum)]
    pair: Option<Pair>,
    /// How many messages share a transaction in ours on `PostgreSQL`, at the most.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1000))]
    batch: u64,
    /// How many transactions run at a time in ours on `PostgreSQL`.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=100))]
    lanes: u64,
    /// One short round, to see that everything works.
    #[arg(long, conflicts_with = "rounds")]
    pub(crate) quick: bool,
    /// Write everything that was measured into this file too, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Measure on a file system in memory too, where syncs cost nothing: for tests of this program.
    #[arg(long, hide = true)]
    pub(crate) any_disk: bool,
}

impl Arguments {
    pub(crate) fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    /// How many messages are delivered to `way`.
    pub(crate) fn messages(&self, way: Way) -> u64 {
        let messages = self.messages.unwrap_or(if self.quick { MESSAGES / 10 } else { MESSAGES });
        match way {
            Way::Ours => messages,
            Way::Naive => messages / NAIVE_SHARE,
        }
    }

    pub(crate) fn has(&self, pair: Pair) -> bool {
        self.pair.is_none_or(|only| only == pair)
    }

    /// Messages in a transaction, and transactions at a time.
    pub(crate) fn bounds(&self) -> (usize, usize) {
        let number = |number| usize::try_from(number).unwrap_or(1);
        (number(self.batch), number(self.lanes))
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
        let quick = Arguments::parse_from(["bench-messages", "--quick"]);
        let full = Arguments::parse_from(["bench-messages"]);
        assert!(quick.rounds() < full.rounds() && quick.messages(Way::Ours) < full.messages(Way::Ours));
        assert!(full.messages(Way::Naive) < full.messages(Way::Ours));
        assert!(Arguments::try_parse_from(["bench-messages", "--quick", "--rounds", "7"]).is_err());
    }
}
