//! Builds a program of `crates/bench` in release mode and measures with it. What is measured is that program's business.

mod core;
mod embedded;

use std::path::PathBuf;

use clap::Subcommand;

use crate::workspace::Workspace;
use crate::{Result, process};

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Suite {
    /// Count instructions per operation of the core under callgrind: repeatable, whatever else the machine does.
    ///
    /// Claim and complete on the memory store, replay, and the engine around them.
    #[command(after_help = "Example: cargo xtask bench core")]
    Core,
    /// Measure the embedded store beside a bare log, fjall, redb, Postgres and Redis: a quiet machine is needed.
    ///
    /// Durable claim+complete pairs a second and their latency, empty and with records stored; space, opening, and the
    /// cost of retention. Prints tables in Markdown; progress goes to stderr.
    #[command(after_help = "Example: cargo xtask bench embedded --records 200000 --seconds 2")]
    Embedded(embedded::Arguments),
}

/// Measures, and prints a table.
pub(crate) fn run(suite: &Suite) -> Result<()> {
    match suite {
        Suite::Core => core::run(),
        Suite::Embedded(arguments) => embedded::run(arguments),
    }
}

fn build(workspace: &Workspace, binary: &str, features: &[&str]) -> Result<PathBuf> {
    let package = workspace
        .crates
        .iter()
        .find(|package| package.folder == "crates/bench")
        .ok_or("there is no crates/bench in this workspace")?;
    let mut cargo = process::cargo(&workspace.root);
    cargo.args(["build", "--release", "--package", &package.name, "--bin", binary]);
    cargo.args(features.iter().flat_map(|feature| ["--features", feature]));
    process::run(&mut cargo)?;
    Ok(workspace.target_dir.join("release").join(binary))
}
