//! The `onlyonce` binary: reads the command line, runs one command, and turns its end into an exit code.
//!
//! Nothing here decides what idempotency means, and nothing here ends the process before its output is flushed.

mod admin;
mod args;
mod check;
mod completions;
mod config;
mod consume;
mod demo;
mod failure;
mod input;
mod key;
mod man;
mod output;
mod paint;
mod plain;
mod proxy;
mod records;
mod serve;
mod store;
mod sweep;
mod times;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};

/// A request makes a few dozen short-lived values of a few hundred bytes to a few thousand, many more than the system's
/// allocator keeps at hand: with this one the sidecar needs less time for each and its memory stays flat.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(stop) => {
            // Help and version stop here too, with exit code 0. If nobody reads them there is nobody to tell.
            let _ = stop.print();
            return u8::try_from(stop.exit_code()).unwrap_or(failure::USAGE).into();
        }
    };
    let ended = match cli.command {
        Command::Check(args) => check::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Config(command) => config::run(command),
        Command::Consume(args) => consume::run(*args),
        Command::Demo(args) => demo::run(&args),
        Command::Key(command) => key::run(command),
        Command::Man(args) => man::run(&args),
        Command::Proxy(args) => proxy::run(*args),
        Command::Records(command) => records::run(*command),
        Command::Serve(args) => serve::run(*args),
        Command::Stats(args) => records::stats::run(&args),
        Command::Store(command) => store::run(&command),
        Command::Sweep(args) => sweep::run(&args),
    };
    ended.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}
