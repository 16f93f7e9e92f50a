//! The steps that a change must pass, in order. This list is the gate: the README and `.ci/run` name only it.

use std::path::Path;
use std::process::Command;

use crate::report::Report;
use crate::tools::{self, Tool};
use crate::workspace::Workspace;
use crate::{Result, features, package, process, soak, tidy};

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// What every change must pass. The soak tests are among the tests, for a short time.
    Change,
    /// The same with a longer soak.
    Full,
}

/// What the steps need. A tool that is missing is installed, or the run fails: no step is ever skipped.
const TOOLS: [Tool; 26] = [
    tools::GIT,
    tools::PYTHON,
    tools::PIP,
    tools::NODE,
    tools::NPM,
    tools::STRACE,
    tools::REDIS,
    tools::POSTGRES,
    tools::PGBOUNCER,
    tools::NATS,
    tools::RABBITMQ,
    tools::VALKEY,
    tools::ROTEL,
    tools::FAKETIME,
    tools::PROMTOOL,
    tools::CURL,
    tools::MAN,
    tools::MANDOC,
    tools::ZSH,
    tools::FISH,
    tools::SYSTEMD,
    tools::CHROMIUM,
    tools::CHROMEDRIVER,
    tools::NEXTEST,
    tools::CARGO_DENY,
    tools::TYPOS,
];

/// Tests wait more than they work: for servers to start, for disks to sync, for leases to end.
const TESTS_PER_CORE: usize = 2;

/// How long each soak test runs in a full run, in seconds.
const FULL_SOAK_SECONDS: u64 = 60;

/// Runs all steps and fails when one of them did.
pub(crate) fn run(depth: Depth) -> Result<()> {
    let workspace = Workspace::read()?;
    let root = &workspace.root;
    let mut report = Report::default();
    // The other steps cannot run without their tools.
    if !report.step("tools", || tools::install(&TOOLS)) {
        return report.finish();
    }
    report.step("fmt", || process::run(&mut cargo(root, "fmt --all -- --check")));
    report.step("tidy", || tidy::check(&workspace));
    report.step("clippy", || {
        process::run(&mut cargo(root, "clippy --workspace --all-targets --all-features -- -D warnings"))
    });
    report.step("tests", || {
        let arguments = "nextest run --workspace --all-features --no-tests=fail --test-threads";
        let threads = std::thread::available_parallelism()?.get() * TESTS_PER_CORE;
        process::run(tools::tests(root)?.args(arguments.split(' ')).arg(threads.to_string()))
    });
    report.step("package", || package::check(&workspace));
    report
        .step("doctests", || process::run(&mut cargo(root, "test --quiet --doc --workspace --all-features")));
    report.step("docs", || {
        process::run(
            cargo(root, "doc --workspace --no-deps --all-features").env("RUSTDOCFLAGS", "-D warnings"),
        )
    });
    report.step("features", || features::run(&workspace));
    report.step("deny", || {
        process::run(tools::command(&tools::CARGO_DENY, root)?.args("check licenses bans sources".split(' ')))
    });
    report.step("typos", || process::run(&mut tools::command(&tools::TYPOS, root)?));
    if depth == Depth::Full {
        report.step("soak", || soak::long(root, None, FULL_SOAK_SECONDS, None));
    }
    report.finish()
}

/// `cargo` with arguments that hold no blanks.
fn cargo(root: &Path, arguments: &str) -> Command {
    let mut command = process::cargo(root);
    command.args(arguments.split(' '));
    command
}
