//! Connections to one server that work, or why there are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onlyonce_core::StoreErrorKind;
use redis::ConnectionInfo;
use redis::aio::MultiplexedConnection;

use super::waiting::Waiting;
use crate::facts::Facts;

/// Whether there is a connection, or why not.
#[derive(Default)]
pub(super) struct Link {
    pub(super) live: Option<Arc<Live>>,
    pub(super) why: Option<(StoreErrorKind, Arc<str>)>,
    /// The server serves nothing any more: nobody waits for it.
    pub(super) is_retired: bool,
}

/// Connections that work.
pub(crate) struct Live {
    pub(super) connections: Vec<MultiplexedConnection>,
    next: AtomicUsize,
    pub(super) waiting: Waiting,
    /// Where the server is.
    pub(super) info: ConnectionInfo,
    /// Hears of changes. Apart from the others: a server may tell on it that a channel ended, without being asked.
    pub(super) subscriber: MultiplexedConnection,
    pub(crate) facts: Facts,
    pub(crate) address: String,
    /// Why changes are not told to us, if they are not: then waiters look for themselves.
    pub(crate) deaf: Option<String>,
}

impl Live {
    pub(super) fn new(
        connections: Vec<MultiplexedConnection>,
        subscriber: MultiplexedConnection,
        info: ConnectionInfo,
        facts: Facts,
        deaf: Option<String>,
    ) -> Self {
        let (address, waiting) = (info.addr().to_string(), Waiting::new(connections.len()));
        Self { connections, next: AtomicUsize::new(0), waiting, info, subscriber, facts, address, deaf }
    }

    /// The connection whose turn it is.
    pub(super) fn connection(&self) -> MultiplexedConnection {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        self.connections[next].clone()
    }
}
