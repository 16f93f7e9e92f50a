//! `onlyonce proxy` with an admin side, and with its log in a file: what it says at debug level is more than a pipe holds.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use crate::binary::{PATIENCE, answer, onlyonce, patient};

pub(crate) struct Sidecar {
    child: Child,
    stdout: BufReader<ChildStdout>,
    log: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Sidecar {
    /// Starts it as the file `config` says, on free ports. Its log is in `folder`.
    pub(crate) fn start(config: &Path, folder: &Path) -> Self {
        let log = folder.join("log");
        let mut command =
            onlyonce(&["proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--json-logs"]);
        let mut child = patient(&mut command)
            .args(["--log", "debug", "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut told = |start: &str| {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            let address = line.trim().strip_prefix(start).map(str::to_owned);
            address.unwrap_or_else(|| panic!("{line}{}", fs::read_to_string(&log).unwrap())).parse().unwrap()
        };
        let (address, admin) = (told("listening on "), told("admin on "));
        Self { child, stdout, log, address, admin }
    }

    /// A POST with a key.
    pub(crate) fn post(&self, key: &str) -> (u16, String) {
        let head =
            format!("POST /pay HTTP/1.1\r\nAuthorization: Bearer sesame\r\nIdempotency-Key: {key}\r\n");
        send(self.address, &head, "100")
    }

    pub(crate) fn get(&self, path: &str) -> String {
        let (status, text) = send(self.admin, &format!("GET {path} HTTP/1.1\r\n"), "");
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Waits until its log holds `text`.
    pub(crate) fn wait_for_log(&mut self, text: &str) {
        while !fs::read_to_string(&self.log).unwrap().contains(text) {
            assert_eq!(self.child.try_wait().unwrap(), None, "it ended without saying {text}");
            thread::yield_now();
        }
    }

    /// Ends it properly: all that it wrote to its output and its log.
    pub(crate) fn end(mut self) -> (String, String) {
        self.signal("-TERM");
        let mut output = String::new();
        self.stdout.read_to_string(&mut output).unwrap();
        assert!(self.child.wait().unwrap().success());
        (output, fs::read_to_string(&self.log).unwrap())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a whole request: the status, and the whole answer.
pub(crate) fn send(to: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    write!(stream, "{head}Host: shop.test\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .unwrap();
    answer(stream)
}

/// Makes a key file with the binary itself.
pub(crate) fn make_key(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(format!("{name}.keys"));
    let made = onlyonce(&["key", "encryption", "--name", name, "--output"]).arg(&path).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    path
}
