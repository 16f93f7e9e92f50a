//! `onlyonce records export`: every record as a line of JSON.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use onlyonce::Secret;
use onlyonce::store::Listing;
use serde::Serialize;

use super::line::{Head, Line};
use super::progress::bar;
use super::target::{StoreArgs, block_on};
use crate::args::exit_codes;
use crate::failure::Failure;

/// Write every record as a line of JSON
///
/// The first line holds the store's secret, without which no key finds its record: keep the file as safe as the store.
/// With the keys of its encryption the lines are in the clear: keep the file as safe as those.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records export --store file:./onlyonce-data --output records.jsonl

",
    exit_codes!()
))]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Where to write; standard output if it is not given. A file that is there already is not overwritten
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &ExportArgs) -> Result<(), Failure> {
    let store = args.store.open_in_the_clear(false)?;
    block_on(async {
        let offered = Secret::random().map_err(|error| Failure::System(Box::new(error)))?;
        let secret = store.secret(&offered).await?;
        let mut output = open(args.output.as_deref())?;
        write(&mut output, &Head::new(&secret))?;
        let bar = bar(store.stats().await?.records(), "records");
        let mut listing = Listing::default();
        loop {
            let page = store.list(&listing).await?;
            for (id, record) in &page.records {
                write(&mut output, &Line::new(id, record))?;
            }
            bar.inc(page.records.len() as u64);
            let Some(next) = page.next else { break };
            listing.after = Some(next);
        }
        bar.finish_and_clear();
        output.flush().map_err(Failure::Output)
    })
}

fn open(path: Option<&Path>) -> Result<Box<dyn Write>, Failure> {
    Ok(match path {
        None => Box::new(BufWriter::new(io::stdout())),
        Some(path) => {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            Box::new(BufWriter::new(file.map_err(Failure::Output)?))
        }
    })
}

fn write(output: &mut impl Write, line: &impl Serialize) -> Result<(), Failure> {
    serde_json::to_writer(&mut *output, line).map_err(|error| Failure::Output(error.into()))?;
    output.write_all(b"\n").map_err(Failure::Output)
}
