//! How many fresh keys a second a server takes: every caller claims a new key, completes it, and goes on.
//!
//! `cargo run --release --example fresh-keys -- postgres://… [callers] [seconds]`, on a migrated schema.

#![expect(clippy::panic, reason = "a store that answers wrongly is not measured")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onlyonce_core::fingerprint::{Fingerprint, Rules};
use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, CompleteAnswer, Terms, Token};
use onlyonce_core::{Outcome, Owner, RecordId, Secret, Store};
use onlyonce_store_postgres::{Options, PostgresStore, migrate};

/// A usual answer: a status line's worth of head, and a small JSON body.
const BODY: [u8; 226] = [b'x'; 226];

#[tokio::main]
#[expect(clippy::print_stdout, reason = "what it measures is what it prints")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("which server? give its URL")?;
    let callers = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let seconds = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let options = Options::from_url(&url)?;
    migrate(&options).await?;
    let store = Arc::new(PostgresStore::open(options).await?);
    let done = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let until = begun + Duration::from_secs(seconds);
    let tasks: Vec<_> = (0..callers)
        .map(|_: usize| tokio::spawn(call(Arc::clone(&store), Arc::clone(&done), until)))
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await?);
    }
    latencies.sort_unstable();
    let keys = done.load(Ordering::Relaxed);
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = keys as f64 / begun.elapsed().as_secs_f64();
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    println!("{callers} callers, {keys} fresh keys, {rate:.0} a second, p50 {:?}, p99 {:?}", at(50), at(99));
    Ok(())
}

/// Claims and completes new keys; how long each took.
async fn call(store: Arc<PostgresStore>, done: Arc<AtomicU64>, until: Instant) -> Vec<Duration> {
    let terms = Arc::new(Terms::default());
    let fingerprint = Fingerprint::builder(&Secret::new([1; 32]), Rules::standard()).finish();
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let begun = Instant::now();
        let owner = Owner::random().expect("random bytes");
        let mut id = [1; 32];
        id[1..17].copy_from_slice(owner.as_bytes());
        let id = RecordId::from_bytes(id);
        let claim = Claim { id, fingerprint: fingerprint.clone(), owner, terms: Arc::clone(&terms) };
        let Ok(ClaimAnswer::Granted(grant)) = store.claim(&claim).await else { panic!("no grant") };
        let token = Token { id, owner, fence: grant.fence };
        let outcome = Outcome::kept(1, BODY.as_slice()).with_head("201").expect("a short head");
        let complete = Complete { token, outcome, retention: None };
        let completed = store.complete(&complete).await;
        assert!(matches!(completed, Ok(CompleteAnswer::Completed)), "{completed:?}");
        done.fetch_add(1, Ordering::Relaxed);
        latencies.push(begun.elapsed());
    }
    latencies
}
