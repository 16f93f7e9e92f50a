//! `onlyonce records` and `onlyonce stats` as an operator runs them: on a running sidecar, and straight on its store.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use onlyonce_testkit::servers::{PostgresServer, RedisOptions, RedisServer};
use serde_json::{Value, json};

use crate::binary::{Proxy, onlyonce};
use crate::operators::{Stage, TOKEN, WHY, lines, records};
use crate::upstream::Upstream;

/// A command that runs until it is no longer needed.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn records_are_listed_and_shown_for_people_and_for_scripts() {
    let stage = Stage::over_files(&[]);
    for number in 0..5 {
        assert_eq!(stage.proxy.post("/pay", &format!("key-{number}")).0, 200);
    }
    assert_eq!(stage.proxy.post("/drop", "lost").0, 502);
    let (code, told, _) = stage.records(&["list"]);
    assert_eq!((code, told.lines().count()), (0, 7), "a heading, and a line for each: {told}");
    let (_, told, _) = stage.records(&["list", "--json", "--limit", "4"]);
    assert_eq!(lines(&told).len(), 4);
    let (_, told, _) = stage.records(&["list", "--json", "--state", "unknown"]);
    let unknown = lines(&told);
    assert_eq!(unknown.len(), 1);
    let id = unknown[0]["id"].as_str().unwrap();
    let (_, told, _) = stage.records(&["show", "--key", "lost", "--principal", "Bearer sesame", "--json"]);
    assert_eq!(lines(&told)[0]["id"], json!(id));
    let (code, told, _) = stage.records(&["show", id]);
    assert!(code == 0 && told.contains("unknown") && told.contains("timeline"), "{told}");
    let with_key = ["show", "--key", "key-0", "--principal", "Bearer sesame"];
    let (_, told, _) = stage.records(&with_key);
    assert!(told.contains("application/json") && !told.contains("{\"effect\""), "{told}");
    let (_, told, _) = stage.records(&[&with_key[..], &["--show-body", "--as", "alice"]].concat());
    assert!(told.contains("{\"effect\": 1}"), "{told}");
    let (_, told, _) = stage.records(&["audit", "--json"]);
    assert_eq!(lines(&told)[0]["who"], "alice");
    let (code, told, _) = stage.records(&["stats", "--json"]);
    assert_eq!((code, &lines(&told)[0]["completed"]), (0, &json!(5)));
    let url = format!("http://{}", stage.admin);
    let stats = onlyonce(&["stats", "--admin", &url]).env("ONLYONCE_ADMIN_TOKEN", TOKEN).output().unwrap();
    assert!(String::from_utf8_lossy(&stats.stdout).contains("unknown"), "{stats:?}");
}

#[test]
fn a_verdict_is_said_with_a_file_and_without() {
    let stage = Stage::over_files(&[]);
    assert_eq!(stage.proxy.post("/drop", "one").0, 502);
    assert_eq!(stage.proxy.post("/drop", "two").0, 502);
    let outcome = stage.folder.path().join("answer.json");
    fs::write(&outcome, r#"{"status": 202, "body": {"payment": 77}}"#).unwrap();
    let outcome = outcome.display().to_string();
    // As a problem names the command, but for why.
    let id = stage.find("one")["id"].as_str().unwrap().to_owned();
    let fence = stage.find("one")["record"]["fence"].to_string();
    let resolve = ["resolve", &id, "--fence", &fence, "--executed"];
    let (code, _, told) = stage.records(&resolve);
    assert!(code == 2 && told.contains("--why"), "{told}");
    let with_outcome = ["--outcome", &outcome, "--why", WHY, "--as", "alice", "--json"];
    let (code, told, stderr) = stage.records(&[&resolve[..], &with_outcome].concat());
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(lines(&told)[0]["answer"], "resolved");
    let (status, text) = stage.proxy.post("/drop", "one");
    assert!(status == 202 && text.ends_with("{\"payment\":77}"), "{text}");

    let by_key = ["--key", "two", "--principal", "Bearer sesame", "--why", WHY];
    let (code, _, told) = stage.records(&[&["release"], &by_key[..]].concat());
    assert!(code == 65 && told.contains("may still be running"), "{code}: {told}");
    let (code, told, _) = stage.records(&[&["resolve", "--not-executed", "--force"], &by_key[..]].concat());
    assert!(code == 0 && told.contains("released"), "{told}");
    assert_eq!(stage.proxy.post("/drop", "two").0, 502, "it ran again");
    assert_eq!(stage.upstream.effects(), 3);
    // Done, and nothing to show for it.
    let (code, _, stderr) = stage.records(&[&["resolve", "--executed"], &by_key[..]].concat());
    assert_eq!(code, 0, "{stderr}");
    let (status, text) = stage.proxy.post("/drop", "two");
    assert!(status == 200 && text.contains("answer-not-kept"), "{text}");
    for (wrong, code) in [
        (vec!["resolve", id.as_str(), "--executed", "--outcome", "no-such-file", "--why", WHY], 66),
        (vec!["resolve", id.as_str(), "--why", WHY], 2),
        (vec!["resolve", "--executed", "--why", WHY], 2),
        (vec!["show", "12"], 2),
        (vec!["show", "--key", "nobody's", "--principal", "Bearer sesame"], 65),
        (vec!["list", "--state", "odd"], 65),
        (vec!["erase", id.as_str(), "--why", ""], 65),
    ] {
        let (ended, _, told) = stage.records(&wrong);
        assert_eq!(ended, code, "{wrong:?}: {told}");
    }
}

#[test]
fn erase_and_purge_are_commands_too() {
    let stage = Stage::over_files(&[]);
    for key in ["a", "b"] {
        assert_eq!(stage.proxy.post("/pay", key).0, 200);
    }
    let key_of_a = ["--key", "a", "--principal", "Bearer sesame"];
    let (code, told, _) = stage.records(&[&["erase", "--why", WHY], &key_of_a[..]].concat());
    assert_eq!((code, told.as_str()), (0, "erased\n"));
    assert!(stage.proxy.post("/pay", "b").1.contains("effect"), "only the one that was meant");
    let all = ["erase", "--principal", "Bearer sesame", "--why", WHY, "--json"];
    let (code, told, _) = stage.records(&all);
    assert_eq!((code, lines(&told)), (0, vec![json!({ "erased": 2, "left": 0, "unreadable": 0 })]));
    let (code, told, _) = stage.records(&["purge", "--why", WHY]);
    assert!(code == 0 && told.starts_with("0 removed"), "{told}");
}

#[test]
fn tail_follows_what_happens() {
    let stage = Stage::over_files(&[]);
    assert_eq!(stage.proxy.post("/pay", "before").0, 200);
    let url = format!("http://{}", stage.admin);
    let mut command =
        onlyonce(&["records", "tail", "--backlog", "--json", "--admin", &url, "--token", TOKEN]);
    let mut tail = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut told = BufReader::new(tail.0.stdout.take().unwrap()).lines();
    let mut wait_for = |event: &str, id: &str| loop {
        let line = told.next().expect("it goes on").unwrap();
        let value: Value = serde_json::from_str(&line).unwrap();
        assert!(!line.contains("sesame") && !line.contains("effect"), "{line}");
        if value["event"] == event && value["id"] == id {
            return;
        }
    };
    let id = |key: &str| stage.find(key)["id"].as_str().unwrap().to_owned();
    wait_for("completed", &id("before"));
    // It is listening: what happens now comes live.
    assert_eq!(stage.proxy.post("/pay", "after").0, 200);
    assert_eq!(stage.proxy.post("/pay", "after").0, 200);
    for event in ["granted", "completed", "replayed"] {
        wait_for(event, &id("after"));
    }
    assert_eq!(stage.records(&["erase", &id("after"), "--why", WHY]).0, 0);
    wait_for("erased", &id("after"));
    stage.proxy.signal("-TERM");
    assert!(tail.0.wait().unwrap().success(), "it ends with the process");
    let (code, _, told) = records(&["tail", "--store", &stage.store]);
    assert!(code == 2 || code == 69, "a store has no events: {told}");
}

#[test]
fn a_store_is_asked_straight_when_no_process_has_it() {
    let mut stage = Stage::over_files(&[]);
    assert_eq!(stage.proxy.post("/pay", "k").0, 200);
    assert_eq!(stage.proxy.post("/drop", "lost").0, 502);
    let id = stage.find("lost")["id"].as_str().unwrap().to_owned();
    let (code, _, told) = records(&["list", "--store", &stage.store]);
    assert!(code == 69 && told.contains("one process"), "{code}: {told}");
    stage.proxy.signal("-TERM");
    stage.proxy.reap();
    let direct = |args: &[&str]| records(&[args, &["--store", &stage.store]].concat());
    let (code, told, stderr) = direct(&["list", "--json"]);
    assert_eq!((code, lines(&told).len()), (0, 2), "{stderr}");
    let (_, told, _) = direct(&["show", "--key", "k", "--principal", "Bearer sesame", "--show-body"]);
    assert!(told.contains("{\"effect\": 1}"), "{told}");
    let (code, told, stderr) = direct(&["resolve", &id, "--executed", "--why", WHY, "--yes"]);
    assert!(code == 0 && told.contains("resolved"), "{stderr}");
    let (_, told, _) = direct(&["audit", "--json"]);
    let actions: Vec<_> = lines(&told).into_iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions, ["read-body", "resolve"], "beside the store: {told}");
    let (code, _, told) = records(&["list", "--store", "file:/no/such/folder"]);
    assert!(code == 65 && told.contains("no store"), "{told}");
    stage.restart();
    let (status, text) = stage.proxy.post("/drop", "lost");
    assert!(status == 200 && text.contains("answer-not-kept"), "{text}");
}

#[test]
fn a_shared_store_is_asked_straight_while_a_process_uses_it() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let stage = Stage::over(&server.url(), &[]);
    assert_eq!(stage.proxy.post("/pay", "k").0, 200);
    let direct = |args: &[&str]| records(&[args, &["--store", &stage.store]].concat());
    let key = ["--key", "k", "--principal", "Bearer sesame"];
    let (code, told, stderr) = direct(&[&["show", "--json"], &key[..]].concat());
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(lines(&told)[0]["state"], "completed");
    let erase = [&["erase", "--why", WHY], &key[..]].concat();
    let (code, _, told) = direct(&erase);
    assert!(code == 69 && told.contains("audit"), "no file is named: {told}");
    let audit = stage.audit().display().to_string();
    let (code, _, stderr) = direct(&[&erase[..], &["--audit", &audit]].concat());
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(stage.find("k")["record"]["erased"], true);
    // The process goes on numbering where the command ended.
    assert_eq!(stage.post("/api/purge", &json!({ "why": WHY })).0, 200);
    let (_, audit) = stage.get("/api/audit");
    assert_eq!((&audit["entries"][0]["action"], &audit["entries"][1]["n"]), (&json!("erase"), &json!(2)));
}

#[test]
fn what_cannot_be_asked_has_its_exit_code() {
    let (code, _, told) = records(&["list", "--admin", "http://127.0.0.1:1"]);
    assert_eq!(code, 69, "{told}");
    let (code, _, _) = records(&["list", "--admin", "nonsense"]);
    assert_eq!(code, 2);
    let stage = Stage::over_files(&[]);
    let (code, _, told) =
        records(&["list", "--admin", &format!("http://{}", stage.admin), "--token", "wrong"]);
    assert!(code == 65 && told.contains("token"), "{told}");
    for command in ["list", "show", "resolve", "release", "erase", "purge", "stats", "tail", "audit"] {
        let (code, help, _) = records(&[command, "--help"]);
        assert!(code == 0 && help.contains("Example:") && help.contains("--json"), "{command}: {help}");
    }
}

#[test]
fn a_postgres_store_is_asked_straight_while_a_process_uses_it() {
    let server = PostgresServer::start(&[]).unwrap();
    let migrated = onlyonce(&["store", "migrate", "--store", &server.url()]).output().unwrap();
    assert!(migrated.status.success(), "{migrated:?}");
    let stage = Stage::over(&server.url(), &[]);
    assert_eq!(stage.proxy.post("/pay", "k").0, 200);
    assert_eq!(stage.proxy.post("/drop", "lost").0, 502);
    let audit = stage.audit().display().to_string();
    let direct = |args: &[&str]| records(&[args, &["--store", &stage.store, "--audit", &audit]].concat());
    let (code, told, stderr) = direct(&["list", "--json"]);
    assert_eq!((code, lines(&told).len()), (0, 2), "{stderr}");
    let key = ["--key", "k", "--principal", "Bearer sesame"];
    let (_, told, _) = direct(&[&["show", "--show-body"], &key[..]].concat());
    assert!(told.contains("{\"effect\": 1}"), "{told}");
    let lost = ["--key", "lost", "--principal", "Bearer sesame", "--why", WHY];
    let (code, told, stderr) = direct(&[&["resolve", "--executed"], &lost[..]].concat());
    assert!(code == 0 && told.contains("resolved"), "{stderr}");
    assert!(stage.proxy.post("/drop", "lost").1.contains("answer-not-kept"), "the process sees it");
    let (code, told, _) = direct(&["erase", "--principal", "Bearer sesame", "--why", WHY, "--json"]);
    assert_eq!((code, &lines(&told)[0]["erased"]), (0, &json!(2)));
    assert_eq!(stage.find("k")["record"]["erased"], true);
    let (_, told, _) = direct(&["stats", "--json"]);
    assert_eq!((&lines(&told)[0]["completed"], &lines(&told)[0]["unreadable"]), (&json!(2), &json!(0)));
}

#[test]
fn tail_goes_on_with_the_next_process_where_that_was_asked_for() {
    let (upstream, folder) = (Upstream::start(), tempfile::tempdir().unwrap());
    let store = format!("file:{}", folder.path().join("records").display());
    let admin = format!("unix:{}", folder.path().join("admin").display());
    let url = upstream.url();
    let start = || {
        let mut proxy = Proxy::start(&["--upstream", &url, "--store", &store, "--admin", &admin]);
        proxy.wait_for_line("admin on ");
        proxy
    };
    let mut proxy = start();
    let mut command = onlyonce(&["records", "tail", "--backlog", "--reconnect", "--json", "--admin", &admin]);
    let mut tail = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut told = BufReader::new(tail.0.stdout.take().unwrap()).lines();
    let mut wait_for = |event: &str| loop {
        let line = told.next().expect("it goes on").unwrap();
        if serde_json::from_str::<Value>(&line).unwrap()["event"] == event {
            return;
        }
    };
    assert_eq!(proxy.post("/pay", "before").0, 200);
    wait_for("completed");
    for signal in ["-KILL", "-TERM"] {
        proxy.signal(signal);
        proxy.reap();
        proxy = start();
        // Whether or not it is back yet: what the process saw meanwhile is new to it.
        assert_eq!(proxy.post("/pay", "before").0, 200);
        wait_for("replayed");
    }
    assert!(tail.0.try_wait().unwrap().is_none(), "it goes on");
}

#[test]
fn what_an_operator_says_is_redacted_as_the_routes_are() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("onlyonce.toml");
    fs::write(&config, "[[route]]\npath = \"/drop\"\nredact = [\"/card\"]\n").unwrap();
    let stage = Stage::over_files(&["--config", &config.display().to_string()]);
    let outcome = folder.path().join("answer.json");
    for (key, body, expected) in [
        (
            "json",
            r#"{"card": "4111", "n": 12345678901234567890}"#,
            r#"{"card":"[redacted]","n":12345678901234567890}"#,
        ),
        ("text", r#""card=4111""#, "answer-not-kept"),
    ] {
        assert_eq!(stage.proxy.post("/drop", key).0, 502);
        fs::write(&outcome, format!("{{\"status\": 202, \"body\": {body}}}")).unwrap();
        let outcome = outcome.display().to_string();
        let by_key = ["--key", key, "--principal", "Bearer sesame", "--why", WHY];
        let (code, _, stderr) =
            stage.records(&[&["resolve", "--executed", "--outcome", &outcome], &by_key[..]].concat());
        assert_eq!(code, 0, "{stderr}");
        let (status, text) = stage.proxy.post("/drop", key);
        assert!(status == 202 && text.contains(expected) && !text.contains("4111"), "{text}");
        assert_eq!(text.contains("onlyonce-redacted: true"), key == "json", "{text}");
    }
}

#[test]
fn nothing_in_a_record_is_obeyed_by_a_terminal() {
    let stage = Stage::over_files(&[]);
    assert_eq!(stage.proxy.post("/drop", "k").0, 502);
    let outcome = stage.folder.path().join("answer.json");
    fs::write(&outcome, r#"{"body": "a\u001b]0;owned\u0007\u009b2J\nb", "content_type": "text/plain"}"#)
        .unwrap();
    let by_key = ["--key", "k", "--principal", "Bearer sesame"];
    let outcome = outcome.display().to_string();
    let resolve = ["resolve", "--executed", "--outcome", &outcome, "--why", WHY];
    assert_eq!(stage.records(&[&resolve[..], &by_key].concat()).0, 0);
    let show = [&["show", "--show-body"], &by_key[..]].concat();
    let (_, told, _) = stage.records(&show);
    assert!(told.contains("a\\u{1b}]0;owned\\u{7}\\u{9b}2J\nb"), "{told:?}");
    let (_, told, _) = stage.records(&[&show[..], &["--json"]].concat());
    assert!(!told.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{told:?}");
    assert_eq!(lines(&told)[0]["outcome"]["body"]["text"], "a\u{1b}]0;owned\u{7}\u{9b}2J\nb");
    let (_, told, _) = stage.records(&[&show[..], &["--raw"]].concat());
    assert!(told.contains("a\u{1b}]0;owned\u{7}\u{9b}2J\nb"), "{told:?}");
    let (code, _, _) = stage.records(&[&["show", "--raw"], &by_key[..]].concat());
    assert_eq!(code, 2, "without bodies there is nothing that could be raw");
}
