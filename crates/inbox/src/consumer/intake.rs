//! Fetches deliveries, each with the place it holds until it is settled: what is unsettled is bounded.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Counts;
use crate::decision::Backoff;
use crate::source::{Delivery, Source, SourceError};

/// How soon a source or a store that is away is asked again.
const AWAY: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };

/// A delivery and its place.
pub(crate) type Placed = (Delivery, OwnedSemaphorePermit);

pub(crate) struct Intake {
    source: Arc<dyn Source>,
    clock: Arc<dyn Clock>,
    counts: Arc<Counts>,
    room: Arc<Semaphore>,
    /// Cancelled when nothing more is to be fetched.
    stopping: CancellationToken,
}

impl Intake {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        clock: Arc<dyn Clock>,
        counts: Arc<Counts>,
        in_flight_max: usize,
        stopping: CancellationToken,
    ) -> Self {
        Self { source, clock, counts, room: Arc::new(Semaphore::new(in_flight_max)), stopping }
    }

    /// The next deliveries, `most` at the most; none when it is time to stop or the source is closed. A source that is away is asked again.
    ///
    /// Never dropped half way by its callers, so that nothing that was fetched is left unsettled.
    pub(crate) async fn next(&self, most: usize) -> Result<Vec<Placed>, SourceError> {
        let mut failures = 0;
        loop {
            let Some(first) = self.unless_stopping(Arc::clone(&self.room).acquire_owned()).await else {
                return Ok(Vec::new());
            };
            // INVARIANT: the semaphore is never closed.
            let Ok(first) = first else { return Ok(Vec::new()) };
            let max = (1 + self.room.available_permits()).min(most);
            match self.unless_stopping(self.source.fetch(max)).await {
                None => return Ok(Vec::new()),
                Some(Ok(deliveries)) => {
                    self.counts.fetched(deliveries.len());
                    return Ok(self.placed(deliveries, first).await);
                }
                Some(Err(error)) if error.is_retryable() => {
                    failures += 1;
                    tracing::warn!(%error, source = ?std::error::Error::source(&error), "fetching failed");
                    self.pause(failures).await;
                }
                Some(Err(error)) => return Err(error),
            }
        }
    }

    /// Waits after so many failures in a row, or until it is time to stop.
    pub(crate) async fn pause(&self, failures: u32) {
        self.unless_stopping(self.clock.sleep(AWAY.after(failures))).await;
    }

    /// `None` when it is time to stop.
    pub(crate) async fn unless_stopping<T>(&self, doing: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => None,
            done = doing => Some(done),
        }
    }

    async fn placed(&self, deliveries: Vec<Delivery>, first: OwnedSemaphorePermit) -> Vec<Placed> {
        let mut first = Some(first);
        let mut placed = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            let place = match first.take() {
                Some(place) => Ok(place),
                None => Arc::clone(&self.room).acquire_owned().await,
            };
            if let Ok(place) = place {
                placed.push((delivery, place));
            }
        }
        placed
    }
}
