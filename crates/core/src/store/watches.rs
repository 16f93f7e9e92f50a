//! Who waits for which record, for stores that live in this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Watch;
use crate::scope::RecordId;

/// The watches of a store. Set one, then read the record; change the record, then wake.
#[derive(Debug, Default)]
pub struct Watches {
    by_id: Mutex<HashMap<RecordId, Arc<Notify>>>,
    /// How many records are watched, so that a change of an unwatched store costs one load.
    ///
    /// ORDER: raised before the watcher reads the record and looked at after the record was changed. The store's own
    /// exclusion orders the read and the change, so either the watcher sees the change or the changer sees the watcher.
    watched: AtomicUsize,
}

impl Watches {
    /// Waits for the next [`Watches::wake`] of `id`, from now on and not from when it is first polled.
    pub fn watch(&self, id: &RecordId) -> Watch {
        let mut by_id = self.by_id();
        let notify = Arc::clone(by_id.entry(*id).or_default());
        self.watched.store(by_id.len(), Ordering::SeqCst);
        Watch::new(notify.notified_owned())
    }

    /// Wakes whoever waits for `id`. To be called after the change can be read.
    pub fn wake(&self, id: &RecordId) {
        if self.watched.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut by_id = self.by_id();
        if let Some(notify) = by_id.remove(id) {
            notify.notify_waiters();
            self.watched.store(by_id.len(), Ordering::SeqCst);
        }
    }

    /// Drops the watches nobody waits on any more.
    pub fn forget_unwatched(&self) {
        let mut by_id = self.by_id();
        by_id.retain(|_, notify| Arc::strong_count(notify) > 1);
        self.watched.store(by_id.len(), Ordering::SeqCst);
    }

    fn by_id(&self) -> MutexGuard<'_, HashMap<RecordId, Arc<Notify>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
