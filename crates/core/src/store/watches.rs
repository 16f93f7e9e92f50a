//! Who waits for which record, for stores that live in this process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
    by_id: Mutex<HashMap<RecordId, Waiting>>,
    /// How many records are watched, so that a change of an unwatched store costs one load.
    ///
    /// ORDER: raised before the watcher reads the record and looked at after the record was changed. The store's own
    /// exclusion orders the read and the change, so either the watcher sees the change or the changer sees the watcher.
    count: AtomicUsize,
}

/// Those who wait for the next change of one record.
#[derive(Debug, Default)]
struct Waiting {
    notify: Arc<Notify>,
    watches: usize,
}

impl Watches {
    /// Waits for the next [`Watches::wake`] of `id`, from now on and not from when it is first polled.
    pub fn watch(&self, id: &RecordId) -> Watch {
        let mut by_id = self.0.by_id();
        let waiting = by_id.entry(*id).or_default();
        waiting.watches += 1;
        let notify = Arc::clone(&waiting.notify);
        self.0.count.store(by_id.len(), Ordering::SeqCst);
        let leaving = Leaving { watched: Arc::clone(&self.0), id: *id, notify: Arc::clone(&notify) };
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
        if let Some(waiting) = by_id.remove(id) {
            waiting.notify.notify_waiters();
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
    fn by_id(&self) -> MutexGuard<'_, HashMap<RecordId, Waiting>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch that ends, woken or not, leaves nothing behind.
struct Leaving {
    watched: Arc<Watched>,
    id: RecordId,
    /// Whom it waits with.
    notify: Arc<Notify>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut by_id = self.watched.by_id();
        let Entry::Occupied(mut waiting) = by_id.entry(self.id) else { return };
        // Those who came after the change wait for another one, which is none of this watch's business.
        if !Arc::ptr_eq(&waiting.get().notify, &self.notify) {
            return;
        }
        waiting.get_mut().watches -= 1;
        if waiting.get().watches == 0 {
            waiting.remove();
            self.watched.count.store(by_id.len(), Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use super::*;

    const ID: RecordId = RecordId::from_bytes([1; 32]);

    /// Whether `watch` was woken. After the first time it waits as a task does.
    fn is_woken(watch: &mut Watch) -> bool {
        Pin::new(watch).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn one_who_leaves_keeps_nobody_from_being_woken() {
        let watches = Watches::default();
        let [mut leaves, mut stays] = [(); 2].map(|()| watches.watch(&ID));
        assert!(!is_woken(&mut leaves) && !is_woken(&mut stays));
        drop(leaves);
        assert_eq!(watches.len(), 1);
        watches.wake(&ID);
        assert!(is_woken(&mut stays));
        assert!(watches.is_empty());
    }

    #[test]
    fn those_who_are_woken_late_keep_nobody_from_the_next_change() {
        let watches = Watches::default();
        let [mut one, mut two, three] = [(); 3].map(|()| watches.watch(&ID));
        assert!(!is_woken(&mut one) && !is_woken(&mut two));
        watches.wake(&ID);
        assert!(is_woken(&mut one));
        let mut again = watches.watch(&ID);
        assert!(!is_woken(&mut again) && is_woken(&mut two));
        // Never asked: it is dropped with all that it holds.
        drop(three);
        watches.wake(&ID);
        assert!(is_woken(&mut again));
        assert!(watches.is_empty());
    }

    #[test]
    fn those_who_leave_leave_nothing_behind() {
        let watches = Watches::default();
        let [mut polled, unpolled] = [(); 2].map(|()| watches.watch(&ID));
        assert!(!is_woken(&mut polled));
        drop(unpolled);
        assert_eq!(watches.len(), 1);
        drop(polled);
        assert!(watches.is_empty());
    }
}
