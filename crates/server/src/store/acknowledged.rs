//! Routes that wait for replicas before a grant or an outcome counts.

use std::sync::Arc;

use onlyonce_core::sweeper::growth::Growth;
use onlyonce_core::{Encrypted, Engine, Store, StoreError};
use onlyonce_http::rules::Acknowledgement;
use onlyonce_http::{Acknowledging, RulesError};
use onlyonce_store_redis::RedisStore;

use super::bounded::Bounded;
use super::told;
use crate::config::StoreSettings;

/// Engines whose grants and outcomes wait for replicas of a Redis store. They have no tier in front: what a route waits
/// for is part of its answer.
#[derive(Debug)]
struct Acknowledged {
    engine: Engine,
    store: RedisStore,
    growth: Option<Arc<Growth>>,
    encrypted: Option<Arc<Encrypted>>,
}

/// A store that has replicas to wait for.
#[derive(Debug)]
pub(crate) struct Replicated {
    store: RedisStore,
    growth: Option<Arc<Growth>>,
    /// What is encrypted there is so on the way past it, too.
    pub(super) encrypted: Option<Arc<Encrypted>>,
}

impl Replicated {
    pub(super) const fn new(store: RedisStore) -> Self {
        Self { store, growth: None, encrypted: None }
    }

    /// The same within bounds.
    pub(super) fn within(self, growth: &Arc<Growth>) -> Self {
        Self { growth: Some(Arc::clone(growth)), ..self }
    }

    /// Engines like `engine` that wait for them.
    pub(crate) fn engines(self, engine: &Engine) -> Arc<dyn Acknowledging> {
        let Self { store, growth, encrypted } = self;
        Arc::new(Acknowledged { engine: engine.clone(), store, growth, encrypted })
    }
}

/// For checking rules without a store: whether the servers can do what a route asks for shows when it is opened.
pub(crate) fn presumed(settings: &StoreSettings, engine: &Engine) -> Option<Arc<dyn Acknowledging>> {
    #[derive(Debug)]
    struct Presumed(Engine);

    impl Acknowledging for Presumed {
        fn engine(&self, _: Acknowledgement) -> Result<Engine, RulesError> {
            Ok(self.0.clone())
        }
    }

    settings.url.starts_with("redis").then(|| Arc::new(Presumed(engine.clone())) as _)
}

impl Acknowledging for Acknowledged {
    fn engine(&self, acknowledgement: Acknowledgement) -> Result<Engine, RulesError> {
        use onlyonce_store_redis::Acknowledgement as Redis;

        let Acknowledgement { replicas, disk, within } = acknowledgement;
        let within = within.get();
        let asked = if disk {
            Redis::Disks { master: true, replicas, within }
        } else {
            Redis::Replicas { count: replicas, within }
        };
        let wrong = |error: StoreError| RulesError::new(format!("acknowledgement: {}", told(&error)));
        let store: Arc<dyn Store> = Arc::new(self.store.acknowledged(asked).map_err(wrong)?);
        // ORDER: as in front of the store itself: counted as it is stored.
        let store = match &self.growth {
            Some(growth) => Arc::new(Bounded::new(store, Arc::clone(growth))) as Arc<dyn Store>,
            None => store,
        };
        Ok(self.engine.over(match &self.encrypted {
            Some(encrypted) => Arc::new(encrypted.over(store)),
            None => store,
        }))
    }
}
