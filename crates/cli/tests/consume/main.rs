//! `onlyonce consume` as a program: a real Redis stream on one side, a handler that knows nothing of us on the other.
#![expect(clippy::unwrap_used, reason = "a failed check panics")]

mod handler;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use onlyonce_testkit::servers::{RedisOptions, RedisServer};

use handler::{Handler, Seen};

fn onlyonce(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ONLYONCE_")) {
        command.env_remove(name);
    }
    command.args(args);
    command
}

/// A running consumer; it is killed when this value goes.
struct Consuming {
    child: Child,
    stdout: BufReader<ChildStdout>,
    admin: SocketAddr,
}

impl Consuming {
    fn start(server: &RedisServer, handler: &Handler, store: &str) -> Self {
        let source = format!("redis-stream://127.0.0.1:{}/orders?idle_seconds=1", server.port());
        let args = ["consume", "--source", &source, "--handler", &handler.url(), "--store", store];
        let mut child = onlyonce(&args)
            .args(["--admin", "127.0.0.1:0"])
            .env("ONLYONCE_CONSUME_RETRY_AFTER", "10ms")
            .env("ONLYONCE_CONSUME_ATTEMPTS_MAX", "3")
            .env("ONLYONCE_CONSUME_LEASE", "5s")
            .env("ONLYONCE_CONSUME_ON_SHORT_RETENTION", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "consuming", "it did not start");
        line.clear();
        stdout.read_line(&mut line).unwrap();
        let admin = line.trim().strip_prefix("admin on ").unwrap().parse().unwrap();
        Self { child, stdout, admin }
    }

    /// What Prometheus would read.
    fn figures(&self) -> String {
        self.get("/metrics")
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
    }

    /// Ends it as an orchestrator does, and expects that it ends well.
    fn stop(mut self) -> String {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        assert!(self.child.wait().unwrap().success());
        stdout
    }
}

impl Drop for Consuming {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn publish(server: &RedisServer, id: &str, body: &str) {
    server.ask(&["XADD", "orders", "*", "event-id", id, "tenant", "acme", "body", body]).unwrap();
}

/// Waits until the group has nothing left, neither waiting nor pending.
fn wait_until_settled(server: &RedisServer) {
    loop {
        let groups = server.ask(&["XINFO", "GROUPS", "orders"]).unwrap();
        let lines: Vec<_> = groups.lines().collect();
        let after = |name: &str| lines.iter().position(|line| *line == name).map(|at| lines[at + 1]);
        if after("pending") == Some("0") && after("lag") == Some("0") {
            return;
        }
        // tidy: sleep because Redis tells nobody that a group is done
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn by_key(seen: Vec<Seen>) -> HashMap<String, Vec<Seen>> {
    let mut by_key = HashMap::<_, Vec<_>>::new();
    for seen in seen {
        by_key.entry(seen.key.clone()).or_default().push(seen);
    }
    by_key
}

#[test]
fn each_message_is_handled_once_and_what_cannot_be_is_kept() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let handler = Handler::start();
    for _ in 0..3 {
        publish(&server, "paid-1", "pay");
    }
    publish(&server, "refused-1", "refuse");
    publish(&server, "failed-1", "fail once");
    publish(&server, "failed-2", "always fail");
    let consuming = Consuming::start(&server, &handler, "memory:");
    wait_until_settled(&server);
    let figures = consuming.figures();
    for line in [
        "onlyonce_messages_total{fate=\"done\"} 2",
        "onlyonce_messages_total{fate=\"duplicate\"} 2",
        "onlyonce_messages_total{fate=\"dead-lettered\"} 2",
        "onlyonce_messages_waiting 0",
        "onlyonce_claims_total{answer=\"granted\"} 7",
    ] {
        assert!(figures.lines().any(|written| written == line), "{line} is not in\n{figures}");
    }
    // An operator finds a message by its id; a name that is not this machine's own is another site's.
    let admin = format!("http://{}", consuming.admin);
    let show = ["records", "show", "--key", "paid-1", "--json", "--admin", &admin];
    let shown = onlyonce(&show).output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains("\"state\":\"completed\""), "{shown:?}");
    assert!(consuming.get("/api/records").starts_with("HTTP/1.1 403"));
    let promise = consuming.stop();
    assert!(promise.contains("3 attempts, then to the dead letters"), "{promise}");
    let seen = by_key(handler.seen());
    assert_eq!(seen["paid-1"].len(), 1, "three deliveries, one effect");
    let paid = &seen["paid-1"][0];
    assert_eq!((paid.body.as_str(), paid.headers["message-tenant"].as_str()), ("pay", "acme"));
    assert!(paid.headers["onlyonce-fence"].parse::<u64>().unwrap() > 0);
    assert_eq!(seen["refused-1"].len(), 1);
    let attempts = |key: &str| seen[key].iter().map(|seen| seen.attempt).collect::<Vec<_>>();
    assert_eq!(attempts("failed-1"), [1, 2]);
    assert_eq!(attempts("failed-2"), [1, 2, 3]);
    let dead = server.ask(&["XRANGE", "orders:dead-letter", "-", "+"]).unwrap();
    assert!(dead.contains("refused-1") && dead.contains("422") && dead.contains("failed-2"), "{dead}");
    assert!(!dead.contains("paid-1") && !dead.contains("failed-1"), "{dead}");
}

#[test]
fn what_a_killed_consumer_was_at_is_tried_again_and_nothing_is_lost() {
    const MESSAGES: usize = 40;
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let (handler, folder) = (Handler::start(), tempfile::tempdir().unwrap());
    let store = format!("file:{}", folder.path().display());
    for number in 0..MESSAGES {
        publish(&server, &format!("m-{number}"), "pay");
    }
    let first = Consuming::start(&server, &handler, &store);
    handler.wait_for(MESSAGES / 2);
    handler.hold(true);
    // Some are done, some are held by the handler, some have not come.
    publish(&server, "last", "pay");
    handler.wait_for(MESSAGES / 2 + 1);
    first.kill();
    handler.hold(false);
    let second = Consuming::start(&server, &handler, &store);
    wait_until_settled(&server);
    second.stop();
    let seen = by_key(handler.seen());
    assert_eq!(seen.len(), MESSAGES + 1, "nothing is lost");
    for (key, seen) in &seen {
        let attempts: Vec<_> = seen.iter().map(|seen| seen.attempt).collect();
        // The second attempt is the first that is seen of what was claimed, but not posted, when it was killed.
        assert!(matches!(attempts[..], [1 | 2] | [1, 2]), "{key}: {attempts:?}");
    }
}

fn refused(args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = onlyonce(&[&["consume"], args].concat()).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn what_cannot_work_is_refused_with_its_name() {
    let handler = ["--handler", "http://127.0.0.1:9/a", "--store", "memory:"];
    let with = |args: &[&'static str]| refused(&[args, &handler].concat());
    for (told, expected) in [
        (refused(&[]), "consume.source"),
        (refused(&["--source", "nats://a/b", "--store", "memory:"]), "consume.handler"),
        (refused(&["--source", "nats://a/b", "--handler", "ftp://a"]), "consume.handler"),
        (with(&["--source", "carrier-pigeon://a"]), "carrier-pigeon"),
        (with(&["--source", "nats://a/b", "--id", "tattoo"]), "consume.id"),
        (with(&["--source", "nats://a/b", "--unknown", "query"]), "consume.unknown"),
        (with(&["--source", "redis-stream://a:1/s?colour=red"]), "colour"),
    ] {
        assert!(matches!(told.0, Some(2 | 65)) && told.1.contains(expected), "{expected}: {told:?}");
    }
    if cfg!(not(feature = "kafka")) {
        let (code, told) = with(&["--source", "kafka://a/b"]);
        assert!(code == Some(65) && told.contains("`kafka`"), "{told}");
    }
    let (code, told) = with(&["--source", "redis-stream://127.0.0.1:9/s"]);
    assert_eq!(code, Some(69), "{told}");
}
