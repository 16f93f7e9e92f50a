//! What happens under a grant: the work runs on its own task, its lease is kept, and one of three endings follows.
//!
//! complete: there is an outcome · release: it provably did not happen · abandon: nobody knows. A dropped future, a
//! panic, a lost lease and a shutdown are abandon, never release.

mod finish;
mod handle;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::heartbeat::Heartbeat;
use super::quota::Place;
use super::{Cut, Ending, Engine, EngineError, Next, Request};
use crate::clock::Timestamp;
use crate::decision::{self, Finish, Stop};
use crate::record::Step;
use crate::transition::{Claim, Grant, Token};

pub use handle::{Execution, MemoError};

/// One attempt at an operation, from its grant to its ending.
pub(super) struct Attempt {
    engine: Engine,
    request: Arc<Request>,
    claim: Claim,
    token: Token,
    attempt: u32,
    steps: Vec<Step>,
    heartbeat: Heartbeat,
    /// Tells work that cannot be stopped that it should.
    lost: CancellationToken,
    /// The principal's, where principals are limited.
    place: Option<Place>,
}

type ReplyTo<R, W> = oneshot::Sender<Result<Next<R, W>, EngineError>>;

impl Attempt {
    pub(super) fn new(
        engine: Engine,
        request: Arc<Request>,
        claim: Claim,
        grant: Grant,
        claimed_at: Timestamp,
        place: Option<Place>,
    ) -> Self {
        let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
        let heartbeat = Heartbeat::new(Arc::clone(&engine.shared), token, engine.terms.lease, claimed_at);
        Self {
            engine,
            request,
            claim,
            token,
            attempt: grant.attempt,
            steps: grant.steps,
            heartbeat,
            lost: CancellationToken::new(),
            place,
        }
    }

    /// Runs the work and ends the grant. The reply may be sent before the end is on record (see `finish`).
    pub(super) async fn run<R, W, F>(mut self, work: W, reply: ReplyTo<R, W>)
    where
        R: Send + 'static,
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Ending<R>> + Send + 'static,
    {
        if self.heartbeat.is_over() {
            // The grant was on its way for too long. Nothing was started, so it is given back.
            return Box::pin(self.give_back(reply)).await;
        }
        let execution = Execution::new(&self);
        // A task of its own: work that blocks its thread must not starve the heartbeat, and a panic stays in there.
        let working = Box::pin(async move { work(execution).await }).in_current_span();
        let running = self.engine.shared.tasks.spawn(working);
        let stop = self.watch_over(AbortOnDrop(running)).await;
        match decision::finish(stop) {
            Finish::Complete { outcome, retention, value } => {
                self.complete(outcome, retention, value, reply).await;
            }
            Finish::Release { keep_fingerprint, value } => {
                Box::pin(self.release(keep_fingerprint, value, reply)).await;
            }
            Finish::Abandon { value } => Box::pin(self.abandon(value, reply)).await,
        }
    }

    async fn watch_over<R>(&mut self, mut running: AbortOnDrop<Ending<R>>) -> Stop<R> {
        let Self { engine, heartbeat, .. } = self;
        let shared = &engine.shared;
        let (stop, wait_until) = tokio::select! {
            // Biased: work that has returned is taken at its word, even if the lease ended in the same instant.
            biased;
            ended = &mut running.0 => return stop_of(ended),
            () = heartbeat.keep() => (Stop::Cut(Cut::OutOfTime), heartbeat.lease_ends_at()),
            () = shared.aborting.cancelled() => (Stop::Cut(Cut::ShutDown), shared.clock.now() + ABORT_WITHIN),
        };
        // The grant is not given up while the work may still be at it: that is what the margin of the lease is for.
        self.lost.cancel();
        running.0.abort();
        let left = shared.clock.now().until(wait_until);
        tokio::select! {
            biased;
            ended = &mut running.0 => ended.map_or(stop, Stop::Returned),
            () = shared.clock.sleep(left) => stop,
        }
    }
}

/// How long a shutdown waits for work that was told to stop.
const ABORT_WITHIN: Duration = Duration::from_secs(1);

fn stop_of<R>(ended: Result<Ending<R>, JoinError>) -> Stop<R> {
    match ended {
        Ok(ending) => Stop::Returned(ending),
        Err(error) if error.is_panic() => Stop::Cut(Cut::Panicked),
        Err(_) => Stop::Cut(Cut::ShutDown),
    }
}

/// Work that is no longer watched over is stopped: past its lease it must not go on.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
