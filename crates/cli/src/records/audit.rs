//! `onlyonce records audit`: who did what to records, and why.

use clap::Args;
use onlyonce_server::operator::Call;
use serde_json::Value;

use super::side::{SideArgs, cell};
use super::target::block_on;
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;
use crate::plain::json;

/// How many are asked for at a time.
const PAGE: usize = 500;

/// Show what operators did, in order
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records audit
  onlyonce records audit --after 1200 --json

",
    exit_codes!()
))]
pub(crate) struct AuditArgs {
    /// Only entries after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,

    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,

    #[command(flatten)]
    side: SideArgs,
}

pub(crate) fn run(args: &AuditArgs) -> Result<(), Failure> {
    block_on(async {
        let ready = args.side.open().await?;
        let (mut after, mut left) = (args.after, args.limit);
        while left > 0 {
            let page = ready.ask(Call::Audit { after, limit: Some(left.min(PAGE)) }).await?;
            let entries = page["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
            for entry in entries {
                write_line(&if args.side.json { json(entry) } else { shown(entry) })?;
            }
            left = left.saturating_sub(entries.len());
            match page["next"].as_u64() {
                Some(next) => after = next,
                None => break,
            }
        }
        Ok(())
    })
}

fn shown(entry: &Value) -> String {
    let part = |name: &str| cell(&entry[name]);
    let answer = match &entry["answer"] {
        Value::Null => "(no answer: the process ended, it may have run)".to_owned(),
        answer => cell(answer),
    };
    let (n, at, who, from) = (part("n"), part("at"), part("who"), part("from"));
    let mut text = format!("{n:>6}  {at}  {who} ({from})  {}  {}  {answer}", part("action"), part("id"));
    // What was decided, and why: each where there is one.
    for name in ["what", "why"] {
        if !entry[name].is_null() {
            text.push_str("\n        ");
            text.push_str(&part(name));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_says_what_was_decided_and_obeys_nothing_in_it() {
        let entry = json!({
            "n": 7, "at": "t", "who": "eve\u{1b}[2J", "from": "here", "action": "resolve", "id": "01ab",
            "what": "executed, fence 9", "why": "line\u{9b}K", "answer": "resolved",
        });
        let text = shown(&entry);
        assert_eq!(
            text,
            "     7  t  eve\\u{1b}[2J (here)  resolve  01ab  resolved\n        executed, fence 9\n        line\\u{9b}K"
        );
        let short = shown(&json!({ "n": 8, "at": "t", "who": "a", "from": "b", "action": "purge" }));
        assert_eq!(short, "     8  t  a (b)  purge  -  (no answer: the process ended, it may have run)");
    }
}
