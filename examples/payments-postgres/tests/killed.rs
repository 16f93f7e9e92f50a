//! The program is killed at every point of a payment, and the request is sent again: exactly one payment, always.
//!
//! A relay between the program and its database holds each question and each answer in turn; the program is killed
//! while it is held. Nothing in the program knows of it.
#![expect(clippy::panic, reason = "a failed check panics")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use onlyonce_testkit::servers::{PostgresServer, Relay, Way};
use tokio_postgres::NoTls;

/// How long a point may take to be reached on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running payments program. It is killed when this is dropped.
struct Program {
    child: Child,
    address: String,
}

impl Program {
    fn start(url: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_payments-postgres"))
            .env("DATABASE_URL", url)
            .env("LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ").expect("where it listens").to_owned();
        Self { child, address }
    }

    /// Sends a payment without waiting for the answer.
    fn send(&self, key: &str, amount: u32) -> TcpStream {
        let body = format!("{{\"amount\": {amount}}}");
        let mut stream = TcpStream::connect(&self.address).expect("the program listens");
        let length = body.len();
        let head = format!(
            "POST /payments HTTP/1.1\r\nhost: x\r\nidempotency-key: {key}\r\ncontent-length: {length}"
        );
        stream.write_all(format!("{head}\r\nconnection: close\r\n\r\n{body}").as_bytes()).expect("a request");
        stream
    }

    /// Sends a payment and answers the status line, whether it was replayed, and the body.
    fn pay(&self, key: &str, amount: u32) -> (String, bool, String) {
        let mut answer = String::new();
        self.send(key, amount).read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let status = head.lines().next().unwrap_or_default().to_owned();
        (status, head.contains("idempotency-replayed: true"), body.to_owned())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many payments there are for `key`.
fn payments(server: &PostgresServer, key: &str) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("a connection");
        let driver = tokio::spawn(connection);
        let count = "SELECT count(*) FROM payments WHERE key = $1";
        let count = client.query_one(count, &[&key]).await.expect("an answer").get(0);
        driver.abort();
        count
    })
}

#[test]
fn a_program_killed_at_any_point_makes_exactly_one_payment() {
    let server = PostgresServer::start(&[]).expect("a private server");
    let relay = Relay::start(server.port()).expect("a relay");
    let url = server.url_at(relay.port());
    let mut points = 0;
    let mut made_before_the_kill = 0;
    for way in [Way::Asking, Way::Answering] {
        for number in 1.. {
            let program = Program::start(&url);
            // Its connection is made and its statement prepared before the points are counted.
            assert_eq!(program.pay(&format!("first-{way:?}-{number}"), 1).0, "HTTP/1.1 201 Created");
            let key = format!("{way:?}-{number}");
            relay.hold(way, number);
            let mut sent = program.send(&key, 100);
            if let Some(answer) = answered_before_held(&relay, &mut sent) {
                assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
                relay.let_go();
                break;
            }
            drop(program);
            relay.let_go();
            made_before_the_kill += payments(&server, &key);

            let program = Program::start(&url);
            let (status, replayed, body) = program.pay(&key, 100);
            assert_eq!(status, "HTTP/1.1 201 Created", "{key}");
            assert_eq!(payments(&server, &key), 1, "{key}: replayed {replayed}");
            let again = program.pay(&key, 100);
            assert_eq!(again, (status, true, body), "{key}");
            assert_eq!(payments(&server, &key), 1, "{key}");
            assert!(program.pay(&key, 101).0.starts_with("HTTP/1.1 422"), "{key}");
            points += 1;
        }
    }
    println!(
        "killed at {points} points, {made_before_the_kill} payments were made by then, one each in the end"
    );
    // A transaction begins, claims, pays, completes and commits. Only the last answer comes after the fact.
    assert_eq!((points, made_before_the_kill), (10, 1));
}

/// The answer, if it comes before the relay holds anything.
fn answered_before_held(relay: &Relay, sent: &mut TcpStream) -> Option<String> {
    let mut answer = String::new();
    sent.set_read_timeout(Some(Duration::from_millis(20))).expect("a time-out");
    for _ in 0..PATIENCE.as_millis() / 20 {
        if relay.wait_until_held(Duration::ZERO) {
            return None;
        }
        if sent.read_to_string(&mut answer).is_ok() {
            return Some(answer);
        }
    }
    panic!("neither answered nor held");
}
