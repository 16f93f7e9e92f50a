//! `onlyonce key encryption`: a key for records at rest. What it means is in the core, what its file looks like in the server.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use clap::Args;
use onlyonce::KeyId;
use onlyonce_server::new_key_line;

use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;
use crate::times;

/// Make a key to encrypt records with, as a line of a key file
///
/// The first key of a file is written with, all of them are read. To rotate: add the new line at the end of the file
/// of every process and reload it; then move the line to the top, and reload again. Whoever loses a key loses the
/// answers that it encrypted: their retries get an error, and the work does not run again.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Examples:
  onlyonce key encryption --output onlyonce.keys
  onlyonce key encryption >> onlyonce.keys
  onlyonce proxy --upstream http://127.0.0.1:3000 --encryption-key-file onlyonce.keys

",
    exit_codes!()
))]
pub(crate) struct EncryptionArgs {
    /// The name of the key: 1 to 16 of a-z, 0-9, `-`, `_` and `.` [default: today's date]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    name: Option<KeyId>,

    /// Where to write it, for its owner only; standard output if it is not given. A file that is there is not overwritten
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &EncryptionArgs) -> Result<(), Failure> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => today()?,
    };
    let line = new_key_line(&name).map_err(|error| Failure::System(Box::new(error)))?;
    let Some(path) = &args.output else { return write_line(&line) };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(Failure::Output)?;
    writeln!(file, "{line}").and_then(|()| file.sync_all()).map_err(Failure::Output)
}

/// The date, as the name of a key.
fn today() -> Result<KeyId, Failure> {
    let now = times::show(times::now());
    KeyId::new(now.get(..10).unwrap_or(&now)).map_err(|error| Failure::System(Box::new(error)))
}

fn parse_name(text: &str) -> Result<KeyId, String> {
    KeyId::new(text).map_err(|error| error.to_string())
}
