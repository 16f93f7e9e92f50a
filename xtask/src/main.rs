//! The project's own commands (`cargo xtask …`): one place that says how the project is checked and measured.
//!
//! It drives `cargo` and small tools; it holds no logic of the product, and nothing depends on it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program: printing is its job")]

mod bench;
mod features;
mod package;
mod process;
mod report;
mod soak;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The erased error of a terminal program: it is printed, never matched on.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The project's own commands. Run from anywhere inside the repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, after_help = "Example: cargo xtask test")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what is missing, then run every check that a change must pass.
    ///
    /// Runs: fmt, tidy, clippy, tests, the Debian package, doctests, docs, each feature alone, cargo-deny, typos. The soak tests are among the tests, briefly.
    /// All steps run even when one fails; the exit code is 0 only when all passed. Missing Debian packages are
    /// installed with apt-get (needs root); other tools go into the folder
    /// `ONLYONCE_TOOLS`, which is `~/.cache/onlyonce/tools` unless set.
    #[command(after_help = "Example: cargo xtask test")]
    Test,
    /// The same as `test`, and then a soak of one minute in release mode.
    #[command(after_help = "Example: cargo xtask ci")]
    Ci,
    /// Check the house rules that no compiler checks; prints `file:line: message` for each break of a rule.
    #[command(after_help = "Example: cargo xtask tidy")]
    Tidy,
    /// Make what is handed out: a Debian package, or a binary without shared libraries.
    #[command(after_help = "Example: cargo xtask package deb")]
    Package {
        /// What to make.
        #[command(subcommand)]
        package: package::Package,
    },
    /// Measure: instructions of the core, or the embedded store beside other engines.
    #[command(after_help = "Example: cargo xtask bench core")]
    Bench {
        /// What to measure.
        #[command(subcommand)]
        suite: bench::Suite,
    },
    /// Run the long tests (those with `soak` in their name) for a chosen time, in release mode.
    ///
    /// Sets `ONLYONCE_SOAK_SECONDS` and `ONLYONCE_SEED`; the seed is printed, so that a failure can be repeated.
    #[command(after_help = "Examples:
  cargo xtask soak --seconds 600 --seed 42
  cargo xtask soak kafka --seconds 300")]
    Soak {
        /// Only those with this in their name too, for example kafka [default: all]
        part: Option<String>,
        /// How long each soak test runs, in seconds.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
        seconds: u64,
        /// Where the random choices start from [default: a new one each time]
        #[arg(long)]
        seed: Option<u64>,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Test => test::run(test::Depth::Change),
        Command::Ci => test::run(test::Depth::Full),
        Command::Tidy => tidy::run(),
        Command::Package { package } => package::run(package),
        Command::Bench { suite } => bench::run(suite),
        Command::Soak { part, seconds, seed } => soak::run(part.as_deref(), *seconds, *seed),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Arguments;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }
}
