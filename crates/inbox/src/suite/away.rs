//! A store that is away: it keeps the secret, so that a process starts, and refuses everything else.

use std::sync::Arc;

use onlyonce_core::record::Record;
use onlyonce_core::store::{
    Batch, Durability, Imported, Listing, Page, Stats, StoreFuture, SweepBudget, Swept, Watch,
};
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer, RecordStep,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer, StepAnswer,
};
use onlyonce_core::{RecordId, Secret, Store, StoreError, StoreErrorKind};

#[derive(Debug)]
pub(super) struct Away(pub(super) Arc<dyn Store>);

fn refuse<'a, T: Send + 'a>() -> StoreFuture<'a, T> {
    Box::pin(async { Err(StoreError::new(StoreErrorKind::Unavailable, "reaching a store that is away")) })
}

/// Methods that refuse.
macro_rules! refusals {
    ($($name:ident($($argument:ty),*) -> $answer:ty;)*) => {
        $(fn $name<'a>(&'a self $(, _: $argument)*) -> StoreFuture<'a, $answer> { refuse() })*
    };
}

impl Store for Away {
    refusals! {
        claim(&'a Claim) -> ClaimAnswer;
        renew(&'a Renew) -> RenewAnswer;
        complete(&'a Complete) -> CompleteAnswer;
        release(&'a Release) -> ReleaseAnswer;
        abandon(&'a Abandon) -> AbandonAnswer;
        record_step(&'a RecordStep) -> StepAnswer;
        claim_many(&'a [Claim]) -> Batch<ClaimAnswer>;
        renew_many(&'a [Renew]) -> Batch<RenewAnswer>;
        complete_many(&'a [Complete]) -> Batch<CompleteAnswer>;
        release_many(&'a [Release]) -> Batch<ReleaseAnswer>;
        resolve(&'a Resolve) -> ResolveAnswer;
        erase(&'a Erase) -> EraseAnswer;
        lookup(&'a RecordId) -> Option<Record>;
        list(&'a Listing) -> Page;
        watch(&'a RecordId) -> Watch;
        import(&'a [(RecordId, Record)]) -> Imported;
    }

    fn sweep(&self, _: SweepBudget) -> StoreFuture<'_, Swept> {
        refuse()
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        refuse()
    }

    fn secret<'a>(&'a self, offered: &'a Secret) -> StoreFuture<'a, Secret> {
        self.0.secret(offered)
    }

    fn durability(&self) -> Durability {
        self.0.durability()
    }
}
