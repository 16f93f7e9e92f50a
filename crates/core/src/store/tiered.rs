//! A tier in front of a store. The tier answers "completed" and hints "busy"; all else, "absent" above all, is asked of
//! the store, which is the *authority* (I15).
//!
//! Losing what the tier holds costs a round trip to the authority, and so does a tier that cannot be reached. What it
//! holds is learnt from the authority's own answers: after a completion was acknowledged, and when a claim is replayed.

mod doubtful;
mod granted;
mod watched;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::doubtful::Doubtful;
use self::granted::GrantedHere;
use self::watched::Watched;
use super::tier::{Granted, Keeps, Known, LEARN_WITHIN, Look, Tier};
use super::{
    BATCH_MAX, Batch, Durability, Imported, Listing, Page, Stats, Store, StoreError, StoreErrorKind,
    StoreFuture, SweepBudget, Swept, Watch,
};
use crate::clock::{Clock, Timestamp};
use crate::record::Record;
use crate::scope::RecordId;
use crate::secret::Secret;
use crate::transition::{
    Abandon, AbandonAnswer, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer, RecordStep,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer, StepAnswer,
};

/// A store behind a tier.
#[derive(Debug)]
pub struct Tiered {
    authority: Arc<dyn Store>,
    tier: Arc<dyn Tier>,
    clock: Arc<dyn Clock>,
    granted: GrantedHere,
    watched: Watched,
    doubtful: Doubtful,
    figures: Figures,
}

#[derive(Debug, Default)]
struct Figures {
    answered: AtomicU64,
    asked: AtomicU64,
}

/// How claims were answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TierFigures {
    /// By the tier.
    pub answered: u64,
    /// By the authority.
    pub asked: u64,
}

impl Tiered {
    /// `tier` in front of `authority`. `clock` measures only how long the authority takes to answer.
    pub fn new(authority: Arc<dyn Store>, tier: Arc<dyn Tier>, clock: Arc<dyn Clock>) -> Self {
        let (granted, watched, doubtful, figures) = Default::default();
        Self { authority, tier, clock, granted, watched, doubtful, figures }
    }

    /// How claims were answered so far.
    pub fn figures(&self) -> TierFigures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TierFigures { answered: read(&self.figures.answered), asked: read(&self.figures.asked) }
    }

    /// What the tier can answer to a claim.
    fn answer(&self, claim: &Claim, known: Option<Known>) -> Option<ClaimAnswer> {
        let answer = known
            .filter(|known| !known.is_hint() || self.may_be_hinted(&claim.id))
            .and_then(|known| known.answer(claim));
        let count = if answer.is_some() { &self.figures.answered } else { &self.figures.asked };
        count.fetch_add(1, Ordering::Relaxed);
        answer
    }

    /// Whoever waits was woken for a reason: a hint from before is not to send them back to sleep. And whoever may have been
    /// granted the record without hearing of it must be told so by the authority, and not that somebody is at it (I16).
    fn may_be_hinted(&self, id: &RecordId) -> bool {
        !self.watched.contains(id) && !self.doubtful.contains(id, self.clock.now())
    }

    /// Learns from what the authority answered to a claim that was sent at `sent`.
    fn learn(&self, claim: &Claim, answer: &ClaimAnswer, sent: Timestamp) {
        match answer {
            ClaimAnswer::Replay(replay) => {
                if let Some(known) = Known::replayed(claim, replay) {
                    self.put(&claim.id, known, sent);
                }
            }
            ClaimAnswer::Granted(grant) if self.tier.keeps() == Keeps::Everything => {
                let granted = Granted {
                    owner: claim.owner,
                    fence: grant.fence,
                    attempt: grant.attempt,
                    fingerprint: claim.fingerprint.clone(),
                    retention: claim.terms.retention,
                };
                self.granted.keep(&claim.id, granted);
            }
            _ => {}
        }
    }

    /// Remembers what is known since `sent`, unless that is too long ago for an erasure in between to be noticed.
    fn put(&self, id: &RecordId, known: Known, sent: Timestamp) {
        let age = sent.until(self.clock.now());
        if age <= LEARN_WITHIN {
            self.tier.put(id, known.aged(age));
        }
    }

    fn learn_completion(&self, complete: &Complete, answer: CompleteAnswer, sent: Timestamp) {
        let Some(granted) = self.granted.end(&complete.token) else { return };
        if answer == CompleteAnswer::Completed {
            let retention = complete.retention.unwrap_or(granted.retention);
            let known = Known::completed(granted, complete.outcome.clone(), retention);
            self.put(&complete.token.id, known, sent);
        }
    }

    fn learn_renewal(&self, renew: &Renew, answer: &RenewAnswer) {
        if let RenewAnswer::Renewed(left) = answer
            && let Some(granted) = self.granted.get(&renew.token)
        {
            self.tier.put(&renew.token.id, Known::in_flight(granted, *left));
        }
    }

    fn learn_release(&self, release: &Release) {
        if self.granted.end(&release.token).is_some() {
            self.tier.forget(&release.token.id);
        }
    }

    async fn claim_there(&self, claim: &Claim) -> Result<ClaimAnswer, StoreError> {
        let sent = self.clock.now();
        let asking = self.doubtful.asking(std::slice::from_ref(claim), &self.clock);
        let answer = self.authority.claim(claim).await?;
        asking.answered();
        self.learn(claim, &answer, sent);
        Ok(answer)
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Batch<ClaimAnswer>, StoreError> {
        let known = Look::all(claims.iter().map(|claim| self.tier.get(&claim.id)).collect()).await;
        let known = claims.iter().zip(known);
        let answers: Vec<_> = known.map(|(claim, known)| self.answer(claim, known)).collect();
        let rest = claims.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
        let rest: Vec<_> = rest.map(|(claim, _)| claim.clone()).collect();
        let sent = self.clock.now();
        let asking = self.doubtful.asking(&rest, &self.clock);
        let there = if rest.is_empty() { Vec::new() } else { self.authority.claim_many(&rest).await? };
        if there.iter().all(Result::is_ok) {
            asking.answered();
        }
        let mut there = there.into_iter();
        let mut next = |claim: &Claim| {
            let missing = || StoreError::new(StoreErrorKind::Corrupt, "reading the answers of a batch");
            let answer = there.next().unwrap_or_else(|| Err(missing()))?;
            self.learn(claim, &answer, sent);
            Ok(answer)
        };
        Ok(claims.iter().zip(answers).map(|(claim, answer)| answer.map_or_else(|| next(claim), Ok)).collect())
    }
}

impl Store for Tiered {
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, ClaimAnswer> {
        match self.tier.get(&claim.id) {
            Look::Seen(known) => match self.answer(claim, known) {
                Some(answer) => Box::pin(std::future::ready(Ok(answer))),
                None => Box::pin(self.claim_there(claim)),
            },
            Look::Coming(known) => Box::pin(async move {
                match self.answer(claim, known.await) {
                    Some(answer) => Ok(answer),
                    None => self.claim_there(claim).await,
                }
            }),
        }
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> StoreFuture<'a, RenewAnswer> {
        Box::pin(async move {
            let answer = self.authority.renew(renew).await?;
            self.learn_renewal(renew, &answer);
            Ok(answer)
        })
    }

    fn complete<'a>(&'a self, complete: &'a Complete) -> StoreFuture<'a, CompleteAnswer> {
        if self.tier.keeps() == Keeps::Replays {
            return self.authority.complete(complete);
        }
        Box::pin(async move {
            let sent = self.clock.now();
            let answer = self.authority.complete(complete).await?;
            self.learn_completion(complete, answer, sent);
            Ok(answer)
        })
    }

    fn release<'a>(&'a self, release: &'a Release) -> StoreFuture<'a, ReleaseAnswer> {
        if self.tier.keeps() == Keeps::Replays {
            return self.authority.release(release);
        }
        Box::pin(async move {
            let answer = self.authority.release(release).await?;
            self.learn_release(release);
            Ok(answer)
        })
    }

    fn abandon<'a>(&'a self, abandon: &'a Abandon) -> StoreFuture<'a, AbandonAnswer> {
        if self.tier.keeps() == Keeps::Replays {
            return self.authority.abandon(abandon);
        }
        Box::pin(async move {
            let answer = self.authority.abandon(abandon).await?;
            if self.granted.end(&abandon.token).is_some() {
                self.tier.forget(&abandon.token.id);
            }
            Ok(answer)
        })
    }

    fn record_step<'a>(&'a self, step: &'a RecordStep) -> StoreFuture<'a, StepAnswer> {
        self.authority.record_step(step)
    }

    fn claim_many<'a>(&'a self, claims: &'a [Claim]) -> StoreFuture<'a, Batch<ClaimAnswer>> {
        if claims.len() > BATCH_MAX {
            return self.authority.claim_many(claims);
        }
        Box::pin(self.claim_all(claims))
    }

    fn renew_many<'a>(&'a self, renews: &'a [Renew]) -> StoreFuture<'a, Batch<RenewAnswer>> {
        Box::pin(async move {
            let answers = self.authority.renew_many(renews).await?;
            for (renew, answer) in renews.iter().zip(&answers) {
                if let Ok(answer) = answer {
                    self.learn_renewal(renew, answer);
                }
            }
            Ok(answers)
        })
    }

    fn complete_many<'a>(&'a self, completes: &'a [Complete]) -> StoreFuture<'a, Batch<CompleteAnswer>> {
        Box::pin(async move {
            let sent = self.clock.now();
            let answers = self.authority.complete_many(completes).await?;
            for (complete, answer) in completes.iter().zip(&answers) {
                if let Ok(answer) = answer {
                    self.learn_completion(complete, *answer, sent);
                }
            }
            Ok(answers)
        })
    }

    fn release_many<'a>(&'a self, releases: &'a [Release]) -> StoreFuture<'a, Batch<ReleaseAnswer>> {
        Box::pin(async move {
            let answers = self.authority.release_many(releases).await?;
            for (release, _) in releases.iter().zip(&answers).filter(|(_, answer)| answer.is_ok()) {
                self.learn_release(release);
            }
            Ok(answers)
        })
    }

    fn resolve<'a>(&'a self, resolve: &'a Resolve) -> StoreFuture<'a, ResolveAnswer> {
        Box::pin(async move {
            let answer = self.authority.resolve(resolve).await?;
            self.tier.forget(&resolve.id);
            Ok(answer)
        })
    }

    /// Answered only when the tier has forgotten the body, too. If that fails it may be repeated.
    fn erase<'a>(&'a self, erase: &'a Erase) -> StoreFuture<'a, EraseAnswer> {
        Box::pin(async move {
            let answer = self.authority.erase(erase).await?;
            self.tier.void(&erase.id).await?;
            Ok(answer)
        })
    }

    fn lookup<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Option<Record>> {
        self.authority.lookup(id)
    }

    fn list<'a>(&'a self, listing: &'a Listing) -> StoreFuture<'a, Page> {
        self.authority.list(listing)
    }

    fn sweep(&self, budget: SweepBudget) -> StoreFuture<'_, Swept> {
        self.authority.sweep(budget)
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        self.authority.stats()
    }

    fn watch<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Watch> {
        Box::pin(async move {
            let watching = self.watched.begin(id);
            let watch = self.authority.watch(id).await?;
            Ok(Watch::new(async move {
                // Held as long as the watch: the claim that comes after it was set asks the authority.
                let _watching = watching;
                watch.await;
            }))
        })
    }

    fn secret<'a>(&'a self, offered: &'a Secret) -> StoreFuture<'a, Secret> {
        self.authority.secret(offered)
    }

    fn import<'a>(&'a self, records: &'a [(RecordId, Record)]) -> StoreFuture<'a, Imported> {
        self.authority.import(records)
    }

    fn durability(&self) -> Durability {
        self.authority.durability()
    }
}
