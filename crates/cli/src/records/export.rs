//! `onlyonce records export`: every record as a line of JSON.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use onlyonce::store::Listing;
use onlyonce::{Secret, Store};
use serde::Serialize;

use super::line::{Head, Line};
use super::progress::bar;
use super::target::{StoreArgs, block_on};
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::plain::plain;

/// Write every record as a line of JSON
///
/// The first line holds the store's secret, without which no key finds its record: keep the file as safe as the store.
/// With the keys of its encryption the lines are in the clear: keep the file as safe as those. That it was done is written to
/// the audit. A record that cannot be read is named and left out, and the exit code is 65.
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

    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
}

pub(crate) fn run(args: &ExportArgs) -> Result<(), Failure> {
    let store = args.store.open_in_the_clear(false)?;
    let to =
        args.output.as_deref().map_or_else(|| "standard output".into(), |path| path.display().to_string());
    let told = |exported: &Exported| exported.to_string();
    let exporting = export(&*store, args.output.as_deref());
    let exported =
        block_on(args.store.audited("export", (format!("to {to}"), args.why.as_deref()), exporting, told))?;
    if exported.unreadable > 0 {
        let text = format!("{} records cannot be read and are not in the export", exported.unreadable);
        return Err(Failure::Refused(text.into()));
    }
    Ok(())
}

/// How much was written.
#[derive(Debug, Default)]
struct Exported {
    records: u64,
    unreadable: u64,
}

impl fmt::Display for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records", self.records)?;
        if self.unreadable > 0 {
            write!(f, ", {} more cannot be read", self.unreadable)?;
        }
        Ok(())
    }
}

async fn export(store: &dyn Store, output: Option<&Path>) -> Result<Exported, Failure> {
    let offered = Secret::random().map_err(|error| Failure::System(Box::new(error)))?;
    let secret = store.secret(&offered).await?;
    let mut output = open(output)?;
    write(&mut output, &Head::new(&secret))?;
    let bar = bar(store.stats().await?.records(), "records");
    let (mut listing, mut exported) = (Listing::default(), Exported::default());
    loop {
        let page = store.list(&listing).await?;
        for (id, record) in &page.records {
            write(&mut output, &Line::new(id, record))?;
        }
        for found in &page.unreadable {
            bar.suspend(|| {
                // The export goes on either way, and its end says how many there were.
                let _ = writeln!(io::stderr().lock(), "warning: record {}: {}", found.id, plain(&found.why));
            });
        }
        exported.records += page.records.len() as u64;
        exported.unreadable += page.unreadable.len() as u64;
        bar.inc(page.records.len() as u64);
        let Some(next) = page.next else { break };
        listing.after = Some(next);
    }
    bar.finish_and_clear();
    output.flush().map_err(Failure::Output)?;
    Ok(exported)
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
