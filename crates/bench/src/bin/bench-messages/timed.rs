//! A source that notes when its first message was delivered and when its last one was acknowledged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onlyonce_inbox::{
    Delivery, Extended, Horizon, Settled, Settlement, Source, SourceError, SourceFuture, Tag,
};
use tokio::sync::watch;

/// Another source with a stop-watch.
#[derive(Debug)]
pub(crate) struct Timed {
    source: Arc<dyn Source>,
    expected: u64,
    times: Mutex<Times>,
    stage: watch::Sender<Stage>,
}

#[derive(Debug, Default)]
struct Times {
    first: Option<Instant>,
    last: Option<Instant>,
    acknowledged: u64,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Stage {
    Waiting,
    Delivering,
    Over,
}

impl Timed {
    /// Over when `expected` messages are acknowledged.
    pub(crate) fn new(source: Arc<dyn Source>, expected: u64) -> Self {
        Self { source, expected, times: Mutex::default(), stage: watch::Sender::new(Stage::Waiting) }
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is as far as `stage`.
    pub(crate) async fn reached(&self, stage: Stage) {
        let mut stages = self.stage.subscribe();
        // INVARIANT: the sender is ours.
        let _ = stages.wait_for(|now| *now >= stage).await;
    }

    /// From the first delivery to the last acknowledgement; `None` when it is not over.
    pub(crate) fn took(&self) -> Option<Duration> {
        let times = self.times();
        Some(times.last? - times.first?)
    }

    /// How many messages are acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.times().acknowledged
    }

    fn note(&self, acknowledged: u64) {
        let mut times = self.times();
        times.acknowledged += acknowledged;
        if times.acknowledged >= self.expected && times.last.is_none() {
            times.last = Some(Instant::now());
            self.stage.send_replace(Stage::Over);
        }
    }
}

impl Source for Timed {
    fn fetch(&self, max: usize) -> SourceFuture<'_, Vec<Delivery>> {
        Box::pin(async move {
            let fetched = self.source.fetch(max).await?;
            let mut times = self.times();
            if times.first.is_none() && !fetched.is_empty() {
                times.first = Some(Instant::now());
                self.stage.send_replace(Stage::Delivering);
            }
            Ok(fetched)
        })
    }

    fn settle(
        &self,
        settlements: Vec<(Tag, Settlement)>,
    ) -> SourceFuture<'_, Vec<Result<Settled, SourceError>>> {
        Box::pin(async move {
            let acks: Vec<bool> = settlements.iter().map(|(_, how)| *how == Settlement::Ack).collect();
            let results = self.source.settle(settlements).await?;
            let taken = acks.iter().zip(&results);
            let taken = taken.filter(|(is_ack, result)| **is_ack && matches!(result, Ok(Settled::Settled)));
            self.note(taken.count() as u64);
            Ok(results)
        })
    }

    fn extend<'a>(&'a self, tags: &'a [Tag]) -> SourceFuture<'a, Vec<Result<Extended, SourceError>>> {
        self.source.extend(tags)
    }

    fn unsettled_max(&self) -> Option<Duration> {
        self.source.unsettled_max()
    }

    fn horizon(&self) -> Horizon {
        self.source.horizon()
    }

    fn lag(&self) -> SourceFuture<'_, Option<u64>> {
        self.source.lag()
    }

    fn close(&self) -> SourceFuture<'_, ()> {
        self.source.close()
    }
}
