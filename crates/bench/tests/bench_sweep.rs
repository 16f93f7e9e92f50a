//! What the driver relies on: bad arguments are told from a run that failed, and a run checks every record it counts.
//!
//! The short runs assert nothing about time: every expired record goes, no live one does, and batches are bounded.
#![cfg(feature = "sweep")]

use std::process::{Command, Output};

fn bench_sweep(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench-sweep")).args(arguments).output().expect("the program starts")
}

fn sweeps(store: &str) {
    let folder = format!("{}/sweep-{store}", env!("CARGO_TARGET_TMPDIR"));
    let file = format!("{folder}.json");
    let arguments = ["--quick", "--any-disk", "--live", "500", "--rate", "50", "--store", store];
    let ended = bench_sweep(&[&arguments[..], &["--folder", &folder, "--json", &file]].concat());
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(said.contains("| 20,000 |") && said.contains("**Goals**"), "{said}");
    let told = std::fs::read_to_string(file).expect("the file is there");
    assert!(told.contains("\"faults\": []") && told.contains("\"removed\": 20000"), "{told}");
}

#[test]
fn twenty_thousand_records_are_swept_from_the_embedded_store_under_load() {
    sweeps("file");
}

#[test]
fn twenty_thousand_records_are_swept_from_redis_under_load() {
    sweeps("redis");
}

#[test]
fn twenty_thousand_records_are_swept_from_postgres_under_load() {
    sweeps("postgres");
}

#[test]
fn bad_arguments_are_named_and_exit_with_2() {
    let bad: [(&[&str], &str); 3] = [
        (&["--records", "7"], "7 is not in"),
        (&["--store", "everything"], "invalid value 'everything'"),
        (&["--batch", "10001"], "10001 is not in"),
    ];
    for (arguments, reason) in bad {
        let ended = bench_sweep(arguments);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}
