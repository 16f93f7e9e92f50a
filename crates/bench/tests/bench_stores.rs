//! What the driver relies on: bad arguments are told from a run that failed, and its own servers do what is compared.
//! The whole run is left to `cargo xtask bench stores`, which installs the peers.
#![cfg(feature = "stores")]

mod server;

use std::process::{Command, Output};

use onlyonce_testkit::servers::{RedisOptions, RedisServer};
use server::Server;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bench-stores");

fn bench_stores(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

#[test]
fn the_compared_layers_replay_from_redis() {
    // A server whose fields expire, which axum-idempotent needs.
    let valkey = RedisOptions { is_valkey: true, ..RedisOptions::without_persistence() };
    let valkey = RedisServer::start(valkey).expect("Valkey starts");
    for name in ["layered-redis", "idempotent-redis"] {
        let server = Server::start(PROGRAM, &[name, &valkey.url()]);
        for (key, caller) in [("one", 'a'), ("one", 'a'), ("two", 'a'), ("one", 'b')] {
            let answer = server.pay(&format!("{name}-{key}"), caller);
            assert!(answer.starts_with("HTTP/1.1 201 "), "{name} at {}: {answer}", server.address);
        }
        assert_eq!(server.runs(), 3, "{name}");
    }
}

#[test]
fn bad_arguments_are_named_and_exit_with_2() {
    let bad: [(&[&str], &str); 6] = [
        (&["--rounds", "0"], "0 is not in"),
        (&["--connections", "64,0"], "0 is not in"),
        (&["--part", "everything"], "invalid value 'everything'"),
        (&["--appendfsync", "often"], "invalid value 'often'"),
        (&["--quick", "--seconds", "5"], "cannot be used with"),
        (&["serve", "nothing"], "invalid value 'nothing'"),
    ];
    for (arguments, reason) in bad {
        let ended = bench_stores(arguments);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}

#[test]
fn a_program_that_is_missing_is_named_with_what_to_do() {
    let ended = Command::new(PROGRAM).env("PATH", env!("CARGO_TARGET_TMPDIR")).output().expect("it starts");
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("wrk does not start") && said.contains("cargo xtask bench stores"), "{said}");
}
