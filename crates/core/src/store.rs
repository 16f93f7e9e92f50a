//! The store contract: what every place that keeps records must do, and how to prove that it does.

mod by_id;
pub mod encrypted;
pub mod error;
pub mod memory;
mod page;
pub mod recent;
pub mod tier;
pub mod tiered;
mod watches;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error::MisuseError;
use crate::record::{Fence, Record};
use crate::scope::RecordId;
use crate::secret::Secret;
use crate::transition::{
    Abandon, AbandonAnswer, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer, RecordStep,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer, StepAnswer,
};

pub use by_id::{ById, IdHasher, Ids};
pub use error::{StoreError, StoreErrorKind};
pub use page::{Filling, Listing, PAGE_BYTES_MAX, PAGE_MAX, Page, Unreadable};
pub use watches::{Watches, is_worth_waking};

/// What a store operation returns: an answer, or a failure of the store itself.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// One result for each item of a batch, in the order of the items.
pub type Batch<T> = Vec<Result<T, StoreError>>;

/// The most items in one batch.
pub const BATCH_MAX: usize = 1000;

/// Decides who owns a key, and remembers what the owner produced.
///
/// # Contract
/// 1. *One owner*: for an id, at most one live grant exists at any instant of the store's clock, and a claim is one
///    atomic step.
/// 2. *Fencing*: a command with a stale token changes nothing and answers Fenced.
/// 3. *Finality*: a completed record answers the same outcome to every read until its retention, counted from
///    completion, ends.
/// 4. *Durability*: an answered command survives whatever [`Store::durability`] says it survives.
/// 5. *Re-entry*: repeating a claim with the same owner gets the same grant; repeating a completion with the same
///    outcome answers Already; so an unknown outcome may be asked again.
/// 6. *Fences*: every grant of an id has a higher fence than all before it, also across release, expiry, sweep and
///    restart, and below 2^53.
/// 7. *Time*: leases and retention are measured by the store's own clock; what has expired reads as absent and what
///    has lapsed reads as unknown at once, swept or not.
/// 8. *Mismatch first*: a claim with another fingerprint learns nothing but that, in every state.
/// 9. *Unknown*: a lapsed or abandoned record is treated by the claim's policy (hold, seal, query, rerun), and a
///    late completion by its own fence is accepted.
/// 10. *Release*: only a live owner frees a key; fence and attempt stay, the fingerprint as asked.
/// 11. *Resolve and erase*: an operator's verdict applies to unknown or sealed records of that fence only; erasure
///     drops bodies and keeps the key used.
/// 12. *Sweep*: removes only what has expired, never a live record, and never more than its budget.
/// 13. *Reads*: lookup, list and stats show the records as the commands would read them. A page of a listing is bounded in
///     records and in bytes, and names what cannot be read.
/// 14. *Batches*: a batch answers as its items in order would have, each for itself.
/// 15. *Watch*: a watch that was set before a change by this process wakes after it.
/// 16. *Damage*: what cannot be read is an error, never absent, and the key is not granted.
/// 17. *Steps*: a step is stored once, under a live grant, and read back by every later grant of the same request.
/// 18. *Secret*: the first secret offered is kept; every later caller gets that one.
/// 19. *Import*: a record taken in answers as it did where it came from; an id in use is left alone; every later grant
///     has a higher fence than any record taken in.
///
/// # Cancellation
/// A command may begin when its method is called, or when the future is first polled. Dropping a returned future may or
/// may not cancel the command; it must never leave half of it. The engine runs
/// commands on tasks of their own, so that a vanished caller does not cancel one.
///
/// # Unknown outcomes
/// An error whose [`StoreError::outcome_unknown`] is `true` may hide a command that was applied. Every command may be
/// repeated as it is: clause 5 makes that safe.
///
/// # Time
/// Stores on another machine use that machine's clock, so that hosts with skewed clocks agree. Stores in this process
/// use a [`Clock`](crate::Clock).
///
/// # Implementing
/// Answer as [`transition`](crate::transition) answers. Run `onlyonce_testkit::store_suite!(your_fixture)`; the clause
/// numbers above are the test names (`c2_stale_token_…`). There are no default bodies: a default that is not atomic
/// would be wrong in silence.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The one atomic attempt to become the owner.
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, ClaimAnswer>;

    /// Extends the lease.
    fn renew<'a>(&'a self, renew: &'a Renew) -> StoreFuture<'a, RenewAnswer>;

    /// Records the outcome.
    fn complete<'a>(&'a self, complete: &'a Complete) -> StoreFuture<'a, CompleteAnswer>;

    /// Frees the key: the work did not happen.
    fn release<'a>(&'a self, release: &'a Release) -> StoreFuture<'a, ReleaseAnswer>;

    /// Gives up: nobody knows whether the work happened.
    fn abandon<'a>(&'a self, abandon: &'a Abandon) -> StoreFuture<'a, AbandonAnswer>;

    /// Keeps a value under the grant.
    fn record_step<'a>(&'a self, step: &'a RecordStep) -> StoreFuture<'a, StepAnswer>;

    /// Many claims in one round trip. At most [`BATCH_MAX`].
    fn claim_many<'a>(&'a self, claims: &'a [Claim]) -> StoreFuture<'a, Batch<ClaimAnswer>>;

    /// Many renewals in one round trip. At most [`BATCH_MAX`].
    fn renew_many<'a>(&'a self, renews: &'a [Renew]) -> StoreFuture<'a, Batch<RenewAnswer>>;

    /// Many completions in one round trip. At most [`BATCH_MAX`].
    fn complete_many<'a>(&'a self, completes: &'a [Complete]) -> StoreFuture<'a, Batch<CompleteAnswer>>;

    /// Many releases in one round trip. At most [`BATCH_MAX`].
    fn release_many<'a>(&'a self, releases: &'a [Release]) -> StoreFuture<'a, Batch<ReleaseAnswer>>;

    /// Says what happened to an unknown record.
    fn resolve<'a>(&'a self, resolve: &'a Resolve) -> StoreFuture<'a, ResolveAnswer>;

    /// Drops the bodies of a record.
    fn erase<'a>(&'a self, erase: &'a Erase) -> StoreFuture<'a, EraseAnswer>;

    /// The record as commands would read it now, for operators.
    fn lookup<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Option<Record>>;

    /// A page of records in the order of their ids, for operators.
    fn list<'a>(&'a self, listing: &'a Listing) -> StoreFuture<'a, Page>;

    /// Removes some of what has expired and makes unknown some of what has lapsed.
    fn sweep(&self, budget: SweepBudget) -> StoreFuture<'_, Swept>;

    /// How much is stored.
    fn stats(&self) -> StoreFuture<'_, Stats>;

    /// Waits for the next change of a record. Set it, then claim, then await it: a change in between is not missed.
    fn watch<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Watch>;

    /// Keeps `offered` if no secret is kept yet, and answers the one that is.
    fn secret<'a>(&'a self, offered: &'a Secret) -> StoreFuture<'a, Secret>;

    /// Takes in records of another store, as they are. At most [`BATCH_MAX`].
    fn import<'a>(&'a self, records: &'a [(RecordId, Record)]) -> StoreFuture<'a, Imported>;

    /// What an answered command survives.
    fn durability(&self) -> Durability;
}

/// The highest fence that may be taken in: half of what there are, so that the other half is left to grant.
pub const IMPORT_FENCE_MAX: u64 = Fence::LIMIT / 2;

/// What became of records from another store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    /// They are stored now.
    pub taken: usize,
    /// Their ids were in use, or they had expired.
    pub left: usize,
}

/// Refuses a batch of records that no store may take in.
pub fn check_import(records: &[(RecordId, Record)]) -> Result<(), StoreError> {
    if records.len() > BATCH_MAX {
        return Err(StoreError::new(StoreErrorKind::Misuse, "taking in more than 1000 records at a time"));
    }
    if records.iter().any(|(_, record)| record.fence.get() > IMPORT_FENCE_MAX) {
        return Err(StoreError::new(StoreErrorKind::Unsupported, "taking in a record")
            .because("its fence is so high that none would be left to grant"));
    }
    Ok(())
}

/// What an answered command survives, as it is promised at start-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Durability {
    /// A crash of this process.
    pub process_crash: bool,
    /// A power cut of the machine that stores.
    pub power_cut: bool,
    /// The loss of the machine that stores.
    pub node_loss: bool,
}

/// How many records one sweep may touch: 1 to 10 000, so that it never holds others up for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepBudget(usize);

impl SweepBudget {
    /// The default.
    pub const DEFAULT: Self = Self(500);

    /// A budget of `records`.
    pub const fn new(records: usize) -> Result<Self, MisuseError> {
        if records == 0 || records > 10_000 {
            return Err(MisuseError::new("a sweep touches 1 to 10000 records"));
        }
        Ok(Self(records))
    }

    /// The number of records.
    pub const fn get(self) -> usize {
        self.0
    }
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Records that had expired and were removed one by one.
    pub removed: usize,
    /// Expired records that went with a whole file or table, at no cost of their own.
    pub dropped: usize,
    /// Records whose lease had passed and that are unknown now.
    pub made_unknown: usize,
    /// Whether the budget ended before the work did.
    pub more: bool,
    /// How much of its time it only waited, and kept nobody from being served.
    pub waited: Duration,
    /// About how long the store will be busy later with what it leaves behind.
    pub left_behind: Duration,
}

impl Swept {
    /// How many records it touched one by one: what its budget is about.
    pub const fn touched(&self) -> usize {
        self.removed + self.made_unknown
    }
}

/// How much is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Records in flight, lapsed ones included until they are swept or claimed.
    pub in_flight: u64,
    /// Completed records, expired ones included until they are swept.
    pub completed: u64,
    /// Released records, likewise.
    pub released: u64,
    /// Unknown records, likewise.
    pub unknown: u64,
    /// Records whose state cannot be read. One whose state can be, and only its body not, counts by its state.
    pub unreadable: u64,
    /// Bytes the records take, as far as the store can tell.
    pub bytes: u64,
    /// How long the record that has been expired longest has been waiting for a sweep.
    pub oldest_expired: Option<Duration>,
}

impl Stats {
    /// All records.
    pub const fn records(&self) -> u64 {
        self.in_flight + self.completed + self.released + self.unknown + self.unreadable
    }
}

/// Resolves after the next change of a record. It may also resolve without one: claim again to find out.
pub struct Watch(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Watch {
    /// A watch that wakes when `changed` resolves.
    pub fn new(changed: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(changed))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl Future for Watch {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

#[cfg(test)]
fn _a_store_can_be_chosen_at_run_time(_: &dyn Store) {}
