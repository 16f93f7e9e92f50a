//! What all clones of an engine share: the store, the clock, the observers, and the tasks that outlive callers.

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument;

use super::alarm::Alarm;
use super::error::EngineError;
use super::quota::Tallies;
use super::recover::RecoveryHook;
use super::wait::Waiters;
use super::{Engine, Request};
use crate::clock::{Clock, Timestamp};
use crate::fingerprint::{Fingerprint, FingerprintBuilder, Rules};
use crate::house;
use crate::observe::{Event, Observer};
use crate::policy::Policy;
use crate::record::{Fence, Owner, Record};
use crate::scope::RecordId;
use crate::secret::Secret;
use crate::store::{Stats, Store, StoreError, StoreErrorKind};
use crate::transition::{Claim, ClaimAnswer, Release, Terms, Token, UnknownPolicy};

/// The most outcomes that are kept in memory while they cannot be recorded. Beyond it, an outcome is given up early
/// and its record becomes unknown: memory stays bounded while the store is away.
pub(super) const UNRECORDED_MAX: usize = 1024;

/// The store, as one handle knows it, and what is the same for all.
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    /// The handle that the engine was built with. What nobody started is given back through it: another handle may be
    /// unable to answer for as long as what it waits for is away.
    pub(super) plain: Arc<dyn Store>,
    pub(super) common: Arc<Common>,
}

impl Deref for Shared {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

pub(super) struct Common {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) secret: Secret,
    pub(super) hook: Option<Arc<dyn RecoveryHook>>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) waiters: Waiters,
    pub(super) tallies: Tallies,
    pub(super) unrecorded: Semaphore,
    /// Every task that may hold a grant, so that a shutdown can wait for them.
    pub(super) tasks: TaskTracker,
    /// Cancelled when no new work may start.
    pub(super) stopping: CancellationToken,
    /// Cancelled when work that still runs must be abandoned.
    pub(super) aborting: CancellationToken,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("store", &self.store).field("tasks", &self.tasks.len()).finish()
    }
}

impl Common {
    /// Starts a task that the caller's fate does not touch, unless the engine is shutting down.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), EngineError> {
        let _counted = self.counted()?;
        self.tasks.spawn(task.in_current_span());
        Ok(())
    }

    /// The same for a task that may have little to wait for: what can be done at once is done here and now, which for a
    /// replay is all of it. Only the rest needs a task of its own.
    pub(super) async fn begin(
        &self,
        mut task: Pin<Box<impl Future<Output = ()> + Send + 'static>>,
    ) -> Result<(), EngineError> {
        let _counted = self.counted()?;
        // This never waits: a caller cannot go away between the first step and the rest.
        let waits = poll_fn(|cx| {
            // A panic ends the task, as it would on a task of its own, and the caller gets no reply.
            let step = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx)));
            Poll::Ready(step.is_ok_and(|step| step.is_pending()))
        });
        if waits.await {
            self.tasks.spawn(task.in_current_span());
        }
        Ok(())
    }

    /// The same for a caller who waits for nothing else: it is the caller's task that does all of it, and only what is
    /// left when the caller goes away, or has its reply, needs one of its own.
    pub(super) async fn attend<T>(
        &self,
        task: Pin<Box<impl Future<Output = ()> + Send + 'static>>,
        mut replied: oneshot::Receiver<T>,
    ) -> Result<T, EngineError> {
        let mut attended = Attended { rest: Some(task), tasks: &self.tasks, _counted: self.counted()? };
        poll_fn(|cx| {
            attended.poll(cx);
            // The reply comes only out of the task, which was just asked: nobody else needs to wake us.
            match replied.try_recv() {
                Ok(reply) => Poll::Ready(Ok(reply)),
                Err(TryRecvError::Empty) => Poll::Pending,
                Err(TryRecvError::Closed) => Poll::Ready(Err(EngineError::stopping())),
            }
        })
        .await
    }

    /// Has a drain wait while the token lives.
    fn counted(&self) -> Result<TaskTrackerToken, EngineError> {
        // ORDER: counted before it is checked, so that a drain that began in between waits for it.
        let counted = self.tasks.token();
        if self.stopping.is_cancelled() { Err(EngineError::stopping()) } else { Ok(counted) }
    }

    /// A store call that is not answered in time. It may have been applied all the same, and the error says so.
    pub(super) async fn bounded<T>(
        &self,
        within: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        answered(call, async { self.clock.sleep(within).await }).await
    }

    pub(super) fn observe(&self, id: &RecordId, fence: Fence, event: Event) {
        // Who only looks on must not stop the work, and least of all leave a grant behind.
        if catch_unwind(AssertUnwindSafe(|| self.observer.event(id, fence, event))).is_err() {
            tracing::error!(id = id.short(), ?event, "an observer panicked");
        }
    }

    pub(super) fn observe_failure(&self, id: &RecordId, fence: Fence, error: &StoreError) {
        tracing::warn!(id = id.short(), error = %error, source = ?std::error::Error::source(error), "store failed");
        self.observe(id, fence, Event::from(error));
    }
}

/// The answer of a store, unless the time for it is `over` before. It may have been applied all the same, and the error
/// says so.
pub(super) async fn answered<T>(
    call: impl Future<Output = Result<T, StoreError>>,
    over: impl Future<Output = ()>,
) -> Result<T, StoreError> {
    tokio::select! {
        // Biased: a store that answers at once costs no timer.
        biased;
        answer = call => answer,
        () = over => Err(StoreError::new(StoreErrorKind::TimedOut, "waiting for the store")),
    }
}

/// A task in the hands of its caller, who may go away at any moment.
struct Attended<'t, F: Future<Output = ()> + Send + 'static> {
    /// `None` once it has ended.
    rest: Option<Pin<Box<F>>>,
    tasks: &'t TaskTracker,
    _counted: TaskTrackerToken,
}

impl<F: Future<Output = ()> + Send + 'static> Attended<'_, F> {
    fn poll(&mut self, cx: &mut Context<'_>) {
        let Some(task) = &mut self.rest else { return };
        // A panic ends the task, as it would on a task of its own, and the caller gets no reply.
        let step = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx)));
        if !step.is_ok_and(|step| step.is_pending()) {
            self.rest = None;
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Drop for Attended<'_, F> {
    fn drop(&mut self) {
        // Without a runtime nothing can go on: leases end by themselves.
        if let (Some(rest), Ok(runtime)) = (self.rest.take(), Handle::try_current()) {
            self.tasks.spawn_on(rest.in_current_span(), &runtime);
        }
    }
}

/// Waits that grow from 10 ms to a second, so that a store that comes back is neither missed nor stormed.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) const fn new() -> Self {
        Self(Duration::from_millis(10))
    }

    pub(super) fn next(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(Duration::from_secs(1));
        wait
    }
}

impl Engine {
    /// Starts a fingerprint of a request, under this engine's secret and the standard rules.
    pub fn fingerprint(&self) -> FingerprintBuilder {
        Fingerprint::builder(&self.shared.secret, Rules::standard())
    }

    /// The secret of the keyed hashes, for doors that fingerprint by rules of their own.
    pub fn secret(&self) -> &Secret {
        &self.shared.secret
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The engine's own clock, for doors that wait or compare times.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// The store behind this engine, for operators' reads and named commands.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// The record as a claim would find it now. A store that does not tell in time has failed.
    pub async fn lookup(&self, id: &RecordId) -> Result<Option<Record>, EngineError> {
        let looking = self.shared.store.lookup(id);
        Ok(self.shared.bounded(self.policy.store_within, looking).await?)
    }

    /// How much callers have stored: what the house keeps for itself is not counted.
    pub async fn count(&self) -> Result<Stats, StoreError> {
        house::count_callers(&*self.shared.store).await
    }

    /// Claims under a new owner. A lost reply is asked for again with the same owner; a stored fingerprint under
    /// other rules is compared by its own rules.
    pub(super) async fn claim(
        &self,
        request: &Request,
        claimed_at: Timestamp,
        alarm: &mut Alarm,
    ) -> Result<(Claim, ClaimAnswer), EngineError> {
        let mut claim = Claim {
            id: request.id,
            fingerprint: request.fingerprint.fingerprint(),
            owner: Owner::random()?,
            terms: Arc::clone(&self.terms),
        };
        let mut answer = self.claim_surely(&claim, claimed_at, alarm).await?;
        if let ClaimAnswer::Mismatch { rules: Some(rules) } = &answer
            && let Some(fingerprint) = request.fingerprint.fingerprint_by(rules)
        {
            claim.fingerprint = fingerprint;
            // Boxed: seldom needed.
            let again = Box::pin(self.claim_surely(&claim, claimed_at, alarm));
            answer = again.await.map_err(EngineError::taken)?;
        }
        Ok((claim, answer))
    }

    async fn claim_surely(
        &self,
        claim: &Claim,
        claimed_at: Timestamp,
        alarm: &mut Alarm,
    ) -> Result<ClaimAnswer, EngineError> {
        let clock = &*self.shared.clock;
        let until = claimed_at + self.policy.claim_for.min(self.terms.lease.get() / 2);
        let mut backoff = Backoff::new();
        let mut maybe_applied = false;
        loop {
            // Counted from when there is something to wait for.
            let over = async {
                let at = clock.now() + self.policy.store_within;
                // The completion will be waited for, too, and most likely for less long.
                alarm.set_by(at.min(claimed_at + self.policy.answer_within), clock);
                alarm.until(at, clock).await;
            };
            let error = match answered(self.shared.store.claim(claim), over).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            self.shared.observe_failure(&claim.id, Fence::default(), &error);
            maybe_applied |= error.outcome_unknown();
            let wait = backoff.next();
            // Fail closed: nothing was started. A claim that may have been applied is asked for again.
            let again_at = clock.now() + wait;
            if !error.outcome_unknown() || again_at >= until {
                if maybe_applied {
                    self.settle(claim, claimed_at);
                }
                return Err(error.into());
            }
            alarm.until(again_at, clock).await;
        }
    }

    /// Gives back a grant that may have been made to a claim whose caller was refused: nothing was started.
    pub(super) fn settle(&self, claim: &Claim, claimed_at: Timestamp) {
        let (shared, within) = (Arc::clone(&self.shared), self.policy.store_within);
        let until = claimed_at + self.terms.lease.get();
        // Under terms that change nothing but a grant of our own: another's unknown record is none of our business.
        let terms =
            Terms { unknown: UnknownPolicy::Hold, hold_for: Duration::MAX, ..Terms::clone(&claim.terms) };
        let claim = Claim { terms: Arc::new(terms), ..claim.clone() };
        let settling = async move {
            let mut backoff = Backoff::new();
            while shared.clock.now() < until {
                match shared.bounded(within, shared.plain.claim(&claim)).await {
                    Ok(ClaimAnswer::Granted(grant)) => {
                        let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
                        let release = Release { token, keep_fingerprint: true };
                        if shared.bounded(within, shared.plain.release(&release)).await.is_ok() {
                            return shared.observe(&claim.id, grant.fence, Event::Released);
                        }
                    }
                    Ok(_) => return,
                    Err(error) => shared.observe_failure(&claim.id, Fence::default(), &error),
                }
                shared.clock.sleep(backoff.next()).await;
            }
        };
        let aborting = self.shared.aborting.clone();
        // An engine that is shutting down leaves it to the lease.
        let _ = self.shared.spawn(async move {
            tokio::select! {
                () = settling => {}
                () = aborting.cancelled() => {}
            }
        });
    }

    /// How many tasks of the engine run in this process: executions, and what follows from them.
    pub fn running(&self) -> usize {
        self.shared.tasks.len()
    }

    /// How many calls wait for one that runs, in this process.
    pub fn waiting(&self) -> usize {
        self.shared.waiters.len()
    }

    /// Stops taking work, waits up to `patience` for what runs, then abandons the rest. Idempotent.
    ///
    /// Nothing is released here: work that was cut off may have had its effect.
    pub async fn drain(&self, patience: Duration) {
        let shared = &self.shared;
        shared.stopping.cancel();
        shared.tasks.close();
        tokio::select! {
            () = shared.tasks.wait() => {}
            () = shared.clock.sleep(patience) => shared.aborting.cancel(),
        }
        tokio::select! {
            () = shared.tasks.wait() => {}
            // Work that blocks its thread cannot be stopped. Its lease ends, and that is all there is to wait for.
            () = shared.clock.sleep(self.terms.lease.get()) => {}
        }
    }
}
