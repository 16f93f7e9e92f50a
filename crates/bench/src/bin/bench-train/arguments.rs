//! The command line: what is trained, how long, and where.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

/// Put load on `onlyonce proxy` over every store, and with TLS and HTTP/2 on both sides.
///
/// Progress goes to stderr. Exits with 1 when something failed or was not answered, and with 2 when the arguments are wrong.
#[derive(Debug, Parser)]
#[command(after_help = "Example: bench-train --folder target/bench-train --seconds 3")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Where the servers keep their files: emptied before and removed after the run.
    #[arg(long, value_name = "DIR", default_value = "target/bench-train")]
    pub(crate) folder: PathBuf,
    /// The program that is trained [default: `onlyonce` beside this program]
    #[arg(long, value_name = "FILE")]
    pub(crate) onlyonce: Option<PathBuf>,
    /// How long each kind of load lasts.
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A server of this program in a process of its own: only this program calls it.
    #[command(hide = true)]
    Serve {
        /// Which one.
        server: Server,
    },
}

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Server {
    /// What the proxies are in front of.
    Upstream,
}

impl Arguments {
    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }
}
