//! The sweeper of a running process: begun with the doors, and ended before the store is closed.

use std::sync::Arc;

use onlyonce_core::sweeper::Sweeper;
use onlyonce_core::sweeper::growth::Growth;
use onlyonce_core::{Engine, Policy};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Sources, StoreSettings};
use crate::metrics::Metrics;
use crate::sidecar::StartError;
use crate::store::{self, OpenError};

/// What sweeps the engine's store, and counts it where figures are read.
pub(crate) fn sweeper(
    engine: &Engine,
    settings: &StoreSettings,
    growth: Arc<Growth>,
    metrics: Option<&Arc<Metrics>>,
) -> Sweeper {
    let sweeper = Sweeper::new(engine, settings.sweep.clone()).watching(growth);
    match metrics {
        Some(metrics) => sweeper.observed_by(Arc::<Metrics>::clone(metrics)),
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

/// A sweeper at work on a task of its own.
#[derive(Debug)]
pub(crate) struct AtWork {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl AtWork {
    pub(crate) fn begin(sweeper: Sweeper) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(sweeper.run_until(stop.clone().cancelled_owned()));
        Self { stop, task }
    }

    /// Gives the election up and waits, so that the store is closed when this returns, and whoever opens it next finds it
    /// free.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        // A panic there was logged, and is nobody's loss here: the lease runs out.
        let _ = self.task.await;
    }
}
