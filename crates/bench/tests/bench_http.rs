//! What the driver relies on: bad arguments are told from a run that failed, and its own servers do what is compared.
//! The whole run is left to `cargo xtask bench http`, which installs nginx and wrk.
#![cfg(feature = "http")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

fn bench_http(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench-http")).args(arguments).output().expect("the program starts")
}

/// One of its servers. It ends when its input does.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bench-http"))
            .arg("serve")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
        Self { child, address }
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers and closes");
        answer
    }

    /// Pays with a key, for the session `caller`.
    fn pay(&self, key: &str, caller: char) -> String {
        let session = format!("{}A", String::from(caller).repeat(21));
        self.ask(&format!(
            "POST /payments HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Length: 2\r\n\
             Idempotency-Key: {key}\r\nCookie: session={session}\r\n\r\n{{}}"
        ))
    }

    fn runs(&self) -> u64 {
        let answer = self.ask("GET /runs HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
        answer.rsplit_once("\r\n\r\n").expect("a body").1.parse().expect("a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn the_compared_layers_replay_and_the_bare_handler_runs_again() {
    for (server, expected) in [("bare", 4), ("idempotent", 3), ("layered", 3)] {
        let server = Server::start(&[server]);
        for (key, caller) in [("one", 'a'), ("one", 'a'), ("two", 'a'), ("one", 'b')] {
            let answer = server.pay(key, caller);
            assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
        }
        assert_eq!(server.runs(), expected, "{}", server.address);
    }
}

#[test]
fn the_bare_proxy_passes_on() {
    let upstream = Server::start(&["upstream"]);
    let proxy = Server::start(&["forward", &upstream.address]);
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
    let ended = Command::new(env!("CARGO_BIN_EXE_bench-http"))
        .env("PATH", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .expect("the program starts");
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("wrk does not start") && said.contains("cargo xtask bench http"), "{said}");
}
