//! Starts servers, each in a folder of its own, and remembers how.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::commands::{Commands, shown};
use crate::pins::Pins;
use crate::started::Started;
use crate::workplace::Workplace;

/// More than any run stores in memory: a full store would refuse.
const RECORDS_MAX: &str = "100000000";
const BYTES_MAX: &str = "17179869184";

/// Starts servers.
#[derive(Debug)]
pub struct Starter<'a> {
    workplace: &'a Workplace,
    own: PathBuf,
    pins: Pins,
    number: u32,
    /// How each was started.
    pub commands: Commands,
}

impl<'a> Starter<'a> {
    /// In folders below that of the run.
    pub fn new(workplace: &'a Workplace, pins: Pins) -> Result<Self> {
        let commands = Commands::new(workplace.root());
        Ok(Self { workplace, own: std::env::current_exe()?, pins, number: 0, commands })
    }

    /// What the proxies are in front of: this program's `serve upstream`.
    pub fn upstream(&mut self) -> Result<Started> {
        self.upstream_by("upstream")
    }

    /// The same by another server of this program.
    pub fn upstream_by(&mut self, server: &str) -> Result<Started> {
        let mut command = self.pins.load(&self.own);
        command.args(["serve", server]);
        let folder = self.folder("upstream")?;
        self.start("upstream", &mut command, &folder, None)
    }

    /// A command for a server of this program that is measured.
    pub fn own(&self, server: &str) -> Command {
        let mut command = self.measured(&self.own);
        command.args(["serve", server]);
        command
    }

    /// A command for what is measured.
    pub fn measured(&self, program: impl AsRef<Path>) -> Command {
        self.pins.measured(program)
    }

    /// A command for the sidecar on one thread in front of `upstream`, with its records in `store`.
    pub fn sidecar(&self, onlyonce: &Path, upstream: SocketAddr, store: &str) -> Command {
        self.sidecar_before(onlyonce, &format!("http://{upstream}"), store)
    }

    /// The same in front of a URL.
    pub fn sidecar_before(&self, onlyonce: &Path, upstream: &str, store: &str) -> Command {
        let mut command = self.measured(onlyonce);
        command.args(["proxy", "--listen", "127.0.0.1:0", "--threads", "1", "--upstream", upstream]);
        command.args(["--store", store]);
        if store == "memory:" {
            roomy(&mut command);
        }
        command
    }

    /// Starts `command`. Without `address` it says itself where it listens.
    pub fn start(
        &mut self,
        name: &'static str,
        command: &mut Command,
        folder: &Path,
        address: Option<SocketAddr>,
    ) -> Result<Started> {
        self.commands.note(name, shown(command));
        Started::start(name, command, &folder.join("log"), address)
    }

    /// A new, empty folder for one of them.
    pub fn folder(&mut self, name: &str) -> Result<PathBuf> {
        self.number += 1;
        self.workplace.folder(&format!("{}-{}", self.number, name.replace([' ', ',', ':', '/'], "")))
    }
}

/// Lets the memory store of `command` take more than any run stores.
pub fn roomy(command: &mut Command) {
    command.env("ONLYONCE_STORE_RECORDS_MAX", RECORDS_MAX).env("ONLYONCE_STORE_BYTES_MAX", BYTES_MAX);
}

/// The sidecar's program: the one that was named, or the one beside this program.
pub fn sidecar_program(named: Option<&Path>) -> Result<PathBuf> {
    let program = match named {
        Some(program) => program.to_owned(),
        None => std::env::current_exe()?.with_file_name("onlyonce"),
    };
    if program.is_file() {
        Ok(program)
    } else {
        let build = "build it with `cargo build --release --package onlyonce`, or name it with --onlyonce";
        Err(format!("there is no program {}: {build}", program.display()).into())
    }
}
