//! `bench-core WORKLOAD N` performs a workload N times, for `cargo xtask bench core` to count its instructions.
//!
//! It measures nothing itself and prints nothing but errors: what it does depends on its arguments alone, so that two
//! sizes can be subtracted. `docs/performance.md` says what each workload includes.

mod clock;
mod engine;
mod names;
mod pure;
mod sample;
mod store;
mod workload;

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use workload::Workload;

/// The command line is not one we know.
const EXIT_USAGE: u8 = 2;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What the command line asks for.
enum Task {
    Help,
    List,
    Perform(&'static Workload, u64),
}

fn main() -> ExitCode {
    let arguments: Vec<_> =
        std::env::args_os().skip(1).map(|text| text.to_string_lossy().into_owned()).collect();
    let task = match read(&arguments) {
        Ok(task) => task,
        Err(reason) => return report(&format!("{reason}\n\n{}", help()), EXIT_USAGE),
    };
    let ended = match task {
        Task::Help => print(&help()),
        Task::List => print(&workload::ALL.map(|workload| workload.name).join("\n")),
        Task::Perform(workload, iterations) => (workload.perform)(iterations),
    };
    ended.map_or_else(|error| report(&error.to_string(), 1), |()| ExitCode::SUCCESS)
}

fn read(arguments: &[String]) -> std::result::Result<Task, String> {
    let (name, iterations) = match arguments {
        [flag] if flag == "--help" => return Ok(Task::Help),
        [flag] if flag == "--list" => return Ok(Task::List),
        [name, iterations] => (name, iterations),
        _ => return Err("expected --list, or a workload and a number".into()),
    };
    let workload = workload::ALL.iter().find(|workload| workload.name == name);
    let workload = workload.ok_or_else(|| format!("there is no workload {name:?}"))?;
    let iterations =
        iterations.parse().map_err(|error| format!("{iterations:?} is not a number: {error}"))?;
    Ok(Task::Perform(workload, iterations))
}

fn help() -> String {
    let mut text = String::from("usage: bench-core --list\n       bench-core WORKLOAD N\n\nworkloads:");
    for Workload { name, about, .. } in workload::ALL {
        let _ = write!(text, "\n  {name:<24}{about}");
    }
    text
}

fn print(text: &str) -> Result<()> {
    Ok(writeln!(io::stdout(), "{text}")?)
}

fn report(text: &str, code: u8) -> ExitCode {
    // If nobody reads it there is nobody to tell.
    let _ = writeln!(io::stderr(), "bench-core: {text}");
    code.into()
}
