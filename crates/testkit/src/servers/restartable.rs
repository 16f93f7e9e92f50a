//! A server that a test may kill, pause and start again while others hold it.

use std::io;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};

use super::Process;

/// The process of one server, or none while it is down.
#[derive(Debug, Default)]
pub(super) struct Restartable(Mutex<Option<Process>>);

impl Restartable {
    /// Kills it (SIGKILL), if it runs.
    pub(super) fn kill(&self) {
        drop(self.process().take());
    }

    /// Kills it, if it runs, and starts `command` in its place.
    pub(super) fn restart(&self, command: Command, is_ready: fn(&str) -> bool) -> io::Result<()> {
        let mut process = self.process();
        drop(process.take());
        *process = Some(Process::start(command, is_ready)?);
        Ok(())
    }

    /// Stops it in its tracks.
    pub(super) fn pause(&self) {
        self.process().as_ref().expect("the server runs").pause();
    }

    /// Lets it go on.
    pub(super) fn resume(&self) {
        self.process().as_ref().expect("the server runs").resume();
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.process().as_ref().expect("the server runs").id()
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.0.lock().unwrap()
    }
}
