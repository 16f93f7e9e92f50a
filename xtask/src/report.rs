//! Runs steps one after the other, each with a heading and its time, and sums them up in a table at the end.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::Result;

/// What happened so far. Every step is run, so that one run shows all that is wrong.
#[derive(Debug, Default)]
pub(crate) struct Report {
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    took: Duration,
    failure: Option<String>,
}

impl Report {
    /// Runs one step and notes how it went. Answers whether it passed, for steps that others build on.
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) -> bool {
        println!("\n=== {name} ===");
        let start = Instant::now();
        let failure = work().err().map(|error| error.to_string());
        let took = start.elapsed();
        match &failure {
            None => println!("--- {name}: passed in {:.1} s", took.as_secs_f64()),
            Some(failure) => println!("--- {name}: FAILED after {:.1} s: {failure}", took.as_secs_f64()),
        }
        let passed = failure.is_none();
        self.steps.push(Step { name, took, failure });
        passed
    }

    /// Prints the table. An error when a step failed, or when there was none at all.
    pub(crate) fn finish(self) -> Result<()> {
        println!("\n{}", self.table());
        let failed: Vec<_> =
            self.steps.iter().filter(|step| step.failure.is_some()).map(|step| step.name).collect();
        match (self.steps.is_empty(), failed.is_empty()) {
            (true, _) => Err("no step was run".into()),
            (false, true) => Ok(()),
            (false, false) => Err(format!("failed: {}", failed.join(", ")).into()),
        }
    }

    fn table(&self) -> String {
        let width = self.steps.iter().map(|step| step.name.len()).max().unwrap_or(0).max("total".len());
        let mut table = format!("{:width$}  {:>9}  result\n", "step", "time");
        for Step { name, took, failure } in &self.steps {
            let result = if failure.is_some() { "FAILED" } else { "passed" };
            let _ = writeln!(table, "{name:width$}  {:>7.1} s  {result}", took.as_secs_f64());
        }
        let total: Duration = self.steps.iter().map(|step| step.took).sum();
        let _ = write!(table, "{:width$}  {:>7.1} s", "total", total.as_secs_f64());
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_step_fails_the_run_and_the_rest_still_run() {
        let mut report = Report::default();
        assert!(!report.step("first", || Err("broken".into())));
        assert!(report.step("second", || Ok(())));
        let table = report.table();
        assert!(table.contains("first") && table.contains("FAILED"), "{table}");
        assert!(table.contains("second") && table.contains("passed"), "{table}");
        assert_eq!(report.finish().unwrap_err().to_string(), "failed: first");
    }

    #[test]
    fn a_run_without_steps_is_a_failure() {
        assert!(Report::default().finish().is_err());
    }
}
