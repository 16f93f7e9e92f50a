//! How long a store takes: a store that passes everything on and looks at the clock.

use std::sync::Arc;

use onlyonce_core::store::{
    Batch, Durability, Imported, Listing, Page, Stats, StoreFuture, SweepBudget, Swept, Watch,
};
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer, RecordStep,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer, StepAnswer,
};
use onlyonce_core::{Record, RecordId, Secret, Store, StoreError};

use super::Metrics;
use crate::clock::Stopwatch;

/// Measures `store`, as this process sees it: with its network, and with what queues before it.
#[derive(Debug)]
pub(crate) struct Timed {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
}

impl Timed {
    pub(crate) fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        Self { store, metrics }
    }

    fn timed<'a, T: 'a>(
        &'a self,
        operation: &'static str,
        watch: Stopwatch,
        answering: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let answer = answering.await;
            let result = answer.as_ref().map_or_else(StoreError::code, |_| "ok");
            self.metrics.answered_in(operation, result, watch.elapsed());
            answer
        })
    }
}

/// The commands and reads that take one thing by reference, each under its own name.
macro_rules! timed {
    ($($operation:ident($taken:ty) -> $answer:ty;)*) => {$(
        fn $operation<'a>(&'a self, taken: &'a $taken) -> StoreFuture<'a, $answer> {
            // ORDER: the watch first; a store may do its work before it returns a future.
            self.timed(stringify!($operation), Stopwatch::start(), self.store.$operation(taken))
        }
    )*};
}

impl Store for Timed {
    timed! {
        claim(Claim) -> ClaimAnswer;
        renew(Renew) -> RenewAnswer;
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
        lookup(RecordId) -> Option<Record>;
        list(Listing) -> Page;
        watch(RecordId) -> Watch;
        secret(Secret) -> Secret;
        import([(RecordId, Record)]) -> Imported;
    }

    fn sweep(&self, budget: SweepBudget) -> StoreFuture<'_, Swept> {
        self.timed("sweep", Stopwatch::start(), self.store.sweep(budget))
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        self.timed("stats", Stopwatch::start(), self.store.stats())
    }

    fn durability(&self) -> Durability {
        self.store.durability()
    }
}
