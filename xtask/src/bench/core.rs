//! Counts the instructions of one operation under callgrind.
//!
//! Instructions and not seconds: the count is the same whatever else the machine does. Two sizes of each workload
//! are run and subtracted, so that start-up and shut-down do not count.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build;
use crate::workspace::Workspace;
use crate::{Result, process, tools};

/// The two sizes that are subtracted. The small one is large enough to leave every warm-up behind.
const SMALL: u64 = 1_000;
const LARGE: u64 = 11_000;

/// How often each workload is measured: twice shows whether the count can be trusted.
const REPEATS: usize = 2;

/// One line of the table.
#[derive(Debug, PartialEq)]
struct Measure {
    workload: String,
    /// Instructions per operation, once for each repeat.
    per_operation: Vec<f64>,
}

/// Builds the bench program in release mode and prints a table of instructions per operation.
pub(super) fn run() -> Result<()> {
    let workspace = Workspace::read()?;
    tools::install(&[tools::VALGRIND])?;
    let program = build(&workspace, "bench-core", &[])?;
    let workloads = process::output(Command::new(&program).arg("--list"))?;
    if workloads.trim().is_empty() {
        return Err("bench-core --list names no workload".into());
    }
    let folder = Folder::new()?;
    let mut measures = Vec::new();
    for workload in workloads.lines().map(str::trim).filter(|line| !line.is_empty()) {
        measures.push(measure(&program, workload, &folder.path)?);
    }
    println!("\n{}", table(&measures));
    Ok(())
}

fn measure(program: &Path, workload: &str, folder: &Path) -> Result<Measure> {
    let mut per_operation = Vec::new();
    for repeat in 0..REPEATS {
        let small = count(program, workload, SMALL, &folder.join(format!("{workload}-{SMALL}-{repeat}")))?;
        let large = count(program, workload, LARGE, &folder.join(format!("{workload}-{LARGE}-{repeat}")))?;
        per_operation.push(difference(small, large)?);
    }
    Ok(Measure { workload: workload.to_owned(), per_operation })
}

/// The instructions of one whole run.
fn count(program: &Path, workload: &str, iterations: u64, out: &Path) -> Result<u64> {
    process::run(
        Command::new("valgrind")
            .args(["--quiet", "--tool=callgrind"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(program)
            .args([workload, &iterations.to_string()]),
    )?;
    total(&fs::read_to_string(out)?)
        .ok_or_else(|| format!("{}: callgrind wrote no total", out.display()).into())
}

/// The total from callgrind's output: `summary:`, or `totals:` in files of newer versions.
fn total(out: &str) -> Option<u64> {
    let value = |name| out.lines().rev().find_map(|line| line.strip_prefix(name));
    value("totals:").or_else(|| value("summary:"))?.split_whitespace().next()?.parse().ok()
}

fn difference(small: u64, large: u64) -> Result<f64> {
    let instructions = large.checked_sub(small).ok_or("more iterations took fewer instructions")?;
    // Both are far below 2^52, where every integer is a float.
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    Ok(instructions as f64 / (LARGE - SMALL) as f64)
}

fn table(measures: &[Measure]) -> String {
    let mut table = String::from("| workload | instructions per operation | spread |\n|---|---:|---:|");
    for Measure { workload, per_operation } in measures {
        let least = per_operation.iter().copied().fold(f64::INFINITY, f64::min);
        let most = per_operation.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let spread = if least > 0.0 { (most - least) / least * 100.0 } else { 0.0 };
        let _ = write!(table, "\n| {workload} | {least:.0} | {spread:.2} % |");
    }
    table
}

/// A folder that is removed with all that is in it.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("onlyonce-bench-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Self { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left-over files in the temporary folder harm nobody.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_from_either_line() {
        assert_eq!(total("events: Ir\nsummary: 4321\nfn=(1)\n+3 7\n"), Some(4321));
        assert_eq!(total("events: Ir Dr\nfn=(1)\n+3 7\n\ntotals: 99 5\n"), Some(99));
        assert_eq!(total("events: Ir\n"), None);
        assert_eq!(total("summary: many\n"), None);
    }

    #[test]
    fn start_up_is_subtracted() {
        assert!((difference(1_500_000, 11_500_000).unwrap() - 1000.0).abs() < f64::EPSILON);
        assert!(difference(2, 1).is_err());
    }

    #[test]
    fn the_table_shows_the_least_and_the_spread() {
        let measure = Measure { workload: "replay".into(), per_operation: vec![202.0, 200.0] };
        assert!(table(&[measure]).ends_with("| replay | 200 | 1.00 % |"));
    }
}
