//! Connections for calls that are waited for with `WAIT`: apart from the others, which must not be held up behind them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::aio::MultiplexedConnection;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Connections that are opened when they are needed, and used by one call at a time: a wait holds up all behind it.
pub(super) struct Waiting {
    free: Mutex<Vec<MultiplexedConnection>>,
    turns: Semaphore,
}

/// A turn, and a connection if one is free.
pub(super) struct Turn<'a> {
    waiting: &'a Waiting,
    /// What goes back to the others at the end; nothing when it broke.
    pub(super) connection: Option<MultiplexedConnection>,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Waiting {
    /// At most `connections` at a time.
    pub(super) fn new(connections: usize) -> Self {
        Self { free: Mutex::default(), turns: Semaphore::new(connections) }
    }

    pub(super) async fn turn(&self) -> Turn<'_> {
        // It is never closed, so there is always a permit in the end.
        let permit = self.turns.acquire().await.ok();
        let connection = self.free().pop();
        Turn { waiting: self, connection, _permit: permit }
    }

    fn free(&self) -> MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.waiting.free().extend(self.connection.take());
    }
}
