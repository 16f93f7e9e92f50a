//! A store under test, on a runtime of its own: its connections live on while a test blocks its thread.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, CompleteAnswer, Terms, Token};
use onlyonce_core::{Clock, Lease, Owner, RecordId, Store, StoreError, StoreErrorKind};
use onlyonce_store_redis::{Options, RedisStore};
use onlyonce_testkit::fixture::{any_id, fingerprint, outcome};
use onlyonce_testkit::servers::{RedisOptions, RedisServer};
use onlyonce_testkit::{Fixture, ManualClock, suite};
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

/// What a store under test is on.
pub(crate) trait Servers: Send + Sync + 'static {
    fn url(&self) -> String;

    /// Kills every server and starts it again.
    fn restart(&self);

    /// Removes everything they hold.
    fn flush(&self);
}

impl Servers for RedisServer {
    fn url(&self) -> String {
        self.url()
    }

    fn restart(&self) {
        self.restart().expect("the server starts again");
    }

    fn flush(&self) {
        self.flush();
    }
}

impl<S: Servers> Servers for Arc<S> {
    fn url(&self) -> String {
        S::url(self)
    }

    fn restart(&self) {
        S::restart(self);
    }

    fn flush(&self) {
        S::flush(self);
    }
}

/// Runs every clause of the suite but `left_out`, each on a new store on the same servers; gives their number.
pub(crate) async fn hold_the_suite<S: Servers>(
    servers: &Arc<S>,
    damage: Option<Damage>,
    left_out: &[&str],
) -> usize {
    hold_the_suite_as(servers, damage, left_out, |store| store).await
}

/// The same with the store seen through another fixture.
pub(crate) async fn hold_the_suite_as<S: Servers, F: Fixture>(
    servers: &Arc<S>,
    damage: Option<Damage>,
    left_out: &[&str],
    seen: impl Fn(Moved<Arc<S>>) -> F,
) -> usize {
    let mut held = 0;
    for (name, clause) in suite::clauses::<F>() {
        if !left_out.contains(&name) {
            println!("{name}");
            let store = Moved::on(Arc::clone(servers), ManualClock::default(), damage).await;
            clause(&seen(store)).await;
            servers.flush();
            held += 1;
        }
    }
    held
}

/// A store on a clock that the suite moves.
pub(crate) struct Moved<S> {
    // ORDER: the store goes before the runtime of its connections, and both before the servers.
    store: Mutex<Option<Arc<RedisStore>>>,
    home: Home,
    clock: Arc<ManualClock>,
    damage: Option<Damage>,
    pub(crate) server: S,
}

/// On one server.
pub(crate) type Alone = Moved<RedisServer>;

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
        Self::on(server, clock, Some(damage)).await
    }
}

impl<S: Servers> Moved<S> {
    /// A store on `server`; its records can be damaged only where it is said how.
    pub(crate) async fn on(server: S, clock: ManualClock, damage: Option<Damage>) -> Self {
        let clock = Arc::new(clock);
        let moved = Self { store: Mutex::new(None), home: Home::new(), clock, damage, server };
        moved.open().await;
        moved
    }

    async fn open(&self) {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let store =
            self.home.connect_on(&self.server.url(), patient(), clock).await.expect("the store opens");
        *self.store.lock().expect("no test panicked") = Some(store);
    }
}

impl<S: Servers> Fixture for Moved<S> {
    fn store(&self) -> Arc<dyn Store> {
        self.store.lock().expect("no test panicked").clone().expect("the store is open")
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn restart(&self) -> bool {
        drop(self.store.lock().expect("no test panicked").take());
        self.server.restart();
        self.open().await;
        true
    }

    async fn damage(&self, id: &RecordId) -> bool {
        let Some(damage) = self.damage else { return false };
        let key = key_of(id);
        let mut connection = raw(&self.server.url());
        let mut bytes: Vec<u8> = connection.get(&key).expect("a record");
        let at = match damage {
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
    // ORDER: as in `Moved`.
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

/// A new grant is refused in a way that says to come back, and that nothing was done.
pub(crate) async fn assert_quarantined(store: &RedisStore) {
    let claim = fresh_claim();
    let error = store.claim(&claim).await.expect_err("a grant in quarantine");
    assert!(is_quarantine(&error), "{error:?}");
    assert_eq!(store.lookup(&claim.id).await.expect("a lookup"), None, "it was granted all the same");
}

/// Whether this is how a claim is refused in quarantine, and not otherwise.
pub(crate) fn is_quarantine(error: &StoreError) -> bool {
    let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    error.kind() == StoreErrorKind::Unavailable
        && error.is_retryable()
        && !error.outcome_unknown()
        && why.contains("new grants wait")
}

/// What every command that the server runs from here on looks like, and on whose behalf.
pub(crate) struct Monitor(BufReader<TcpStream>);

impl Monitor {
    pub(crate) fn new(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        stream.write_all(b"MONITOR\r\n").expect("a command");
        let mut monitor = Self(BufReader::new(stream));
        assert_eq!(monitor.line(), "+OK");
        monitor
    }

    /// Who sent what since this began, without looks and what scripts did: address and name of each command.
    pub(crate) fn heard(mut self, server: &RedisServer) -> Vec<(String, String)> {
        server.ask(&["ECHO", "that-was-all"]).expect("ECHO");
        let mut heard = Vec::new();
        loop {
            let line = self.line();
            if line.contains("that-was-all") {
                return heard;
            }
            let client = line.split(['[', ']']).nth(1).unwrap_or_default().to_owned();
            let name = line.split('"').nth(1).unwrap_or_default().to_owned();
            if !client.ends_with("lua") && !line.contains("onlyonce:epoch") {
                heard.push((client, name));
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).expect("the server tells");
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }
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
