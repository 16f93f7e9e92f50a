//! The command line: what is measured, how long, and where.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use onlyonce_bench::starter::sidecar_program;

use crate::Result;
use crate::serve::Server;

/// wrk takes more, but the machine does not.
const CONNECTIONS_MAX: u32 = 1024;

/// Measure `onlyonce proxy` beside nginx, and the layer in axum beside axum-idempotent, under load from wrk.
///
/// Prints tables in Markdown; progress goes to stderr. Exits with 1 when something failed or a measurement is not
/// sound (an error, an answer that is not 2xx, work that ran too often or not at all), and with 2 when the arguments
/// are wrong. Goals that are not met are shown, and are no failure.
#[derive(Debug, Parser)]
#[command(after_help = "Example: bench-http --folder target/bench-http --rounds 1 --seconds 2")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Where the embedded store and nginx keep their files: emptied before and removed after the run.
    #[arg(long, value_name = "DIR", default_value = "target/bench-http")]
    pub(crate) folder: PathBuf,
    /// The program whose `proxy` is measured [default: `onlyonce` beside this program]
    #[arg(long, value_name = "FILE")]
    onlyonce: Option<PathBuf>,
    /// How often everything is measured. The order changes with each round.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each measurement takes, after one second of warm-up.
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// At how many connections the proxies are measured.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [64, 256], value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    pub(crate) connections: Vec<u32>,
    /// What the proxies are in front of. It shares a processor with wrk: a bare one leaves that more time, and the proxies are
    /// what is slow.
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Upstream::Hyper)]
    pub(crate) upstream: Upstream,
    /// Which proxies tell the application who asks, in `X-Forwarded-For`, `-Proto` and `-Host`. To read these takes time of the
    /// processor that it shares with wrk, so that a proxy which tells looks slower.
    #[arg(long, value_name = "WHO", value_enum, default_value_t = Telling::Shipped)]
    pub(crate) telling: Telling,
    /// Only this part.
    #[arg(long, value_name = "PART", value_enum)]
    part: Option<Part>,
    /// Afterwards, put load on the proxy for so long with each store and watch its memory. Records are kept for five
    /// seconds then.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1440))]
    pub(crate) minutes: Option<u32>,
    /// Let the kernel choose the processors. Otherwise what is measured has the first one for itself, and wrk and the
    /// upstream the second.
    #[arg(long)]
    pub(crate) unpinned: bool,
    /// One short round, to see that everything works.
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    pub(crate) quick: bool,
    /// Measure on a file system in memory too, where syncs cost nothing: for tests of this program.
    #[arg(long, hide = true)]
    pub(crate) any_disk: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The sidecar beside nginx and a bare proxy.
    Proxies,
    /// The layer in axum beside axum-idempotent and a bare handler.
    Layers,
}

/// What the proxies are in front of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Upstream {
    /// A server as most are: hyper.
    Hyper,
    /// As little as can answer.
    Bare,
}

impl Upstream {
    pub(crate) const fn server(self) -> &'static str {
        match self {
            Self::Hyper => "upstream",
            Self::Bare => "bare-upstream",
        }
    }
}

/// Which proxies tell the application who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Telling {
    /// Each as it is shipped: the sidecar tells, nginx does not.
    Shipped,
    /// None. What the sidecar signs in `Via` stays.
    Neither,
    /// All.
    Both,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A server of this program in a process of its own: only this program calls it.
    #[command(hide = true)]
    Serve {
        /// Which one.
        server: Server,
        /// Where it sends requests on to, as ADDRESS:PORT.
        upstream: Option<String>,
    },
}

impl Arguments {
    pub(crate) fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs(u64::from(if self.quick { 1 } else { self.seconds }))
    }

    pub(crate) fn has(&self, part: Part) -> bool {
        self.part.is_none_or(|only| only == part)
    }

    /// The program whose `proxy` is measured.
    pub(crate) fn onlyonce(&self) -> Result<PathBuf> {
        sidecar_program(self.onlyonce.as_deref())
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
        let quick = Arguments::parse_from(["bench-http", "--quick"]);
        let full = Arguments::parse_from(["bench-http"]);
        assert!(quick.rounds() < full.rounds() && quick.window() < full.window());
        assert!(Arguments::try_parse_from(["bench-http", "--quick", "--rounds", "7"]).is_err());
        assert!(full.has(Part::Proxies) && full.has(Part::Layers));
    }
}
