//! Runs `onlyonce check --json` and reads what it found.

use std::fmt;

use assert_cmd::Command;
use serde_json::Value;

pub(crate) struct Report {
    pub(crate) code: i32,
    pub(crate) json: Value,
}

pub(crate) fn onlyonce() -> Command {
    Command::cargo_bin("onlyonce").expect("the binary was built")
}

/// Checks `url`, and fails unless there is a report.
pub(crate) fn check(url: &str, options: &[&str]) -> Report {
    // Patient: an endpoint on a loaded machine is slow, and not silent.
    let output = onlyonce().args(["check", url, "--json", "--timeout", "1m"]).args(options).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no report: {errors}"));
    Report { code: output.status.code().unwrap(), json }
}

impl Report {
    fn items(&self) -> &[Value] {
        self.json["items"].as_array().unwrap()
    }

    pub(crate) fn len(&self) -> usize {
        self.items().len()
    }

    /// The items with this verdict, in the order of the table.
    pub(crate) fn with(&self, verdict: &str) -> Vec<&str> {
        let items = self.items().iter().filter(|item| item["verdict"] == verdict);
        items.map(|item| item["id"].as_str().unwrap()).collect()
    }

    /// Why an item was judged as it was.
    pub(crate) fn why(&self, id: &str) -> &str {
        self.items().iter().find(|item| item["id"] == id).unwrap()["why"].as_str().unwrap()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for item in self.items() {
            writeln!(f, "{} {} {}", item["verdict"], item["id"], item["why"])?;
        }
        Ok(())
    }
}
