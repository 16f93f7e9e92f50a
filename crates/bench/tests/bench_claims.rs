//! What the driver relies on: bad arguments are told from a run that failed, and a run measures the real service.
#![cfg(feature = "claims")]

use std::path::Path;
use std::process::{Command, Output};

fn bench_claims(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench-claims")).args(arguments).output().expect("the program starts")
}

#[test]
fn claims_and_long_polls_are_measured() {
    let folder = format!("{}/claims", env!("CARGO_TARGET_TMPDIR"));
    // Another crate's program: `cargo xtask test` builds the whole workspace first.
    let onlyonce = Path::new(env!("CARGO_BIN_EXE_bench-claims")).with_file_name("onlyonce");
    assert!(onlyonce.is_file(), "build it with `cargo build --package onlyonce`");
    let ended = bench_claims(&["--quick", "--any-disk", "--folder", &folder]);
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    for row in
        ["claim, then complete; 64 connections", "batches of 100; 8 connections", "onlyonce serve, file:"]
    {
        assert!(said.contains(&format!("| {row} |")), "{row}: {said}");
    }
    assert!(said.contains("100 long polls on one record"), "{said}");
}

#[test]
fn bad_arguments_are_named_and_exit_with_2() {
    let bad: [(&[&str], &str); 3] = [
        (&["--rounds", "0"], "0 is not in"),
        (&["--waiters", "1000000"], "1000000 is not in"),
        (&["--quick", "--rounds", "5"], "cannot be used with"),
    ];
    for (arguments, reason) in bad {
        let ended = bench_claims(arguments);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}
