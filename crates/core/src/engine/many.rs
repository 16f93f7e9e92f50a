//! Many requests whose claims travel in one round trip: the way of message consumers. What follows a claim is the same
//! as for one.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::alarm::Alarm;
use super::quota::{Entered, leave_and_tell};
use super::shared::Backoff;
use super::{Before, Claimed, Ending, Engine, EngineError, Execution, Next, Reply, ReplyTo, Request};
use crate::clock::Timestamp;
use crate::error::MisuseError;
use crate::record::{Fence, Owner};
use crate::store::{BATCH_MAX, StoreError, StoreErrorKind};
use crate::transition::{Claim, ClaimAnswer};

/// One request of many, on its way. Dropping it neither cancels the work nor loses its result.
pub struct Performing<R>(Pin<Box<dyn Future<Output = Result<Reply<R>, EngineError>> + Send>>);

impl<R> Future for Performing<R> {
    type Output = Result<Reply<R>, EngineError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<R> fmt::Debug for Performing<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Performing")
    }
}

/// A request that waits for the answer of its claim, and whom to tell.
struct Asking<R, W> {
    request: Arc<Request>,
    work: W,
    reply: ReplyTo<R, W>,
}

impl Engine {
    /// Performs each request's work, or answers from its record, as [`Engine::perform`] does, with all claims in one
    /// round trip. At most [`BATCH_MAX`] at a time; one result for each, in order.
    ///
    /// Of two requests with the same key, the first is granted and the second finds it busy. Those beyond a limit of the
    /// [quota](crate::Policy::quota) are looked up, and claimed, one by one.
    pub fn perform_many<R, W, F>(&self, calls: Vec<(Request, W)>) -> Result<Vec<Performing<R>>, EngineError>
    where
        R: Send + 'static,
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Ending<R>> + Send + 'static,
    {
        if calls.len() > BATCH_MAX {
            return Err(EngineError::misuse(MisuseError::new("more than 1000 requests at a time")));
        }
        let mut asking = Vec::with_capacity(calls.len());
        let mut performing = Vec::with_capacity(calls.len());
        for (request, work) in calls {
            let (reply, replied) = oneshot::channel();
            let request = Arc::new(request);
            asking.push(Asking { request: Arc::clone(&request), work, reply });
            let engine = self.clone();
            performing.push(Performing(Box::pin(async move {
                let next = replied.await.map_err(|_| EngineError::stopping())??;
                engine.after_the_first(request, next).await
            })));
        }
        let engine = self.clone();
        self.shared.spawn(async move { engine.claim_and_follow(asking).await })?;
        Ok(performing)
    }

    /// Goes on by itself where the first answer was not the last.
    async fn after_the_first<R, W, F>(
        &self,
        request: Arc<Request>,
        next: Next<R, W>,
    ) -> Result<Reply<R>, EngineError>
    where
        R: Send + 'static,
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Ending<R>> + Send + 'static,
    {
        match next {
            Next::Reply(reply) => Ok(reply),
            Next::Wait(conflict, _) if request.wait.unwrap_or(self.policy.wait).is_zero() => {
                Ok(Reply::Conflict(conflict))
            }
            Next::Wait(_, work) => {
                self.perform_shared(request, work, Before { recoveries_left: 1, is_taken: true }).await
            }
            Next::Again(work) => {
                self.perform_shared(request, work, Before { recoveries_left: 0, is_taken: true }).await
            }
        }
    }

    async fn claim_and_follow<R, W, F>(self, asking: Vec<Asking<R, W>>)
    where
        R: Send + 'static,
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Ending<R>> + Send + 'static,
    {
        // ORDER: the owners' own deadline counts from before the claims are sent.
        let claimed_at = self.shared.clock.now();
        let (mut entered, mut claims) = (Vec::with_capacity(asking.len()), Vec::with_capacity(asking.len()));
        for asked in asking {
            let Some(Entered { place, .. }) = self.enter_at_once(&asked.request, claimed_at) else {
                // Beyond a limit it is looked up first: by itself, so that the others need not wait for that.
                let Asking { request, work, reply } = asked;
                let before = Before::first(&request);
                self.shared.tasks.spawn(self.clone().attempt(request, work, before, reply));
                continue;
            };
            let owner = match Owner::random() {
                Ok(owner) => owner,
                Err(error) => {
                    leave_and_tell(place, Err(Before::first(&asked.request).refused(error)), asked.reply);
                    continue;
                }
            };
            let fingerprint = asked.request.fingerprint.fingerprint();
            claims.push(Claim { id: asked.request.id, fingerprint, owner, terms: Arc::clone(&self.terms) });
            entered.push((asked, place));
        }
        let answers = tokio::select! {
            answers = self.claim_many_surely(&claims, claimed_at) => answers,
            () = self.shared.aborting.cancelled() => return,
        };
        for (((asked, place), claim), answer) in entered.into_iter().zip(claims).zip(answers) {
            let engine = self.clone();
            let Asking { request, work, reply } = asked;
            match answer {
                // Compared by the rules of an older record: seldom, and by itself.
                Ok(ClaimAnswer::Mismatch { rules: Some(_) }) => {
                    drop(place);
                    let before = Before { recoveries_left: 1, is_taken: true };
                    self.shared.tasks.spawn(engine.attempt(request, work, before, reply));
                }
                Ok(answer) => {
                    let claimed = Claimed { claim, answer, claimed_at, alarm: Alarm::default(), place };
                    let before = Before::first(&request);
                    // Each on its own task from here on: what panics is none of the others' business.
                    self.shared.tasks.spawn(async move {
                        let shared = Arc::clone(&engine.shared);
                        let aborted = pin!(shared.aborting.cancelled());
                        if let Some(rest) = engine.follow(request, work, claimed, before, aborted, reply) {
                            rest.await;
                        }
                    });
                }
                Err(error) => leave_and_tell(place, Err(Before::first(&request).refused(error)), reply),
            }
        }
    }

    /// One answer for each claim. Those whose reply was lost are asked for again with the same owners.
    async fn claim_many_surely(
        &self,
        claims: &[Claim],
        claimed_at: Timestamp,
    ) -> Vec<Result<ClaimAnswer, StoreError>> {
        let until = claimed_at + self.policy.claim_for.min(self.terms.lease.get() / 2);
        let mut answers: Vec<Option<Result<ClaimAnswer, StoreError>>> = claims.iter().map(|_| None).collect();
        let (mut backoff, mut open) = (Backoff::new(), (0..claims.len()).collect::<Vec<_>>());
        let mut maybe_applied = vec![false; claims.len()];
        while !open.is_empty() {
            let asked: Vec<_> = open.iter().map(|&at| claims[at].clone()).collect();
            let sent =
                self.shared.bounded(self.policy.store_within, self.shared.store.claim_many(&asked)).await;
            for (&at, answer) in open.iter().zip(each(sent, open.len())) {
                if let Err(error) = &answer {
                    self.shared.observe_failure(&claims[at].id, Fence::default(), error);
                    maybe_applied[at] |= error.outcome_unknown();
                }
                answers[at] = Some(answer);
            }
            let wait = backoff.next();
            // Fail closed: nothing was started. Only what may have been applied is asked for again.
            open.retain(|&at| matches!(&answers[at], Some(Err(error)) if error.outcome_unknown()));
            if self.shared.clock.now() + wait >= until {
                break;
            }
            if !open.is_empty() {
                self.shared.clock.sleep(wait).await;
            }
        }
        for (at, claim) in claims.iter().enumerate() {
            if maybe_applied[at] && !matches!(answers[at], Some(Ok(_))) {
                self.settle(claim, claimed_at);
            }
        }
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(unanswered()))).collect()
    }
}

/// A failure of the whole is a failure of each.
fn each(
    sent: Result<Vec<Result<ClaimAnswer, StoreError>>, StoreError>,
    count: usize,
) -> Vec<Result<ClaimAnswer, StoreError>> {
    match sent {
        Ok(mut answers) => {
            // A store that answers too few breaks its contract; what it left out may have been applied.
            answers.resize_with(count, || Err(unanswered()));
            answers
        }
        Err(error) => (0..count).map(|_| Err(error.likewise())).collect(),
    }
}

impl StoreError {
    /// The same failure for another command: one that fails a batch fails each of its items.
    #[must_use]
    pub fn likewise(&self) -> Self {
        let same = Self::new(self.kind(), "sending commands in a batch").because(self.to_string());
        if self.outcome_unknown() { same.with_unknown_outcome() } else { same }
    }
}

fn unanswered() -> StoreError {
    StoreError::new(StoreErrorKind::TimedOut, "hearing of a claim in a batch")
}
