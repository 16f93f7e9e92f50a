//! What an answered command survives, as the servers are set up now.

use std::fmt;
use std::sync::Arc;

use onlyonce_core::store::Durability;

use crate::facts::Persistence;
use crate::node::Node;
use crate::options::Acknowledgement;

/// What an answered command survives, and what it does not: for the promise that is printed at start-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survival {
    name: String,
    masters: usize,
    persistence: Persistence,
    may_evict: bool,
    is_deaf: bool,
    acknowledgement: Acknowledgement,
}

impl Survival {
    pub(crate) fn new(nodes: &[Arc<Node>], acknowledgement: Acknowledgement) -> Self {
        let live: Vec<_> = nodes.iter().filter_map(|node| node.live()).collect();
        Self {
            name: live.first().map(|live| live.facts.name.clone()).unwrap_or_default(),
            masters: nodes.len(),
            // The weakest counts, and one that cannot be asked is the weakest.
            persistence: if live.len() < nodes.len() {
                Persistence::None
            } else {
                live.iter().map(|live| live.facts.persistence).min().unwrap_or_default()
            },
            may_evict: live.iter().any(|live| live.facts.may_evict()),
            is_deaf: live.iter().any(|live| live.deaf.is_some()),
            acknowledgement,
        }
    }

    pub(crate) const fn durability(&self) -> Durability {
        Durability {
            // Records live in another process.
            process_crash: true,
            power_cut: matches!(self.persistence, Persistence::Always),
            // Replication is not waited for, and a fail-over promotes whoever is there.
            node_loss: false,
        }
    }
}

impl fmt::Display for Survival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, masters, .. } = self;
        let servers = if *masters == 1 { "one server".to_owned() } else { format!("{masters} masters") };
        write!(f, "{name}, {servers}: ")?;
        f.write_str(match self.persistence {
            Persistence::Always => "every answer is on its disk first (appendfsync always), so a power cut loses nothing",
            Persistence::Later => "answers reach its disk about a second later (appendfsync is not always), so a crash or power cut of the server may lose the last ones",
            Persistence::None => "it keeps nothing on disk (appendonly no), so a crash or restart of the server loses records",
        })?;
        match self.acknowledgement {
            Acknowledgement::None => {}
            Acknowledgement::Replicas { count, .. } => {
                write!(f, "; {count} replicas have an answer first (WAIT)")?;
            }
            Acknowledgement::Disks { master, replicas, .. } => {
                let own = if master { "its own disk and " } else { "" };
                write!(f, "; {own}those of {replicas} replicas have an answer first (WAITAOF)")?;
            }
        }
        if self.is_deaf {
            f.write_str("; its user may not tell or hear of changes, so waiters look for themselves")?;
        }
        if self.may_evict {
            f.write_str("; IT MAY EVICT RECORDS, whose work then runs again")?;
        }
        f.write_str(
            "; a fail-over may lose acknowledged records: it is noticed, counted, and no new grant is made for one lease",
        )
    }
}
