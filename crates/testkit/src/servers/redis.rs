//! Private Redis or Valkey servers: alone, watched by Sentinels, or as a Cluster of three masters.
//!
//! `ONLYONCE_REDIS_SERVER` names another program than `redis-server`, so that the same tests run on Valkey.

mod cluster;
mod sentinel;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};

use tempfile::TempDir;

pub use cluster::RedisCluster;
pub use sentinel::RedisSentinel;

use super::{Port, Process};

/// How a private server is to be set up.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// The file of commands and when it is synced (`always`, `everysec`, `no`), or `None` for no persistence at all.
    pub appendfsync: Option<&'static str>,
    /// More of the server's own options, by name and value.
    pub more: Vec<(String, String)>,
}

impl Default for RedisOptions {
    /// Every answered write is on the disk.
    fn default() -> Self {
        Self { appendfsync: Some("always"), more: Vec::new() }
    }
}

impl RedisOptions {
    /// A server that keeps nothing.
    pub fn without_persistence() -> Self {
        Self { appendfsync: None, more: Vec::new() }
    }

    /// Adds one of the server's own options.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.more.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// One private server.
#[derive(Debug)]
pub struct RedisServer {
    // ORDER: the process ends before its folder goes and its port is given back.
    process: Mutex<Option<Process>>,
    folder: TempDir,
    port: Port,
    options: RedisOptions,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    pub fn start(options: RedisOptions) -> io::Result<Self> {
        let server =
            Self { process: Mutex::new(None), folder: tempfile::tempdir()?, port: Port::free()?, options };
        server.restart()?;
        Ok(server)
    }

    /// Its port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port.get()
    }

    /// Where it keeps its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The URL of its first database.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Kills it (SIGKILL), if it runs.
    pub fn kill(&self) {
        drop(self.process().take());
    }

    /// Kills it, if it runs, and starts it again on the same port and folder.
    pub fn restart(&self) -> io::Result<()> {
        let mut process = self.process();
        drop(process.take());
        *process = Some(Process::start(self.command(), is_ready)?);
        Ok(())
    }

    /// Stops it in its tracks.
    pub fn pause(&self) {
        self.process().as_ref().expect("the server runs").pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process().as_ref().expect("the server runs").resume();
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process().as_ref().expect("the server runs").id()
    }

    /// Runs one command through the server's own client and gives what it prints.
    pub fn ask(&self, arguments: &[&str]) -> io::Result<String> {
        ask(self.port(), arguments)
    }

    /// Removes everything it holds.
    pub fn flush(&self) {
        self.ask(&["FLUSHALL"]).expect("FLUSHALL");
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program("ONLYONCE_REDIS_SERVER", "redis-server"));
        command.args(["--bind", "127.0.0.1", "--port", &self.port().to_string(), "--save", "", "--dir"]);
        command.arg(self.folder.path());
        // A master waits for more replicas before it serves the first one, unless told otherwise.
        command.args(["--repl-diskless-sync-delay", "0"]);
        match self.options.appendfsync {
            Some(when) => command.args(["--appendonly", "yes", "--appendfsync", when]),
            None => command.args(["--appendonly", "no"]),
        };
        for (name, value) in &self.options.more {
            command.arg(format!("--{name}")).args(value.split(' '));
        }
        command
    }
}

fn is_ready(line: &str) -> bool {
    line.contains("Ready to accept connections")
}

fn program(variable: &str, usual: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| usual.into())
}

/// Runs one command on the server at `port`.
fn ask(port: u16, arguments: &[&str]) -> io::Result<String> {
    let mut command = Command::new(program("ONLYONCE_REDIS_CLI", "redis-cli"));
    let output = command.args(["-p", &port.to_string()]).args(arguments).output()?;
    let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    // The client ends well also when the server refused.
    let refused = ["ERR", "NOSCRIPT", "READONLY", "LOADING", "CLUSTERDOWN", "NOGOODSLAVE", "INPROG"];
    if !output.status.success() || refused.iter().any(|error| text.starts_with(error)) {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{arguments:?}: {text} {errors}")));
    }
    Ok(text)
}
