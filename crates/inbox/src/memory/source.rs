//! One consumer of the broker in this process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{Shared, Trouble};
use crate::source::{
    Delivery, Extended, Horizon, Settled, Settlement, Source, SourceError, SourceErrorKind, SourceFuture, Tag,
};

/// Gives every consumer a number of its own.
static CONSUMERS: AtomicU64 = AtomicU64::new(0);

/// One consumer of a [`MemoryBroker`](super::MemoryBroker). Dropping it is its crash: others get what it had.
pub struct MemorySource {
    shared: Arc<Shared>,
    consumer: u64,
    is_closed: AtomicBool,
}

impl MemorySource {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let consumer = CONSUMERS.fetch_add(1, Ordering::Relaxed);
        Self { shared, consumer, is_closed: AtomicBool::new(false) }
    }

    async fn take(&self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        let Shared { clock, changed, unsettled_max, .. } = &*self.shared;
        loop {
            let change = changed.notified();
            tokio::pin!(change);
            change.as_mut().enable();
            if self.is_closed.load(Ordering::Acquire) {
                return Ok(Vec::new());
            }
            let now = clock.now();
            let (taken, next) = {
                let mut shelf = self.shared.shelf();
                if shelf.meets(Trouble::RefuseFetch) {
                    return Err(away("fetching messages"));
                }
                shelf.take(self.consumer, max, now, *unsettled_max)
            };
            if !taken.is_empty() {
                changed.notify_waiters();
                return Ok(taken);
            }
            match next {
                Some(at) => tokio::select! {
                    () = change => {}
                    () = clock.sleep_until(at) => {}
                },
                None => change.await,
            }
        }
    }

    fn give_back(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.shared.shelf().take_back_from(self.consumer);
        self.shared.changed.notify_waiters();
    }
}

impl Source for MemorySource {
    fn fetch(&self, max: usize) -> SourceFuture<'_, Vec<Delivery>> {
        Box::pin(self.take(max))
    }

    fn settle(
        &self,
        settlements: Vec<(Tag, Settlement)>,
    ) -> SourceFuture<'_, Vec<Result<Settled, SourceError>>> {
        Box::pin(async move {
            let now = self.shared.clock.now();
            let results = {
                let mut shelf = self.shared.shelf();
                let mut settle = |(tag, settlement): (Tag, Settlement)| {
                    if let Some(kind) = shelf.refusal(&settlement) {
                        return Err(SourceError::new(kind, "settling a delivery"));
                    }
                    Ok(if shelf.settle(tag, settlement, now) { Settled::Settled } else { Settled::Gone })
                };
                settlements.into_iter().map(&mut settle).collect()
            };
            self.shared.changed.notify_waiters();
            Ok(results)
        })
    }

    fn extend<'a>(&'a self, tags: &'a [Tag]) -> SourceFuture<'a, Vec<Result<Extended, SourceError>>> {
        Box::pin(async move {
            let (now, max) = (self.shared.clock.now(), self.shared.unsettled_max);
            let results = {
                let mut shelf = self.shared.shelf();
                let mut extend = |tag: &Tag| {
                    Ok(if shelf.extend(*tag, now, max) { Extended::Extended } else { Extended::Gone })
                };
                tags.iter().map(&mut extend).collect()
            };
            self.shared.changed.notify_waiters();
            Ok(results)
        })
    }

    fn unsettled_max(&self) -> Option<Duration> {
        self.shared.unsettled_max
    }

    fn horizon(&self) -> Horizon {
        self.shared.horizon
    }

    fn lag(&self) -> SourceFuture<'_, Option<u64>> {
        Box::pin(async move {
            let shelf = self.shared.shelf();
            Ok(Some(shelf.len().saturating_sub(shelf.out()) as u64))
        })
    }

    fn close(&self) -> SourceFuture<'_, ()> {
        Box::pin(async move {
            self.give_back();
            Ok(())
        })
    }
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemorySource({})", self.consumer)
    }
}

impl Drop for MemorySource {
    fn drop(&mut self) {
        self.give_back();
    }
}

fn away(doing: &'static str) -> SourceError {
    SourceError::new(SourceErrorKind::Unavailable, doing)
}
