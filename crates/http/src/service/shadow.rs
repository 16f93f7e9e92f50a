//! Shadow mode enforces nothing: the caller gets what the application answers, whatever becomes of the grant.

use std::convert::Infallible;
use std::sync::Arc;

use onlyonce_core::{Ending, Engine, EngineError, Execution, Reply, Request as Call};
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::ending::{Ended, Made, without_answer};
use crate::dispatch::Dispatch;

/// Whom to give the application's answer to.
type Tell = oneshot::Sender<Box<Made>>;

/// Performs `work`: what the engine says of it, and the application's answer, if it was asked.
pub(super) async fn perform<W, F>(
    engine: &Engine,
    call: Arc<Call>,
    work: W,
) -> (Result<Reply<Box<Made>>, EngineError>, Option<Box<Made>>)
where
    W: FnOnce(Execution) -> F + Send + 'static,
    F: Future<Output = Ended> + Send + 'static,
{
    let (tell, answered) = oneshot::channel();
    let performed = engine.perform(call, |execution| apart(work(execution), tell)).await;
    (performed, answered.await.ok())
}

/// Does `work` on a task of its own, where the end of a lease, of the maximum run time or of the grant does not reach it while
/// its caller waits, and gives the answer to the caller past the engine.
async fn apart(work: impl Future<Output = Ended> + Send + 'static, tell: Tell) -> Ended {
    // Lives as long as the grant does: this future ends with it.
    let (_grant, ends) = oneshot::channel();
    let working = tokio::spawn(while_wanted(work, tell, ends).in_current_span());
    // It panicked, or the runtime ends: nobody knows.
    working.await.ok().flatten().unwrap_or_else(|| without_answer(Dispatch::NoAnswer))
}

/// `None` when neither the grant nor the caller were there any more: nothing else would ever end work that hangs.
async fn while_wanted(
    work: impl Future<Output = Ended>,
    mut tell: Tell,
    grant: oneshot::Receiver<Infallible>,
) -> Option<Ended> {
    let ended = tokio::select! {
        ended = work => ended,
        () = async {
            let Err(_) = grant.await;
            tell.closed().await;
        } => return None,
    };
    let (ended, answer) = split(ended);
    // Whoever has hung up wants none.
    drop(tell.send(answer));
    Some(ended)
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
