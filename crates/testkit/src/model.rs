//! The model test: random commands against a store, each answer compared with what `transition` says.
//!
//! The store chooses its own fences, so the oracle takes the fence of each grant from the store's answer after checking
//! that it grew. Everything else must be equal: answers, and the record after each command.

mod chance;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use onlyonce_core::record::{Fence, Record, StateKind};
use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::{Answer, Change, ClaimAnswer, Command, Moment, Sweep, transition, view};
use onlyonce_core::{RecordId, Store, StoreError, Timestamp};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use self::chance::Cast;
use crate::fixture::{Fixture, Scene};

/// What happens next.
enum Event {
    Command(Command),
    Batch(Vec<Command>),
    /// The process that keeps the store ends without warning.
    Restart,
    Advance(Duration),
    SweepAll,
}

/// Runs `steps` random commands on `fixture` and panics, naming the seed, when an answer differs from the model's.
/// Answers how many commands were compared.
pub async fn compare<F: Fixture>(fixture: &F, seed: u64, steps: usize) -> u64 {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut cast = Cast::new();
    let mut model = Model { now: store_now(fixture).await, ..Model::default() };
    let mut compared = 0;
    for step in 0..steps {
        let store = fixture.store();
        match cast.next(&mut rng) {
            Event::Advance(by) => {
                model.now = model.now + by;
                fixture.advance(by).await;
            }
            Event::SweepAll => {
                while store.sweep(SweepBudget::DEFAULT).await.expect("sweeping").more {}
                model.sweep();
            }
            Event::Command(command) => {
                let answer = send(&*store, &command).await.expect("a right store answers");
                let expected = model.apply(&command, &answer);
                assert_eq!(answer, expected, "seed {seed}, step {step}: {command:?}");
                cast.learn(&command, &answer);
                compared += 1;
            }
            Event::Batch(commands) => {
                let answers = send_many(&*store, &commands).await.expect("a right store answers");
                assert_eq!(answers.len(), commands.len(), "seed {seed}, step {step}");
                for (command, answer) in commands.iter().zip(answers) {
                    let expected = model.apply(command, &answer);
                    assert_eq!(answer, expected, "seed {seed}, step {step}: in a batch, {command:?}");
                    cast.learn(command, &answer);
                    compared += 1;
                }
            }
            Event::Restart => {
                drop(store);
                if fixture.restart().await {
                    let store = fixture.store();
                    for id in cast.ids() {
                        let stored = store.lookup(id).await.expect("a right store answers");
                        model.restart(id, stored.as_ref(), &format!("seed {seed}, step {step}"));
                    }
                    // Whether a lapsed record was written as unknown at the start is the store's choice; now it is.
                    while store.sweep(SweepBudget::DEFAULT).await.expect("sweeping").more {}
                    model.sweep();
                }
            }
        }
        let store = fixture.store();
        for id in cast.ids() {
            let stored = store.lookup(id).await.expect("a right store answers");
            let expected = view(model.records.get(id), model.now).map(Cow::into_owned);
            assert_eq!(stored, expected, "seed {seed}, after step {step}");
        }
    }
    compared
}

/// What time it is in the store: a record of its own tells.
async fn store_now<F: Fixture>(fixture: &F) -> Timestamp {
    let scene = Scene::new(fixture);
    scene.granted().await;
    scene.lookup().await.expect("a granted record").created_at
}

/// Sends any command to a store.
pub async fn send(store: &dyn Store, command: &Command) -> Result<Answer, StoreError> {
    Ok(match command {
        Command::Claim(command) => Answer::Claim(store.claim(command).await?),
        Command::Renew(command) => Answer::Renew(store.renew(command).await?),
        Command::Complete(command) => Answer::Complete(store.complete(command).await?),
        Command::Release(command) => Answer::Release(store.release(command).await?),
        Command::Abandon(command) => Answer::Abandon(store.abandon(command).await?),
        Command::RecordStep(command) => Answer::RecordStep(store.record_step(command).await?),
        Command::Resolve(command) => Answer::Resolve(store.resolve(command).await?),
        Command::Erase(command) => Answer::Erase(store.erase(command).await?),
        Command::Sweep(_) => unreachable!("a store sweeps many records at a time"),
    })
}

/// Sends commands of one kind as a batch.
async fn send_many(store: &dyn Store, commands: &[Command]) -> Result<Vec<Answer>, StoreError> {
    macro_rules! batch {
        ($kind:ident, $many:ident) => {{
            let commands: Vec<_> = commands
                .iter()
                .map(|command| match command {
                    Command::$kind(command) => command.clone(),
                    other => unreachable!("a batch is of one kind, not {other:?}"),
                })
                .collect();
            store.$many(&commands).await?.into_iter().map(|answer| answer.map(Answer::$kind)).collect()
        }};
    }
    match commands.first() {
        Some(Command::Claim(_)) => batch!(Claim, claim_many),
        Some(Command::Renew(_)) => batch!(Renew, renew_many),
        Some(Command::Complete(_)) => batch!(Complete, complete_many),
        Some(Command::Release(_)) => batch!(Release, release_many),
        _ => Ok(Vec::new()),
    }
}

#[derive(Default)]
struct Model {
    records: BTreeMap<RecordId, Record>,
    now: Timestamp,
    last_fences: BTreeMap<RecordId, Fence>,
}

impl Model {
    /// What `transition` answers, given the fence that the store chose if it made a grant.
    fn apply(&mut self, command: &Command, answer: &Answer) -> Answer {
        let id = *command.id();
        let chosen = match answer {
            Answer::Claim(ClaimAnswer::Granted(grant)) => grant.fence,
            _ => Fence::default(),
        };
        let last = self.last_fences.get(&id).copied().unwrap_or_default();
        // A store that keeps nothing of a swept record must still go on above its fences; a repeated grant is equal.
        assert!(chosen == Fence::default() || chosen >= last, "a fence went from {last:?} to {chosen:?}");
        let moment = Moment { now: self.now, next_fence: chosen };
        let (change, answer) = transition(self.records.get(&id), command, moment);
        if let Answer::Claim(ClaimAnswer::Granted(grant)) = &answer {
            assert!(change == Change::Keep || grant.fence > last, "two grants had the fence {last:?}");
            self.last_fences.insert(id, grant.fence);
        }
        self.write(id, change);
        answer
    }

    /// What a store that was opened again shows under `id`: what it showed before, but that an owner in the process
    /// that ended is gone, so that nobody knows.
    fn restart(&mut self, id: &RecordId, stored: Option<&Record>, place: &str) {
        let before = view(self.records.get(id), self.now).map(Cow::into_owned);
        let Some((was, is)) = before.as_ref().zip(stored) else {
            return assert_eq!(stored, before.as_ref(), "{place}: after a restart");
        };
        let orphaned = was.kind() == StateKind::InFlight && is.kind() == StateKind::Unknown;
        if orphaned {
            let same = Record { state: was.state.clone(), ..is.clone() };
            assert_eq!(same, *was, "{place}: a restart changed more than the state");
            self.records.insert(*id, is.clone());
        } else if was.kind() != StateKind::InFlight {
            assert_eq!(is, was, "{place}: after a restart");
        }
    }

    fn sweep(&mut self) {
        let ids: Vec<_> = self.records.keys().copied().collect();
        for id in ids {
            let moment = Moment { now: self.now, next_fence: Fence::default() };
            let (change, _) = transition(self.records.get(&id), &Command::Sweep(Sweep { id }), moment);
            self.write(id, change);
        }
    }

    fn write(&mut self, id: RecordId, change: Change) {
        match change {
            Change::Keep => {}
            Change::Put(record) => drop(self.records.insert(id, record)),
            Change::Remove => drop(self.records.remove(&id)),
        }
    }
}
