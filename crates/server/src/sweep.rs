//! The sweeper of a running process: begun with the doors, and ended before the store is closed.

use std::sync::Arc;

use onlyonce_core::sweeper::Sweeper;
use onlyonce_core::sweeper::growth::Growth;
use onlyonce_core::{Engine, Policy};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Sources, StoreSettings};
use crate::metrics::StoreFigures;
use crate::sidecar::StartError;
use crate::store::{self, OpenError};

/// What sweeps the engine's store, and counts it where figures are read.
pub(crate) fn sweeper(
    engine: &Engine,
    settings: &StoreSettings,
    growth: Arc<Growth>,
    figures: Option<StoreFigures>,
) -> Sweeper {
    let sweeper = Sweeper::new(engine, settings.sweep.clone()).watching(growth);
    match figures {
        Some(figures) => sweeper.observed_by(Arc::new(figures)),
        None => sweeper,
    }
}

/// A sweeper of the store that a configuration names, for a process that does nothing else. Nobody serves from this store
/// handle, so that nothing stands in front of it.
pub async fn sweeper_alone(sources: &Sources) -> Result<Sweeper, StartError> {
    let mut settings = sources.read()?.store_settings()?;
    (settings.fast_tier, settings.recent_bytes_max) = (None, 0);
    settings.redis.sweeps_at_once = true;
    let secret = store::secret(&settings)?;
    let opened = store::open_as_it_is(&settings, None).await.map_err(|error| match error {
        OpenError::Settings(error) => StartError::Config(error),
        OpenError::Store(source) => StartError::Store { url: settings.url.clone(), source },
    })?;
    let mut builder = Engine::builder(opened.store).policy(Policy::default());
    if let Some(secret) = secret {
        builder = builder.secret(secret);
    }
    Ok(sweeper(&builder.build().await?, &settings, opened.growth, None))
}

/// Sweepers at work, each on a task of its own.
#[derive(Debug)]
pub(crate) struct AtWork {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl AtWork {
    pub(crate) fn begin(sweepers: impl IntoIterator<Item = Sweeper>) -> Self {
        let stop = CancellationToken::new();
        let begin = |sweeper: Sweeper| tokio::spawn(sweeper.run_until(stop.clone().cancelled_owned()));
        let tasks = sweepers.into_iter().map(begin).collect();
        Self { stop, tasks }
    }

    /// Gives the elections up, all at once, and waits, so that the stores are closed when this returns, and whoever opens
    /// them next finds them free. No sweeper takes longer for it than a few seconds.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        for task in self.tasks {
            // A panic there was logged, and is nobody's loss here: the lease runs out.
            let _ = task.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use onlyonce_core::store::{Batch, StoreFuture};
    use onlyonce_core::sweeper::Plan;
    use onlyonce_core::transition::{
        Claim, ClaimAnswer, Complete, CompleteAnswer, Release, ReleaseAnswer, Renew, RenewAnswer,
    };
    use onlyonce_core::{MemoryLimits, MemoryStore, Store};
    use onlyonce_testkit::ManualClock;
    use tokio::sync::Semaphore;

    use super::*;

    /// A store whose office is given up only after another's was.
    #[derive(Debug)]
    struct Chained {
        store: MemoryStore,
        before: Arc<Semaphore>,
        after: Arc<Semaphore>,
    }

    impl Store for Chained {
        fn release<'a>(&'a self, release: &'a Release) -> StoreFuture<'a, ReleaseAnswer> {
            Box::pin(async move {
                let _ = self.before.acquire().await;
                let answer = self.store.release(release).await;
                self.after.add_permits(1);
                answer
            })
        }

        onlyonce_inbox::__pass_on_to_store! {
            claim(Claim) -> ClaimAnswer;
            renew(Renew) -> RenewAnswer;
            complete(Complete) -> CompleteAnswer;
            claim_many([Claim]) -> Batch<ClaimAnswer>;
            renew_many([Renew]) -> Batch<RenewAnswer>;
            complete_many([Complete]) -> Batch<CompleteAnswer>;
            release_many([Release]) -> Batch<ReleaseAnswer>;
        }

        onlyonce_inbox::__pass_on_the_rest_to_store! {}
    }

    /// On a clock that stands still, the patience of a sweeper has no end: one that waited for those before it would wait for
    /// ever.
    #[tokio::test]
    async fn sweepers_end_all_at_once() {
        let clock = Arc::new(ManualClock::default());
        let offices: Vec<_> = (0..4).map(|_| Arc::new(Semaphore::new(0))).collect();
        offices[3].add_permits(1);
        let mut sweepers = Vec::new();
        for at in 0..3 {
            let store = MemoryStore::new(clock.clone(), MemoryLimits::default());
            let (before, after) = (Arc::clone(&offices[at + 1]), Arc::clone(&offices[at]));
            let store = Arc::new(Chained { store, before, after });
            let engine = Engine::builder(store).clock(clock.clone()).build().await.unwrap();
            sweepers.push(Sweeper::new(&engine, Plan::default()));
        }
        let sweeping: Vec<_> = sweepers.iter().map(Sweeper::sweeping).collect();
        let at_work = AtWork::begin(sweepers);
        while !sweeping.iter().all(|sweeping| sweeping.now().elected) {
            clock.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
        let ended = tokio::time::timeout(Duration::from_mins(1), at_work.end()).await;
        assert!(ended.is_ok(), "one waits for the other");
    }
}
