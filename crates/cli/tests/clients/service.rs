//! `onlyonce serve`, running, on a port that stays its own while it is down; and programs that the tests run.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use onlyonce_testkit::servers::Port;

use crate::binary::onlyonce;

/// A running service; it is killed when this value goes.
#[derive(Debug)]
pub(crate) struct Service {
    port: Port,
    args: Vec<String>,
    child: Child,
}

impl Service {
    pub(crate) fn start(store: &str) -> Self {
        Self::start_with(&["--store", store])
    }

    pub(crate) fn start_with(args: &[&str]) -> Self {
        let port = Port::free().unwrap();
        let args: Vec<_> = args.iter().map(|&arg| arg.to_owned()).collect();
        let child = spawn(&port, &args);
        Self { port, args, child }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.get()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    /// Ends it without warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again where it was.
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(&self.port, &self.args);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(port: &Port, args: &[String]) -> Child {
    let listen = format!("127.0.0.1:{}", port.get());
    let mut child = onlyonce(&["serve", "--listen", &listen])
        .args(args)
        // A loaded disk is no failed store, and a client that is not scheduled is not an idle one.
        .env("ONLYONCE_STORE_ANSWER_WITHIN", "30s")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    if !line.starts_with("listening on ") {
        let mut told = String::new();
        let _ = child.kill();
        child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        panic!("it did not start: {line}{told}");
    }
    // Read to its end, so that it never waits for us.
    let mut stderr = child.stderr.take().unwrap();
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    child
}

/// A file of this repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A program that is told line by line when to go on, and tells how far it got. It is killed when this value goes.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, stdin, stdout: BufReader::new(stdout) }
    }

    /// A test of this binary as a program: it does its work when it finds `settings` in its environment.
    pub(crate) fn of_this_binary(test: &str, settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).envs(settings.iter().copied());
        Self::start(&mut command)
    }

    /// Reads up to the line that begins with `word`, and gives the rest of that line.
    pub(crate) fn wait_for(&mut self, word: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "it ended without saying {word}: {all}");
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
            all.push_str(&line);
        }
    }

    pub(crate) fn go_on(&mut self) {
        self.stdin.write_all(b"go on\n").unwrap();
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In such a program: says how far it got.
pub(crate) fn say(word: &str, rest: &str) {
    let mut stdout = std::io::stdout();
    // On a line of its own, whatever the test runner wrote before.
    writeln!(stdout, "\n{word} {rest}").unwrap();
    stdout.flush().unwrap();
}

/// In such a program: stands still until it may go on.
pub(crate) fn stand_still() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}
