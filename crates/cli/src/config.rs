//! `onlyonce config`: checks a configuration file, and shows what is in force. All meaning is in the server.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use onlyonce_server::config::Sources;

use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;
use crate::proxy::{SettingsArgs, start_failure};

/// What can be done with a configuration.
#[derive(Debug, Subcommand)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce config check onlyonce.toml
  onlyonce config show --config onlyonce.toml --lease 10s

",
    exit_codes!()
))]
pub(crate) enum ConfigCommand {
    Check(CheckArgs),
    Show(ShowArgs),
}

/// Say whether a file can be used, and what is wrong with it
///
/// Only the file is looked at, not the environment: it must be right by itself.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  onlyonce config check onlyonce.toml && systemctl reload onlyonce")]
pub(crate) struct CheckArgs {
    /// The file
    file: PathBuf,
}

/// Show the configuration in force: flags over environment over file over defaults
///
/// Each value says where it came from; secrets are hidden.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  ONLYONCE_STORE_URL=memory: onlyonce config show --config onlyonce.toml")]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    settings: Box<SettingsArgs>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check(args) => check(args),
        ConfigCommand::Show(args) => show(args),
    }
}

fn check(args: CheckArgs) -> Result<(), Failure> {
    let name = args.file.display().to_string();
    let sources = Sources { file: Some(args.file), ..Sources::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::System(Box::new(error)))?;
    let checked = runtime.block_on(onlyonce_server::check(&sources)).map_err(start_failure)?;
    let noun = if checked == 1 { "route" } else { "routes" };
    write_line(&format!("{name}: good, {checked} {noun}"))
}

fn show(args: ShowArgs) -> Result<(), Failure> {
    let config = args.settings.into_sources().read().map_err(|error| start_failure(error.into()))?;
    if args.json {
        return write_line(&config.show_json().to_string());
    }
    write_line(config.show().trim_end())
}
