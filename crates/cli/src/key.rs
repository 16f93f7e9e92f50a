//! `onlyonce key`: makes keys on the command line, for scripts and for trying out. All meaning is in the core.

mod body;
mod composite;
mod derive;
mod encryption;
mod random;

use clap::Subcommand;

use crate::args::exit_codes;
use crate::failure::Failure;

/// The ways to make a key. Each one's help is the text on its arguments.
#[derive(Debug, Subcommand)]
#[command(after_help = concat!(
    "\
Example:
  curl -H \"Idempotency-Key: $(onlyonce key derive --entity order-123 --action create)\" …

",
    exit_codes!()
))]
pub(crate) enum KeyCommand {
    Derive(derive::DeriveArgs),
    Random(random::RandomArgs),
    Body(body::BodyArgs),
    Composite(composite::CompositeArgs),
    Encryption(encryption::EncryptionArgs),
}

pub(crate) fn run(command: KeyCommand) -> Result<(), Failure> {
    match command {
        KeyCommand::Derive(args) => derive::run(&args),
        KeyCommand::Random(args) => random::run(&args),
        KeyCommand::Body(args) => body::run(&args),
        KeyCommand::Composite(args) => composite::run(&args),
        KeyCommand::Encryption(args) => encryption::run(&args),
    }
}
