//! `bench-http` measures `onlyonce proxy` beside nginx, and the layer inside axum beside the crate axum-idempotent.
//!
//! It decides nothing about the product: load comes from wrk, processor time from the kernel. `cargo xtask bench http`
//! builds and runs it; `docs/performance.md` says what its tables mean. Everything listens on loopback, on free ports,
//! and is ended by process id.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program: printing is its job")]

mod arguments;
mod subject;
mod nginx;
mod serve;
mod measure;
mod run;
mod memory;
mod table;
mod goals;

use std::process::ExitCode;

use clap::Parser as _;
pub(crate) use onlyonce_bench::Result;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match &arguments.command {
        Some(Command::Serve { server, upstream }) => serve::serve(*server, upstream.as_deref()),
        None => run::run(&arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-http: {error}");
            ExitCode::FAILURE
        }
    }
}
