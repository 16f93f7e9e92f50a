//! Large bodies lie in a partition for the day on which they expire, and go with it.

use std::time::Duration;

use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::{ClaimAnswer, Complete, Erase, Token};
use onlyonce_core::{Retention, Store as _};
use onlyonce_store_postgres::PostgresStore;
use tokio_postgres::Client;

use crate::stage::{
    LARGE, PARTITIONS, block_on, claim_of, client, count, granted, large, open_on_clock, server,
};

const DAY: Duration = Duration::from_hours(24);
const BODIES: &str = "SELECT count(*) FROM onlyonce.bodies";

fn large_for(token: Token, days: u32) -> Complete {
    Complete { retention: Some(Retention::new(DAY * days).expect("a retention")), ..large(token) }
}

/// Completes `key` and waits until the day of its body, which may have to stay in its row, is there for the next ones.
async fn open_day(store: &PostgresStore, admin: &Client, key: u64, days: u32) {
    let before = count(admin, PARTITIONS).await;
    let token = granted(store, &claim_of(key)).await;
    store.complete(&large_for(token, days)).await.expect("completed");
    let in_row = "SELECT count(*) FROM onlyonce.records WHERE id = $1 AND body_day IS NULL";
    let row = admin.query_one(in_row, &[&token.id.as_bytes().as_slice()]).await.expect("an answer");
    while row.get::<_, i64>(0) == 1 && count(admin, PARTITIONS).await == before {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_day_that_is_over_is_dropped_whole() {
    let server = server(&[]);
    block_on(async {
        let (store, clock) = open_on_clock(&server).await;
        let admin = client(&server).await;
        let complete = async |key: u64, days: u32| {
            let token = granted(&store, &claim_of(key)).await;
            store.complete(&large_for(token, days)).await.expect("completed");
            token
        };
        assert_eq!(count(&admin, PARTITIONS).await, 0, "made when they are needed");
        open_day(&store, &admin, 100, 1).await;
        open_day(&store, &admin, 101, 3).await;
        for key in 0..5 {
            complete(key, 1).await;
        }
        for key in 5..10 {
            complete(key, 3).await;
        }
        assert_eq!((count(&admin, PARTITIONS).await, count(&admin, BODIES).await), (2, 10));
        let erased = complete(10, 3).await;
        store.erase(&Erase { id: erased.id }).await.expect("erased");
        assert_eq!(count(&admin, BODIES).await, 10, "an erased body goes at once");

        clock.advance(DAY * 2);
        for key in [5, 101] {
            let answer = store.claim(&claim_of(key)).await;
            assert!(matches!(answer, Ok(ClaimAnswer::Replay(replay)) if replay.outcome.len() == LARGE));
        }
        while store.sweep(SweepBudget::DEFAULT).await.expect("swept").more {}
        assert_eq!((count(&admin, PARTITIONS).await, count(&admin, BODIES).await), (1, 5));
        assert!(matches!(store.claim(&claim_of(6)).await, Ok(ClaimAnswer::Replay(_))));
        assert!(matches!(store.claim(&claim_of(0)).await, Ok(ClaimAnswer::Granted(_))));

        // A body that is gone before its record is damage, never absence.
        admin
            .execute("DELETE FROM onlyonce.bodies WHERE id = $1", &[&claim_of(7).id.as_bytes().as_slice()])
            .await
            .expect("deleted");
        assert!(store.claim(&claim_of(7)).await.is_err());
        clock.advance(DAY * 3);
        while store.sweep(SweepBudget::DEFAULT).await.expect("swept").more {}
        assert_eq!((count(&admin, PARTITIONS).await, count(&admin, BODIES).await), (0, 0));
    });
}

#[test]
fn long_retentions_share_partitions() {
    let server = server(&[]);
    block_on(async {
        let (store, clock) = open_on_clock(&server).await;
        let admin = client(&server).await;
        for (key, days) in (0..).zip((61..400).step_by(10)) {
            open_day(&store, &admin, key, days).await;
            let token = granted(&store, &claim_of(1000 + key)).await;
            store.complete(&large_for(token, days)).await.expect("completed");
        }
        let partitions = count(&admin, PARTITIONS).await;
        assert!(partitions <= 13, "{partitions} partitions for a year");
        assert!(count(&admin, BODIES).await >= 34);
        // None goes before its time.
        clock.advance(DAY * 380 + Duration::from_hours(23));
        while store.sweep(SweepBudget::DEFAULT).await.expect("swept").more {}
        for key in [32, 1032] {
            let answer = store.claim(&claim_of(key)).await.expect("an answer");
            assert!(matches!(answer, ClaimAnswer::Replay(_)), "{answer:?}");
        }
        clock.advance(DAY * 60);
        while store.sweep(SweepBudget::DEFAULT).await.expect("swept").more {}
        assert_eq!(count(&admin, PARTITIONS).await, 0);
    });
}

#[test]
fn many_processes_make_one_partition() {
    let server = server(&[]);
    block_on(async {
        let admin = client(&server).await;
        for days in 1..6 {
            let mut tasks = tokio::task::JoinSet::new();
            for worker in 0..6 {
                let store = crate::stage::open(&server.url()).await;
                tasks.spawn(async move {
                    let token = granted(&store, &claim_of(u64::from(days) * 100 + worker)).await;
                    store.complete(&large_for(token, days)).await.expect("completed");
                    store
                });
            }
            let stores = tasks.join_all().await;
            while count(&admin, PARTITIONS).await < i64::from(days) {
                tokio::task::yield_now().await;
            }
            for worker in 0..6 {
                let answer = stores[0].claim(&claim_of(u64::from(days) * 100 + worker)).await;
                assert!(matches!(answer, Ok(ClaimAnswer::Replay(replay)) if replay.outcome.len() == LARGE));
            }
        }
    });
}

#[test]
fn a_body_that_was_left_behind_is_no_obstacle() {
    let server = server(&[]);
    block_on(async {
        let (store, _clock) = open_on_clock(&server).await;
        let admin = client(&server).await;
        open_day(&store, &admin, 1, 3).await;
        let token = granted(&store, &claim_of(2)).await;
        store.complete(&large_for(token, 3)).await.expect("completed");
        let record = store.lookup(&token.id).await.expect("readable").expect("a record");
        // As when its record was swept and the day is not over yet.
        admin.batch_execute("DELETE FROM onlyonce.records").await.expect("deleted");
        assert_eq!(count(&admin, BODIES).await, 1);
        assert_eq!(store.import(&[(token.id, record)]).await.expect("taken in").taken, 1);
        let answer = store.claim(&claim_of(2)).await;
        assert!(matches!(answer, Ok(ClaimAnswer::Replay(replay)) if replay.outcome.len() == LARGE));
    });
}
