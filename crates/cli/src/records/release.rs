//! `onlyonce records release`: frees the key of a record whose work did not happen.

use clap::Args;
use onlyonce_server::operator::{Call, Freeing};

use super::resolve::{AttemptArgs, told};
use super::side::SideArgs;
use super::target::block_on;
use super::which::WhichArgs;
use super::write::WriteArgs;
use crate::args::exit_codes;
use crate::failure::Failure;

/// Free the key of an unknown or sealed record: the work did not happen
///
/// The same as `resolve --not-executed`. A key that somebody holds is not taken from them.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records release --key order-7 --principal 'Bearer sesame' --why 'the host was off before it was sent'

",
    exit_codes!()
))]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    which: WhichArgs,

    #[command(flatten)]
    attempt: AttemptArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    side: SideArgs,
}

pub(crate) fn run(args: &ReleaseArgs) -> Result<(), Failure> {
    block_on(async {
        let ready = args.side.open().await?;
        let id = args.which.find(&ready).await?;
        let fence = args.attempt.fence(&ready, id).await?;
        args.write.confirm(&format!(
            "Record {id}, fence {fence}.\nThe next request with its key RUNS THE WORK AGAIN."
        ))?;
        let freeing = Freeing { fence, force: args.attempt.force() };
        let answer = ready.ask_as(Call::Release { id, freeing }, args.write.by()).await?;
        told(&answer, args.side.json)
    })
}
