//! A clock that stands still unless a workload moves it, and never wakes anyone.
//!
//! No workload may depend on how long it takes: a timer that fires would be counted on a slow machine only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::clock::Sleep;
use onlyonce_core::{Clock, Timestamp};

#[derive(Debug)]
pub(crate) struct StoppedClock(AtomicU64);

impl StoppedClock {
    /// Any time will do that is not near zero.
    pub(crate) const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Self::START.as_millis()))
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.0.store((self.now() + by).as_millis(), Ordering::Relaxed);
    }
}

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn sleep(&self, _: Duration) -> Sleep {
        Box::pin(std::future::pending())
    }

    fn sleep_until(&self, _: Timestamp) -> Sleep {
        Box::pin(std::future::pending())
    }
}
