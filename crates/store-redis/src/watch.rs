//! Waiters: woken by what the server tells, by this process's own changes, and by themselves after a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlyonce_core::RecordId;
use onlyonce_core::store::Watch;
use tokio::sync::RwLock;
use tokio::time::{sleep, timeout};

use crate::node::Node;
use crate::shared::Shared;

/// The channels that someone waits on.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Mutex<HashMap<RecordId, Channel>>);

/// How many wait for a record, so that the last one ends the subscription.
#[derive(Debug, Default)]
struct Channel {
    seats: usize,
    /// Read by those who subscribe, written by who ends it: a subscription that begins while another one ends must not
    /// reach the server before that.
    turn: Arc<RwLock<()>>,
}

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
        let turn = self.take_seat(id);
        let seat = Seat { subscriptions: Arc::clone(self), shared: Arc::clone(shared), node, id, key };
        // Each waiter asks for itself and waits for the answer: subscribing twice is subscribing.
        let subscribe = async {
            let _turn = turn.read().await;
            seat.node.subscribe(&seat.key, true).await;
        };
        let _ = timeout(shared.options.timeout, subscribe).await;
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

    fn channels(&self) -> MutexGuard<'_, HashMap<RecordId, Channel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_seat(&self, id: RecordId) -> Arc<RwLock<()>> {
        let mut channels = self.channels();
        let channel = channels.entry(id).or_default();
        channel.seats += 1;
        Arc::clone(&channel.turn)
    }

    /// Gives a seat back. The channel stays until its subscription has ended.
    fn leave(&self, id: &RecordId) -> Option<Arc<RwLock<()>>> {
        let mut channels = self.channels();
        let channel = channels.get_mut(id)?;
        channel.seats -= 1;
        (channel.seats == 0).then(|| Arc::clone(&channel.turn))
    }

    /// Ends the subscription, unless someone came meanwhile.
    async fn end(&self, node: &Node, id: &RecordId, key: &[u8], turn: &RwLock<()>) {
        let _turn = turn.write().await;
        let is_empty = || self.channels().get(id).is_some_and(|channel| channel.seats == 0);
        if is_empty() {
            node.subscribe(key, false).await;
        }
        if is_empty() {
            self.channels().remove(id);
        }
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
        let Some(turn) = self.subscriptions.leave(&self.id) else { return };
        let (subscriptions, node, id) = (Arc::clone(&self.subscriptions), Arc::clone(&self.node), self.id);
        let key = std::mem::take(&mut self.key);
        self.shared.runtime.spawn(async move { subscriptions.end(&node, &id, &key, &turn).await });
    }
}
