//! A master, a replica, and three Sentinels that promote the replica when they are told to.
//!
//! By themselves they would take minutes to notice that the master is gone: a busy machine must not look like one that
//! is.

use std::fs;
use std::io;
use std::process::Command;
use std::thread;

use tempfile::TempDir;

use super::{RedisOptions, RedisServer, ask, program};
use crate::servers::port::PAUSE;
use crate::servers::{Port, Process};

/// A private master and its replica, watched.
#[derive(Debug)]
pub struct RedisSentinel {
    // ORDER: the watchers end before the watched, and both before their folders and ports.
    sentinels: Vec<Process>,
    nodes: [RedisServer; 2],
    ports: Vec<Port>,
    _folder: TempDir,
}

impl RedisSentinel {
    /// The name under which the Sentinels know the master.
    pub const NAME: &'static str = "onlyonce-test";

    /// Starts everything and waits until the replica follows and the Sentinels know each other.
    pub fn start() -> io::Result<Self> {
        let master = RedisServer::start(RedisOptions::default())?;
        let replica = RedisServer::start(RedisOptions::default().following(master.port()))?;
        let folder = tempfile::tempdir()?;
        let (mut sentinels, mut ports) = (Vec::new(), Vec::new());
        for at in 0..3 {
            let port = Port::free()?;
            let file = folder.path().join(format!("sentinel-{at}.conf"));
            let name = Self::NAME;
            let text = format!(
                "bind 127.0.0.1\nport {}\nsentinel monitor {name} 127.0.0.1 {} 2\n\
                 sentinel down-after-milliseconds {name} 120000\n",
                port.get(),
                master.port(),
            );
            fs::write(&file, text)?;
            let mut command = Command::new(program("ONLYONCE_REDIS_SERVER", "redis-server"));
            command.arg(file).arg("--sentinel");
            sentinels.push(Process::start(command, |line| line.contains("+monitor"))?);
            ports.push(port);
        }
        let started = Self { sentinels, nodes: [master, replica], ports, _folder: folder };
        started.wait_until_watched();
        Ok(started)
    }

    /// The first master, and the replica that becomes the second.
    pub fn nodes(&self) -> &[RedisServer; 2] {
        &self.nodes
    }

    /// The URL that names the Sentinels.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.ports.iter().map(|port| format!("127.0.0.1:{}", port.get())).collect();
        format!("redis-sentinel://{}/{}", hosts.join(","), Self::NAME)
    }

    /// Which port the Sentinels say the master has.
    pub fn master_port(&self) -> Option<u16> {
        let said = ask(self.ports[0].get(), &["SENTINEL", "get-master-addr-by-name", Self::NAME]).ok()?;
        said.lines().nth(1)?.trim().parse().ok()
    }

    /// Kills the master, and has the Sentinels promote the replica.
    pub fn fail_over(&self) {
        self.nodes[0].kill();
        // Refused until the Sentinel has heard of the replica lately.
        while ask(self.ports[0].get(), &["SENTINEL", "FAILOVER", Self::NAME]).is_err() {
            thread::park_timeout(PAUSE);
        }
        while self.master_port() != Some(self.nodes[1].port()) {
            thread::park_timeout(PAUSE);
        }
    }

    /// The processes of the Sentinels.
    pub fn sentinels(&self) -> &[Process] {
        &self.sentinels
    }

    fn wait_until_watched(&self) {
        while !self.nodes[0].ask(&["INFO", "replication"]).is_ok_and(|info| info.contains("state=online")) {
            thread::park_timeout(PAUSE);
        }
        for port in &self.ports {
            let knows = || {
                let said = ask(port.get(), &["SENTINEL", "master", Self::NAME]).unwrap_or_default();
                let field = |name: &str| {
                    said.lines().skip_while(|line| *line != name).nth(1).unwrap_or_default().to_owned()
                };
                field("num-slaves") == "1" && field("num-other-sentinels") == "2"
            };
            while !knows() {
                thread::park_timeout(PAUSE);
            }
        }
    }
}
