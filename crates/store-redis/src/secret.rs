//! The secret of the keyed hashes: agreed on once, and put back when a server has lost it.
//!
//! A process that finds none makes a new one. If the others went on with the old one, the same key would have two ids,
//! and its work would run twice.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use onlyonce_core::{Secret, StoreError, StoreErrorKind};
use redis::Value;

use crate::epoch::Incidents;
use crate::error;
use crate::scripts::Script;
use crate::store::RedisStore;

const DOING: &str = "keeping the secret";

/// The secret that this process goes by, and what had happened to the servers when it was last seen to be kept.
#[derive(Debug, Default)]
pub(crate) struct Agreed(Mutex<Option<(Secret, Incidents)>>);

impl Agreed {
    fn set(&self, secret: Secret, seen: Incidents) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((secret, seen));
    }

    /// The secret, if something has happened since it was last seen.
    fn in_doubt(&self, now: Incidents) -> Option<Secret> {
        let agreed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        agreed.as_ref().filter(|(_, seen)| *seen != now).map(|(secret, _)| secret.clone())
    }
}

impl RedisStore {
    /// Keeps `offered` if there is no secret yet, and answers the one that is kept.
    pub(crate) async fn keep_secret(&self, offered: &Secret) -> Result<Secret, StoreError> {
        let seen = self.shared.counts.get();
        let kept = self.offer_secret(offered).await?;
        self.agreed.set(kept.clone(), seen);
        Ok(kept)
    }

    /// After a loss: puts the secret back. If another process was faster with another one, no new grant is made any more.
    pub(crate) async fn put_secret_back(&self) -> Result<(), StoreError> {
        let now = self.shared.counts.get();
        let Some(ours) = self.agreed.in_doubt(now) else { return Ok(()) };
        let kept = self.offer_secret(&ours).await?;
        let is_other = kept != ours;
        if is_other && !self.shared.has_other_secret.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "the server lost its records and has another secret now: this process grants nothing any more; restart it"
            );
        }
        self.agreed.set(ours, now);
        Ok(())
    }

    async fn offer_secret(&self, offered: &Secret) -> Result<Secret, StoreError> {
        let key = self.shared.key_named("secret");
        let mut call = self.shared.scripts.call(Script::Secret, &key);
        call.arg(offered.expose());
        match self.masters.run(&key, &call, DOING).await? {
            Value::BulkString(kept) => match kept.try_into() {
                Ok(bytes) => Ok(Secret::new(bytes)),
                Err(_) => {
                    Err(StoreError::new(StoreErrorKind::Corrupt, DOING).because("it is not 32 bytes long"))
                }
            },
            other => Err(error::unexpected(&other, DOING)),
        }
    }
}
