//! Removes what has expired, a little at a time, for as long as the sidecar runs.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Engine;
use onlyonce_core::store::SweepBudget;

/// Sweeps for ever. Cancel it to stop.
pub(crate) async fn sweep(engine: Engine, every: Duration) {
    let store = Arc::clone(engine.store());
    loop {
        tokio::time::sleep(every).await;
        // Bounded steps with a pause of their own: a long backlog must not hold requests up.
        loop {
            match store.sweep(SweepBudget::DEFAULT).await {
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
