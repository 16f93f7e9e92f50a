//! A running consumer: a process of its own, looked at as an operator does.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::handler::Handler;

/// How long anything may take on the most loaded machine.
const TAKES_MAX: Duration = Duration::from_mins(4);
/// How often figures are looked at.
const STEP: Duration = Duration::from_millis(20);

/// The program, without what the environment says to it.
pub(crate) fn onlyonce(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ONLYONCE_")) {
        command.env_remove(name);
    }
    command.args(args);
    command
}

/// A running consumer; it is killed when this value goes.
pub(crate) struct Consuming {
    child: Child,
    stdout: BufReader<ChildStdout>,
    admin: SocketAddr,
}

impl Consuming {
    pub(crate) fn start(source: &str, handler: &Handler, store: &str) -> Self {
        let args = ["consume", "--source", source, "--handler", &handler.url(), "--store", store];
        let mut child = onlyonce(&args)
            .args(["--admin", "127.0.0.1:0"])
            .env("ONLYONCE_CONSUME_RETRY_AFTER", "10ms")
            .env("ONLYONCE_CONSUME_ATTEMPTS_MAX", "3")
            .env("ONLYONCE_CONSUME_LEASE", "60s")
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

    /// Where its admin side is.
    pub(crate) fn admin(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// What Prometheus would read.
    fn figures(&self) -> String {
        self.get("/metrics")
    }

    /// What the admin side answers, by a name that is not this machine's own.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Waits until the figures hold each of `lines`.
    pub(crate) fn until(&self, lines: &[String]) {
        self.until_figures(|figures| lines.iter().all(|line| figures.lines().any(|written| written == line)));
    }

    /// Waits until nothing waits at the source, and everything that was fetched is settled.
    pub(crate) fn until_quiet(&self) {
        self.until_figures(is_quiet);
    }

    /// Waits until it is quiet and something came to each of `fates`: a slow machine may be too late to settle what it
    /// decided, and decide once more.
    pub(crate) fn until_quiet_after(&self, fates: &[&str]) {
        self.until_figures(|figures| is_quiet(figures) && fates.iter().all(|name| fate(figures, name) > 0));
    }

    fn until_figures(&self, is_so: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        loop {
            let figures = self.figures();
            if is_so(&figures) {
                return;
            }
            assert!(begun.elapsed() < TAKES_MAX, "it does not come to that:\n{figures}");
            // tidy: sleep because figures are asked for and not told
            std::thread::sleep(STEP);
        }
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
    }

    /// Ends it as an orchestrator does, and expects that it ends well.
    pub(crate) fn stop(mut self) -> String {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        assert!(self.child.wait().unwrap().success());
        stdout
    }
}

/// How many deliveries came to the fate `name`.
fn fate(figures: &str, name: &str) -> u64 {
    let series = format!("onlyonce_messages_total{{fate=\"{name}\"}} ");
    let count = figures.lines().find_map(|line| line.strip_prefix(&series));
    count.map_or(0, |count| count.trim().parse().unwrap())
}

fn is_quiet(figures: &str) -> bool {
    figures.lines().any(|line| line == "onlyonce_messages_waiting 0")
        && fate(figures, "fetched") == fate(figures, "settled") + fate(figures, "gone")
}

impl Drop for Consuming {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
