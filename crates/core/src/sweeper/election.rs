//! Who sweeps: an ordinary grant on a record of the house, claimed once and renewed for as long as its owner lives.
//!
//! So there is one sweeper at a time on every store that keeps its contract, and no store has to know of it.
//!
//! A damaged record is refused to everybody, and this one would keep everybody from sweeping for ever. So there is a spare,
//! for which all stand who cannot read the first; while it is held, nobody stands for the first either.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, Timestamp};
use crate::fingerprint::{Fingerprint, Rules};
use crate::house;
use crate::lease::{Lease, Retention};
use crate::record::{Fence, Owner, State};
use crate::scope::RecordId;
use crate::store::{Store, StoreError, StoreErrorKind};
use crate::transition::{
    Claim, ClaimAnswer, Release, ReleaseAnswer, Renew, RenewAnswer, Terms, Token, UnknownPolicy,
};

/// How long one office may last, renewals included. After it whoever comes first has the next.
const OFFICE_MAX: Duration = Duration::from_hours(24);
/// How much of the lease is waited for before a renewal that failed is tried again.
const AGAIN_PART: u32 = 10;

/// Stands for the election of one store.
#[derive(Debug)]
pub(super) struct Election {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    lease: Lease,
    terms: Arc<Terms>,
    /// A claim whose answer was lost: asked for again, it gets the same grant.
    unanswered: Mutex<Option<Asked>>,
}

/// A claim on an office.
#[derive(Debug, Clone, Copy)]
struct Asked {
    id: RecordId,
    owner: Owner,
    /// When it was first sent.
    at: Timestamp,
}

/// How an election ended.
#[derive(Debug)]
pub(super) enum Standing {
    Elected(Office),
    Taken(Taken),
}

/// The right to sweep.
#[derive(Debug)]
pub(super) struct Office {
    token: Token,
    /// When it ends unless it is renewed, counted from before it was asked for.
    until: Timestamp,
}

impl Office {
    pub(super) const fn fence(&self) -> Fence {
        self.token.fence
    }

    /// Whether it is held because the record of the first cannot be read.
    pub(super) fn is_spare(&self) -> bool {
        self.token.id == house::SWEEP_SPARE
    }
}

/// Another process sweeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Under which fence: that process has logged it, and shows it among its figures.
    pub fence: Option<Fence>,
    /// Since when, on the store's clock.
    pub since: Option<Timestamp>,
    /// How long its grant lasts unless it is renewed.
    pub left: Duration,
}

impl Election {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, lease: Lease) -> Self {
        let terms = Terms {
            lease,
            run_max: OFFICE_MAX,
            // As long as most callers' records, so that it goes where theirs go and needs no place of its own.
            retention: Retention::DEFAULT,
            unknown_retention: Retention::DEFAULT,
            // A sweeper that died may have swept or not: it makes no difference to the next.
            unknown: UnknownPolicy::Rerun,
            attempts_max: u32::MAX,
            ..Terms::default()
        };
        Self { store, clock, lease, terms: Arc::new(terms), unanswered: Mutex::new(None) }
    }

    /// Tries to become the one who sweeps.
    pub(super) async fn stand(&self) -> Result<Standing, StoreError> {
        let unanswered = *self.unanswered();
        let asked = match unanswered {
            Some(unanswered) => unanswered,
            None => {
                let id = match self.look().await? {
                    Seat::Vacant(id) => id,
                    Seat::Taken(taken) => return Ok(Standing::Taken(taken)),
                };
                let failed = |error| StoreError::new(StoreErrorKind::Unavailable, "electing").because(error);
                Asked { id, owner: Owner::random().map_err(failed)?, at: self.clock.now() }
            }
        };
        // ORDER: kept before it is sent, and forgotten once it is answered: a wait that is cut short loses no grant.
        *self.unanswered() = Some(asked);
        let Asked { id, owner, at } = asked;
        let fingerprint = Fingerprint::from_parts(Rules::standard(), [0; 32]);
        let claim = Claim { id, fingerprint, owner, terms: Arc::clone(&self.terms) };
        let answer = self.store.claim(&claim).await;
        if !answer.as_ref().is_err_and(StoreError::outcome_unknown) {
            *self.unanswered() = None;
        }
        let answer = answer?;
        Ok(match answer {
            ClaimAnswer::Granted(grant) => Standing::Elected(Office {
                token: Token { id, owner, fence: grant.fence },
                until: at + self.lease.get(),
            }),
            ClaimAnswer::Busy(busy) => taken(None, busy.left),
            ClaimAnswer::Replay(replay) => taken(Some(replay.fence), replay.left),
            ClaimAnswer::Held(held) => taken(Some(held.fence), self.lease.get()),
            ClaimAnswer::Mismatch { .. } | ClaimAnswer::Recover(_) | ClaimAnswer::Fenced => {
                taken(None, self.lease.get())
            }
        })
    }

    /// Who sweeps, or for what to stand. A look first: unlike a claim it writes nothing on any store, and most looks find
    /// somebody.
    async fn look(&self) -> Result<Seat, StoreError> {
        let vacant = match self.holder(&house::SWEEP).await {
            Ok(Some(taken)) => return Ok(Seat::Taken(taken)),
            Ok(None) => house::SWEEP,
            Err(error) if is_unreadable(&error) => house::SWEEP_SPARE,
            Err(error) => return Err(error),
        };
        // Also where the first is vacant: it may be so since a moment ago, when it was mended.
        match self.holder(&house::SWEEP_SPARE).await {
            Ok(Some(taken)) => Ok(Seat::Taken(taken)),
            Ok(None) => Ok(Seat::Vacant(vacant)),
            Err(error) if is_unreadable(&error) && vacant == house::SWEEP => Ok(Seat::Vacant(vacant)),
            Err(error) => Err(error),
        }
    }

    async fn holder(&self, id: &RecordId) -> Result<Option<Taken>, StoreError> {
        let now = self.clock.now();
        let Some(record) = self.store.lookup(id).await? else { return Ok(None) };
        let State::InFlight { lease_until } = record.state else { return Ok(None) };
        // The store's clock may be another than ours: never longer than the lease.
        let left = now.until(lease_until).min(self.lease.get());
        Ok(Some(Taken { fence: Some(record.fence), since: Some(record.granted_at), left }))
    }

    /// Renews the office at a third of its lease, for ever. Returns when it is lost, or may be.
    pub(super) async fn keep(&self, office: &mut Office) {
        let lease = self.lease.get();
        // Less where its answer was long in coming.
        let mut wait = (lease / 3).min(self.clock.now().until(office.until) / 2);
        loop {
            self.clock.sleep(wait).await;
            let asked_at = self.clock.now();
            let renew = Renew { token: office.token, lease: self.lease };
            let renewed = tokio::select! {
                biased;
                renewed = self.store.renew(&renew) => renewed,
                () = self.clock.sleep_until(office.until) => return,
            };
            match renewed {
                Ok(RenewAnswer::Renewed(left)) => {
                    office.until = asked_at + left.min(lease);
                    wait = lease / 3;
                }
                Ok(RenewAnswer::Fenced) => return,
                Err(error) => {
                    tracing::debug!(%error, "the grant to sweep could not be renewed; it is tried again");
                    wait = lease / AGAIN_PART;
                }
            }
            if self.clock.now() + wait >= office.until {
                return;
            }
        }
    }

    /// Gives the office up, so that another need not wait for its lease.
    pub(super) async fn leave(&self, office: &Office) -> Result<ReleaseAnswer, StoreError> {
        self.store.release(&Release { token: office.token, keep_fingerprint: true }).await
    }

    fn unanswered(&self) -> MutexGuard<'_, Option<Asked>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a look finds.
enum Seat {
    Vacant(RecordId),
    Taken(Taken),
}

/// Whether what is stored is damaged, or of a newer version: to ask again does not help.
pub(super) const fn is_unreadable(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::Corrupt | StoreErrorKind::Unsupported)
}

fn taken(fence: Option<Fence>, left: Duration) -> Standing {
    Standing::Taken(Taken { fence, since: None, left })
}
