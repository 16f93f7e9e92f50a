//! `bench-embedded` measures the embedded store beside a bare log and other engines: durable claims and completions.
//!
//! It decides nothing about the store. `cargo xtask bench embedded` builds and runs it; `docs/performance.md` says what
//! its tables mean. Each engine works in a process of its own (the hidden `worker` command), so that no engine pays for
//! another's memory or threads.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program: printing is its job")]

mod arguments;
mod callers;
mod engine;
mod goals;
mod machine;
mod pair;
mod retention;
mod run;
mod table;
mod task;
mod worker;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser as _;

use arguments::{Arguments, Command};

/// The erased error of a terminal program, which crosses threads: it is printed, never matched on.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match &arguments.command {
        Some(Command::Worker { task }) => worker::work(task),
        None => run::run(&arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-embedded: {error}");
            ExitCode::FAILURE
        }
    }
}
