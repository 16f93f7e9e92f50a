//! `onlyonce records tail`: what happens in a process, as it happens.

use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use onlyonce_server::EventStream;
use serde_json::Value;

use super::side::{Ready, SideArgs, cell, failure};
use super::target::block_on;
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;
use crate::plain::{json, plain};

/// How often a process that is gone is asked for.
const AGAIN_EVERY: Duration = Duration::from_millis(500);

/// Follow what happens to records in a running process
///
/// Ids, fences and events only: no keys, no bodies. Ends when the process does, unless --reconnect is given.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records tail --backlog
  onlyonce records tail --reconnect --json | jq -c 'select(.event == \"held\")'

",
    exit_codes!()
))]
pub(crate) struct TailArgs {
    /// Begin with what the process still remembers, up to a thousand events
    #[arg(long)]
    backlog: bool,

    /// Go on when the process ends: ask again until it, or the next one, answers
    #[arg(long)]
    reconnect: bool,

    #[command(flatten)]
    side: SideArgs,
}

pub(crate) fn run(args: &TailArgs) -> Result<(), Failure> {
    block_on(async {
        let ready = args.side.open().await?;
        let mut events = ready.events(args.backlog, None).await?;
        let mut last = None;
        loop {
            let ended = follow(args, &mut events, &mut last).await;
            match ended {
                Ok(()) | Err(Failure::Unavailable(_)) if args.reconnect => {}
                ended => return ended,
            }
            // What is said here is no event: whoever reads those must not take it for one.
            let _ = writeln!(std::io::stderr().lock(), "the events ended; asking again until they come");
            events = again(&ready, last.as_deref()).await?;
        }
    })
}

/// Writes events until there are no more. `last` is where to go on.
async fn follow(args: &TailArgs, events: &mut EventStream, last: &mut Option<String>) -> Result<(), Failure> {
    while let Some(event) = events.next().await.map_err(failure)? {
        write_line(&shown(args, &event.name, &event.value))?;
        *last = event.id.or(last.take());
    }
    Ok(())
}

/// Asks until somebody answers. What a new process has seen so far is new, all of it.
async fn again(ready: &Ready, last: Option<&str>) -> Result<EventStream, Failure> {
    loop {
        tokio::time::sleep(AGAIN_EVERY).await;
        match ready.events(true, last).await {
            Err(Failure::Unavailable(_)) => {}
            answered => return answered,
        }
    }
}

fn shown(args: &TailArgs, name: &str, value: &Value) -> String {
    match (args.side.json, name) {
        (true, _) => json(value),
        (false, "lost") => format!("(lost {}: they came faster than they were read)", cell(&value["lost"])),
        (false, name) => {
            let (at, id, fence) = (cell(&value["at"]), cell(&value["id"]), cell(&value["fence"]));
            format!("{at}  {:<12}  {id}  fence {fence}", plain(name))
        }
    }
}
