//! The binary, running, and a request to it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;

/// Longer than anything that works takes on a loaded machine; what hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// A running `onlyonce serve`; it is killed when this value goes.
pub(crate) struct Service {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    pub(crate) address: String,
    pub(crate) token: Option<&'static str>,
}

/// `onlyonce serve` with these arguments, in an environment without settings of ours.
pub(crate) fn serve(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ONLYONCE_")) {
        command.env_remove(name);
    }
    command.arg("serve").args(args).stdin(Stdio::null());
    command
}

/// A file that only its owner can read.
pub(crate) fn tokens(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("tokens.toml");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Tokens of two tenants: `alice…` in the namespace `default`, `bob…` in `bob`.
pub(crate) fn two_tenants(folder: &Path) -> PathBuf {
    tokens(
        folder,
        "[[token]]\nsecret = \"alice-alice-alice\"\nscopes = [\"claim\"]\n\
         [[token]]\nsecret = \"bob-bob-bob-bob-bob\"\nnamespace = \"bob\"\nscopes = [\"claim\"]\n",
    )
}

impl Service {
    /// Starts it on a free port; `args` follow.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut child = serve(&["--listen", "127.0.0.1:0"])
            .args(args)
            // A client that is not scheduled is not an idle one.
            .env("ONLYONCE_PROXY_FIRST_BYTE_WITHIN", "2m")
            .env("ONLYONCE_PROXY_HEAD_WITHIN", "2m")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let Some(address) = line.trim().strip_prefix("listening on ") else {
            let mut told = String::new();
            stderr.read_to_string(&mut told).unwrap();
            panic!("it did not start: {line}{told}");
        };
        Self { address: address.to_owned(), child, stdout, stderr, token: None }
    }

    /// What follows `start` in the line that it writes to its output next.
    pub(crate) fn wait_for_line(&mut self, start: &str) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim().strip_prefix(start).unwrap_or_else(|| panic!("{line} is not {start}")).to_owned()
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Ends it at once, without warning.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end: how it ended, and what it wrote.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap(), stdout + &stderr)
    }

    /// Sends a request, and does not wait for the answer.
    pub(crate) fn begin(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let token = self.token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\n{token}Content-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Posts JSON: the status and the answer.
    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        answer(self.begin("POST", path, &body.to_string()))
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        answer(self.begin("GET", path, ""))
    }
}

/// The answer on a connection that ends with it.
pub(crate) fn answer(mut stream: TcpStream) -> (u16, Value) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
    let json = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"));
    (head[9..12].parse().unwrap(), json)
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
