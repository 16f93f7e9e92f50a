//! Builds a program of `crates/bench` in release mode and measures with it. What is measured is that program's business.

mod claims;
mod core;
mod embedded;
mod http;
mod messages;
mod stores;
mod sweep;

use std::path::PathBuf;
use std::process::Command;

use clap::Subcommand;

use crate::workspace::Workspace;
use crate::{Result, process};

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Suite {
    /// Measure `onlyonce serve`: claims and completions a second, and how soon 10 000 long polls are answered: a quiet
    /// machine is needed.
    ///
    /// One by one and in batches of 100, over HTTP/1.1 with connections kept alive, on the memory and the embedded store.
    /// About five minutes; prints tables in Markdown and the exact commands; progress goes to stderr.
    #[command(after_help = "\
Examples:
  cargo xtask bench claims --quick
  cargo xtask bench claims --rounds 7 --waiters 5000")]
    Claims(claims::Arguments),
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
    /// Measure the sidecar beside nginx, and the layer in axum beside axum-idempotent: a quiet machine is needed.
    ///
    /// Requests a second, latency and processor time of a request under load from wrk: fresh keys, replays and requests
    /// without a key. About ten minutes; prints tables in Markdown, the goals and the exact commands; progress goes to
    /// stderr. Missing Debian packages (nginx, wrk) are installed with apt-get, which needs root; no service is started.
    #[command(after_help = "\
Examples:
  cargo xtask bench http --quick
  cargo xtask bench http --rounds 5 --seconds 10 --minutes 10")]
    Http(http::Arguments),
    /// Measure messages a second with each effect once, beside a loop with one row for each message: a quiet machine is
    /// needed.
    ///
    /// Kafka (librdkafka's mock cluster) with the inbox in Postgres, NATS with Redis, Redis Streams with the embedded
    /// store; one message in ten is a duplicate, and every effect is checked. About ten minutes; prints tables in Markdown
    /// and the goals; progress goes to stderr. Missing Debian packages are installed with apt-get, which needs root; no
    /// service is started. Builds librdkafka, which takes minutes the first time.
    #[command(after_help = "\
Examples:
  cargo xtask bench messages --quick
  cargo xtask bench messages --pair kafka-postgres --rounds 7 --json messages.json")]
    Messages(messages::Arguments),
    /// Measure the stores on Redis and Postgres beside middlewares of others over the same servers: a quiet machine is
    /// needed.
    ///
    /// The sidecar and the layer in axum beside Express with ioredis or pg, `FastAPI` with redis-py, and axum-idempotent.
    /// Fresh keys and replays a second, latency, processor time of a request in the process and in its server, and round
    /// trips as the servers count them. About 20 minutes; prints tables in Markdown, the goals and the exact commands;
    /// progress goes to stderr. Missing Debian packages are installed with apt-get, which needs root; the
    /// packages of the peers go into the folder `ONLYONCE_TOOLS`; no service is started.
    #[command(after_help = "\
Examples:
  cargo xtask bench stores --quick
  cargo xtask bench stores --rounds 5 --seconds 10 --json stores.json
  cargo xtask bench stores --part redis --redis redis --appendfsync everysec")]
    Stores(stores::Arguments),
    /// Measure what sweeping costs those who are served meanwhile: a quiet machine is needed.
    ///
    /// Ten million expired records of the embedded store, Redis and Postgres each are swept under a load of claims and
    /// completions, in turns with the same load alone; every record is accounted for, and in Postgres nobody may wait for
    /// another transaction for long. An hour or so; prints tables in Markdown and the goals; progress goes to stderr. Missing
    /// Debian packages are installed with apt-get, which needs root; no service is started.
    #[command(after_help = "\
Examples:
  cargo xtask bench sweep --quick
  cargo xtask bench sweep --store postgres --records 1000000 --json sweep.json")]
    Sweep(sweep::Arguments),
}

/// Measures, and prints a table.
pub(crate) fn run(suite: &Suite) -> Result<()> {
    match suite {
        Suite::Claims(arguments) => claims::run(arguments),
        Suite::Core => core::run(),
        Suite::Embedded(arguments) => embedded::run(arguments),
        Suite::Http(arguments) => http::run(arguments),
        Suite::Messages(arguments) => messages::run(arguments),
        Suite::Stores(arguments) => stores::run(arguments),
        Suite::Sweep(arguments) => sweep::run(arguments),
    }
}

/// Adds the options that were given and the flags that are set, each under its name.
fn pass_on<'c>(
    command: &'c mut Command,
    options: &[(&str, Option<String>)],
    flags: &[(&str, bool)],
) -> &'c mut Command {
    for (name, value) in options {
        if let Some(value) = value {
            command.arg(name).arg(value);
        }
    }
    command.args(flags.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name))
}

/// A number as it is passed on.
fn number(number: Option<u64>) -> Option<String> {
    number.map(|number| number.to_string())
}

/// Numbers as they are passed on: with a comma between, and none at all when there are none.
fn list(numbers: &[u64]) -> Option<String> {
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    (!numbers.is_empty()).then(|| numbers.join(","))
}

/// Builds a program of `crates/bench`.
pub(crate) fn build(workspace: &Workspace, binary: &str, features: &[&str]) -> Result<PathBuf> {
    build_package(workspace, "crates/bench", binary, features)
}

fn build_package(workspace: &Workspace, folder: &str, binary: &str, features: &[&str]) -> Result<PathBuf> {
    let package = workspace
        .crates
        .iter()
        .find(|package| package.folder == folder)
        .ok_or_else(|| format!("there is no {folder} in this workspace"))?;
    let mut cargo = process::cargo(&workspace.root);
    cargo.args(["build", "--release", "--package", &package.name, "--bin", binary]);
    cargo.args(features.iter().flat_map(|feature| ["--features", feature]));
    process::run(&mut cargo)?;
    Ok(workspace.target_dir.join("release").join(binary))
}
