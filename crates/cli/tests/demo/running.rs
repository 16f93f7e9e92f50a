//! A demo that runs, and requests to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_onlyonce");

/// A demo that runs; it is told to stop when this value ends.
pub(crate) struct Demo {
    pub(crate) child: Child,
    lines: BufReader<ChildStdout>,
}

impl Demo {
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command
            .args(["demo", "--admin", "127.0.0.1:0"])
            .args(arguments)
            .env("TMPDIR", folder)
            .stdout(Stdio::piped());
        // A loaded disk is no failed store.
        command.env("ONLYONCE_STORE_ANSWER_WITHIN", "30s");
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Reads lines until one holds `text`, and gives that one back.
    pub(crate) fn line_with(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "no line with {text:?}");
            if line.contains(text) {
                return line;
            }
        }
    }

    pub(crate) fn tell(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // A process that has ended may have left its number to another one.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// The address in a line such as `sidecar  http://127.0.0.1:8080  …`.
pub(crate) fn address(line: &str) -> String {
    let (_, rest) = line.split_once("http://").unwrap();
    rest.split_whitespace().next().unwrap().to_owned()
}

/// The number at the end of a line.
pub(crate) fn process(line: &str) -> Pid {
    let last = line.trim_end().trim_end_matches('.').rsplit(' ').next().unwrap();
    Pid::from_raw(last.parse().unwrap()).unwrap()
}

/// Sends a payment and gives back the answer, head and body.
pub(crate) fn pay(address: &str, key: &str, amount: u32) -> String {
    post(address, "/payments", &format!("Idempotency-Key: {key}\r\n"), &format!("{{\"amount\": {amount}}}"))
}

pub(crate) fn post(address: &str, path: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
