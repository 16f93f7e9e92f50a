//! A sidecar with an admin side, and what an operator asks it: over HTTP, and with the binary.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::{PATIENCE, Proxy, answer, onlyonce};
use crate::upstream::Upstream;

pub(crate) const TOKEN: &str = "an-operator-knows-this";
/// What every test's command says.
pub(crate) const WHY: &str = "because the test says so";

/// A sidecar, what is behind it, and where its files are.
pub(crate) struct Stage {
    pub(crate) upstream: Upstream,
    pub(crate) proxy: Proxy,
    pub(crate) admin: SocketAddr,
    pub(crate) folder: TempDir,
    pub(crate) store: String,
    more: Vec<String>,
}

impl Stage {
    /// Over a store in a folder of its own.
    pub(crate) fn over_files(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("file:{}", folder.path().join("records").display());
        Self::start(folder, store, more)
    }

    /// Over the store at `url`.
    pub(crate) fn over(url: &str, more: &[&str]) -> Self {
        Self::start(tempfile::tempdir().unwrap(), url.to_owned(), more)
    }

    fn start(folder: TempDir, store: String, more: &[&str]) -> Self {
        let upstream = Upstream::start();
        let more: Vec<String> = more.iter().map(|arg| (*arg).to_owned()).collect();
        let (proxy, admin) = proxy(&upstream, &store, &audit_in(&folder), &more);
        Self { upstream, proxy, admin, folder, store, more }
    }

    pub(crate) fn audit(&self) -> PathBuf {
        audit_in(&self.folder)
    }

    /// Kills it without a word and starts it again.
    pub(crate) fn kill_and_restart(&mut self) {
        self.proxy.signal("-KILL");
        self.restart();
    }

    /// Starts it again after it ended.
    pub(crate) fn restart(&mut self) {
        let (proxy, admin) = {
            // The folder is one process's: the old one must be gone.
            self.proxy.reap();
            proxy(&self.upstream, &self.store, &self.audit(), &self.more)
        };
        (self.proxy, self.admin) = (proxy, admin);
    }

    /// Asks with the token.
    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        ask(self.admin, "GET", path, &authorised(), None)
    }

    /// Commands with the token.
    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        ask(
            self.admin,
            "POST",
            path,
            &format!("{}Content-Type: application/json\r\n", authorised()),
            Some(body),
        )
    }

    /// The record of a key, as the sidecar's callers name it.
    pub(crate) fn find(&self, key: &str) -> Value {
        let (status, found) = self.post("/api/find", &json!({ "key": key, "principal": "Bearer sesame" }));
        assert_eq!(status, 200, "{found}");
        found
    }

    /// `onlyonce records` on the running process: exit code, output, and what it said on standard error.
    pub(crate) fn records(&self, args: &[&str]) -> (i32, String, String) {
        let url = format!("http://{}", self.admin);
        records(&[args, &["--admin", &url, "--token", TOKEN]].concat())
    }

    /// Ids of all records of these states, page by page.
    pub(crate) fn listed(&self, query: &str) -> Vec<String> {
        let (mut ids, mut after) = (Vec::new(), String::new());
        loop {
            let (status, page) = self.get(&format!("/api/records?limit=3{query}{after}"));
            assert_eq!(status, 200, "{page}");
            let records = page["records"].as_array().unwrap();
            assert!(records.len() <= 3, "{page}");
            ids.extend(records.iter().map(|record| record["id"].as_str().unwrap().to_owned()));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return ids,
            }
        }
    }
}

fn audit_in(folder: &TempDir) -> PathBuf {
    folder.path().join("audit.jsonl")
}

fn proxy(upstream: &Upstream, store: &str, audit: &std::path::Path, more: &[String]) -> (Proxy, SocketAddr) {
    let url = upstream.url();
    let mut args = vec!["--upstream", &url, "--store", store, "--admin", "127.0.0.1:0"];
    args.extend(more.iter().map(String::as_str));
    let audit = audit.display().to_string();
    let environment = [
        ("ONLYONCE_ADMIN_TOKEN", TOKEN),
        ("ONLYONCE_ADMIN_AUDIT", audit.as_str()),
        // Nothing is removed behind a test's back.
        ("ONLYONCE_SWEEP_EVERY", "1h"),
    ];
    let mut proxy = Proxy::start_with(&args, &environment);
    let admin = proxy.wait_for_line("admin on ").parse().unwrap();
    (proxy, admin)
}

pub(crate) fn authorised() -> String {
    format!("Authorization: Bearer {TOKEN}\r\n")
}

/// Asks the admin side: the status, and the JSON of the answer.
pub(crate) fn ask(
    admin: SocketAddr,
    method: &str,
    path: &str,
    fields: &str,
    body: Option<&Value>,
) -> (u16, Value) {
    let (status, text) = raw(admin, method, path, fields, body);
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

/// The same, with the whole text of the answer.
pub(crate) fn raw(
    admin: SocketAddr,
    method: &str,
    path: &str,
    fields: &str,
    body: Option<&Value>,
) -> (u16, String) {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = body.map(Value::to_string).unwrap_or_default();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {admin}\r\n{fields}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    answer(stream)
}

/// `onlyonce records` with these arguments.
pub(crate) fn records(args: &[&str]) -> (i32, String, String) {
    let output = onlyonce(&["records"]).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Lines of JSON.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect()
}
