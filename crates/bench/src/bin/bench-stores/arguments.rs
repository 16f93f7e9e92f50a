//! The command line: what is measured, how long, and where.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::serve::Server;
use crate::subject::Part;

/// wrk takes more, but the machine does not.
const CONNECTIONS_MAX: u32 = 1024;
const CONNECTIONS: [u32; 2] = [64, 256];

/// Measure the stores on Redis and Postgres beside middlewares of others over the same servers.
///
/// Prints tables in Markdown; progress goes to stderr. Exits with 1 when something failed or a measurement is not
/// sound (an error, an answer that is not 2xx, work that ran too often or not at all), and with 2 when the arguments
/// are wrong. Goals that are not met are shown, and are no failure. `ONLYONCE_REDIS_SERVER` and `ONLYONCE_VALKEY_SERVER`
/// name the servers' programs if they are not on the path.
#[derive(Debug, Parser)]
#[command(after_help = "Example: bench-stores --folder target/bench-stores --part redis --quick")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Where the embedded store and the peers keep their files: emptied before and removed after the run. Redis and
    /// Postgres take folders of their own among the machine's temporary ones (`TMPDIR`).
    #[arg(long, value_name = "DIR", default_value = "target/bench-stores")]
    pub(crate) folder: PathBuf,
    /// The program whose `proxy` is measured [default: `onlyonce` beside this program]
    #[arg(long, value_name = "FILE")]
    pub(crate) onlyonce: Option<PathBuf>,
    /// Where express, ioredis and pg are installed; without it Express is left out.
    #[arg(long, value_name = "DIR")]
    pub(crate) node_modules: Option<PathBuf>,
    /// Where fastapi, uvicorn and redis are installed; without it that peer is left out.
    #[arg(long, value_name = "DIR")]
    pub(crate) python_path: Option<PathBuf>,
    /// How often everything is measured. The order changes with each round.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each measurement takes, after one second of warm-up.
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// At how many connections [default: 64,256; with --quick 64]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    connections: Vec<u32>,
    /// Only this part.
    #[arg(long, value_name = "PART", value_enum)]
    part: Option<Part>,
    /// Which Redis. axum-idempotent needs one with HEXPIRE (Redis 7.4, Valkey 9) and is left out over others.
    #[arg(long, value_name = "PRODUCT", value_enum, default_value_t = Product::Valkey)]
    pub(crate) redis: Product,
    /// When Redis syncs its file of commands [default: there is none, only snapshots, as Redis is shipped]
    #[arg(long, value_name = "WHEN", value_enum)]
    pub(crate) appendfsync: Option<Appendfsync>,
    /// Let the kernel choose the processors. Otherwise what is measured has the first one, wrk and the upstream the
    /// second; the servers of the stores always go where there is room.
    #[arg(long)]
    pub(crate) unpinned: bool,
    /// One short round at the fewest connections, to see that everything works.
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    pub(crate) quick: bool,
    /// Write everything that was measured into this file too, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Measure on a file system in memory too, where syncs cost nothing: for tests of this program.
    #[arg(long, hide = true)]
    pub(crate) any_disk: bool,
}

/// Which Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Product {
    /// `valkey-server`.
    Valkey,
    /// `redis-server`.
    Redis,
}

/// When Redis syncs its file of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Appendfsync {
    Always,
    Everysec,
    No,
}

impl Appendfsync {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Everysec => "everysec",
            Self::No => "no",
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A server of this program in a process of its own: only this program calls it.
    #[command(hide = true)]
    Serve {
        /// Which one.
        server: Server,
        /// Where its store is.
        url: Option<String>,
    },
}

impl Arguments {
    pub(crate) fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs(u64::from(if self.quick { 1 } else { self.seconds }))
    }

    pub(crate) fn connections(&self) -> Vec<u32> {
        if !self.connections.is_empty() {
            return self.connections.clone();
        }
        CONNECTIONS.iter().copied().take(if self.quick { 1 } else { CONNECTIONS.len() }).collect()
    }

    pub(crate) fn has(&self, part: Part) -> bool {
        self.part.is_none_or(|only| only == part)
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

    #[test]
    fn quick_is_smaller_than_the_default() {
        let quick = Arguments::parse_from(["bench-stores", "--quick"]);
        let full = Arguments::parse_from(["bench-stores"]);
        assert!(quick.rounds() < full.rounds() && quick.window() < full.window());
        assert!(quick.connections().len() < full.connections().len());
        assert!(Arguments::try_parse_from(["bench-stores", "--quick", "--rounds", "7"]).is_err());
        let chosen = Arguments::parse_from(["bench-stores", "--quick", "--connections", "8,9"]);
        assert_eq!(chosen.connections(), [8, 9]);
    }
}
