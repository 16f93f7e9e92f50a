//! How much a namespace uses, and who is refused for it before a claim is made.
//!
//! The store is asked at most once a second; what was granted since is counted here. A bound on what one tenant can do to
//! the others, not an invoice.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_core::record::StateKind;
use onlyonce_core::store::Stats;
use onlyonce_core::{Quota, RecordId, StoreError, Timestamp};

use super::namespace::Namespace;

/// How old what the store said may be.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// What is known of a namespace's use.
#[derive(Debug, Default)]
pub(crate) struct Usage(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    stats: Stats,
    asked_at: Option<Timestamp>,
    /// Grants since the store was asked.
    granted: u64,
}

impl Usage {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a grant.
    pub(crate) fn granted(&self) {
        self.known().granted += 1;
    }

    fn over(&self, quota: &Quota) -> Option<Over> {
        let known = self.known();
        let reached = |max: Option<u64>, used: u64| max.is_some_and(|max| used >= max);
        if reached(quota.in_flight_max.map(u64::from), known.stats.in_flight + known.granted) {
            return Some(Over::InFlight);
        }
        let is_full = reached(quota.records_max, known.stats.records() + known.granted)
            || reached(quota.bytes_max, known.stats.bytes);
        is_full.then_some(Over::Kept)
    }
}

enum Over {
    InFlight,
    Kept,
}

impl Namespace {
    /// Whether a claim of `id` would take more than `quota` allows.
    pub(crate) async fn is_over(&self, quota: &Quota, id: &RecordId) -> Result<bool, StoreError> {
        if *quota == Quota::default() {
            return Ok(false);
        }
        let now = self.engine.clock().now();
        let is_stale = self.usage.known().asked_at.is_none_or(|at| at.until(now) >= FRESH_FOR);
        if is_stale {
            let stats = self.bounded(Box::pin(self.engine.count())).await?;
            *self.usage.known() = Known { stats, asked_at: Some(now), granted: 0 };
        }
        let Some(over) = self.usage.over(quota) else { return Ok(false) };
        // What is on record takes no more room, and what is done or running already is only told.
        let kind = self.bounded(self.store().lookup(id)).await?.map(|record| record.kind());
        Ok(match over {
            Over::InFlight => !matches!(kind, Some(StateKind::Completed | StateKind::InFlight)),
            Over::Kept => kind.is_none(),
        })
    }
}
