//! Flags, exit codes and words of `onlyonce proxy` and `onlyonce config`.

use std::fs;

use crate::binary::{Proxy, onlyonce};
use crate::upstream::Upstream;

/// Exit code, standard output and standard error.
fn run(args: &[&str]) -> (i32, String, String) {
    let output = onlyonce(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn help_shows_every_flag_of_the_design_and_an_example() {
    let (code, help, _) = run(&["proxy", "--help"]);
    assert_eq!(code, 0);
    for flag in [
        "--upstream",
        "--listen",
        "--store",
        "--cache",
        "--admin",
        "--profile",
        "--config",
        "--wait",
        "--lease",
        "--retention",
        "--unknown",
        "--required",
        "--principal",
        "--json-logs",
        "--shadow",
    ] {
        assert!(help.contains(flag), "{flag} is not in:\n{help}");
    }
    assert!(help.contains("Example:") && help.contains("Exit codes:"), "{help}");
    for command in
        [["config", "--help"].as_slice(), &["config", "check", "--help"], &["config", "show", "--help"]]
    {
        assert!(run(command).1.contains("Example:"), "{command:?}");
    }
}

#[test]
fn the_first_words_are_the_address_and_the_promise() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&[
        "--upstream",
        &upstream.url(),
        "--store",
        "memory:",
        "--unknown",
        "rerun",
        "--shadow",
    ]);
    assert_ne!(proxy.address.port(), 0);
    proxy.signal("-TERM");
    let (_, words, _) = proxy.ended();
    for part in ["memory:", "rerun", "NOTHING IS ENFORCED", "store away"] {
        assert!(words.contains(part), "{part} is not in:\n{words}");
    }
}

#[test]
fn flags_reach_the_rules() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&["--upstream", &upstream.url(), "--store", "memory:", "--profile", "ietf"]);
    assert_eq!(proxy.post("/pay", "bare").0, 400, "ietf takes only the quoted form");
    assert_eq!(proxy.post("/pay", "\"quoted\"").0, 200);
}

#[test]
fn what_goes_wrong_has_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let below_a_file = format!("file:{}/below", file.display());
    let up = ["proxy", "--upstream", "http://127.0.0.1:1"];
    for (args, code, told) in [
        (vec!["proxy"], 65, "proxy.upstream"),
        (vec!["proxy", "--upstream", "nonsense"], 65, "proxy.upstream"),
        ([&up[..], &["--lease", "soon"]].concat(), 2, "duration"),
        ([&up[..], &["--profile", "strype"]].concat(), 2, "stripe"),
        ([&up[..], &["--no-such-flag"]].concat(), 2, "--no-such-flag"),
        ([&up[..], &["--config", "no-such-file.toml"]].concat(), 66, "no-such-file.toml"),
        ([&up[..], &["--store", "mysql://h"]].concat(), 65, "names no store"),
        ([&up[..], &["--cache", "redis://h"]].concat(), 65, "only a postgres:// store"),
        ([&up[..], &["--store", "memory:", "--admin", "0.0.0.0:0"]].concat(), 65, "admin.token"),
        (
            [&up[..], &["--store", "memory:", "--listen", "127.0.0.1:0", "--admin", &address]].concat(),
            71,
            "listened on",
        ),
        ([&up[..], &["--store", &below_a_file]].concat(), 69, "store"),
        ([&up[..], &["--store", "memory:", "--listen", &address]].concat(), 71, "cannot be listened on"),
        ([&up[..], &["--store", "memory:", "--unknown", "query"]].concat(), 65, "hook"),
        ([&up[..], &["--store", "memory:", "--tls-certificate", "a", "--tls-key", "b"]].concat(), 65, "TLS"),
        ([&up[..], &["--log", "=="]].concat(), 65, "log.filter"),
    ] {
        let (ended, _, stderr) = run(&args);
        assert_eq!(ended, code, "{args:?}: {stderr}");
        assert!(stderr.contains(told), "{args:?} should say {told}: {stderr}");
    }
}

#[test]
fn config_check_says_what_is_wrong_and_where() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onlyonce.toml");
    let path = file.display().to_string();
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        run(&["config", "check", &path])
    };
    let good = "[proxy]\nupstream = \"http://127.0.0.1:3000\"\n[[route]]\npath = \"/v1/*\"\n";
    let (code, told, _) = check(good);
    assert_eq!((code, told.trim()), (0, format!("{path}: good, 1 route").as_str()));
    let (code, _, told) = check(&format!("{good}retentoin = \"1h\"\n"));
    assert_eq!(code, 65);
    assert!(told.contains("line 5") && told.contains("did you mean `retention`?"), "{told}");
    // What only the layer knows is checked too.
    let (code, _, told) = check(&format!("{good}methods = [\"GET\"]\n"));
    assert!(code == 65 && told.contains("/v1/*"), "{told}");
    let (code, _, told) = run(&["config", "check", "no-such-file"]);
    assert!(code == 66 && told.contains("no-such-file"), "{told}");
}

#[test]
fn config_show_tells_where_each_value_came_from() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onlyonce.toml");
    fs::write(&file, "[proxy]\nupstream = \"http://127.0.0.1:3000\"\n[store]\nurl = \"memory:\"\n").unwrap();
    let mut command = onlyonce(&["config", "show", "--config", file.to_str().unwrap(), "--lease", "10s"]);
    let output = command.env("ONLYONCE_STORE_URL", "redis://u:hush@h/0").output().unwrap();
    assert!(output.status.success());
    let shown = String::from_utf8(output.stdout).unwrap();
    let line =
        |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{shown}"));
    assert!(line("lease = \"10s\"").ends_with("# flag"), "{shown}");
    assert!(line("url = \"redis://***@h/0\"").ends_with("# environment"), "{shown}");
    assert!(line("upstream = ").ends_with("# file"), "{shown}");
    assert!(line("connections_max = ").ends_with("# default"), "{shown}");
    let output = command.arg("--json").env("ONLYONCE_STORE_URL", "redis://u:hush@h/0").output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["defaults"]["lease"], serde_json::json!({ "value": "10s", "from": "flag" }));
    assert!(!json.to_string().contains("hush"));
}
