//! SIGTERM drains, a second one hurries, SIGHUP reloads.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::thread;

use crate::binary::{Proxy, answer};
use crate::upstream::Upstream;

#[test]
fn sigterm_finishes_what_runs_and_exits_with_zero() {
    let upstream = Upstream::start();
    upstream.hold(true);
    let proxy = Proxy::start(&["--upstream", &upstream.url(), "--store", "memory:"]);
    let waiting = proxy.begin("/pay", "k");
    upstream.wait_for_effects(1);
    proxy.signal("-TERM");
    // Nobody listens any more, and what runs goes on.
    while std::net::TcpStream::connect(proxy.address).is_ok() {
        thread::yield_now();
    }
    upstream.hold(false);
    let (status, text) = answer(waiting);
    assert_eq!(status, 200, "{text}");
    let (ended, ..) = proxy.ended();
    assert!(ended.success(), "{ended}");
}

#[test]
fn what_outlasts_the_patience_is_abandoned_and_a_restart_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file:{}", folder.path().display());
    let upstream = Upstream::start();
    upstream.hold(true);
    let url = upstream.url();
    let args = ["--upstream", &url, "--store", &store, "--drain", "200ms"];
    let proxy = Proxy::start(&args);
    let waiting = proxy.begin("/pay", "k");
    upstream.wait_for_effects(1);
    proxy.signal("-TERM");
    let (status, text) = answer(waiting);
    assert!(status >= 500, "{text}");
    assert!(proxy.ended().0.success());
    upstream.hold(false);
    let (status, text) = Proxy::start(&args).post("/pay", "k");
    assert!(status == 409 && text.contains("outcome-unknown"), "{text}");
    assert_eq!(upstream.effects(), 1);
}

#[test]
fn a_second_signal_ends_the_patience() {
    let upstream = Upstream::start();
    upstream.hold(true);
    let proxy = Proxy::start(&["--upstream", &upstream.url(), "--store", "memory:", "--drain", "1h"]);
    let waiting = proxy.begin("/pay", "k");
    upstream.wait_for_effects(1);
    proxy.signal("-TERM");
    while std::net::TcpStream::connect(proxy.address).is_ok() {
        thread::yield_now();
    }
    proxy.signal("-INT");
    assert!(answer(waiting).0 >= 500);
    assert!(proxy.ended().0.success());
}

/// Puts `text` in the place of the file, all of it at once: half a file may be a good one, with other rules.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

#[test]
fn sighup_reloads_the_rules_and_a_broken_file_leaves_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onlyonce.toml");
    replace(&file, "");
    let upstream = Upstream::start();
    let path = file.display().to_string();
    let mut proxy = Proxy::start(&["--upstream", &upstream.url(), "--store", "memory:", "--config", &path]);
    assert_eq!(proxy.post("/pay", "k").0, 200);
    replace(&file, "[defaults]\nstrict = true\n");
    proxy.signal("-HUP");
    proxy.wait_for_log("configuration reloaded");
    assert_eq!(proxy.post("/pay", "bare").0, 400, "only the quoted form now");
    for broken in
        ["[defaults]\nstrikt = false\n", "[[route]]\nmethods = [\"GET\"]\n", "[proxy]\nupstream = \"x\"\n[["]
    {
        replace(&file, broken);
        proxy.signal("-HUP");
        proxy.wait_for_log("the new configuration is refused, the old one stays");
        assert_eq!(proxy.post("/pay", "bare").0, 400, "after {broken:?}");
    }
    replace(&file, "[defaults]\nstrict = false\n[store]\nurl = \"file:x\"\n");
    proxy.signal("-HUP");
    proxy.wait_for_log("configuration reloaded");
    assert_eq!(proxy.post("/pay", "bare").0, 200);
}

#[test]
fn a_rule_that_the_next_start_could_not_keep_is_refused_now() {
    let folder = tempfile::tempdir().unwrap();
    let [file, key] = ["onlyonce.toml", "key"].map(|name| folder.path().join(name));
    fs::write(&key, "a secret of the tests, long enough").unwrap();
    let rule = "[defaults]\nprincipal = \"jwt:sub\"\n";
    let section = format!("[jwt]\nalgorithm = \"HS256\"\nkey_file = \"{}\"\n", key.display());
    replace(&file, &format!("{rule}{section}"));
    let upstream = Upstream::start();
    let path = file.display().to_string();
    let mut proxy = Proxy::start(&["--upstream", &upstream.url(), "--store", "memory:", "--config", &path]);
    // What runs could keep it: it has the key from before.
    replace(&file, rule);
    proxy.signal("-HUP");
    proxy.wait_for_log("the new configuration is refused, the old one stays");
}

#[test]
fn logs_are_json_where_asked_for_and_never_hold_a_key() {
    let upstream = Upstream::start();
    let url = upstream.url();
    let proxy = Proxy::start(&[
        "--upstream",
        &url,
        "--store",
        "memory:",
        "--json-logs",
        "--log",
        "trace",
        "--drain",
        "1s",
    ]);
    for _ in 0..2 {
        assert_eq!(proxy.post("/pay", "a-key-that-nobody-may-see").0, 200);
    }
    assert_eq!(proxy.post("/drop", "another-key-of-the-same-kind").0, 502);
    proxy.signal("-TERM");
    let (_, _, logs) = proxy.ended();
    for line in BufReader::new(logs.as_bytes()).lines() {
        let line = line.unwrap();
        let entry: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        // hyper's own trace shows what it reads and writes; ours must not.
        if entry["target"].as_str().is_some_and(|target| target.starts_with("onlyonce")) {
            assert!(!line.contains("nobody-may-see") && !line.contains("of-the-same-kind"), "{line}");
            assert!(!line.contains("sesame"), "a credential: {line}");
        }
    }
    assert!(logs.contains("\"id\":\""), "records have ids in the log: {logs}");
}
