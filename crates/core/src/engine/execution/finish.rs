//! The three endings of a grant, told to a store that may be away.
//!
//! An outcome that cannot be recorded within the policy's patience goes to the caller with the `unrecorded` mark, and
//! recording it is tried again in the background under the same fence, with the lease kept meanwhile.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::Attempt;
use crate::decision;
use crate::engine::alarm::Waiting;
use crate::engine::quota::leave_and_tell;
use crate::engine::shared::{Backoff, Shared, answered};
use crate::engine::{Before, Conflict, Cut, EngineError, Next, Ran, Recorded, Reply, ReplyTo};
use crate::lease::Retention;
use crate::observe::Event;
use crate::outcome::Outcome;
use crate::store::{StoreError, StoreErrorKind};
use crate::transition::{Abandon, AbandonAnswer, Complete, Release, ReleaseAnswer, Token};

impl Attempt {
    /// Not `async` itself: see [`Attempt::run`].
    pub(super) fn complete<R, W>(
        &mut self,
        outcome: Outcome,
        retention: Option<Retention>,
        value: R,
        reply: ReplyTo<R, W>,
    ) -> impl Future<Output = ()> {
        self.leaves(outcome.len(), retention.unwrap_or(self.engine.terms.retention));
        let complete = Complete { token: self.token, outcome, retention };
        let store = Arc::clone(&self.engine.shared.store);
        async move {
            if let Some((answer, _)) = self.tell(self.patience(), || store.complete(&complete)).await {
                let (recorded, event) = decision::completed(answer);
                self.observe(event);
                return self.reply(recorded, value, reply);
            }
            // I9: the caller gets the answer with its mark; the outcome is still to be recorded.
            self.observe(Event::Unrecorded);
            self.reply(Ok(Recorded::Unrecorded), value, reply);
            // Boxed: seldom needed.
            let told = Box::pin(self.tell_in_background(|| store.complete(&complete))).await;
            self.observe(told.map_or(Event::Abandoned, |(answer, _)| decision::completed(answer).1));
        }
    }

    pub(super) async fn release<R, W>(&mut self, keep_fingerprint: bool, value: R, reply: ReplyTo<R, W>) {
        self.leaves(0, self.engine.terms.retention);
        let release = Release { token: self.token, keep_fingerprint };
        let store = Arc::clone(&self.engine.shared.store);
        let told = self.tell(self.patience(), || store.release(&release)).await;
        let (recorded, event) = released(told);
        self.observe(event);
        self.reply(Ok(recorded), value, reply);
        if told.is_none() {
            let told = Box::pin(self.tell_in_background(|| store.release(&release))).await;
            self.observe(released(told).1);
        }
    }

    pub(super) async fn abandon<R, W>(&mut self, value: Result<R, Cut>, reply: ReplyTo<R, W>) {
        self.leaves(0, self.engine.terms.unknown_retention);
        let abandon = Abandon { token: self.token };
        let store = Arc::clone(&self.engine.shared.store);
        let told = self.tell(self.patience(), || store.abandon(&abandon)).await;
        // Without an answer the lease ends by itself, to the same effect.
        let fenced = matches!(told, Some((AbandonAnswer::Fenced, _)));
        self.observe(if fenced { Event::Fenced } else { Event::Abandoned });
        match value {
            Ok(value) => self.reply(Ok(Recorded::Abandoned), value, reply),
            Err(cut) => {
                let conflict = Conflict::OutcomeUnknown { fence: self.token.fence, cut: Some(cut) };
                self.send(Ok(Next::Reply(Reply::Conflict(conflict))), reply);
            }
        }
    }

    /// Gives back a grant that was heard of too late to begin.
    pub(super) async fn give_back<R, W>(&mut self, mut before: Before, reply: ReplyTo<R, W>) {
        before.is_taken |= self.attempt > 1;
        let release = Release { token: self.token, keep_fingerprint: true };
        let store = Arc::clone(&self.engine.shared.store);
        let told = self.tell(self.patience(), || store.release(&release)).await;
        // Its lease is over in the store too: another attempt may have been granted since.
        before.is_taken |= matches!(told, Some((ReleaseAnswer::Fenced, _)));
        self.observe(released(told).1);
        let late = StoreError::new(StoreErrorKind::TimedOut, "hearing of a grant before its lease was over");
        self.send(Err(before.refused(late)), reply);
    }

    /// Tells the store until it answers or the patience is over, with the lease kept meanwhile.
    async fn tell<A, F>(&mut self, patience: Duration, command: impl Fn() -> F) -> Option<(A, Tries)>
    where
        F: Future<Output = Result<A, StoreError>>,
    {
        let Self { engine, token, heartbeat, .. } = self;
        until_answered(&engine.shared, token, engine.policy.store_within, patience, heartbeat, command).await
    }

    /// Goes on telling after the caller has its answer. `None` when the patience is over, the process stops, or too
    /// many wait already: the lease then ends by itself and the record becomes unknown.
    async fn tell_in_background<A, F>(&mut self, command: impl Fn() -> F) -> Option<(A, Tries)>
    where
        F: Future<Output = Result<A, StoreError>>,
    {
        let shared = Arc::clone(&self.engine.shared);
        let _place = shared.unrecorded.try_acquire().ok()?;
        tokio::select! {
            told = self.tell(self.engine.policy.finish_for, command) => told,
            () = shared.aborting.cancelled() => None,
        }
    }

    fn reply<R, W>(&mut self, recorded: Result<Recorded, Conflict>, value: R, reply: ReplyTo<R, W>) {
        let Token { fence, .. } = self.token;
        let told = match recorded {
            Ok(recorded) => Reply::Ran(Ran { value, fence, attempt: self.attempt, recorded }),
            Err(conflict) => Reply::Conflict(conflict),
        };
        if matches!(recorded, Ok(Recorded::Unrecorded)) {
            // It keeps its place until it is recorded.
            return drop(reply.send(Ok(Next::Reply(told))));
        }
        self.send(Ok(Next::Reply(told)), reply);
    }

    fn send<R, W>(&mut self, next: Result<Next<R, W>, EngineError>, reply: ReplyTo<R, W>) {
        leave_and_tell(self.place.take(), next, reply);
    }

    /// Counts what the attempt leaves behind, where principals are limited.
    fn leaves(&self, bytes: usize, retention: Retention) {
        if let Some(place) = &self.place {
            place.leaves(self.attempt, bytes, retention.get());
        }
    }

    /// For how long the caller is kept waiting for the record.
    fn patience(&self) -> Duration {
        self.engine.policy.answer_within
    }

    fn observe(&self, event: Event) {
        self.engine.shared.observe(&self.token.id, self.token.fence, event);
    }
}

/// Whether an answer came at once, or after tries that may have got through unseen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tries {
    One,
    More,
}

/// What a release means for the record, and what happened.
fn released(told: Option<(ReleaseAnswer, Tries)>) -> (Recorded, Event) {
    match told {
        Some((ReleaseAnswer::Released, _)) => (Recorded::Released, Event::Released),
        Some((ReleaseAnswer::Fenced, Tries::One)) => (Recorded::Abandoned, Event::Fenced),
        // An earlier try may have got through, which a released record does not tell its last owner.
        Some((ReleaseAnswer::Fenced, Tries::More)) | None => (Recorded::Unrecorded, Event::Unrecorded),
    }
}

/// Repeats a store command until it is answered or the patience is over. Every command may be repeated (contract 5).
pub(super) async fn until_answered<A, F>(
    shared: &Shared,
    token: &Token,
    within: Duration,
    patience: Duration,
    waiting: &mut impl Waiting,
    command: impl Fn() -> F,
) -> Option<(A, Tries)>
where
    F: Future<Output = Result<A, StoreError>>,
{
    let mut backoff = Backoff::new();
    let mut tries = Tries::One;
    let mut now = shared.clock.now();
    let until = now + patience;
    loop {
        match answered(command(), waiting.until(until.min(now + within))).await {
            Ok(answer) => return Some((answer, tries)),
            Err(error) => shared.observe_failure(&token.id, token.fence, &error),
        }
        tries = Tries::More;
        now = shared.clock.now() + backoff.next();
        if now >= until {
            return None;
        }
        waiting.until(now).await;
    }
}
