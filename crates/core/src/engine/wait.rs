//! How a duplicate waits for the one that runs: bounded in time and number, woken and not polled, read-only.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Conflict, Engine, EngineError};
use crate::clock::Timestamp;
use crate::scope::RecordId;
use crate::store::Watch;

/// How many wait for each record in this process.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<HashMap<RecordId, usize>>);

impl Waiters {
    fn counts(&self) -> MutexGuard<'_, HashMap<RecordId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.counts().values().sum()
    }

    fn take_seat(&self, id: RecordId, most: usize) -> Option<Seat<'_>> {
        let mut counts = self.counts();
        let count = counts.entry(id).or_default();
        if *count >= most {
            if *count == 0 {
                counts.remove(&id);
            }
            return None;
        }
        *count += 1;
        Some(Seat { waiters: self, id })
    }
}

/// One waiter; leaving frees the seat.
struct Seat<'w> {
    waiters: &'w Waiters,
    id: RecordId,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.waiters.counts().entry(self.id) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The patience of one call.
pub(super) struct Wait<'e> {
    engine: &'e Engine,
    id: RecordId,
    until: Timestamp,
    seat: Option<Seat<'e>>,
    watch: Option<Watch>,
}

impl<'e> Wait<'e> {
    pub(super) fn new(engine: &'e Engine, id: RecordId, patience: Option<Duration>) -> Self {
        let until = engine.shared.clock.now() + patience.unwrap_or(engine.policy.wait);
        Self { engine, id, until, seat: None, watch: None }
    }

    /// Waits until claiming again may give another answer; `false` when the patience is over.
    pub(super) async fn is_worth_another_try(&mut self, conflict: &Conflict) -> Result<bool, EngineError> {
        let Conflict::InFlight { retry_after } = *conflict else {
            return Ok(false);
        };
        let shared = &self.engine.shared;
        let left = shared.clock.now().until(self.until);
        if left.is_zero() || shared.stopping.is_cancelled() {
            return Ok(false);
        }
        if self.seat.is_none() {
            self.seat = shared.waiters.take_seat(self.id, self.engine.policy.waiters_max);
            if self.seat.is_none() {
                return Ok(false);
            }
        }
        if let Some(watch) = self.watch.take() {
            tokio::select! {
                () = watch => {}
                // The end of the lease changes the answer without anyone changing the record.
                () = shared.clock.sleep(left.min(retry_after)) => {}
                () = shared.stopping.cancelled() => {}
            }
            if shared.stopping.is_cancelled() {
                return Ok(false);
            }
        }
        // ORDER: the next watch is set before the next claim, so that a change between the two is not slept through.
        let watch = shared.store.watch(&self.id);
        let watch = shared.bounded(self.engine.policy.store_within, watch).await;
        self.watch = Some(watch.map_err(|error| EngineError::from(error).taken())?);
        Ok(true)
    }
}
