//! The reference store behind the [`Store`] trait: every operation is one `apply`.

use onlyonce_core::record::{Record, StateKind};
use onlyonce_core::store::{
    BATCH_MAX, Batch, Durability, Filling, Imported, Listing, Page, Stats, StoreFuture, SweepBudget, Swept,
    Watch,
};
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Answer, Claim, ClaimAnswer, Command, Complete, CompleteAnswer, Erase,
    EraseAnswer, RecordStep, Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer, StepAnswer,
    Sweep, SweepAnswer, view,
};
use onlyonce_core::{RecordId, Secret, Store, StoreError};

use super::{Flaw, ReferenceStore};

/// Runs a command and takes its answer out of the common one.
macro_rules! answer {
    ($store:expr, $kind:ident, $id:expr, $command:expr) => {
        match $store.apply($id, &Command::$kind($command.clone())) {
            Ok(Answer::$kind(answer)) => Ok(answer),
            Ok(other) => unreachable!("the machine answered {other:?}"),
            Err(error) => Err(error),
        }
    };
}

macro_rules! answers {
    ($store:expr, $kind:ident, $commands:expr, $is_stop:expr) => {{
        if $commands.len() > BATCH_MAX {
            return ready(Err(ReferenceStore::too_many()));
        }
        let mut batch = Vec::new();
        for command in $commands {
            let command = $store.as_batched(&Command::$kind(command.clone()));
            let answer = match $store.apply(command.id(), &command) {
                Ok(Answer::$kind(answer)) => Ok(answer),
                Ok(other) => unreachable!("the machine answered {other:?}"),
                Err(error) => Err(error),
            };
            let stop = $store.defect.is(Flaw::StopsBatchesEarly) && $is_stop(&answer);
            batch.push(answer);
            if stop {
                break;
            }
        }
        ready(Ok(batch))
    }};
}

fn ready<'a, T: Send + 'a>(result: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(result))
}

impl ReferenceStore {
    /// What a flawed store makes of a command in a batch.
    fn as_batched(&self, command: &Command) -> Command {
        match command {
            Command::Claim(claim) if self.defect.is(Flaw::BatchIgnoresFingerprints) => {
                let stored = self.read(&self.disk.lock().unwrap(), &claim.id);
                let fingerprint = stored.ok().flatten().and_then(|record| record.fingerprint);
                let fingerprint = fingerprint.unwrap_or_else(|| claim.fingerprint.clone());
                Command::Claim(Claim { fingerprint, ..claim.clone() })
            }
            Command::Complete(complete) if self.defect.is(Flaw::BatchDropsRetention) => {
                Command::Complete(Complete { retention: None, ..complete.clone() })
            }
            command => command.clone(),
        }
    }

    fn page(&self, listing: &Listing) -> Result<Page, StoreError> {
        let everyone = Listing { scope: None, ..listing.clone() };
        let listing = if self.defect.is(Flaw::ListIgnoresScope) { &everyone } else { listing };
        let unbounded = self.defect.is(Flaw::PagesOfAnyWeight);
        let (disk, now) = (self.disk.lock().unwrap(), self.now());
        let (mut page, mut heavy) = (Filling::new(listing), Page::default());
        for id in disk.records.keys().filter(|id| listing.after.is_none_or(|after| **id > after)) {
            let read = match self.read(&disk, id) {
                Ok(record) => match view(record.as_ref(), now) {
                    Some(seen) => Ok(seen.into_owned()),
                    None => continue,
                },
                Err(error) => Err(error),
            };
            if let (true, Ok(record)) = (unbounded, &read) {
                heavy.records.push((*id, record.clone()));
            } else if !page.take(*id, read)? {
                break;
            }
        }
        Ok(if unbounded { heavy } else { page.finish() })
    }

    fn sweep_some(&self, budget: SweepBudget) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        let (all, now) = self.all()?;
        for (id, record) in all {
            if swept.touched() == budget.get() {
                swept.more |= record.due_at() <= now;
                continue;
            }
            match answer!(self, Sweep, &id, Sweep { id })? {
                SweepAnswer::Removed => swept.removed += 1,
                SweepAnswer::MadeUnknown => swept.made_unknown += 1,
                SweepAnswer::Kept => {}
            }
        }
        Ok(swept)
    }

    fn count(&self) -> Result<Stats, StoreError> {
        let (all, now) = self.all()?;
        let mut stats = Stats::default();
        for (_, record) in &all {
            *match record.kind() {
                StateKind::InFlight => &mut stats.in_flight,
                StateKind::Completed => &mut stats.completed,
                StateKind::Released => &mut stats.released,
                StateKind::Unknown => &mut stats.unknown,
            } += 1;
            stats.bytes += record.weight() as u64;
            let expired = record.expires_at().filter(|at| *at <= now).map(|at| at.until(now));
            stats.oldest_expired = stats.oldest_expired.max(expired);
        }
        Ok(stats)
    }
}

impl Store for ReferenceStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, ClaimAnswer> {
        ready(answer!(self, Claim, &claim.id, claim))
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> StoreFuture<'a, RenewAnswer> {
        ready(answer!(self, Renew, &renew.token.id, renew))
    }

    fn complete<'a>(&'a self, complete: &'a Complete) -> StoreFuture<'a, CompleteAnswer> {
        ready(answer!(self, Complete, &complete.token.id, complete))
    }

    fn release<'a>(&'a self, release: &'a Release) -> StoreFuture<'a, ReleaseAnswer> {
        ready(answer!(self, Release, &release.token.id, release))
    }

    fn abandon<'a>(&'a self, abandon: &'a Abandon) -> StoreFuture<'a, AbandonAnswer> {
        ready(answer!(self, Abandon, &abandon.token.id, abandon))
    }

    fn record_step<'a>(&'a self, step: &'a RecordStep) -> StoreFuture<'a, StepAnswer> {
        ready(answer!(self, RecordStep, &step.token.id, step))
    }

    fn claim_many<'a>(&'a self, claims: &'a [Claim]) -> StoreFuture<'a, Batch<ClaimAnswer>> {
        answers!(self, Claim, claims, |answer: &Result<_, _>| !matches!(answer, Ok(ClaimAnswer::Granted(_))))
    }

    fn renew_many<'a>(&'a self, renews: &'a [Renew]) -> StoreFuture<'a, Batch<RenewAnswer>> {
        answers!(self, Renew, renews, |answer: &Result<_, _>| !matches!(answer, Ok(RenewAnswer::Renewed(_))))
    }

    fn complete_many<'a>(&'a self, completes: &'a [Complete]) -> StoreFuture<'a, Batch<CompleteAnswer>> {
        answers!(self, Complete, completes, |answer: &Result<_, _>| {
            !matches!(answer, Ok(CompleteAnswer::Completed))
        })
    }

    fn release_many<'a>(&'a self, releases: &'a [Release]) -> StoreFuture<'a, Batch<ReleaseAnswer>> {
        answers!(self, Release, releases, |answer: &Result<_, _>| !matches!(
            answer,
            Ok(ReleaseAnswer::Released)
        ))
    }

    fn resolve<'a>(&'a self, resolve: &'a Resolve) -> StoreFuture<'a, ResolveAnswer> {
        ready(answer!(self, Resolve, &resolve.id, resolve))
    }

    fn erase<'a>(&'a self, erase: &'a Erase) -> StoreFuture<'a, EraseAnswer> {
        ready(answer!(self, Erase, &erase.id, erase))
    }

    fn lookup<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Option<Record>> {
        let mut disk = self.disk.lock().unwrap();
        let stored = self.read(&disk, id);
        if self.defect.is(Flaw::RemembersAbsence) && matches!(stored, Ok(None)) {
            disk.absent.push(*id);
        }
        let now = self.now();
        ready(stored.map(|stored| view(stored.as_ref(), now).map(std::borrow::Cow::into_owned)))
    }

    fn list<'a>(&'a self, listing: &'a Listing) -> StoreFuture<'a, Page> {
        ready(self.page(listing))
    }

    fn sweep(&self, budget: SweepBudget) -> StoreFuture<'_, Swept> {
        ready(self.sweep_some(budget))
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        ready(self.count())
    }

    fn watch<'a>(&'a self, _: &'a RecordId) -> StoreFuture<'a, Watch> {
        ready(Ok(Watch::new(std::sync::Arc::clone(&self.changed).notified_owned())))
    }

    fn secret<'a>(&'a self, offered: &'a Secret) -> StoreFuture<'a, Secret> {
        let mut disk = self.disk.lock().unwrap();
        if self.defect.is(Flaw::TakesEverySecret) {
            disk.secret = None;
        }
        ready(Ok(disk.secret.get_or_insert_with(|| offered.clone()).clone()))
    }

    fn import<'a>(&'a self, records: &'a [(RecordId, Record)]) -> StoreFuture<'a, Imported> {
        ready(self.take_in(records))
    }

    fn durability(&self) -> Durability {
        Durability { process_crash: true, power_cut: true, node_loss: false }
    }
}
