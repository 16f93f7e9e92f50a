//! The records that somebody in this process watches.

use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::scope::RecordId;
use crate::store::ById;

#[derive(Debug, Clone, Default)]
pub(super) struct Watched(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_id: Mutex<ById<usize>>,
    /// How many watches there are, so that claims in a process that watches nothing pay one load.
    all: AtomicUsize,
}

impl Watched {
    /// `id` is watched until the guard is dropped.
    pub(super) fn begin(&self, id: &RecordId) -> Watching {
        *self.0.by_id().entry(*id).or_default() += 1;
        self.0.all.fetch_add(1, Ordering::Relaxed);
        Watching { counts: Arc::clone(&self.0), id: *id }
    }

    pub(super) fn contains(&self, id: &RecordId) -> bool {
        self.0.all.load(Ordering::Relaxed) > 0 && self.0.by_id().contains_key(id)
    }
}

impl Counts {
    fn by_id(&self) -> MutexGuard<'_, ById<usize>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct Watching {
    counts: Arc<Counts>,
    id: RecordId,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.counts.all.fetch_sub(1, Ordering::Relaxed);
        if let Entry::Occupied(mut count) = self.counts.by_id().entry(self.id) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}
