//! Keeps deliveries from being delivered again while they are worked on, until they are settled or taken away.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlyonce_core::Clock;
use tokio_util::sync::CancellationToken;

use crate::source::{Extended, FETCH_MAX, Source, Tag};

/// Two extensions may fail before the source delivers again.
const EXTENSIONS_PER_MAX: u32 = 3;

/// What is unsettled and still ours.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<HashSet<Tag>>);

impl Flights {
    fn all(&self) -> MutexGuard<'_, HashSet<Tag>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a delivery in.
    pub(crate) fn take_off(&self, tag: Tag) {
        self.all().insert(tag);
    }

    /// Counts it out: it is settled.
    pub(crate) fn land(&self, tag: Tag) {
        self.all().remove(&tag);
    }

    /// Extends everything, in time, until `ended`.
    pub(crate) async fn keep_extended(
        self: Arc<Self>,
        source: Arc<dyn Source>,
        clock: Arc<dyn Clock>,
        ended: CancellationToken,
    ) {
        let Some(unsettled_max) = source.unsettled_max() else { return };
        loop {
            tokio::select! {
                () = clock.sleep(unsettled_max / EXTENSIONS_PER_MAX) => {}
                () = ended.cancelled() => return,
            }
            let tags: Vec<Tag> = self.all().iter().copied().collect();
            for tags in tags.chunks(FETCH_MAX) {
                tokio::select! {
                    () = self.extend(&*source, tags) => {}
                    () = ended.cancelled() => return,
                }
            }
        }
    }

    async fn extend(&self, source: &dyn Source, tags: &[Tag]) {
        let results = match source.extend(tags).await {
            Ok(results) => results,
            Err(error) => return tracing::warn!(%error, "extending deliveries failed"),
        };
        for (tag, result) in tags.iter().zip(results) {
            match result {
                Ok(Extended::Extended) => {}
                // What runs goes on: its claim protects it, and whoever gets the message next finds its outcome.
                Ok(Extended::Gone) => self.land(*tag),
                Err(error) => tracing::warn!(%error, "extending a delivery failed"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use onlyonce_testkit::ManualClock;

    use super::*;
    use crate::memory::MemoryBroker;
    use crate::message::Message;
    use crate::source::Horizon;

    const UNSETTLED_MAX: Duration = Duration::from_secs(6);

    /// Nobody but the extensions sleeps on this clock, so that moving it is exact.
    fn broker() -> (Arc<ManualClock>, MemoryBroker) {
        let clock = Arc::new(ManualClock::default());
        let broker = MemoryBroker::with(clock.clone(), Some(UNSETTLED_MAX), Horizon::Unbounded);
        broker.publish(Message::new("a"));
        (clock, broker)
    }

    #[tokio::test]
    async fn a_delivery_stays_ours_for_as_long_as_it_is_worked_on() {
        let (clock, broker) = broker();
        let (source, flights) = (Arc::new(broker.source()), Arc::new(Flights::default()));
        let tag = source.fetch(1).await.unwrap()[0].tag;
        flights.take_off(tag);
        let ended = CancellationToken::new();
        let extending = flights.clone().keep_extended(source.clone(), clock.clone(), ended.clone());
        let extending = tokio::spawn(extending);
        for round in 1..=9 {
            clock.slept_on_for(UNSETTLED_MAX / 3).await;
            clock.advance(UNSETTLED_MAX / 3);
            broker.until(|broker| broker.extensions() == round).await;
        }
        assert_eq!(
            (broker.out(), broker.deliveries()),
            (1, 1),
            "three times its time, and not delivered again"
        );
        // Taken away: nobody asks for more time for it.
        broker.revoke_all();
        clock.slept_on_for(UNSETTLED_MAX / 3).await;
        clock.advance(UNSETTLED_MAX / 3);
        clock.slept_on_for(UNSETTLED_MAX / 3).await;
        assert!(flights.all().is_empty());
        ended.cancel();
        extending.await.unwrap();
    }
}
