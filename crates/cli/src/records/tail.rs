//! `onlyonce records tail`: what happens in a process, as it happens.

use clap::Args;

use super::side::{SideArgs, cell, failure};
use super::target::block_on;
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;

/// Follow what happens to records in a running process
///
/// Ids, fences and events only: no keys, no bodies. Ends when the process does.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records tail --backlog
  onlyonce records tail --json | jq -c 'select(.event == \"held\")'

",
    exit_codes!()
))]
pub(crate) struct TailArgs {
    /// Begin with what the process still remembers, up to a thousand events
    #[arg(long)]
    backlog: bool,

    #[command(flatten)]
    side: SideArgs,
}

pub(crate) fn run(args: &TailArgs) -> Result<(), Failure> {
    block_on(async {
        let mut events = args.side.open().await?.events(args.backlog).await?;
        while let Some(event) = events.next().await.map_err(failure)? {
            let value = event.value;
            let line = match (args.side.json, event.name.as_str()) {
                (true, _) => value.to_string(),
                (false, "lost") => {
                    format!("(lost {}: they came faster than they were read)", cell(&value["lost"]))
                }
                (false, name) => {
                    let id = cell(&value["id"]);
                    format!("{}  {name:<12}  {id}  fence {}", cell(&value["at"]), cell(&value["fence"]))
                }
            };
            write_line(&line)?;
        }
        Ok(())
    })
}
