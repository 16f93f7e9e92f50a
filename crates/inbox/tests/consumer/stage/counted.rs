//! A store that counts round trips.

use std::fmt;
use std::sync::{Arc, Mutex};

use onlyonce_core::Store;
use onlyonce_core::store::{Batch, StoreFuture};
use onlyonce_core::transition::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Release, ReleaseAnswer, Renew, RenewAnswer,
};
use tokio::sync::Notify;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trips {
    pub(crate) claims: usize,
    pub(crate) single_claims: usize,
    pub(crate) completes: usize,
    pub(crate) single_completes: usize,
    pub(crate) renews: usize,
    pub(crate) single_renews: usize,
    claimed: usize,
    renewed: usize,
}

pub(crate) struct Counted {
    store: Arc<dyn Store>,
    trips: Mutex<Trips>,
    changed: Notify,
}

impl Counted {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, trips: Mutex::default(), changed: Notify::new() }
    }

    pub(crate) fn trips(&self) -> Trips {
        *self.trips.lock().unwrap()
    }

    /// Waits until so many were claimed.
    pub(crate) async fn claimed(&self, count: usize) {
        self.until(|trips| trips.claimed >= count).await;
    }

    /// Waits until so many were renewed.
    pub(crate) async fn renewed(&self, count: usize) {
        self.until(|trips| trips.renewed >= count).await;
    }

    async fn until(&self, is_so: impl Fn(&Trips) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if is_so(&self.trips()) {
                return;
            }
            changed.await;
        }
    }

    fn then<'a, T: 'a>(
        &'a self,
        answering: StoreFuture<'a, T>,
        count: impl FnOnce(&mut Trips) + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let answer = answering.await;
            count(&mut self.trips.lock().unwrap());
            self.changed.notify_waiters();
            answer
        })
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counted({:?})", self.store)
    }
}

impl Store for Counted {
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, ClaimAnswer> {
        self.then(self.store.claim(claim), |trips| trips.single_claims += 1)
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> StoreFuture<'a, RenewAnswer> {
        self.then(self.store.renew(renew), |trips| trips.single_renews += 1)
    }

    fn complete<'a>(&'a self, complete: &'a Complete) -> StoreFuture<'a, CompleteAnswer> {
        self.then(self.store.complete(complete), |trips| trips.single_completes += 1)
    }

    fn claim_many<'a>(&'a self, claims: &'a [Claim]) -> StoreFuture<'a, Batch<ClaimAnswer>> {
        self.then(self.store.claim_many(claims), |trips| {
            trips.claims += 1;
            trips.claimed += claims.len();
        })
    }

    fn renew_many<'a>(&'a self, renews: &'a [Renew]) -> StoreFuture<'a, Batch<RenewAnswer>> {
        self.then(self.store.renew_many(renews), |trips| {
            trips.renews += 1;
            trips.renewed += renews.len();
        })
    }

    fn complete_many<'a>(&'a self, completes: &'a [Complete]) -> StoreFuture<'a, Batch<CompleteAnswer>> {
        self.then(self.store.complete_many(completes), |trips| trips.completes += 1)
    }

    onlyonce_inbox::__pass_on_to_store! {
        release(Release) -> ReleaseAnswer;
        release_many([Release]) -> Batch<ReleaseAnswer>;
    }
    onlyonce_inbox::__pass_on_the_rest_to_store! {}
}
