//! What the driver relies on: bad arguments are told from a run that failed. A run needs wrk and h2load, which
//! `cargo xtask package trained` installs.
#![cfg(feature = "train")]

use std::process::{Command, Output};

fn bench_train(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench-train")).args(arguments).output().expect("the program starts")
}

#[test]
fn bad_arguments_are_named_and_exit_with_2_and_a_missing_program_with_1() {
    let ended = bench_train(&["--seconds", "0"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("0 is not in"));
    let ended = bench_train(&["--onlyonce", "no-such-program"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("no-such-program"));
}
