//! `onlyonce key …` as a script sees it: standard output, standard error, exit codes. Meaning is tested in the core.

use std::collections::HashSet;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const EXAMPLE: [&str; 8] = [
    "key",
    "derive",
    "--entity",
    "order-123",
    "--action",
    "create",
    "--params",
    r#"{"currency":"USD","amount":100}"#,
];

fn binary() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("onlyonce"))
}

fn run(args: &[&str]) -> Output {
    run_with(args, b"")
}

fn run_with(args: &[&str], stdin: &[u8]) -> Output {
    assert_cmd::Command::from_std(binary()).args(args).write_stdin(stdin).output().expect("onlyonce starts")
}

/// What `$(onlyonce …)` would be, given that it succeeded without a warning.
fn ok(args: &[&str], stdin: &[u8]) -> String {
    let output = run_with(args, stdin);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{args:?}");
    text(&output.stdout).trim_end().to_owned()
}

fn json(args: &[&str], stdin: &[u8]) -> Value {
    serde_json::from_str(&ok(args, stdin)).expect("the output is JSON")
}

/// Asserts the exit code, that nothing was written to standard output, and gives standard error.
fn refused(args: &[&str], stdin: &[u8], code: i32) -> String {
    let output = run_with(args, stdin);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), String::new()), "{args:?}");
    let stderr = text(&output.stderr);
    assert!(stderr.lines().any(|line| line.starts_with("error: ")), "{args:?}: {stderr}");
    stderr
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is UTF-8")
}

/// A file that is gone when the test is.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, contents: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("onlyonce-key-{}-{name}", std::process::id()));
        std::fs::write(&path, contents).expect("the temporary folder is writable");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("the temporary folder has a plain name")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn every_help_has_an_example_and_the_exit_codes() {
    for command in
        [&[][..], &["key"], &["key", "derive"], &["key", "random"], &["key", "body"], &["key", "composite"]]
    {
        for flag in ["--help", "-h"] {
            let help = ok(&[command, &[flag]].concat(), b"");
            for part in ["Example", "onlyonce key ", "Exit codes:", "  65  ", "Usage: onlyonce"] {
                assert!(help.contains(part), "{command:?} {flag} lacks {part:?}:\n{help}");
            }
        }
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    assert_eq!(ok(&["--version"], b""), format!("onlyonce {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn without_a_command_help_is_shown_and_the_exit_code_is_2() {
    for args in [&[][..], &["key"]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("Usage: onlyonce"));
    }
}

#[test]
fn derive_gives_the_key_that_python_gives() {
    let script = "import hashlib, json; p = {'currency': 'USD', 'amount': 100}; \
        print(hashlib.sha256(f'order-123:create:{json.dumps(p, sort_keys=True)}'.encode()).hexdigest()[:32])";
    let python = Command::new("python3").args(["-c", script]).output().expect("python3 is installed");
    assert!(python.status.success());
    assert_eq!(ok(&EXAMPLE, b""), text(&python.stdout).trim_end());
}

#[test]
fn derive_reads_params_from_the_command_line_standard_input_or_a_file() {
    let base = &EXAMPLE[..6];
    let expected = ok(&EXAMPLE, b"");
    let params = b"{ \"amount\": 100, \"currency\": \"\\u0055SD\" }\n";
    let file = TempFile::new("params.json", params);
    assert_eq!(ok(&[base, &["--params", "-"]].concat(), params), expected);
    assert_eq!(ok(&[base, &["--params-file", file.path()]].concat(), b""), expected);
    assert_eq!(ok(&[base, &["--params", "{}"]].concat(), b""), ok(base, b""));
}

#[test]
fn derive_has_two_forms_and_warns_of_colons_in_one_of_them() {
    let of = |entity, action, form| {
        run(&["key", "derive", "--entity", entity, "--action", action, "--form", form])
    };
    let (one, two) = (of("a:b", "c", "plain"), of("a", "b:c", "plain"));
    assert_eq!(one.stdout, two.stdout);
    assert!(text(&one.stderr).starts_with("warning: entity holds a colon"), "{}", text(&one.stderr));
    assert!(text(&two.stderr).starts_with("warning: action holds a colon"));

    let (one, two) = (of("a:b", "c", "length-prefixed"), of("a", "b:c", "length-prefixed"));
    assert_ne!(one.stdout, two.stdout);
    assert!(one.stderr.is_empty() && two.stderr.is_empty());
}

#[test]
fn warnings_go_to_standard_error_or_into_the_json_and_strict_makes_them_errors() {
    let args = ["key", "derive", "--entity", "order-123", "--action", "create", "--params"];
    let params = r#"{"metadata": {"sent_at": "2026-11-15T04:09:00Z"}, "amount": 1500000000}"#;
    let args = [&args[..], &[params]].concat();

    let output = run(&args);
    assert_eq!(output.status.code(), Some(0));
    let key = text(&output.stdout).trim_end().to_owned();
    assert_eq!(key.len(), 32);
    assert_eq!(text(&output.stderr).lines().count(), 1);
    assert!(text(&output.stderr).starts_with("warning: /metadata/sent_at holds a date and time"));

    let answer = json(&[&args[..], &["--json"]].concat(), b"");
    assert_eq!(answer["key"], key);
    assert_eq!(
        (&answer["strategy"], &answer["form"]),
        (&Value::from("deterministic"), &Value::from("plain"))
    );
    assert_eq!(answer["warnings"][0]["place"], "/metadata/sent_at");
    assert_eq!(answer["warnings"][0]["kind"], "date-time");
    assert!(answer["warnings"][0]["message"].as_str().unwrap().contains("every retry gets another key"));

    for flags in [&["--strict"][..], &["--strict", "--json"]] {
        let stderr = refused(&[&args[..], flags].concat(), b"", 3);
        assert!(stderr.starts_with("warning: /metadata/sent_at"), "{stderr}");
        assert!(
            stderr.ends_with("error: 1 warning, and --strict was given: no key was printed\n"),
            "{stderr}"
        );
    }
    assert_eq!(ok(&[&EXAMPLE[..], &["--strict"]].concat(), b""), ok(&EXAMPLE, b""));
}

#[test]
fn command_lines_that_are_not_understood_end_with_2() {
    let composite = ["key", "composite", "--user", "u", "--operation", "o"];
    for args in [
        &["nonsense"][..],
        &["key", "nonsense"],
        &["key", "derive", "--entity", "e"],
        &["key", "derive", "--entity", "e", "--action", "a", "--form", "other"],
        &["key", "derive", "--entity", "e", "--action", "a", "--params", "{}", "--params-file", "f"],
        &["key", "random", "--version", "5"],
        &["key", "random", "--count", "0"],
        &["key", "random", "--count", "10001"],
        &composite,
        &[&composite[..], &["--window", "10"]].concat(),
        &[&composite[..], &["--window", "1mo"]].concat(),
        &[&composite[..], &["--window", "10m", "--at", "yesterday"]].concat(),
        &[&composite[..], &["--window", "10m", "--at", "1794715740123"]].concat(),
    ] {
        refused(args, b"", 2);
    }
}

#[test]
fn input_that_is_refused_ends_with_65_and_says_why() {
    let derive = |params| ["key", "derive", "--entity", "e", "--action", "a", "--params", params];
    let composite =
        |window, at| ["key", "composite", "--user", "u", "--operation", "o", "--window", window, "--at", at];
    let large = vec![b' '; 1024 * 1024 + 1];
    for (args, stdin, reason) in [
        (&["key", "derive", "--entity", "", "--action", "a"][..], &b""[..], "the entity is empty"),
        (&["key", "derive", "--entity", "e", "--action", ""], b"", "the action is empty"),
        (&derive("{"), b"", "the params are not JSON: EOF"),
        (&derive("[]"), b"", "the params are not a JSON object"),
        (&derive(r#"{"a":1,"a":2}"#), b"", "an object names a member twice, at line 1 column 8"),
        (&derive(r#"{"a":"\ud800"}"#), b"", "half of a surrogate pair"),
        (&derive(r#"{"a":1e999}"#), b"", "too large for a double"),
        (&derive("-"), b"", "the params are not JSON"),
        (&derive("-"), b"{\"a\":\"\xff\"}", "standard input: byte 6 is not UTF-8"),
        (&derive("-"), &large, "standard input has more than 1048576 bytes"),
        (&["key", "body"], b"", "the body is empty"),
        (&["key", "body", "--raw"], b"", "the body is empty"),
        (&["key", "body"], b"{", "the body has no canonical form: the JSON text is malformed: EOF"),
        (&["key", "body"], b"[9007199254740993]", "a number is 2^53 or larger"),
        (&["key", "body"], b"{\"a\":1,\"\\u0061\":2}", "an object names a member twice"),
        (&["key", "body", "-"], &large, "standard input has more than 1048576 bytes"),
        (&composite("0s", "1794715740"), b"", "the window must be"),
        (&composite("367d", "1794715740"), b"", "at most 366 days"),
        (&composite("1d", "0"), b"", "the first window after 1970"),
        (&["key", "composite", "--user", "", "--operation", "o", "--window", "1d"], b"", "the user is empty"),
    ] {
        let stderr = refused(args, stdin, 65);
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
    }
}

#[test]
fn input_that_cannot_be_read_ends_with_66() {
    for path in ["/nonexistent/onlyonce", "/"] {
        refused(&["key", "body", path], b"", 66);
        refused(&["key", "derive", "--entity", "e", "--action", "a", "--params-file", path], b"", 66);
    }
}

#[test]
fn body_is_read_by_meaning_or_raw_from_standard_input_or_a_file() {
    let one = br#"{"b": 1.0, "a": "\u0041"}"#;
    let two = br#"{"a":"A","b":1}"#;
    let file = TempFile::new("body.json", one);
    assert_eq!(ok(&["key", "body"], one), ok(&["key", "body", "-"], two));
    assert_eq!(ok(&["key", "body", file.path()], b""), ok(&["key", "body", "--raw"], two));
    assert_ne!(ok(&["key", "body", "--raw"], one), ok(&["key", "body", "--raw"], two));
    assert_eq!(ok(&["key", "body", "--raw"], b"\xff\0not JSON").len(), 32);

    let answer = json(&["key", "body", "--json"], br#"{"nonce": 1}"#);
    assert_eq!(answer["warnings"][0]["kind"], "volatile-name");
    assert_eq!((&answer["strategy"], &answer["raw"]), (&Value::from("body"), &Value::from(false)));
    refused(&["key", "body", "--strict"], br#"{"nonce": 1}"#, 3);
}

#[test]
fn body_of_exactly_the_largest_size_is_read() {
    let mut body = b"{\"a\":1}".to_vec();
    body.resize(1024 * 1024, b' ');
    assert_eq!(ok(&["key", "body"], &body), ok(&["key", "body"], b"{\"a\":1}"));
}

#[test]
fn composite_keys_of_neighbouring_windows_are_linked() {
    let at = |time| {
        json(
            &[
                "key",
                "composite",
                "--user",
                "u",
                "--operation",
                "o",
                "--window",
                "10m",
                "--at",
                time,
                "--json",
            ],
            b"",
        )
    };
    let (early, late) = (at("2026-11-15T04:09:59Z"), at("2026-11-15T04:10:00Z"));
    assert_ne!(early["key"], late["key"]);
    assert_eq!(early["key"], late["previous"]);
    assert_eq!(early["window_end"], late["window_start"]);
    assert_eq!(late["window_start"], "2026-11-15T04:10:00Z");
    assert_eq!(late["window_ms"], 600_000);
    assert_eq!(early, at("1794715799").clone());
}

#[test]
fn composite_prints_the_key_alone_unless_asked_for_more() {
    let args =
        ["key", "composite", "--user", "u", "--operation", "o", "--window", "1d", "--at", "1794715740"];
    let alone = ok(&args, b"");
    assert_eq!(alone.len(), 32);
    let verbose = ok(&[&args[..], &["--verbose"]].concat(), b"");
    let lines: Vec<&str> = verbose.lines().collect();
    assert_eq!(lines[0], alone);
    assert!(lines[1].starts_with("previous ") && lines[1].len() == 41, "{verbose}");
    assert_eq!(lines[2], "window 2026-11-15T00:00:00Z to 2026-11-16T00:00:00Z");
    assert_eq!(ok(&args[..8], b"").len(), 32, "the time is now where none is given");
}

#[test]
fn random_keys_are_uuids_of_their_version_and_never_repeat() {
    for (version, args) in
        [("4", &["key", "random", "--count", "10000"][..]), ("7", &["key", "random", "--version", "7"])]
    {
        let keys = ok(args, b"");
        let keys: Vec<&str> = keys.lines().collect();
        assert_eq!(keys.len(), if version == "4" { 10_000 } else { 1 });
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        for key in keys {
            assert_eq!((key.len(), &key[14..15]), (36, version), "{key}");
            assert!("89ab".contains(&key[19..20]), "{key}");
        }
    }
    let answer = json(&["key", "random", "--version", "7", "--count", "3", "--json"], b"");
    assert_eq!(answer["keys"].as_array().unwrap().len(), 3);
    assert_eq!(answer["keys"][0], answer["key"]);
    assert_eq!((&answer["version"], &answer["warnings"]), (&Value::from(7), &Value::Array(Vec::new())));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for args in [&["key", "random", "--count", "10000"][..], &["key", "derive", "--help"]] {
        let mut child = binary().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_ends_with_74() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = binary().args(EXAMPLE).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(74));
    assert!(text(&output.stderr).starts_with("error: the output cannot be written"));
}
