//! Three masters that share the slots, each with a replica if asked for.
//!
//! Nothing here depends on how fast the servers notice that one is gone: they would take minutes to, and a replica
//! takes over when it is told to. A busy machine cannot make them do it early.

use std::io;
use std::process::Command;
use std::thread;

use super::{RedisOptions, RedisServer, ask, program};
use crate::servers::Port;
use crate::servers::port::PAUSE;

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// A private cluster.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    bus_ports: Vec<Port>,
}

impl RedisCluster {
    /// Starts three masters, each with `replicas` replicas, and waits until all of them know that all is well.
    pub fn start(replicas: usize) -> io::Result<Self> {
        Self::start_on(replicas, |_| RedisOptions::default())
    }

    /// The same, with servers of one's own choice: masters first, then the replicas of each in the same order.
    pub fn start_on(replicas: usize, options: impl Fn(usize) -> RedisOptions) -> io::Result<Self> {
        let (mut nodes, mut bus_ports) = (Vec::new(), Vec::new());
        for at in 0..MASTERS * (1 + replicas) {
            let bus = Port::free()?;
            let options = options(at)
                .with("cluster-enabled", "yes")
                .with("cluster-config-file", "nodes.conf")
                .with("cluster-node-timeout", "120000")
                .with("cluster-port", &bus.get().to_string());
            nodes.push(RedisServer::start(options)?);
            bus_ports.push(bus);
        }
        let cluster = Self { nodes, bus_ports };
        cluster.join()?;
        Ok(cluster)
    }

    /// Every node: the three masters, then the replicas of each in the same order.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The URL of the cluster: every node is named.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// Waits until every node that answers says that all slots are served.
    pub fn wait_until_well(&self) {
        for node in &self.nodes {
            wait_until(|| node.ask(&["CLUSTER", "INFO"]).is_ok_and(|info| info.contains("cluster_state:ok")));
        }
    }

    /// Waits until every replica has what its master wrote.
    pub fn wait_until_replicated(&self) {
        for node in &self.nodes[..MASTERS] {
            wait_until(|| {
                let info = node.ask(&["INFO", "replication"]).unwrap_or_default();
                let number = |text: &str| text.split([',', '\r', '\n']).next()?.parse::<u64>().ok();
                let written = info.split("master_repl_offset:").nth(1).and_then(number);
                info.split(",offset=").skip(1).map(number).all(|followed| followed >= written)
            });
        }
    }

    /// Kills a master, and lets its replica take over without asking anyone.
    pub fn fail_over(&self, master: usize) -> io::Result<()> {
        self.nodes[master].kill();
        self.nodes[MASTERS + master].ask(&["CLUSTER", "FAILOVER", "TAKEOVER"])?;
        Ok(())
    }

    /// Moves `slots` slots with their keys from one master to another.
    pub fn move_slots(&self, from: usize, to: usize, slots: usize) -> io::Result<()> {
        let name = |at: usize| ask(self.nodes[at].port(), &["CLUSTER", "MYID"]);
        let mut command = Command::new(program("ONLYONCE_REDIS_CLI", "redis-cli"));
        command.args(["--cluster", "reshard", &format!("127.0.0.1:{}", self.nodes[0].port())]);
        command.args(["--cluster-from", &name(from)?, "--cluster-to", &name(to)?]);
        command.args(["--cluster-slots", &slots.to_string(), "--cluster-yes"]);
        let output = command.output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stdout).into_owned()));
        }
        Ok(())
    }

    /// Begins to move one slot: its keys are on the new master, and the slot is not yet. Keys must be plain text.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) -> io::Result<()> {
        let (slot, source, target) = (slot.to_string(), &self.nodes[from], &self.nodes[to]);
        let port = target.port().to_string();
        target.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source.ask(&["CLUSTER", "MYID"])?])?;
        source.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target.ask(&["CLUSTER", "MYID"])?])?;
        for key in source.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"])?.lines() {
            source.ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "60000"])?;
        }
        Ok(())
    }

    /// Ends what [`begin_move`](Self::begin_move) began.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) -> io::Result<()> {
        let id = self.nodes[to].ask(&["CLUSTER", "MYID"])?;
        for node in [to, from] {
            self.nodes[node].ask(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id])?;
        }
        Ok(())
    }

    fn join(&self) -> io::Result<()> {
        for (at, node) in self.nodes.iter().enumerate() {
            node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()])?;
            if at < MASTERS {
                let (first, last) = (at * SLOTS / MASTERS, (at + 1) * SLOTS / MASTERS - 1);
                node.ask(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()])?;
            }
        }
        let all = format!("cluster_known_nodes:{}", self.nodes.len());
        let knows_all = |node: &RedisServer| {
            node.ask(&["CLUSTER", "INFO"]).is_ok_and(|info| info.lines().any(|line| line.trim_end() == all))
        };
        // Again and again: a greeting that is not answered in time is forgotten.
        wait_until(|| {
            for (node, bus) in self.nodes.iter().zip(&self.bus_ports).skip(1) {
                let (port, bus) = (node.port().to_string(), bus.get().to_string());
                let _ = self.nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
            self.nodes.iter().all(knows_all)
        });
        self.wait_until_well();
        for (at, node) in self.nodes.iter().enumerate().skip(MASTERS) {
            let master = self.nodes[at % MASTERS].ask(&["CLUSTER", "MYID"])?;
            wait_until(|| node.ask(&["CLUSTER", "REPLICATE", &master]).is_ok());
            wait_until(|| {
                let info = node.ask(&["INFO", "replication"]);
                info.is_ok_and(|info| info.contains("master_link_status:up"))
            });
        }
        Ok(())
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::park_timeout(PAUSE);
    }
}
