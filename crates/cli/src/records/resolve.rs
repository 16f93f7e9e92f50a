//! `onlyonce records resolve`: says what happened to a record that nobody could decide.

use std::path::PathBuf;

use clap::Args;
use onlyonce::RecordId;
use onlyonce_server::operator::{Call, GivenOutcome, Resolution, VerdictName};
use serde_json::Value;

use super::show::write_record;
use super::side::{Ready, SideArgs};
use super::target::block_on;
use super::which::WhichArgs;
use super::write::WriteArgs;
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::input::read_file;
use crate::output::write_line;
use crate::plain;

/// Say what happened to an unknown or sealed record
///
/// Find out first: `executed` closes the record, and retries get the outcome; `not-executed` frees the key, and the next
/// request runs the work again.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records resolve ID --executed --outcome answer.json --why 'payment 77 is at the bank'
  onlyonce records resolve ID --not-executed --why 'no such payment at the bank'

answer.json: {\"status\": 201, \"content_type\": \"application/json\", \"body\": {\"payment\": 77}}

",
    exit_codes!()
))]
pub(crate) struct ResolveArgs {
    #[command(flatten)]
    which: WhichArgs,

    /// The work happened
    #[arg(long, required_unless_present = "not_executed", conflicts_with_all = ["not_executed", "force"])]
    executed: bool,

    /// The work did not happen, and no longer can
    #[arg(long)]
    not_executed: bool,

    /// What came out, as JSON: status, `content_type`, and body or base64. Without it, retries learn that it was done and
    /// its answer not kept
    #[arg(long, value_name = "FILE", requires = "executed")]
    outcome: Option<PathBuf>,

    #[command(flatten)]
    attempt: AttemptArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    side: SideArgs,
}

/// Which attempt is meant, and what is known of it.
#[derive(Debug, Args)]
pub(crate) struct AttemptArgs {
    /// The fence of the attempt in question, as problems name it [default: the one on record]
    #[arg(long, value_name = "N")]
    fence: Option<u64>,

    /// Not executed, although the attempt may still be running: only if you know that it is not
    #[arg(long)]
    force: bool,
}

impl AttemptArgs {
    /// The fence that was given, or the one on record.
    pub(crate) async fn fence(&self, ready: &Ready, id: RecordId) -> Result<u64, Failure> {
        if let Some(fence) = self.fence {
            return Ok(fence);
        }
        let shown = ready.ask(Call::Show { id, body: false }).await?;
        shown["fence"].as_u64().ok_or_else(|| Failure::Refused("the record shows no fence".into()))
    }

    pub(crate) fn force(&self) -> Option<bool> {
        self.force.then_some(true)
    }
}

pub(crate) fn run(args: &ResolveArgs) -> Result<(), Failure> {
    let outcome =
        args.outcome.as_deref().map(read_file).transpose()?.map(|bytes| given(&bytes)).transpose()?;
    block_on(async {
        let ready = args.side.open().await?;
        let id = args.which.find(&ready).await?;
        let fence = args.attempt.fence(&ready, id).await?;
        let (verdict, consequence) = if args.executed {
            (VerdictName::Executed, "Retries with its key get this outcome, and the work never runs again.")
        } else {
            (VerdictName::NotExecuted, "The next request with its key RUNS THE WORK AGAIN.")
        };
        args.write.confirm(&format!("Record {id}, fence {fence}.\n{consequence}"))?;
        let path = args.which.path.clone();
        let resolution = Resolution { fence, verdict, outcome, path, force: args.attempt.force() };
        let answer = ready.ask_as(Call::Resolve { id, resolution }, args.write.by()).await?;
        told(&answer, args.side.json)
    })
}

fn given(bytes: &[u8]) -> Result<GivenOutcome, Failure> {
    serde_json::from_slice(bytes).map_err(|error| Failure::Refused(format!("--outcome: {error}").into()))
}

/// What became of it, and how the record is now.
pub(crate) fn told(answer: &Value, json: bool) -> Result<(), Failure> {
    if json {
        return write_line(&plain::json(answer));
    }
    write_line(&plain::plain(answer["answer"].as_str().unwrap_or_default()))?;
    write_record(&answer["record"])
}
