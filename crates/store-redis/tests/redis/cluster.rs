//! Three masters: the whole suite, slots that move under load, and a master that dies.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::transition::ClaimAnswer;
use onlyonce_core::{Clock, RecordId, Store};
use onlyonce_store_redis::{Options, RedisStore};
use onlyonce_testkit::servers::RedisCluster;
use onlyonce_testkit::{Fixture, ManualClock, run, suite};

use crate::stage::{Home, by_another, complete_one, fresh_claim, patient, until};

/// A store on a cluster, on a clock that the suite moves.
struct Spread {
    store: Mutex<Option<Arc<RedisStore>>>,
    home: Home,
    clock: Arc<ManualClock>,
    cluster: Arc<RedisCluster>,
}

impl Spread {
    async fn new(cluster: &Arc<RedisCluster>) -> Self {
        let (store, home, clock) = (Mutex::new(None), Home::new(), Arc::new(ManualClock::default()));
        let spread = Self { store, home, clock, cluster: Arc::clone(cluster) };
        spread.open().await;
        spread
    }

    async fn open(&self) {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let store =
            self.home.connect_on(&self.cluster.url(), patient(), clock).await.expect("the store opens");
        *self.store.lock().expect("no test panicked") = Some(store);
    }
}

impl Fixture for Spread {
    fn store(&self) -> Arc<dyn Store> {
        self.store.lock().expect("no test panicked").clone().expect("the store is open")
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn restart(&self) -> bool {
        drop(self.store.lock().expect("no test panicked").take());
        for node in self.cluster.nodes() {
            node.restart().expect("the server starts again");
        }
        self.cluster.wait_until_well();
        self.open().await;
        true
    }

    async fn damage(&self, _: &RecordId) -> bool {
        false
    }
}

#[test]
fn the_suite_holds_on_three_masters() {
    run(async {
        let cluster = Arc::new(RedisCluster::start(0).expect("three masters"));
        let mut held = 0;
        for (name, clause) in suite::clauses::<Spread>() {
            // The model restarts often, which takes a cluster a second; one server shows that as well.
            if name == "model_soak" || name.starts_with("model_random") {
                continue;
            }
            clause(&Spread::new(&cluster).await).await;
            for node in cluster.nodes() {
                node.flush();
            }
            held += 1;
        }
        println!("{held} clauses hold on three masters");
    });
}

#[test]
fn slots_that_move_under_load_lose_nothing() {
    run(async {
        let cluster = RedisCluster::start(0).expect("three masters");
        let home = Home::new();
        let store = home.connect(&cluster.url(), patient()).await.expect("the store opens");
        let working = Arc::clone(&store);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let worker = tokio::spawn(async move {
            let mut done = Vec::new();
            while !*stopped.borrow() {
                done.push(complete_one(&*working).await);
            }
            done
        });
        let moving = tokio::task::spawn_blocking(move || {
            cluster.move_slots(0, 1, 40).expect("slots move");
            cluster
        });
        let _cluster = moving.await.expect("no panic");
        stop.send(true).expect("the worker listens");
        let done = worker.await.expect("no command failed");
        assert!(!done.is_empty());
        let claims: Vec<_> = done.iter().map(by_another).collect();
        for some in claims.chunks(100) {
            for answer in store.claim_many(some).await.expect("a batch") {
                assert!(matches!(answer, Ok(ClaimAnswer::Replay(_))), "{answer:?}");
            }
        }
        println!("{} records completed while slots moved, none lost", done.len());
    });
}

#[test]
fn a_replica_that_takes_over_is_followed_counted_and_quarantined() {
    run(async {
        let cluster = RedisCluster::start(1).expect("three masters and three replicas");
        let home = Home::new();
        let options = Options { quarantine: Duration::from_mins(30), ..patient() };
        let store = home.connect(&cluster.url(), options).await.expect("the store opens");
        let mut done = Vec::new();
        for _ in 0..30 {
            done.push(complete_one(&*store).await);
        }
        cluster.wait_until_replicated();
        cluster.fail_over(0).expect("the replica takes over");
        // Whoever asks the dead master is sent to the new one as soon as it is known, and not when time is up.
        for claim in &done {
            let mut answer = None;
            until("the record is found", async || {
                answer = store.claim(&by_another(claim)).await.ok();
                answer.is_some()
            })
            .await;
            assert!(matches!(answer, Some(ClaimAnswer::Replay(_))), "{answer:?}");
        }
        until("the fail-over is noticed", async || store.incidents().failed_over == 1).await;
        // A third of the keys live on the server that took over; the others are granted as before.
        let claims: Vec<_> = (0..100).map(|_| fresh_claim()).collect();
        let answers = store.claim_many(&claims).await.expect("a batch");
        let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        assert!(!refused.is_empty() && refused.len() < claims.len(), "{} of 100 refused", refused.len());
        assert!(refused.iter().all(|error| error.is_retryable() && !error.outcome_unknown()), "{refused:?}");
    });
}
