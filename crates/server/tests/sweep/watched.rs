//! A store that notes what sweepers do with it: who was granted the election, who sweeps, and how many at a time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onlyonce_core::store::{
    Batch, Durability, Imported, Listing, Page, Stats, StoreFuture, SweepBudget, Swept, Watch,
};
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer, RecordStep,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer, StepAnswer,
};
use onlyonce_core::{Record, RecordId, Secret, Store, StoreError, StoreErrorKind};

/// What was done, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Note {
    Granted { sweeper: usize, fence: u64 },
    Refused { sweeper: usize },
    Renewed { sweeper: usize },
    Swept { sweeper: usize, touched: usize, budget: usize },
}

/// What all sweepers of a test share.
#[derive(Debug, Default)]
pub(crate) struct Log {
    notes: Mutex<Vec<Note>>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    pub(crate) trouble: Trouble,
}

/// What is wrong with the store, for everybody who uses it.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    /// Records that are damaged.
    pub(crate) unreadable: Mutex<BTreeSet<RecordId>>,
    /// While it is true, nothing is counted.
    pub(crate) counts_nothing: AtomicBool,
    /// While it is true, sweeps never end.
    pub(crate) hangs: AtomicBool,
}

impl Trouble {
    fn read(&self, id: &RecordId) -> Result<(), StoreError> {
        if self.unreadable.lock().unwrap().contains(id) {
            return Err(StoreError::new(StoreErrorKind::Corrupt, "reading a record"));
        }
        Ok(())
    }
}

impl Log {
    pub(crate) fn notes(&self) -> Vec<Note> {
        self.notes.lock().unwrap().clone()
    }

    pub(crate) fn most_at_once(&self) -> usize {
        self.most_at_once.load(Ordering::SeqCst)
    }

    pub(crate) fn count(&self, is_it: impl Fn(&Note) -> bool) -> usize {
        self.notes().iter().filter(|note| is_it(note)).count()
    }

    fn note(&self, note: Note) {
        self.notes.lock().unwrap().push(note);
    }
}

/// The store, as sweeper `sweeper` uses it.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sweeper: usize,
    pub(crate) log: Arc<Log>,
    /// While it is true, nothing is renewed.
    pub(crate) refuses_renewals: AtomicBool,
}

impl Watched {
    pub(crate) fn new(store: Arc<dyn Store>, sweeper: usize, log: &Arc<Log>) -> Self {
        Self { store, sweeper, log: Arc::clone(log), refuses_renewals: false.into() }
    }
}

impl Store for Watched {
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, ClaimAnswer> {
        Box::pin(async move {
            self.log.trouble.read(&claim.id)?;
            let answer = self.store.claim(claim).await?;
            let sweeper = self.sweeper;
            self.log.note(match &answer {
                ClaimAnswer::Granted(grant) => Note::Granted { sweeper, fence: grant.fence.get() },
                _ => Note::Refused { sweeper },
            });
            Ok(answer)
        })
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> StoreFuture<'a, RenewAnswer> {
        Box::pin(async move {
            if self.refuses_renewals.load(Ordering::SeqCst) {
                return Err(StoreError::new(StoreErrorKind::Unavailable, "renewing"));
            }
            self.log.trouble.read(&renew.token.id)?;
            let answer = self.store.renew(renew).await?;
            self.log.note(Note::Renewed { sweeper: self.sweeper });
            Ok(answer)
        })
    }

    fn sweep(&self, budget: SweepBudget) -> StoreFuture<'_, Swept> {
        Box::pin(async move {
            let at_once = self.log.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.log.most_at_once.fetch_max(at_once, Ordering::SeqCst);
            if self.log.trouble.hangs.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let swept = self.store.sweep(budget).await;
            self.log.at_once.fetch_sub(1, Ordering::SeqCst);
            let swept = swept?;
            let touched = swept.touched();
            self.log.note(Note::Swept { sweeper: self.sweeper, touched, budget: budget.get() });
            Ok(swept)
        })
    }

    onlyonce_inbox::__pass_on_to_store! {
        complete(Complete) -> CompleteAnswer;
        release(Release) -> ReleaseAnswer;
        abandon(Abandon) -> AbandonAnswer;
        record_step(RecordStep) -> StepAnswer;
        claim_many([Claim]) -> Batch<ClaimAnswer>;
        renew_many([Renew]) -> Batch<RenewAnswer>;
        complete_many([Complete]) -> Batch<CompleteAnswer>;
        release_many([Release]) -> Batch<ReleaseAnswer>;
        resolve(Resolve) -> ResolveAnswer;
        erase(Erase) -> EraseAnswer;
        list(Listing) -> Page;
        watch(RecordId) -> Watch;
        secret(Secret) -> Secret;
        import([(RecordId, Record)]) -> Imported;
    }

    fn lookup<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move {
            self.log.trouble.read(id)?;
            self.store.lookup(id).await
        })
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        Box::pin(async move {
            if self.log.trouble.counts_nothing.load(Ordering::SeqCst) {
                return Err(StoreError::new(StoreErrorKind::TimedOut, "counting"));
            }
            self.store.stats().await
        })
    }

    fn durability(&self) -> Durability {
        self.store.durability()
    }
}
