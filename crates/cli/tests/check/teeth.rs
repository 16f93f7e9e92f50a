//! A server without a defect passes everything, and each defect is found by the items that are there for it, and by no
//! others.

use std::thread;

use crate::report::{Report, check};
use crate::server::{Defect, Server};

use Defect as D;

/// Each defect with all the items that fail because of it.
const FOUND: [(Defect, &[&str]); 24] = [
    (
        D::IgnoresKeys,
        &[
            "replay-once",
            "replay-body",
            "replay-headers",
            "replay-stays",
            "mismatch-refused",
            "mismatch-stays",
            "concurrent-once",
            "concurrent-settles",
            "conflict-mismatch",
            "key-bare-same",
            "key-parameters",
            "key-printable",
            "disconnect-retry",
        ],
    ),
    (D::LosesHeaders, &["replay-headers"]),
    (D::LosesStatus, &["replay-status"]),
    (D::ChangesBody, &["replay-body"]),
    (D::MarksNothing, &[]),
    (D::MarksEverything, &["replay-mark"]),
    (D::ComparesNothing, &["mismatch-refused", "mismatch-stays", "mismatch-uri", "mismatch-method"]),
    (D::ComparesOnlyBodies, &["mismatch-uri", "mismatch-method"]),
    (D::RefusesMismatchWith409, &["mismatch-status"]),
    (D::ForgetsOnMismatch, &["mismatch-stays"]),
    (D::DescribesNothing, &["mismatch-problem", "conflict-problem", "key-problem"]),
    (D::ClaimsOnlyAtTheEnd, &["concurrent-once", "conflict-mismatch", "disconnect-retry"]),
    (D::FailsLosers, &["concurrent-answer", "disconnect-retry"]),
    (D::IsStuckAfterFailure, &["error-failed"]),
    (D::IsStuckAfterRefusal, &["error-refused"]),
    (D::TakesTheFirstLine, &["key-two-lines"]),
    (D::TakesEmptyForNone, &["key-empty"]),
    (
        D::TakesAnyText,
        &[
            "key-bare-same",
            "key-parameters",
            "key-empty",
            "key-two-lines",
            "key-list",
            "key-control",
            "key-not-ascii",
            "key-broken",
        ],
    ),
    (D::LowersCase, &["key-case"]),
    (D::CutsKeys, &["key-long"]),
    (D::RefusesQuotes, &["key-quoted"]),
    (D::HasOneScope, &["scope-principal"]),
    (D::ForgetsWhenHungUp, &["disconnect-retry"]),
    (D::KeepsTornBodies, &["disconnect-torn"]),
];

/// How many servers are checked at once: most of the time is waiting.
const AT_ONCE: usize = 8;

fn run(defect: Defect, with_effects: bool) -> Report {
    let server = Server::start(defect);
    let mut options = vec!["--slow", "Demo-Slow: 1", "--fail", "Demo-Fail: 1"];
    let effects = server.effects();
    if with_effects {
        options.extend(["--effects", &effects]);
    }
    check(&server.url(), &options)
}

#[test]
fn a_server_without_a_defect_passes_everything() {
    for with_effects in [true, false] {
        let report = run(D::Nothing, with_effects);
        assert_eq!(report.code, 0, "{report}");
        assert_eq!(report.with("pass").len(), report.len(), "{report}");
    }
}

#[test]
fn every_defect_is_found_and_nothing_else() {
    let mut wrong = Vec::new();
    for few in FOUND.chunks(AT_ONCE) {
        let runs: Vec<_> =
            few.iter().map(|(defect, found)| (defect, found, thread::spawn(|| run(*defect, true)))).collect();
        for (defect, found, report) in runs {
            let report = report.join().unwrap();
            if report.with("fail") != *found || report.code != i32::from(!found.is_empty()) {
                wrong.push(format!("{defect:?}: expected {found:?}\n{report}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
