//! What happens to records whose owners live elsewhere: a store that passes everything on and tells what was answered, as
//! the engine does for work of its own. Of what the house does for itself, such as electing who sweeps, nothing is told.

use std::sync::Arc;

use onlyonce_core::observe::{Event, Observer};
use onlyonce_core::store::{
    Batch, Durability, Imported, Listing, Page, Stats, StoreFuture, SweepBudget, Swept, Watch,
};
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer, RecordStep,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer, StepAnswer,
};
use onlyonce_core::{Fence, Record, RecordId, Secret, Store, StoreError, house};

/// Tells `observer` what `store` answers to claims and to their endings.
#[derive(Debug)]
pub(crate) struct Observed {
    store: Arc<dyn Store>,
    observer: Arc<dyn Observer>,
}

/// An answer that is worth telling.
trait Told {
    /// What happened, under which fence; `None` when nothing did.
    fn event(&self, shown: Fence) -> Option<(Fence, Event)>;
}

impl Told for ClaimAnswer {
    fn event(&self, shown: Fence) -> Option<(Fence, Event)> {
        Some(match self {
            Self::Granted(grant) => (grant.fence, Event::Granted { attempt: grant.attempt }),
            Self::Replay(replay) => (replay.fence, Event::Replayed { age: replay.age }),
            Self::Busy(_) => (shown, Event::Busy),
            Self::Held(held) => (held.fence, Event::Held),
            Self::Mismatch { .. } => (shown, Event::Mismatched),
            Self::Recover(recover) => (recover.fence, Event::Recovering),
            Self::Fenced => (shown, Event::Fenced),
        })
    }
}

impl Told for CompleteAnswer {
    fn event(&self, shown: Fence) -> Option<(Fence, Event)> {
        let event = match self {
            Self::Completed => Event::Completed,
            Self::Already => return None,
            Self::Late => Event::Late,
            Self::Alarm => Event::Alarm,
            Self::Fenced => Event::Fenced,
        };
        Some((shown, event))
    }
}

impl Told for ReleaseAnswer {
    fn event(&self, shown: Fence) -> Option<(Fence, Event)> {
        let event = if *self == Self::Released { Event::Released } else { Event::Fenced };
        Some((shown, event))
    }
}

impl Told for AbandonAnswer {
    fn event(&self, shown: Fence) -> Option<(Fence, Event)> {
        let event = if *self == Self::Abandoned { Event::Abandoned } else { Event::Fenced };
        Some((shown, event))
    }
}

impl Observed {
    pub(crate) fn new(store: Arc<dyn Store>, observer: Arc<dyn Observer>) -> Self {
        Self { store, observer }
    }

    fn tell<T: Told>(&self, id: &RecordId, shown: Fence, answer: Result<&T, &StoreError>) {
        if house::is_ours(id) {
            return;
        }
        let told = match answer {
            Ok(answer) => answer.event(shown),
            Err(error) => Some((shown, Event::from(error))),
        };
        if let Some((fence, event)) = told {
            self.observer.event(id, fence, event);
        }
    }

    fn one<'a, T: Told + Send + 'a>(
        &'a self,
        (id, fence): (&'a RecordId, Fence),
        asked: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let answer = asked.await;
            self.tell(id, fence, answer.as_ref());
            answer
        })
    }

    fn many<'a, C: Sync, T: Told + Send + 'a>(
        &'a self,
        commands: &'a [C],
        of: fn(&C) -> (&RecordId, Fence),
        asked: StoreFuture<'a, Batch<T>>,
    ) -> StoreFuture<'a, Batch<T>> {
        Box::pin(async move {
            let answers = asked.await;
            for (at, command) in commands.iter().enumerate() {
                let (id, fence) = of(command);
                match &answers {
                    Ok(answers) => {
                        if let Some(answer) = answers.get(at) {
                            self.tell(id, fence, answer.as_ref());
                        }
                    }
                    Err(error) => self.tell::<T>(id, fence, Err(error)),
                }
            }
            answers
        })
    }
}

/// What is passed on without a word.
macro_rules! passed {
    ($($operation:ident($taken:ty) -> $answer:ty;)*) => {$(
        fn $operation<'a>(&'a self, taken: &'a $taken) -> StoreFuture<'a, $answer> {
            self.store.$operation(taken)
        }
    )*};
}

/// What is told, by who is meant: alone, and many together.
macro_rules! told {
    ($($one:ident, $many:ident($taken:ident) -> $answer:ty: $of:expr;)*) => {$(
        fn $one<'a>(&'a self, taken: &'a $taken) -> StoreFuture<'a, $answer> {
            let of: fn(&$taken) -> (&RecordId, Fence) = $of;
            self.one(of(taken), self.store.$one(taken))
        }

        fn $many<'a>(&'a self, taken: &'a [$taken]) -> StoreFuture<'a, Batch<$answer>> {
            self.many(taken, $of, self.store.$many(taken))
        }
    )*};
}

impl Store for Observed {
    told! {
        claim, claim_many(Claim) -> ClaimAnswer: |claim| (&claim.id, Fence::default());
        complete, complete_many(Complete) -> CompleteAnswer: |complete| (&complete.token.id, complete.token.fence);
        release, release_many(Release) -> ReleaseAnswer: |release| (&release.token.id, release.token.fence);
    }

    passed! {
        renew(Renew) -> RenewAnswer;
        renew_many([Renew]) -> Batch<RenewAnswer>;
        record_step(RecordStep) -> StepAnswer;
        resolve(Resolve) -> ResolveAnswer;
        erase(Erase) -> EraseAnswer;
        lookup(RecordId) -> Option<Record>;
        list(Listing) -> Page;
        watch(RecordId) -> Watch;
        secret(Secret) -> Secret;
        import([(RecordId, Record)]) -> Imported;
    }

    fn abandon<'a>(&'a self, abandon: &'a Abandon) -> StoreFuture<'a, AbandonAnswer> {
        self.one((&abandon.token.id, abandon.token.fence), self.store.abandon(abandon))
    }

    fn sweep(&self, budget: SweepBudget) -> StoreFuture<'_, Swept> {
        self.store.sweep(budget)
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        self.store.stats()
    }

    fn durability(&self) -> Durability {
        self.store.durability()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use onlyonce_core::sweeper::{Plan, Sweeper};
    use onlyonce_core::{Engine, MemoryStore, UnknownPolicy};
    use onlyonce_testkit::fixture::{any_id, fingerprint, terms};

    use super::*;

    #[derive(Debug, Default)]
    struct Seen(Mutex<Vec<RecordId>>);

    impl Observer for Seen {
        fn event(&self, id: &RecordId, _: Fence, _: Event) {
            self.0.lock().unwrap().push(*id);
        }
    }

    #[tokio::test]
    async fn what_the_house_does_for_itself_is_nobodys_claim() {
        let seen = Arc::new(Seen::default());
        let store = Arc::new(Observed::new(Arc::new(MemoryStore::default()), Arc::<Seen>::clone(&seen)));
        let engine = Engine::builder(Arc::<Observed>::clone(&store)).build().await.unwrap();
        let sweeper = Sweeper::new(&engine, Plan::default());
        // Claims the office, and gives it up.
        sweeper.sweep_once(None, |_| std::ops::ControlFlow::Continue(())).await.unwrap();
        assert!(seen.0.lock().unwrap().is_empty());
        let (owner, terms) = (onlyonce_core::Owner::random().unwrap(), Arc::new(terms(UnknownPolicy::Hold)));
        let claim = Claim { id: any_id(), fingerprint: fingerprint(b"body"), owner, terms };
        store.claim(&claim).await.unwrap();
        assert_eq!(*seen.0.lock().unwrap(), [claim.id], "a caller's is told");
    }
}
