//! `bench-messages` measures messages a second from the broker's delivery to its acknowledgement, each with its effect
//! once: ours beside the loop that is usually written, one row for each message.
//!
//! Both take the same messages, one in ten of them a duplicate, from the same broker and keep their marks in the same
//! store, one after the other in the same minutes. A figure counts only if every message had its effect exactly once.
//! `cargo xtask bench messages` builds and runs it; `docs/performance.md` says what its tables mean.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program: printing is its job")]

mod arguments;
mod pair;
mod load;
mod broker;
mod timed;
mod effects;
mod ours;
mod naive;
mod measure;
mod run;
mod table;
mod goals;
mod report;

use std::process::ExitCode;

use clap::Parser as _;
pub(crate) use onlyonce_bench::Result;

fn main() -> ExitCode {
    match run::run(&arguments::Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-messages: {error}");
            ExitCode::FAILURE
        }
    }
}
