//! `onlyonce records import`: takes in the lines of an export.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use onlyonce::store::{BATCH_MAX, Imported};
use onlyonce::{Record, RecordId, Secret, Store};
use serde::de::DeserializeOwned;

use super::line::{Head, Line};
use super::progress::bar;
use super::target::{StoreArgs, block_on};
use crate::args::exit_codes;
use crate::failure::Failure;

/// The longest line: a record of the largest outcome there is, in hexadecimal digits.
const LINE_BYTES_MAX: u64 = 160 << 20;

/// Take in the records of an export
///
/// Keys that are in use are left alone. Either all lines up to an error are taken in, or the error says which was not;
/// the same import may be repeated.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records import --store file:./onlyonce-data records.jsonl --why 'moved from host 3'

",
    exit_codes!()
))]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// What to read; standard input if it is not given
    #[arg(value_name = "FILE")]
    input: Option<PathBuf>,

    /// Why: it is written to the audit before anything is taken in
    #[arg(long, value_name = "TEXT")]
    why: String,
}

pub(crate) fn run(args: &ImportArgs) -> Result<(), Failure> {
    let mut lines = Lines::open(args.input.as_deref())?;
    let head: Head = lines.next()?.ok_or_else(|| lines.refuse("the export is empty"))?;
    let secret = head.secret().map_err(|error| lines.refuse(&error))?;
    let store = args.store.open_in_the_clear(true)?;
    let what = format!("from {}", lines.name);
    let told = |total: &Imported| format!("{} taken in, {} left alone", total.taken, total.left);
    let taking = take_in(&*store, &secret, &mut lines);
    let total = block_on(args.store.audited("import", (what, Some(&args.why)), taking, told))?;
    crate::output::write_line(&told(&total))
}

async fn take_in(store: &dyn Store, secret: &Secret, lines: &mut Lines) -> Result<Imported, Failure> {
    if store.secret(secret).await? != *secret {
        return Err(lines.refuse("the store has another secret: under it no key would find these records"));
    }
    let bar = bar(lines.bytes, "bytes");
    let (mut batch, mut total): (Vec<(RecordId, Record)>, _) = (Vec::new(), Imported::default());
    loop {
        let line: Option<Line> = lines.next()?;
        let more = line.is_some();
        if let Some(line) = line {
            batch.push(line.read().map_err(|error| lines.refuse(&error))?);
        }
        if batch.len() == BATCH_MAX || !more {
            let imported = store.import(&batch).await?;
            (total.taken, total.left) = (total.taken + imported.taken, total.left + imported.left);
            batch.clear();
            bar.set_position(lines.read);
        }
        if !more {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(total)
}

/// The lines of an export, each read with a bound.
struct Lines {
    name: String,
    input: Box<dyn BufRead>,
    number: u64,
    read: u64,
    /// How many bytes there are, if that is known.
    bytes: u64,
}

impl Lines {
    fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            let input = Box::new(BufReader::new(io::stdin()));
            return Ok(Self { name: "standard input".into(), input, number: 0, read: 0, bytes: 0 });
        };
        let name = path.display().to_string();
        let unreadable = |source| Failure::Unreadable { name: name.clone(), source };
        let file = File::open(path).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        Ok(Self { name: name.clone(), input: Box::new(BufReader::new(file)), number: 0, read: 0, bytes })
    }

    fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Failure> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.input).take(LINE_BYTES_MAX);
        let read = bounded
            .read_until(b'\n', &mut line)
            .map_err(|source| Failure::Unreadable { name: self.name.clone(), source })?;
        self.number += 1;
        self.read += read as u64;
        if read == 0 {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') && read as u64 == LINE_BYTES_MAX {
            return Err(self.refuse("the line is too long"));
        }
        serde_json::from_slice(&line).map(Some).map_err(|error| self.refuse(&error.to_string()))
    }

    /// Names the line that was refused.
    fn refuse(&self, reason: &str) -> Failure {
        Failure::Refused(format!("{}, line {}: {reason}", self.name, self.number.max(1)).into())
    }
}
