//! How a consumer is put together. What cannot work is refused here, before the first message.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Clock, Engine, Observer, Policy, RecoveryHook, Retention, Secret, Store, UnknownPolicy};

use super::{Consumer, ConsumerError, Counts, OnMissingId, OnShortRetention};
use crate::decision::{Backoff, OnMismatch, Rulings};
use crate::gathered::Gathered;
use crate::handler::Handler;
use crate::id::IdRules;
use crate::source::{FETCH_MAX, Horizon, Source};

const DAY: Duration = Duration::from_hours(24);
/// How many handlers may run at a time, at the most.
const CONCURRENCY_MAX: usize = 10_000;

/// Collects what a [`Consumer`] needs. Only name, source, store and handler have no default.
#[must_use = "a consumer is made by `build`"]
pub struct ConsumerBuilder {
    name: Arc<str>,
    source: Arc<dyn Source>,
    store: Arc<dyn Store>,
    handler: Arc<dyn Handler>,
    policy: Policy,
    ids: IdRules,
    on_missing_id: OnMissingId,
    on_mismatch: OnMismatch,
    on_short_retention: OnShortRetention,
    backoff: Backoff,
    concurrency: usize,
    batch_max: usize,
    drain_for: Duration,
    clock: Option<Arc<dyn Clock>>,
    observer: Option<Arc<dyn Observer>>,
    hook: Option<Arc<dyn RecoveryHook>>,
    secret: Option<Secret>,
}

/// The defaults for messages: unknown outcomes run again, up to five attempts, and records are kept for 30 days.
///
/// Brokers deliver again for days and operators for weeks; five attempts outlive a restart and a short outage.
pub fn message_policy() -> Policy {
    const MONTH: Retention = Retention::UNKNOWN_DEFAULT;
    Policy::default()
        .unknown(UnknownPolicy::Rerun)
        .attempts_max(5)
        .retention(MONTH)
        .unknown_retention(MONTH)
        // Parked, not sealed: a sealed record would look done.
        .hold_for(30 * DAY)
}

impl Consumer {
    /// A consumer called `name`: each name has its own records, so that two consumers of one topic both get its messages.
    pub fn builder(
        name: impl Into<Arc<str>>,
        source: Arc<dyn Source>,
        store: Arc<dyn Store>,
        handler: impl Handler,
    ) -> ConsumerBuilder {
        ConsumerBuilder {
            name: name.into(),
            source,
            store,
            handler: Arc::new(handler),
            policy: message_policy(),
            ids: IdRules::default(),
            on_missing_id: OnMissingId::default(),
            on_mismatch: OnMismatch::default(),
            on_short_retention: OnShortRetention::default(),
            backoff: Backoff::default(),
            concurrency: 64,
            batch_max: 256,
            drain_for: Duration::from_secs(20),
            clock: None,
            observer: None,
            hook: None,
            secret: None,
        }
    }
}

impl ConsumerBuilder {
    /// How messages are treated. Start from [`message_policy`].
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Where ids are looked for.
    pub fn ids(mut self, ids: IdRules) -> Self {
        self.ids = ids;
        self
    }

    /// What to do with a message that nothing names. Default: to the dead letters.
    pub const fn on_missing_id(mut self, on_missing_id: OnMissingId) -> Self {
        self.on_missing_id = on_missing_id;
        self
    }

    /// What to do with a message whose id was used for another one. Default: to the dead letters.
    pub const fn on_mismatch(mut self, on_mismatch: OnMismatch) -> Self {
        self.on_mismatch = on_mismatch;
        self
    }

    /// What to do when records are kept for too short a time. Default: do not start.
    pub const fn on_short_retention(mut self, on_short_retention: OnShortRetention) -> Self {
        self.on_short_retention = on_short_retention;
        self
    }

    /// How soon a failed message is tried again. Default: after 1 s, doubled each time, up to 5 min.
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// How many handlers run at a time. Default 64. As many again may be claimed and wait for their turn.
    pub const fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// How many messages are fetched and claimed together at the most. Default 256: beyond it a larger batch gains little.
    pub const fn batch_max(mut self, batch_max: usize) -> Self {
        self.batch_max = batch_max;
        self
    }

    /// How long a shutdown waits for handlers before it abandons them. Default 20 s: less than the 30 s that
    /// orchestrators wait.
    pub const fn drain_for(mut self, drain_for: Duration) -> Self {
        self.drain_for = drain_for;
        self
    }

    /// Where the consumer's own time comes from. The store and the broker have their own.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Who sees what happens to records. Default: `tracing`.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Who finds out what happened, under the `query` policy.
    pub fn recovery_hook(mut self, hook: Arc<dyn RecoveryHook>) -> Self {
        self.hook = Some(hook);
        self
    }

    /// The secret of the keyed hashes, when it comes from a file.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Checks what was chosen, agrees with the store on the secret, and is ready to run.
    pub async fn build(self) -> Result<Consumer, ConsumerError> {
        self.check()?;
        let mut engine = Engine::builder(Arc::new(Gathered::new(self.store))).policy(self.policy.clone());
        if let Some(clock) = self.clock {
            engine = engine.clock(clock);
        }
        if let Some(observer) = self.observer {
            engine = engine.observer(observer);
        }
        if let Some(hook) = self.hook {
            engine = engine.recovery_hook(hook);
        }
        if let Some(secret) = self.secret {
            engine = engine.secret(secret);
        }
        let rulings = Rulings {
            attempts_max: self.policy.terms().attempts_max,
            backoff: self.backoff,
            on_mismatch: self.on_mismatch,
        };
        Ok(Consumer {
            name: self.name,
            engine: engine.build().await?,
            source: self.source,
            handler: self.handler,
            ids: self.ids,
            on_missing_id: self.on_missing_id,
            rulings,
            concurrency: self.concurrency,
            batch_max: self.batch_max,
            drain_for: self.drain_for,
            counts: Arc::new(Counts::default()),
        })
    }

    fn check(&self) -> Result<(), ConsumerError> {
        if self.name.is_empty() {
            return Err(ConsumerError::misuse("the consumer has no name"));
        }
        if self.concurrency == 0 || self.concurrency > CONCURRENCY_MAX {
            return Err(ConsumerError::misuse("concurrency is from 1 to 10000"));
        }
        if self.batch_max == 0 || self.batch_max > FETCH_MAX {
            return Err(ConsumerError::misuse("batch_max is from 1 to 1000"));
        }
        if self.backoff.longest > DAY || self.backoff.first > self.backoff.longest {
            return Err(ConsumerError::misuse(
                "the backoff is longer than 24 h, or its first wait than its longest",
            ));
        }
        self.check_retention()
    }

    /// A message delivered after its record is gone is run again: nobody would notice.
    fn check_retention(&self) -> Result<(), ConsumerError> {
        let terms = self.policy.terms();
        let kept = terms.retention.get().min(terms.unknown_retention.get());
        let Horizon::Within(horizon) = self.source.horizon() else {
            tracing::warn!(
                consumer = &*self.name,
                ?kept,
                "the source may deliver a message again at any time: one that comes after its record is gone runs again"
            );
            return Ok(());
        };
        if kept >= horizon {
            return Ok(());
        }
        let text = format!("records are kept for {kept:?}, the source may deliver again for {horizon:?}");
        match self.on_short_retention {
            OnShortRetention::Refuse => Err(ConsumerError::short_retention(text)),
            OnShortRetention::Warn => {
                tracing::warn!(consumer = &*self.name, "{text}: late duplicates run again");
                Ok(())
            }
        }
    }
}

impl fmt::Debug for ConsumerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
