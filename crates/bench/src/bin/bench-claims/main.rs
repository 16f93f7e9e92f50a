//! `bench-claims` measures `onlyonce serve`: claims and their completions a second, one by one and in batches, and how soon
//! ten thousand long polls on one record are answered when it is completed.
//!
//! The service is a process of its own on one processor, the callers another on the other. `cargo xtask bench claims` builds
//! and runs it; `docs/performance.md` says what its tables mean.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program: printing is its job")]

mod arguments;
mod caller;
mod load;
mod waiters;
mod service;
mod run;
mod table;

use std::process::ExitCode;

use clap::Parser as _;
pub(crate) use onlyonce_bench::Result;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match &arguments.command {
        Some(Command::Load(asked)) => load::tell(asked),
        Some(Command::Wait { address, waiters }) => waiters::tell(*address, *waiters),
        None => run::run(&arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-claims: {error}");
            ExitCode::FAILURE
        }
    }
}
