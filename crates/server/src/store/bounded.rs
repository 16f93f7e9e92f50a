//! A store that takes no new records once it holds as many as it may. What is on record goes on.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use onlyonce_core::house;
use onlyonce_core::store::{BATCH_MAX, Batch, StoreFuture};
use onlyonce_core::sweeper::growth::Growth;
use onlyonce_core::transition::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Release, ReleaseAnswer, Renew, RenewAnswer,
};
use onlyonce_core::{RecordId, Store, StoreError, StoreErrorKind};

/// How many records of a batch are looked up at a time: a full store is asked no more than a busy one.
const LOOKUPS_AT_ONCE: usize = 32;

/// `store` within bounds. How much it holds is counted by whoever sweeps.
#[derive(Debug)]
pub(crate) struct Bounded {
    store: Arc<dyn Store>,
    growth: Arc<Growth>,
}

impl Bounded {
    pub(crate) fn new(store: Arc<dyn Store>, growth: Arc<Growth>) -> Self {
        Self { store, growth }
    }

    /// Why a claim of `id` is refused, if it is. What is on record takes no more room.
    async fn refusal(&self, id: &RecordId) -> Result<Option<StoreError>, StoreError> {
        if !self.growth.is_full() || house::is_kept(id) || self.store.lookup(id).await?.is_some() {
            return Ok(None);
        }
        let full = StoreError::new(StoreErrorKind::Full, "claiming a record");
        Ok(Some(full.because(self.growth.warnings().join("; "))))
    }

    fn note(&self, id: &RecordId, answer: &ClaimAnswer) {
        if matches!(answer, ClaimAnswer::Granted(grant) if grant.attempt == 1) && !house::is_kept(id) {
            self.growth.granted();
        }
    }

    async fn claim_within(&self, claim: &Claim) -> Result<ClaimAnswer, StoreError> {
        if let Some(refusal) = self.refusal(&claim.id).await? {
            return Err(refusal);
        }
        let answer = self.store.claim(claim).await?;
        self.note(&claim.id, &answer);
        Ok(answer)
    }

    async fn claim_many_within<'a>(&'a self, claims: &'a [Claim]) -> Result<Batch<ClaimAnswer>, StoreError> {
        // A batch that is too large is the store's to refuse.
        if !self.growth.is_full() || claims.len() > BATCH_MAX {
            let answers = self.store.claim_many(claims).await?;
            for (claim, answer) in claims.iter().zip(&answers) {
                if let Ok(answer) = answer {
                    self.note(&claim.id, answer);
                }
            }
            return Ok(answers);
        }
        let look = |claim: &'a Claim| -> StoreFuture<'a, _> { Box::pin(self.refusal(&claim.id)) };
        let looks: Vec<_> = claims.iter().map(look).collect();
        let refusals = stream::iter(looks).buffered(LOOKUPS_AT_ONCE);
        let refusals: Vec<_> = refusals.map(|refusal| refusal.unwrap_or_else(Some)).collect().await;
        let left = claims.iter().zip(&refusals).filter(|(_, refusal)| refusal.is_none());
        let left: Vec<_> = left.map(|(claim, _)| claim.clone()).collect();
        let mut answers = self.store.claim_many(&left).await?.into_iter();
        let missing = || Err(StoreError::new(StoreErrorKind::Corrupt, "claiming records"));
        let merged = refusals.into_iter().map(|refusal| match refusal {
            Some(refusal) => Err(refusal),
            None => answers.next().unwrap_or_else(missing),
        });
        Ok(merged.collect())
    }
}

impl Store for Bounded {
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, ClaimAnswer> {
        Box::pin(self.claim_within(claim))
    }

    fn claim_many<'a>(&'a self, claims: &'a [Claim]) -> StoreFuture<'a, Batch<ClaimAnswer>> {
        Box::pin(self.claim_many_within(claims))
    }

    onlyonce_inbox::__pass_on_to_store! {
        renew(Renew) -> RenewAnswer;
        complete(Complete) -> CompleteAnswer;
        release(Release) -> ReleaseAnswer;
        renew_many([Renew]) -> Batch<RenewAnswer>;
        complete_many([Complete]) -> Batch<CompleteAnswer>;
        release_many([Release]) -> Batch<ReleaseAnswer>;
    }

    onlyonce_inbox::__pass_on_the_rest_to_store! {}
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use onlyonce_core::store::Stats;
    use onlyonce_core::sweeper::growth::Bounds;
    use onlyonce_core::{Engine, Failure, Key, MemoryStore, Owner, Principal, Scope, Terms};
    use onlyonce_testkit::fault::Operation;
    use onlyonce_testkit::{Fault, Faulty};
    use tokio::sync::Notify;

    use super::*;

    fn claim(engine: &Engine, key: &str) -> Claim {
        let key = Scope::new("n", Principal::Shared).key(Key::new(key).unwrap());
        Claim {
            id: key.record_id(engine.secret()),
            fingerprint: engine.fingerprint().finish(),
            owner: Owner::random().unwrap(),
            terms: Arc::new(Terms::default()),
        }
    }

    #[tokio::test]
    async fn a_full_store_refuses_what_is_new_and_answers_what_it_has() {
        let growth = Arc::new(Growth::new(Bounds { records_max: Some(2), bytes_max: None }));
        let store = Arc::new(Bounded::new(Arc::new(MemoryStore::default()), Arc::clone(&growth)));
        let engine = Engine::builder(store.clone()).build().await.unwrap();
        let key = Scope::new("n", Principal::Shared).key(Key::new("done").unwrap());
        let asked = engine.fingerprint().finish();
        engine.run(&key, asked.clone(), |_| async { Ok::<_, Failure<String>>(1) }).await.unwrap();
        store.claim(&claim(&engine, "runs")).await.unwrap();
        assert!(growth.is_full(), "grants are counted at once");

        let refused = store.claim(&claim(&engine, "new")).await.unwrap_err();
        assert_eq!((refused.kind(), refused.is_retryable()), (StoreErrorKind::Full, true));
        let why = std::error::Error::source(&refused).unwrap().to_string();
        assert!(why.contains("2 of 2 records"), "{why}");
        let again = engine.run(&key, asked, |_| async { Ok::<_, Failure<String>>(2) }).await.unwrap();
        assert_eq!(again.done().map(|done| (done.value, done.replayed)), Some((1, true)));
        let many = [claim(&engine, "new"), claim(&engine, "runs"), claim(&engine, "newer")];
        let kinds: Vec<_> =
            store.claim_many(&many).await.unwrap().into_iter().map(|one| one.is_ok()).collect();
        assert_eq!(kinds, [false, true, false]);
        let ours = Claim { id: house::SWEEP, ..claim(&engine, "new") };
        assert!(store.claim(&ours).await.is_ok(), "who sweeps makes room");

        growth.counted(&Stats { completed: 1, ..Stats::default() });
        assert!(store.claim(&claim(&engine, "new")).await.is_ok(), "there is room again");
    }

    #[tokio::test]
    async fn a_batch_is_looked_up_together_but_not_all_of_it_at_once() {
        const CLAIMS: usize = 100;
        let growth = Arc::new(Growth::new(Bounds { records_max: Some(0), bytes_max: None }));
        let slow = Arc::new(Faulty::new(Arc::new(MemoryStore::default())));
        let store = Arc::new(Bounded::new(Arc::clone(&slow) as _, growth));
        let engine = Engine::builder(Arc::clone(&store) as _).build().await.unwrap();
        let claims: Vec<_> = (0..CLAIMS).map(|number| claim(&engine, &number.to_string())).collect();
        let go_on = Arc::new(Notify::new());
        slow.next_times(CLAIMS, Operation::Other, &Fault::Delay(Arc::clone(&go_on)));
        let asked = tokio::spawn(async move { store.claim_many(&claims).await });
        let together = async {
            while slow.unmet(Operation::Other) > CLAIMS - LOOKUPS_AT_ONCE {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), together)
            .await
            .expect("one is looked up after the other");
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(slow.unmet(Operation::Other), CLAIMS - LOOKUPS_AT_ONCE, "more than may be at once");
        slow.heal();
        go_on.notify_waiters();
        let answers = asked.await.unwrap().unwrap();
        assert_eq!(answers.len(), CLAIMS);
        assert!(
            answers
                .iter()
                .all(|answer| { answer.as_ref().is_err_and(|error| error.kind() == StoreErrorKind::Full) })
        );
    }
}
