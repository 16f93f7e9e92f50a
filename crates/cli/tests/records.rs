//! `onlyonce records` as a user runs it: out of one store, into another, and a copy that opens.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use assert_cmd::Command;
use onlyonce::fingerprint::{Fingerprint, Rules};
use onlyonce::transition::{Claim, ClaimAnswer, Complete, Terms, Token};
use onlyonce::{Outcome, Owner, RecordId, Secret, Store as _};
use onlyonce_store_embedded::{EmbeddedStore, Options};
use tempfile::TempDir;

fn onlyonce() -> Command {
    Command::cargo_bin("onlyonce").expect("the binary was built")
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
}

fn id_of(number: u32) -> RecordId {
    let mut bytes = [1; 32];
    bytes[1..5].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_be_bytes());
    bytes[5..9].copy_from_slice(&number.to_be_bytes());
    RecordId::from_bytes(bytes)
}

fn claim_of(number: u32) -> Claim {
    let fingerprint = Fingerprint::builder(&Secret::new([1; 32]), Rules::standard()).finish();
    let owner = Owner::random().expect("random bytes");
    Claim { id: id_of(number), fingerprint, owner, terms: Arc::new(Terms::default()) }
}

/// A store with `count` completed records and a secret.
fn filled(folder: &Path, count: u32) {
    let store = EmbeddedStore::open(folder, Options::default()).expect("a store");
    run(async {
        store.secret(&Secret::new([7; 32])).await.expect("a secret");
        for number in 0..count {
            let claim = claim_of(number);
            let Ok(ClaimAnswer::Granted(grant)) = store.claim(&claim).await else { unreachable!("new keys") };
            let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
            let outcome = Outcome::kept(1, format!("outcome {number}"));
            store.complete(&Complete { token, outcome, retention: None }).await.expect("a completion");
        }
    });
}

fn replays_all(folder: &Path, count: u32) {
    let store = EmbeddedStore::open(folder, Options::default()).expect("a store");
    run(async {
        for number in 0..count {
            let answer = store.claim(&claim_of(number)).await.expect("an answer");
            let expected = Outcome::kept(1, format!("outcome {number}"));
            assert!(
                matches!(&answer, ClaimAnswer::Replay(replay) if replay.outcome == expected),
                "{answer:?}"
            );
        }
        assert_eq!(store.secret(&Secret::new([8; 32])).await.expect("a secret"), Secret::new([7; 32]));
    });
}

fn url(folder: &Path) -> String {
    format!("file:{}", folder.display())
}

fn folders() -> (TempDir, std::path::PathBuf, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    (dir, from, to)
}

#[test]
fn an_export_taken_in_elsewhere_answers_the_same() {
    let (dir, from, to) = folders();
    filled(&from, 1234);
    let file = dir.path().join("records.jsonl");
    let (from, to) = (url(&from), url(&to));
    onlyonce().args(["records", "export", "--store", &from, "--output"]).arg(&file).assert().success();
    assert_eq!(fs::read_to_string(&file).expect("text").lines().count(), 1235);
    let import = |expected: &str| {
        let assert = onlyonce()
            .args(["records", "import", "--why", "moved", "--store", &to])
            .arg(&file)
            .assert()
            .success();
        assert_eq!(String::from_utf8_lossy(&assert.get_output().stdout), expected);
    };
    import("1234 taken in, 0 left alone\n");
    import("0 taken in, 1234 left alone\n");
    replays_all(&dir.path().join("to"), 1234);
    // Not over a file that is there.
    onlyonce().args(["records", "export", "--store", &from, "--output"]).arg(&file).assert().code(74);
}

#[test]
fn a_backup_opens_and_answers_the_same() {
    let (_dir, from, to) = folders();
    filled(&from, 200);
    onlyonce().args(["records", "backup", "--store", &url(&from)]).arg(&to).assert().success();
    replays_all(&to, 200);
    onlyonce().args(["records", "backup", "--store", &url(&from)]).arg(&to).assert().code(69);
}

#[test]
fn bad_input_is_refused_with_its_line() {
    let (dir, from, to) = folders();
    filled(&from, 3);
    let exported = onlyonce().args(["records", "export", "--store", &url(&from)]).assert().success();
    let text = String::from_utf8(exported.get_output().stdout.clone()).expect("text");
    let lines: Vec<_> = text.lines().collect();
    let damaged = lines[2].replace("\"record\":\"01", "\"record\":\"02");
    let flipped = lines[2].replacen("\"id\":\"01", "\"id\":\"11", 1);
    for (what, input, code, said) in [
        ("nothing", String::new(), 65, "line 1: the export is empty"),
        ("no JSON", "hello\n".into(), 65, "line 1:"),
        ("no head", format!("{}\n", lines[1]), 65, "line 1:"),
        ("from the future", text.replacen(":1,", ":2,", 1), 65, "version 2"),
        (
            "a record from the future",
            format!("{}\n{}\n{damaged}\n", lines[0], lines[1]),
            65,
            "line 3: the record has format 2",
        ),
        ("another id", format!("{}\n{flipped}\n", lines[0]), 65, "line 2: the record is damaged"),
    ] {
        let target = dir.path().join(what.replace(' ', "-"));
        let command = onlyonce()
            .args(["records", "import", "--why", "moved", "--store", &url(&target)])
            .write_stdin(input)
            .assert();
        let stderr = String::from_utf8_lossy(&command.get_output().stderr).into_owned();
        command.code(code);
        assert!(stderr.contains(said), "{what}: {stderr}");
    }
    filled_with_another_secret(&to);
    let refused = onlyonce()
        .args(["records", "import", "--why", "moved", "--store", &url(&to)])
        .write_stdin(text)
        .assert()
        .code(65);
    assert!(String::from_utf8_lossy(&refused.get_output().stderr).contains("another secret"));
}

fn filled_with_another_secret(folder: &Path) {
    let store = EmbeddedStore::open(folder, Options::default()).expect("a store");
    run(async { store.secret(&Secret::new([9; 32])).await.expect("a secret") });
}

#[test]
fn a_store_that_is_not_there_or_in_use_is_a_clear_error() {
    let (_dir, from, to) = folders();
    onlyonce().args(["records", "export", "--store", &url(&to)]).assert().code(66);
    assert!(!to.exists(), "a mistyped folder is not made");
    onlyonce().args(["records", "export", "--store", "redis://nowhere"]).assert().code(2);
    filled(&from, 1);
    let _held = EmbeddedStore::open(&from, Options::default()).expect("a store");
    let refused = onlyonce().args(["records", "export", "--store", &url(&from)]).assert().code(69);
    assert!(String::from_utf8_lossy(&refused.get_output().stderr).contains("one process owns a folder"));
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in ["export", "import", "backup"] {
        let help = onlyonce().args(["records", command, "--help"]).assert().success();
        assert!(String::from_utf8_lossy(&help.get_output().stdout).contains("Example:"), "{command}");
    }
}

/// What the audit beside a store says, as action, what, why and answer of each entry.
fn audited(store: &Path) -> Vec<[String; 4]> {
    let text = fs::read_to_string(format!("{}.audit.jsonl", store.display())).expect("an audit");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    let part = |line: &serde_json::Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let begun = lines.iter().filter(|line| line["action"].is_string());
    let answer =
        |n: &serde_json::Value| lines.iter().find(|line| line["n"] == *n && line["answer"].is_string());
    begun
        .map(|line| {
            let answer = answer(&line["n"]).map(|line| part(line, "answer")).unwrap_or_default();
            [part(line, "action"), part(line, "what"), part(line, "why"), answer]
        })
        .collect()
}

#[test]
fn what_leaves_a_store_and_enters_it_is_audited() {
    let (dir, from, to) = folders();
    filled(&from, 3);
    let file = dir.path().join("records.jsonl");
    let export = ["records", "export", "--as", "alice", "--store", &url(&from), "--output"];
    onlyonce().args(export).arg(&file).assert().success();
    let text = file.display().to_string();
    assert_eq!(audited(&from), [["export", &format!("to {text}"), "", "3 records"]]);
    let import = ["records", "import", "--store", &url(&to)];
    onlyonce().args(import).arg(&file).assert().code(2);
    onlyonce().args(import).args(["--why", "moved"]).arg(&file).assert().success();
    assert_eq!(audited(&to), [["import", &format!("from {text}"), "moved", "3 taken in, 0 left alone"]]);
    // What cannot be audited is not done.
    let nowhere = ["--audit", "/no/such/folder/audit.jsonl"];
    let out = dir.path().join("more.jsonl");
    let export = ["records", "export", "--store", &url(&from), "--output"];
    onlyonce().args(export).arg(&out).args(nowhere).assert().code(69);
    assert!(!out.exists(), "it was exported all the same");
    let copy = dir.path().join("copy");
    onlyonce().args(["records", "backup", "--store", &url(&from)]).arg(&copy).args(nowhere).assert().code(69);
    assert!(!copy.exists());
    onlyonce().args(["records", "backup", "--store", &url(&from)]).arg(&copy).assert().success();
    assert_eq!(audited(&from)[1][..2], ["backup", &format!("to {}", copy.display())]);
    // A failure is told, too.
    onlyonce().args(import).args(["--why", "again"]).write_stdin("hello").assert().code(65);
    fs::write(
        &file,
        format!("{}\nhello\n", fs::read_to_string(&file).expect("text").lines().next().expect("a head")),
    )
    .expect("written");
    onlyonce().args(import).args(["--why", "again"]).arg(&file).assert().code(65);
    let last = audited(&to).pop().expect("an entry");
    assert!(last[3].starts_with("failed") && last[3].contains("line 2"), "{last:?}");
}
