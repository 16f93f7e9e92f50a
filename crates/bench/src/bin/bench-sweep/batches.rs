//! What the sweeper's batches were like: how many, how large, how long.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::store::{Stats, Swept};
use onlyonce_core::sweeper::growth::Growth;
use onlyonce_core::sweeper::{Observer, SweepState};
use onlyonce_core::{Fence, StoreError};

/// What was seen of batches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    pub(crate) batches: u64,
    /// Records that went, one by one or with a whole file.
    pub(crate) removed: u64,
    /// The most that one batch touched one by one.
    pub(crate) largest: usize,
    pub(crate) longest: Duration,
    pub(crate) is_over: bool,
    pub(crate) faults: Vec<String>,
}

/// Looks at batches.
#[derive(Debug, Default)]
pub(crate) struct Batches(Mutex<Counted>);

impl Batches {
    pub(crate) fn now(&self) -> Counted {
        self.counted().clone()
    }

    fn counted(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Batches {
    fn elected(&self, _: Option<Fence>) {}

    fn swept(&self, swept: &Swept, took: Duration, _: &SweepState) {
        let mut counted = self.counted();
        counted.batches += 1;
        counted.removed += (swept.removed + swept.dropped) as u64;
        counted.largest = counted.largest.max(swept.touched());
        counted.longest = counted.longest.max(took);
        counted.is_over = !swept.more;
    }

    fn failed(&self, error: &StoreError) {
        self.counted()
            .faults
            .push(format!("a sweep failed: {error}: {:?}", std::error::Error::source(error)));
    }

    fn counted(&self, _: &Stats, _: &Growth) {}

    fn uncounted(&self, _: &StoreError) {}
}
