//! `onlyonce records erase`: drops what records hold about a person; their keys stay used.

use clap::Args;
use onlyonce_server::operator::{Call, OfPrincipal};
use serde_json::json;

use super::side::{Ready, SideArgs};
use super::target::block_on;
use super::which::WhichArgs;
use super::write::WriteArgs;
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;
use crate::plain;

/// Drop the bodies of a record, or of all records of one principal
///
/// Keys stay used to the end of retention: nothing runs again. With --principal and no --key, all records of that principal
/// are meant; those that somebody works on are left, and counted.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records erase --principal 'Bearer sesame' --why 'privacy request 2026-117'
  onlyonce records erase ID --why 'a card number in the answer'

",
    exit_codes!()
))]
pub(crate) struct EraseArgs {
    #[command(flatten)]
    which: WhichArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    side: SideArgs,
}

pub(crate) fn run(args: &EraseArgs) -> Result<(), Failure> {
    block_on(async {
        let ready = args.side.open().await?;
        if let (None, None, Some(principal)) = (args.which.given(), &args.which.key, &args.which.principal) {
            return erase_all(args, &ready, principal).await;
        }
        let id = args.which.find(&ready).await?;
        args.write.confirm(&format!("Record {id}: its bodies are gone for good."))?;
        let answer = ready.ask_as(Call::Erase { id }, args.write.by()).await?;
        write_line(&if args.side.json { plain::json(&answer) } else { "erased".to_owned() })
    })
}

async fn erase_all(args: &EraseArgs, ready: &Ready, principal: &str) -> Result<(), Failure> {
    args.write.confirm("All records of this principal: their bodies are gone for good.")?;
    let (mut erased, mut left, mut unreadable) = (0, 0, 0);
    let mut of = OfPrincipal { principal: principal.to_owned(), after: None };
    loop {
        let answer = ready.ask_as(Call::ErasePrincipal(of.clone()), args.write.by()).await?;
        erased += answer["erased"].as_u64().unwrap_or(0);
        left += answer["left"].as_u64().unwrap_or(0);
        unreadable += answer["unreadable"].as_u64().unwrap_or(0);
        match answer["next"].as_str() {
            Some(next) => of.after = Some(next.to_owned()),
            None => break,
        }
    }
    write_line(&if args.side.json {
        json!({ "erased": erased, "left": left, "unreadable": unreadable }).to_string()
    } else {
        let damaged = match unreadable {
            0 => String::new(),
            damaged => format!(", {damaged} left because the store cannot read them"),
        };
        format!("{erased} erased, {left} left because somebody works on them{damaged}")
    })
}
