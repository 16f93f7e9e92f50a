//! The binary, running, a request to it, and a request of it.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Longer than anything that works takes on a loaded machine; what hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// `onlyonce` with these arguments, in an environment without settings of ours.
pub(crate) fn onlyonce(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    let is_setting = |name: &str| name.starts_with("ONLYONCE_") || name.starts_with("OTEL_");
    for (name, _) in std::env::vars().filter(|(name, _)| is_setting(name)) {
        command.env_remove(name);
    }
    command.args(args);
    command
}

/// A proxy with more patience: a loaded disk is no failed store, and a client that is not scheduled is not an idle one.
pub(crate) fn patient(proxy: &mut Command) -> &mut Command {
    proxy
        .env("ONLYONCE_STORE_ANSWER_WITHIN", "30s")
        .env("ONLYONCE_PROXY_FIRST_BYTE_WITHIN", "2m")
        .env("ONLYONCE_PROXY_HEAD_WITHIN", "2m")
        .env("ONLYONCE_PROXY_UPSTREAM_CONNECT_WITHIN", "2m")
}

/// A running `onlyonce proxy`; it is killed when this value goes.
#[derive(Debug)]
pub(crate) struct Proxy {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    pub(crate) address: SocketAddr,
}

impl Proxy {
    /// Starts it on a free port; `args` follow.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[])
    }

    /// The same with settings from the environment.
    pub(crate) fn start_with(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = onlyonce(&["proxy", "--listen", "127.0.0.1:0"]);
        Self::listening(patient(&mut command).args(args).envs(environment.iter().copied()))
    }

    /// Starts whatever of ours says where it listens.
    pub(crate) fn listening(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let Some(address) = line.trim().strip_prefix("listening on ") else {
            let mut told = String::new();
            stderr.read_to_string(&mut told).unwrap();
            panic!("it did not start: {line}{told}");
        };
        Self { address: address.parse().unwrap(), child, stdout, stderr }
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Waits until the process is gone.
    pub(crate) fn reap(&mut self) {
        self.child.wait().unwrap();
    }

    /// Reads its log up to the line that holds `text`.
    pub(crate) fn wait_for_log(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.stderr.read_line(&mut line).unwrap(), 0, "it ended without saying {text}");
        }
    }

    /// What follows `start` in the line that it writes to its output next.
    pub(crate) fn wait_for_line(&mut self, start: &str) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim().strip_prefix(start).unwrap_or_else(|| panic!("{line} is not {start}")).to_owned()
    }

    /// Waits for its end: how it ended, and what it wrote.
    pub(crate) fn ended(mut self) -> (ExitStatus, String, String) {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap(), stdout, stderr)
    }

    /// A connection to it.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a POST with a key, and does not wait for the answer.
    pub(crate) fn begin(&self, path: &str, key: &str) -> TcpStream {
        self.begin_with(path, key, "")
    }

    /// Sends a POST with a key and more `fields`, each ended by a line break: the status, and the whole answer.
    pub(crate) fn post_with(&self, path: &str, key: &str, fields: &str) -> (u16, String) {
        answer(self.begin_with(path, key, fields))
    }

    fn begin_with(&self, path: &str, key: &str, fields: &str) -> TcpStream {
        let mut stream = self.connect();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: shop.test\r\nAuthorization: Bearer sesame\r\nIdempotency-Key: {key}\r\n\
             {fields}Content-Length: 3\r\nConnection: close\r\n\r\n100"
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Sends a POST with a key: the status, and the whole answer.
    pub(crate) fn post(&self, path: &str, key: &str) -> (u16, String) {
        answer(self.begin(path, key))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answer on a connection that ends with it; status 0 when there is none.
pub(crate) fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut text = Vec::new();
    // A connection that was reset says no more than one that ended.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    (text.get(9..12).map_or(0, |status| status.parse().unwrap()), text)
}

/// The next request on a connection: what it says before its body, and its body. `None` once the other side has ended.
pub(crate) fn asked(reader: &mut impl BufRead) -> io::Result<Option<(String, Vec<u8>)>> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some((head, body)))
}
