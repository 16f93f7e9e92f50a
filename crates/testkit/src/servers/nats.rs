//! A private NATS server with `JetStream`.
//!
//! `ONLYONCE_NATS_SERVER` names the program when it is not `nats-server` on the path; `cargo xtask test` sets it.

use std::io;
use std::process::Command;

use tempfile::TempDir;

use super::Port;
use super::restartable::Restartable;

/// One private server.
#[derive(Debug)]
pub struct NatsServer {
    // ORDER: the process ends before its folder goes and its port is given back.
    process: Restartable,
    folder: TempDir,
    port: Port,
}

impl NatsServer {
    /// Starts a server and waits until it answers.
    pub fn start() -> io::Result<Self> {
        let server =
            Self { process: Restartable::default(), folder: tempfile::tempdir()?, port: Port::free()? };
        server.restart()?;
        Ok(server)
    }

    /// Its port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port.get()
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }

    /// Kills it (SIGKILL), if it runs.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Kills it, if it runs, and starts it again on the same port and folder.
    pub fn restart(&self) -> io::Result<()> {
        let program = std::env::var_os("ONLYONCE_NATS_SERVER").unwrap_or_else(|| "nats-server".into());
        let mut command = Command::new(program);
        command.args(["-a", "127.0.0.1", "-p", &self.port().to_string(), "-js", "-sd"]);
        command.arg(self.folder.path());
        self.process.restart(command, |line| line.contains("Server is ready"))
    }

    /// Stops it in its tracks.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.resume();
    }
}
