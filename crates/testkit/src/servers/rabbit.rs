//! A private `RabbitMQ` server: its own node name, folders, ports, cookie and port mapper.
//!
//! It takes seconds to start: tests share one where they can.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::restartable::Restartable;
use super::{Port, Process};

/// Debian's own script. The one on the path changes the user and the folder.
const PROGRAM: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// What the runtime and the server are told beside their settings.
const ARGUMENTS: [&str; 4] = [
    // A port mapper that the server started itself would outlive it.
    "-start_epmd false",
    "+sbwt none",
    "+S 2:2",
    // What a queue could not pass on at least once is tried again so soon, in milliseconds, and not after minutes.
    "-rabbit dead_letter_worker_publisher_confirm_timeout 1000",
];

/// One private server.
#[derive(Debug)]
pub struct RabbitServer {
    // ORDER: the process ends before its port mapper, its folder goes and its ports are given back.
    process: Restartable,
    _mapper: Process,
    folder: TempDir,
    port: Port,
    mapper_port: Port,
    node_port: Port,
}

impl RabbitServer {
    /// Starts a server with `settings` (lines of `rabbitmq.conf`) and waits until it answers.
    pub fn start(settings: &[&str]) -> io::Result<Self> {
        let (folder, mapper_port) = (tempfile::tempdir()?, Port::free()?);
        let mut mapper = Command::new("epmd");
        // Without a daemon of its own; it tells that it listens only when asked twice to talk.
        mapper.args(["-d", "-d", "-address", "127.0.0.1", "-port", &mapper_port.get().to_string()]);
        let server = Self {
            process: Restartable::default(),
            _mapper: Process::start(mapper, |line| line.contains("main select() loop"))?,
            folder,
            port: Port::free()?,
            mapper_port,
            node_port: Port::free()?,
        };
        server.write_settings(settings)?;
        server.restart()?;
        Ok(server)
    }

    /// Its port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port.get()
    }

    /// The URL of its first virtual host.
    pub fn url(&self) -> String {
        format!("amqp://127.0.0.1:{}", self.port())
    }

    /// Kills it (SIGKILL), if it runs.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Kills it, if it runs, and starts it again on the same ports and folder.
    pub fn restart(&self) -> io::Result<()> {
        self.process.restart(self.command(), |line| line.contains("Server startup complete"))
    }

    /// Stops it in its tracks.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.resume();
    }

    fn write_settings(&self, settings: &[&str]) -> io::Result<()> {
        let folder = self.folder.path();
        let cookie = folder.join(".erlang.cookie");
        fs::write(&cookie, format!("ONLYONCE{}", self.port()))?;
        // Erlang takes no cookie that others may read.
        fs::set_permissions(&cookie, fs::Permissions::from_mode(0o400))?;
        fs::write(folder.join("plugins"), "[].")?;
        let usual = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\nlog.console = true\nlog.file = false\n{}\n",
            self.port(),
            settings.join("\n"),
        );
        fs::write(folder.join("rabbitmq.conf"), usual)
    }

    fn command(&self) -> Command {
        let folder = self.folder.path();
        let mut command = Command::new(PROGRAM);
        command.current_dir(folder).env("HOME", folder);
        command.env("ERL_EPMD_PORT", self.mapper_port.get().to_string());
        command.env("ERL_EPMD_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_NODENAME", format!("onlyonce-{}@localhost", self.port()));
        command.env("RABBITMQ_DIST_PORT", self.node_port.get().to_string());
        let places: [(&str, &Path); 6] = [
            ("RABBITMQ_CONFIG_FILE", Path::new("rabbitmq")),
            ("RABBITMQ_CONF_ENV_FILE", Path::new("no-such-file")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", Path::new("plugins")),
            ("RABBITMQ_MNESIA_BASE", Path::new("mnesia")),
            ("RABBITMQ_LOG_BASE", Path::new("log")),
            ("RABBITMQ_PID_FILE", Path::new("pid")),
        ];
        command.envs(places.map(|(name, path)| (name, folder.join(path))));
        // The script becomes the server then, and stays no parent of it: what we kill is the server.
        command.env("RUNNING_UNDER_SYSTEMD", "true");
        command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", ARGUMENTS.join(" "));
        command
    }
}
