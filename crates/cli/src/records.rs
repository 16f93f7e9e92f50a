//! `onlyonce records`: moves records between stores, and copies a store. All meaning is in the stores.

mod backup;
mod export;
mod import;
mod line;
pub(crate) mod progress;
mod target;

use clap::Subcommand;

use crate::args::exit_codes;
use crate::failure::Failure;

/// What can be done with the records of a store.
#[derive(Debug, Subcommand)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records export --store file:./onlyonce-data > records.jsonl
  onlyonce records import --store file:./other records.jsonl

",
    exit_codes!()
))]
pub(crate) enum RecordsCommand {
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Backup(backup::BackupArgs),
}

pub(crate) fn run(command: RecordsCommand) -> Result<(), Failure> {
    match command {
        RecordsCommand::Export(args) => export::run(&args),
        RecordsCommand::Import(args) => import::run(&args),
        RecordsCommand::Backup(args) => backup::run(&args),
    }
}
