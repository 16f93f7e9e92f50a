//! Private `PostgreSQL` servers: a cluster of their own in a temporary folder, on a port of their own.

mod pooler;
mod relay;
mod template;

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use tempfile::TempDir;

pub use pooler::PgBouncer;
pub use relay::{Relay, Way};

use super::port::PAUSE;
use super::{Port, Process};

/// Where Debian keeps the programs, each version in a folder of its own.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// How often a server is started again before its predecessor's last processes must be gone.
const LINGER_MAX: u32 = 1500;
/// Who owns the databases, without a password: nobody but this machine can reach the server.
pub const POSTGRES_ROLE: &str = "onlyonce";

/// One private server. Syncs are on, as in production.
#[derive(Debug)]
pub struct PostgresServer {
    // ORDER: the process ends before its folder goes and its port is given back.
    process: Mutex<Option<Process>>,
    folder: TempDir,
    port: Port,
    user: Option<User>,
    settings: Vec<String>,
}

/// How a server is made to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostgresEnd {
    /// SIGQUIT: no checkpoint, recovery at the next start.
    Immediate,
    /// SIGKILL of the first process; the others notice and end.
    Killed,
}

impl PostgresServer {
    /// Starts a server with `settings` (`name=value`) on top of the defaults and waits until it answers.
    pub fn start(settings: &[&str]) -> io::Result<Self> {
        let server = Self {
            process: Mutex::new(None),
            folder: tempfile::tempdir()?,
            port: Port::free()?,
            user: User::instead_of_root("postgres")?,
            settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
        };
        server.make_cluster()?;
        server.restart()?;
        Ok(server)
    }

    /// Its port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port.get()
    }

    /// The URL of its first database.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The same by way of another port: a proxy or a pooler in between.
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://{POSTGRES_ROLE}@127.0.0.1:{port}/postgres?sslmode=disable")
    }

    /// Where it keeps its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The id of its first process.
    pub fn id(&self) -> Option<u32> {
        self.process().as_ref().map(Process::id)
    }

    /// Starts the server again on what it has stored.
    pub fn restart(&self) -> io::Result<()> {
        self.end(PostgresEnd::Immediate)?;
        let mut process = self.process();
        for again in 0.. {
            match self.start_once() {
                // The last processes of a server that was killed are still about to notice.
                Err(error) if again < LINGER_MAX && error.to_string().contains("still in use") => {
                    thread::park_timeout(PAUSE);
                }
                started => {
                    *process = Some(started?);
                    break;
                }
            }
        }
        Ok(())
    }

    fn start_once(&self) -> io::Result<Process> {
        let mut command = self.command("postgres")?;
        command.arg("-D").arg(self.cluster()).arg("-k").arg(self.folder.path());
        command.args(["-p", &self.port().to_string(), "-c", "listen_addresses=127.0.0.1"]);
        command.args(["-c", "fsync=on", "-c", "max_connections=60", "-c", "shared_buffers=64MB"]);
        command.args(self.settings.iter().flat_map(|setting| ["-c", setting]));
        Process::start(command, |line| line.contains("ready to accept"))
    }

    /// Ends the server without warning, in the way asked for, and waits until it is gone.
    pub fn end(&self, how: PostgresEnd) -> io::Result<()> {
        let Some(mut process) = self.process().take() else { return Ok(()) };
        match how {
            PostgresEnd::Immediate => {
                process.signal("QUIT");
                process.wait()?;
            }
            PostgresEnd::Killed => process.kill(),
        }
        Ok(())
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap()
    }

    fn cluster(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    fn make_cluster(&self) -> io::Result<()> {
        let (cluster, (version, _)) = (self.cluster(), newest()?);
        if let Some(user) = self.user {
            chown(self.folder.path(), Some(user.uid), Some(user.gid))?;
        }
        if template::copied(version, &cluster)? {
            return Ok(());
        }
        fs::create_dir(&cluster)?;
        fs::set_permissions(&cluster, fs::Permissions::from_mode(0o700))?;
        if let Some(user) = self.user {
            chown(&cluster, Some(user.uid), Some(user.gid))?;
        }
        let mut command = self.command("initdb")?;
        // What is made here need not outlive a crash of the machine; what the server writes is synced.
        command
            .args(["--no-sync", "-U", POSTGRES_ROLE, "-A", "trust", "-E", "UTF8", "--locale=C", "-D"])
            .arg(&cluster);
        let output = command.stdin(Stdio::null()).output()?;
        if output.status.success() {
            return template::keep(version, &cluster);
        }
        Err(io::Error::other(format!("initdb: {}", String::from_utf8_lossy(&output.stderr))))
    }

    /// A program of the newest version, run by someone who may.
    fn command(&self, program: &str) -> io::Result<Command> {
        let mut command = Command::new(newest()?.1.join("bin").join(program));
        command.current_dir(self.folder.path());
        self.run_as_its_user(&mut command);
        Ok(command)
    }

    /// Root may run neither the server nor a pooler.
    fn run_as_its_user(&self, command: &mut Command) {
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // Not killed: it would leave its shared memory and its other processes behind.
        let _ = self.end(PostgresEnd::Immediate);
    }
}

/// The newest version that is installed, and its folder.
fn newest() -> io::Result<(u32, PathBuf)> {
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let found = fs::read_dir(PROGRAMS)
        .map_err(|error| io::Error::new(error.kind(), format!("{PROGRAMS}: {error}")))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|path| Some((version(&path)?, path)));
    found.max().ok_or_else(|| io::Error::other(format!("no PostgreSQL in {PROGRAMS}")))
}

/// Who a server runs as.
#[derive(Debug, Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The user `name` when this is root, whom `PostgreSQL` refuses to serve; nobody else can change who they are.
    fn instead_of_root(name: &str) -> io::Result<Option<Self>> {
        if number(&["-u"])? != 0 {
            return Ok(None);
        }
        Ok(Some(Self { uid: number(&["-u", name])?, gid: number(&["-g", name])? }))
    }
}

fn number(arguments: &[&str]) -> io::Result<u32> {
    let output = Command::new("id").args(arguments).output()?;
    String::from_utf8_lossy(&output.stdout).trim().parse().map_err(io::Error::other)
}
