//! Hears which partitions come and go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, ConsumerContext, Rebalance};
use tokio::sync::Notify;
use tracing::debug;

use super::offsets::Offsets;

/// Told by the client, on the thread that polls it.
pub(crate) struct Watch {
    offsets: Arc<Mutex<Offsets>>,
    changed: Arc<Notify>,
    has_changed: AtomicBool,
}

impl Watch {
    pub(super) fn new(offsets: Arc<Mutex<Offsets>>, changed: Arc<Notify>) -> Self {
        Self { offsets, changed, has_changed: AtomicBool::new(false) }
    }

    /// Whether partitions came or went since this was asked last.
    pub(super) fn has_changed(&self) -> bool {
        self.has_changed.swap(false, Ordering::Relaxed)
    }
}

impl ClientContext for Watch {}

impl ConsumerContext for Watch {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        match rebalance {
            Rebalance::Assign(list) => {
                for found in list.elements() {
                    offsets.assign((found.topic().into(), found.partition()));
                }
            }
            Rebalance::Revoke(list) => {
                for found in list.elements() {
                    offsets.revoke(&(found.topic().into(), found.partition()));
                }
            }
            Rebalance::Error(error) => debug!(%error, "a rebalance failed"),
        }
        drop(offsets);
        self.has_changed.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }
}
