//! The embedded store as it is used: every claim and every completion synced, one sync for all that wait.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use onlyonce_core::record::State;
use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, CompleteAnswer, Token};
use onlyonce_core::{Body, Fence, Fingerprint, Outcome, Owner, RecordId, Rules, Secret, Store as _, Terms};
use onlyonce_store_embedded::{EmbeddedStore, Options, Sync};

use super::{Asked, Engine, Purpose};
use crate::Result;
use crate::pair::{FINGERPRINT, Key, Pair};

pub(crate) struct Onlyonce {
    pub(crate) store: EmbeddedStore,
    fingerprint: Fingerprint,
    terms: Arc<Terms>,
}

impl Onlyonce {
    pub(super) fn open(folder: &Path, purpose: Purpose) -> Result<Self> {
        let sync = match purpose {
            Purpose::Load => Sync::None,
            Purpose::Measure => Sync::Always,
        };
        Self::open_with(folder, Options { sync, ..Options::default() }, Terms::default())
    }

    pub(crate) fn open_with(folder: &Path, options: Options, terms: Terms) -> Result<Self> {
        let store = EmbeddedStore::open(folder, options)?;
        Ok(Self { store, fingerprint: fingerprint(), terms: Arc::new(terms) })
    }

    fn claim_of(&self, pair: &Pair) -> Claim {
        claim_of(pair, self.fingerprint.clone(), Arc::clone(&self.terms))
    }
}

pub(super) fn fingerprint() -> Fingerprint {
    Fingerprint::builder(&Secret::new([7; 32]), Rules::standard()).field("body", &FINGERPRINT).finish()
}

pub(super) fn claim_of(pair: &Pair, fingerprint: Fingerprint, terms: Arc<Terms>) -> Claim {
    Claim { id: RecordId::from_bytes(pair.key), fingerprint, owner: Owner::from_bytes(pair.owner), terms }
}

pub(super) fn complete_of(pair: &Pair, fence: Fence) -> Complete {
    let token = Token { id: RecordId::from_bytes(pair.key), owner: Owner::from_bytes(pair.owner), fence };
    Complete { token, outcome: Outcome::kept(1, pair.outcome.clone()), retention: None }
}

fn granted(answer: ClaimAnswer) -> Result<Fence> {
    match answer {
        ClaimAnswer::Granted(grant) => Ok(grant.fence),
        other => Err(format!("a new key was not granted: {other:?}").into()),
    }
}

fn completed(answer: CompleteAnswer) -> Result<()> {
    match answer {
        CompleteAnswer::Completed => Ok(()),
        other => Err(format!("a grant was not completed: {other:?}").into()),
    }
}

impl Engine for Onlyonce {
    fn claim<'a>(&'a self, pair: &'a Pair) -> Asked<'a, Option<u64>> {
        Box::pin(async move {
            match self.store.claim(&self.claim_of(pair)).await? {
                ClaimAnswer::Granted(grant) => Ok(Some(grant.fence.get())),
                _ => Ok(None),
            }
        })
    }

    fn complete<'a>(&'a self, pair: &'a Pair, fence: u64) -> Asked<'a, ()> {
        Box::pin(async move {
            let fence = Fence::new(fence).ok_or("no such fence")?;
            completed(self.store.complete(&complete_of(pair, fence)).await?)
        })
    }

    fn load(&self, pairs: Vec<Pair>) -> Asked<'_, ()> {
        Box::pin(async move {
            let claims: Vec<_> = pairs.iter().map(|pair| self.claim_of(pair)).collect();
            let mut completes = Vec::with_capacity(pairs.len());
            for (pair, answer) in pairs.iter().zip(self.store.claim_many(&claims).await?) {
                completes.push(complete_of(pair, granted(answer?)?));
            }
            for answer in self.store.complete_many(&completes).await? {
                completed(answer?)?;
            }
            Ok(())
        })
    }

    fn count(&self) -> Asked<'_, u64> {
        Box::pin(async move { Ok(self.store.stats().await?.completed) })
    }

    fn outcome<'a>(&'a self, key: &'a Key) -> Asked<'a, Option<Bytes>> {
        Box::pin(async move {
            let record = self.store.lookup(&RecordId::from_bytes(*key)).await?;
            Ok(record.and_then(|record| match record.state {
                State::Completed(completed) => match completed.outcome.body() {
                    Body::Kept(bytes) => Some(bytes.clone()),
                    Body::Tombstone(_) => None,
                },
                _ => None,
            }))
        })
    }

    fn own_memory(&self) -> Option<u64> {
        Some(self.store.memory_bytes() as u64)
    }
}
