//! Who waits for which record, for stores that live in this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Watch;
use crate::record::{Record, StateKind};
use crate::scope::RecordId;

/// The watches of a store. Set one, then read the record; change the record, then wake.
#[derive(Debug, Clone, Default)]
pub struct Watches(Arc<Watched>);

#[derive(Debug, Default)]
struct Watched {
    by_id: Mutex<HashMap<RecordId, Arc<Notify>>>,
    /// How many records are watched, so that a change of an unwatched store costs one load.
    ///
    /// ORDER: raised before the watcher reads the record and looked at after the record was changed. The store's own
    /// exclusion orders the read and the change, so either the watcher sees the change or the changer sees the watcher.
    count: AtomicUsize,
}

impl Watches {
    /// Waits for the next [`Watches::wake`] of `id`, from now on and not from when it is first polled.
    pub fn watch(&self, id: &RecordId) -> Watch {
        let mut by_id = self.0.by_id();
        let notify = Arc::clone(by_id.entry(*id).or_default());
        self.0.count.store(by_id.len(), Ordering::SeqCst);
        let leaving = Leaving { watched: Arc::clone(&self.0), id: *id };
        let notified = notify.notified_owned();
        Watch::new(async move {
            let _leaving = leaving;
            notified.await;
        })
    }

    /// Wakes whoever waits for `id`. To be called after the change can be read.
    pub fn wake(&self, id: &RecordId) {
        if self.0.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut by_id = self.0.by_id();
        if let Some(notify) = by_id.remove(id) {
            notify.notify_waiters();
            self.0.count.store(by_id.len(), Ordering::SeqCst);
        }
    }

    /// How many records are watched.
    pub fn len(&self) -> usize {
        self.0.count.load(Ordering::SeqCst)
    }

    /// Whether no record is watched.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whether a waiter must hear of this change: not of a renewal or a step, after which a claim is answered as before.
pub fn is_worth_waking(before: Option<&Record>, after: Option<&Record>) -> bool {
    let in_flight = |record: &Record| record.kind() == StateKind::InFlight;
    match (before, after) {
        (Some(before), Some(after)) => {
            !(in_flight(before) && in_flight(after) && before.fence == after.fence)
        }
        _ => true,
    }
}

impl Watched {
    fn by_id(&self) -> MutexGuard<'_, HashMap<RecordId, Arc<Notify>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch that ends, woken or not, leaves nothing behind.
struct Leaving {
    watched: Arc<Watched>,
    id: RecordId,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut by_id = self.watched.by_id();
        // One in the map and one in this watch: nobody else waits.
        if by_id.get(&self.id).is_some_and(|notify| Arc::strong_count(notify) <= 2) {
            by_id.remove(&self.id);
            self.watched.count.store(by_id.len(), Ordering::SeqCst);
        }
    }
}
