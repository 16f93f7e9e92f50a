//! A server in a process of its own: started, waited for until it answers, and ended by process id.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// How long a server may take to start, and to stop before it is killed.
const START_MAX: Duration = Duration::from_secs(30);
const STOP_MAX: Duration = Duration::from_secs(40);
/// How often a server that starts or stops is looked at.
const PAUSE: Duration = Duration::from_millis(5);

/// What our own servers and `onlyonce proxy` print first.
const LISTENING: &str = "listening on ";

/// A running server. It is ended when this is dropped.
#[derive(Debug)]
pub struct Started {
    child: Child,
    name: &'static str,
    address: SocketAddr,
    log: PathBuf,
}

impl Started {
    /// Starts `command`, which writes what it has to say into `log`. Without `address` it says there where it listens.
    pub fn start(
        name: &'static str,
        command: &mut Command,
        log: &Path,
        address: Option<SocketAddr>,
    ) -> Result<Self> {
        let output = File::create(log)?;
        // Our own servers end when this pipe does, whatever happens to us.
        let child = command.stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output).spawn();
        let child = child.map_err(|error| format!("starting {name}: {error}"))?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut started = Self { child, name, address: address.unwrap_or(nowhere), log: log.to_owned() };
        started.wait(address.is_none())?;
        Ok(started)
    }

    fn wait(&mut self, reads_address: bool) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < START_MAX {
            if reads_address {
                self.address = self.announced().unwrap_or(self.address);
            }
            if self.address.port() != 0 && TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            self.check()?;
            std::thread::sleep(PAUSE);
        }
        Err(format!("{} did not start within {START_MAX:?}: {}", self.name, self.last_words()).into())
    }

    fn announced(&self) -> Option<SocketAddr> {
        let said = fs::read_to_string(&self.log).ok()?;
        let (line, _) = said.split_once(LISTENING)?.1.split_once('\n')?;
        line.trim().parse().ok()
    }

    /// An error if the server has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("{} ended ({status}): {}", self.name, self.last_words()).into()),
        }
    }

    fn last_words(&self) -> String {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<_> = said.lines().rev().take(5).collect();
        last.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // They end in order: nginx cuts off what runs, the sidecar finishes it.
        let _ = Command::new("kill").args(["-s", "TERM", &self.child.id().to_string()]).status();
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > STOP_MAX {
                let _ = self.child.kill();
            }
            std::thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_at_once_is_an_error_with_its_last_words() {
        let log = std::env::temp_dir().join(format!("onlyonce-started-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such option >&2; exit 3"]);
        let error = Started::start("nginx", &mut command, &log, None).unwrap_err().to_string();
        assert!(error.starts_with("nginx ended") && error.contains("no such option"), "{error}");
        fs::remove_file(log).unwrap();
    }
}
