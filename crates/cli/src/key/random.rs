//! `onlyonce key random`: keys from chance.

use clap::Args;
use onlyonce::Key;
use onlyonce::key::derive::{random_v4, random_v7};
use serde::Serialize;

use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::{self, OutputArgs};
use crate::times;

/// The most keys that one call makes.
const COUNT_MAX: u16 = 10_000;

/// Make random keys: UUIDs of version 4, or of version 7, which sort by time.
///
/// A random key protects only if it is stored before the first attempt, and sent again with every retry.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Examples:
  onlyonce key random
  onlyonce key random --version 7 --count 3

",
    exit_codes!()
))]
pub(crate) struct RandomArgs {
    /// The version of the UUID: 4 (chance only) or 7 (time, then chance)
    #[arg(long = "version", value_name = "VERSION", default_value_t = 4, value_parser = parse_version)]
    uuid_version: u8,

    /// How many keys, one per line
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(COUNT_MAX)))]
    count: u16,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Random<'a> {
    /// The first one, so that `.key` is there whatever made it.
    key: &'a str,
    keys: &'a [&'a str],
    strategy: &'static str,
    version: u8,
}

pub(crate) fn run(args: &RandomArgs) -> Result<(), Failure> {
    let make = || if args.uuid_version == 7 { random_v7(times::now()) } else { random_v4() };
    let keys: Vec<Key> = (0..args.count).map(|_| make()).collect::<Result<_, _>>()?;
    let keys: Vec<&str> = keys.iter().map(Key::as_str).collect();
    let random = Random {
        key: keys.first().copied().unwrap_or_default(),
        keys: &keys,
        strategy: "random",
        version: args.uuid_version,
    };
    // Chance has no hazards, so there is no `--strict` to offer.
    let output = OutputArgs { json: args.json, strict: false };
    output::write_answer(&output, &keys.join("\n"), &random, &[])
}

fn parse_version(text: &str) -> Result<u8, String> {
    match text {
        "4" => Ok(4),
        "7" => Ok(7),
        _ => Err("the versions made are 4 and 7".to_owned()),
    }
}
