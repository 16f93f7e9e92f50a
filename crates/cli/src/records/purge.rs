//! `onlyonce records purge`: removes what has expired, without waiting for the sweeper.

use clap::Args;
use onlyonce_server::operator::Call;
use serde_json::json;

use super::side::SideArgs;
use super::target::block_on;
use super::write::WriteArgs;
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;

/// Remove records whose retention is over
///
/// The sweeper of every process does so by itself. Live records are never removed.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records purge --why 'room for the import'

",
    exit_codes!()
))]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    side: SideArgs,
}

pub(crate) fn run(args: &PurgeArgs) -> Result<(), Failure> {
    block_on(async {
        let ready = args.side.open().await?;
        args.write.confirm("Expired records are removed: their keys are new again.")?;
        let (mut removed, mut made_unknown) = (0, 0);
        loop {
            let answer = ready.ask_as(Call::Purge, args.write.by()).await?;
            let count = |name: &str| answer[name].as_u64().unwrap_or(0);
            removed += count("removed") + count("dropped");
            made_unknown += count("made_unknown");
            if answer["more"] != true {
                break;
            }
        }
        write_line(&if args.side.json {
            json!({ "removed": removed, "made_unknown": made_unknown }).to_string()
        } else {
            format!("{removed} removed, {made_unknown} unknown now because their lease had passed")
        })
    })
}
