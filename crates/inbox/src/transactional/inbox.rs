//! The inbox: one message, one transaction, once.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::record::CompletedBy;
use onlyonce_core::transition::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Release, Renew, RenewAnswer, Terms, Token,
};
use onlyonce_core::{
    BoxError, Clock, Fence, Fingerprint, Outcome, Owner, Policy, Rules, Secret, Store as _, StoreError,
    SystemClock,
};
use onlyonce_store_postgres::PostgresStore;

use super::driver::Driver;
use super::error::InboxError;
use crate::consumer::message_policy;
use crate::handler::MESSAGE_OUTCOME;
use crate::id::IdRules;
use crate::message::Message;

/// How often a claim whose reply was lost is asked for again.
const CLAIM_TRIES: u32 = 5;
/// Two renewals may fail before a lease ends.
const RENEWALS_PER_LEASE: u32 = 3;

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Once {
    /// The handler ran. Commit, then acknowledge. What it returned is what duplicates will be told.
    Done(Bytes),
    /// It was done before, with this outcome. Acknowledge.
    Duplicate(Outcome),
    /// Someone else is at it, or was until a moment ago. Have it delivered again; do not acknowledge it.
    Busy {
        /// When asking again makes sense, at the latest.
        left: Duration,
    },
    /// Attempts were begun whose outcome nobody knows, and as many as there may be. To the dead letters.
    Parked {
        /// The fence to resolve it with.
        fence: Fence,
    },
    /// Its id was used for another message. To the dead letters, or wherever someone sees it.
    Mismatch,
    /// Nothing names it.
    Nameless,
}

/// What a boxed effect returns.
pub type EffectFuture<'t, E> = Pin<Box<dyn Future<Output = Result<Bytes, E>> + Send + 't>>;

/// A claim that was granted, with the savepoint open.
struct Begun {
    token: Token,
    attempt: u32,
}

/// Handles messages in the caller's own transactions, once each. Cheap to clone.
#[derive(Clone)]
pub struct Inbox {
    store: Arc<PostgresStore>,
    consumer: Arc<str>,
    secret: Secret,
    terms: Arc<Terms>,
    ids: IdRules,
    clock: Arc<dyn Clock>,
}

impl Inbox {
    /// The inbox of `consumer`, under the defaults for messages. Each name has its own records.
    pub async fn open(store: Arc<PostgresStore>, consumer: &str) -> Result<Self, InboxError> {
        if consumer.is_empty() {
            return Err(InboxError::misuse("the consumer has no name"));
        }
        let secret = store.secret(&Secret::random()?).await?;
        let terms = Arc::new(message_policy().terms().clone());
        let (ids, clock) = (IdRules::default(), Arc::new(SystemClock::new()));
        Ok(Self { store, consumer: consumer.into(), secret, terms, ids, clock })
    }

    /// How messages are treated. Start from [`message_policy`].
    pub fn with_policy(mut self, policy: &Policy) -> Result<Self, InboxError> {
        policy.check().map_err(|_| InboxError::misuse("the policy cannot work"))?;
        self.terms = Arc::new(policy.terms().clone());
        Ok(self)
    }

    /// Where ids are looked for.
    #[must_use]
    pub fn with_ids(mut self, ids: IdRules) -> Self {
        self.ids = ids;
        self
    }

    /// Where its own time comes from. Leases are the store's.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Has `effect` take place in `transaction` unless it took place before.
    ///
    /// The claim is a commit of its own, made first. `effect` runs inside a savepoint: if it fails, what it did is undone
    /// and the transaction goes on, so that a batch of messages can share one. Its outcome is completed in the transaction,
    /// where the fence is checked. Nothing is done until the caller commits.
    ///
    /// While `effect` runs its lease is renewed, up to the policy's `run_max`. After it nobody else can claim the message
    /// until the transaction ends: its record is locked there.
    ///
    /// Rust cannot yet prove a future `Send` that holds an async closure over a borrowed transaction: inside
    /// `tokio::spawn`, use [`Inbox::once_boxed`].
    pub async fn once<T, E, F>(
        &self,
        transaction: &mut T,
        message: &Message,
        effect: F,
    ) -> Result<Once, InboxError>
    where
        T: Driver,
        E: Into<BoxError>,
        F: AsyncFnOnce(&mut T) -> Result<Bytes, E>,
    {
        match self.begin(transaction, message).await? {
            Ok(begun) => {
                let result = self.kept(begun.token, effect(transaction)).await.map_err(Into::into);
                self.finish(transaction, begun, result).await
            }
            Err(once) => Ok(once),
        }
    }

    /// The same with a boxed future, for tasks that may move between threads: `|tx| Box::pin(async move { … })`.
    pub async fn once_boxed<T, E, F>(
        &self,
        transaction: &mut T,
        message: &Message,
        effect: F,
    ) -> Result<Once, InboxError>
    where
        T: Driver,
        E: Into<BoxError> + 'static,
        F: for<'t> FnOnce(&'t mut T) -> EffectFuture<'t, E> + Send,
    {
        match self.begin(transaction, message).await? {
            Ok(begun) => {
                let result = self.kept(begun.token, effect(transaction)).await.map_err(Into::into);
                self.finish(transaction, begun, result).await
            }
            Err(once) => Ok(once),
        }
    }

    /// Claims, and opens the savepoint of the effect. `Err` is the answer when there is nothing to run.
    async fn begin<T: Driver>(
        &self,
        transaction: &mut T,
        message: &Message,
    ) -> Result<Result<Begun, Once>, InboxError> {
        let Some(id) = self.ids.find(message) else { return Ok(Err(Once::Nameless)) };
        let fingerprint =
            Fingerprint::builder(&self.secret, Rules::standard()).field("body", &message.body).finish();
        let id = id.for_consumer(&self.consumer).record_id(&self.secret);
        let claim = Claim { id, fingerprint, owner: Owner::random()?, terms: Arc::clone(&self.terms) };
        let once = match self.claim(&claim).await? {
            ClaimAnswer::Granted(grant) => {
                let token = Token { id, owner: claim.owner, fence: grant.fence };
                transaction.run("SAVEPOINT onlyonce_once").await?;
                return Ok(Ok(Begun { token, attempt: grant.attempt }));
            }
            // Closed without knowing: nobody may take it for done.
            ClaimAnswer::Replay(replay) if replay.by == CompletedBy::Seal => {
                Once::Parked { fence: replay.fence }
            }
            ClaimAnswer::Replay(replay) => Once::Duplicate(replay.outcome),
            ClaimAnswer::Busy(busy) => Once::Busy { left: busy.left },
            ClaimAnswer::Held(held) => Once::Parked { fence: held.fence },
            ClaimAnswer::Recover(recover) => Once::Parked { fence: recover.fence },
            ClaimAnswer::Mismatch { .. } => Once::Mismatch,
            ClaimAnswer::Fenced => Once::Busy { left: self.terms.lease.get() },
        };
        Ok(Err(once))
    }

    /// Runs the effect, and renews the lease of `token` meanwhile, in the same task.
    async fn kept<T>(&self, token: Token, effect: impl Future<Output = T>) -> T {
        let renewing = async {
            loop {
                self.clock.sleep(self.terms.lease.get() / RENEWALS_PER_LEASE).await;
                match self.store.renew(&Renew { token, lease: self.terms.lease }).await {
                    Ok(RenewAnswer::Renewed(_)) => {}
                    // What it does counts for nothing any more: its completion will be refused.
                    Ok(RenewAnswer::Fenced) => {
                        return tracing::warn!(id = token.id.short(), "a lease was lost");
                    }
                    Err(error) => {
                        tracing::warn!(id = token.id.short(), %error, "a lease could not be renewed");
                    }
                }
            }
        };
        tokio::pin!(effect);
        tokio::select! {
            // Biased: an effect that has returned is taken at its word.
            biased;
            ended = &mut effect => return ended,
            () = renewing => {}
        }
        effect.await
    }

    async fn finish<T: Driver>(
        &self,
        transaction: &mut T,
        begun: Begun,
        result: Result<Bytes, BoxError>,
    ) -> Result<Once, InboxError> {
        let Begun { token, attempt } = begun;
        match result {
            Ok(result) => self.complete(transaction, token, result).await,
            Err(error) => {
                undo(transaction).await?;
                // Undone for certain: the next attempt need not wait for the lease.
                self.release(token).await;
                Err(InboxError::handler(error, attempt, attempt >= self.terms.attempts_max))
            }
        }
    }

    async fn complete<T: Driver>(
        &self,
        transaction: &mut T,
        token: Token,
        result: Bytes,
    ) -> Result<Once, InboxError> {
        let outcome = Outcome::kept(MESSAGE_OUTCOME, result.clone());
        let complete = Complete { token, outcome, retention: None };
        match self.store.complete_in(transaction, &complete).await? {
            CompleteAnswer::Completed | CompleteAnswer::Already => {
                transaction.run("RELEASE SAVEPOINT onlyonce_once").await?;
                Ok(Once::Done(result))
            }
            CompleteAnswer::Fenced | CompleteAnswer::Late | CompleteAnswer::Alarm => {
                undo(transaction).await?;
                Err(InboxError::fenced())
            }
        }
    }

    /// Claims in a commit of its own. A lost reply is asked for again with the same owner.
    async fn claim(&self, claim: &Claim) -> Result<ClaimAnswer, StoreError> {
        let mut tries = 1;
        loop {
            match self.store.claim(claim).await {
                Err(error) if error.outcome_unknown() && tries < CLAIM_TRIES => tries += 1,
                answer => return answer,
            }
        }
    }

    async fn release(&self, token: Token) {
        if let Err(error) = self.store.release(&Release { token, keep_fingerprint: true }).await {
            tracing::warn!(id = token.id.short(), %error, "a message that failed waits for its lease to end");
        }
    }
}

/// Takes back what the effect did, and leaves the transaction as it was before it.
async fn undo<T: Driver>(transaction: &mut T) -> Result<(), InboxError> {
    transaction.run("ROLLBACK TO SAVEPOINT onlyonce_once; RELEASE SAVEPOINT onlyonce_once").await
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}
