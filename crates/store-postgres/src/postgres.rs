//! The store: commands go to the lanes, everything else is a call of its own.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onlyonce_core::store::{
    BATCH_MAX, Batch, Durability, Filling, Imported, Listing, Page, Stats, StoreFuture, SweepBudget, Swept,
    Watch, check_import,
};
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Answer, Claim, ClaimAnswer, Command, Complete, CompleteAnswer, Erase,
    EraseAnswer, RecordStep, Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer, StepAnswer,
};
use onlyonce_core::{Clock, Record, RecordId, Secret, Store, StoreError, StoreErrorKind};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_postgres::types::Type;

use crate::arrays::argument;
use crate::calls;
use crate::connect::Connector;
use crate::error::OpenError;
use crate::lanes::{self, Rank};
use crate::options::Options;
use crate::shared::{Shared, Tail, closed};
use crate::watch;

/// How many connections carry what does not travel in batches: reads, verdicts, sweeps.
const SIDE_LANES: usize = 2;
/// How many wait for the transactions of others. Connected when there is something to wait for.
const PATIENT_LANES: usize = 2;
/// How many pages of records are read to count them: as much as is read in a tenth of a second or so.
const STATS_PAGES_MAX: i64 = 5000;

/// About how long the server and its disk are busy later with a record that was swept: its page is written to the log and to the
/// table, and again by the vacuum, as are the pages of its indexes.
const LEFT_BEHIND: Duration = Duration::from_micros(20);
/// How many records one call touches at the most. Few: on a machine of few processors whoever is served waits behind it.
const SWEPT_TOGETHER: usize = 100;
/// After how many calls a sweep begins anew, even if there is always more: what it passed over must not wait for ever.
const PASS_CALLS: u32 = 5000;

/// Records in `PostgreSQL`, shared by every process that opens the same URL.
///
/// Opened inside a tokio runtime, on which its connections live; it may be used from any other.
pub struct PostgresStore {
    pub(crate) shared: Arc<Shared>,
    /// Hears what other processes change. Started by the first who waits.
    ear: OnceLock<JoinHandle<()>>,
    /// What was due until then has been swept in the pass under way; 0 when none is.
    swept_to: AtomicI64,
    /// How many calls swept.
    sweeps: AtomicU32,
}

impl PostgresStore {
    /// Opens the store, which must have been [migrated](crate::migrate).
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        Self::open_with(options, None).await
    }

    /// Opens the store on a clock of the tests' own in place of the server's.
    #[cfg(feature = "__clock")]
    pub async fn open_on(options: Options, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        Self::open_with(options, Some(clock)).await
    }

    async fn open_with(options: Options, clock: Option<Arc<dyn Clock>>) -> Result<Self, OpenError> {
        let lanes = options.connections;
        let shared = Arc::new(Shared::new(Connector::new(options)?, clock));
        // What is wrong is said now and not with the first request.
        let first = shared.connect().await?;
        let mut first = Some(first);
        for number in 0..lanes {
            let commands = Arc::clone(&shared.commands);
            tokio::spawn(lanes::run(Arc::clone(&shared), commands, first.take(), Rank::of(number)));
        }
        for _ in 0..SIDE_LANES {
            tokio::spawn(lanes::run(Arc::clone(&shared), Arc::clone(&shared.calls), None, Rank::First));
        }
        for _ in 0..PATIENT_LANES {
            tokio::spawn(lanes::run_patiently(Arc::clone(&shared)));
        }
        Ok(Self { shared, ear: OnceLock::new(), swept_to: AtomicI64::new(0), sweeps: AtomicU32::new(0) })
    }

    /// Sends one command with whatever else waits.
    async fn run<A>(&self, command: Command, of: fn(Answer) -> Option<A>) -> Result<A, StoreError> {
        let doing = lanes::doing_of(&command);
        let (reply, answer) = oneshot::channel();
        self.shared.push(command, reply)?;
        let answer = answer.await.map_err(|_| closed(doing))??;
        of(answer).ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt, doing))
    }

    /// Sends many commands. Of several for one record, each waits for the one before it.
    async fn run_many<A>(
        &self,
        commands: Vec<Command>,
        of: fn(Answer) -> Option<A>,
    ) -> Result<Batch<A>, StoreError> {
        if commands.len() > BATCH_MAX {
            let doing = "running a batch of more than 1000 commands";
            return Err(StoreError::new(StoreErrorKind::Misuse, doing));
        }
        let mut answers: Vec<Option<Result<A, StoreError>>> = commands.iter().map(|_| None).collect();
        let mut left: Vec<(usize, Command)> = commands.into_iter().enumerate().collect();
        while !left.is_empty() {
            let (now, later) = calls::first_of_each(left, |(_, command)| *command.id());
            left = later;
            let mut waiting = Vec::with_capacity(now.len());
            for (at, command) in now {
                let doing = lanes::doing_of(&command);
                let (reply, answer) = oneshot::channel();
                match self.shared.push(command, reply) {
                    Ok(()) => waiting.push((at, doing, answer)),
                    Err(error) => answers[at] = Some(Err(error)),
                }
            }
            for (at, doing, answer) in waiting {
                let answer = answer.await.unwrap_or_else(|_| Err(closed(doing)));
                let strange = || StoreError::new(StoreErrorKind::Corrupt, doing);
                answers[at] = Some(answer.and_then(|answer| of(answer).ok_or_else(strange)));
            }
        }
        let missing = || Err(StoreError::new(StoreErrorKind::Corrupt, "running a batch"));
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect())
    }

    async fn take_in(&self, records: &[(RecordId, Record)]) -> Result<Imported, StoreError> {
        const DOING: &str = "taking in records";
        check_import(records)?;
        let mut imported = Imported::default();
        let Some(floor) = records.iter().map(|(_, record)| record.fence).max() else {
            return Ok(imported);
        };
        // ORDER: the source is raised before a record can be seen, so that no grant in between is lower.
        let floor = argument(crate::column::fence(floor), Type::INT8);
        self.shared.call("raise_fences", vec![floor], Tail::Nothing, DOING).await?;
        if let Some(dues) = crate::import::dues_of_large(records) {
            self.shared.call("make_days", vec![dues], Tail::Clock, DOING).await?;
        }
        let mut left: Vec<&(RecordId, Record)> = records.iter().collect();
        while !left.is_empty() {
            let (now, later) = calls::first_of_each(left, |(id, _)| *id);
            left = later;
            let rows = self.shared.call("import", crate::import::arguments(&now), Tail::Clock, DOING).await?;
            let taken = calls::taken(&rows)?;
            imported.taken += taken;
            imported.left += now.len() - taken;
            for (id, _) in now {
                self.shared.watches.wake(id);
            }
        }
        Ok(imported)
    }

    async fn watch_for(&self, id: &RecordId) -> Watch {
        let watch = watch::watch(&self.shared, id);
        if !self.shared.connector().options().pooler {
            let shared = Arc::clone(&self.shared);
            self.ear.get_or_init(|| self.shared.runtime.spawn(watch::listen(shared)));
            // Who cannot register, or not soon, looks again by itself.
            let registering =
                self.shared.call("wait_for", watch::registration(id), Tail::Clock, "waiting for a record");
            let _ = tokio::time::timeout(watch::REGISTER_WITHIN, registering).await;
        }
        watch
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(ear) = self.ear.get() {
            ear.abort();
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("options", self.shared.connector().options())
            .finish_non_exhaustive()
    }
}

macro_rules! only {
    ($kind:ident) => {
        |answer| if let Answer::$kind(answer) = answer { Some(answer) } else { None }
    };
}

impl Store for PostgresStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, ClaimAnswer> {
        Box::pin(self.run(Command::Claim(claim.clone()), only!(Claim)))
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> StoreFuture<'a, RenewAnswer> {
        Box::pin(self.run(Command::Renew(renew.clone()), only!(Renew)))
    }

    fn complete<'a>(&'a self, complete: &'a Complete) -> StoreFuture<'a, CompleteAnswer> {
        Box::pin(self.run(Command::Complete(complete.clone()), only!(Complete)))
    }

    fn release<'a>(&'a self, release: &'a Release) -> StoreFuture<'a, ReleaseAnswer> {
        Box::pin(self.run(Command::Release(release.clone()), only!(Release)))
    }

    fn abandon<'a>(&'a self, abandon: &'a Abandon) -> StoreFuture<'a, AbandonAnswer> {
        Box::pin(async move {
            const DOING: &str = "abandoning a record";
            let rows = self
                .shared
                .call("abandon", calls::token(&abandon.token), Tail::Row(&abandon.token.id), DOING)
                .await?;
            self.shared.watches.wake(&abandon.token.id);
            calls::abandoned(&rows, DOING)
        })
    }

    fn record_step<'a>(&'a self, step: &'a RecordStep) -> StoreFuture<'a, StepAnswer> {
        Box::pin(async move {
            const DOING: &str = "recording a step";
            let rows =
                self.shared.call("record_step", calls::step(step), Tail::Row(&step.token.id), DOING).await?;
            calls::stepped(&rows, DOING)
        })
    }

    fn claim_many<'a>(&'a self, claims: &'a [Claim]) -> StoreFuture<'a, Batch<ClaimAnswer>> {
        Box::pin(self.run_many(claims.iter().cloned().map(Command::Claim).collect(), only!(Claim)))
    }

    fn renew_many<'a>(&'a self, renews: &'a [Renew]) -> StoreFuture<'a, Batch<RenewAnswer>> {
        Box::pin(self.run_many(renews.iter().cloned().map(Command::Renew).collect(), only!(Renew)))
    }

    fn complete_many<'a>(&'a self, completes: &'a [Complete]) -> StoreFuture<'a, Batch<CompleteAnswer>> {
        Box::pin(self.run_many(completes.iter().cloned().map(Command::Complete).collect(), only!(Complete)))
    }

    fn release_many<'a>(&'a self, releases: &'a [Release]) -> StoreFuture<'a, Batch<ReleaseAnswer>> {
        Box::pin(self.run_many(releases.iter().cloned().map(Command::Release).collect(), only!(Release)))
    }

    fn resolve<'a>(&'a self, resolve: &'a Resolve) -> StoreFuture<'a, ResolveAnswer> {
        Box::pin(async move {
            const DOING: &str = "resolving a record";
            let rows =
                self.shared.call("resolve", calls::resolve(resolve), Tail::Row(&resolve.id), DOING).await?;
            self.shared.watches.wake(&resolve.id);
            calls::resolved(&rows, DOING)
        })
    }

    fn erase<'a>(&'a self, erase: &'a Erase) -> StoreFuture<'a, EraseAnswer> {
        Box::pin(async move {
            const DOING: &str = "erasing a record";
            let rows =
                self.shared.call("erase", vec![calls::id(&erase.id)], Tail::Row(&erase.id), DOING).await?;
            self.shared.watches.wake(&erase.id);
            calls::erased(&rows, DOING)
        })
    }

    fn lookup<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move {
            const DOING: &str = "looking a record up";
            let rows = self.shared.call("lookup", vec![calls::id(id)], Tail::Clock, DOING).await?;
            calls::looked_up(&rows, DOING)
        })
    }

    fn list<'a>(&'a self, listing: &'a Listing) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let (mut page, mut after) = (Filling::new(listing), listing.after);
            loop {
                let wanted = crate::listing::rows_wanted(&page);
                let arguments = crate::listing::arguments(listing, after, wanted);
                let rows = self.shared.call("list", arguments, Tail::Clock, "listing records").await?;
                after = crate::listing::fill(&mut page, &rows, wanted)?;
                if after.is_none() {
                    return Ok(page.finish());
                }
            }
        })
    }

    fn sweep(&self, budget: SweepBudget) -> StoreFuture<'_, Swept> {
        Box::pin(async move {
            const DOING: &str = "sweeping";
            let budget = i32::try_from(budget.get().min(SWEPT_TOGETHER)).unwrap_or(i32::MAX);
            let is_first = self.sweeps.fetch_add(1, Ordering::Relaxed).is_multiple_of(PASS_CALLS);
            let from = if is_first { 0 } else { self.swept_to.load(Ordering::Relaxed) };
            let arguments = vec![argument(budget, Type::INT4), argument(from, Type::INT8)];
            let rows = self.shared.call("sweep", arguments, Tail::Clock, DOING).await?;
            let (mut swept, reached) = calls::swept(&rows)?;
            self.swept_to.store(reached, Ordering::Relaxed);
            let touched = u32::try_from(swept.touched()).unwrap_or(u32::MAX);
            swept.left_behind = LEFT_BEHIND * touched;
            if !swept.more {
                self.shared.call("drop_days", Vec::new(), Tail::Clock, DOING).await?;
            }
            Ok(swept)
        })
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        Box::pin(async move {
            let pages = argument(STATS_PAGES_MAX, Type::INT8);
            let rows = self.shared.call("stats", vec![pages], Tail::Clock, "counting records").await?;
            calls::counted(&rows)
        })
    }

    fn watch<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Watch> {
        Box::pin(async move { Ok(self.watch_for(id).await) })
    }

    fn secret<'a>(&'a self, offered: &'a Secret) -> StoreFuture<'a, Secret> {
        Box::pin(async move {
            let offered = argument(offered.expose().to_vec(), Type::BYTEA);
            let rows =
                self.shared.call("keep_secret", vec![offered], Tail::Nothing, "reading the secret").await?;
            calls::secret(&rows)
        })
    }

    fn import<'a>(&'a self, records: &'a [(RecordId, Record)]) -> StoreFuture<'a, Imported> {
        Box::pin(self.take_in(records))
    }

    fn durability(&self) -> Durability {
        Durability { process_crash: true, power_cut: true, node_loss: self.shared.survives_node_loss() }
    }
}
