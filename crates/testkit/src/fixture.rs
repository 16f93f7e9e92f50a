//! What a store under test must offer to the suite, and the small vocabulary in which the clauses are written.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use onlyonce_core::fingerprint::{Fingerprint, Rules};
use onlyonce_core::record::Record;
use onlyonce_core::scope::RECORD_ID_VERSION;
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Claim, ClaimAnswer, Complete, CompleteAnswer, Release, ReleaseAnswer, Renew,
    RenewAnswer, Terms, Token, UnknownPolicy,
};
use onlyonce_core::{Encrypted, KeyId, Keyring, Lease, Outcome, Owner, RecordId, Retention, Secret, Store};

use crate::clock::ManualClock;

/// A store under test, and the means to move its clock and to hurt it.
pub trait Fixture: Send + Sync + 'static {
    /// The store as it is now: after a restart, the new one.
    fn store(&self) -> Arc<dyn Store>;

    /// Moves the clock that the store goes by.
    fn advance(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Kills what holds the store, without warning, and opens it again. `false` if there is nothing to open: such a
    /// store must not claim to survive its process.
    fn restart(&self) -> impl Future<Output = bool> + Send;

    /// Changes a stored byte of `id`. `false` if there are no stored bytes.
    fn damage(&self, id: &RecordId) -> impl Future<Output = bool> + Send;
}

/// A store in this process on a [`ManualClock`], with no bytes and no life after the process.
#[derive(Debug)]
pub struct Clocked {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
}

impl Clocked {
    /// `store` must go by `clock`.
    pub fn new(store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Self {
        Self { store, clock }
    }
}

impl Fixture for Clocked {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn restart(&self) -> bool {
        false
    }

    async fn damage(&self, _: &RecordId) -> bool {
        false
    }
}

/// A fixture whose store is behind encryption.
#[derive(Debug)]
pub struct Encrypting<F>(pub F);

impl<F: Fixture> Fixture for Encrypting<F> {
    fn store(&self) -> Arc<dyn Store> {
        let id = KeyId::new("suite").expect("a name");
        let keys = Keyring::new([(id, [3; 32])]).expect("a key");
        Arc::new(Encrypted::new(self.0.store(), keys))
    }

    fn advance(&self, by: Duration) -> impl Future<Output = ()> + Send {
        self.0.advance(by)
    }

    fn restart(&self) -> impl Future<Output = bool> + Send {
        self.0.restart()
    }

    fn damage(&self, id: &RecordId) -> impl Future<Output = bool> + Send {
        self.0.damage(id)
    }
}

/// Runs a test on a small runtime of its own.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be started").block_on(test)
}

/// How long the lease of a [`Scene`] is.
pub const LEASE: Duration = Duration::from_secs(10);
/// How long an attempt of a [`Scene`] may run.
pub const RUN_MAX: Duration = Duration::from_mins(1);
/// How long a [`Scene`]'s outcome is kept.
pub const RETENTION: Duration = Duration::from_secs(100);
/// How long a [`Scene`]'s unknown record is kept.
pub const UNKNOWN_RETENTION: Duration = Duration::from_secs(1000);
/// How long a [`Scene`] holds before it seals.
pub const HOLD_FOR: Duration = Duration::from_secs(500);
/// The smallest step of a store's clock.
pub const TICK: Duration = Duration::from_millis(1);

/// One record of a store under test, and short words for what is done to it.
pub struct Scene<'f, F> {
    /// The store and its clock.
    pub fixture: &'f F,
    /// The record.
    pub id: RecordId,
    owners: AtomicU8,
}

impl<'f, F: Fixture> Scene<'f, F> {
    /// A record that no other test uses.
    pub fn new(fixture: &'f F) -> Self {
        Self { fixture, id: any_id(), owners: AtomicU8::new(0) }
    }

    /// The store.
    pub fn store(&self) -> Arc<dyn Store> {
        self.fixture.store()
    }

    /// A new owner.
    pub fn owner(&self) -> Owner {
        Owner::from_bytes([self.owners.fetch_add(1, Ordering::Relaxed) + 1; 16])
    }

    /// A claim by `owner` under `policy`.
    pub fn claim_of(&self, owner: Owner, policy: UnknownPolicy) -> Claim {
        Claim { id: self.id, fingerprint: fingerprint(b"body"), owner, terms: Arc::new(terms(policy)) }
    }

    /// Claims as a new owner, under `hold`.
    pub async fn claim(&self) -> ClaimAnswer {
        self.claim_under(UnknownPolicy::Hold).await
    }

    /// Claims as a new owner, under `policy`.
    pub async fn claim_under(&self, policy: UnknownPolicy) -> ClaimAnswer {
        self.send(&self.claim_of(self.owner(), policy)).await
    }

    /// Sends a claim.
    pub async fn send(&self, claim: &Claim) -> ClaimAnswer {
        self.store().claim(claim).await.expect("claiming")
    }

    /// Claims as a new owner and expects the grant.
    pub async fn granted(&self) -> Token {
        self.granted_under(UnknownPolicy::Hold).await
    }

    /// Claims as a new owner under `policy` and expects the grant.
    pub async fn granted_under(&self, policy: UnknownPolicy) -> Token {
        let claim = self.claim_of(self.owner(), policy);
        match self.send(&claim).await {
            ClaimAnswer::Granted(grant) => Token { id: self.id, owner: claim.owner, fence: grant.fence },
            other => panic!("expected a grant, got {other:?}"),
        }
    }

    /// Claims, completes with `body`, and gives the token.
    pub async fn completed(&self, body: &'static str) -> Token {
        let token = self.granted().await;
        assert_eq!(self.complete(token, body).await, CompleteAnswer::Completed);
        token
    }

    /// Completes with `body`.
    pub async fn complete(&self, token: Token, body: &'static str) -> CompleteAnswer {
        let complete = Complete { token, outcome: outcome(body), retention: None };
        self.store().complete(&complete).await.expect("completing")
    }

    /// Renews by the usual lease.
    pub async fn renew(&self, token: Token) -> RenewAnswer {
        let renew = Renew { token, lease: Lease::new(LEASE).unwrap() };
        self.store().renew(&renew).await.expect("renewing")
    }

    /// Releases, keeping the fingerprint.
    pub async fn release(&self, token: Token) -> ReleaseAnswer {
        let release = Release { token, keep_fingerprint: true };
        self.store().release(&release).await.expect("releasing")
    }

    /// Abandons.
    pub async fn abandon(&self, token: Token) -> AbandonAnswer {
        self.store().abandon(&Abandon { token }).await.expect("abandoning")
    }

    /// Reads the record as operators see it.
    pub async fn lookup(&self) -> Option<Record> {
        self.store().lookup(&self.id).await.expect("looking up")
    }

    /// Moves the store's clock.
    pub async fn advance(&self, by: Duration) {
        self.fixture.advance(by).await;
    }

    /// Claims and expects the replay of `body`.
    pub async fn expect_replay(&self, body: &'static str) {
        match self.claim().await {
            ClaimAnswer::Replay(replay) => assert_eq!(replay.outcome, outcome(body)),
            other => panic!("expected a replay of {body:?}, got {other:?}"),
        }
    }
}

/// The terms of every claim in the suite, under `policy`.
pub fn terms(policy: UnknownPolicy) -> Terms {
    Terms {
        lease: Lease::new(LEASE).unwrap(),
        run_max: RUN_MAX,
        retention: Retention::new(RETENTION).unwrap(),
        unknown_retention: Retention::new(UNKNOWN_RETENTION).unwrap(),
        unknown: policy,
        attempts_max: 2,
        hold_for: HOLD_FOR,
        sealed: outcome("sealed"),
        remote: false,
    }
}

/// An outcome with `body`.
pub fn outcome(body: &'static str) -> Outcome {
    Outcome::kept(7, body).with_head("head").unwrap()
}

/// The fingerprint of a request with `body`, under the standard rules.
pub fn fingerprint(body: &[u8]) -> Fingerprint {
    Fingerprint::builder(&Secret::new([1; 32]), Rules::standard()).field("body", body).finish()
}

/// An id that nobody else uses, as the derivation would make it.
pub fn any_id() -> RecordId {
    let mut bytes = [RECORD_ID_VERSION; 32];
    bytes[1..17].copy_from_slice(Owner::random().unwrap().as_bytes());
    bytes[16..].copy_from_slice(Owner::random().unwrap().as_bytes());
    RecordId::from_bytes(bytes)
}
