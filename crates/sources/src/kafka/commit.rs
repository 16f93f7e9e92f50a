//! Commits how far partitions have come, and says of each for itself whether that worked.

use std::collections::{BTreeSet, HashMap};

use onlyonce_inbox::{Settled, SourceError};
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::failure::{failed, is_lost, unavailable};
use super::offsets::Place;
use super::{Handle, Topics};
use crate::again;

const DOING: &str = "settling deliveries";

/// Why a partition was not committed.
struct Failure {
    error: SourceError,
    /// The broker says that the partition is not ours, and the client may not have heard it yet.
    is_lost: bool,
}

impl Topics {
    /// Commits deliveries that are finished: one result for each, in order.
    pub(super) async fn commit(&self, finished: &[&Handle]) -> Vec<Result<Settled, SourceError>> {
        let places = finished.iter().map(|handle| handle.place.clone()).collect();
        let failures = self.commit_each(&places).await;
        let is_lost = |handle: &&&Handle| failures.get(&handle.place).is_some_and(|failure| failure.is_lost);
        self.hear_of(&finished.iter().filter(is_lost).copied().collect::<Vec<_>>()).await;
        let mut offsets = self.offsets();
        let settled = |handle: &&Handle| match failures.get(&handle.place) {
            None if offsets.committed(handle) => Ok(Settled::Settled),
            // It is ours until the client says otherwise, and is committed when that works: nobody else would deliver it
            // again.
            Some(failure) if offsets.reopen(handle) => Err(again(&failure.error)),
            None | Some(_) => Ok(Settled::Gone),
        };
        finished.iter().map(settled).collect()
    }

    /// Commits how far each of `places` has come. Answers those for which that failed.
    async fn commit_each(&self, places: &BTreeSet<Place>) -> HashMap<Place, Failure> {
        let _turn = self.committing.lock().await;
        let failure = match self.commit_together(places.iter()).await {
            Ok(()) => return HashMap::new(),
            Err(failure) => failure,
        };
        let mut failures = HashMap::new();
        for place in places {
            // The client tells one failure for all of them. When one is refused, others need not be.
            let committed = if failure.error.is_retryable() || places.len() == 1 {
                Err(Failure { error: again(&failure.error), is_lost: failure.is_lost })
            } else {
                self.commit_together([place]).await
            };
            failures.extend(committed.err().map(|failure| (place.clone(), failure)));
        }
        failures
    }

    async fn commit_together(&self, places: impl IntoIterator<Item = &Place>) -> Result<(), Failure> {
        let mut list = TopicPartitionList::new();
        for place in places {
            if let Some(position) = self.offsets().position(place) {
                let added = list.add_partition_offset(&place.0, place.1, Offset::Offset(position));
                added.map_err(told)?;
            }
        }
        let Some(consumer) = self.consumer().filter(|_| list.count() > 0) else { return Ok(()) };
        let committing = tokio::task::spawn_blocking(move || consumer.commit(&list, CommitMode::Sync));
        let passing = |error| Failure { error, is_lost: false };
        match tokio::time::timeout(self.settings.timeout, committing).await {
            Ok(Ok(committed)) => committed.map_err(told),
            Ok(Err(error)) => Err(passing(unavailable(DOING, error))),
            Err(_) => Err(passing(unavailable(DOING, "no answer in time"))),
        }
    }

    /// Waits until the client says that these are not ours any more, as the broker did: not longer than for an answer.
    async fn hear_of(&self, lost: &[&Handle]) {
        let heard = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                // ORDER: listen before looking.
                changed.as_mut().enable();
                if !lost.iter().any(|handle| self.offsets().is_ours(handle)) {
                    return;
                }
                changed.await;
            }
        };
        let _ = tokio::time::timeout(self.settings.timeout, heard).await;
    }
}

fn told(error: rdkafka::error::KafkaError) -> Failure {
    Failure { is_lost: is_lost(&error), error: failed(DOING, error) }
}
