//! Sweepers on a memory store and a clock moved by hand.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::sweeper::growth::Growth;
use onlyonce_core::sweeper::{Plan, Sweeper, Sweeping};
use onlyonce_core::{
    Clock as _, Engine, Fence, MemoryLimits, MemoryStore, Outcome, StateKind, Store, Timestamp,
};
use onlyonce_testkit::{ManualClock, stock_record};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::watched::{Log, Watched};

/// How often it is looked at what is waited for.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(crate) struct Stage {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) log: Arc<Log>,
}

/// A sweeper at work.
pub(crate) struct Begun {
    pub(crate) sweeping: Sweeping,
    pub(crate) watched: Arc<Watched>,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<()>,
}

impl Begun {
    pub(crate) fn is_elected(&self) -> bool {
        self.sweeping.now().elected
    }

    pub(crate) fn fence(&self) -> Option<Fence> {
        self.sweeping.now().fence
    }

    /// As `kill -9` does: nothing is given up, nothing is told.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::at(Timestamp::from_millis(1_790_000_000_000))
    }

    pub(crate) fn at(now: Timestamp) -> Self {
        let clock = Arc::new(ManualClock::at(now));
        let store = Arc::new(MemoryStore::new(clock.clone(), MemoryLimits::default()));
        Self { clock, store, log: Arc::default() }
    }

    pub(crate) async fn begin(&self, number: usize, plan: Plan, growth: Option<Arc<Growth>>) -> Begun {
        let watched = Arc::new(Watched::new(Arc::clone(&self.store), number, &self.log));
        let engine = Engine::builder(watched.clone()).clock(self.clock.clone()).build().await.unwrap();
        let mut sweeper = Sweeper::new(&engine, plan);
        if let Some(growth) = growth {
            sweeper = sweeper.watching(growth);
        }
        let (sweeping, stop) = (sweeper.sweeping(), CancellationToken::new());
        let task = tokio::spawn(sweeper.run_until(stop.clone().cancelled_owned()));
        Begun { sweeping, watched, stop, task }
    }

    /// Moves the clock by `by`, in steps small enough for everything to happen in its order.
    pub(crate) async fn advance(&self, by: Duration) {
        self.advance_by_steps(by, Duration::from_millis(250)).await;
    }

    pub(crate) async fn advance_by_steps(&self, by: Duration, step: Duration) {
        let until = self.clock.now() + by;
        loop {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            let left = self.clock.now().until(until);
            if left.is_zero() {
                return;
            }
            self.clock.advance(left.min(step));
        }
    }

    /// `count` more records that expire after a second.
    pub(crate) async fn records_more(&self, count: u64) {
        let second = Duration::from_secs(1);
        take_in(&*self.store, 1000..1000 + count, self.clock.now(), second, false).await;
    }

    /// Records that expire after `life`.
    pub(crate) async fn records(&self, count: u64, life: Duration) {
        take_in(&*self.store, 0..count, self.clock.now(), life, false).await;
    }

    pub(crate) fn clock_now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) async fn left(&self) -> u64 {
        onlyonce_core::house::count_callers(&*self.store).await.unwrap().records()
    }
}

/// Waits for something that happens sooner or later.
pub(crate) async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look().await {
            return found;
        }
        // tidy: sleep because sweepers are woken by time alone
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Takes records in, completed ones or ones that nobody knows the outcome of. Those that have expired before they arrive
/// are not taken, which is as good.
pub(crate) async fn take_in(
    store: &dyn Store,
    numbers: std::ops::Range<u64>,
    now: Timestamp,
    life: Duration,
    is_unknown: bool,
) {
    let kind = if is_unknown { StateKind::Unknown } else { StateKind::Completed };
    let record = |number| stock_record(number, kind, Outcome::kept(1, "done"), now, life);
    let records: Vec<_> = numbers.map(record).collect();
    for some in records.chunks(1000) {
        store.import(some).await.unwrap();
    }
}
