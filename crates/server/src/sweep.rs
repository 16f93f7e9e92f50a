//! Removes what has expired, a little at a time, for as long as the process runs.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Engine;
use onlyonce_core::store::SweepBudget;

use crate::clock;
use crate::metrics::Metrics;

/// Sweeps for ever, and counts it where figures are read. Cancel it to stop.
pub(crate) async fn sweep(engine: Engine, every: Duration, metrics: Option<Arc<Metrics>>) {
    let store = Arc::clone(engine.store());
    loop {
        tokio::time::sleep(every).await;
        // Bounded steps with a pause of their own: a long backlog must not hold requests up.
        loop {
            let swept = store.sweep(SweepBudget::DEFAULT).await;
            match (&swept, &metrics) {
                (Ok(swept), Some(metrics)) => metrics.swept(swept, clock::seconds_since_1970()),
                (Err(_), Some(metrics)) => metrics.sweep_failed(),
                (_, None) => {}
            }
            match swept {
                Ok(swept) if swept.more => tokio::task::yield_now().await,
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "sweeping failed; it is tried again");
                    break;
                }
            }
        }
    }
}
