//! A private server: its own folder, a socket that nobody else knows, and an end by process id.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onlyonce_bench::machine;

use crate::Result;

/// How long a server may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_mins(2);
/// How often a server that starts or stops is looked at.
pub(super) const PAUSE: Duration = Duration::from_millis(2);

/// Who a server runs as.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The user `name` when this is root, who may not run every server; nobody else can change who they are.
    pub(super) fn instead_of_root(name: &str) -> Result<Option<Self>> {
        if number(&["-u"])? != 0 {
            return Ok(None);
        }
        Ok(Some(Self { uid: number(&["-u", name])?, gid: number(&["-g", name])? }))
    }

    /// Gives `folder` to the user.
    pub(super) fn own(self, folder: &Path) -> Result<()> {
        Ok(chown(folder, Some(self.uid), Some(self.gid))?)
    }

    pub(super) fn run(self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }
}

fn number(arguments: &[&str]) -> Result<u32> {
    Ok(machine::output(Command::new("id").args(arguments))?.trim().parse()?)
}

/// A running server. It is stopped when this is dropped.
pub(super) struct Server {
    child: Child,
    /// Where its socket is: beside its files the path could be longer than a socket's may be.
    sockets: PathBuf,
}

impl Server {
    /// Starts `command`, which writes what it has to say to the file `log`.
    pub(super) fn start(command: &mut Command, log: &Path, sockets: PathBuf) -> Result<Self> {
        let log = fs::File::create(log)?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        let child =
            child.map_err(|error| format!("starting {}: {error}", command.get_program().display()))?;
        Ok(Self { child, sockets })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error if the server has ended.
    pub(super) fn check(&mut self, log: &Path) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let said = fs::read_to_string(log).unwrap_or_default();
                let last: Vec<_> = said.lines().rev().take(5).collect();
                Err(format!("the server ended ({status}): {}", last.join(" / ")).into())
            }
        }
    }
}

/// A new folder for sockets.
pub(super) fn sockets(user: Option<User>) -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("onlyonce-bench-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    if let Some(user) = user {
        user.own(&folder)?;
    }
    Ok(folder)
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGINT is PostgreSQL's fast shutdown, and Redis ends in order too.
        let _ = Command::new("kill").args(["-s", "INT", &self.child.id().to_string()]).status();
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > STOP_MAX {
                let _ = self.child.kill();
            }
            std::thread::sleep(PAUSE);
        }
        let _ = fs::remove_dir_all(&self.sockets);
    }
}
