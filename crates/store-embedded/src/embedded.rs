//! The embedded store behind the [`Store`] trait: reads where it can, hands the rest to the committer.

use std::fmt;
use std::future::ready;
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use onlyonce_core::store::{
    BATCH_MAX, Batch, Durability, Filling, Imported, Listing, Page, Stats, StoreFuture, SweepBudget, Swept,
    Watch, check_import,
};
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Answer, Change, Claim, ClaimAnswer, Command, Complete, CompleteAnswer, Erase,
    EraseAnswer, Moment, RecordStep, Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer,
    StepAnswer, transition, view,
};
use onlyonce_core::{Clock, Fence, Record, RecordId, Secret, Store, StoreError, StoreErrorKind, SystemClock};
use tokio::sync::oneshot;

use crate::catalog::Version;
use crate::committer::{self, Committer, Remover, Reply, Sealer};
use crate::io::{Disk, RealDisk};
use crate::meta::Meta;
use crate::options::{Options, Sync};
use crate::queue::Job;
use crate::recovery;
use crate::shared::Shared;
use crate::tenure::Tenure;

/// A durable store in a folder.
///
/// Dropping it waits for what is being written. A process that is killed instead loses nothing that was answered.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held for as long as the store is open; `None` on a simulated disk.
    _tenure: Option<Tenure>,
}

impl EmbeddedStore {
    /// Opens the store in `folder`, made if it is not there.
    ///
    /// Reads the folder and waits for the disk: call it before the first request, not within one.
    pub fn open(folder: &Path, options: Options) -> Result<Self, StoreError> {
        let disk = RealDisk::new(folder).map_err(|error| {
            StoreError::new(StoreErrorKind::Unavailable, "making the store's folder").because(error)
        })?;
        let tenure = Tenure::take(folder)?;
        Self::start(Arc::new(disk), Arc::new(SystemClock::new()), options, Some(tenure))
    }

    /// Opens the store on any disk and clock: for simulators and tests. Nothing keeps a second one away.
    pub fn open_on(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, options: Options) -> Result<Self, StoreError> {
        Self::start(disk, clock, options, None)
    }

    fn start(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        options: Options,
        tenure: Option<Tenure>,
    ) -> Result<Self, StoreError> {
        options
            .check()
            .map_err(|error| StoreError::new(StoreErrorKind::Misuse, "opening the store").because(error))?;
        // A disk so full that not even this fits has a reserve to give.
        let meta = Meta::next_boot(&*disk).or_else(|error| {
            committer::give_back(&*disk);
            Meta::next_boot(&*disk).map_err(|_| error)
        })?;
        let mut recovered = recovery::recover(&*disk, clock.now())?;
        recovered.catalog.begin_boot(meta.boot());
        let shared = Arc::new(Shared::new(disk, clock, options, meta, recovered.catalog));
        committer::prepare(&shared)?;
        let (to_seal, sealing) = mpsc::channel();
        for segment in recovered.unsealed {
            // Both ends are here: it cannot fail.
            let _ = to_seal.send(segment);
        }
        let (chores, removing) = mpsc::channel();
        let committer = Committer::new(Arc::clone(&shared), to_seal, chores);
        let sealer = Sealer::new(Arc::clone(&shared), sealing);
        let remover = Remover::new(Arc::clone(&shared), removing);
        let threads = vec![
            spawn("onlyonce-commit", move || committer.run())?,
            spawn("onlyonce-seal", move || sealer.run())?,
            spawn("onlyonce-remove", move || remover.run())?,
        ];
        Ok(Self { shared, threads: Mutex::new(threads), _tenure: tenure })
    }

    /// How much memory the indexes take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.shared.catalog().memory()
    }

    /// Copies the store into `folder` while it is in use. `progress` is told how many bytes are done, and of how many.
    ///
    /// Waits for the disk. Nothing can be erased meanwhile. A key that was used after the copy began is new to the copy: do not put a copy to use while
    /// callers may still retry what the original answered since.
    pub fn backup(&self, folder: &Path, progress: impl FnMut(u64, u64)) -> Result<(), StoreError> {
        self.shared.check()?;
        let _copying = self.shared.begin_copying();
        crate::backup::copy(&self.shared, folder, progress)
    }

    /// Answers at once a claim that changes nothing; the rest waits for the disk.
    ///
    /// What is durable is a state that was current at some moment of this call: answering by it is answering in order.
    fn run<T: Send + 'static>(&self, command: Command, pick: fn(Answer) -> Option<T>) -> StoreFuture<'_, T> {
        // Handed over before there is a future, which would else carry the command while it waits.
        match self.hand_over(command) {
            Ok(Handed::Answered(answer)) => Box::pin(ready(picked(answer, pick))),
            Ok(Handed::Waits(replied)) => {
                Box::pin(async move { picked(replied.await.map_err(|_| closing())??, pick) })
            }
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn hand_over(&self, command: Command) -> Result<Handed, StoreError> {
        self.shared.check()?;
        let mut absent_at = None;
        // Only claims: the others come from owners and nearly always write.
        if matches!(command, Command::Claim(_)) {
            match self.answer_without_writing(&command)? {
                Seen::Enough(answer) => return Ok(Handed::Answered(answer)),
                Seen::Absent(version) => absent_at = Some(version),
                Seen::Changes => {}
            }
        }
        let (reply, replied) = Reply::channel();
        self.shared.push(Job::Command(command, absent_at, reply))?;
        Ok(Handed::Waits(replied))
    }

    fn run_many<T, C>(
        &self,
        commands: &[C],
        wrap: fn(C) -> Command,
        pick: fn(Answer) -> Option<T>,
    ) -> StoreFuture<'_, Batch<T>>
    where
        T: Send + 'static,
        C: Clone,
    {
        if commands.len() > BATCH_MAX {
            let doing = "running a batch of more than 1000 commands";
            return Box::pin(ready(Err(StoreError::new(StoreErrorKind::Misuse, doing))));
        }
        let commands: Vec<_> = commands.iter().cloned().map(wrap).collect();
        Box::pin(async move {
            let (reply, replied) = Reply::channel();
            self.shared.push(Job::Commands(commands, reply))?;
            let answers = replied.await.map_err(|_| closing())?;
            Ok(answers.into_iter().map(|answer| picked(answer?, pick)).collect())
        })
    }

    fn answer_without_writing(&self, command: &Command) -> Result<Seen, StoreError> {
        // ORDER: the version first, so that whatever comes after it is seen by the committer.
        let version = self.shared.catalog().version();
        let Some(stored) = self.shared.read(command.id(), None)? else {
            return Ok(Seen::Absent(version));
        };
        let moment = Moment { now: self.shared.clock.now(), next_fence: Fence::default() };
        let (change, answer) = transition(Some(&stored.record), command, moment);
        Ok(if change == Change::Keep { Seen::Enough(answer) } else { Seen::Changes })
    }
}

/// What became of a command.
enum Handed {
    /// It is answered: nothing is to be written.
    Answered(Answer),
    /// The disk is waited for.
    Waits(oneshot::Receiver<Result<Answer, StoreError>>),
}

/// What a claim sees before it waits for the disk.
enum Seen {
    /// Its answer: nothing is to be written.
    Enough(Answer),
    /// No record, at this version.
    Absent(Version),
    /// A record that the claim changes.
    Changes,
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .map_err(|error| StoreError::new(StoreErrorKind::Unavailable, "starting the store").because(error))
}

fn picked<T>(answer: Answer, pick: fn(Answer) -> Option<T>) -> Result<T, StoreError> {
    pick(answer).ok_or_else(|| StoreError::new(StoreErrorKind::Misuse, "taking one answer for another"))
}

/// The command was handed over and its answer never came: it may have been applied.
fn closing() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "waiting for a store that is closing").with_unknown_outcome()
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.shared.queue.stop();
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EmbeddedStore").field(&self.shared).finish()
    }
}

/// Takes one kind of answer.
macro_rules! pick {
    ($kind:ident) => {
        |answer| match answer {
            Answer::$kind(answer) => Some(answer),
            _ => None,
        }
    };
}

impl Store for EmbeddedStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, ClaimAnswer> {
        self.run(Command::Claim(claim.clone()), pick!(Claim))
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> StoreFuture<'a, RenewAnswer> {
        self.run(Command::Renew(renew.clone()), pick!(Renew))
    }

    fn complete<'a>(&'a self, complete: &'a Complete) -> StoreFuture<'a, CompleteAnswer> {
        self.run(Command::Complete(complete.clone()), pick!(Complete))
    }

    fn release<'a>(&'a self, release: &'a Release) -> StoreFuture<'a, ReleaseAnswer> {
        self.run(Command::Release(release.clone()), pick!(Release))
    }

    fn abandon<'a>(&'a self, abandon: &'a Abandon) -> StoreFuture<'a, AbandonAnswer> {
        self.run(Command::Abandon(abandon.clone()), pick!(Abandon))
    }

    fn record_step<'a>(&'a self, step: &'a RecordStep) -> StoreFuture<'a, StepAnswer> {
        self.run(Command::RecordStep(step.clone()), pick!(RecordStep))
    }

    fn claim_many<'a>(&'a self, claims: &'a [Claim]) -> StoreFuture<'a, Batch<ClaimAnswer>> {
        self.run_many(claims, Command::Claim, pick!(Claim))
    }

    fn renew_many<'a>(&'a self, renews: &'a [Renew]) -> StoreFuture<'a, Batch<RenewAnswer>> {
        self.run_many(renews, Command::Renew, pick!(Renew))
    }

    fn complete_many<'a>(&'a self, completes: &'a [Complete]) -> StoreFuture<'a, Batch<CompleteAnswer>> {
        self.run_many(completes, Command::Complete, pick!(Complete))
    }

    fn release_many<'a>(&'a self, releases: &'a [Release]) -> StoreFuture<'a, Batch<ReleaseAnswer>> {
        self.run_many(releases, Command::Release, pick!(Release))
    }

    fn resolve<'a>(&'a self, resolve: &'a Resolve) -> StoreFuture<'a, ResolveAnswer> {
        self.run(Command::Resolve(resolve.clone()), pick!(Resolve))
    }

    fn erase<'a>(&'a self, erase: &'a Erase) -> StoreFuture<'a, EraseAnswer> {
        self.run(Command::Erase(erase.clone()), pick!(Erase))
    }

    fn lookup<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move {
            self.shared.check()?;
            let stored = self.shared.read(id, None)?;
            let now = self.shared.clock.now();
            Ok(view(stored.as_ref().map(|stored| &*stored.record), now).map(std::borrow::Cow::into_owned))
        })
    }

    fn list<'a>(&'a self, listing: &'a Listing) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            self.shared.check()?;
            let (mut page, mut after) = (Filling::new(listing), listing.after);
            loop {
                let now = self.shared.clock.now();
                after = self.shared.catalog().list(listing, &mut page, after, now)?;
                if after.is_none() {
                    return Ok(page.finish());
                }
                // A long listing holds up neither whoever writes nor whoever shares this thread.
                tokio::task::yield_now().await;
            }
        })
    }

    fn sweep(&self, budget: SweepBudget) -> StoreFuture<'_, Swept> {
        Box::pin(async move {
            let (reply, replied) = oneshot::channel();
            self.shared.push(Job::Sweep(budget, reply))?;
            replied.await.map_err(|_| closing())?
        })
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        Box::pin(async move {
            self.shared.check()?;
            Ok(self.shared.catalog().stats(self.shared.clock.now()))
        })
    }

    fn watch<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Watch> {
        Box::pin(ready(self.shared.check().map(|()| self.shared.watches.watch(id))))
    }

    fn secret<'a>(&'a self, offered: &'a Secret) -> StoreFuture<'a, Secret> {
        Box::pin(async move {
            self.shared.check()?;
            let mut meta = self.shared.meta();
            if let Some(secret) = &meta.secret {
                return Ok(secret.clone());
            }
            let mut next = meta.clone();
            next.secret = Some(offered.clone());
            self.shared
                .in_folder(|disk| next.write(disk))
                .map_err(|error| self.shared.poison("keeping the secret", &error))?;
            *meta = next;
            Ok(offered.clone())
        })
    }

    fn import<'a>(&'a self, records: &'a [(RecordId, Record)]) -> StoreFuture<'a, Imported> {
        Box::pin(async move {
            check_import(records)?;
            let (reply, replied) = oneshot::channel();
            self.shared.push(Job::Import(records.to_vec(), reply))?;
            replied.await.map_err(|_| closing())?
        })
    }

    fn durability(&self) -> Durability {
        let power_cut = self.shared.options.sync == Sync::Always;
        Durability { process_crash: true, power_cut, node_loss: false }
    }
}
