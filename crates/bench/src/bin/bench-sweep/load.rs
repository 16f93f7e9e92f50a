//! The load: operations that begin at a steady rate, whatever became of those before, each a claim and its completion.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, CompleteAnswer, Token};
use onlyonce_core::{
    Fingerprint, Key, Outcome, Owner, Principal, RecordId, Rules, Scope, Secret, Store, Terms,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Result;

/// How many operations may be under way; one more waits, and its wait counts.
const UNDER_WAY_MAX: usize = 512;
/// How many of the records that were written are looked at in the end.
const REMEMBERED_MAX: usize = 20_000;

/// What the load saw in one turn.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    /// How long each operation took.
    pub(crate) micros: Vec<u32>,
    /// What went wrong.
    pub(crate) faults: Vec<String>,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Self) {
        self.micros.extend(other.micros);
        self.faults.extend(other.faults);
    }

    /// What this part of all operations did not exceed, in microseconds.
    pub(crate) fn percentile(&self, percent: f64) -> Option<u32> {
        let mut sorted = self.micros.clone();
        sorted.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "an index into what is in memory"
        )]
        let at = (sorted.len() as f64 * percent / 100.0) as usize;
        sorted.get(at.min(sorted.len().saturating_sub(1))).copied()
    }
}

/// Makes operations.
#[derive(Debug)]
pub(crate) struct Load {
    store: Arc<dyn Store>,
    every: Duration,
    number: u64,
    terms: Arc<Terms>,
    places: Arc<Semaphore>,
    /// Some of what was completed: these records live.
    completed: Arc<Mutex<Vec<RecordId>>>,
}

impl Load {
    pub(crate) fn new(store: Arc<dyn Store>, rate: u64) -> Self {
        Self {
            store,
            every: Duration::from_secs(1) / u32::try_from(rate).unwrap_or(u32::MAX),
            number: 0,
            terms: Arc::new(Terms::default()),
            places: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
            completed: Arc::default(),
        }
    }

    /// Begins operations until `until` says so, and waits for all of them.
    pub(crate) async fn run_until(&mut self, until: impl Fn() -> bool) -> Result<Seen> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut next = Instant::now();
        while !until() {
            next += self.every;
            tokio::time::sleep_until(next.into()).await;
            let begun = Instant::now();
            let place = Arc::clone(&self.places).acquire_owned();
            let claim = self.claim()?;
            let (store, completed, seen) =
                (Arc::clone(&self.store), Arc::clone(&self.completed), Arc::clone(&seen));
            tokio::spawn(async move {
                let _place: Option<OwnedSemaphorePermit> = place.await.ok();
                let fault = operate(&*store, &claim).await.err();
                let micros = u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
                if fault.is_none() {
                    remember(&mut held(&completed), claim.id);
                }
                let mut seen = held(&seen);
                seen.micros.push(micros);
                seen.faults.extend(fault);
            });
        }
        // All places are free when all operations have ended.
        let everybody = u32::try_from(UNDER_WAY_MAX)?;
        drop(self.places.acquire_many(everybody).await?);
        let seen = std::mem::take(&mut *held(&seen));
        Ok(seen)
    }

    fn claim(&mut self) -> Result<Claim> {
        self.number += 1;
        let key = Scope::new("load", Principal::Shared).key(Key::new(&format!("k{}", self.number))?);
        Ok(Claim {
            id: key.record_id(&Secret::new([3; 32])),
            fingerprint: Fingerprint::from_parts(Rules::standard(), [6; 32]),
            owner: Owner::random()?,
            terms: Arc::clone(&self.terms),
        })
    }

    /// Some of what was completed.
    pub(crate) fn completed(&self) -> Vec<RecordId> {
        held(&self.completed).clone()
    }
}

fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remember(completed: &mut Vec<RecordId>, id: RecordId) {
    if completed.len() < REMEMBERED_MAX {
        completed.push(id);
    }
}

async fn operate(store: &dyn Store, claim: &Claim) -> std::result::Result<(), String> {
    let told = |error: onlyonce_core::StoreError| format!("{error}: {:?}", std::error::Error::source(&error));
    let fence = match store.claim(claim).await.map_err(told)? {
        ClaimAnswer::Granted(grant) => grant.fence,
        other => return Err(format!("a new key was not granted: {other:?}")),
    };
    let token = Token { id: claim.id, owner: claim.owner, fence };
    let complete = Complete { token, outcome: Outcome::kept(1, "done"), retention: None };
    match store.complete(&complete).await.map_err(told)? {
        CompleteAnswer::Completed => Ok(()),
        other => Err(format!("a completion was answered {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_seen() {
        let seen = Seen { micros: (1..=1000).rev().collect(), faults: Vec::new() };
        assert_eq!((seen.percentile(50.0), seen.percentile(99.0)), (Some(501), Some(991)));
        assert_eq!(seen.percentile(100.0), Some(1000));
        assert_eq!(Seen::default().percentile(99.0), None);
    }
}
