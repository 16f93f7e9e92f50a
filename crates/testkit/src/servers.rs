//! Private servers for tests: each in a folder of its own on a port of its own, ended with its guard.
//!
//! Nothing here uses a server that the machine runs, and nothing is downloaded: the programs come from the machine's
//! packages (`cargo xtask test` installs them).

pub mod nats;
pub mod port;
pub mod postgres;
pub mod rabbit;
pub mod redis;
mod restartable;
pub mod tansu;

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, PipeReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub use nats::NatsServer;
pub use port::Port;
pub use postgres::{PgBouncer, PostgresEnd, PostgresServer, Relay, Way};
pub use rabbit::RabbitServer;
pub use redis::{RedisCluster, RedisOptions, RedisSentinel, RedisServer};
pub use tansu::TansuServer;

/// How long a server may take to start. Generous: a loaded machine starts slowly, and a wrong one says so and ends.
const START_MAX: Duration = Duration::from_mins(2);
/// How many of a server's last lines are kept, to be shown when it does not start.
const LINES_KEPT: usize = 20;

/// A running program. It is killed when this is dropped, also by a panic.
#[derive(Debug)]
pub struct Process {
    child: Child,
    said: Said,
}

/// The last lines that a program wrote.
#[derive(Debug, Clone, Default)]
struct Said(Arc<Mutex<VecDeque<String>>>);

impl Process {
    /// Starts `command` and waits for a line that `is_ready` takes for the sign that it serves.
    ///
    /// What it writes is read to the end, so that it never waits for us. An error names its last lines.
    pub fn start(mut command: Command, is_ready: fn(&str) -> bool) -> io::Result<Self> {
        let name = command.get_program().display().to_string();
        let (reader, writer) = io::pipe()?;
        let child = command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).spawn();
        // The command holds the writing end: without this the reader would never see the end.
        drop(command);
        let child = child.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        let process = Self { child, said: Said::default() };
        let (ready, is_up) = sync_channel(1);
        let said = process.said.clone();
        thread::spawn(move || said.listen(reader, is_ready, &ready));
        match is_up.recv_timeout(START_MAX) {
            Ok(()) => Ok(process),
            Err(RecvTimeoutError::Disconnected) => Err(process.failure(&name, "ended")),
            Err(RecvTimeoutError::Timeout) => Err(process.failure(&name, "is not ready")),
        }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it without warning (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal by name (`TERM`, `STOP`).
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "SIG{name} could not be sent");
    }

    /// Stops it in its tracks, as a machine that hangs would: its sockets stay open.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// What it wrote last.
    pub fn last_lines(&self) -> Vec<String> {
        self.said.0.lock().unwrap().iter().cloned().collect()
    }

    fn failure(&self, name: &str, what: &str) -> io::Error {
        io::Error::other(format!("{name} {what}: {}", self.last_lines().join(" / ")))
    }
}

impl Said {
    fn listen(&self, reader: PipeReader, is_ready: fn(&str) -> bool, ready: &SyncSender<()>) {
        // Not `lines()`: a server may write what is no UTF-8, and must be heard out all the same.
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let is_sign = is_ready(&line);
            let mut kept = self.0.lock().unwrap();
            kept.push_back(line);
            if kept.len() > LINES_KEPT {
                kept.pop_front();
            }
            drop(kept);
            if is_sign {
                let _ = ready.try_send(());
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
