//! `onlyonce stats`: how much is stored.

use clap::Args;
use onlyonce_server::operator::Call;

use super::side::{SideArgs, cell, write_pairs};
use super::target::block_on;
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;
use crate::plain::json;

/// Show how many records there are, by state, and how much they take
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce stats --admin http://127.0.0.1:9090
  onlyonce stats --store postgres://app@db.internal/app --json

",
    exit_codes!()
))]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    side: SideArgs,
}

pub(crate) fn run(args: &StatsArgs) -> Result<(), Failure> {
    block_on(async {
        let stats = args.side.open().await?.ask(Call::Stats).await?;
        if args.side.json {
            return write_line(&json(&stats));
        }
        let names =
            ["in_flight", "completed", "released", "unknown", "unreadable", "bytes", "oldest_expired_ms"];
        let pairs: Vec<_> = names.into_iter().map(|name| (name, cell(&stats[name]))).collect();
        write_pairs(&pairs)
    })
}
