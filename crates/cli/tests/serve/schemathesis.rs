//! Schemathesis reads `/openapi.json` and asks whatever it can think of, by the rules and against them. Never skipped.

use std::process::Command;

use onlyonce_testkit::Soak;

use crate::running::Service;
use crate::tools;

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,\
    response_headers_conformance";

#[test]
fn schemathesis_finds_no_server_error_and_no_violation_soak() {
    let mut soak = Soak::new("schemathesis, claims", 1);
    let mut cases = 0;
    while let Some((seed, _)) = soak.next_round() {
        let folder = tempfile::tempdir().unwrap();
        let service = Service::start(&["--store", "memory:"]);
        let url = format!("http://{}/openapi.json", service.address);
        let output = Command::new("python3")
            .args(["-m", "schemathesis.cli", "--no-color", "run", &url, "--checks", CHECKS])
            .args([
                "--seed",
                &seed.to_string(),
                "--max-examples",
                "30",
                "--phases",
                "examples,coverage,fuzzing",
            ])
            .args(["--generation-database", "none", "--request-timeout", "120"])
            .env("PYTHONPATH", tools::python("schemathesis-4.32.5", &["schemathesis==4.32.5"]))
            .env("PYTHONIOENCODING", "utf-8")
            .env_remove("http_proxy")
            .env_remove("HTTP_PROXY")
            // It keeps what it found in a folder of its own, where it stands.
            .current_dir(folder.path())
            .output()
            .unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "seed {seed}: {text}");
        let line =
            text.lines().find(|line| line.contains(" generated, ")).unwrap_or_else(|| panic!("{text}"));
        let asked: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
        assert!(asked > 500, "it asked next to nothing: {text}");
        assert_eq!(service.get("/v1/claims").0, 200, "it is still there");
        cases += asked;
    }
    soak.report(cases, "requests of schemathesis");
}
