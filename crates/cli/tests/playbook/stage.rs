//! A sidecar with an admin side and a log, in which the page's commands are run; and a disk that is full on command.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::binary::{PATIENCE, answer, onlyonce};
use crate::page::Page;
use crate::upstream::Upstream;

/// The sidecar; it is killed when this value goes.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) upstream: Upstream,
    child: Child,
    folder: TempDir,
    variables: Vec<(String, String)>,
}

impl Stage {
    /// A sidecar on `store`; `args` follow.
    pub(crate) fn start(store: &str, args: &[&str]) -> Self {
        Self::begin(Upstream::start(), store, args, |_| {})
    }

    /// The same store and the same upstream in a new process, which `change` may start otherwise.
    pub(crate) fn again(mut self, store: &str, change: impl FnOnce(&mut Command)) -> Self {
        let _ = self.child.kill();
        let _ = self.child.wait();
        Self::begin(self.upstream.clone(), store, &[], change)
    }

    fn begin(upstream: Upstream, store: &str, args: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = onlyonce(&["proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.args(["--upstream", &upstream.url(), "--store", store]).args(args);
        command.env("ONLYONCE_STORE_ANSWER_WITHIN", "30s").env("NO_COLOR", "1");
        change(&mut command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut told = |start: &str| {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            let rest = line.trim().strip_prefix(start).map(str::to_owned);
            rest.unwrap_or_else(|| panic!("{line} is not {start}: {}", fs::read_to_string(&log).unwrap()))
        };
        let (sidecar, admin) = (told("listening on "), told("admin on "));
        // Read to its end, so that it never waits for us.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        let variables = [("SIDECAR", sidecar), ("ADMIN", admin), ("STORE", store.to_owned())];
        let mut stage = Self { upstream, child, folder, variables: Vec::new() };
        for (name, value) in variables {
            stage.set(name, &value);
        }
        stage.set("LOG", log.to_str().unwrap());
        stage
    }

    /// A variable for the commands.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends what the page's `curl` sends: the status, and the whole answer.
    pub(crate) fn post(&self, path: &str, key: &str) -> (u16, String) {
        let (_, address) = &self.variables[0];
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer probe\r\nIdempotency-Key: {key}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        answer(stream)
    }

    /// Runs the blocks of one phase of a scenario, in their order.
    pub(crate) fn play(&self, scenario: &str, phase: &str) {
        let page = Page::read();
        let mut blocks =
            page.blocks.iter().filter(|block| block.scenario == scenario && block.phase == phase).peekable();
        assert!(blocks.peek().is_some(), "the page has no {scenario} {phase}");
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_onlyonce"));
        let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
        for block in blocks {
            let output = Command::new("timeout")
                .args(["300", "bash", "-euo", "pipefail", "-c", &block.commands])
                .current_dir(self.folder.path())
                .env("PATH", &path)
                .envs(self.variables.iter().map(|(name, value)| (name, value)))
                .output()
                .unwrap();
            let printed = String::from_utf8_lossy(&output.stdout);
            let all = format!("{printed}{}", String::from_utf8_lossy(&output.stderr));
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(output.status.success(), "{}\n{all}\n--- log\n{}", block.commands, log());
            let mut rest = &*printed;
            for expected in &block.expected {
                let at = rest.find(expected.as_str()).unwrap_or_else(|| {
                    panic!("{}\ndid not print {expected}:\n{all}\n--- log\n{}", block.commands, log())
                });
                rest = &rest[at + expected.len()..];
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// While this lives, every write of a process to its files fails as on a full disk.
#[derive(Debug)]
pub(crate) struct FullDisk(Child);

impl FullDisk {
    pub(crate) fn of(process: u32) -> Self {
        let mut strace = Command::new("strace")
            .args(["-f", "-p", &process.to_string(), "-e", "trace=pwrite64", "-o", "/dev/null"])
            .args(["-e", "inject=pwrite64:error=ENOSPC"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(strace.stderr.take().unwrap());
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert!(line.contains("attached"), "strace: {line}");
        std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
        Self(strace)
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        // SIGTERM: it lets go of the process in good order.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}
