//! The smallest right store: a map of encoded records and `transition`, one command at a time.
//!
//! It shows how little a store has to do, runs the codec under the suite, and can be hurt in every way a store can:
//! crashed, damaged, or broken by a [`Defect`] so that the suite's teeth can be shown.

mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::record::{Fence, Record, codec};
use onlyonce_core::store::{Imported, StoreError, StoreErrorKind, check_import};
use onlyonce_core::transition::{Answer, Change, Command, Moment, transition, view};
use onlyonce_core::{Clock, RecordId, Secret, Store, Timestamp};
use tokio::sync::Notify;

use crate::clock::ManualClock;
use crate::fixture::Fixture;

/// A state machine: [`transition`], or a broken one.
pub type Machine = fn(Option<&Record>, &Command, Moment) -> (Change, Answer);

/// What is wrong with a store. [`Defect::NONE`] is nothing.
#[derive(Debug, Clone, Copy)]
pub struct Defect {
    machine: Machine,
    flaw: Option<Flaw>,
}

/// What is wrong with a store around its state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Takes bytes it cannot read for no record at all.
    DamageIsAbsence,
    /// Answers before its write is safe: a crash loses the last one.
    AnswersBeforeSync,
    /// Takes the fences of each record from the record alone, so that they start again with a new one.
    FencesRestart,
    /// Goes by a clock of its own that nobody moves.
    OwnClock,
    /// Remembers that a record was absent, and believes it.
    RemembersAbsence,
    /// Sets watches but never wakes them.
    SleepsThroughChanges,
    /// Stops a batch at the first item that was not granted.
    StopsBatchesEarly,
    /// Takes every secret it is offered.
    TakesEverySecret,
    /// Lists every principal's records, whoever was asked for.
    ListIgnoresScope,
    /// Puts whatever is asked for on one page, however much that is.
    PagesOfAnyWeight,
    /// Compares no fingerprints in a batch.
    BatchIgnoresFingerprints,
    /// Keeps of a completion in a batch only the outcome.
    BatchDropsRetention,
    /// Opens again without the steps that were recorded.
    RestartForgetsSteps,
    /// Reads and writes in two steps.
    ReadsThenWrites,
    /// Takes in records and goes on granting below their fences.
    ImportForgetsFences,
}

impl Defect {
    /// No defect.
    pub const NONE: Self = Self { machine: transition, flaw: None };

    /// A store that decides by `machine` in place of [`transition`].
    pub const fn of(machine: Machine) -> Self {
        Self { machine, flaw: None }
    }

    /// A store that decides rightly and has a flaw elsewhere.
    pub const fn with(flaw: Flaw) -> Self {
        Self { machine: transition, flaw: Some(flaw) }
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }
}

/// The smallest right store. Cloning it shares the disk, as opening a store again does.
#[derive(Clone)]
pub struct ReferenceStore {
    clock: Arc<dyn Clock>,
    defect: Defect,
    disk: Arc<Mutex<Disk>>,
    changed: Arc<Notify>,
    /// For [`Flaw::ReadsThenWrites`]: told when a thread other than this one has read.
    has_read: Arc<Condvar>,
    opened_by: ThreadId,
}

/// How long a read that is alone waits for another one.
const COMPANY_MAX: Duration = Duration::from_mins(1);

#[derive(Default)]
struct Disk {
    records: BTreeMap<RecordId, Bytes>,
    /// What a crash would leave, when that is not `records`.
    synced: Option<BTreeMap<RecordId, Bytes>>,
    absent: Vec<RecordId>,
    fence: u64,
    secret: Option<Secret>,
    /// Reads that may meet others (see [`ReferenceStore::let_another_read`]).
    reads: u64,
}

impl fmt::Debug for ReferenceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReferenceStore")
    }
}

impl ReferenceStore {
    /// A right store on `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_defect(clock, Defect::NONE)
    }

    /// A store with a defect.
    pub fn with_defect(clock: Arc<dyn Clock>, defect: Defect) -> Self {
        Self {
            clock,
            defect,
            disk: Arc::default(),
            changed: Arc::default(),
            has_read: Arc::default(),
            opened_by: thread::current().id(),
        }
    }

    fn now(&self) -> Timestamp {
        if self.defect.is(Flaw::OwnClock) { ManualClock::default().now() } else { self.clock.now() }
    }

    /// One command, as one atomic step.
    fn apply(&self, id: &RecordId, command: &Command) -> Result<Answer, StoreError> {
        let mut disk = self.disk.lock().unwrap();
        let stored = self.read(&disk, id)?;
        if self.defect.is(Flaw::ReadsThenWrites) && thread::current().id() != self.opened_by {
            disk = self.let_another_read(disk);
        }
        disk.fence += 1;
        let source = if self.defect.is(Flaw::FencesRestart) { 1 } else { disk.fence };
        let moment = Moment { now: self.now(), next_fence: Fence::new(source).unwrap() };
        let (change, answer) = (self.defect.machine)(stored.as_ref(), command, moment);
        if change != Change::Keep {
            if self.defect.is(Flaw::AnswersBeforeSync) {
                disk.synced = Some(disk.records.clone());
            }
            match change {
                Change::Put(record) => drop(disk.records.insert(*id, codec::encode(id, &record).into())),
                _ => drop(disk.records.remove(id)),
            }
            if !self.defect.is(Flaw::SleepsThroughChanges) {
                self.changed.notify_waiters();
            }
        }
        Ok(answer)
    }

    /// Waits until another thread has read, every second time: what only happens now and then may not happen at all.
    fn let_another_read<'a>(&'a self, mut disk: MutexGuard<'a, Disk>) -> MutexGuard<'a, Disk> {
        disk.reads += 1;
        let mine = disk.reads;
        self.has_read.notify_all();
        let is_alone = |disk: &mut Disk| mine % 2 == 1 && disk.reads == mine;
        self.has_read.wait_timeout_while(disk, COMPANY_MAX, is_alone).unwrap().0
    }

    fn read(&self, disk: &Disk, id: &RecordId) -> Result<Option<Record>, StoreError> {
        if self.defect.is(Flaw::RemembersAbsence) && disk.absent.contains(id) {
            return Ok(None);
        }
        let Some(bytes) = disk.records.get(id) else {
            return Ok(None);
        };
        match codec::decode(id, bytes) {
            Ok(record) => Ok(Some(record)),
            Err(_) if self.defect.is(Flaw::DamageIsAbsence) => Ok(None),
            Err(error) => Err(StoreError::undecodable(error, "reading a record")),
        }
    }

    /// Takes in what is not there yet.
    fn take_in(&self, records: &[(RecordId, Record)]) -> Result<Imported, StoreError> {
        check_import(records)?;
        let mut imported = Imported::default();
        let now = self.now();
        let mut disk = self.disk.lock().unwrap();
        for (id, record) in records {
            let stored = self.read(&disk, id)?;
            if view(stored.as_ref(), now).is_some() || record.is_expired(now) {
                imported.left += 1;
                continue;
            }
            if !self.defect.is(Flaw::ImportForgetsFences) {
                disk.fence = disk.fence.max(record.fence.get());
            }
            disk.records.insert(*id, codec::encode(id, record).into());
            imported.taken += 1;
        }
        Ok(imported)
    }

    /// What is on disk, and the time.
    fn all(&self) -> Result<(Vec<(RecordId, Record)>, Timestamp), StoreError> {
        let disk = self.disk.lock().unwrap();
        let mut records = Vec::new();
        for id in disk.records.keys() {
            records.extend(self.read(&disk, id)?.map(|record| (*id, record)));
        }
        Ok((records, self.now()))
    }

    fn too_many() -> StoreError {
        StoreError::new(StoreErrorKind::Misuse, "running a batch of more than 1000 commands")
    }
}

/// A [`ReferenceStore`] under test.
#[derive(Debug)]
pub struct Reference {
    store: ReferenceStore,
    clock: Arc<ManualClock>,
}

impl Reference {
    /// A store with `defect`, on a clock of its own.
    pub fn new(defect: Defect) -> Self {
        let clock = Arc::new(ManualClock::default());
        Self { store: ReferenceStore::with_defect(Arc::clone(&clock) as Arc<dyn Clock>, defect), clock }
    }
}

impl Fixture for Reference {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn restart(&self) -> bool {
        let mut disk = self.store.disk.lock().unwrap();
        if let Some(synced) = disk.synced.take() {
            disk.records = synced;
        }
        if self.store.defect.is(Flaw::RestartForgetsSteps) {
            for (id, bytes) in &mut disk.records {
                let mut record = codec::decode(id, bytes).unwrap();
                record.steps.clear();
                *bytes = codec::encode(id, &record).into();
            }
        }
        true
    }

    async fn damage(&self, id: &RecordId) -> bool {
        let mut disk = self.store.disk.lock().unwrap();
        let mut bytes = disk.records[id].to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        disk.records.insert(*id, bytes.into());
        true
    }
}
