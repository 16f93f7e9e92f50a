//! Records in this process's memory: a map and `transition`. Bounded; refuses when full, never evicts what is live.
//!
//! Protects one process for as long as it lives. For tests, for development, and for services that only need to
//! survive their callers' impatience.

mod shard;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use self::shard::{SHARDS, Shard};
use super::{
    BATCH_MAX, Batch, Durability, Filling, Imported, Listing, Page, Stats, Store, StoreError, StoreErrorKind,
    StoreFuture, SweepBudget, Swept, Watch, Watches, check_import, is_worth_waking,
};
use crate::clock::{Clock, SystemClock};
use crate::house;
use crate::record::{Fence, Record};
use crate::scope::RecordId;
use crate::secret::Secret;
use crate::transition::{
    Abandon, AbandonAnswer, Change, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer, Moment,
    RecordStep, Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer, StepAnswer, Sweep,
    SweepAnswer, Transition, apply, view,
};

/// How much a [`MemoryStore`] may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The most records. Default one million: at a few hundred bytes each that fits a small machine.
    pub records_max: usize,
    /// The most bytes at which new claims are still taken. Default 256 MiB. A completion is never refused, so the
    /// outcomes of what is in flight may come on top.
    pub bytes_max: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { records_max: 1_000_000, bytes_max: 256 << 20 }
    }
}

/// A bounded store in memory.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    limits: MemoryLimits,
    /// Split by id, so that commands on different keys rarely wait for each other.
    shards: Box<[Mutex<Shard>]>,
    records: AtomicUsize,
    bytes: AtomicUsize,
    /// The last fence handed out by the source, to any record.
    fence: AtomicU64,
    /// Where the next sweep starts, so that no shard is left out when budgets are small.
    sweep_from: AtomicUsize,
    secret: OnceLock<Secret>,
    watches: Watches,
}

impl MemoryStore {
    /// An empty store on `clock`.
    pub fn new(clock: Arc<dyn Clock>, limits: MemoryLimits) -> Self {
        Self {
            clock,
            limits,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            records: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            fence: AtomicU64::new(0),
            sweep_from: AtomicUsize::new(0),
            secret: OnceLock::new(),
            watches: Watches::default(),
        }
    }

    /// Runs one command as one atomic step.
    fn run<C: Transition>(&self, command: &C) -> Result<C::Answer, StoreError> {
        let id = command.id();
        let mut shard = self.shard(id);
        let moment = self.moment();
        let stored = shard.get(id);
        let is_new = stored.is_none();
        let (change, answer) = apply(stored, command, moment);
        if is_new && matches!(change, Change::Put(_)) && self.is_full() && !house::is_kept(id) {
            return Err(StoreError::new(StoreErrorKind::Full, "claiming a record"));
        }
        self.write(&mut shard, id, change);
        Ok(answer)
    }

    fn run_many<C: Transition>(&self, commands: &[C]) -> Result<Batch<C::Answer>, StoreError> {
        if commands.len() > BATCH_MAX {
            return Err(StoreError::new(
                StoreErrorKind::Misuse,
                "running a batch of more than 1000 commands",
            ));
        }
        Ok(commands.iter().map(|command| self.run(command)).collect())
    }

    fn write(&self, shard: &mut Shard, id: &RecordId, change: Change) {
        if matches!(change, Change::Keep) {
            return;
        }
        let after = match &change {
            Change::Put(record) => Some(record),
            Change::Keep | Change::Remove => None,
        };
        let wake = is_worth_waking(shard.get(id), after);
        let (records, bytes) = (shard.len(), shard.bytes());
        shard.write(id, change);
        // The house's own are few and small: no bound counts them, or who sweeps would keep a caller out.
        if !house::is_kept(id) {
            // Wrapping: a difference below zero is added as its complement, which is what subtracting it is.
            self.records.fetch_add(shard.len().wrapping_sub(records), Ordering::Relaxed);
            self.bytes.fetch_add(shard.bytes().wrapping_sub(bytes), Ordering::Relaxed);
        }
        if wake {
            self.watches.wake(id);
        }
    }

    /// What has expired makes room before anyone is refused.
    fn make_room(&self) {
        while self.is_full() && self.sweep_now(SweepBudget::DEFAULT).more {}
    }

    fn is_full(&self) -> bool {
        self.records.load(Ordering::Relaxed) >= self.limits.records_max
            || self.bytes.load(Ordering::Relaxed) >= self.limits.bytes_max
    }

    /// The store's time, and a fence that no grant of this store ever had.
    ///
    /// Fences start from the time in microseconds, so that a restarted process goes on above the fences it gave out
    /// before: downstream systems that remember a fence must not see a lower one.
    fn moment(&self) -> Moment {
        let now = self.clock.now();
        let micros = now.as_millis().saturating_mul(1000).min(Fence::LIMIT / 2);
        let last =
            self.fence.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(micros.max(last + 1)));
        let next = last.map_or(micros, |last| micros.max(last + 1));
        Moment { now, next_fence: Fence::new(next).unwrap_or_default() }
    }

    fn shard(&self, id: &RecordId) -> MutexGuard<'_, Shard> {
        held(&self.shards[shard::of(id)])
    }

    fn lookup_now(&self, id: &RecordId) -> Option<Record> {
        let shard = self.shard(id);
        view(shard.get(id), self.clock.now()).map(std::borrow::Cow::into_owned)
    }

    fn list_now(&self, listing: &Listing) -> Result<Page, StoreError> {
        let (size, now) = (listing.page_size(), self.clock.now());
        let mut records: Vec<_> =
            self.shards.iter().flat_map(|shard| held(shard).list(listing, now, size + 1)).collect();
        records.sort_unstable_by_key(|(id, _)| *id);
        let mut filling = Filling::new(listing);
        for (id, record) in records {
            if !filling.take(id, Ok(record))? {
                break;
            }
        }
        Ok(filling.finish())
    }

    fn sweep_now(&self, budget: SweepBudget) -> Swept {
        let mut swept = Swept::default();
        let mut left = budget.get();
        let first = self.sweep_from.load(Ordering::Relaxed);
        for at in (first..first + SHARDS).map(|at| at % SHARDS) {
            let mut shard = held(&self.shards[at]);
            let due = shard.due(self.clock.now(), left);
            if due.len() == left && left > 0 {
                self.sweep_from.store(at, Ordering::Relaxed);
            }
            left -= due.len();
            for id in due {
                let (change, answer) = apply(shard.get(&id), &Sweep { id }, self.moment());
                match answer {
                    SweepAnswer::Removed => swept.removed += 1,
                    SweepAnswer::MadeUnknown => swept.made_unknown += 1,
                    SweepAnswer::Kept => {}
                }
                self.write(&mut shard, &id, change);
                shard.schedule(&id);
            }
            swept.more |= shard.has_due(self.clock.now());
        }
        swept
    }

    fn import_now(&self, records: &[(RecordId, Record)]) -> Result<Imported, StoreError> {
        check_import(records)?;
        let mut imported = Imported::default();
        for (id, record) in records {
            // ORDER: the source is raised before the record can be seen, so that no grant in between is lower.
            self.fence.fetch_max(record.fence.get(), Ordering::Relaxed);
            let mut shard = self.shard(id);
            let now = self.clock.now();
            if view(shard.get(id), now).is_some() || record.is_expired(now) {
                imported.left += 1;
                continue;
            }
            if self.is_full() {
                return Err(StoreError::new(StoreErrorKind::Full, "taking in a record"));
            }
            self.write(&mut shard, id, Change::Put(record.clone()));
            imported.taken += 1;
        }
        Ok(imported)
    }

    fn stats_now(&self) -> Stats {
        let now = self.clock.now();
        let mut stats = Stats::default();
        for shard in &self.shards {
            held(shard).add_to(&mut stats, now);
        }
        stats
    }
}

/// A panic inside a critical section happens before anything is written (see `transition::apply`), so the shard is
/// whole and other keys go on.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answered<'a, T: Send + 'a>(result: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(result))
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock::new()), MemoryLimits::default())
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("records", &self.records).field("limits", &self.limits).finish()
    }
}

impl Store for MemoryStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, ClaimAnswer> {
        self.make_room();
        answered(self.run(claim))
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> StoreFuture<'a, RenewAnswer> {
        answered(self.run(renew))
    }

    fn complete<'a>(&'a self, complete: &'a Complete) -> StoreFuture<'a, CompleteAnswer> {
        answered(self.run(complete))
    }

    fn release<'a>(&'a self, release: &'a Release) -> StoreFuture<'a, ReleaseAnswer> {
        answered(self.run(release))
    }

    fn abandon<'a>(&'a self, abandon: &'a Abandon) -> StoreFuture<'a, AbandonAnswer> {
        answered(self.run(abandon))
    }

    fn record_step<'a>(&'a self, step: &'a RecordStep) -> StoreFuture<'a, StepAnswer> {
        answered(self.run(step))
    }

    fn claim_many<'a>(&'a self, claims: &'a [Claim]) -> StoreFuture<'a, Batch<ClaimAnswer>> {
        if claims.len() > BATCH_MAX {
            return answered(self.run_many(claims));
        }
        let claim = |claim| {
            self.make_room();
            self.run(claim)
        };
        answered(Ok(claims.iter().map(claim).collect()))
    }

    fn renew_many<'a>(&'a self, renews: &'a [Renew]) -> StoreFuture<'a, Batch<RenewAnswer>> {
        answered(self.run_many(renews))
    }

    fn complete_many<'a>(&'a self, completes: &'a [Complete]) -> StoreFuture<'a, Batch<CompleteAnswer>> {
        answered(self.run_many(completes))
    }

    fn release_many<'a>(&'a self, releases: &'a [Release]) -> StoreFuture<'a, Batch<ReleaseAnswer>> {
        answered(self.run_many(releases))
    }

    fn resolve<'a>(&'a self, resolve: &'a Resolve) -> StoreFuture<'a, ResolveAnswer> {
        answered(self.run(resolve))
    }

    fn erase<'a>(&'a self, erase: &'a Erase) -> StoreFuture<'a, EraseAnswer> {
        answered(self.run(erase))
    }

    fn lookup<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Option<Record>> {
        answered(Ok(self.lookup_now(id)))
    }

    fn list<'a>(&'a self, listing: &'a Listing) -> StoreFuture<'a, Page> {
        answered(self.list_now(listing))
    }

    fn sweep(&self, budget: SweepBudget) -> StoreFuture<'_, Swept> {
        answered(Ok(self.sweep_now(budget)))
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        answered(Ok(self.stats_now()))
    }

    fn watch<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Watch> {
        answered(Ok(self.watches.watch(id)))
    }

    fn secret<'a>(&'a self, offered: &'a Secret) -> StoreFuture<'a, Secret> {
        answered(Ok(self.secret.get_or_init(|| offered.clone()).clone()))
    }

    fn import<'a>(&'a self, records: &'a [(RecordId, Record)]) -> StoreFuture<'a, Imported> {
        answered(self.import_now(records))
    }

    fn durability(&self) -> Durability {
        Durability::default()
    }
}
