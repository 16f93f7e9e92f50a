//! `onlyonce records`: what operators ask of records and say about them, and moving them between stores. All meaning is in
//! the server's `operator` and in the stores.

mod audit;
mod backup;
mod erase;
mod export;
mod import;
mod line;
mod list;
pub(crate) mod progress;
mod purge;
mod release;
mod resolve;
mod show;
mod side;
pub(crate) mod stats;
mod tail;
mod target;
mod which;
mod write;

use clap::Subcommand;

use crate::args::exit_codes;
use crate::failure::Failure;

/// What can be done with the records of a store.
#[derive(Debug, Subcommand)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce records list --state unknown
  onlyonce records resolve ID --not-executed --why 'no such payment at the bank'
  onlyonce records export --store file:./onlyonce-data > records.jsonl
  onlyonce records import --store file:./other records.jsonl --why 'moved from host 3'

",
    exit_codes!()
))]
pub(crate) enum RecordsCommand {
    List(list::ListArgs),
    Show(show::ShowArgs),
    Resolve(resolve::ResolveArgs),
    Release(release::ReleaseArgs),
    Erase(erase::EraseArgs),
    Purge(purge::PurgeArgs),
    Stats(stats::StatsArgs),
    Tail(tail::TailArgs),
    Audit(audit::AuditArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Backup(backup::BackupArgs),
}

pub(crate) fn run(command: RecordsCommand) -> Result<(), Failure> {
    match command {
        RecordsCommand::List(args) => list::run(args),
        RecordsCommand::Show(args) => show::run(&args),
        RecordsCommand::Resolve(args) => resolve::run(&args),
        RecordsCommand::Release(args) => release::run(&args),
        RecordsCommand::Erase(args) => erase::run(&args),
        RecordsCommand::Purge(args) => purge::run(&args),
        RecordsCommand::Stats(args) => stats::run(&args),
        RecordsCommand::Tail(args) => tail::run(&args),
        RecordsCommand::Audit(args) => audit::run(&args),
        RecordsCommand::Export(args) => export::run(&args),
        RecordsCommand::Import(args) => import::run(&args),
        RecordsCommand::Backup(args) => backup::run(&args),
    }
}
