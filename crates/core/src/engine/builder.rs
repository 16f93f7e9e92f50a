//! How an engine is put together. What cannot work is refused here, before the first request.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Engine;
use super::error::EngineError;
use super::quota::Tallies;
use super::recover::RecoveryHook;
use super::shared::{Common, Shared, UNRECORDED_MAX};
use super::wait::Waiters;
use crate::clock::{Clock, SystemClock};
use crate::error::MisuseError;
use crate::observe::{Observer, Traced};
use crate::policy::Policy;
use crate::secret::Secret;
use crate::store::Store;
use crate::transition::UnknownPolicy;

/// Collects what an [`Engine`] needs. Only the store has no default.
#[derive(Debug)]
#[must_use = "an engine is made by `build`"]
pub struct EngineBuilder {
    store: Arc<dyn Store>,
    policy: Policy,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    hook: Option<Arc<dyn RecoveryHook>>,
    secret: Option<Secret>,
}

impl Engine {
    /// Starts an engine over `store`.
    pub fn builder(store: Arc<dyn Store>) -> EngineBuilder {
        EngineBuilder {
            store,
            policy: Policy::default(),
            clock: Arc::new(SystemClock::new()),
            observer: Arc::new(Traced),
            hook: None,
            secret: None,
        }
    }

    /// The same engine under another policy: for routes that differ. Shares everything else.
    pub fn with_policy(&self, policy: Policy) -> Result<Self, EngineError> {
        check(&policy, self.shared.hook.is_some())?;
        Ok(self.under(policy))
    }

    /// The same for doors whose requests bring their own hook ([`Request::recovered_by`](super::Request::recovered_by)).
    pub fn with_policy_and_hooks_of_requests(&self, policy: Policy) -> Result<Self, EngineError> {
        check(&policy, true)?;
        Ok(self.under(policy))
    }

    /// The same engine over another handle of the *same* records, such as one that waits for replicas. Everything else
    /// is shared: tasks, waiters, quotas, the shutdown.
    #[must_use]
    pub fn over(&self, store: Arc<dyn Store>) -> Self {
        let Shared { plain, common, .. } = &*self.shared;
        let shared = Shared { store, plain: Arc::clone(plain), common: Arc::clone(common) };
        Self { shared: Arc::new(shared), ..self.clone() }
    }

    /// The same engine for callers who only wait, and for work that never blocks its thread: it runs on the caller's
    /// own task, and moves to one of its own when the caller goes away. Nothing else changes.
    ///
    /// A caller that holds the future of [`Engine::perform`] without polling it keeps the lease from being renewed, and
    /// so does work that blocks: a proxy does neither, and saves two tasks for each request.
    #[must_use]
    pub fn in_place(&self) -> Self {
        Self { in_place: true, ..self.clone() }
    }

    fn under(&self, policy: Policy) -> Self {
        Self {
            in_place: self.in_place,
            shared: Arc::clone(&self.shared),
            terms: Arc::new(policy.terms.clone()),
            policy: Arc::new(policy),
        }
    }
}

impl EngineBuilder {
    /// How operations are treated.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Where the engine's own time comes from. The store has its own.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Who sees what happens. Default: `tracing`.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Who finds out what happened, under the `query` policy.
    pub fn recovery_hook(mut self, hook: Arc<dyn RecoveryHook>) -> Self {
        self.hook = Some(hook);
        self
    }

    /// The secret of the keyed hashes, when it comes from a file. It must be the one the store keeps.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Agrees with the store on the secret, and starts.
    pub async fn build(self) -> Result<Engine, EngineError> {
        check(&self.policy, self.hook.is_some())?;
        let offered = match &self.secret {
            Some(secret) => secret.clone(),
            None => Secret::random()?,
        };
        let secret = self.store.secret(&offered).await?;
        if self.secret.is_some_and(|ours| ours != secret) {
            // Under another secret every key would look new, and everything would run again.
            return Err(EngineError::misuse(MisuseError::new("the store keeps another secret than ours")));
        }
        Ok(Engine {
            in_place: false,
            terms: Arc::new(self.policy.terms.clone()),
            policy: Arc::new(self.policy),
            shared: Arc::new(Shared {
                plain: Arc::clone(&self.store),
                store: self.store,
                common: Arc::new(Common {
                    clock: self.clock,
                    secret,
                    hook: self.hook,
                    observer: self.observer,
                    waiters: Waiters::default(),
                    tallies: Tallies::default(),
                    unrecorded: Semaphore::new(UNRECORDED_MAX),
                    tasks: TaskTracker::new(),
                    stopping: CancellationToken::new(),
                    aborting: CancellationToken::new(),
                }),
            }),
        })
    }
}

fn check(policy: &Policy, has_hook: bool) -> Result<(), EngineError> {
    policy.check().map_err(EngineError::misuse)?;
    if policy.terms.unknown == UnknownPolicy::Query && !has_hook {
        return Err(EngineError::misuse(MisuseError::new("the query policy needs a recovery hook to ask")));
    }
    Ok(())
}
