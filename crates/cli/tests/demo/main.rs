//! `onlyonce demo` as a user runs it: the tour, the lines to try, a sidecar that is killed, and Ctrl-C.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics is a test that fails")]

mod running;
mod schemathesis;
#[path = "../tools/mod.rs"]
mod tools;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::running::{Demo, PROGRAM, address, get, pay, post, process};

fn is_empty(folder: &TempDir) -> bool {
    fs::read_dir(folder.path()).unwrap().next().is_none()
}

/// Takes the tour with one more environment variable.
fn tour(folder: &TempDir, name: &str, value: &str) -> (i32, String) {
    let mut command = Command::new(PROGRAM);
    command
        .args(["demo", "--tour", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .env("TMPDIR", folder.path());
    command.env("ONLYONCE_STORE_ANSWER_WITHIN", "30s").env(name, value);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), text)
}

#[test]
fn the_tour_finds_every_promise_kept_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = tour(&folder, "NO_COLOR", "1");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("20 of 20 promises were kept"), "{text}");
    for part in ["a replay", "a mismatch", "a conflict", "lost", "nobody knows", "A crash", "SIGKILL"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\u{1b}') && !text.contains('✗'), "{text}");
    assert!(is_empty(&folder));
}

#[test]
fn a_tour_with_a_broken_promise_says_so_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    // Under this policy what may have happened runs again: two payments, by choice.
    let (code, text) = tour(&folder, "ONLYONCE_DEFAULTS_UNKNOWN", "rerun");
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("✗ NOT as promised: one payment, not two"), "{text}");
    assert!(is_empty(&folder));
}

#[test]
fn a_killed_sidecar_comes_back_on_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(folder.path(), &["--listen", "127.0.0.1:0"]);
    let line = demo.line_with("sidecar ");
    let sidecar = address(&line);
    demo.line_with("Ctrl-C");
    let first = pay(&sidecar, "k", 100);
    assert!(first.starts_with("HTTP/1.1 201") && first.contains("pay_1"), "{first}");
    kill_process(process(&line), Signal::KILL).unwrap();
    let line = demo.line_with("It is back");
    let replay = pay(&sidecar, "k", 100);
    assert!(replay.contains("pay_1") && replay.contains("idempotency-replayed: true"), "{replay}");
    assert!(process(&line) != Pid::from_child(&demo.child));
}

#[test]
fn ctrl_c_and_sigterm_end_everything_in_order() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let mut demo = Demo::start(folder.path(), &["--listen", "127.0.0.1:0"]);
        let sidecar = address(&demo.line_with("sidecar "));
        demo.line_with("Ctrl-C");
        demo.tell(signal);
        assert!(demo.child.wait().unwrap().success());
        assert!(TcpStream::connect(&sidecar).is_err(), "the sidecar is gone");
        assert!(is_empty(&folder), "and so is its store");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_killed_demo_leaves_no_sidecar_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(folder.path(), &["--listen", "127.0.0.1:0"]);
    let sidecar = process(&demo.line_with("sidecar "));
    demo.line_with("Ctrl-C");
    demo.tell(Signal::KILL);
    demo.child.wait().unwrap();
    // Whoever adopts it reads its end; until then it is there, but no longer running.
    let state = || fs::read_to_string(format!("/proc/{}/stat", sidecar.as_raw_nonzero())).unwrap_or_default();
    let deadline = Instant::now() + Duration::from_mins(1);
    while !(state().is_empty() || state().contains(") Z ")) {
        assert!(Instant::now() < deadline, "the sidecar goes on: {}", state());
        thread::yield_now();
    }
}

#[test]
fn a_store_that_was_named_is_kept_and_an_address_that_is_taken_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("mine");
    let url = format!("file:{}", store.display());
    let mut demo = Demo::start(folder.path(), &["--listen", "127.0.0.1:0", "--store", &url]);
    demo.line_with("kept");
    demo.line_with("Ctrl-C");
    drop(demo);
    assert!(store.join("meta").is_file());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = Command::new(PROGRAM);
    let output = command.args(["demo", "--listen", &address]).env("TMPDIR", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(69), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_dashboard_is_where_the_demo_says() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(folder.path(), &["--listen", "127.0.0.1:0"]);
    let sidecar = address(&demo.line_with("sidecar "));
    let dashboard = address(&demo.line_with("dashboard "));
    demo.line_with("Ctrl-C");
    assert_ne!(sidecar, dashboard);
    let page = get(&dashboard, "/");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<title>onlyonce</title>"), "{page}");
    assert!(get(&dashboard, "/assets/app.js").contains("text/javascript"));
    pay(&sidecar, "k", 100);
    let figures = get(&dashboard, "/metrics");
    assert!(figures.contains("onlyonce_claims_total{answer=\"granted\"} 1"), "{figures}");
}

#[test]
fn the_payments_api_does_as_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(folder.path(), &["--listen", "127.0.0.1:0"]);
    let payments = address(&demo.line_with("payments API "));
    demo.line_with("Ctrl-C");
    let order = "{\"amount\": 7, \"currency\": \"CHF\"}";
    for (path, headers, body, start) in [
        ("/payments", "", order, "HTTP/1.1 201"),
        ("/payments?fail=503", "", order, "HTTP/1.1 503"),
        ("/payments", "Demo-Fail: 500\r\n", order, "HTTP/1.1 500"),
        ("/payments", "Demo-Refuse: 402\r\n", order, "HTTP/1.1 402"),
        ("/payments?refuse=404", "", order, "HTTP/1.1 404"),
        ("/payments", "Demo-Fail: 200\r\n", order, "HTTP/1.1 400"),
        ("/payments", "Demo-Slow: soon\r\n", order, "HTTP/1.1 400"),
        ("/payments", "", "{\"amount\": -7}", "HTTP/1.1 400"),
        ("/payments", "", "{", "HTTP/1.1 400"),
        ("/payments?slow=10ms", "", order, "HTTP/1.1 201"),
    ] {
        let answer = post(&payments, path, headers, body);
        assert!(answer.starts_with(start), "{path} {headers} {body}: {answer}");
    }
    assert_eq!(post(&payments, "/payments", "Demo-Drop: yes\r\n", order), "", "it hung up");
    assert!(get(&payments, "/payments/pay_1").contains("\"CHF\""));
    assert!(get(&payments, "/payments/pay_0").starts_with("HTTP/1.1 404"));
    assert!(get(&payments, "/openapi.json").contains("\"openapi\": \"3.1.0\""));
    let again = post(&payments, "/payments", "", order);
    assert!(
        again.contains("pay_4"),
        "slow and dropped ones were paid, failed and refused ones were not: {again}"
    );
}
