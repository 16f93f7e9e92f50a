//! Random workloads through the real store on a simulated disk, and what was acknowledged when.
//!
//! The truth is what `transition` makes of the acknowledged commands, not what the store says: every record is compared
//! with it after every round.

mod cast;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use onlyonce_core::record::State;
use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::{Answer, Change, ClaimAnswer, Command, Moment, Sweep, transition, view};
use onlyonce_core::{
    Clock, Fence, Record, RecordId, Secret, StateKind, Store, StoreError, StoreErrorKind, Timestamp,
};
use onlyonce_store_embedded::{EmbeddedStore, Options};
use onlyonce_testkit::model::send;
use onlyonce_testkit::{ManualClock, run};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;

pub(crate) use self::cast::owner;
use self::cast::{Cast, some_time};
use crate::disk::{Fault, SimDisk};

/// What a store that knows nothing yet is asked to keep.
pub(crate) fn secret() -> Secret {
    Secret::new([42; 32])
}

/// What was acknowledged up to some point.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The length of the disk's log when every answer of this step had arrived.
    pub(crate) end: usize,
    pub(crate) now: Timestamp,
    pub(crate) records: BTreeMap<RecordId, Record>,
    /// The length of the log when the answer about a record had arrived.
    pub(crate) answered: BTreeMap<RecordId, usize>,
    /// The highest fence granted so far.
    pub(crate) fence: Fence,
    /// Whether the secret was acknowledged.
    pub(crate) secret: bool,
}

/// A workload that was run.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) seed: u64,
    pub(crate) disk: SimDisk,
    pub(crate) options: Options,
    pub(crate) ids: Vec<RecordId>,
    /// The first is the empty disk.
    pub(crate) steps: Vec<Step>,
    /// Commands that failed, so that nobody knows whether they were applied. The run ended with them.
    pub(crate) failed: Vec<Command>,
    pub(crate) errors: Vec<StoreError>,
    /// The length of the log when the run was over.
    pub(crate) end: usize,
    /// What the store answered to claims after something had failed.
    pub(crate) afterwards: Vec<Result<ClaimAnswer, StoreError>>,
}

/// Runs the workload of `seed`, of `rounds` rounds.
pub(crate) fn record(seed: u64, rounds: usize) -> Recorded {
    let recorded = record_with(seed, rounds, None);
    assert!(recorded.errors.is_empty(), "seed {seed}: {:?}", recorded.errors);
    recorded
}

/// Runs the workload of `seed` with a fault in it, until something fails.
pub(crate) fn record_with(seed: u64, rounds: usize, fault: Option<Fault>) -> Recorded {
    let mut rng = SmallRng::seed_from_u64(seed);
    let disk = SimDisk::default();
    if let Some(fault) = fault {
        disk.fail(fault);
    }
    let segment_bytes_max = if rng.random() { 4096 } else { Options::default().segment_bytes_max };
    let options = Options { segment_bytes_max, reserve_bytes: 512, ..Options::default() };
    let mut stage = Stage {
        cast: Cast::new(&mut rng),
        clock: Arc::new(ManualClock::default()),
        store: None,
        model: BTreeMap::new(),
        recorded: Recorded {
            seed,
            disk,
            options,
            ids: Vec::new(),
            steps: Vec::new(),
            failed: Vec::new(),
            errors: Vec::new(),
            end: 0,
            afterwards: Vec::new(),
        },
        secret: false,
        fence: Fence::default(),
    };
    stage.recorded.ids = stage.cast.ids.to_vec();
    stage.step(BTreeMap::new());
    run(async {
        // What ends a run was noted where it happened.
        let _ = stage.play(rounds, &mut rng).await;
    });
    stage.recorded
}

/// Whether `found` is what a store says at `now` that held `record` when it ended. What was in flight is unknown, and
/// how far its lease had been renewed is nobody's concern any more, unless its owner lives elsewhere.
pub(crate) fn is_recovered(record: Option<&Record>, found: Option<&Record>, now: Timestamp) -> bool {
    match (record, found) {
        (Some(record), Some(found)) if record.kind() == StateKind::InFlight && !record.remote => {
            matches!(found.state, State::Unknown { recovery: None, .. })
                && Record { state: record.state.clone(), ..found.clone() } == *record
        }
        _ => view(record, now).as_deref() == found,
    }
}

/// Something failed: the run is over.
struct Over;

struct Stage {
    cast: Cast,
    clock: Arc<ManualClock>,
    store: Option<Arc<EmbeddedStore>>,
    model: BTreeMap<RecordId, Record>,
    recorded: Recorded,
    secret: bool,
    fence: Fence,
}

impl Stage {
    async fn play(&mut self, rounds: usize, rng: &mut SmallRng) -> Result<(), Over> {
        let opened = self.open();
        self.recorded.end = self.recorded.disk.log_len();
        opened?;
        let played = self.play_on(rounds, rng).await;
        self.recorded.end = self.recorded.disk.log_len();
        if let (Err(_), Some(store)) = (&played, self.store.take()) {
            for claim in self.cast.new_claims() {
                self.recorded.afterwards.push(store.claim(&claim).await);
            }
        }
        played
    }

    async fn play_on(&mut self, rounds: usize, rng: &mut SmallRng) -> Result<(), Over> {
        let kept = self.store().secret(&secret()).await;
        self.note(kept)?;
        self.secret = true;
        self.step(BTreeMap::new());
        for _ in 0..rounds {
            match rng.random_range(0..40) {
                0..8 => {
                    self.clock.advance(some_time(rng));
                    self.step(BTreeMap::new());
                }
                8..12 => self.sweep().await?,
                12 => self.reopen().await?,
                _ => {
                    let commands = self.cast.commands(rng);
                    self.round(commands).await?;
                }
            }
            self.compare().await?;
        }
        Ok(())
    }

    fn store(&self) -> Arc<EmbeddedStore> {
        self.store.clone().unwrap()
    }

    /// Opens the store, after closing it if it is open.
    fn open(&mut self) -> Result<(), Over> {
        self.store = None;
        let disk = Arc::new(self.recorded.disk.clone());
        let opened = EmbeddedStore::open_on(disk, self.clock.clone(), self.recorded.options);
        self.store = Some(Arc::new(self.note(opened)?));
        Ok(())
    }

    fn note<T>(&mut self, result: Result<T, StoreError>) -> Result<T, Over> {
        result.map_err(|error| {
            self.recorded.errors.push(error);
            Over
        })
    }

    fn step(&mut self, answered: BTreeMap<RecordId, usize>) {
        self.recorded.steps.push(Step {
            end: self.recorded.disk.log_len(),
            now: self.clock.now(),
            records: self.model.clone(),
            answered,
            fence: self.fence,
            secret: self.secret,
        });
    }

    /// Sends commands at once and learns from their answers.
    async fn round(&mut self, commands: Vec<Command>) -> Result<(), Over> {
        let mut sent = JoinSet::new();
        for command in commands {
            let (store, disk) = (self.store(), self.recorded.disk.clone());
            sent.spawn(async move {
                let answer = send(&*store, &command).await;
                (command, answer, disk.log_len())
            });
        }
        let mut answered = BTreeMap::new();
        let mut failed = false;
        while let Some(joined) = sent.join_next().await {
            let (command, answer, at) = joined.unwrap();
            match answer {
                Ok(answer) => {
                    self.apply(&command, &answer);
                    self.cast.learn(&command, &answer);
                    answered.insert(*command.id(), at);
                }
                Err(error) => {
                    failed = true;
                    // What is known to have no effect need not be looked for.
                    if error.outcome_unknown() {
                        self.recorded.failed.push(command);
                    }
                    self.recorded.errors.push(error);
                }
            }
        }
        self.step(answered);
        if failed { Err(Over) } else { Ok(()) }
    }

    /// Does to the model what the store says that it did, with the fence that it chose.
    fn apply(&mut self, command: &Command, answer: &Answer) {
        let id = *command.id();
        let chosen = match answer {
            Answer::Claim(ClaimAnswer::Granted(grant)) => grant.fence,
            _ => Fence::default(),
        };
        let moment = Moment { now: self.clock.now(), next_fence: chosen };
        let (change, expected) = transition(self.model.get(&id), command, moment);
        assert_eq!(*answer, expected, "seed {}: {command:?}", self.recorded.seed);
        if chosen != Fence::default() && change != Change::Keep {
            self.fence = self.fence.max(chosen);
        }
        self.write(id, change);
    }

    fn write(&mut self, id: RecordId, change: Change) {
        match change {
            Change::Keep => {}
            Change::Put(record) => drop(self.model.insert(id, record)),
            Change::Remove => drop(self.model.remove(&id)),
        }
    }

    async fn sweep(&mut self) -> Result<(), Over> {
        let swept = self.store().sweep(SweepBudget::DEFAULT).await;
        self.note(swept)?;
        for id in self.cast.ids {
            let moment = Moment { now: self.clock.now(), next_fence: Fence::default() };
            let (change, _) = transition(self.model.get(&id), &Command::Sweep(Sweep { id }), moment);
            self.write(id, change);
        }
        self.step(BTreeMap::new());
        Ok(())
    }

    /// What was in flight at the last start is unknown at this one, since its lease as far as that was written.
    async fn reopen(&mut self) -> Result<(), Over> {
        self.open()?;
        let orphans: Vec<_> = self
            .model
            .iter()
            .filter(|(_, record)| record.kind() == StateKind::InFlight && !record.remote)
            .map(|(id, record)| (*id, record.clone()))
            .collect();
        for (id, record) in orphans {
            let found = match self.store().lookup(&id).await {
                Err(error) if error.kind() == StoreErrorKind::Unavailable => return self.note(Err(error)),
                found => found.unwrap(),
            };
            assert!(
                is_recovered(Some(&record), found.as_ref(), self.clock.now()),
                "{found:?}, not {record:?}"
            );
            self.model.insert(id, found.unwrap());
        }
        self.step(BTreeMap::new());
        Ok(())
    }

    async fn compare(&mut self) -> Result<(), Over> {
        for id in self.cast.ids {
            let found = match self.store().lookup(&id).await {
                // A sealer's or an idle committer's failure comes to light here.
                Err(error) if error.kind() == StoreErrorKind::Unavailable => return self.note(Err(error)),
                found => found.unwrap(),
            };
            let expected = view(self.model.get(&id), self.clock.now()).map(Cow::into_owned);
            assert_eq!(found, expected, "seed {}, step {}", self.recorded.seed, self.recorded.steps.len());
        }
        Ok(())
    }
}
