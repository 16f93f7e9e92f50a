//! Two public libraries, installed by name, with the defects that they have. Never skipped: without `node`, `npm`,
//! `python3` or `pip` these fail.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::report::{Report, check};
use crate::tools::{installed, python};

/// A server of a peer; its process ends with this value.
struct Peer {
    child: Child,
    port: u16,
}

impl Peer {
    /// Starts `command`, which prints its port in its first line.
    fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| panic!("the peer did not start: {command:?}"));
        Self { child, port }
    }

    fn check(&self) -> Report {
        self.check_with(&[])
    }

    fn check_with(&self, more: &[&str]) -> Report {
        let url = format!("http://127.0.0.1:{}/payments", self.port);
        let effects = format!("{url}/count");
        let options = ["--slow", "Demo-Slow: 1", "--fail", "Demo-Fail: 1", "--effects", &effects];
        check(&url, &[&options[..], more].concat())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check").join(name)
}

fn express(store: &str) -> Peer {
    let folder = installed("express-idempotency-1.0.6-express-5.3.0", |folder| {
        let mut command = Command::new("npm");
        command.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(folder);
        command.args(["express-idempotency@1.0.6", "express@5.3.0"]);
        command
    });
    let mut command = Command::new("node");
    command.env("NODE_PATH", folder.join("node_modules")).arg(source("express.cjs")).arg(store);
    Peer::start(&mut command)
}

fn asgi() -> Peer {
    // Its memory backend cannot be imported without what the other one needs.
    let packages = ["asgi-idempotency-header==0.2.0", "fastapi==0.162.4", "uvicorn==0.54.0", "redis==4.6.0"];
    let folder = python("asgi-idempotency-header-0.2.0-fastapi-0.162.4", &packages);
    Peer::start(Command::new("python3").env("PYTHONPATH", folder).arg(source("asgi.py")))
}

fn assert_all(report: &Report, verdict: &str, items: &[&str]) {
    let with = report.with(verdict);
    for item in items {
        assert!(with.contains(item), "{item} is not {verdict}: {report}");
    }
}

#[test]
fn the_defects_of_express_idempotency_are_found() {
    let report = express("memory").check();
    assert_eq!(report.code, 1);
    // Headers are dropped on replay, a mismatch is 417, errors are HTML, quotes are part of the key, what is no key is
    // taken for one or ignored, callers share their keys, and an error leaves the key in progress for ever.
    let defects = [
        "replay-headers",
        "mismatch-status",
        "mismatch-problem",
        "conflict-problem",
        "key-bare-same",
        "key-parameters",
        "key-empty",
        "key-two-lines",
        "key-list",
        "key-control",
        "key-not-ascii",
        "key-broken",
        "scope-principal",
        "error-failed",
    ];
    assert_all(&report, "fail", &defects);
    assert!(report.why("replay-headers").contains("location"), "{report}");
    assert!(report.why("mismatch-status").contains("417"), "{report}");
    assert!(report.why("error-failed").contains("stuck"), "{report}");
    assert!(report.why("scope-principal").contains("another caller was given the stored answer"), "{report}");
    assert_all(&report, "not-supported", &["replay-mark"]);
    let sound =
        ["replay-once", "replay-status", "replay-body", "mismatch-refused", "concurrent-once", "key-case"];
    assert_all(&report, "pass", &sound);
}

#[test]
fn the_race_of_express_idempotency_is_found_with_a_remote_store() {
    let report = express("remote").check_with(&["--only", "concurrent-answer"]);
    assert_all(&report, "fail", &["concurrent-answer"]);
    assert!(report.why("concurrent-answer").contains("500"), "{report}");
}

#[test]
fn the_defects_of_asgi_idempotency_header_are_found() {
    let report = asgi().check();
    assert_eq!(report.code, 1);
    // No fingerprint, headers dropped on replay, the first of two header lines wins, callers share their keys, and an
    // error or a caller that hangs up leaves the key in progress for ever.
    let defects = [
        "replay-headers",
        "mismatch-refused",
        "mismatch-stays",
        "mismatch-uri",
        "mismatch-method",
        "conflict-problem",
        "key-bare-same",
        "key-parameters",
        "key-empty",
        "key-two-lines",
        "key-list",
        "key-not-ascii",
        "key-broken",
        "scope-principal",
        "error-failed",
        "disconnect-torn",
    ];
    assert_all(&report, "fail", &defects);
    assert!(report.why("mismatch-refused").contains("the result of another request"), "{report}");
    assert!(report.why("key-two-lines").contains("the first line wins"), "{report}");
    assert!(report.why("error-failed").contains("stuck"), "{report}");
    let sound =
        ["replay-once", "replay-status", "replay-body", "replay-mark", "concurrent-once", "disconnect-retry"];
    assert_all(&report, "pass", &sound);
}
