//! What is measured, and how each is started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use onlyonce_bench::machine;
use onlyonce_bench::workplace::Workplace;

use crate::Result;
use crate::arguments::Arguments;
use crate::commands::{Commands, shown};
use crate::nginx;
use crate::started::Started;

/// More than any run stores in memory: a full store would refuse.
const RECORDS_MAX: &str = "100000000";
const BYTES_MAX: &str = "17179869184";

/// What is measured. In the order of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Nginx,
    Forward,
    Memory,
    Embedded,
    Bare,
    Idempotent,
    Layered,
}

impl Subject {
    pub(crate) const PROXIES: [Self; 4] = [Self::Nginx, Self::Forward, Self::Memory, Self::Embedded];
    pub(crate) const LAYERS: [Self; 3] = [Self::Bare, Self::Idempotent, Self::Layered];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Forward => "bare hyper proxy",
            Self::Memory => "onlyonce, memory:",
            Self::Embedded => "onlyonce, file:",
            Self::Bare => "bare axum handler",
            Self::Idempotent => "axum-idempotent",
            Self::Layered => "onlyonce layer",
        }
    }

    /// Whether it remembers: the others run everything again.
    pub(crate) const fn replays(self) -> bool {
        matches!(self, Self::Memory | Self::Embedded | Self::Idempotent | Self::Layered)
    }

    /// The server of this program that it is, if it is one.
    const fn server(self) -> Option<&'static str> {
        match self {
            Self::Forward => Some("forward"),
            Self::Bare => Some("bare"),
            Self::Idempotent => Some("idempotent"),
            Self::Layered => Some("layered"),
            Self::Nginx | Self::Memory | Self::Embedded => None,
        }
    }
}

/// Which processors are used for what. Nothing: the kernel chooses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pins {
    measured: Option<u32>,
    load: Option<u32>,
}

impl Pins {
    pub(crate) fn new(unpinned: bool) -> Self {
        if unpinned || machine::processors() < 2 {
            Self { measured: None, load: None }
        } else {
            Self { measured: Some(0), load: Some(1) }
        }
    }

    /// A command for what is measured.
    pub(crate) fn measured(self, program: impl AsRef<Path>) -> Command {
        pinned(self.measured, program.as_ref())
    }

    /// A command for what the measured one works with.
    pub(crate) fn load(self, program: impl AsRef<Path>) -> Command {
        pinned(self.load, program.as_ref())
    }

    pub(crate) const fn are_set(self) -> bool {
        self.measured.is_some()
    }
}

fn pinned(processor: Option<u32>, program: &Path) -> Command {
    let Some(processor) = processor else { return Command::new(program) };
    let mut command = Command::new("taskset");
    command.args(["-c", &processor.to_string()]).arg(program);
    command
}

/// Starts servers, each in a folder of its own, and remembers how.
#[derive(Debug)]
pub(crate) struct Starter<'a> {
    workplace: &'a Workplace,
    onlyonce: Option<PathBuf>,
    own: PathBuf,
    pins: Pins,
    number: u32,
    pub(crate) commands: Commands,
}

impl<'a> Starter<'a> {
    pub(crate) fn new(arguments: &Arguments, workplace: &'a Workplace, sidecar: bool) -> Result<Self> {
        let onlyonce = if sidecar { Some(arguments.onlyonce()?) } else { None };
        let commands = Commands::new(workplace.root());
        let (own, pins) = (std::env::current_exe()?, Pins::new(arguments.unpinned));
        Ok(Self { workplace, onlyonce, own, pins, number: 0, commands })
    }

    /// What the proxies are in front of.
    pub(crate) fn upstream(&mut self) -> Result<Started> {
        let mut command = self.pins.load(&self.own);
        command.args(["serve", "upstream"]);
        let folder = self.folder("upstream")?;
        self.start("upstream", &mut command, &folder, None)
    }

    /// Starts `subject`: a proxy in front of `upstream`, a layer without.
    pub(crate) fn subject(&mut self, subject: Subject, upstream: Option<SocketAddr>) -> Result<Started> {
        self.with(subject, upstream, &[])
    }

    /// The same with more arguments.
    pub(crate) fn with(
        &mut self,
        subject: Subject,
        upstream: Option<SocketAddr>,
        more: &[&str],
    ) -> Result<Started> {
        let name = subject.name();
        let folder = self.folder(&name.replace([' ', ',', ':'], ""))?;
        if let Some(server) = subject.server() {
            let mut command = self.pins.measured(&self.own);
            command.args(["serve", server]).args(more);
            command.args(upstream.map(|upstream| upstream.to_string()));
            return self.start(name, &mut command, &folder, None);
        }
        let upstream = upstream.ok_or("a proxy needs an upstream")?;
        if subject == Subject::Nginx {
            let mut command = self.pins.measured("nginx");
            let address = nginx::prepare(&mut command, &folder, upstream)?;
            return self.start(name, command.args(more), &folder, Some(address));
        }
        let mut command = self.pins.measured(self.onlyonce.as_ref().ok_or("no sidecar to start")?);
        command.args(["proxy", "--listen", "127.0.0.1:0", "--threads", "1", "--upstream"]);
        command.arg(format!("http://{upstream}")).arg("--store");
        if subject == Subject::Memory {
            command.arg("memory:");
            command.env("ONLYONCE_STORE_RECORDS_MAX", RECORDS_MAX);
            command.env("ONLYONCE_STORE_BYTES_MAX", BYTES_MAX);
        } else {
            command.arg(format!("file:{}", folder.join("store").display()));
        }
        self.start(name, command.args(more), &folder, None)
    }

    fn start(
        &mut self,
        name: &'static str,
        command: &mut Command,
        folder: &Path,
        address: Option<SocketAddr>,
    ) -> Result<Started> {
        self.commands.note(name, shown(command));
        Started::start(name, command, &folder.join("log"), address)
    }

    fn folder(&mut self, name: &str) -> Result<PathBuf> {
        self.number += 1;
        self.workplace.folder(&format!("{}-{name}", self.number))
    }
}
