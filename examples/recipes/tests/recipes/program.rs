//! A recipe, running, and requests to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program that listens; it is killed when this value goes.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    /// What follows `listening on ` in its first line.
    pub(crate) told: String,
}

impl Program {
    /// Starts it and waits for its first line.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        assert!(!line.is_empty(), "it ended without a word");
        Self { child, told: line.trim().trim_start_matches("listening on ").to_owned() }
    }

    /// Sends a request and reads to the end: the status, and the whole answer.
    pub(crate) fn ask(&self, request: &str, fields: &[(&str, &str)], body: &str) -> (u16, String) {
        let address: SocketAddr = self.told.parse().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let fields =
            fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect::<Vec<_>>().concat();
        let length = body.len();
        let head = format!("{request} HTTP/1.1\r\nHost: {address}\r\n{fields}Content-Length: {length}\r\n");
        write!(stream, "{head}Connection: close\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.get(9..12).map_or(0, |status| status.parse().unwrap()), answer)
    }

    /// What a GET answers.
    pub(crate) fn get(&self, path: &str) -> String {
        let (_, answer) = self.ask(&format!("GET {path}"), &[], "");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
