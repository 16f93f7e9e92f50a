//! `bench-stores` measures idempotency over Redis and `PostgreSQL`: ours beside middlewares of the usual shape.
//!
//! The sidecar and the layer in axum on each store, Express and `FastAPI` with the middleware that is usually written,
//! and axum-idempotent, all over the same servers. Load comes from wrk, processor time from the kernel, round trips from
//! the servers' own statistics. `cargo xtask bench stores` builds and runs it; `docs/performance.md` says what its
//! tables mean. Everything listens on loopback, on free ports, and is ended by process id.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program: printing is its job")]

mod arguments;
mod subject;
mod peers;
mod servers;
mod counts;
mod serve;
mod measure;
mod run;
mod table;
mod goals;
mod report;

use std::process::ExitCode;

use clap::Parser as _;
pub(crate) use onlyonce_bench::Result;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match &arguments.command {
        Some(Command::Serve { server, url }) => serve::serve(*server, url.as_deref()),
        None => run::run(&arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-stores: {error}");
            ExitCode::FAILURE
        }
    }
}
