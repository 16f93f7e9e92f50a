//! `clients/onlyonce.py` with `CPython` and `clients/onlyonce.ts` with Node, as they are, over the real service and the real
//! sidecar. Never skipped: without `python3`, `pip`, `node` or `npm` these fail.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::binary::Proxy;
use crate::node::{node, npm};
use crate::service::{Program, Service, repository};
use crate::tools::python;
use crate::upstream::Upstream;

const TYPESCRIPT: &str = "5.9.3";

/// A language that has a client.
#[derive(Debug, Clone, Copy)]
enum Language {
    Python,
    TypeScript,
}

const BOTH: [Language; 2] = [Language::Python, Language::TypeScript];

impl Language {
    /// The language's scenario program with these arguments.
    fn command(self, args: &[&str]) -> Command {
        let mut command = match self {
            Self::Python => {
                let mut command = Command::new("python3");
                command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", repository("clients"));
                command.arg(repository("clients/tests/scenario.py"));
                command
            }
            Self::TypeScript => {
                let mut command = Command::new(node());
                command.args(["--disable-warning=ExperimentalWarning"]);
                command.arg(repository("clients/tests/scenario.ts"));
                command
            }
        };
        command.args(args);
        command
    }

    /// What the scenario saw, as JSON.
    fn saw(self, args: &[&str]) -> Value {
        let output = self.command(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{self:?} {args:?}: {stderr}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{self:?} {args:?}: {stderr}"))
    }
}

#[test]
fn a_function_happens_once_and_its_failures_say_what_is_known() {
    let service = Service::start("memory:");
    for language in BOTH {
        let saw = language.saw(&["basics", &service.url(), &format!("{language:?}")]);
        assert_eq!(saw["first"], serde_json::json!({"charge": 1, "of": "order-7"}), "{language:?}: {saw}");
        assert_eq!(saw["again"], saw["first"], "{language:?}: {saw}");
        assert_eq!(saw["effects"], 1, "{language:?}: {saw}");
        assert_eq!(saw["other_payload"], "KeyReused", "{language:?}: {saw}");
        assert_eq!(saw["bytes"], "00ff10", "{language:?}: {saw}");
        assert_eq!(saw["bytes_again"], "00ff10", "{language:?}: {saw}");
        assert_eq!(saw["failed"], "the bank is down", "{language:?}: {saw}");
        assert_eq!(saw["after_failure"], "OutcomeUnknown", "{language:?}: {saw}");
        assert_eq!(saw["not_executed_runs"], 2, "{language:?}: {saw}");
        assert_eq!(saw["not_json"], "AnswerNotKept", "{language:?}: {saw}");
        assert_eq!(saw["after_not_json"], "AnswerNotKept", "{language:?}: {saw}");
        assert_eq!(saw["no_such_path"], 404, "{language:?}: {saw}");
    }
}

#[test]
fn a_second_call_is_told_or_waits_while_the_lease_is_kept() {
    let service = Service::start("memory:");
    for language in BOTH {
        let saw = language.saw(&["while_running", &service.url(), &format!("{language:?}")]);
        assert_eq!(saw["told"], "InFlight", "{language:?}: {saw}");
        assert_eq!(saw["waited"], "done", "{language:?}: {saw}");
        assert_eq!(saw["first"], "done", "{language:?}: {saw}");
        assert_eq!(saw["renewed"], true, "{language:?}: {saw}");
        assert_eq!(saw["effects"], 1, "{language:?}: {saw}");
    }
}

#[test]
fn a_step_that_is_finished_is_not_run_again_and_one_that_was_cut_short_is_not_guessed() {
    for language in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let mut service = Service::start(&format!("file:{}", folder.path().join("records").display()));
        let effects = folder.path().join("effects");
        let url = service.url();
        let args = |point| ["steps", url.as_str(), effects.to_str().unwrap(), point];
        for point in ["charged", "mail"] {
            let mut program = Program::start(&mut language.command(&args(point)));
            program.wait_for(point);
            program.kill();
        }
        // The service too: grants of others keep their lease, steps stay on record.
        service.kill();
        service.start_again();
        let saw = language.saw(&args(""));
        assert_eq!(saw["sold"], "StepUnknown", "{language:?}: {saw}");
        assert_eq!(lines(&effects), ["charge", "mail"], "{language:?}");
        let saw = language.saw(&args("repeatable"));
        assert_eq!(saw["sold"], "ch_1", "{language:?}: {saw}");
        assert_eq!(lines(&effects), ["charge", "mail", "mail"], "{language:?}");
    }
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn a_request_keeps_its_key_until_there_is_an_answer() {
    for language in BOTH {
        let upstream = Upstream::start();
        let proxy = Proxy::start(&["--upstream", &upstream.url(), "--store", "memory:"]);
        let url = format!("http://{}", proxy.address);
        upstream.hold(true);
        // Killed while its answer is held back. The next one is told 409 until the first is done.
        let program = Program::start(&mut language.command(&["request", &url, "order-7", "100"]));
        upstream.wait_for_effects(1);
        program.kill();
        let waiting = language
            .command(&["request", &url, "order-7", "100"])
            .stdout(std::process::Stdio::piped())
            .spawn();
        upstream.hold(false);
        let output = waiting.unwrap().wait_with_output().unwrap();
        let saw: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&saw["status"], &saw["replayed"]), (&200.into(), &"true".into()), "{language:?}: {saw}");
        assert_eq!(upstream.effects(), 1, "{language:?}");
        let saw = language.saw(&["request", &url, "order-7", "200"]);
        assert_eq!(saw["status"], 422, "{language:?}: another body under the same key: {saw}");
        assert_eq!(upstream.effects(), 1, "{language:?}");
    }
}

#[test]
fn derived_keys_are_those_of_the_command() {
    let saw = Language::Python.saw(&["derive"]);
    assert_eq!(saw["key"], "0681b5ad331e2ebe28b4f1ab218048a4");
}

#[test]
fn the_typescript_client_is_typed_and_needs_no_compiler() {
    let folder = npm(&format!("typescript-{TYPESCRIPT}"), &format!("typescript@{TYPESCRIPT}"));
    let output = Command::new(node())
        .arg(folder.join("node_modules/typescript/bin/tsc"))
        .args(["--noEmit", "--strict", "--erasableSyntaxOnly", "--verbatimModuleSyntax", "--noUnusedLocals"])
        .args(["--exactOptionalPropertyTypes", "false", "--target", "es2022", "--module", "esnext"])
        .args(["--moduleResolution", "bundler", "--lib", "es2023,dom"])
        .arg(repository("clients/onlyonce.ts"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_python_client_is_typed() {
    let path = python("mypy-2.4.1", &["mypy==2.4.1"]);
    let kept = tempfile::tempdir().unwrap();
    let output = Command::new("python3")
        .env("PYTHONPATH", path)
        .args(["-m", "mypy", "--strict", "--cache-dir"])
        .arg(kept.path())
        .arg(repository("clients/onlyonce.py"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
