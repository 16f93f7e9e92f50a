//! `onlyonce records list`: records by state, scope, age and prefix.

use clap::Args;
use onlyonce_server::operator::{Call, Filter};
use serde_json::Value;

use super::side::{SideArgs, cell};
use super::target::block_on;
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;
use crate::plain::json;

/// How many are asked for at a time.
const PAGE: usize = 500;

/// List records, in the order of their ids
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records list --state unknown --state sealed --older-than 1h
  onlyonce records list --store redis://127.0.0.1:6379 --json --limit 10000 | jq .id

",
    exit_codes!()
))]
pub(crate) struct ListArgs {
    /// Only this state: in-flight, completed, released, unknown or sealed; repeat for several
    #[arg(long, value_name = "STATE")]
    state: Vec<String>,

    /// Only ids that begin with these hexadecimal digits
    #[arg(long, value_name = "DIGITS")]
    prefix: Option<String>,

    /// Only this scope: the 16 digits that a list shows
    #[arg(long, value_name = "DIGITS")]
    scope: Option<String>,

    /// Only records first claimed longer ago than this, such as 1h
    #[arg(long, value_name = "DURATION")]
    older_than: Option<String>,

    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,

    /// Only ids after this one
    #[arg(long, value_name = "ID")]
    after: Option<String>,

    #[command(flatten)]
    side: SideArgs,
}

pub(crate) fn run(args: ListArgs) -> Result<(), Failure> {
    block_on(async {
        let ready = args.side.open().await?;
        let mut left = args.limit;
        let mut filter = Filter {
            states: args.state,
            prefix: args.prefix,
            scope: args.scope,
            older_than: args.older_than,
            after: args.after,
            limit: None,
        };
        if !args.side.json {
            write_line(&row(["STATE", "ATTEMPT", "CREATED", "EXPIRES", "BYTES", "ID"].map(str::to_owned)))?;
        }
        while left > 0 {
            filter.limit = Some(left.min(PAGE));
            let page = ready.ask(Call::List(filter.clone())).await?;
            let records = page["records"].as_array().map(Vec::as_slice).unwrap_or_default();
            for record in records {
                write_line(&if args.side.json { json(record) } else { shown(record) })?;
            }
            left = left.saturating_sub(records.len());
            match page["next"].as_str() {
                Some(next) => filter.after = Some(next.to_owned()),
                None => break,
            }
        }
        Ok(())
    })
}

/// Every column has its width, so that pages can be written as they come.
fn row([state, attempt, created, expires, bytes, id]: [String; 6]) -> String {
    format!("{state:<10} {attempt:>7}  {created:<24}  {expires:<24}  {bytes:>8}  {id}")
}

fn shown(record: &Value) -> String {
    let row =
        row(["state", "attempt", "created_at", "expires_at", "bytes", "id"].map(|name| cell(&record[name])));
    match record.get("unreadable") {
        Some(why) => format!("{row}  unreadable: {}", cell(why)),
        None => row,
    }
}
