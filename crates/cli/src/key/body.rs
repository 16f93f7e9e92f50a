//! `onlyonce key body`: a key from a request body.

use std::path::PathBuf;

use clap::Args;
use onlyonce::key::derive::{body_hazards, body_key, raw_body_key};
use serde::Serialize;

use crate::args::exit_codes;
use crate::failure::Failure;
use crate::input;
use crate::output::{self, OutputArgs};

/// Make a key from a request body: the first 32 hexadecimal digits of the SHA-256 of its canonical JSON (RFC 8785).
///
/// Order of members, blanks and escapes do not count. Members named twice and numbers of 2^53 and more are refused.
/// Sending the same body twice on purpose needs another key: from here both look like one operation and its retry.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Examples:
  echo '{\"amount\": 100}' | onlyonce key body
  onlyonce key body --raw invoice.pdf

",
    exit_codes!()
))]
pub(crate) struct BodyArgs {
    /// The file that holds the body, or - for standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,

    /// Hash the bytes as they are: for bodies that are not JSON
    #[arg(long)]
    raw: bool,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Body<'a> {
    key: &'a str,
    strategy: &'static str,
    raw: bool,
}

pub(crate) fn run(args: &BodyArgs) -> Result<(), Failure> {
    let body =
        if args.file.as_os_str() == "-" { input::read_stdin()? } else { input::read_file(&args.file)? };
    let (key, hazards) =
        if args.raw { (raw_body_key(&body)?, Vec::new()) } else { (body_key(&body)?, body_hazards(&body)) };
    let answer = Body { key: key.as_str(), strategy: "body", raw: args.raw };
    output::write_answer(&args.output, key.as_str(), &answer, &hazards)
}
