//! `onlyonce records backup`: a copy of the store, to be opened as it is.

use std::path::PathBuf;

use clap::Args;

use super::progress::bar;
use super::target::{StoreArgs, block_on};
use crate::args::exit_codes;
use crate::failure::Failure;

/// Copy the store into a new folder
///
/// The copy can be opened like the store itself. Keys used after it was made are new to it.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records backup --store file:./onlyonce-data ./onlyonce-backup

",
    exit_codes!()
))]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Where to copy it: a folder that is empty or not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
}

pub(crate) fn run(args: &BackupArgs) -> Result<(), Failure> {
    let store = args.store.open(false)?;
    let bar = bar(0, "bytes");
    let what = format!("to {}", args.folder.display());
    let copying = async {
        store.backup(&args.folder, |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        })?;
        Ok(bar.position())
    };
    let told = |bytes: &u64| format!("{bytes} bytes");
    block_on(args.store.audited("backup", (what, args.why.as_deref()), copying, told))?;
    bar.finish_and_clear();
    Ok(())
}
