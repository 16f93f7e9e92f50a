//! Private Redis or Valkey servers: alone, watched by Sentinels, or as a Cluster of three masters.
//!
//! `ONLYONCE_REDIS_SERVER` and `ONLYONCE_VALKEY_SERVER` name the programs when they are not `redis-server` and
//! `valkey-server` on the path; `cargo xtask test` sets the second.

mod cluster;
mod sentinel;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

pub use cluster::RedisCluster;
pub use sentinel::RedisSentinel;

use super::Port;
use super::restartable::Restartable;

/// How a private server is to be set up.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// The file of commands and when it is synced (`always`, `everysec`, `no`), or `None` for no persistence at all.
    pub appendfsync: Option<&'static str>,
    /// More of the server's own options, by name and value.
    pub more: Vec<(String, String)>,
    /// Whether it is a Valkey.
    pub is_valkey: bool,
    /// By how many seconds its clock is ahead of the machine's. Not for a server with jemalloc, as Debian's Redis: that
    /// asks for the time before it can be told another one.
    pub ahead_seconds: i64,
}

impl Default for RedisOptions {
    /// Every answered write is on the disk.
    fn default() -> Self {
        Self { appendfsync: Some("always"), more: Vec::new(), is_valkey: false, ahead_seconds: 0 }
    }
}

impl RedisOptions {
    /// A server that keeps nothing.
    pub fn without_persistence() -> Self {
        Self { appendfsync: None, ..Self::default() }
    }

    /// A Valkey that has every answered write on the disk.
    pub fn valkey() -> Self {
        Self { is_valkey: true, ..Self::default() }
    }

    /// A server that follows the one at `port`.
    #[must_use]
    pub fn following(self, port: u16) -> Self {
        self.with("replicaof", &format!("127.0.0.1 {port}"))
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
    process: Restartable,
    folder: TempDir,
    port: Port,
    options: RedisOptions,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    pub fn start(options: RedisOptions) -> io::Result<Self> {
        let server = Self {
            process: Restartable::default(),
            folder: tempfile::tempdir()?,
            port: Port::free()?,
            options,
        };
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
        self.process.kill();
    }

    /// Kills it, if it runs, and starts it again on the same port and folder.
    pub fn restart(&self) -> io::Result<()> {
        self.process.restart(self.command(), is_ready)
    }

    /// Stops it in its tracks.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Runs one command through the server's own client and gives what it prints.
    pub fn ask(&self, arguments: &[&str]) -> io::Result<String> {
        ask(self.port(), arguments)
    }

    /// Removes everything it holds.
    pub fn flush(&self) {
        self.ask(&["FLUSHALL"]).expect("FLUSHALL");
    }

    fn command(&self) -> Command {
        let program = if self.options.is_valkey {
            program("ONLYONCE_VALKEY_SERVER", "valkey-server")
        } else {
            program("ONLYONCE_REDIS_SERVER", "redis-server")
        };
        let mut command = Command::new(program);
        if self.options.ahead_seconds != 0 {
            set_ahead(&mut command, self.options.ahead_seconds);
        }
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

/// Has `command` run on a clock that is so many seconds ahead; its timers run as fast as anyone's.
///
/// Not by the program `faketime`: that stands between, and what it started would outlive it.
pub fn set_ahead(command: &mut Command, seconds: i64) {
    command.env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketime.so.1");
    command.env("FAKETIME", format!("{seconds:+}s")).env("DONT_FAKE_MONOTONIC", "1");
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
