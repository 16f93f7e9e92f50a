//! Removes what has expired, in every process and one process at a time for each store, a little at a time.
//!
//! Whoever holds the grant on the house's own record sweeps ([`election`]); it keeps the grant for its life, and when it
//! dies another takes over once the lease has passed. Batches are bounded and paced by how long they take ([`pace`]),
//! optionally kept to quiet hours ([`quiet`]), and how much is stored is watched on the way ([`growth`]).
//!
//! A second sweeper at the same time would do no harm, only work: every store looks at a record again before it goes.

pub mod election;
pub mod growth;
pub mod pace;
pub mod quiet;
mod state;

use std::convert::Infallible;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::election::{Election, Office, Standing, is_unreadable};
use self::growth::Growth;
use self::pace::{Pace, jittered};
use self::quiet::Quiet;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::error::MisuseError;
use crate::house;
use crate::lease::Lease;
use crate::record::Fence;
use crate::store::{Stats, Store, StoreError, StoreErrorKind, SweepBudget, Swept};

pub use self::election::Taken;
pub use self::state::{SweepState, Sweeping};

/// How often it is counted how much is stored: where that is bounded, and where it is only told.
const COUNT_EVERY: Duration = Duration::from_secs(15);
const TELL_EVERY: Duration = Duration::from_mins(1);
/// How long the store may take to answer. A batch that takes longer is taken for one that failed.
const STORE_WITHIN: Duration = Duration::from_secs(30);
/// How long a process that ends waits for the batch under way, and to give up its grant. After that the lease has to do.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);
/// How many batches are swept between two looks at an office that nobody can read.
const UNELECTED_BATCHES: u64 = 20;
/// How long a count is believed that cannot be had again.
const COUNT_BELIEVED_FOR: Duration = Duration::from_mins(5);

/// How a store is swept. Start from the default and change what differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Whether it is swept at all; if not, it is only counted how much there is. Default `true`.
    pub enabled: bool,
    /// How long to wait when nothing is left to sweep. Default 1 s.
    pub every: Duration,
    /// How many records one batch touches at the most. Default 500; fewer where a batch takes long.
    pub batch: SweepBudget,
    /// The shortest pause between two batches. Default 10 ms; longer after a batch that took long.
    pub pause: Duration,
    /// How long a sweeper that died keeps others from taking over. Default 30 s; renewed at a third of it, which is the
    /// one small write that sweeping costs a store in which nothing expires.
    pub lease: Lease,
    /// After how long a process that is not elected looks again. Default: between one and two thirds of the lease.
    pub look_again: Option<Duration>,
    /// The hours in which there is little else to do: expired records are removed only then. Default: always.
    pub quiet: Option<Quiet>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            enabled: true,
            every: Duration::from_secs(1),
            batch: SweepBudget::DEFAULT,
            pause: Duration::from_millis(10),
            lease: Lease::DEFAULT,
            look_again: None,
            quiet: None,
        }
    }
}

impl Plan {
    /// Refuses what cannot work.
    pub fn check(&self) -> Result<(), MisuseError> {
        if self.lease.get() < Duration::from_secs(1) {
            return Err(MisuseError::new("the sweeper's lease is shorter than 1 s"));
        }
        if self.every > Duration::from_hours(24) || self.pause > Duration::from_hours(1) {
            return Err(MisuseError::new("a sweep every more than 24 h, or a pause of more than 1 h"));
        }
        Ok(())
    }

    fn looks_again_after(&self) -> Duration {
        jittered(self.look_again.unwrap_or(self.lease.get() / 2))
    }
}

/// Sees what a sweeper does, for figures.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// This process sweeps from now on, under this fence; or no longer.
    fn elected(&self, fence: Option<Fence>);
    /// A batch was swept, in so much time.
    fn swept(&self, swept: &Swept, took: Duration, state: &SweepState);
    /// A batch, or an election, failed.
    fn failed(&self, error: &StoreError);
    /// It was counted how much is stored.
    fn counted(&self, stats: &Stats, growth: &Growth);
    /// It could not be counted.
    fn uncounted(&self, error: &StoreError);
}

/// Nobody looks.
#[derive(Debug)]
struct Unseen;

impl Observer for Unseen {
    fn elected(&self, _: Option<Fence>) {}
    fn swept(&self, _: &Swept, _: Duration, _: &SweepState) {}
    fn failed(&self, _: &StoreError) {}
    fn counted(&self, _: &Stats, _: &Growth) {}
    fn uncounted(&self, _: &StoreError) {}
}

/// Sweeps one store, whenever it is this process's turn.
#[derive(Debug)]
pub struct Sweeper {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    plan: Plan,
    election: Election,
    growth: Arc<Growth>,
    observer: Arc<dyn Observer>,
    sweeping: Sweeping,
}

/// How a single sweep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Nothing is left, or as many batches were swept as were asked for (`more`).
    Swept(Swept),
    /// Another process sweeps this store.
    Taken(Taken),
    /// The grant was lost on the way; another process goes on.
    Lost(Swept),
}

impl Sweeper {
    /// A sweeper of the engine's store. It does nothing before it runs.
    pub fn new(engine: &Engine, plan: Plan) -> Self {
        let (store, clock) = (Arc::clone(engine.store()), Arc::clone(engine.clock()));
        let growth = Arc::new(Growth::default());
        Self {
            election: Election::new(Arc::clone(&store), Arc::clone(&clock), plan.lease),
            sweeping: Sweeping::new(Arc::clone(&growth)),
            observer: Arc::new(Unseen),
            store,
            clock,
            plan,
            growth,
        }
    }

    /// Who sees what it does.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// What is told how much is stored, and may refuse more.
    #[must_use]
    pub fn watching(mut self, growth: Arc<Growth>) -> Self {
        self.sweeping = Sweeping::new(Arc::clone(&growth));
        self.growth = growth;
        self
    }

    /// Tells how it goes, also while it runs.
    pub fn sweeping(&self) -> Sweeping {
        self.sweeping.clone()
    }

    /// Sweeps until `stop` resolves, then gives the election up for another. Returns within 5 s, whatever the store does:
    /// after that the grant is left to its lease.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        let told = CancellationToken::new();
        let out_of_patience = async {
            stop.await;
            told.cancel();
            self.clock.sleep(LEAVE_WITHIN).await;
        };
        tokio::select! {
            biased;
            () = self.take_turns(&told) => {}
            () = out_of_patience => {
                tracing::warn!(waited = ?LEAVE_WITHIN, "sweeping did not end in time: its grant is left to its lease");
            }
            never = self.count_for_ever() => match never {},
        }
    }

    async fn take_turns(&self, stop: &CancellationToken) {
        if !self.plan.enabled {
            return stop.cancelled().await;
        }
        let mut wait = jittered(self.plan.every.min(self.plan.lease.get() / 3));
        loop {
            self.rest(wait, stop).await;
            if stop.is_cancelled() {
                return;
            }
            wait = self.plan.looks_again_after();
            // Not cut short by a stop: a grant that nobody knows of would keep everybody away.
            match self.within(self.election.stand()).await {
                Ok(Standing::Elected(office)) => {
                    if self.serve(office, stop).await {
                        return;
                    }
                }
                Ok(Standing::Taken(_)) => {}
                // Whatever the hour: a store that is full takes no grant, and only sweeping makes room for one. That
                // several may do so at once costs them time and nothing else: a sweep removes only what has expired.
                Err(error) if error.kind() == StoreErrorKind::Full => {
                    tracing::warn!(%error, "no office can be had in a full store: sweeping without one");
                    // What failed was told, and is tried again.
                    let _ = self.pass(Some(1), stop, |_| ControlFlow::Continue(())).await;
                    wait = jittered(self.plan.every);
                }
                Err(error) => {
                    self.failed(&error, "standing for election to sweep");
                    // Nobody holds an office that nobody can read, and nobody ever will.
                    if is_unreadable(&error) && self.is_right_hour() {
                        let _ = self.pass(Some(UNELECTED_BATCHES), stop, |_| ControlFlow::Continue(())).await;
                    }
                }
            }
        }
    }

    /// Sweeps for as long as the office lasts. Answers whether it was told to stop.
    async fn serve(&self, mut office: Office, stop: &CancellationToken) -> bool {
        let fence = office.fence();
        tracing::info!(%fence, "this process sweeps the store");
        if office.is_spare() {
            tracing::warn!("{}", state::SPARE_OFFICE);
        }
        self.sweeping.note_spare(office.is_spare());
        self.note_elected(Some(fence));
        // ORDER: the batch under way ends before the office does, or the next one would begin beside it.
        let stopped = tokio::select! {
            biased;
            () = self.election.keep(&mut office) => false,
            () = self.sweep_until(stop) => true,
        };
        self.note_elected(None);
        if stopped {
            let _ = self.within(self.election.leave(&office)).await;
        } else {
            tracing::warn!(%fence, "the grant to sweep was lost: another process takes over");
        }
        stopped || stop.is_cancelled()
    }

    /// Pass after pass. Ends between two batches.
    async fn sweep_until(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            // What failed was told, and is tried again.
            let _ = self.pass(None, stop, |_| ControlFlow::Continue(())).await;
            self.rest(jittered(self.plan.every), stop).await;
        }
    }

    async fn rest(&self, duration: Duration, stop: &CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.clock.sleep(duration) => {}
        }
    }

    /// Sweeps once, whatever the hour: up to `batches`, or until nothing is left. `told` hears of every batch, and may end
    /// it.
    pub async fn sweep_once(
        &self,
        batches: Option<u64>,
        mut told: impl FnMut(&Swept) -> ControlFlow<()>,
    ) -> Result<Ended, StoreError> {
        let standing = self.within(self.election.stand()).await;
        let (mut all, never) = (Swept::default(), CancellationToken::new());
        let batches = Some(batches.unwrap_or(u64::MAX));
        let sum = |swept: &Swept| {
            all.removed += swept.removed;
            all.dropped += swept.dropped;
            all.made_unknown += swept.made_unknown;
            all.more = swept.more;
            told(swept)
        };
        let mut office = match standing {
            Ok(Standing::Elected(office)) => office,
            Ok(Standing::Taken(taken)) => return Ok(Ended::Taken(taken)),
            Err(error) if error.kind() == StoreErrorKind::Full || is_unreadable(&error) => {
                self.pass(batches, &never, sum).await?;
                return Ok(Ended::Swept(all));
            }
            Err(error) => return Err(error),
        };
        self.note_elected(Some(office.fence()));
        let ended = tokio::select! {
            biased;
            () = self.election.keep(&mut office) => None,
            ended = self.pass(batches, &never, sum) => Some(ended),
        };
        self.note_elected(None);
        let Some(ended) = ended else { return Ok(Ended::Lost(all)) };
        let _ = self.within(self.election.leave(&office)).await;
        ended.map(|()| Ended::Swept(all))
    }

    /// Batches until nothing is left, or it is time to stop. Without `batches` only at hours that are right.
    async fn pass(
        &self,
        batches: Option<u64>,
        stop: &CancellationToken,
        mut told: impl FnMut(&Swept) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut pace = Pace::new(self.plan.batch, self.plan.pause);
        let begun = self.clock.now();
        let (mut rows, mut left) = (0, batches);
        while left.map_or_else(|| self.is_right_hour(), |left| left > 0) {
            let from = self.clock.now();
            let swept = match self.within(self.store.sweep(pace.batch())).await {
                Ok(swept) => swept,
                Err(error) => {
                    self.failed(&error, "sweeping");
                    return Err(error);
                }
            };
            let now = self.clock.now();
            let took = from.until(now);
            rows += swept.removed + swept.dropped;
            let state = self.sweeping.note_swept(&swept, rows, begun.until(now), now);
            self.observer.swept(&swept, took, &state);
            left = left.map(|left| left - 1);
            if told(&swept).is_break() || !swept.more || stop.is_cancelled() {
                return Ok(());
            }
            if left != Some(0) {
                let busy = took.saturating_sub(swept.waited) + swept.left_behind;
                self.rest(jittered(pace.after(busy)), stop).await;
            }
        }
        Ok(())
    }

    /// Whether expired records may be removed now. Where room is short, that matters more than the hour.
    fn is_right_hour(&self) -> bool {
        self.plan.quiet.is_none_or(|quiet| quiet.contains(self.clock.now())) || self.growth.is_near()
    }

    /// Counts how much is stored: often enough to refuse in time where that is bounded, seldom where it is only told.
    async fn count_for_ever(&self) -> Infallible {
        let every = if self.growth.is_bounded() { COUNT_EVERY } else { TELL_EVERY };
        // What was full before this process began is full now.
        let mut wait = if self.growth.is_bounded() { Duration::ZERO } else { jittered(every) };
        let mut counted_at = self.clock.now();
        loop {
            self.clock.sleep(wait).await;
            wait = jittered(every);
            if !self.growth.is_bounded() && !self.sweeping.is_elected() {
                continue;
            }
            match self.within(house::count_callers(&*self.store)).await {
                Ok(stats) => {
                    counted_at = self.clock.now();
                    self.growth.counted(&stats);
                    self.sweeping.note_counted(&stats);
                    self.observer.counted(&stats, &self.growth);
                }
                Err(error) => {
                    tracing::debug!(%error, "how much is stored could not be counted");
                    if counted_at.until(self.clock.now()) >= COUNT_BELIEVED_FOR {
                        self.growth.doubt();
                    }
                    self.observer.uncounted(&error);
                }
            }
        }
    }

    fn note_elected(&self, fence: Option<Fence>) {
        self.sweeping.note_elected(fence);
        self.observer.elected(fence);
    }

    fn failed(&self, error: &StoreError, doing: &'static str) {
        tracing::warn!(%error, doing, "sweeping failed; it is tried again");
        self.sweeping.note_failed();
        self.observer.failed(error);
    }

    /// The store's answer, if it comes in time.
    async fn within<T>(&self, asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        tokio::select! {
            biased;
            answer = asked => answer,
            () = self.clock.sleep(STORE_WITHIN) => {
                Err(StoreError::new(StoreErrorKind::TimedOut, "waiting for the store"))
            }
        }
    }
}
