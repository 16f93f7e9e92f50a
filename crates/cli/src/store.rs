//! `onlyonce store`: prepares what a store needs before the first process uses it.

use clap::{Args, Subcommand};
use onlyonce_store_postgres::{Migrated, OpenError, OpenErrorKind, Options, migrate};

use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;

/// What can be done with a store itself.
#[derive(Debug, Subcommand)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce store migrate --store postgres://app@db.internal/app

",
    exit_codes!()
))]
pub(crate) enum StoreCommand {
    Migrate(MigrateArgs),
}

/// Bring the schema of a `postgres://` store to the version of this program
///
/// In one transaction, one process at a time. Does nothing when the schema is there already. Other stores need no
/// preparation.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce store migrate --store postgres://app@db.internal/app?schema=payments

",
    exit_codes!()
))]
pub(crate) struct MigrateArgs {
    /// The store, as in `postgres://USER:PASSWORD@HOST/DATABASE`
    #[arg(long, value_name = "URL")]
    store: String,
    /// Print the versions as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &StoreCommand) -> Result<(), Failure> {
    let StoreCommand::Migrate(args) = command;
    if !matches!(args.store.split_once(':'), Some(("postgres" | "postgresql", _))) {
        let text = "only postgres:// has a schema to migrate; the other stores need no preparation";
        return Err(Failure::Usage(text.to_owned()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::System(Box::new(error)))?;
    let migrated = runtime.block_on(async { migrate(&Options::from_url(&args.store)?).await });
    write_line(&told(migrated.map_err(failure)?, args.json))
}

fn told(migrated: Migrated, json: bool) -> String {
    let Migrated { from, to } = migrated;
    if json {
        return serde_json::json!({ "from": from, "to": to }).to_string();
    }
    match from {
        Some(from) if from == to => format!("the schema is at version {to} already"),
        Some(from) => format!("the schema was at version {from} and is at version {to} now"),
        None => format!("the schema is there, at version {to}"),
    }
}

/// The exit code that fits.
fn failure(error: OpenError) -> Failure {
    match error.kind() {
        OpenErrorKind::Unavailable => Failure::Unavailable(Box::new(error)),
        _ => Failure::Refused(Box::new(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_told() {
        let told = |from, json| told(Migrated { from, to: 2 }, json);
        assert_eq!(told(None, false), "the schema is there, at version 2");
        assert_eq!(told(Some(1), false), "the schema was at version 1 and is at version 2 now");
        assert_eq!(told(Some(2), false), "the schema is at version 2 already");
        assert_eq!(told(None, true), r#"{"from":null,"to":2}"#);
    }
}
