//! A cluster: which of its masters serves which slot, learnt from the cluster and kept up to date.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use onlyonce_core::StoreError;
use redis::{ConnectionInfo, Value, cmd};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::slot;
use crate::error;
use crate::node::{Node, Place};
use crate::shared::Shared;
use crate::target::moved_to;

const DOING: &str = "reading the cluster's slots";
/// How often the slots are read while all is well, and while a server is missing.
const REFRESH_EVERY: Duration = Duration::from_secs(10);
const REFRESH_SOON: Duration = Duration::from_millis(500);
/// How many keys there are for a mark, so that there is another one while a slot moves; and how far is looked for them.
const EPOCH_KEYS: usize = 3;
const EPOCH_NUMBERS: u32 = 1024;

/// The masters of a cluster.
pub(crate) struct Cluster {
    inner: Arc<Inner>,
    refresher: AbortHandle,
}

struct Inner {
    shared: Arc<Shared>,
    seeds: Vec<ConnectionInfo>,
    map: RwLock<Arc<Map>>,
    /// Every server that was ever named to us and still is, by address.
    nodes: RwLock<HashMap<(String, u16), Arc<Node>>>,
}

/// Slots and their masters: first and last slot, in order.
#[derive(Default)]
struct Map(Vec<(u16, u16, Arc<Node>)>);

/// A range of slots and where its master is.
type Served = (u16, u16, (String, u16));

impl Cluster {
    /// Reads the slots and connects to every master.
    pub(super) async fn open(shared: &Arc<Shared>, seeds: Vec<ConnectionInfo>) -> Result<Self, StoreError> {
        let inner = Arc::new(Inner {
            shared: Arc::clone(shared),
            seeds,
            map: RwLock::default(),
            nodes: RwLock::default(),
        });
        inner.refresh().await?;
        for node in inner.masters() {
            node.started().await?;
        }
        let refresher = shared.runtime.spawn(keep_fresh(Arc::clone(&inner))).abort_handle();
        Ok(Self { inner, refresher })
    }

    /// The server of a slot.
    pub(super) fn of(&self, slot: u16, doing: &'static str) -> Result<Arc<Node>, StoreError> {
        let map = Arc::clone(&self.inner.map.read().unwrap_or_else(PoisonError::into_inner));
        let at = map.0.partition_point(|(_, last, _)| *last < slot);
        match map.0.get(at) {
            Some((first, _, node)) if *first <= slot => Ok(Arc::clone(node)),
            _ => {
                self.refresh();
                Err(error::unreachable("no server of the cluster serves the record's slot", doing))
            }
        }
    }

    /// Every master that serves a slot.
    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        self.inner.masters()
    }

    /// The server at an address that the cluster named.
    pub(super) fn at(&self, (host, port): (&str, u16)) -> Arc<Node> {
        // Its slots are not known yet: it is used once they are, which is soon.
        self.inner.node(&(host.to_owned(), port), Vec::new())
    }

    /// Has the slots read again soon.
    pub(super) fn refresh(&self) {
        self.inner.shared.slots_changed.notify_one();
    }
}

impl Inner {
    fn masters(&self) -> Vec<Arc<Node>> {
        let map = Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner));
        let mut masters: Vec<Arc<Node>> = Vec::new();
        for (_, _, node) in &map.0 {
            if !masters.iter().any(|known| Arc::ptr_eq(known, node)) {
                masters.push(Arc::clone(node));
            }
        }
        masters
    }

    /// The server at `address`, whose mark is kept under one of `epoch_keys`. A new one begins to connect.
    fn node(&self, address: &(String, u16), epoch_keys: Vec<Vec<u8>>) -> Arc<Node> {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = nodes.get(address) {
            if !epoch_keys.is_empty() {
                node.set_epoch_keys(epoch_keys);
            }
            return Arc::clone(node);
        }
        let place = Place::At(moved_to(&self.seeds[0], &address.0, address.1));
        let node = Arc::new(Node::new(Arc::clone(&self.shared), place, epoch_keys));
        nodes.insert(address.clone(), Arc::clone(&node));
        node
    }

    /// Reads the slots from the first server that answers.
    async fn refresh(&self) -> Result<(), StoreError> {
        let mut failures = Vec::new();
        let mut places: Vec<(String, u16)> =
            self.nodes.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        places.extend(self.seeds.iter().filter_map(address_of));
        for place in places {
            match self.read_slots(&place).await {
                Ok(served) => {
                    self.take(served);
                    return Ok(());
                }
                Err(failure) => failures.push(format!("{}:{}: {failure}", place.0, place.1)),
            }
        }
        Err(error::unreachable(&failures.join("; "), DOING))
    }

    async fn read_slots(&self, place: &(String, u16)) -> Result<Vec<Served>, String> {
        let info = moved_to(&self.seeds[0], &place.0, place.1);
        let mut connection = crate::node::connect_once(&info, self.shared.options.timeout).await?;
        let mut ask = cmd("CLUSTER");
        ask.arg("SLOTS");
        let answer = connection.send_packed_command(&ask).await.map_err(|error| error.to_string())?;
        let Value::Array(ranges) = answer else {
            return Err("it is not part of a cluster: use redis://".to_owned());
        };
        let served: Vec<_> = ranges.into_iter().filter_map(|range| read_range(range, &place.0)).collect();
        if served.is_empty() {
            Err("it knows no slots: the cluster is not made yet".to_owned())
        } else {
            Ok(served)
        }
    }

    /// Takes new slots: servers that serve none are let go, and each mark gets a place among its server's slots.
    fn take(&self, mut served: Vec<Served>) {
        served.sort_unstable_by_key(|(first, ..)| *first);
        let mut masters: HashMap<&(String, u16), Arc<Node>> = HashMap::new();
        for (.., address) in &served {
            masters.entry(address).or_insert_with(|| {
                let own = |slot: u16| {
                    served.iter().any(|(first, last, of)| of == address && (*first..=*last).contains(&slot))
                };
                self.node(address, self.epoch_keys(own))
            });
        }
        let map = served.iter().map(|(first, last, address)| (*first, *last, Arc::clone(&masters[address])));
        let map = Arc::new(Map(map.collect()));
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = map;
        // ORDER: the new map is there before anyone is sent away from a server that it no longer names.
        self.nodes.write().unwrap_or_else(PoisonError::into_inner).retain(|address, node| {
            let is_named = masters.contains_key(address);
            if !is_named {
                node.retire();
            }
            is_named
        });
    }

    /// The first keys for a mark that fall into a server's own slots, each into another one.
    fn epoch_keys(&self, own: impl Fn(u16) -> bool) -> Vec<Vec<u8>> {
        let mut found: Vec<(u16, Vec<u8>)> = Vec::new();
        for number in 0..u32::MAX {
            if found.len() == EPOCH_KEYS || !found.is_empty() && number > EPOCH_NUMBERS {
                break;
            }
            let key = self.shared.key_named(&format!("epoch:{{{number}}}"));
            let slot = slot::of(&key);
            if own(slot) && !found.iter().any(|(known, _)| *known == slot) {
                found.push((slot, key));
            }
        }
        found.into_iter().map(|(_, key)| key).collect()
    }
}

async fn keep_fresh(inner: Arc<Inner>) {
    loop {
        wait_until_stale(&inner).await;
        if let Err(failure) = inner.refresh().await {
            tracing::warn!(error = %failure, "the slots of the Redis cluster cannot be read; it is tried again");
            sleep(REFRESH_SOON).await;
        }
    }
}

/// Returns when the slots were said to have changed, when a server has gone away, or after a while.
async fn wait_until_stale(inner: &Inner) {
    let mut waited = Duration::ZERO;
    while waited < REFRESH_EVERY {
        tokio::select! {
            () = inner.shared.slots_changed.notified() => return,
            () = sleep(REFRESH_SOON) => waited += REFRESH_SOON,
        }
        if inner.masters().iter().any(|node| node.live().is_none()) {
            return;
        }
    }
}

fn address_of(info: &ConnectionInfo) -> Option<(String, u16)> {
    match info.addr() {
        redis::ConnectionAddr::Tcp(host, port) | redis::ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host.clone(), *port))
        }
        _ => None,
    }
}

/// One entry of CLUSTER SLOTS: first slot, last slot, master, replicas. An empty host is the one that was asked.
fn read_range(range: Value, asked: &str) -> Option<Served> {
    let Value::Array(fields) = range else { return None };
    let number =
        |value: &Value| if let Value::Int(number) = value { u16::try_from(*number).ok() } else { None };
    let Some(Value::Array(master)) = fields.get(2) else { return None };
    let host = match master.first()? {
        Value::BulkString(host) if !host.is_empty() => String::from_utf8(host.clone()).ok()?,
        _ => asked.to_owned(),
    };
    Some((number(fields.first()?)?, number(fields.get(1)?)?, (host, number(master.get(1)?)?)))
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.inner.masters()).finish()
    }
}
