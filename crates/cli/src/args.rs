//! The top of the command line: which commands there are. What each of them takes stands beside what it does.

use clap::{Parser, Subcommand};

use crate::check::CheckArgs;
use crate::completions::CompletionsArgs;
use crate::config::ConfigCommand;
use crate::consume::ConsumeArgs;
use crate::demo::DemoArgs;
use crate::key::KeyCommand;
use crate::man::ManArgs;
use crate::proxy::ProxyArgs;
use crate::records::RecordsCommand;
use crate::records::stats::StatsArgs;
use crate::serve::ServeArgs;
use crate::store::StoreCommand;
use crate::sweep::SweepArgs;

/// The exit codes, as every `--help` shows them. A macro, because help texts are joined at compile time.
macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  0   done (also when the reader of the output went away)
  1   an item that was checked failed, or a promise of the tour was broken
  2   the command line is not understood
  3   --strict was given and there were warnings: no key was printed
  65  the input was read but is refused: not JSON, empty, too large, out of range
  66  an input file cannot be read
  69  the store cannot be opened, read or written; or a server cannot be reached
  71  the operating system gave no random bytes
  74  the output cannot be written
  75  another process sweeps the store"
    };
}
pub(crate) use exit_codes;

/// Makes operations happen only once, however often they are asked for.
#[derive(Debug, Parser)]
#[command(name = "onlyonce", version, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce key derive --entity order-123 --action create --params '{\"amount\": 100}'

",
    exit_codes!()
))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Check(Box<CheckArgs>),
    Completions(CompletionsArgs),
    /// Check and show configurations
    #[command(subcommand)]
    Config(ConfigCommand),
    Consume(Box<ConsumeArgs>),
    Demo(DemoArgs),
    /// Make idempotency keys
    #[command(subcommand)]
    Key(KeyCommand),
    Man(ManArgs),
    Proxy(Box<ProxyArgs>),
    /// Look at records, resolve, release and erase them; move and copy them
    #[command(subcommand)]
    Records(Box<RecordsCommand>),
    Serve(Box<ServeArgs>),
    Stats(Box<StatsArgs>),
    /// Prepare a store
    #[command(subcommand)]
    Store(StoreCommand),
    Sweep(SweepArgs),
}
