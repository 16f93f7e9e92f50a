//! The pipeline that every door goes through: claim, then run, replay, wait or refuse.
//!
//! This file is the whole way of a request. What happens under a grant is in `execution`, how the lease is kept in
//! `heartbeat`, what it is woken by in `alarm`, how duplicates wait in `wait`, how unknown outcomes are found out in
//! `recover`, how many requests are claimed in one round trip in `many`.

mod alarm;
mod builder;
mod error;
mod execution;
mod heartbeat;
mod many;
mod quota;
mod recover;
mod reply;
mod shared;
mod typed;
mod wait;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::WaitForCancellationFuture;

use self::alarm::Alarm;
use self::execution::{Asked, Attempt};
use self::quota::{Entered, Place, leave_and_tell};
use self::shared::Shared;
use self::wait::Wait;
use crate::clock::Timestamp;
use crate::observe::Event;
use crate::policy::Policy;
use crate::record::Fence;
use crate::transition::{Claim, ClaimAnswer, RecoverGrant, Terms};

pub use builder::EngineBuilder;
pub use error::{EngineError, EngineErrorKind};
pub use execution::{DURABLE_NAME_CHARS_MAX, Execution, MemoError, StepError};
pub use many::Performing;
pub use recover::{Found, Question, RecoveryHook};
pub use reply::{Conflict, Cut, Done, Ending, Failure, Ran, Recorded, Reply, Request, Run};

/// Runs operations at most once at a time and replays what they produced. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    policy: Arc<Policy>,
    terms: Arc<Terms>,
    /// Whether work runs on the task of whoever waits for it, while somebody does.
    in_place: bool,
}

/// What one claim led to.
enum Next<R, W> {
    Reply(Reply<R>),
    /// Someone else is at it: the work comes back, to be tried again.
    Wait(Conflict, W),
    /// What happened was found out: claim again.
    Again(W),
}

/// What is known of a call before its next claim.
#[derive(Clone, Copy)]
struct Before {
    /// How often it may still be found out what happened.
    recoveries_left: u32,
    /// Whether the store has told of another attempt.
    is_taken: bool,
}

impl Before {
    /// Of its first claim.
    const fn first(request: &Request) -> Self {
        Self { recoveries_left: 1, is_taken: request.is_on_record }
    }

    /// The failure of a claim, with what the caller may have to know beside it.
    fn refused(self, error: impl Into<EngineError>) -> EngineError {
        let error = error.into();
        if self.is_taken { error.taken() } else { error }
    }
}

/// Whom to tell what a claim led to.
type ReplyTo<R, W> = oneshot::Sender<Result<Next<R, W>, EngineError>>;

/// Resolves when work that still runs must be abandoned.
type Aborted<'a, 't> = Pin<&'a mut WaitForCancellationFuture<'t>>;

/// A claim and its answer, with what was set up before it was sent.
struct Claimed {
    claim: Claim,
    answer: ClaimAnswer,
    claimed_at: Timestamp,
    /// What the answer was waited for with.
    alarm: Alarm,
    place: Option<Place>,
}

impl Engine {
    /// Performs `work` for `request`, or answers from the record.
    ///
    /// The work runs on a task of its own: a caller that goes away neither cancels it nor loses its result. A request that
    /// is shared already is taken as it is.
    pub fn perform<R, W, F>(
        &self,
        request: impl Into<Arc<Request>>,
        work: W,
    ) -> impl Future<Output = Result<Reply<R>, EngineError>> + Send
    where
        R: Send + 'static,
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Ending<R>> + Send + 'static,
    {
        let request = request.into();
        let before = Before::first(&request);
        self.perform_shared(request, work, before)
    }

    async fn perform_shared<R, W, F>(
        &self,
        request: Arc<Request>,
        mut work: W,
        mut before: Before,
    ) -> Result<Reply<R>, EngineError>
    where
        R: Send + 'static,
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Ending<R>> + Send + 'static,
    {
        let mut wait = Wait::new(self, request.id, request.wait);
        loop {
            // Detached, also the claim: one that is cancelled half way may have been granted to nobody.
            let (reply, replied) = oneshot::channel();
            let engine = self.clone();
            let attempt = engine.attempt(Arc::clone(&request), work, before, reply);
            let replied = if self.in_place {
                self.shared.attend(Box::pin(attempt), replied).await?
            } else {
                self.shared.begin(Box::pin(attempt)).await?;
                replied.await.map_err(|_| EngineError::stopping())?
            };
            before.is_taken = true;
            let conflict = match replied? {
                Next::Reply(reply) => return Ok(reply),
                Next::Wait(conflict, back) => {
                    work = back;
                    conflict
                }
                Next::Again(back) => {
                    (work, before.recoveries_left) = (back, 0);
                    continue;
                }
            };
            // Boxed: who need not wait would carry its room.
            if !Box::pin(wait.is_worth_another_try(&conflict)).await? {
                return Ok(Reply::Conflict(conflict));
            }
        }
    }

    /// Claims, and follows the answer to its end.
    async fn attempt<R, W, F>(self, request: Arc<Request>, work: W, mut before: Before, reply: ReplyTo<R, W>)
    where
        R: Send + 'static,
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Ending<R>> + Send + 'static,
    {
        // ORDER: the owner's own deadline counts from before the claim is sent, the store's from when it arrives.
        let claimed_at = self.shared.clock.now();
        let Entered { place, is_on_record } = match self.enter(&request, claimed_at).await {
            Ok(Ok(entered)) => entered,
            Ok(Err(conflict)) => return drop(reply.send(Ok(Next::Reply(Reply::Conflict(conflict))))),
            Err(error) => return drop(reply.send(Err(before.refused(error)))),
        };
        before.is_taken |= is_on_record;
        let mut alarm = Alarm::default();
        let shared = Arc::clone(&self.shared);
        // One for the claim and for the work: to wait for it means to be entered in a list that all attempts share.
        let mut aborted = pin!(shared.aborting.cancelled());
        let rest = match tokio::select! {
            // Biased: a store that answers at once is not asked about the end of the process.
            biased;
            claimed = self.claim(&request, claimed_at, &mut alarm) => claimed,
            () = aborted.as_mut() => Err(EngineError::stopping()),
        } {
            Ok((claim, answer)) => {
                let claimed = Claimed { claim, answer, claimed_at, alarm, place };
                self.follow(request, work, claimed, before, aborted, reply)
            }
            Err(error) => return leave_and_tell(place, Err(before.refused(error)), reply),
        };
        if let Some(rest) = rest {
            rest.await;
        }
    }

    /// Follows the answer of a claim: what is left to do, or `None` when the reply is sent. The only place that branches
    /// on claim answers.
    fn follow<'a, 't: 'a, R, W, F>(
        self,
        request: Arc<Request>,
        work: W,
        claimed: Claimed,
        before: Before,
        aborted: Aborted<'a, 't>,
        reply: ReplyTo<R, W>,
    ) -> Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>
    where
        R: Send + 'static,
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Ending<R>> + Send + 'static,
    {
        let Claimed { claim, answer, claimed_at, alarm, place } = claimed;
        self.observe_answer(&claim, &answer);
        let next = match answer {
            ClaimAnswer::Granted(grant) => {
                let place = self.counted(place, &claim.id);
                let attempt = Attempt::new(self, &claim, grant, claimed_at, alarm, place);
                let asked = Asked { request, fingerprint: *claim.fingerprint.digest() };
                return Some(Box::pin(attempt.run(asked, work, before, aborted, reply)));
            }
            ClaimAnswer::Recover(grant) => {
                let place = self.counted(place, &claim.id);
                return Some(Box::pin(async move {
                    let next = self.find_out(request, work, grant, before.recoveries_left).await;
                    // Who asks uses the place as one who runs does.
                    leave_and_tell(place, next, reply);
                }));
            }
            ClaimAnswer::Replay(replay) => Next::Reply(Reply::Replay(replay)),
            ClaimAnswer::Busy(busy) => Next::Wait(Conflict::InFlight { retry_after: busy.left }, work),
            ClaimAnswer::Held(held) => {
                Next::Reply(Reply::Conflict(Conflict::OutcomeUnknown { fence: held.fence, cut: None }))
            }
            ClaimAnswer::Mismatch { .. } => Next::Reply(Reply::Conflict(Conflict::KeyReused)),
            ClaimAnswer::Fenced => Next::Reply(Reply::Conflict(Conflict::Fenced)),
        };
        leave_and_tell(place, Ok(next), reply);
        None
    }

    /// Finds out what became of an earlier attempt.
    async fn find_out<R, W>(
        self,
        request: Arc<Request>,
        work: W,
        grant: RecoverGrant,
        recoveries_left: u32,
    ) -> Result<Next<R, W>, EngineError> {
        let fence = grant.fence;
        let is_known = self.recover(&request, grant).await?;
        Ok(if is_known && recoveries_left > 0 {
            Next::Again(work)
        } else {
            Next::Reply(Reply::Conflict(Conflict::OutcomeUnknown { fence, cut: None }))
        })
    }

    fn observe_answer(&self, claim: &Claim, answer: &ClaimAnswer) {
        let (fence, event) = match answer {
            ClaimAnswer::Granted(grant) => (grant.fence, Event::Granted { attempt: grant.attempt }),
            ClaimAnswer::Replay(replay) => (replay.fence, Event::Replayed { age: replay.age }),
            ClaimAnswer::Busy(_) => (Fence::default(), Event::Busy),
            ClaimAnswer::Held(held) => (held.fence, Event::Held),
            ClaimAnswer::Mismatch { .. } => (Fence::default(), Event::Mismatched),
            ClaimAnswer::Recover(grant) => (grant.fence, Event::Recovering),
            ClaimAnswer::Fenced => (Fence::default(), Event::Fenced),
        };
        self.shared.observe(&claim.id, fence, event);
    }
}
