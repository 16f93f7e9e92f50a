//! Writes what a command found: keys on standard output, warnings on standard error, or all of it as one JSON object.
//!
//! The first line of plain output is the key and nothing else, so that `$(onlyonce key …)` works.

use std::io::{self, Write as _};

use clap::Args;
use onlyonce::key::derive::Hazard;
use serde::Serialize;

use crate::failure::Failure;

/// How a command writes.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Print one JSON object, with the warnings in it
    #[arg(long)]
    pub(crate) json: bool,

    /// Take warnings for errors: exit with 3 and print no key
    #[arg(long)]
    pub(crate) strict: bool,
}

/// A hazard, as JSON shows it.
#[derive(Debug, Serialize)]
struct Warning {
    place: String,
    kind: &'static str,
    message: String,
}

/// The members that every answer in JSON ends with, after its own.
#[derive(Serialize)]
struct Answer<'a, T: Serialize> {
    #[serde(flatten)]
    own: &'a T,
    warnings: Vec<Warning>,
}

/// Writes an answer: `plain`, or `json` with the hazards added to it.
pub(crate) fn write_answer<T: Serialize>(
    args: &OutputArgs,
    plain: &str,
    json: &T,
    hazards: &[Hazard],
) -> Result<(), Failure> {
    let refused = args.strict && !hazards.is_empty();
    if refused || !args.json {
        warn(hazards);
    }
    if refused {
        return Err(Failure::Strict { warnings: hazards.len() });
    }
    if !args.json {
        return write_line(plain);
    }
    let warnings = hazards.iter().map(|hazard| Warning {
        place: hazard.place().to_owned(),
        kind: hazard.kind().as_str(),
        message: hazard.to_string(),
    });
    let answer = Answer { own: json, warnings: warnings.collect() };
    write_line(&serde_json::to_string(&answer).map_err(|error| Failure::Output(error.into()))?)
}

fn warn(hazards: &[Hazard]) {
    let mut stderr = io::stderr().lock();
    for hazard in hazards {
        // The key is worth more than the warning: a closed standard error does not stop it.
        let _ = writeln!(stderr, "warning: {hazard}");
    }
}

pub(crate) fn write_line(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(Failure::Output)
}
