//! The sidecar as a process of its own: `onlyonce proxy`, started, asked whether it is ready, stopped, or killed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::Duration;

use onlyonce::clock::{Clock as _, SystemClock};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::place::Place;
use super::system;
use crate::failure::Failure;

/// How long it may take to be ready, and to end.
const START_WITHIN: Duration = Duration::from_mins(1);
const STOP_WITHIN: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// A running sidecar. It ends with this value at the latest.
#[derive(Debug)]
pub(crate) struct Sidecar {
    child: Child,
    process: u32,
}

impl Sidecar {
    /// Starts one and waits until it accepts connections.
    pub(super) async fn start(place: &Place) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(system)?;
        let log = File::options().create(true).append(true).open(place.log()).map_err(system)?;
        let child = Command::new(program)
            .args(["demo", "--sidecar-of", &std::process::id().to_string(), "--"])
            .args(["--upstream", &format!("http://{}", place.upstream)])
            .args(["--listen", &place.listen.to_string()])
            .args(["--admin", &place.admin.to_string()])
            .args(["--store", place.store()])
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(system)?)
            .stderr(log)
            // A group of its own: Ctrl-C at the terminal is for the demo, which then ends the sidecar in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(system)?;
        let process = child.id().unwrap_or_default();
        let mut sidecar = Self { child, process };
        match timeout(START_WITHIN, sidecar.ready(place)).await {
            Ok(ready) => ready?,
            Err(_) => return Err(failed(place, &format!("was not ready within {START_WITHIN:?}"))),
        }
        Ok(sidecar)
    }

    async fn ready(&mut self, place: &Place) -> Result<(), Failure> {
        let clock = SystemClock::new();
        loop {
            // It may have ended, and somebody else may answer at this address.
            if let Some(status) = self.child.try_wait().map_err(system)? {
                return Err(failed(place, &format!("ended: {status}")));
            }
            if TcpStream::connect(place.listen).await.is_ok() {
                return Ok(());
            }
            clock.sleep(ASK_AGAIN).await;
        }
    }

    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// Waits until it has ended by itself, or by somebody else's hand.
    pub(super) async fn ended(&mut self) -> String {
        self.child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    /// Ends it as a power cut would: SIGKILL.
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill().await.map_err(system)
    }

    /// Ends it in order, and by force if that takes too long.
    pub(super) async fn stop(&mut self) {
        if let Some(process) = self.child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()))
        {
            // It may have ended by itself in between, which is as well.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        if timeout(STOP_WITHIN, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

/// Turns this process into `onlyonce proxy`, one that ends with its parent: a demo that is killed leaves nothing behind.
pub(super) fn become_proxy(parent: i32, arguments: &[OsString]) -> Failure {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, getppid, set_parent_process_death_signal};
        if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
            return system(error.into());
        }
        // It may have ended before it could be told about: then there is nobody to serve.
        if getppid().is_none_or(|now| now.as_raw_nonzero().get() != parent) {
            return Failure::Told(0);
        }
    }
    match std::env::current_exe() {
        Ok(program) => system(std::process::Command::new(program).arg("proxy").args(arguments).exec()),
        Err(error) => system(error),
    }
}

/// The failure, with the last lines that the sidecar wrote.
fn failed(place: &Place, what: &str) -> Failure {
    let log = fs::read_to_string(place.log()).unwrap_or_default();
    let last: Vec<&str> = log.lines().rev().take(5).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    Failure::Unavailable(format!("the sidecar {what}\n{}", last.join("\n")).into())
}
