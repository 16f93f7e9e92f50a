//! Rule: tests do not sleep to wait for something: they move the clock, or wait for the thing itself.
//!
//! A sleep with a reason carries it on its line, or on the line above: `// tidy: sleep because …`.

use super::source::Source;
use super::{Finding, Tree};

const SLEEPS: [&str; 2] = ["sleep", "sleep_until"];
const REASON: &str = "// tidy: sleep because ";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.rust() {
        for name in SLEEPS {
            for (line, index) in source.sequences(&[name, "("]) {
                if source.is_test(line) && is_free_call(source, index) && !has_reason(source, line) {
                    let message = format!("a test calls `{name}`: move the clock, or write `{REASON}…`");
                    findings.push(Finding::new(source, line, message));
                }
            }
        }
    }
    findings
}

/// `thread::sleep(…)` and the like; neither `fn sleep(` nor `clock.sleep(`, which a manual clock may have.
fn is_free_call(source: &Source, index: usize) -> bool {
    let before = index.checked_sub(1).map_or("", |before| source.tokens[before].text.as_str());
    before != "fn" && before != "."
}

fn has_reason(source: &Source, line: usize) -> bool {
    source
        .lines()
        .filter(|(number, _)| *number == line || *number + 1 == line)
        .any(|(_, text)| text.split_once(REASON).is_some_and(|(_, reason)| !reason.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_lines;

    #[test]
    fn a_test_that_sleeps_is_found() {
        for bad in
            ["thread::sleep(d)", "tokio::time::sleep(d).await", "sleep(d).await", "sleep_until(t).await"]
        {
            let text = format!("//! A.\nasync fn f() {{\n    {bad};\n}}\n");
            assert_lines(check, &Tree::of([("crates/core/tests/a.rs", &text)]), &[3]);
            assert_lines(check, &Tree::of([("crates/core/src/a.rs", &text)]), &[]);
        }
    }

    #[test]
    fn a_reason_and_a_manual_clock_are_accepted() {
        for good in [
            "sleep(d); // tidy: sleep because the server has no other sign",
            "// tidy: sleep because the server has no other sign\n    sleep(d);",
            "clock.sleep(d);",
            "fn sleep(d: Duration) {}",
        ] {
            let text = format!("//! A.\nfn f() {{\n    {good}\n}}\n");
            assert_lines(check, &Tree::of([("crates/core/tests/a.rs", &text)]), &[]);
        }
        let text = "fn f() {\n    sleep(d); // tidy: sleep because \n}\n";
        assert_lines(check, &Tree::of([("crates/core/tests/a.rs", text)]), &[2]);
    }
}
