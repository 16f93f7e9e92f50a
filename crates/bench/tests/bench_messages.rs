//! What the driver relies on: bad arguments are told from a run that failed, and a run checks every effect it counts.
#![cfg(feature = "messages")]

use std::process::{Command, Output};

fn bench_messages(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench-messages")).args(arguments).output().expect("the program starts")
}

/// A short run of one pair: both ways have every effect once, which the program checks itself.
fn runs(pair: &str, rows: [&str; 2]) {
    let folder = format!("{}/messages-{pair}", env!("CARGO_TARGET_TMPDIR"));
    let file = format!("{folder}.json");
    let ended = bench_messages(&[
        "--quick",
        "--any-disk",
        "--messages",
        "2000",
        "--pair",
        pair,
        "--folder",
        &folder,
        "--json",
        &file,
    ]);
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    for row in rows {
        assert!(said.contains(&format!("| {row} |")), "{row}: {said}");
    }
    assert!(said.contains("× the naive loop") && said.contains("**Goals**"), "{said}");
    let told = std::fs::read_to_string(file).expect("the file is there");
    assert_eq!(told.matches("\"faults\": []").count(), 2, "{told}");
}

#[test]
fn kafka_and_postgres_are_measured() {
    let naive = "naive: BEGIN; INSERT … ON CONFLICT DO NOTHING; effect; COMMIT; ack";
    runs("kafka-postgres", ["onlyonce, batches in one transaction", naive]);
}

#[test]
fn nats_and_redis_are_measured() {
    runs("nats-redis", ["onlyonce, consumer", "naive: SET NX; effect; ack"]);
}

#[test]
fn streams_and_the_embedded_store_are_measured() {
    runs("streams-embedded", ["onlyonce, consumer", "naive: claim; effect; complete; ack"]);
}

#[test]
fn bad_arguments_are_named_and_exit_with_2() {
    let bad: [(&[&str], &str); 4] = [
        (&["--rounds", "0"], "0 is not in"),
        (&["--messages", "7"], "7 is not in"),
        (&["--pair", "everything"], "invalid value 'everything'"),
        (&["--quick", "--rounds", "5"], "cannot be used with"),
    ];
    for (arguments, reason) in bad {
        let ended = bench_messages(arguments);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}
