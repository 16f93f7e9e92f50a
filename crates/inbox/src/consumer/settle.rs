//! Settles deliveries, many in one round trip, until the source has taken each: one that is left unsettled on a live
//! connection is stuck.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Clock;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Counts;
use super::extend::Flights;
use crate::decision::Backoff;
use crate::source::{FETCH_MAX, Settled, Settlement, Source, SourceError, Tag};

/// How soon a settlement that failed is tried again.
const AGAIN: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(5) };
/// When a message that cannot be dead-lettered is delivered again.
const UNBURIED: Duration = Duration::from_mins(1);

/// Where settlements go: a task of its own, and the extensions of what is not settled yet.
pub(crate) struct Outlet {
    settler: JoinHandle<()>,
    clock: Arc<dyn Clock>,
    flights: Arc<Flights>,
    /// The extensions end with this, however it ends.
    _extending: DropGuard,
}

impl Outlet {
    pub(crate) fn open(
        source: &Arc<dyn Source>,
        clock: &Arc<dyn Clock>,
        counts: &Arc<Counts>,
        in_flight_max: usize,
    ) -> (Self, mpsc::Sender<Settling>) {
        let (settling, to_settle) = mpsc::channel(in_flight_max);
        let flights = Arc::new(Flights::default());
        let settler = Settler {
            source: Arc::clone(source),
            clock: Arc::clone(clock),
            flights: Arc::clone(&flights),
            counts: Arc::clone(counts),
        };
        let ended = CancellationToken::new();
        let extending = Arc::clone(&flights);
        tokio::spawn(extending.keep_extended(Arc::clone(source), Arc::clone(clock), ended.clone()));
        let outlet = Self {
            settler: tokio::spawn(settler.settle_all(to_settle)),
            clock: Arc::clone(clock),
            flights,
            _extending: ended.drop_guard(),
        };
        (outlet, settling)
    }

    /// What is unsettled.
    pub(crate) const fn flights(&self) -> &Arc<Flights> {
        &self.flights
    }

    /// Waits until all is settled, once every sender is gone; no longer than `patience`.
    pub(crate) async fn close(mut self, patience: Duration) {
        tokio::select! {
            _ = &mut self.settler => {}
            () = self.clock.sleep(patience) => {
                tracing::warn!("the source took no settlements while shutting down: it will deliver again");
                self.settler.abort();
            }
        }
    }
}

/// A delivery to be settled, with the place it holds until then.
pub(crate) struct Settling {
    pub(crate) tag: Tag,
    pub(crate) settlement: Settlement,
    pub(crate) _place: OwnedSemaphorePermit,
}

struct Settler {
    source: Arc<dyn Source>,
    clock: Arc<dyn Clock>,
    flights: Arc<Flights>,
    counts: Arc<Counts>,
}

impl Settler {
    /// Returns when all senders are gone and all is settled.
    async fn settle_all(self, mut to_settle: mpsc::Receiver<Settling>) {
        let mut open: Vec<Settling> = Vec::new();
        let mut failures = 0;
        loop {
            if open.is_empty() {
                failures = 0;
                if to_settle.recv_many(&mut open, FETCH_MAX).await == 0 {
                    return;
                }
            } else {
                // Others are not held up by what the source does not take.
                failures += 1;
                self.clock.sleep(AGAIN.after(failures)).await;
                while open.len() < FETCH_MAX {
                    let Ok(next) = to_settle.try_recv() else { break };
                    open.push(next);
                }
            }
            open = self.settle(open).await;
        }
    }

    /// Settles what can be settled, and gives back the rest.
    async fn settle(&self, open: Vec<Settling>) -> Vec<Settling> {
        let asked = open.iter().map(|settling| (settling.tag, settling.settlement.clone())).collect();
        let results = match self.source.settle(asked).await {
            Ok(results) => results,
            Err(error) => {
                tracing::warn!(%error, source = ?std::error::Error::source(&error), "settling failed");
                return open;
            }
        };
        // A source that answers too few breaks its contract; what it left out is asked for again.
        let results = results.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        open.into_iter().zip(results).filter_map(|(settling, result)| self.judge(settling, result)).collect()
    }

    /// `None` when the delivery is settled.
    fn judge(
        &self,
        mut settling: Settling,
        result: Option<Result<Settled, SourceError>>,
    ) -> Option<Settling> {
        let error = match result {
            None => return Some(settling),
            Some(Err(error)) => error,
            Some(Ok(settled)) => {
                self.flights.land(settling.tag);
                self.counts.settled(settled == Settled::Gone);
                return None;
            }
        };
        tracing::warn!(%error, source = ?std::error::Error::source(&error), "settling a delivery failed");
        if error.is_retryable() {
            return Some(settling);
        }
        if let Settlement::DeadLetter { .. } = settling.settlement {
            // It must not be lost: it comes again, and is dead-lettered when that works.
            settling.settlement = Settlement::Retry { after: UNBURIED };
            return Some(settling);
        }
        self.flights.land(settling.tag);
        self.counts.settled(true);
        None
    }
}
