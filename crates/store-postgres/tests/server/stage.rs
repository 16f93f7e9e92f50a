//! What these tests have in common: a server, stores on it, and short words for commands.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::fingerprint::{Fingerprint, Rules};
use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, Terms, Token, UnknownPolicy};
use onlyonce_core::{Lease, Outcome, Owner, RecordId, Secret, Store};
use onlyonce_store_postgres::{Options, PostgresStore, migrate};
use onlyonce_testkit::ManualClock;
use onlyonce_testkit::servers::PostgresServer;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

/// A private server with a migrated schema.
pub(crate) fn server(settings: &[&str]) -> PostgresServer {
    let server = PostgresServer::start(settings).expect("a private server");
    block_on(async { migrate(&options(&server.url())).await.expect("a migrated schema") });
    server
}

pub(crate) fn options(url: &str) -> Options {
    Options::from_url(url).expect("a good URL")
}

pub(crate) async fn open(url: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(options(url)).await.expect("the store opens"))
}

/// A store on a clock that the test moves.
pub(crate) async fn open_on_clock(server: &PostgresServer) -> (PostgresStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let store = PostgresStore::open_on(options(&server.url()), clock.clone()).await;
    (store.expect("the store opens"), clock)
}

/// Past the store, as an operator with `psql` would.
pub(crate) async fn client(server: &PostgresServer) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// The first number of the first row.
pub(crate) async fn count(client: &Client, what: &str) -> i64 {
    client.query_one(what, &[]).await.expect("an answer").get(0)
}

/// How many partitions for bodies there are.
pub(crate) const PARTITIONS: &str =
    "SELECT count(*) FROM pg_inherits WHERE inhparent = 'onlyonce.bodies'::regclass";

/// Until a call of `function` waits for what another transaction holds, or `asking` has ended without.
pub(crate) async fn until_held_up<T>(watcher: &Client, function: &str, asking: &JoinHandle<T>) {
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{function}(%'"
    );
    while count(watcher, &waits).await == 0 && !asking.is_finished() {
        tokio::task::yield_now().await;
    }
}

/// Runs a test on threads enough that tasks meet.
pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

pub(crate) fn id_of(key: u64) -> RecordId {
    let mut bytes = [1; 32];
    bytes[1..9].copy_from_slice(&key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes[9..17].copy_from_slice(&key.to_be_bytes());
    RecordId::from_bytes(bytes)
}

pub(crate) fn claim_of(key: u64) -> Claim {
    claim_under(key, Terms::default())
}

pub(crate) fn claim_under(key: u64, terms: Terms) -> Claim {
    let fingerprint = Fingerprint::builder(&Secret::new([1; 32]), Rules::standard()).finish();
    Claim {
        id: id_of(key),
        fingerprint,
        owner: Owner::random().expect("random bytes"),
        terms: Arc::new(terms),
    }
}

/// Terms under which a lapsed grant is run again.
pub(crate) fn rerun(lease: Duration) -> Terms {
    let lease = Lease::new(lease).expect("a lease");
    Terms { lease, unknown: UnknownPolicy::Rerun, attempts_max: 1_000_000, ..Terms::default() }
}

pub(crate) fn outcome_of(key: u64) -> Outcome {
    Outcome::kept(1, format!("the outcome of {key}"))
}

pub(crate) fn complete_of(key: u64, token: Token) -> Complete {
    Complete { token, outcome: outcome_of(key), retention: None }
}

/// How many bytes a body has that is far too large for its row.
pub(crate) const LARGE: usize = 20_000;

/// A completion with such a body.
pub(crate) fn large(token: Token) -> Complete {
    Complete { token, outcome: Outcome::kept(1, vec![7; LARGE]), retention: None }
}

/// Claims and expects the grant.
pub(crate) async fn granted(store: &PostgresStore, claim: &Claim) -> Token {
    match store.claim(claim).await {
        Ok(ClaimAnswer::Granted(grant)) => Token { id: claim.id, owner: claim.owner, fence: grant.fence },
        other => panic!("expected a grant, got {other:?}"),
    }
}
