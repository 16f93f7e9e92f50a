//! What the driver relies on: bad arguments are told from a run that failed, and its own servers do what is compared.
//! The whole run is left to `cargo xtask bench http`, which installs nginx and wrk.
#![cfg(feature = "http")]

mod server;

use std::process::{Command, Output};

use server::Server;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bench-http");

fn bench_http(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

#[test]
fn the_compared_layers_replay_and_the_bare_handler_runs_again() {
    for (server, expected) in [("bare", 4), ("idempotent", 3), ("layered", 3)] {
        let server = Server::start(PROGRAM, &[server]);
        for (key, caller) in [("one", 'a'), ("one", 'a'), ("two", 'a'), ("one", 'b')] {
            let answer = server.pay(key, caller);
            assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
        }
        assert_eq!(server.runs(), expected, "{}", server.address);
    }
}

#[test]
fn the_bare_proxy_passes_on() {
    let upstream = Server::start(PROGRAM, &["upstream"]);
    let proxy = Server::start(PROGRAM, &["forward", &upstream.address]);
    let answer = proxy.pay("one", 'a');
    assert!(answer.starts_with("HTTP/1.1 201 ") && answer.ends_with('}'), "{answer}");
    assert_eq!((upstream.runs(), proxy.runs()), (1, 1));
}

#[test]
fn bad_arguments_are_named_and_exit_with_2() {
    let bad: [(&[&str], &str); 6] = [
        (&["--rounds", "0"], "0 is not in"),
        (&["--seconds", "never"], "invalid digit"),
        (&["--connections", "64,0"], "0 is not in"),
        (&["--part", "everything"], "invalid value 'everything'"),
        (&["--quick", "--seconds", "5"], "cannot be used with"),
        (&["serve", "nothing"], "invalid value 'nothing'"),
    ];
    for (arguments, reason) in bad {
        let ended = bench_http(arguments);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
    let help = bench_http(&["--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("Example: bench-http"));
}

#[test]
fn a_program_that_is_missing_is_named_with_what_to_do() {
    let ended =
        Command::new(PROGRAM).env("PATH", env!("CARGO_TARGET_TMPDIR")).output().expect("the program starts");
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("wrk does not start") && said.contains("cargo xtask bench http"), "{said}");
}
