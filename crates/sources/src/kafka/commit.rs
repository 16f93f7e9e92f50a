//! Commits how far partitions have come, and says of each for itself whether that worked.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use onlyonce_inbox::{Settled, SourceError};
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::OwnedMutexGuard;

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
        let passing = |error| Failure { error, is_lost: false };
        let turn = Arc::clone(&self.committing).lock_owned();
        let turn = tokio::time::timeout(self.settings.timeout, turn).await;
        let turn =
            turn.map_err(|_| passing(unavailable(DOING, "an earlier commit has not been answered yet")))?;
        // ORDER: how far they have come is read in turn.
        let mut list = TopicPartitionList::new();
        for place in places {
            if let Some(position) = self.offsets().position(place) {
                let added = list.add_partition_offset(&place.0, place.1, Offset::Offset(position));
                added.map_err(told)?;
            }
        }
        let Some(consumer) = self.consumer().filter(|_| list.count() > 0) else { return Ok(()) };
        let commit = move || consumer.commit(&list, CommitMode::Sync);
        let committed = to_its_end(turn, self.settings.timeout, commit).await.map_err(passing)?;
        committed.map_err(told)
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

/// What `commit` says, if it does `within` that time.
///
/// INVARIANT: the turn is over when `commit` has ended, also when nobody waits for it any more. The client may still make one
/// that was not answered in time: after a newer one, it would set the group back.
async fn to_its_end<T: Send + 'static>(
    turn: OwnedMutexGuard<()>,
    within: Duration,
    commit: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SourceError> {
    let committing = tokio::task::spawn_blocking(move || {
        let committed = commit();
        drop(turn);
        committed
    });
    match tokio::time::timeout(within, committing).await {
        Ok(Ok(committed)) => Ok(committed),
        Ok(Err(error)) => Err(unavailable(DOING, error)),
        Err(_) => Err(unavailable(DOING, "no answer in time")),
    }
}

fn told(error: rdkafka::error::KafkaError) -> Failure {
    Failure { is_lost: is_lost(&error), error: failed(DOING, error) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_commit_that_was_late_is_not_overtaken() {
        let committing = Arc::<tokio::sync::Mutex<()>>::default();
        let (answer, answered) = mpsc::channel();
        let turn = Arc::clone(&committing).lock_owned().await;
        let late = to_its_end(turn, Duration::from_millis(1), move || answered.recv()).await;
        assert!(late.is_err_and(|error| error.is_retryable()));
        assert!(committing.try_lock().is_err(), "the client may still make it");
        answer.send(()).expect("it is waited for");
        let turn = Arc::clone(&committing).lock_owned().await;
        assert_eq!(to_its_end(turn, Duration::MAX, || 7).await.ok(), Some(7), "the next one has its turn");
    }
}
