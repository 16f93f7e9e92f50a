//! A server of a program of this crate, in a process of its own, as the programs themselves start it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// One of its servers. It ends when its input does.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
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
    pub(crate) fn pay(&self, key: &str, caller: char) -> String {
        let session = format!("{}A", String::from(caller).repeat(21));
        self.ask(&format!(
            "POST /payments HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Length: 2\r\n\
             Idempotency-Key: {key}\r\nCookie: session={session}\r\n\r\n{{}}"
        ))
    }

    pub(crate) fn runs(&self) -> u64 {
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
