//! A store on a simulated disk, and the few commands that tests of single cases need.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, Terms, Token};
use onlyonce_core::{RecordId, Retention, Store, UnknownPolicy};
use onlyonce_store_embedded::{EmbeddedStore, Options};
use onlyonce_testkit::ManualClock;
use onlyonce_testkit::fixture::{any_id, fingerprint, outcome, terms};

use crate::disk::SimDisk;
use crate::verify::open;
use crate::workload::owner;

pub(crate) const DAY: Duration = Duration::from_hours(24);

pub(crate) struct Stage {
    pub(crate) disk: SimDisk,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) options: Options,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let options = Options { reserve_bytes: 512, ..Options::default() };
        Self { disk: SimDisk::default(), clock: Arc::new(ManualClock::default()), options }
    }

    pub(crate) fn open(&self) -> EmbeddedStore {
        open(&self.disk, &self.clock, self.options).unwrap()
    }
}

pub(crate) fn hold() -> Terms {
    terms(UnknownPolicy::Hold)
}

pub(crate) fn kept(retention: Duration) -> Terms {
    Terms { retention: Retention::new(retention).unwrap(), ..hold() }
}

pub(crate) fn claim(id: RecordId, number: u64, terms: Terms) -> Claim {
    Claim { id, fingerprint: fingerprint(b"body"), owner: owner(number), terms: Arc::new(terms) }
}

pub(crate) async fn granted(store: &EmbeddedStore, claim: &Claim) -> Token {
    match store.claim(claim).await.unwrap() {
        ClaimAnswer::Granted(grant) => Token { id: claim.id, owner: claim.owner, fence: grant.fence },
        other => panic!("no grant: {other:?}"),
    }
}

pub(crate) fn done(token: Token) -> Complete {
    Complete { token, outcome: outcome("done"), retention: None }
}

/// A new record that was completed under `terms`.
pub(crate) async fn completed(store: &EmbeddedStore, terms: Terms) -> RecordId {
    let token = granted(store, &claim(any_id(), 1, terms)).await;
    store.complete(&done(token)).await.unwrap();
    token.id
}
