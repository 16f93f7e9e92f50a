//! Random calls over a store that fails at random: whatever happens, no effect too many and no answer that changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::clock::Sleep;
use onlyonce_core::{
    Clock, Engine, Failure, Lease, MemoryLimits, MemoryStore, Policy, Run, Timestamp, UnknownPolicy,
};
use onlyonce_testkit::{Faulty, ManualClock, Soak, run};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::stage::key;

/// Sleeping moves the clock: time passes as fast as someone waits for it.
#[derive(Debug, Default)]
struct Eager(ManualClock);

impl Clock for Eager {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        // Longer than any backoff is the heartbeat, which these short calls never need.
        if duration > Duration::from_secs(1) {
            return Box::pin(std::future::pending());
        }
        self.0.advance(duration);
        Box::pin(tokio::task::yield_now())
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        self.sleep(self.now().until(at))
    }
}

#[derive(Default)]
struct Ledger {
    effects: HashMap<u32, u32>,
    released: HashMap<u32, u32>,
    answers: HashMap<u32, Vec<u32>>,
}

async fn round(seed: u64, rng: &mut SmallRng, policy: UnknownPolicy) -> u64 {
    let clock = Arc::new(Eager::default());
    let store = Arc::new(MemoryStore::new(clock.clone(), MemoryLimits::default()));
    let faulty = Arc::new(Faulty::random(store, seed, 250));
    let policy = Policy::default()
        .lease(Lease::new(Duration::from_hours(1)).unwrap())
        .run_max(Duration::from_hours(2))
        .unknown(policy);
    let engine = Engine::builder(faulty).policy(policy).clock(clock).build().await.unwrap();
    let ledger: Arc<Mutex<Ledger>> = Arc::default();
    let mut calls = tokio::task::JoinSet::new();
    for call in 0..60u32 {
        let operation: u32 = rng.random_range(0..6);
        let ends = rng.random_range(0..10);
        let (engine, ledger) = (engine.clone(), ledger.clone());
        calls.spawn(async move {
            let asked = engine.fingerprint().field("operation", &operation.to_le_bytes()).finish();
            let working = ledger.clone();
            let work = move |_| async move {
                *working.lock().unwrap().effects.entry(operation).or_default() += 1;
                tokio::task::yield_now().await;
                match ends {
                    0..6 => Ok(call),
                    6..8 => {
                        *working.lock().unwrap().released.entry(operation).or_default() += 1;
                        Err(Failure::rolled_back("rolled back"))
                    }
                    _ => Err(Failure::unknown("unknown")),
                }
            };
            let answer = engine.run(&key(&format!("operation-{operation}")), asked, work).await;
            if let Ok(Run::Done(done)) = answer {
                ledger.lock().unwrap().answers.entry(operation).or_default().push(done.value);
            }
        });
    }
    calls.join_all().await;
    let ledger = ledger.lock().unwrap();
    for (operation, effects) in &ledger.effects {
        let released = ledger.released.get(operation).copied().unwrap_or_default();
        assert!(
            *effects <= 1 + released,
            "seed {seed}: {effects} effects of {operation}, {released} released"
        );
    }
    for (operation, answers) in &ledger.answers {
        assert!(
            answers.iter().all(|answer| *answer == answers[0]),
            "seed {seed}: {operation} gave {answers:?}"
        );
    }
    60
}

#[test]
fn i7_soak_effects_never_exceed_one_and_releases_whatever_the_store_loses() {
    run(async {
        let mut soak = Soak::new("engine over a faulty store", 60);
        let mut calls = 0;
        while let Some((seed, mut rng)) = soak.next_round() {
            for policy in [UnknownPolicy::Hold, UnknownPolicy::Seal] {
                calls += round(seed, &mut rng, policy).await;
            }
        }
        soak.report(calls, "calls, no effect too many");
    });
}
