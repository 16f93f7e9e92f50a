//! Claims whose answer did not come: they may have been granted, and will be asked for again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, Timestamp};
use crate::scope::RecordId;
use crate::store::ById;
use crate::store::tier::HINT_FOR;
use crate::transition::Claim;

/// How long a claim is in doubt: longer than a hint from before it is believed.
const DOUBT_FOR: Duration = HINT_FOR.saturating_mul(2);
/// The most that are remembered: more than are under way at a time.
const DOUBTS_MAX: usize = 1 << 14;

#[derive(Debug, Default)]
pub(super) struct Doubtful {
    until: Mutex<ById<Timestamp>>,
    /// How many there are, so that claims pay one load while all goes well.
    count: AtomicUsize,
}

impl Doubtful {
    /// The claims are being asked for; without [`Asking::answered`] they are in doubt, also when nobody waits any more.
    pub(super) fn asking<'a>(&'a self, claims: &'a [Claim], clock: &'a Arc<dyn Clock>) -> Asking<'a> {
        Asking { doubtful: self, claims, clock }
    }

    pub(super) fn contains(&self, id: &RecordId, now: Timestamp) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.until().get(id).is_some_and(|until| now < *until)
    }

    fn add(&self, claims: &[Claim], now: Timestamp) {
        let mut until = self.until();
        until.retain(|_, until| now < *until);
        for claim in claims.iter().take(DOUBTS_MAX.saturating_sub(until.len())) {
            until.insert(claim.id, now + DOUBT_FOR);
        }
        self.count.store(until.len(), Ordering::Relaxed);
    }

    fn until(&self) -> MutexGuard<'_, ById<Timestamp>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Asking<'a> {
    doubtful: &'a Doubtful,
    claims: &'a [Claim],
    clock: &'a Arc<dyn Clock>,
}

impl Asking<'_> {
    /// The authority has answered.
    pub(super) fn answered(mut self) {
        self.claims = &[];
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.claims.is_empty() {
            self.doubtful.add(self.claims, self.clock.now());
        }
    }
}
