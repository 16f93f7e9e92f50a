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
mod pair;
mod retention;
mod run;
mod table;
mod task;
mod worker;

use std::process::ExitCode;

use clap::Parser as _;
pub(crate) use onlyonce_bench::Result;

use arguments::{Arguments, Command};

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
