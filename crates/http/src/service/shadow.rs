//! Shadow mode enforces nothing: the caller gets what the application answers, whatever becomes of the grant.

use onlyonce_core::Ending;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::ending::{Ended, Made, without_answer};
use crate::dispatch::Dispatch;

/// Whom to give the application's answer to.
pub(super) type Tell = oneshot::Sender<Box<Made>>;

/// Does `work` on a task of its own, where the end of a lease, of the maximum run time or of the grant does not reach it,
/// and gives the answer to the caller past the engine.
pub(super) async fn apart(work: impl Future<Output = Ended> + Send + 'static, tell: Tell) -> Ended {
    let working = tokio::spawn(
        async move {
            let (ended, answer) = split(work.await);
            // Whoever has hung up wants none.
            drop(tell.send(answer));
            ended
        }
        .in_current_span(),
    );
    // It panicked, or the runtime ends: nobody knows.
    working.await.unwrap_or_else(|_| without_answer(Dispatch::NoAnswer))
}

/// The ending without its answer, and the answer.
fn split(ended: Ended) -> (Ended, Box<Made>) {
    let nothing = || Box::new(Made::Nothing(Dispatch::NoAnswer));
    match ended {
        Ending::Complete { value, outcome, retention } => {
            (Ending::Complete { value: nothing(), outcome, retention }, value)
        }
        Ending::Release { value, keep_fingerprint } => {
            (Ending::Release { value: nothing(), keep_fingerprint }, value)
        }
        Ending::Abandon { value } => (Ending::Abandon { value: nothing() }, value),
    }
}
