//! A private tansu: a Kafka broker in a process of its own, which keeps its topics in a file and so outlives being killed.
//!
//! `ONLYONCE_TANSU` names the program. It takes long to build: `cargo xtask soak` does so, and sets it.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::port::PAUSE;
use super::restartable::Restartable;
use super::{Port, START_MAX};

/// One private broker.
#[derive(Debug)]
pub struct TansuServer {
    // ORDER: the process ends before its folder goes and its port is given back.
    process: Restartable,
    folder: TempDir,
    port: Port,
    program: OsString,
}

impl TansuServer {
    /// The program, where there is one.
    pub fn program() -> Option<OsString> {
        std::env::var_os("ONLYONCE_TANSU")
    }

    /// Starts `program` and waits until it takes connections.
    pub fn start(program: OsString) -> io::Result<Self> {
        let (process, folder, port) = (Restartable::default(), tempfile::tempdir()?, Port::free()?);
        let server = Self { process, folder, port, program };
        server.restart()?;
        Ok(server)
    }

    /// Where clients find it.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.get())
    }

    /// Kills it (SIGKILL), if it runs.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Kills it, if it runs, and starts it again on the same port and file.
    pub fn restart(&self) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        let listener = format!("tcp://{}", self.address());
        command.current_dir(self.folder.path()).env("RUST_LOG", "warn");
        command.args(["broker", "--storage-engine", "sqlite://tansu.db"]);
        command.args(["--listener-url", &listener, "--advertised-listener-url", &listener]);
        self.process.restart(command, |line| line.contains("listening on"))?;
        // It says so before it does.
        let mut waited = Duration::ZERO;
        while let Err(error) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.get())) {
            if waited > START_MAX {
                return Err(error);
            }
            thread::park_timeout(PAUSE);
            waited += PAUSE;
        }
        Ok(())
    }
}
