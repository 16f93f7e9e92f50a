//! Runs the long tests, those with `soak` in their name, for a chosen time and from a printed seed.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::workspace::Workspace;
use crate::{Result, process, tools};

/// Selects the soak tests. The tests of this very file are not among them.
const ONLY: &str = "test(/soak/) and not package(xtask)";

/// Runs every soak test of a part for `seconds`, in release mode. Without a seed it takes a new one.
pub(crate) fn run(part: Option<&str>, seconds: u64, seed: Option<u64>) -> Result<()> {
    let workspace = Workspace::read()?;
    tools::install(&[tools::NEXTEST, tools::NATS, tools::VALKEY, tools::POSTGRES, tools::ROTEL])?;
    // It takes longest to build, and is for Kafka alone.
    if part.is_none_or(|part| part.contains("kafka")) {
        tools::install(&[tools::TANSU])?;
    }
    long(&workspace.root, part, seconds, seed)
}

/// The same for a caller that has the tools.
pub(crate) fn long(root: &Path, part: Option<&str>, seconds: u64, seed: Option<u64>) -> Result<()> {
    let seed = seed.unwrap_or_else(fresh_seed);
    let named = part.map_or_else(String::new, |part| format!(" {part}"));
    println!("seed {seed}; to repeat: cargo xtask soak{named} --seconds {seconds} --seed {seed}");
    process::run(with(&mut tools::tests(root)?, part, seconds, seed).arg("--release"))
}

/// Adds what makes nextest run the soak tests of a part and nothing else. No such test is a failure.
fn with<'a>(nextest: &'a mut Command, part: Option<&str>, seconds: u64, seed: u64) -> &'a mut Command {
    let only = part.map_or_else(|| ONLY.to_owned(), |part| format!("{ONLY} and test(/{part}/)"));
    nextest
        .env("ONLYONCE_SOAK_SECONDS", seconds.to_string())
        .env("ONLYONCE_SEED", seed.to_string())
        .args(["nextest", "run", "--workspace", "--all-features", "--no-tests=fail", "--no-capture"])
        .args(["-E", &only])
}

/// A seed that differs from run to run. It is printed, so it need not be unpredictable.
fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() ^ u64::from(since.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_carries_time_and_seed_and_fails_without_tests() {
        let line = process::line(with(&mut Command::new("cargo-nextest"), Some("kafka"), 9, 7));
        assert!(line.contains("ONLYONCE_SOAK_SECONDS=9"), "{line}");
        assert!(line.contains("ONLYONCE_SEED=7"), "{line}");
        assert!(line.contains("--no-tests=fail") && line.contains("-E 'test(/soak/)"), "{line}");
        assert!(line.contains("test(/kafka/)"), "{line}");
    }
}
