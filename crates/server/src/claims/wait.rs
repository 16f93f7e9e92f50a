//! Long polls: bounded in time and number, woken and not polled, read-only.

use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_core::store::ById;
use onlyonce_core::{Record, RecordId, hex};
use onlyonce_http::ProblemKind;
use tokio_util::sync::CancellationToken;

use super::namespace::Namespace;
use super::refusal::Refusal;

/// How many wait for each record.
#[derive(Debug)]
pub(crate) struct Waiters {
    counts: Mutex<ById<usize>>,
    most: usize,
}

impl Waiters {
    pub(crate) fn new(most: usize) -> Self {
        Self { counts: Mutex::default(), most }
    }

    fn counts(&self) -> MutexGuard<'_, ById<usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.counts().values().sum()
    }

    pub(crate) fn take_seat(&self, id: RecordId) -> Result<Seat<'_>, Refusal> {
        let mut counts = self.counts();
        let count = counts.entry(id).or_default();
        // At least one may, so the count of a record that stays in the map is never zero.
        if *count >= self.most {
            let detail = format!("{} wait for this record already", self.most);
            return Err(Refusal::for_now(ProblemKind::Overloaded, detail));
        }
        *count += 1;
        Ok(Seat { waiters: self, id })
    }
}

/// One waiter; leaving frees the seat.
pub(crate) struct Seat<'w> {
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

/// Changes with every change of the record. Equal versions of two processes mean equal records.
pub(crate) fn version(record: Option<&Record>) -> String {
    let mut hasher = DefaultHasher::new();
    record.hash(&mut hasher);
    hex::encode(&hasher.finish().to_be_bytes())
}

impl Namespace {
    /// The record once `is_enough` says so, or as it is when the patience ends, the caller is gone or the service stops.
    pub(crate) async fn wait(
        &self,
        id: &RecordId,
        within: Duration,
        gone: &CancellationToken,
        is_enough: impl Fn(Option<&Record>) -> bool,
    ) -> Result<Option<Record>, Refusal> {
        let mut patience = pin!(tokio::time::sleep(within));
        let mut seat = None;
        loop {
            // ORDER: watched first, read second: a change in between is not missed.
            let watch = self.bounded(self.store().watch(id)).await?;
            let record = self.bounded(self.store().lookup(id)).await?;
            if is_enough(record.as_ref()) || patience.is_elapsed() {
                return Ok(record);
            }
            if seat.is_none() {
                seat = Some(self.waiters.take_seat(*id)?);
            }
            tokio::select! {
                () = watch => {}
                () = &mut patience => return Ok(record),
                () = gone.cancelled() => return Ok(record),
                () = self.stopping.cancelled() => return Ok(record),
            }
        }
    }
}
