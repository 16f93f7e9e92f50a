//! Three masters: the whole suite, slots that move under load, and a master that dies.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Store;
use onlyonce_core::transition::ClaimAnswer;
use onlyonce_store_redis::{Options, RedisStore};
use onlyonce_testkit::run;
use onlyonce_testkit::servers::{RedisCluster, RedisOptions, RedisServer};

use crate::stage::{
    Home, Servers, by_another, complete_one, fresh_claim, hold_the_suite, is_quarantine, patient, token_of,
    until,
};

impl Servers for RedisCluster {
    fn url(&self) -> String {
        self.url()
    }

    fn restart(&self) {
        for node in self.nodes() {
            node.restart().expect("the server starts again");
        }
        self.wait_until_well();
    }

    fn flush(&self) {
        for node in self.nodes() {
            node.flush();
        }
    }
}

#[test]
fn the_suite_holds_on_three_masters() {
    run(async {
        let cluster = Arc::new(RedisCluster::start(0).expect("three masters"));
        // The model restarts often, which takes a cluster a second; one server shows that as well.
        let models = ["model_soak", "model_random_commands_answer_as_transition_does"];
        let held = hold_the_suite(&cluster, None, &models).await;
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
        assert!(refused.iter().all(|error| is_quarantine(error)), "{refused:?}");
    });
}

/// The key under which a master's mark is kept, of which there is one.
fn mark_of(master: &RedisServer) -> Vec<String> {
    let keys = master.ask(&["KEYS", "onlyonce:epoch:*"]).expect("KEYS");
    keys.lines().map(ToOwned::to_owned).collect()
}

/// The store's own connections to a server, as the server numbers them.
fn connections_to(server: &RedisServer) -> Vec<String> {
    let clients = server.ask(&["CLIENT", "LIST"]).expect("CLIENT LIST");
    // The test's own client does nothing but ask for this list; those that answer other masters are no clients.
    let ours = clients.lines().filter(|line| !line.contains("cmd=client") && line.contains("flags=N"));
    ours.filter_map(|line| line.split(' ').next()).map(ToOwned::to_owned).collect()
}

/// Whether some new grants are refused, and those only because of a quarantine.
async fn is_partly_quarantined(store: &RedisStore) -> bool {
    let claims: Vec<_> = (0..60).map(|_| fresh_claim()).collect();
    let answers = store.claim_many(&claims).await.expect("a batch");
    let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert!(refused.iter().all(|error| is_quarantine(error)), "{refused:?}");
    !refused.is_empty()
}

#[test]
fn a_mark_whose_slot_moves_away_takes_neither_connections_nor_quarantine_along() {
    run(async {
        let cluster = RedisCluster::start(0).expect("three masters");
        let (home, source) = (Home::new(), &cluster.nodes()[0]);
        let options = Options { quarantine: Duration::from_mins(30), ..patient() };
        let store = home.connect(&cluster.url(), options.clone()).await.expect("the store opens");
        source.flush();
        until("the loss is noticed", async || store.incidents().emptied == 1).await;
        assert!(is_partly_quarantined(&store).await);
        let before = connections_to(source);
        assert!(!before.is_empty());
        let marks = mark_of(source);
        assert_eq!(marks.len(), 1, "{marks:?}");
        let slot = source.ask(&["CLUSTER", "KEYSLOT", &marks[0]]).expect("KEYSLOT");
        let slot = slot.parse().expect("a slot");

        cluster.begin_move(slot, 0, 1).expect("the mark moves");
        until("the mark has another place", async || mark_of(source).len() == 1).await;
        assert_ne!(mark_of(source), marks);
        assert!(is_partly_quarantined(&store).await, "while its slot moves");
        cluster.end_move(slot, 0, 1).expect("the slot moves");
        // It is found again by whoever comes new, and reads the slots as they are now.
        let other = home.connect(&cluster.url(), options).await.expect("another store");
        for store in [&store, &other] {
            assert!(is_partly_quarantined(store).await, "after its slot moved");
        }
        let after = connections_to(source);
        assert!(before.iter().all(|id| after.contains(id)), "{before:?} were replaced: {after:?}");
        assert_eq!(store.incidents().emptied, 1, "nothing else was lost");
    });
}

#[test]
fn fences_grow_from_one_master_to_the_next_whatever_their_clocks_say() {
    run(async {
        let options =
            |at: usize| RedisOptions { ahead_seconds: [600, 0, -600][at], ..RedisOptions::valkey() };
        let cluster = RedisCluster::start_on(0, options).expect("three masters");
        let home = Home::new();
        let store = home.connect(&cluster.url(), patient()).await.expect("the store opens");
        let time = |at: usize| {
            let said = cluster.nodes()[at].ask(&["TIME"]).expect("TIME");
            said.lines().next().and_then(|seconds| seconds.parse::<i64>().ok()).expect("seconds")
        };
        assert!(time(0) - time(2) > 1000, "their clocks agree");
        // Enough for each master to get some.
        let fences = async || {
            let claims: Vec<_> = (0..60).map(|_| fresh_claim()).collect();
            let answers = store.claim_many(&claims).await.expect("a batch");
            let granted = claims.iter().zip(answers);
            granted
                .map(|(claim, answer)| token_of(claim, &answer.expect("a grant")).fence)
                .collect::<Vec<_>>()
        };
        // The first look at one may come before the first look at the next; after that a key may change masters.
        let mut before = fences().await;
        until("those behind have caught up", async || {
            let after = fences().await;
            let has_grown = after.iter().min() > before.iter().max();
            before = after;
            has_grown
        })
        .await;
    });
}
