//! What the driver relies on: the list of workloads, and that bad arguments are told from a workload that failed.

use std::process::{Command, Output};

fn bench_core(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench-core")).args(arguments).output().expect("the program starts")
}

#[test]
fn every_listed_workload_can_be_performed() {
    let listed = bench_core(&["--list"]);
    assert!(listed.status.success());
    let names = String::from_utf8(listed.stdout).expect("names are text");
    assert_eq!(names.lines().count(), 10);
    for name in names.lines() {
        // More than one batch of `claim-many`, and the last one not full.
        let ended = bench_core(&[name, "101"]);
        assert!(
            ended.status.success() && ended.stderr.is_empty() && ended.stdout.is_empty(),
            "{name}: {ended:?}"
        );
    }
}

#[test]
fn bad_arguments_are_named_and_exit_with_2() {
    let bad: [(&[&str], &str); 6] = [
        (&[], "expected --list"),
        (&["replay"], "expected --list"),
        (&["replay", "1", "2"], "expected --list"),
        (&["nothing", "1"], "there is no workload \"nothing\""),
        (&["replay", "-1"], "\"-1\" is not a number"),
        (&["replay", "many"], "\"many\" is not a number"),
    ];
    for (arguments, reason) in bad {
        let ended = bench_core(arguments);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains(reason) && said.contains("usage:"), "{arguments:?}: {said}");
    }
}
