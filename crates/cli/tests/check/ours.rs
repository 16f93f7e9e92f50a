//! Our own sidecar, in front of the payments API of the demo: each profile keeps what it promises.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::report::{Report, check};

/// A process of ours and what its first lines said.
struct Ours {
    child: Child,
    said: Vec<String>,
    /// Nobody reads on, but a process that cannot write would end.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Ours {
    /// Starts it and reads up to the line that holds `last`.
    fn start(arguments: &[&str], last: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        // A loaded disk is no failed store.
        command.env("ONLYONCE_STORE_ANSWER_WITHIN", "30s");
        let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        while !said.last().is_some_and(|line: &String| line.contains(last)) {
            said.push(lines.next().unwrap_or_else(|| panic!("{arguments:?} said only {said:?}")).unwrap());
        }
        Self { child, said, _lines: lines }
    }

    /// The word after `before` in what it said.
    fn word_after(&self, before: &str) -> &str {
        let rest = self.said.iter().find_map(|line| line.split_once(before)).unwrap().1;
        rest.split_whitespace().next().unwrap()
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// Checks the sidecar at `url`. Slow is slow enough for seven others to be refused meanwhile, also on a loaded machine.
fn checked(url: &str, effects: &str) -> Report {
    check(url, &["--slow", "Demo-Slow: 3s", "--fail", "Demo-Fail: 500", "--effects", effects])
}

/// Checks the sidecar with this profile.
fn profile(name: &str) -> Report {
    let demo = Ours::start(&["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"], "sidecar ");
    let upstream = demo.word_after("payments API ");
    let arguments = ["proxy", "--upstream", upstream, "--listen", "127.0.0.1:0", "--store", "memory:"];
    let sidecar = Ours::start(&[&arguments[..], &["--profile", name]].concat(), "listening on");
    let url = format!("http://{}/payments", sidecar.word_after("listening on "));
    checked(&url, &format!("{upstream}/payments/count"))
}

#[test]
fn the_demo_passes_everything() {
    let demo = Ours::start(&["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"], "Ctrl-C");
    let url = format!("{}/payments", demo.word_after("sidecar "));
    let report = checked(&url, &format!("{}/payments/count", demo.word_after("payments API ")));
    assert_eq!(report.code, 0, "{report}");
    assert_eq!(report.with("pass").len(), report.len(), "{report}");
}

#[test]
fn the_profile_ietf_passes_everything() {
    let report = profile("ietf");
    assert_eq!(report.with("pass").len(), report.len(), "{report}");
    assert!(report.why("key-missing").contains("required"), "{report}");
    assert!(report.why("error-failed").contains("replayed"), "{report}");
}

#[test]
fn the_profile_stripe_differs_from_the_draft_where_stripe_does() {
    let report = profile("stripe");
    assert_eq!(report.json["key_form"], "bare");
    let differs = ["mismatch-status", "mismatch-problem", "conflict-problem", "key-quoted", "key-problem"];
    assert_eq!(report.with("fail"), differs, "{report}");
}
