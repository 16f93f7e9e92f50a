//! Rule: product code learns the time from a `Clock`, so that a test can move it. Only files named `clock.rs` read
//! the machine's own.
//!
//! Test code, xtask and the bench crate (which measures time) are free. Sleeping in tests has its own rule.

use super::{Finding, Tree};

/// A type and the function that reads the machine's time, or stops it.
const RAW: [(&str, &str); 5] =
    [("Instant", "now"), ("SystemTime", "now"), ("Timestamp", "now"), ("Zoned", "now"), ("thread", "sleep")];

/// Crates whose business is the machine's own time.
const EXEMPT: [&str; 1] = ["bench"];

/// Files that may read it, each with the reason why a `Clock` would be wrong there.
const EXEMPT_FILES: [(&str, &str); 1] = [(
    "crates/testkit/src/soak.rs",
    "a soak test runs for a stretch of real time, whatever its stores' clock says",
)];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.rust().filter(|source| source.is_crate_source(&EXEMPT) && !is_exempt(&source.path)) {
        for (owner, function) in RAW {
            for (line, _) in source.sequences(&[owner, ":", ":", function]) {
                if !source.is_test(line) {
                    let message = format!("`{owner}::{function}` outside clock.rs: take a `Clock`");
                    findings.push(Finding::new(source, line, message));
                }
            }
        }
    }
    findings
}

fn is_exempt(path: &str) -> bool {
    path.ends_with("/clock.rs") || EXEMPT_FILES.iter().any(|(exempt, _)| *exempt == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_lines;

    const READS: &str =
        "//! A.\n// Instant::now is only named here.\nfn f() {\n    g!(std::time::Instant::now());\n}\n";

    #[test]
    fn reading_the_machines_clock_is_found() {
        assert_lines(check, &Tree::of([("crates/core/src/a.rs", READS)]), &[4]);
        for raw in
            ["SystemTime::now()", "tokio::time::Instant::now()", "thread::sleep(d)", "Timestamp::now()"]
        {
            let text = format!("fn f() {{ {raw}; }}");
            assert_lines(check, &Tree::of([("crates/core/src/a.rs", &text)]), &[1]);
        }
        assert_lines(check, &Tree::of([("crates/core/src/a.rs", "fn f(c: &C) -> Instant { c.now() }")]), &[]);
    }

    #[test]
    fn the_clock_itself_tests_and_tools_may() {
        for path in [
            "crates/core/src/clock.rs",
            "crates/core/tests/a.rs",
            "crates/bench/src/a.rs",
            "crates/testkit/src/soak.rs",
            "xtask/src/a.rs",
        ] {
            assert_lines(check, &Tree::of([(path, READS)]), &[]);
        }
        let text = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", READS.replace("//! A.", ""));
        assert_lines(check, &Tree::of([("crates/core/src/a.rs", &text)]), &[]);
    }
}
