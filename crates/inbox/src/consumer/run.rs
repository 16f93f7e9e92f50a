//! The loop itself, and how it ends: what runs is waited for, what has not begun is given back, what does not end is
//! abandoned, and every delivery is settled.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::extend::Flights;
use super::intake::Intake;
use super::settle::{Outlet, Settling};
use super::{Consumer, ConsumerError};

/// A consumer at work.
pub(super) struct Run {
    pub(super) consumer: Consumer,
    pub(super) flights: Arc<Flights>,
    /// Whoever wants to settle a delivery says so here.
    pub(super) settling: mpsc::Sender<Settling>,
    /// One place for each handler that runs.
    pub(super) running: Arc<Semaphore>,
    /// Everything that will settle something.
    pub(super) tasks: TaskTracker,
    /// Cancelled when nothing new may begin.
    pub(super) stopping: CancellationToken,
    /// Whether the store was found to be away since it was last looked at.
    pub(super) store_is_away: AtomicBool,
}

impl Consumer {
    /// Handles messages until `stop` resolves or the source is closed, then drains: running handlers get the time of
    /// `drain_for`, then they are abandoned. Every delivery is settled, and the source is closed.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), ConsumerError> {
        // Those that run, and as many that are being completed and settled.
        let in_flight_max = self.concurrency + self.concurrency.min(self.batch_max);
        let (source, counts) = (Arc::clone(&self.source), Arc::clone(&self.counts));
        let (clock, drain_for) = (Arc::clone(self.engine.clock()), self.drain_for);
        let (outlet, settling) = Outlet::open(&source, &clock, &counts, in_flight_max);
        let stopping = CancellationToken::new();
        let (from, time) = (Arc::clone(&source), Arc::clone(&clock));
        let intake = Intake::new(from, time, counts, in_flight_max, stopping.clone());
        let run = Arc::new(Run {
            flights: Arc::clone(outlet.flights()),
            settling,
            running: Arc::new(Semaphore::new(self.concurrency)),
            tasks: TaskTracker::new(),
            stopping,
            store_is_away: AtomicBool::new(false),
            consumer: self,
        });
        let ended = stopped_by(stop, &run.stopping, run.fetch_all(intake)).await;
        run.drain().await;
        // The last sender: the outlet closes when all is settled.
        drop(run);
        outlet.close(drain_for).await;
        let closed = source.close().await;
        ended.and(closed.map_err(ConsumerError::from))
    }
}

/// Goes on until it ends by itself, which it does soon after `stopping` is cancelled. It is not dropped half way.
pub(crate) async fn stopped_by<T>(
    stop: impl Future<Output = ()> + Send,
    stopping: &CancellationToken,
    going: impl Future<Output = T>,
) -> T {
    tokio::pin!(going);
    tokio::select! {
        biased;
        () = stop => {
            stopping.cancel();
            going.await
        }
        ended = &mut going => ended,
    }
}

impl Run {
    async fn fetch_all(self: &Arc<Self>, intake: Intake) -> Result<(), ConsumerError> {
        let mut store_failures = 0;
        loop {
            if self.store_is_away.swap(false, Ordering::Relaxed) {
                store_failures += 1;
                intake.pause(store_failures).await;
            } else {
                store_failures = 0;
            }
            // ORDER: room to run first. What is claimed and cannot begin would cost an attempt.
            let Some(turns) = intake.unless_stopping(self.turns()).await.flatten() else { return Ok(()) };
            let deliveries = intake.next(turns.num_permits()).await?;
            if deliveries.is_empty() {
                return Ok(());
            }
            self.take(deliveries, turns).await;
        }
    }

    /// Waits until a handler may run, and takes as many such places as there are, up to a batch.
    async fn turns(&self) -> Option<OwnedSemaphorePermit> {
        let mut turns = Arc::clone(&self.running).acquire_owned().await.ok()?;
        // Those that end at this very moment make room too: one claim for many is cheaper than many claims.
        tokio::task::yield_now().await;
        let more = self.running.available_permits().min(self.consumer.batch_max - 1);
        // Nobody but this loop takes any, so they are there.
        let more = u32::try_from(more).ok()?;
        turns.merge(Arc::clone(&self.running).try_acquire_many_owned(more).ok()?);
        Some(turns)
    }

    async fn drain(&self) {
        self.stopping.cancel();
        self.consumer.engine.drain(self.consumer.drain_for).await;
        self.tasks.close();
        let lease = self.consumer.engine.policy().terms().lease.get();
        tokio::select! {
            () = self.tasks.wait() => {}
            // A handler that nothing protects and that does not end.
            () = self.consumer.engine.clock().sleep(lease) => {}
        }
    }
}
