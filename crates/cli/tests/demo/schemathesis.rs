//! Schemathesis, installed by name, reads the demo's `/openapi.json` and asks through the sidecar whatever it can think of,
//! by the rules and against them. Never skipped: without `python3` and `pip` these fail.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use onlyonce_testkit::Soak;

use crate::running::{Demo, address, get};
use crate::tools;

/// Examples for each operation and phase.
const EXAMPLES: &str = "100";
/// As many as the hooks have.
const KEYS: usize = 5;

/// What came of a run.
struct Run {
    text: String,
    cases: u64,
    payments: usize,
}

/// Asks a new demo, as `how` in `schemathesis_hooks.py` says.
fn ask(how: &str, server_errors: &str, seed: u64) -> Run {
    let folder = tempfile::tempdir().unwrap();
    // In memory: a disk that stalls for seconds makes the sidecar answer 503, rightly.
    let mut demo = Demo::start(folder.path(), &["--listen", "127.0.0.1:0", "--store", "memory:"]);
    let sidecar = address(&demo.line_with("sidecar "));
    demo.line_with("Ctrl-C");
    let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/demo/schemathesis_hooks.py");
    let checks = format!(
        "{server_errors},status_code_conformance,content_type_conformance,response_schema_conformance"
    );
    let mut command = Command::new("python3");
    command
        .args(["-m", "schemathesis.cli", "--no-color", "run", &format!("http://{sidecar}/openapi.json")])
        .args(["--checks", &checks, "--seed", &seed.to_string(), "--max-examples", EXAMPLES])
        .args(["--generation-database", "none", "--output-sanitize", "false", "--request-timeout", "60"])
        .env("PYTHONPATH", tools::python("schemathesis-4.32.5", &["schemathesis==4.32.5"]))
        .env("PYTHONIOENCODING", "utf-8")
        .env("SCHEMATHESIS_HOOKS", hooks)
        .env("ASK_HOW", how)
        .env("ASK_SEED", seed.to_string())
        .env_remove("http_proxy")
        .env_remove("HTTP_PROXY")
        // It keeps what it found in a folder of its own, where it stands.
        .current_dir(folder.path());
    let output = command.output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    let _ = write!(text, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{how}, seed {seed}: {text}");
    let payments = get(&sidecar, "/payments/count").rsplit("\r\n").next().unwrap().parse().unwrap();
    Run { cases: cases(&text), text, payments }
}

/// The number in `  369 generated, 369 passed`.
fn cases(text: &str) -> u64 {
    let line = text.lines().find(|line| line.contains(" generated, ")).unwrap_or_else(|| panic!("{text}"));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Seeds: one in CI, as many as fit into the time in a soak.
fn through_seeds(name: &'static str, how: &str, server_errors: &str, check: impl Fn(&Run)) {
    let mut soak = Soak::new(name, 1);
    let mut cases = 0;
    while let Some((seed, _)) = soak.next_round() {
        let run = ask(how, server_errors, seed);
        assert!(run.cases > 100, "it asked next to nothing: {}", run.text);
        check(&run);
        cases += run.cases;
    }
    soak.report(cases, "requests of schemathesis");
}

#[test]
fn schemathesis_finds_nothing_soak() {
    through_seeds("schemathesis", "plain", "not_a_server_error", |run| {
        assert!(run.payments > 0, "{}", run.text);
    });
}

#[test]
fn schemathesis_finds_nothing_under_keys_that_are_used_again_soak() {
    through_seeds("schemathesis, keyed", "keyed", "not_a_server_error", |run| {
        assert!((1..=KEYS).contains(&run.payments), "{} payments: {}", run.payments, run.text);
    });
}

#[test]
fn schemathesis_finds_nothing_when_the_api_fails_and_hangs_up_soak() {
    through_seeds("schemathesis, steered", "steered", "every_server_error_was_asked_for", |run| {
        assert!((1..=KEYS).contains(&run.payments), "{} payments: {}", run.payments, run.text);
    });
}
