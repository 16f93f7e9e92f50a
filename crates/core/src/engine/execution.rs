//! What happens under a grant: the work runs on its own task, its lease is kept, and one of three endings follows.
//!
//! complete: there is an outcome · release: it provably did not happen · abandon: nobody knows. A dropped future, a
//! panic, a lost lease and a shutdown are abandon, never release.

mod finish;
mod handle;
mod lost;
mod step;

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tracing::Instrument;

use super::alarm::Alarm;
use super::heartbeat::Heartbeat;
use super::quota::Place;
use super::{Aborted, Before, Cut, Ending, Engine, ReplyTo, Request};
use crate::clock::Timestamp;
use crate::decision::{self, Finish, Stop};
use crate::transition::{Claim, Grant, Token};

use handle::Known;
pub use handle::{Execution, MemoError};
pub use step::{DURABLE_NAME_CHARS_MAX, StepError};

/// One attempt at an operation, from its grant to its ending.
pub(super) struct Attempt {
    engine: Engine,
    token: Token,
    attempt: u32,
    heartbeat: Heartbeat,
    /// What the work knows of the grant.
    known: Arc<Known>,
    /// The principal's, where principals are limited.
    place: Option<Place>,
}

/// What is to be done.
pub(super) struct Asked {
    pub(super) request: Arc<Request>,
    /// What it looks like.
    pub(super) fingerprint: [u8; 32],
}

impl Attempt {
    pub(super) fn new(
        engine: Engine,
        claim: &Claim,
        grant: Grant,
        claimed_at: Timestamp,
        alarm: Alarm,
        place: Option<Place>,
    ) -> Self {
        let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
        let shared = Arc::clone(&engine.shared);
        let heartbeat = Heartbeat::new(shared, token, engine.terms.lease, claimed_at, alarm);
        Self {
            engine,
            token,
            attempt: grant.attempt,
            heartbeat,
            known: Arc::new(Known::new(grant.steps)),
            place,
        }
    }

    /// Runs the work and ends the grant. The reply may be sent before the end is on record (see `finish`).
    ///
    /// Not `async` itself: what such a function is given has its place in the future twice.
    pub(super) fn run<R, W, F>(
        mut self,
        asked: Asked,
        work: W,
        before: Before,
        aborted: Aborted<'_, '_>,
        reply: ReplyTo<R, W>,
    ) -> impl Future<Output = ()> + Send
    where
        R: Send + 'static,
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Ending<R>> + Send + 'static,
    {
        let running = (!self.heartbeat.is_over()).then(|| self.start(asked, work));
        async move {
            let Some(running) = running else {
                // The grant was on its way for too long. Nothing was started, so it is given back.
                return Box::pin(self.give_back(before, reply)).await;
            };
            match decision::finish(self.watch_over(running, aborted).await) {
                Finish::Complete { outcome, retention, value } => {
                    self.complete(outcome, retention, value, reply).await;
                }
                Finish::Release { keep_fingerprint, value } => {
                    Box::pin(self.release(keep_fingerprint, value, reply)).await;
                }
                Finish::Abandon { value } => Box::pin(self.abandon(value, reply)).await,
            }
        }
    }

    fn start<R, W, F>(&self, asked: Asked, work: W) -> Running<R, F>
    where
        R: Send + 'static,
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Ending<R>> + Send + 'static,
    {
        let execution = Execution::new(self, asked);
        if self.engine.in_place {
            // A panic stays in there.
            let working = catch_unwind(AssertUnwindSafe(|| Box::pin(work(execution))));
            return working.map_or(Running::Not(Cut::Panicked), Running::Here);
        }
        let working = Box::pin(async move { work(execution).await });
        Running::Apart(AbortOnDrop(self.engine.shared.tasks.spawn(working.in_current_span())))
    }

    async fn watch_over<R, F>(&mut self, mut running: Running<R, F>, aborted: Aborted<'_, '_>) -> Stop<R>
    where
        F: Future<Output = Ending<R>>,
    {
        let Self { engine, heartbeat, .. } = self;
        let shared = &engine.shared;
        let (stop, wait_until) = tokio::select! {
            // Biased: work that has returned is taken at its word, even if the lease ended in the same instant.
            biased;
            ended = running.ended() => return ended.map_or_else(Stop::Cut, Stop::Returned),
            () = heartbeat.keep() => (Stop::Cut(Cut::OutOfTime), heartbeat.lease_ends_at()),
            () = aborted => (Stop::Cut(Cut::ShutDown), shared.clock.now() + ABORT_WITHIN),
        };
        // The grant is not given up while the work may still be at it: that is what the margin of the lease is for.
        // Work that cannot be stopped is told that it should.
        self.known.lost.say();
        running.stop();
        let left = shared.clock.now().until(wait_until);
        tokio::select! {
            biased;
            ended = running.ended() => ended.map_or(stop, Stop::Returned),
            () = shared.clock.sleep(left) => stop,
        }
    }
}

/// How long a shutdown waits for work that was told to stop.
const ABORT_WITHIN: Duration = Duration::from_secs(1);

/// Work that was started.
enum Running<R, F> {
    /// On a task of its own: work that blocks its thread must not starve the heartbeat, and a panic stays in there.
    Apart(AbortOnDrop<Ending<R>>),
    /// On the task of its attempt.
    Here(Pin<Box<F>>),
    /// No longer, and why.
    Not(Cut),
}

impl<R, F: Future<Output = Ending<R>>> Running<R, F> {
    /// What the work returned, or why it did not.
    async fn ended(&mut self) -> Result<Ending<R>, Cut> {
        poll_fn(|cx| match self {
            Self::Apart(task) => Pin::new(&mut task.0).poll(cx).map_err(|error| cut_of(&error)),
            Self::Not(cut) => Poll::Ready(Err(*cut)),
            // A panic stays in there.
            Self::Here(work) => match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
                Ok(step) => step.map(Ok),
                Err(_) => Poll::Ready(Err(Cut::Panicked)),
            },
        })
        .await
    }

    fn stop(&mut self) {
        match self {
            Self::Apart(task) => task.0.abort(),
            Self::Here(_) => *self = Self::Not(Cut::ShutDown),
            Self::Not(_) => {}
        }
    }
}

fn cut_of(error: &JoinError) -> Cut {
    if error.is_panic() { Cut::Panicked } else { Cut::ShutDown }
}

/// Work that is no longer watched over is stopped: past its lease it must not go on.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
