//! `bench-train` puts load on every way of `onlyonce` on which callers wait, so that a build that counts can be told what to
//! make fast. It measures nothing: `cargo xtask package trained` builds and runs it.
//!
//! Everything listens on loopback, on free ports, and is ended by process id: only who ends in order leaves its counts.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program: printing is its job")]

mod arguments;
mod secured;
mod stores;

use std::process::ExitCode;

use clap::Parser as _;
pub(crate) use onlyonce_bench::Result;
use onlyonce_bench::pins::Pins;
use onlyonce_bench::serve::{self, application};
use onlyonce_bench::starter::Starter;
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

fn train(arguments: &Arguments) -> Result<()> {
    let onlyonce = arguments.onlyonce()?;
    let workplace = Workplace::take(&arguments.folder)?;
    let mut starter = Starter::new(&workplace, Pins::new(true))?;
    stores::train(&mut starter, &workplace, &onlyonce, arguments.window())?;
    secured::train(&mut starter, &workplace, &onlyonce, arguments.window())
}
