//! A source made of a broker: one task reads, calls are answered in order, and nothing is lost when a call is dropped.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onlyonce_inbox::{
    Delivery, Extended, Horizon, Settled, Settlement, Source, SourceError, SourceErrorKind, SourceFuture, Tag,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;

/// What is asked of a broker to be a source.
pub(crate) trait Broker: fmt::Debug + Send + Sync + 'static {
    /// What the broker knows a delivery by.
    type Handle: Clone + fmt::Debug + Send + Sync + 'static;

    /// Reads what is asked for into `ledger` until it is told to stop; a broker that is away is tried again.
    ///
    /// What it has taken from the broker by then is in the ledger, or comes back to others by itself.
    fn pump(
        &self,
        ledger: &Ledger<Self::Handle>,
        stop: &CancellationToken,
    ) -> impl Future<Output = ()> + Send;

    /// Settles deliveries, one result for each, in order.
    fn settle(
        &self,
        ledger: &Ledger<Self::Handle>,
        items: &[(Self::Handle, Settlement)],
    ) -> impl Future<Output = Vec<Result<Settled, SourceError>>> + Send;

    /// Says that deliveries are worked on, one result for each, in order.
    fn extend(
        &self,
        handles: &[Self::Handle],
    ) -> impl Future<Output = Vec<Result<Extended, SourceError>>> + Send;

    /// Gives back what was not settled, and lets go. Nothing else is called afterwards.
    fn give_back(&self, handles: Vec<Self::Handle>) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// See [`Source::lag`].
    fn lag(&self) -> impl Future<Output = Result<Option<u64>, SourceError>> + Send;

    /// See [`Source::unsettled_max`].
    fn unsettled_max(&self) -> Option<Duration>;

    /// See [`Source::horizon`].
    fn horizon(&self) -> Horizon;
}

/// A broker with its reader.
#[derive(Debug)]
pub(crate) struct Pumped<B: Broker> {
    broker: Arc<B>,
    ledger: Arc<Ledger<B::Handle>>,
    stop: CancellationToken,
    pump: Mutex<Option<JoinHandle<()>>>,
}

impl<B: Broker> Pumped<B> {
    /// Starts to read when somebody fetches.
    pub(crate) fn start(broker: B) -> Self {
        let (broker, ledger, stop) = (Arc::new(broker), Arc::new(Ledger::new()), CancellationToken::new());
        let pump = tokio::spawn({
            let (broker, ledger, stop) = (Arc::clone(&broker), Arc::clone(&ledger), stop.clone());
            async move { broker.pump(&ledger, &stop).await }
        });
        Self { broker, ledger, stop, pump: Mutex::new(Some(pump)) }
    }

    async fn settle_items(&self, settlements: Vec<(Tag, Settlement)>) -> Vec<Result<Settled, SourceError>> {
        let taken: Vec<_> = settlements
            .into_iter()
            .map(|(tag, settlement)| self.ledger.take(tag).map(|handle| (tag, handle, settlement)))
            .collect();
        let (tags, items): (Vec<_>, Vec<_>) = taken
            .iter()
            .flatten()
            .map(|(tag, handle, settlement)| (*tag, (handle.clone(), settlement.clone())))
            .unzip();
        let (broker, ledger) = (Arc::clone(&self.broker), Arc::clone(&self.ledger));
        // In a task of its own: a caller that goes away leaves nothing half settled.
        let settling = tokio::spawn(async move {
            let mut results = broker.settle(&ledger, &items).await;
            results.resize_with(items.len(), || Err(interrupted()));
            for ((tag, (handle, _)), result) in tags.into_iter().zip(items).zip(&results) {
                if result.is_err() {
                    ledger.restore(tag, handle);
                }
            }
            results
        });
        let mut results = settling.await.unwrap_or_default().into_iter();
        let mut next = || results.next().unwrap_or_else(|| Err(interrupted()));
        taken.iter().map(|item| if item.is_some() { next() } else { Ok(Settled::Gone) }).collect()
    }

    async fn extend_items(&self, tags: &[Tag]) -> Vec<Result<Extended, SourceError>> {
        let found: Vec<_> = tags.iter().map(|tag| self.ledger.handle(*tag)).collect();
        let handles: Vec<_> = found.iter().flatten().cloned().collect();
        let mut results = self.broker.extend(&handles).await.into_iter();
        let mut next = || results.next().unwrap_or_else(|| Err(interrupted()));
        let answers: Vec<_> =
            found.iter().map(|item| if item.is_some() { next() } else { Ok(Extended::Gone) }).collect();
        for ((tag, item), answer) in tags.iter().zip(&found).zip(&answers) {
            // What is being settled at this moment is not ours to throw away: it may come back.
            if item.is_some() && matches!(answer, Ok(Extended::Gone)) {
                self.ledger.take(*tag);
            }
        }
        answers
    }
}

impl<B: Broker> Source for Pumped<B> {
    fn fetch(&self, max: usize) -> SourceFuture<'_, Vec<Delivery>> {
        Box::pin(self.ledger.fetch(max))
    }

    fn settle(
        &self,
        settlements: Vec<(Tag, Settlement)>,
    ) -> SourceFuture<'_, Vec<Result<Settled, SourceError>>> {
        Box::pin(async move { Ok(self.settle_items(settlements).await) })
    }

    fn extend<'a>(&'a self, tags: &'a [Tag]) -> SourceFuture<'a, Vec<Result<Extended, SourceError>>> {
        Box::pin(async move { Ok(self.extend_items(tags).await) })
    }

    fn unsettled_max(&self) -> Option<Duration> {
        self.broker.unsettled_max()
    }

    fn horizon(&self) -> Horizon {
        self.broker.horizon()
    }

    fn lag(&self) -> SourceFuture<'_, Option<u64>> {
        Box::pin(self.broker.lag())
    }

    fn close(&self) -> SourceFuture<'_, ()> {
        Box::pin(async move {
            self.ledger.close();
            self.stop.cancel();
            let pump = self.pump.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(pump) = pump else { return Ok(()) };
            let _ = pump.await;
            self.broker.give_back(self.ledger.drain()).await
        })
    }
}

impl<B: Broker> Drop for Pumped<B> {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A task was ended with its runtime.
fn interrupted() -> SourceError {
    SourceError::new(SourceErrorKind::Unavailable, "settling deliveries")
        .because("the runtime is shutting down")
}

/// How long to wait before a broker that is away is tried again: longer each time, up to some seconds.
#[derive(Debug, Default)]
pub(crate) struct Patience(u32);

impl Patience {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(2);

    /// Waits.
    pub(crate) async fn wait(&mut self) {
        let wait = Self::FIRST.saturating_mul(1 << self.0.min(10)).min(Self::LONGEST);
        self.0 = self.0.saturating_add(1);
        tokio::time::sleep(wait).await;
    }

    /// It answered.
    pub(crate) fn restore(&mut self) {
        self.0 = 0;
    }
}

/// Everything in `queue` whose wait is over; pending while there is nothing.
#[cfg(any(feature = "redis-streams", feature = "kafka"))]
pub(crate) fn expired<T>(
    queue: &mut tokio_util::time::DelayQueue<T>,
    context: &mut std::task::Context<'_>,
) -> std::task::Poll<Vec<T>> {
    let mut found = Vec::new();
    while let std::task::Poll::Ready(Some(expired)) = queue.poll_expired(context) {
        found.push(expired.into_inner());
    }
    if found.is_empty() { std::task::Poll::Pending } else { std::task::Poll::Ready(found) }
}
