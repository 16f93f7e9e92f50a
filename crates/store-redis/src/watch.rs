//! Waiters: woken by what the server tells, by this process's own changes, and by themselves after a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlyonce_core::RecordId;
use onlyonce_core::store::Watch;
use tokio::time::sleep;

use crate::node::Node;
use crate::shared::Shared;

/// How many wait for each record, so that the last one ends the subscription.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Mutex<HashMap<RecordId, usize>>);

impl Subscriptions {
    /// Waits for the next change of the record, from now on.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        node: Arc<Node>,
        id: RecordId,
        key: Vec<u8>,
    ) -> Watch {
        // ORDER: set here before it is set at the server, so that nothing told in between is missed.
        let woken = shared.watches.watch(&id);
        *self.counts().entry(id).or_default() += 1;
        let seat = Seat { subscriptions: Arc::clone(self), shared: Arc::clone(shared), node, id, key };
        // Each waiter asks for itself and waits for the answer: subscribing twice is subscribing.
        seat.node.subscribe(&seat.key, true).await;
        let patience = shared.options.wake_within;
        Watch::new(async move {
            let _seat = seat;
            tokio::select! {
                () = woken => {}
                // A wake-up can be lost with its connection: after a while everyone looks for themselves.
                () = sleep(patience) => {}
            }
        })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<RecordId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One waiter; the last to leave ends the subscription.
struct Seat {
    subscriptions: Arc<Subscriptions>,
    shared: Arc<Shared>,
    node: Arc<Node>,
    id: RecordId,
    key: Vec<u8>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.subscriptions.counts();
        let Some(count) = counts.get_mut(&self.id) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.id);
            let (node, key) = (Arc::clone(&self.node), std::mem::take(&mut self.key));
            self.shared.runtime.spawn(async move { node.subscribe(&key, false).await });
        }
    }
}
