//! A store that fails the way networks and servers fail: before, after, twice, late, or not at all when asked nicely.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use onlyonce_core::record::Record;
use onlyonce_core::store::{
    Batch, Durability, Imported, Listing, Page, Stats, StoreFuture, SweepBudget, Swept, Watch,
};
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer, RecordStep,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer, StepAnswer,
};
use onlyonce_core::{RecordId, Secret, Store, StoreError, StoreErrorKind};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Notify;

/// What goes wrong with one command.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The store refuses: nothing was applied, and that is known.
    Refuse,
    /// The record cannot be read: it is damaged, and asking again does not help.
    Damage,
    /// The command is lost on the way: nothing was applied, but nobody can know.
    LoseCommand,
    /// The reply is lost on the way: the command was applied and an error comes back.
    LoseReply,
    /// The command arrives twice; the second answer comes back.
    Duplicate,
    /// The command waits until the given event, then is applied and answered.
    Delay(Arc<Notify>),
    /// The command is applied at once, and its reply waits until the given event.
    LateReply(Arc<Notify>),
}

/// Which command a scripted fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as the store's operations")]
pub enum Operation {
    Claim,
    Renew,
    Complete,
    Release,
    Abandon,
    RecordStep,
    Resolve,
    Other,
}

/// A store in front of which faults happen: scripted ones first, then random ones if there is a seed.
pub struct Faulty {
    store: Arc<dyn Store>,
    script: Mutex<VecDeque<(Operation, Fault)>>,
    chance: Option<Mutex<(SmallRng, u32)>>,
}

impl Faulty {
    /// No faults but those of [`Faulty::next`].
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, script: Mutex::default(), chance: None }
    }

    /// About `per_mille` of a thousand commands fail, by chance from `seed`.
    pub fn random(store: Arc<dyn Store>, seed: u64, per_mille: u32) -> Self {
        let chance = Some(Mutex::new((SmallRng::seed_from_u64(seed), per_mille)));
        Self { store, script: Mutex::default(), chance }
    }

    /// The next `operation` meets `fault`. Faults for one operation are met in the order they were given.
    pub fn next(&self, operation: Operation, fault: Fault) {
        self.script.lock().unwrap().push_back((operation, fault));
    }

    /// Every following `operation` meets `fault`, `times` times.
    pub fn next_times(&self, times: usize, operation: Operation, fault: &Fault) {
        for _ in 0..times {
            self.next(operation, fault.clone());
        }
    }

    /// How many faults for `operation` were not met yet.
    pub fn unmet(&self, operation: Operation) -> usize {
        self.script.lock().unwrap().iter().filter(|(for_operation, _)| *for_operation == operation).count()
    }

    /// Forgets the faults that were not met.
    pub fn heal(&self) {
        self.script.lock().unwrap().clear();
    }

    fn fault(&self, operation: Operation) -> Option<Fault> {
        let mut script = self.script.lock().unwrap();
        if let Some(at) = script.iter().position(|(for_operation, _)| *for_operation == operation) {
            return script.remove(at).map(|(_, fault)| fault);
        }
        let (rng, per_mille) = &mut *self.chance.as_ref()?.lock().unwrap();
        if !rng.random_ratio(*per_mille, 1000) {
            return None;
        }
        Some(match rng.random_range(0..4) {
            0 => Fault::Refuse,
            1 => Fault::LoseCommand,
            2 => Fault::LoseReply,
            _ => Fault::Duplicate,
        })
    }

    fn with_fault<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        command: impl Fn() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            match self.fault(operation) {
                None => command().await,
                Some(Fault::Refuse) => {
                    Err(StoreError::new(StoreErrorKind::Unavailable, "reaching the store"))
                }
                Some(Fault::Damage) => Err(StoreError::new(StoreErrorKind::Corrupt, "reading the record")),
                Some(Fault::LoseCommand) => {
                    Err(StoreError::new(StoreErrorKind::TimedOut, "reaching the store"))
                }
                Some(Fault::LoseReply) => {
                    command().await?;
                    Err(StoreError::new(StoreErrorKind::TimedOut, "hearing from the store"))
                }
                Some(Fault::Duplicate) => {
                    command().await?;
                    command().await
                }
                Some(Fault::LateReply(until)) => {
                    let answer = command().await;
                    until.notified().await;
                    answer
                }
                Some(Fault::Delay(until)) => {
                    until.notified().await;
                    command().await
                }
            }
        })
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({:?})", self.store)
    }
}

impl Store for Faulty {
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, ClaimAnswer> {
        self.with_fault(Operation::Claim, || self.store.claim(claim))
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> StoreFuture<'a, RenewAnswer> {
        self.with_fault(Operation::Renew, || self.store.renew(renew))
    }

    fn complete<'a>(&'a self, complete: &'a Complete) -> StoreFuture<'a, CompleteAnswer> {
        self.with_fault(Operation::Complete, || self.store.complete(complete))
    }

    fn release<'a>(&'a self, release: &'a Release) -> StoreFuture<'a, ReleaseAnswer> {
        self.with_fault(Operation::Release, || self.store.release(release))
    }

    fn abandon<'a>(&'a self, abandon: &'a Abandon) -> StoreFuture<'a, AbandonAnswer> {
        self.with_fault(Operation::Abandon, || self.store.abandon(abandon))
    }

    fn record_step<'a>(&'a self, step: &'a RecordStep) -> StoreFuture<'a, StepAnswer> {
        self.with_fault(Operation::RecordStep, || self.store.record_step(step))
    }

    fn claim_many<'a>(&'a self, claims: &'a [Claim]) -> StoreFuture<'a, Batch<ClaimAnswer>> {
        self.with_fault(Operation::Claim, || self.store.claim_many(claims))
    }

    fn renew_many<'a>(&'a self, renews: &'a [Renew]) -> StoreFuture<'a, Batch<RenewAnswer>> {
        self.with_fault(Operation::Renew, || self.store.renew_many(renews))
    }

    fn complete_many<'a>(&'a self, completes: &'a [Complete]) -> StoreFuture<'a, Batch<CompleteAnswer>> {
        self.with_fault(Operation::Complete, || self.store.complete_many(completes))
    }

    fn release_many<'a>(&'a self, releases: &'a [Release]) -> StoreFuture<'a, Batch<ReleaseAnswer>> {
        self.with_fault(Operation::Release, || self.store.release_many(releases))
    }

    fn resolve<'a>(&'a self, resolve: &'a Resolve) -> StoreFuture<'a, ResolveAnswer> {
        self.with_fault(Operation::Resolve, || self.store.resolve(resolve))
    }

    fn erase<'a>(&'a self, erase: &'a Erase) -> StoreFuture<'a, EraseAnswer> {
        self.with_fault(Operation::Other, || self.store.erase(erase))
    }

    fn lookup<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Option<Record>> {
        self.with_fault(Operation::Other, || self.store.lookup(id))
    }

    fn list<'a>(&'a self, listing: &'a Listing) -> StoreFuture<'a, Page> {
        self.with_fault(Operation::Other, || self.store.list(listing))
    }

    fn sweep(&self, budget: SweepBudget) -> StoreFuture<'_, Swept> {
        self.with_fault(Operation::Other, move || self.store.sweep(budget))
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        self.with_fault(Operation::Other, || self.store.stats())
    }

    fn watch<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Watch> {
        self.store.watch(id)
    }

    fn secret<'a>(&'a self, offered: &'a Secret) -> StoreFuture<'a, Secret> {
        self.store.secret(offered)
    }

    fn import<'a>(&'a self, records: &'a [(RecordId, Record)]) -> StoreFuture<'a, Imported> {
        self.with_fault(Operation::Other, || self.store.import(records))
    }

    fn durability(&self) -> Durability {
        self.store.durability()
    }
}
