//! `bench-sweep` measures what sweeping costs those who are served meanwhile: many expired records go while others are
//! claimed and completed, and their latency is set beside that without a sweep.
//!
//! Both take turns on the same store in the same minutes. A figure counts only if every expired record went, none that
//! lives did, and no batch was larger than allowed. `cargo xtask bench sweep` builds and runs it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program: printing is its job")]

mod arguments;
mod place;
mod stock;
mod load;
mod batches;
mod waits;
mod measure;
mod run;
mod table;

use std::process::ExitCode;

use clap::Parser as _;
pub(crate) use onlyonce_bench::Result;

fn main() -> ExitCode {
    match run::run(&arguments::Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-sweep: {error}");
            ExitCode::FAILURE
        }
    }
}
