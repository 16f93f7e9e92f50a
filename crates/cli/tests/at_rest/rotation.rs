//! Keys are changed while the sidecar runs, lost, and found to be readable by others.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use onlyonce_testkit::servers::{RedisOptions, RedisServer};
use tempfile::TempDir;

use crate::binary::onlyonce;
use crate::sidecar::make_key;
use crate::stage::Stage;

#[test]
fn keys_are_rotated_without_a_restart_and_a_lost_one_protects_its_records() {
    let stage = Stage::new();
    let (old, new) = (&stage.old, &stage.new);
    let mut sidecar = stage.start();
    assert_eq!(sidecar.post("before").0, 200);

    stage.write_keys(&[new, "# until its records have expired", old]);
    sidecar.signal("-HUP");
    sidecar.wait_for_log("encrypted with the key `new`");
    let guarantee = sidecar.get("/health/guarantee");
    assert!(guarantee.contains("the key `new`") && guarantee.contains("`old` read too"), "{guarantee}");
    assert_eq!(sidecar.post("after").0, 200);
    stage.write_keys(&["broken"]);
    sidecar.signal("-HUP");
    sidecar.wait_for_log("the new keys are refused, the old ones stay");
    assert!(sidecar.post("before").1.contains("idempotency-replayed: true"));
    sidecar.end();
    assert_eq!(stage.service.effects(), 2);

    // The old key is lost: what it wrote is refused, and is not run again.
    stage.write_keys(&[&stage.new]);
    let sidecar = stage.start();
    let (status, text) = sidecar.post("before");
    assert!(status == 503 && text.contains("cannot be read"), "{text}");
    let (status, text) = sidecar.post("after");
    assert!(status == 200 && text.contains("idempotency-replayed: true"), "{text}");
    let (_, log) = sidecar.end();
    assert!(log.contains("encrypted with the key `old`, which is not in the key file"), "{log}");
    assert_eq!(stage.service.effects(), 2);
    // And found again.
    stage.write_keys(&[new, old]);
    let sidecar = stage.start();
    assert_eq!(sidecar.post("before").0, 200);
    sidecar.end();
    assert_eq!(stage.service.effects(), 2);
}

#[test]
fn keys_that_came_during_an_outage_of_the_store_are_in_force_after_it() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let stage = Stage::over(TempDir::new().unwrap(), server.url());
    let mut sidecar = stage.start();
    assert_eq!(sidecar.post("before").0, 200);
    server.pause();
    stage.write_keys(&[&stage.new, &stage.old]);
    sidecar.signal("-HUP");
    sidecar.wait_for_log("they are tried again until it can, and the old ones stay meanwhile");
    server.resume();
    sidecar.wait_for_log("the keys that waited for the store are in force");
    sidecar.wait_for_log("encrypted with the key `new`");
    assert!(sidecar.get("/health/guarantee").contains("the key `new`"));
    sidecar.end();
}

/// It does not start, and says this.
fn refused(config: &Path, expected: &str) {
    let mut command = onlyonce(&["proxy", "--listen", "127.0.0.1:0", "--config"]);
    let refused = command.arg(config).output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(65) && told.contains(expected), "{told}");
}

#[test]
fn a_process_without_the_right_keys_says_so_and_does_not_start() {
    let stage = Stage::new();
    let (path, new) = (&stage.config, &stage.new);
    let sidecar = stage.start();
    assert_eq!(sidecar.post("k").0, 200);
    sidecar.end();
    // Another file of keys; another key of the same name; no file.
    stage.write_keys(&[&stage.new]);
    refused(path, "encrypted with `old`, and none of these keys is in the key file");
    stage.write_keys(&[&new.replacen("new", "old", 1)]);
    refused(path, "the key `old` in the key file is not the one of that name");
    let encrypted = fs::read_to_string(path).unwrap();
    fs::write(path, encrypted.replace("encryption_key_file", "#")).unwrap();
    refused(path, "and no key file is set");
    // A lost key is accepted where that is said, and by name.
    stage.write_keys(&[&stage.new]);
    stage.configure("accept_lost_keys = true");
    let sidecar = stage.start();
    assert_eq!((sidecar.post("k").0, sidecar.post("other").0), (503, 200));
    let (_, log) = sidecar.end();
    assert!(log.contains("store.accept_lost_keys lets it start"), "{log}");
    // From then on the new key is known here.
    stage.configure("");
    let sidecar = stage.start();
    assert_eq!((sidecar.post("k").0, sidecar.post("other").0), (503, 200));
    sidecar.end();
    assert_eq!(stage.service.effects(), 2);
}

#[test]
fn what_a_lost_key_encrypted_is_listed_as_unreadable_and_can_be_erased() {
    let stage = Stage::new();
    let sidecar = stage.start();
    for key in ["one", "two", "three"] {
        assert_eq!(sidecar.post(key).0, 200);
    }
    sidecar.end();
    stage.write_keys(&[&stage.new]);
    stage.configure("accept_lost_keys = true");
    let sidecar = stage.start();
    assert_eq!(sidecar.post("four").0, 200);
    let (status, text) = sidecar.post("one");
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    let problem: serde_json::Value = serde_json::from_str(body).unwrap();
    let named = problem["record"].as_str().unwrap().to_owned();
    assert_eq!(status, 503, "{text}");

    let admin = format!("http://{}", sidecar.admin);
    let records = |args: &[&str]| {
        let done = onlyonce(&["records"]).args(args).args(["--admin", &admin]).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (done.status.code(), text(done.stdout), text(done.stderr))
    };
    let (code, told, _) = records(&["list"]);
    let unreadable: Vec<_> = told.lines().filter(|line| line.starts_with("unreadable")).collect();
    assert_eq!((code, told.lines().count(), unreadable.len()), (Some(0), 5, 3), "{told}");
    let row = unreadable.iter().find(|line| line.contains(&named)).unwrap();
    assert!(row.contains("unreadable: it is encrypted with the key `old`"), "{row}");
    let by_key = |key| ["--key", key, "--principal", "Bearer sesame"];
    let (code, told, _) = records(&[&["show"], &by_key("one")[..]].concat());
    assert!(code == Some(0) && told.contains(&named) && told.contains("the key `old`"), "{told}");
    let (code, told, stderr) = records(&[&["erase", "--why", "a request"], &by_key("one")[..]].concat());
    assert_eq!((code, told.as_str()), (Some(0), "erased\n"), "{stderr}");
    let (status, text) = sidecar.post("one");
    assert!(status == 200 && text.contains("answer-not-kept"), "{text}");
    let all = ["erase", "--principal", "Bearer sesame", "--why", "a request", "--json"];
    let (_, told, stderr) = records(&all);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{stderr}"));
    assert_eq!((&told["erased"], &told["unreadable"]), (&4.into(), &0.into()));
    let (_, told, _) = records(&["stats", "--json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&told).unwrap()["completed"], 4);
    sidecar.end();
    assert_eq!(stage.service.effects(), 4);
    // Straight on the store, without any key: what is there is told, with a warning.
    let store = format!("file:{}", stage.folder.path().join("store").display());
    let direct = onlyonce(&["records", "list", "--json", "--store", &store]).output().unwrap();
    let warned = String::from_utf8(direct.stderr).unwrap();
    assert!(direct.status.success() && warned.contains("warning: the records of this store"), "{warned}");
    assert_eq!(String::from_utf8(direct.stdout).unwrap().lines().count(), 4);
}

#[test]
fn records_from_before_are_read_only_where_that_was_said() {
    let stage = Stage::new();
    let path = &stage.config;
    let encrypted = fs::read_to_string(path).unwrap();
    let plain: String = encrypted
        .lines()
        .filter(|line| !line.contains("key_file"))
        .fold(String::new(), |text, line| text + line + "\n");
    fs::write(path, plain).unwrap();
    let sidecar = stage.start();
    assert_eq!(sidecar.post("before").0, 200);
    sidecar.end();

    fs::write(path, &encrypted).unwrap();
    refused(path, "set store.accept_plain = true until they have expired");
    stage.configure("accept_plain = true");
    let sidecar = stage.start();
    assert!(sidecar.get("/health/guarantee").contains("NOT ENCRYPTED ARE ACCEPTED"));
    let (status, text) = sidecar.post("before");
    assert!(status == 200 && text.contains("idempotency-replayed: true"), "{text}");
    sidecar.end();
    assert_eq!(stage.service.effects(), 1);
}

#[test]
fn a_key_file_that_others_can_read_is_refused_with_what_to_do() {
    let folder = TempDir::new().unwrap();
    let keys = make_key(folder.path(), "k1");
    assert_eq!(fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o640)).unwrap();
    let keys = keys.display().to_string();
    let flags = ["--upstream", "http://127.0.0.1:9", "--store", "memory:", "--encryption-key-file", &keys];
    let refused = onlyonce(&["proxy"]).args(flags).output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(65) && told.contains(&format!("chmod 600 {keys}")), "{told}");
    let again = onlyonce(&["key", "encryption", "--output", &keys]).output().unwrap();
    assert_eq!(again.status.code(), Some(74), "a key was overwritten: {again:?}");
    let shown = onlyonce(&["config", "show"]).args(flags).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("encryption_key_file") && shown.contains(&keys), "{shown}");
}

#[test]
fn records_are_exported_in_the_clear_with_the_key_and_as_they_are_without() {
    let stage = Stage::new();
    let sidecar = stage.start();
    assert_eq!(sidecar.post("k").0, 200);
    sidecar.end();
    let at = |name: &str| stage.folder.path().join(name).display().to_string();
    let (store, other, keys) = (format!("file:{}", at("store")), format!("file:{}", at("other")), at("keys"));
    let records = |args: &[&str]| {
        let done = onlyonce(&["records"]).args(args).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    let in_hex = "plainly".bytes().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    records(&["export", "--store", &store, "--output", &at("sealed")]);
    assert!(!fs::read_to_string(at("sealed")).unwrap().contains(&in_hex));
    records(&["export", "--store", &store, "--encryption-key-file", &keys, "--output", &at("clear")]);
    assert!(fs::read_to_string(at("clear")).unwrap().contains(&in_hex));
    // What was exported as it is can be read where it is put, with the same keys.
    records(&["import", "--store", &other, "--why", "moved", &at("sealed")]);
    records(&["export", "--store", &other, "--encryption-key-file", &keys, "--output", &at("again")]);
    assert!(fs::read_to_string(at("again")).unwrap().contains(&in_hex));
    // And what was exported in the clear is encrypted where it is put.
    let third = format!("file:{}", at("third"));
    records(&["import", "--store", &third, "--why", "moved", "--encryption-key-file", &keys, &at("clear")]);
    records(&["export", "--store", &third, "--output", &at("third-sealed")]);
    assert!(!fs::read_to_string(at("third-sealed")).unwrap().contains(&in_hex));
}
