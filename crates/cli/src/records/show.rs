//! `onlyonce records show`: one record, with its timeline.

use std::io::IsTerminal as _;

use clap::Args;
use onlyonce_server::operator::Call;
use serde_json::Value;

use super::side::{SideArgs, cell, write_pairs};
use super::target::block_on;
use super::which::WhichArgs;
use super::write::WhoArgs;
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;
use crate::plain::{json, plain, plain_lines};

/// Show one record: its state, what came out, its steps and its timeline
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records show --key order-7 --principal 'Bearer sesame' --path /v1/payments
  onlyonce records show ID --show-body --json | jq -r .outcome.body.text

",
    exit_codes!()
))]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    which: WhichArgs,

    /// Show bodies and headers too. That somebody looked is written to the audit
    #[arg(long)]
    show_body: bool,

    /// With --show-body: write bodies byte for byte, to a file or a pipe. Without it, what a terminal would obey is shown
    /// as its number
    #[arg(long, requires = "show_body", conflicts_with = "json")]
    raw: bool,

    #[command(flatten)]
    who: WhoArgs,

    #[command(flatten)]
    side: SideArgs,
}

pub(crate) fn run(args: &ShowArgs) -> Result<(), Failure> {
    if args.raw && std::io::stdout().is_terminal() {
        let text = "--raw is for a file or a pipe: a terminal would obey what is in the body".to_owned();
        return Err(Failure::Usage(text));
    }
    block_on(async {
        let ready = args.side.open().await?;
        let id = args.which.find(&ready).await?;
        let shown = ready.ask_as(Call::Show { id, body: args.show_body }, args.who.by(None)).await?;
        if args.side.json {
            return write_line(&json(&shown));
        }
        write_record(&shown)?;
        write_rest(&shown, args.raw)
    })
}

/// What every record has.
pub(crate) fn write_record(record: &Value) -> Result<(), Failure> {
    let names = [
        "id",
        "state",
        "fence",
        "attempt",
        "scope",
        "created_at",
        "changed_at",
        "lease_until",
        "run_until",
        "expires_at",
        "bytes",
        "erased",
        "by",
        "unreadable",
    ];
    let there = names.into_iter().filter(|name| !record[*name].is_null());
    let pairs: Vec<_> = there.map(|name| (name, cell(&record[name]))).collect();
    write_pairs(&pairs)
}

fn write_rest(record: &Value, raw: bool) -> Result<(), Failure> {
    for name in ["outcome", "late"] {
        let Some(outcome) = record[name].as_object() else { continue };
        write_line(&format!("\n{name}"))?;
        for (name, value) in outcome.iter().filter(|(name, _)| *name != "body") {
            write_line(&format!("  {:<12}  {}", plain(name), cell(value)))?;
        }
        if let Some(body) = outcome.get("body") {
            let text = body["text"].as_str().or_else(|| body["base64"].as_str()).unwrap_or_default();
            let text = if raw { text.into() } else { plain_lines(text) };
            write_line(&format!("\n{text}"))?;
        }
    }
    let list = |name: &str| record[name].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    for (at, step) in list("steps").enumerate() {
        if at == 0 {
            write_line("\nsteps")?;
        }
        write_line(&format!("  {}  {} bytes", cell(&step["name"]), cell(&step["bytes"])))?;
    }
    write_line("\ntimeline")?;
    for entry in list("timeline") {
        let attempt = entry["attempt"].as_u64().map(|attempt| format!("  attempt {attempt}"));
        let line =
            format!("  {}  {}{}", cell(&entry["at"]), cell(&entry["event"]), attempt.unwrap_or_default());
        write_line(&line)?;
    }
    Ok(())
}
