//! `onlyonce key composite`: a key from a user, an operation and a stretch of time.

use std::time::Duration;

use clap::Args;
use onlyonce::clock::Timestamp;
use onlyonce::key::derive::Composite;
use serde::Serialize;

use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::{self, OutputArgs};
use crate::times;

/// Make a key from a user, an operation and a stretch of time: at most once per window.
///
/// Windows are aligned to 1970-01-01 UTC. A retry just after a boundary gets another key than its first attempt. So look
/// up the key of the previous window first (--verbose or --json show it), and use the current one only if there is no
/// record of the previous. Choose a window longer than the whole time over which you retry.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Examples:
  onlyonce key composite --user alice --operation transfer --window 10m
  onlyonce key composite --user alice --operation transfer --window 1d --at 2026-11-15T04:09:00Z --json

",
    exit_codes!()
))]
pub(crate) struct CompositeArgs {
    /// Who asks
    #[arg(long)]
    user: String,

    /// What for
    #[arg(long)]
    operation: String,

    /// How long a window is: 30s, 10m, 1h, 1d; at most 366 days
    #[arg(long, value_name = "DURATION", value_parser = times::parse_duration)]
    window: Duration,

    /// The time, in RFC 3339 or seconds since 1970 [default: now]
    #[arg(long, value_name = "TIME", value_parser = times::parse_at)]
    at: Option<Timestamp>,

    /// Print the previous window's key and the window, on lines after the key
    #[arg(long, short)]
    verbose: bool,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Answer<'a> {
    key: &'a str,
    previous: &'a str,
    strategy: &'static str,
    at: String,
    window_start: String,
    window_end: String,
    window_ms: u128,
}

pub(crate) fn run(args: &CompositeArgs) -> Result<(), Failure> {
    let at = args.at.unwrap_or_else(times::now);
    let composite = Composite::new(&args.user, &args.operation, args.window, at)?;
    let answer = Answer {
        key: composite.key().as_str(),
        previous: composite.previous().as_str(),
        strategy: "composite",
        at: times::show(at),
        window_start: times::show(composite.window_start()),
        window_end: times::show(composite.window_end()),
        window_ms: args.window.as_millis(),
    };
    let mut plain = answer.key.to_owned();
    if args.verbose {
        let Answer { previous, window_start, window_end, .. } = &answer;
        plain = format!("{plain}\nprevious {previous}\nwindow {window_start} to {window_end}");
    }
    output::write_answer(&args.output, &plain, &answer, &Composite::hazards(&args.user, &args.operation))
}
