//! The end of a sidecar: finish what runs, up to a bound; then abandon what remains. Nothing is released: work that was
//! cut off may have had its effect.

use std::time::Duration;

use onlyonce_core::Engine;

use crate::clock;
use crate::listen::Door;
use crate::stack::Front;

/// How long callers whose work was abandoned have to take the answer that says so.
const LAST_ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// Ends everything. The door takes no more connections already. `hurry` ends the patience early.
pub(crate) async fn drain(
    door: &Door<Front>,
    front: &Front,
    engine: &Engine,
    patience: Duration,
    hurry: impl Future<Output = ()>,
) {
    tracing::info!(patience = ?patience, "stopping: no new connections; what runs may finish");
    let until = clock::after(patience);
    let finishing = async {
        // ORDER: callers first. The engine refuses new work once it drains, and a request that was just read is new
        // work; executions whose caller has gone are then waited for with what patience is left.
        door.end(patience).await;
        engine.drain(until.saturating_duration_since(clock::after(Duration::ZERO))).await;
    };
    tokio::select! {
        () = finishing => {}
        () = hurry => {
            tracing::warn!("told twice to stop: what runs is abandoned");
            engine.drain(Duration::ZERO).await;
        }
    }
    door.end(LAST_ANSWERS_WITHIN).await;
    front.cut_tunnels().await;
    door.cut().await;
    tracing::info!("stopped");
}
