//! Workloads through the engine, on a runtime of one thread without timers or sockets.

use std::sync::Arc;

use onlyonce_core::{
    Ending, Engine, Fingerprint, Key, MemoryStore, Outcome, Recorded, Reply, Request, Scope, ScopedKey,
};

use crate::Result;
use crate::clock::StoppedClock;
use crate::sample;

/// How many records `engine-replay` asks for in turn.
const REPLAYED: u64 = 256;
/// Keys are counted from here, so that all have 17 digits.
const FIRST_NUMBER: u64 = 10_000_000_000_000_000;

pub(crate) fn run(iterations: u64) -> Result<()> {
    on_one_thread(async {
        let bench = Bench::new().await?;
        for number in 0..iterations {
            bench.run(bench.key(number)?).await?;
        }
        Ok(())
    })
}

pub(crate) fn replay(iterations: u64) -> Result<()> {
    on_one_thread(async {
        let bench = Bench::new().await?;
        let mut keys = Vec::new();
        for number in 0..REPLAYED {
            let key = bench.key(number)?;
            bench.run(key.clone()).await?;
            keys.push(key);
        }
        for key in keys.iter().cycle().zip(0..iterations).map(|(key, _)| key) {
            match bench.perform(key.clone()).await? {
                Reply::Replay(_) => {}
                other => return Err(format!("a completed record was not replayed: {other:?}").into()),
            }
        }
        Ok(())
    })
}

fn on_one_thread(workload: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().build()?.block_on(workload)
}

struct Bench {
    engine: Engine,
    scope: Scope,
    fingerprint: Fingerprint,
    outcome: Outcome,
}

impl Bench {
    async fn new() -> Result<Self> {
        let clock = Arc::new(StoppedClock::new());
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as _, sample::NO_LIMITS));
        // Never dropped: taking down a store is no part of any operation, and would grow with their number.
        std::mem::forget(Arc::clone(&store));
        let secret = sample::secret();
        let fingerprint = sample::fingerprint(&secret);
        let engine = Engine::builder(store).clock(clock).secret(secret).build().await?;
        Ok(Self { engine, scope: sample::scope(), fingerprint, outcome: sample::outcome()? })
    }

    fn key(&self, number: u64) -> Result<ScopedKey> {
        // As long as a UUID. The digits are not padded: that would cost as much as the claim.
        Ok(self.scope.key(Key::new(&format!("payment-of-2026-11-{}", FIRST_NUMBER + number))?))
    }

    async fn perform(&self, key: ScopedKey) -> Result<Reply<()>> {
        let request = Request::new(self.engine.secret(), key, self.fingerprint.clone());
        let outcome = self.outcome.clone();
        let work = |_| async { Ending::Complete { value: (), outcome, retention: None } };
        Ok(self.engine.perform(request, work).await?)
    }

    async fn run(&self, key: ScopedKey) -> Result<()> {
        match self.perform(key).await? {
            Reply::Ran(ran) if ran.recorded == Recorded::Completed => Ok(()),
            other => Err(format!("a new key was not run and completed: {other:?}").into()),
        }
    }
}
