//! The server is killed under load: everything that was answered is there when it is back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use onlyonce_core::store::Listing;
use onlyonce_core::transition::{Claim, ClaimAnswer, CompleteAnswer, Token};
use onlyonce_core::{Fence, Store, StoreError};
use onlyonce_store_postgres::PostgresStore;
use onlyonce_testkit::Soak;
use onlyonce_testkit::servers::PostgresEnd;
use rand::Rng as _;
use tokio::sync::Notify;

use crate::stage::{block_on, claim_of, complete_of, id_of, open, outcome_of, server};

/// How many callers there are.
const CALLERS: u64 = 16;

/// What callers were answered, and what they do not know.
#[derive(Default)]
struct Said {
    granted: HashMap<u64, Fence>,
    completed: Vec<u64>,
}

struct Load {
    store: Arc<PostgresStore>,
    said: Mutex<Said>,
    answers: AtomicU64,
    answered: Notify,
    stopped: AtomicBool,
    next: AtomicU64,
}

impl Load {
    /// Claims and completes new keys until the load is stopped. Errors are the server's end: the next key is tried.
    async fn call(&self) {
        while !self.stopped.load(Ordering::Relaxed) {
            let key = self.next.fetch_add(1, Ordering::Relaxed);
            let claim = claim_of(key);
            let fence = match self.store.claim(&claim).await {
                Ok(ClaimAnswer::Granted(grant)) => grant.fence,
                Ok(other) => panic!("a new key was answered {other:?}"),
                Err(_) => {
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            self.said.lock().expect("no panic").granted.insert(key, fence);
            self.note();
            let token = Token { id: claim.id, owner: claim.owner, fence };
            match self.store.complete(&complete_of(key, token)).await {
                Ok(CompleteAnswer::Completed) => self.said.lock().expect("no panic").completed.push(key),
                Ok(other) => panic!("a new grant was answered {other:?}"),
                Err(_) => continue,
            }
            self.note();
        }
    }

    fn note(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.answered.notify_one();
    }

    async fn answers(&self, count: u64) {
        while self.answers.load(Ordering::Relaxed) < count {
            self.answered.notified().await;
        }
    }
}

#[test]
fn soak_a_killed_server_loses_nothing_and_grants_nothing_twice() {
    let server = server(&[]);
    let mut soak = Soak::new("PostgreSQL killed under load", 10);
    let mut answers = 0;
    while let Some((seed, mut rng)) = soak.next_round() {
        let until = rng.random_range(1..600);
        let how = if seed % 2 == 0 { PostgresEnd::Immediate } else { PostgresEnd::Killed };
        answers += block_on(async {
            let load = Arc::new(Load {
                store: open(&server.url()).await,
                said: Mutex::default(),
                answers: AtomicU64::new(0),
                answered: Notify::new(),
                stopped: AtomicBool::new(false),
                next: AtomicU64::new(seed << 32),
            });
            let call = |_| {
                tokio::spawn({
                    let load = Arc::clone(&load);
                    async move { load.call().await }
                })
            };
            let callers: Vec<_> = (0..CALLERS).map(call).collect();
            load.answers(until).await;
            let server = &server;
            tokio::task::block_in_place(|| server.end(how).expect("the server ends"));
            load.stopped.store(true, Ordering::Relaxed);
            for caller in callers {
                caller.await.expect("no panic");
            }
            tokio::task::block_in_place(|| server.restart().expect("the server starts again"));
            let said = std::mem::take(&mut *load.said.lock().expect("no panic"));
            // The same store goes on by itself, and so does a new one.
            verify(&load.store, &said).await;
            verify(&*open(&server.url()).await, &said).await;
            said.granted.len() + said.completed.len()
        }) as u64;
    }
    soak.report(answers, "answers, none lost, no key granted twice");
}

/// Everything that was said is so: completed keys replay, granted ones are not granted again.
async fn verify(store: &PostgresStore, said: &Said) {
    for key in &said.completed {
        match claim(store, &claim_of(*key)).await {
            ClaimAnswer::Replay(replay) => assert_eq!(replay.outcome, outcome_of(*key)),
            other => panic!("key {key} was completed, and now: {other:?}"),
        }
    }
    for (key, fence) in &said.granted {
        let id = id_of(*key);
        let record = insisting(|| store.lookup(&id)).await.expect("a granted record is there");
        assert_eq!(record.fence, *fence, "key {key}");
        let answer = claim(store, &claim_of(*key)).await;
        assert!(!matches!(answer, ClaimAnswer::Granted(_)), "key {key} was granted a second time");
    }
    let listing = Listing::default();
    insisting(|| store.list(&listing)).await;
}

async fn claim(store: &PostgresStore, claim: &Claim) -> ClaimAnswer {
    insisting(|| store.claim(claim)).await
}

/// Asks until the store answers: a connection that broke with the server is replaced by the next call. What cannot be read is
/// an answer, and a wrong one.
async fn insisting<T, F>(ask: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    for _ in 0..20 {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
    }
    panic!("the store does not come back");
}
