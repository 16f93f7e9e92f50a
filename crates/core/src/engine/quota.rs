//! How much each principal uses of what this process hands out, and who is refused for it before a claim is made.
//!
//! Counted in this process and for this process: what runs now, and what was recorded since it started and has not
//! expired. Whoever is refused costs a look into the store: what is on record, or runs already, is still told.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::shared::Shared;
use super::{Conflict, Engine, EngineError, Request};
use crate::clock::{Timestamp, millis};
use crate::observe::Event;
use crate::policy::Quota;
use crate::record::{Fence, StateKind};
use crate::scope::{RecordId, ScopeTag};

/// In how many steps a retention is counted: a record is counted for up to this part of it too long.
const STEPS_PER_RETENTION: u64 = 16;

/// With fewer principals than this it is not worth looking for those who use nothing any more.
const LOOK_MIN: usize = 1024;

/// What every principal uses. Principals who use nothing are not kept.
#[derive(Debug, Default)]
pub(super) struct Tallies(Mutex<Principals>);

#[derive(Debug, Default)]
struct Principals {
    by_tag: HashMap<ScopeTag, Tally>,
    /// With how many it is looked for those who use nothing any more: twice as many as there were after the last look.
    look_at: usize,
}

impl Principals {
    /// Forgets principals who came once and never again.
    fn look(&mut self, now: Timestamp) {
        if self.by_tag.len() < self.look_at.max(LOOK_MIN) {
            return;
        }
        self.by_tag.retain(|_, tally| {
            tally.forget_gone(now);
            !tally.is_empty()
        });
        self.look_at = 2 * self.by_tag.len();
    }
}

#[derive(Debug, Default)]
struct Tally {
    in_flight: u32,
    records: u64,
    bytes: u64,
    /// Records and bytes by when they are gone, in coarse steps: as many entries for a million records as for ten.
    gone_at: BTreeMap<Timestamp, (u64, u64)>,
}

/// Which limit was reached, and when it may be worth asking again.
enum Full {
    InFlight,
    Kept(Duration),
}

impl Tallies {
    fn all(&self) -> MutexGuard<'_, Principals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `is_on_record`: there is a record already, so that it takes no more room.
    fn enter(&self, tag: ScopeTag, quota: &Quota, now: Timestamp, is_on_record: bool) -> Result<(), Full> {
        let mut all = self.all();
        all.look(now);
        let tally = all.by_tag.entry(tag).or_default();
        tally.forget_gone(now);
        let reached = |max: Option<u64>, used: u64| max.is_some_and(|max| used >= max);
        let full = if reached(quota.in_flight_max.map(u64::from), tally.in_flight.into()) {
            Some(Full::InFlight)
        } else if !is_on_record
            && (reached(quota.records_max, tally.records + u64::from(tally.in_flight))
                || reached(quota.bytes_max, tally.bytes))
        {
            let first = tally.gone_at.keys().next().copied().unwrap_or(now);
            Some(Full::Kept(now.until(first)))
        } else {
            None
        };
        if let Some(full) = full {
            if tally.is_empty() {
                all.by_tag.remove(&tag);
            }
            return Err(full);
        }
        tally.in_flight += 1;
        Ok(())
    }

    /// One more, whatever the limit.
    fn count(&self, tag: ScopeTag) {
        self.all().by_tag.entry(tag).or_default().in_flight += 1;
    }
}

impl Tally {
    fn forget_gone(&mut self, now: Timestamp) {
        while let Some(entry) = self.gone_at.first_entry().filter(|entry| *entry.key() <= now) {
            let (records, bytes) = entry.remove();
            self.records -= records;
            self.bytes -= bytes;
        }
    }

    fn is_empty(&self) -> bool {
        self.in_flight == 0 && self.gone_at.is_empty()
    }
}

/// One execution of a principal. Leaving it makes room for the next.
pub(super) struct Place {
    shared: Arc<Shared>,
    tag: ScopeTag,
}

impl Place {
    /// Counts what the execution leaves behind: a record, if it is the first attempt at it, and the bytes of its answer.
    pub(super) fn leaves(&self, attempt: u32, bytes: usize, kept_for: Duration) {
        let (records, bytes) = (u64::from(attempt == 1), bytes as u64);
        let gone_at = rounded_up(self.shared.clock.now() + kept_for, kept_for);
        let mut all = self.shared.tallies.all();
        let tally = all.by_tag.entry(self.tag).or_default();
        let (so_many, so_large) = tally.gone_at.entry(gone_at).or_default();
        *so_many += records;
        *so_large += bytes;
        tally.records += records;
        tally.bytes += bytes;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.shared.tallies.all();
        if let Some(tally) = all.by_tag.get_mut(&self.tag) {
            tally.in_flight -= 1;
            if tally.is_empty() {
                all.by_tag.remove(&self.tag);
            }
        }
    }
}

/// Answers whoever had the place, if there is one.
pub(super) fn leave_and_tell<T>(place: Option<Place>, next: T, reply: oneshot::Sender<T>) {
    // ORDER: who has its answer may ask again at once.
    drop(place);
    // The caller may be gone: the record is what counts.
    drop(reply.send(next));
}

/// The end of the step in which `moment` falls. Steps are powers of two, so that similar retentions share them.
fn rounded_up(moment: Timestamp, retention: Duration) -> Timestamp {
    let step =
        (millis(retention) / STEPS_PER_RETENTION).max(1).checked_next_power_of_two().unwrap_or(1 << 63);
    Timestamp::from_millis(moment.as_millis().div_ceil(step).saturating_mul(step))
}

/// Who may send a claim.
#[derive(Default)]
pub(super) struct Entered {
    /// `None` when nothing is limited, and for whoever is only told what another attempt did or does.
    pub(super) place: Option<Place>,
    /// Whether the store was asked, and had a record under the key.
    pub(super) is_on_record: bool,
}

impl Engine {
    /// A place among what the principal may run, without a look into the store; `None` when there is none like that.
    pub(super) fn enter_at_once(&self, request: &Request, now: Timestamp) -> Option<Entered> {
        let quota = &self.policy.quota;
        if quota.is_unlimited() {
            return Some(Entered::default());
        }
        let tag = ScopeTag::of(&request.id);
        self.shared.tallies.enter(tag, quota, now, false).ok().map(|()| self.entered(tag, false))
    }

    /// A place among what the principal may run, or why there is none.
    pub(super) async fn enter(
        &self,
        request: &Request,
        now: Timestamp,
    ) -> Result<Result<Entered, Conflict>, EngineError> {
        match self.enter_at_once(request, now) {
            Some(entered) => Ok(Ok(entered)),
            // Boxed: where nothing is limited, every request would carry its room.
            None => Box::pin(self.enter_beyond(request, now)).await,
        }
    }

    /// Beyond a limit it counts what is on record.
    async fn enter_beyond(
        &self,
        request: &Request,
        now: Timestamp,
    ) -> Result<Result<Entered, Conflict>, EngineError> {
        let (shared, quota) = (&self.shared, &self.policy.quota);
        let tag = ScopeTag::of(&request.id);
        let on_record = self.lookup(&request.id).await?.map(|record| record.kind());
        if matches!(on_record, Some(StateKind::Completed | StateKind::InFlight)) {
            // Most likely no execution, so it takes nobody's place.
            return Ok(Ok(Entered { place: None, is_on_record: true }));
        }
        let retry_after = match shared.tallies.enter(tag, quota, now, on_record.is_some()) {
            Ok(()) => return Ok(Ok(self.entered(tag, on_record.is_some()))),
            Err(Full::InFlight) => Duration::from_secs(1),
            Err(Full::Kept(until)) => until,
        };
        shared.observe(&request.id, Fence::default(), Event::OverQuota);
        Ok(Err(Conflict::OverQuota { retry_after }))
    }

    /// The place of an execution that the store has granted. Whoever was only to be told what another attempt does, and
    /// finds it gone, is counted like everybody: also beyond the limit, for there is no way back.
    pub(super) fn counted(&self, place: Option<Place>, id: &RecordId) -> Option<Place> {
        if place.is_some() || self.policy.quota.is_unlimited() {
            return place;
        }
        let tag = ScopeTag::of(id);
        self.shared.tallies.count(tag);
        self.entered(tag, true).place
    }

    fn entered(&self, tag: ScopeTag, is_on_record: bool) -> Entered {
        Entered { place: Some(Place { shared: Arc::clone(&self.shared), tag }), is_on_record }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(number: usize) -> ScopeTag {
        let mut bytes = [1; 32];
        bytes[24..].copy_from_slice(&(number as u64).to_be_bytes());
        ScopeTag::of(&RecordId::from_bytes(bytes))
    }

    #[test]
    fn principals_who_never_come_again_are_forgotten() {
        let (gone_at, later) = (Timestamp::from_millis(1000), Timestamp::from_millis(1001));
        let mut principals = Principals::default();
        for number in 0..10 * LOOK_MIN {
            principals.look(gone_at);
            let tally = principals.by_tag.entry(tag(number)).or_default();
            // One in ten is still at work.
            tally.in_flight = u32::from(number % 10 == 0);
            tally.gone_at.insert(gone_at, (1, 10));
            (tally.records, tally.bytes) = (1, 10);
        }
        principals.look_at = 0;
        principals.look(later);
        assert_eq!(principals.by_tag.len(), LOOK_MIN, "those at work stay");
        assert_eq!(principals.look_at, 2 * LOOK_MIN);
        for tally in principals.by_tag.values() {
            assert_eq!((tally.in_flight, tally.records, tally.bytes), (1, 0, 0));
        }
    }
}
