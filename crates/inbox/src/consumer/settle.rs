//! Settles deliveries, many in one round trip, until the source has taken each: one that is left unsettled on a live
//! connection is stuck.
//!
//! What the source does not take goes aside and is tried again on a schedule of its own: nobody else waits for it.

mod aside;

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
/// How soon one that was refused is: that does not change by itself.
const REFUSED: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
/// When a message that cannot be dead-lettered is delivered again.
const UNBURIED: Duration = Duration::from_mins(1);
/// The longest that a delivery is held back here which the broker would not delay itself: it takes up a place.
const HELD_BACK_MAX: Duration = Duration::from_mins(1);

/// Where settlements go: tasks of their own, and the extensions of what is not settled yet.
pub(crate) struct Outlet {
    settlers: JoinHandle<()>,
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
        // INVARIANT: never full, because each that is aside holds one of as many places.
        let (aside, put_aside) = mpsc::channel(in_flight_max);
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
            settlers: tokio::spawn(async move {
                tokio::join!(settler.settle_all(to_settle, aside), settler.settle_aside(put_aside));
            }),
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
            _ = &mut self.settlers => {}
            () = self.clock.sleep(patience) => {
                tracing::warn!("the source took no settlements while shutting down: it will deliver again");
                self.settlers.abort();
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

/// One that the source did not take, and when to try again.
struct Unsettled {
    settling: Settling,
    failures: u32,
    again_in: Duration,
}

struct Settler {
    source: Arc<dyn Source>,
    clock: Arc<dyn Clock>,
    flights: Arc<Flights>,
    counts: Arc<Counts>,
}

impl Settler {
    /// Tries each once. Returns when all senders are gone.
    async fn settle_all(&self, mut to_settle: mpsc::Receiver<Settling>, aside: mpsc::Sender<Unsettled>) {
        let mut open: Vec<Settling> = Vec::new();
        while to_settle.recv_many(&mut open, FETCH_MAX).await > 0 {
            // What ends at this very moment goes along.
            tokio::task::yield_now().await;
            while open.len() < FETCH_MAX
                && let Ok(settling) = to_settle.try_recv()
            {
                open.push(settling);
            }
            let first = std::mem::take(&mut open).into_iter().map(|settling| (settling, 0)).collect();
            for unsettled in self.settle(first).await {
                let _ = aside.send(unsettled).await;
            }
        }
    }

    /// Settles what can be settled, and gives back the rest. Each comes with how often it has failed before.
    async fn settle(&self, open: Vec<(Settling, u32)>) -> Vec<Unsettled> {
        let asked = open.iter().map(|(settling, _)| (settling.tag, settling.settlement.clone())).collect();
        let results = match self.source.settle(asked).await {
            Ok(results) => results,
            Err(error) => {
                tracing::warn!(%error, source = ?std::error::Error::source(&error), "settling failed");
                Vec::new()
            }
        };
        // A source that answers too few breaks its contract; what it left out is asked for again.
        let results = results.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        open.into_iter()
            .zip(results)
            .filter_map(|((settling, failures), result)| self.judge(settling, failures + 1, result))
            .collect()
    }

    /// `None` when the delivery is settled.
    fn judge(
        &self,
        settling: Settling,
        failures: u32,
        result: Option<Result<Settled, SourceError>>,
    ) -> Option<Unsettled> {
        let error = match result {
            None => return Some(Unsettled { settling, failures, again_in: AGAIN.after(failures) }),
            Some(Err(error)) => error,
            Some(Ok(settled)) => {
                self.flights.land(settling.tag);
                self.counts.settled(settled == Settled::Gone);
                return None;
            }
        };
        tracing::warn!(%error, source = ?std::error::Error::source(&error), "settling a delivery failed");
        if error.is_retryable() {
            return Some(Unsettled { settling, failures, again_in: AGAIN.after(failures) });
        }
        self.counts.refused();
        Some(otherwise(settling, failures))
    }
}

/// How a delivery is settled whose settlement was refused: on no account is it left as it is.
fn otherwise(mut settling: Settling, failures: u32) -> Unsettled {
    match &mut settling.settlement {
        // It must not be lost: it comes again, and is dead-lettered when that works.
        Settlement::DeadLetter { .. } => {
            settling.settlement = Settlement::Retry { after: UNBURIED };
            Unsettled { settling, failures: 0, again_in: Duration::ZERO }
        }
        // What the broker cannot delay is held back here, then given back, which needs no rights and no place to wait.
        Settlement::Retry { after } if !after.is_zero() => {
            let again_in = std::mem::take(after).min(HELD_BACK_MAX);
            Unsettled { settling, failures: 0, again_in }
        }
        // Somebody has to change something; meanwhile it stays ours, and its place is taken.
        Settlement::Retry { .. } | Settlement::Ack => {
            Unsettled { settling, failures, again_in: REFUSED.after(failures) }
        }
    }
}
