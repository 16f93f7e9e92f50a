//! `bench-train` puts load on every way of `onlyonce` on which callers wait, so that a build that counts can be told what to
//! make fast. It measures nothing: `cargo xtask package trained` builds and runs it.
//!
//! Everything listens on loopback, on free ports, and is ended by process id: only who ends in order leaves its counts.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program: printing is its job")]

mod arguments;
mod secured;
mod stores;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
pub(crate) use onlyonce_bench::Result;
use onlyonce_bench::pins::Pins;
use onlyonce_bench::serve::{self, application};
use onlyonce_bench::starter::{Starter, sidecar_program};
use onlyonce_bench::workplace::Workplace;
use tokio::runtime::Builder;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match &arguments.command {
        Some(Command::Serve { .. }) => serve::until_input_ends(Builder::new_current_thread(), async {
            application::serve(serve::listener()?).await
        }),
        None => train(&arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-train: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is trained, and with what.
struct Training<'a> {
    onlyonce: PathBuf,
    workplace: &'a Workplace,
    starter: Starter<'a>,
    /// How long each kind of load lasts.
    time: Duration,
}

fn train(arguments: &Arguments) -> Result<()> {
    let onlyonce = sidecar_program(arguments.onlyonce.as_deref())?;
    let workplace = Workplace::take(&arguments.folder)?;
    let starter = Starter::new(&workplace, Pins::new(true))?;
    let mut training = Training { onlyonce, workplace: &workplace, starter, time: arguments.window() };
    stores::train(&mut training)?;
    secured::train(&mut training)
}
