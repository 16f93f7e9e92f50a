//! A store whose bytes only this process can read: what callers hand over is encrypted before it leaves, and decrypted
//! in what comes back.
//!
//! Encrypted are the bodies of outcomes (late ones too) and the values of steps: everything in a record that a caller
//! wrote. The rest stays as it is, because the store must compare it, or because it says nothing:
//!
//! * the *head* of an outcome survives erasure, and so holds nothing about a person (an HTTP status). It is authenticated
//!   together with its body;
//! * ids and fingerprints are keyed BLAKE3 hashes. Their key is the store's own secret: whoever takes the whole store
//!   can test guesses of whole keys and whole requests against them, and read none;
//! * names of steps come from the program, not from its callers; times, states and fences decide what happens.
//!
//! The cipher is AES-256-GCM-SIV (RFC 8452). The state machine compares outcomes: to complete twice with the same one
//! must answer Already (clause 5), also when all that it sees are encrypted bytes. So the same outcome under the same
//! fence must give the same bytes, and a random nonce is out. GCM-SIV is made for that: where a nonce repeats it tells
//! whether the message was the same one, and nothing else. The nonce is a keyed hash of what the bytes belong to, so it
//! need not be stored and no two records share one; and AES and the carry-less product are in every server's processor.
//! XChaCha20-Poly1305 with a nonce made from the plaintext would do too, for a second pass and 24 more bytes a record.
//!
//! The id of the record, the fence, the content version and the head, or the name of the step, are authenticated with
//! the bytes: those of one record are damage in another. A store that is rolled back as a whole is not noticed.

mod cipher;
mod fit;
mod keyring;
mod record;

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use self::cipher::Under;
pub use self::fit::{Misfit, Noted, misfit};
pub use self::keyring::{KeyId, Keyring, random_key};
use super::{
    Batch, Durability, Imported, Listing, Page, Stats, Store, StoreError, StoreFuture, SweepBudget, Swept,
    Unreadable, Watch,
};
use crate::house;
use crate::record::{Record, State};
use crate::scope::RecordId;
use crate::secret::Secret;
use crate::transition::{
    Abandon, AbandonAnswer, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer, RecordStep,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer, StepAnswer, Terms, Verdict,
};

/// A store behind encryption. Tiers that others can look into belong behind it, too.
///
/// What cannot be decrypted is damage (clause 16): an error that names the key it takes, never absence.
#[derive(Debug)]
pub struct Encrypted {
    store: Arc<dyn Store>,
    keys: Arc<RwLock<Arc<Keyring>>>,
}

impl Encrypted {
    /// `store`, with what it keeps encrypted under the first of `keys`.
    pub fn new(store: Arc<dyn Store>, keys: Keyring) -> Self {
        Self { store, keys: Arc::new(RwLock::new(Arc::new(keys))) }
    }

    /// Another store under the same keys, also when they change.
    #[must_use]
    pub fn over(&self, store: Arc<dyn Store>) -> Self {
        Self { store, keys: Arc::clone(&self.keys) }
    }

    /// Goes on with other keys. What is under way ends with those it began with.
    pub fn rekey(&self, keys: impl Into<Arc<Keyring>>) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.into();
    }

    /// The keys in use.
    pub fn keys(&self) -> Arc<Keyring> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    async fn claim_there(&self, claim: &Claim) -> Result<ClaimAnswer, StoreError> {
        let keys = self.keys();
        let answer = self.store.claim(&sealed_claim(&keys, claim)).await?;
        opened_answer(&keys, &claim.id, answer)
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Batch<ClaimAnswer>, StoreError> {
        let keys = self.keys();
        let sealed: Vec<_> = claims.iter().map(|claim| sealed_claim(&keys, claim)).collect();
        let is_as_it_was = sealed.iter().all(|claim| matches!(claim, Cow::Borrowed(_)));
        let answers = if is_as_it_was {
            self.store.claim_many(claims).await?
        } else {
            let sealed: Vec<_> = sealed.into_iter().map(Cow::into_owned).collect();
            self.store.claim_many(&sealed).await?
        };
        let opened =
            claims.iter().zip(answers).map(|(claim, answer)| opened_answer(&keys, &claim.id, answer?));
        Ok(opened.collect())
    }

    /// An outcome that is on record under an older key has other bytes. That is no alarm: what counts is what they say.
    /// INVARIANT: an alarm changes nothing, so it does no harm to look.
    async fn judge(&self, complete: &Complete, answer: CompleteAnswer) -> Result<CompleteAnswer, StoreError> {
        if answer != CompleteAnswer::Alarm {
            return Ok(answer);
        }
        let record = self.lookup(&complete.token.id).await?;
        let is_the_same = record.is_some_and(|record| {
            record.fence == complete.token.fence
                && matches!(record.state, State::Completed(completed) if completed.outcome == complete.outcome)
        });
        Ok(if is_the_same { CompleteAnswer::Already } else { CompleteAnswer::Alarm })
    }
}

/// What a sealed record answers is encrypted where it has a body; the doors' own have none.
fn sealed_claim<'c>(keys: &Keyring, claim: &'c Claim) -> Cow<'c, Claim> {
    if claim.terms.sealed.body().bytes().is_none() {
        return Cow::Borrowed(claim);
    }
    let sealed = record::seal_outcome(keys, &claim.id, Under::Seal, &claim.terms.sealed);
    let terms = Arc::new(Terms { sealed, ..Terms::clone(&claim.terms) });
    Cow::Owned(Claim { terms, ..claim.clone() })
}

fn sealed_complete(keys: &Keyring, complete: &Complete) -> Complete {
    let under = Under::Fence(complete.token.fence);
    let outcome = record::seal_outcome(keys, &complete.token.id, under, &complete.outcome);
    Complete { outcome, token: complete.token, retention: complete.retention }
}

/// The answer in the clear. A grant whose steps cannot be read is not handed on; the store has made it all the same.
fn opened_answer(keys: &Keyring, id: &RecordId, answer: ClaimAnswer) -> Result<ClaimAnswer, StoreError> {
    Ok(match answer {
        ClaimAnswer::Granted(mut grant) => {
            record::open_steps(keys, id, &mut grant.steps).map_err(StoreError::with_unknown_outcome)?;
            ClaimAnswer::Granted(grant)
        }
        ClaimAnswer::Recover(mut grant) => {
            record::open_steps(keys, id, &mut grant.steps).map_err(StoreError::with_unknown_outcome)?;
            ClaimAnswer::Recover(grant)
        }
        ClaimAnswer::Replay(mut replay) => {
            let under = Under::of(replay.by, replay.fence);
            replay.outcome = record::open_outcome(keys, id, under, &replay.outcome)?;
            ClaimAnswer::Replay(replay)
        }
        other => other,
    })
}

impl Store for Encrypted {
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, ClaimAnswer> {
        Box::pin(self.claim_there(claim))
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> StoreFuture<'a, RenewAnswer> {
        self.store.renew(renew)
    }

    fn complete<'a>(&'a self, complete: &'a Complete) -> StoreFuture<'a, CompleteAnswer> {
        Box::pin(async move {
            let sealed = sealed_complete(&self.keys(), complete);
            let answer = self.store.complete(&sealed).await?;
            self.judge(complete, answer).await
        })
    }

    fn release<'a>(&'a self, release: &'a Release) -> StoreFuture<'a, ReleaseAnswer> {
        self.store.release(release)
    }

    fn abandon<'a>(&'a self, abandon: &'a Abandon) -> StoreFuture<'a, AbandonAnswer> {
        self.store.abandon(abandon)
    }

    fn record_step<'a>(&'a self, step: &'a RecordStep) -> StoreFuture<'a, StepAnswer> {
        Box::pin(async move {
            let keys = self.keys();
            let id = &step.token.id;
            let value = record::seal_step(&keys, id, &step.name, &step.value);
            let answer = self.store.record_step(&RecordStep { value, ..step.clone() }).await?;
            Ok(match answer {
                StepAnswer::Already(value) => {
                    StepAnswer::Already(record::open_step(&keys, id, &step.name, &value)?)
                }
                other => other,
            })
        })
    }

    fn claim_many<'a>(&'a self, claims: &'a [Claim]) -> StoreFuture<'a, Batch<ClaimAnswer>> {
        Box::pin(self.claim_all(claims))
    }

    fn renew_many<'a>(&'a self, renews: &'a [Renew]) -> StoreFuture<'a, Batch<RenewAnswer>> {
        self.store.renew_many(renews)
    }

    fn complete_many<'a>(&'a self, completes: &'a [Complete]) -> StoreFuture<'a, Batch<CompleteAnswer>> {
        Box::pin(async move {
            let keys = self.keys();
            let sealed: Vec<_> = completes.iter().map(|complete| sealed_complete(&keys, complete)).collect();
            let answers = self.store.complete_many(&sealed).await?;
            let mut judged = Vec::with_capacity(answers.len());
            for (complete, answer) in completes.iter().zip(answers) {
                judged.push(match answer {
                    Ok(answer) => self.judge(complete, answer).await,
                    Err(error) => Err(error),
                });
            }
            Ok(judged)
        })
    }

    fn release_many<'a>(&'a self, releases: &'a [Release]) -> StoreFuture<'a, Batch<ReleaseAnswer>> {
        self.store.release_many(releases)
    }

    fn resolve<'a>(&'a self, resolve: &'a Resolve) -> StoreFuture<'a, ResolveAnswer> {
        let Verdict::Executed(outcome) = &resolve.verdict else { return self.store.resolve(resolve) };
        Box::pin(async move {
            let under = Under::Fence(resolve.fence);
            let outcome = record::seal_outcome(&self.keys(), &resolve.id, under, outcome);
            let sealed = Resolve { verdict: Verdict::Executed(outcome), ..resolve.clone() };
            self.store.resolve(&sealed).await
        })
    }

    fn erase<'a>(&'a self, erase: &'a Erase) -> StoreFuture<'a, EraseAnswer> {
        self.store.erase(erase)
    }

    fn lookup<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move {
            let record = self.store.lookup(id).await?;
            // Proofs of keys, some of which may be gone by now: nobody's operation.
            if *id == house::ENCRYPTION {
                return Ok(record);
            }
            record.map(|record| record::open(&self.keys(), id, record)).transpose()
        })
    }

    fn list<'a>(&'a self, listing: &'a Listing) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let mut page = self.store.list(listing).await?;
            let keys = self.keys();
            let mut opened = Vec::with_capacity(page.records.len());
            for (id, found) in page.records {
                match record::open(&keys, &id, found) {
                    Ok(found) => opened.push((id, found)),
                    // One that cannot be read hides none of the others.
                    Err(error) => page.unreadable.push(Unreadable::new(id, &error)),
                }
            }
            page.unreadable.sort_unstable_by_key(|unreadable| unreadable.id);
            Ok(Page { records: opened, ..page })
        })
    }

    fn sweep(&self, budget: SweepBudget) -> StoreFuture<'_, Swept> {
        self.store.sweep(budget)
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        self.store.stats()
    }

    fn watch<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Watch> {
        self.store.watch(id)
    }

    fn secret<'a>(&'a self, offered: &'a Secret) -> StoreFuture<'a, Secret> {
        self.store.secret(offered)
    }

    fn import<'a>(&'a self, records: &'a [(RecordId, Record)]) -> StoreFuture<'a, Imported> {
        Box::pin(async move {
            let keys = self.keys();
            let sealed: Vec<_> =
                records.iter().map(|(id, plain)| (*id, record::seal(&keys, id, plain))).collect();
            self.store.import(&sealed).await
        })
    }

    fn durability(&self) -> Durability {
        self.store.durability()
    }
}
