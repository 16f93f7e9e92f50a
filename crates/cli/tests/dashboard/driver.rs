//! Speaks `WebDriver` with a `chromedriver` of its own: the few commands that the tests need. A crate for this would
//! bring the whole of the protocol, and another licence.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use onlyonce_testkit::servers::{Port, Process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a page may take to do what is waited for. What hangs fails; what is slow does not.
const PATIENCE: Duration = Duration::from_mins(2);
/// A browser that does not come up in time on a loaded machine is started anew, this often.
const STARTS: usize = 4;

/// A browser of one test. It ends with this value.
#[derive(Debug)]
pub(crate) struct Driver {
    // ORDER: the process ends before its port is given back and its folder goes.
    process: Process,
    port: Port,
    session: String,
    _profile: TempDir,
}

impl Driver {
    pub(crate) fn start() -> Self {
        // Left to choose, it takes one that is free for IPv6, and ends if that is not free for IPv4.
        let port = Port::free().unwrap();
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={}", port.get())).arg("--log-level=WARNING");
        // What the page asks for must not go through somebody's proxy.
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(name);
        }
        let process =
            Process::start(command, |line| line.contains("was started successfully on port")).unwrap();
        let mut refusals = Vec::new();
        for _ in 0..STARTS {
            let profile = tempfile::tempdir().unwrap();
            match ask(&port, "POST", "/session", Some(&capabilities(&profile))) {
                Ok(told) => {
                    let session = told["sessionId"].as_str().unwrap().to_owned();
                    let driver = Self { process, port, session, _profile: profile };
                    let times = json!({ "script": millis(PATIENCE), "pageLoad": millis(PATIENCE) });
                    driver.tell("timeouts", &times);
                    return driver;
                }
                Err(refusal) => refusals.push(refusal),
            }
        }
        panic!("no browser: {refusals:?}, {:?}", process.last_lines());
    }

    /// A command of this session, and what it answers.
    pub(crate) fn tell(&self, command: &str, body: &Value) -> Value {
        self.try_tell(command, body).unwrap_or_else(|refusal| panic!("{command} {body}: {refusal}"))
    }

    /// The same, where it may be refused.
    pub(crate) fn try_tell(&self, command: &str, body: &Value) -> Result<Value, String> {
        ask(&self.port, "POST", &format!("/session/{}/{command}", self.session), Some(body))
    }

    pub(crate) fn read(&self, what: &str) -> Value {
        ask(&self.port, "GET", &format!("/session/{}/{what}", self.session), None).unwrap()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It ends its browser when it is told so, and leaves it behind when it is killed.
        let _ = ask(&self.port, "DELETE", &format!("/session/{}", self.session), None);
        self.process.kill();
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

fn capabilities(profile: &TempDir) -> Value {
    let folder = format!("--user-data-dir={}", profile.path().display());
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--no-proxy-server",
        "--force-prefers-reduced-motion",
        "--hide-scrollbars",
        "--window-size=1280,960",
        &folder,
    ];
    json!({ "capabilities": { "alwaysMatch": {
        "browserName": "chrome",
        "goog:chromeOptions": { "binary": "/usr/bin/chromium", "args": arguments },
        "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
    } } })
}

fn ask(port: &Port, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
    let port = port.get();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())?;
    // Longer than the browser may take, so that it is the browser who says what was waited for in vain.
    stream.set_read_timeout(Some(PATIENCE * 2)).map_err(|error| error.to_string())?;
    let body = body.map(Value::to_string).unwrap_or_default();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .map_err(|error| error.to_string())?;
    let (status, told) = answer(stream).map_err(|error| format!("no answer to {path}: {error}"))?;
    let told: Value = serde_json::from_slice(&told).map_err(|error| error.to_string())?;
    if status == 200 { Ok(told["value"].clone()) } else { Err(told["value"]["message"].to_string()) }
}

/// Status and body. It keeps the connection open whatever it is told: only the length says where the answer ends.
fn answer(stream: TcpStream) -> io::Result<(u16, Vec<u8>)> {
    let (mut reader, mut status, mut length) = (BufReader::new(stream), 0, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim().split_once([':', ' ']) {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().unwrap_or(0);
            }
            Some(("HTTP/1.1", value)) => status = value.get(..3).map_or(0, |code| code.parse().unwrap_or(0)),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((status, body))
}
