//! A store under test, on a runtime of its own: its connections live on while a test blocks its thread.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, CompleteAnswer, Terms, Token};
use onlyonce_core::{Clock, Lease, Owner, RecordId, Store, StoreError};
use onlyonce_store_redis::{Options, RedisStore};
use onlyonce_testkit::fixture::{any_id, fingerprint, outcome};
use onlyonce_testkit::servers::{RedisOptions, RedisServer};
use onlyonce_testkit::{Fixture, ManualClock};
use redis::{Client, Commands as _, Connection};
use tokio::runtime::{Builder, Runtime};

/// The runtime that connections live on.
pub(crate) struct Home(Option<Runtime>);

impl Home {
    pub(crate) fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self(Some(runtime.expect("a runtime")))
    }

    /// Runs a future at home and waits for it here.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.0.as_ref().expect("not dropped yet").spawn(work).await.expect("no panic")
    }

    pub(crate) async fn connect(&self, url: &str, options: Options) -> Result<Arc<RedisStore>, StoreError> {
        let url = url.to_owned();
        self.run(async move { RedisStore::connect(&url, options).await.map(Arc::new) }).await
    }

    pub(crate) async fn connect_on(
        &self,
        url: &str,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<RedisStore>, StoreError> {
        let url = url.to_owned();
        self.run(async move { RedisStore::connect_on(&url, options, clock).await.map(Arc::new) }).await
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A runtime may not be dropped by a task.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Which stored byte is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    Version,
    Head,
    Body,
}

/// A store on one server, on a clock that the suite moves.
pub(crate) struct Alone {
    // ORDER: the store goes before the runtime of its connections, and both before the server.
    store: Mutex<Option<Arc<RedisStore>>>,
    home: Home,
    clock: Arc<ManualClock>,
    damage: Damage,
    pub(crate) server: RedisServer,
}

/// Sweeps as often as it is asked, and waits longer than a busy machine stalls.
pub(crate) fn patient() -> Options {
    Options { sweep_every: Duration::ZERO, timeout: Duration::from_secs(30), ..Options::default() }
}

impl Alone {
    pub(crate) async fn new(damage: Damage) -> Self {
        Self::at(ManualClock::default(), damage).await
    }

    pub(crate) async fn at(clock: ManualClock, damage: Damage) -> Self {
        let server = RedisServer::start(RedisOptions::default()).expect("a server");
        let clock = Arc::new(clock);
        let alone = Self { store: Mutex::new(None), home: Home::new(), clock, damage, server };
        alone.open().await;
        alone
    }

    async fn open(&self) {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let store =
            self.home.connect_on(&self.server.url(), patient(), clock).await.expect("the store opens");
        *self.store.lock().expect("no test panicked") = Some(store);
    }
}

impl Fixture for Alone {
    fn store(&self) -> Arc<dyn Store> {
        self.store.lock().expect("no test panicked").clone().expect("the store is open")
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn restart(&self) -> bool {
        drop(self.store.lock().expect("no test panicked").take());
        self.server.restart().expect("the server starts again");
        self.open().await;
        true
    }

    async fn damage(&self, id: &RecordId) -> bool {
        let key = key_of(id);
        let mut connection = raw(&self.server.url());
        let mut bytes: Vec<u8> = connection.get(&key).expect("a record");
        let at = match self.damage {
            Damage::Version => 0,
            Damage::Head => 40,
            Damage::Body => bytes.len() - 6,
        };
        bytes[at] ^= 1;
        connection.set::<_, _, ()>(&key, bytes).expect("a changed record");
        true
    }
}

/// The key of a record under the usual prefix.
pub(crate) fn key_of(id: &RecordId) -> Vec<u8> {
    [b"onlyonce:r:", &id.as_bytes()[..]].concat()
}

/// A connection of the test's own.
pub(crate) fn raw(url: &str) -> Connection {
    Client::open(url).and_then(|client| client.get_connection()).expect("a connection")
}

/// A store on one server, on the server's own clock.
pub(crate) struct Live {
    // ORDER: as in `Alone`.
    pub(crate) store: Arc<RedisStore>,
    pub(crate) home: Home,
    pub(crate) server: RedisServer,
}

impl Live {
    pub(crate) async fn new(server: RedisOptions, options: Options) -> Self {
        let server = RedisServer::start(server).expect("a server");
        let home = Home::new();
        let store = home.connect(&server.url(), options).await.expect("the store opens");
        Self { store, home, server }
    }
}

/// A claim by a new owner, of a record that nobody else uses.
pub(crate) fn fresh_claim() -> Claim {
    claim_of(any_id(), Duration::from_secs(30))
}

/// A claim of `id` by a new owner.
pub(crate) fn claim_of(id: RecordId, lease: Duration) -> Claim {
    let terms = Terms { lease: Lease::new(lease).expect("a lease"), ..Terms::default() };
    let owner = Owner::random().expect("an owner");
    Claim { id, fingerprint: fingerprint(b"body"), owner, terms: Arc::new(terms) }
}

/// The token of a claim that was granted.
pub(crate) fn token_of(claim: &Claim, answer: &ClaimAnswer) -> Token {
    match answer {
        ClaimAnswer::Granted(grant) => Token { id: claim.id, owner: claim.owner, fence: grant.fence },
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// A completion with a body.
pub(crate) fn completion(token: Token) -> Complete {
    Complete { token, outcome: outcome("done"), retention: None }
}

/// Claims and completes a new record.
pub(crate) async fn complete_one(store: &dyn Store) -> Claim {
    let claim = fresh_claim();
    let token = token_of(&claim, &store.claim(&claim).await.expect("a claim"));
    assert_eq!(store.complete(&completion(token)).await.expect("a completion"), CompleteAnswer::Completed);
    claim
}

/// A second claim of the same record, by someone else.
pub(crate) fn by_another(claim: &Claim) -> Claim {
    Claim { owner: Owner::random().expect("an owner"), ..claim.clone() }
}

/// Waits until something is so, however slow the machine; a test that waits in vain fails by its name.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_mins(2), async {
        while !is_so().await {
            // tidy: sleep because the other side is a process that tells nobody
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain until {what}");
}
