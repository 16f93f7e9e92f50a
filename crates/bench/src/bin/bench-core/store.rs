//! Workloads on the memory store, without an engine.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::{Claim, ClaimAnswer, CompleteAnswer};
use onlyonce_core::{Lease, MemoryStore, Retention, Store as _};

use crate::Result;
use crate::clock::StoppedClock;
use crate::sample::{self, Caller};

/// How many records are there before `claim-complete` starts: enough that maps and lists have their working size, and
/// well below the next size to which the maps grow.
const HELD: u64 = 100_000;
/// How many commands a batch of `claim-many` has.
const BATCH: u64 = 100;
/// How many records `replay` asks for in turn.
const REPLAYED: usize = 256;
/// How many records `whole-life` sweeps at a time: what the default budget allows.
const SWEPT: u64 = 500;

pub(crate) fn claim_complete_new_key(iterations: u64) -> Result<()> {
    Bench::new()?.claim_complete(iterations)
}

pub(crate) fn claim_complete(iterations: u64) -> Result<()> {
    let mut bench = Bench::new()?;
    bench.claim_complete(HELD)?;
    bench.claim_complete(iterations)
}

pub(crate) fn claim_many(iterations: u64) -> Result<()> {
    let mut bench = Bench::new()?;
    for batch in batches(iterations, BATCH) {
        let claims: Vec<_> = (0..batch).map(|_| bench.caller.claim()).collect();
        let answers = sample::answered(bench.store.claim_many(&claims))?;
        let mut completes = Vec::with_capacity(claims.len());
        for (claim, answer) in claims.iter().zip(answers) {
            completes.push(bench.caller.complete(claim, &sample::granted(answer?)?));
        }
        for answer in sample::answered(bench.store.complete_many(&completes))? {
            completed(answer?)?;
        }
    }
    Ok(())
}

pub(crate) fn whole_life(iterations: u64) -> Result<()> {
    let mut bench = Bench::new()?;
    for batch in batches(iterations, SWEPT) {
        bench.claim_complete(batch)?;
        // The end of the lease is looked at although the record was completed in time; then the record is due.
        let looked_at = bench.sweep_after(Lease::DEFAULT.get())?;
        let removed = bench.sweep_after(Retention::DEFAULT.get())?;
        if (looked_at, removed) != (0, batch) {
            return Err(format!("{looked_at} and {removed} of {batch} records were swept").into());
        }
    }
    Ok(())
}

pub(crate) fn replay(iterations: u64) -> Result<()> {
    let mut bench = Bench::new()?;
    let mut claims = Vec::new();
    for _ in 0..REPLAYED {
        let claim = bench.caller.claim();
        bench.complete(&claim)?;
        claims.push(claim);
    }
    for at in (0..REPLAYED).cycle().zip(0..iterations).map(|(at, _)| at) {
        // A retry is another attempt, so it has another owner.
        claims[at].owner = bench.caller.names.owner();
        match sample::answered(bench.store.claim(&claims[at]))? {
            ClaimAnswer::Replay(_) => {}
            other => return Err(format!("a completed record was not replayed: {other:?}").into()),
        }
    }
    Ok(())
}

/// A store, its clock, and someone who uses it.
struct Bench {
    clock: Arc<StoppedClock>,
    /// Never dropped: taking down a store is no part of any operation, and would grow with their number.
    store: &'static MemoryStore,
    caller: Caller,
}

impl Bench {
    fn new() -> Result<Self> {
        let clock = Arc::new(StoppedClock::new());
        let store = MemoryStore::new(Arc::clone(&clock) as _, sample::NO_LIMITS);
        Ok(Self { clock, store: Box::leak(Box::new(store)), caller: Caller::new()? })
    }

    fn claim_complete(&mut self, times: u64) -> Result<()> {
        for _ in 0..times {
            let claim = self.caller.claim();
            self.complete(&claim)?;
        }
        Ok(())
    }

    /// Claims, then completes what was granted.
    fn complete(&self, claim: &Claim) -> Result<()> {
        let grant = sample::granted(sample::answered(self.store.claim(claim))?)?;
        let complete = self.caller.complete(claim, &grant);
        completed(sample::answered(self.store.complete(&complete))?)
    }

    /// Sweeps once the time has passed, and says how many records went.
    fn sweep_after(&self, passed: Duration) -> Result<u64> {
        self.clock.advance(passed);
        let swept = sample::answered(self.store.sweep(SweepBudget::DEFAULT))?;
        Ok(swept.removed as u64)
    }
}

fn completed(answer: CompleteAnswer) -> Result<()> {
    match answer {
        CompleteAnswer::Completed => Ok(()),
        other => Err(format!("a grant was not completed: {other:?}").into()),
    }
}

/// `all` in parts of at most `most`.
fn batches(all: u64, most: u64) -> impl Iterator<Item = u64> {
    (0..all.div_ceil(most)).map(move |batch| most.min(all - batch * most))
}
