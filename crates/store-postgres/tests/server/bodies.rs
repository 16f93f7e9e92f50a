//! Large bodies lie in a partition for the day on which they expire, and go with it.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::{ClaimAnswer, Complete, Erase};
use onlyonce_core::{Outcome, Retention, Store as _};
use onlyonce_store_postgres::PostgresStore;
use onlyonce_testkit::ManualClock;

use crate::stage::{block_on, claim_of, client, granted, options, server};

const DAY: Duration = Duration::from_hours(24);

#[test]
fn a_day_that_is_over_is_dropped_whole() {
    let server = server(&[]);
    block_on(async {
        let clock = Arc::new(ManualClock::default());
        let store =
            PostgresStore::open_on(options(&server.url()), clock.clone()).await.expect("the store opens");
        let body = vec![7; 20_000];
        let complete = async |key: u64, days: u32| {
            let token = granted(&store, &claim_of(key)).await;
            let retention = Some(Retention::new(DAY * days).expect("a retention"));
            let outcome = Outcome::kept(1, body.clone());
            store.complete(&Complete { token, outcome, retention }).await.expect("completed");
            token
        };
        let admin = client(&server).await;
        let partitions = async || -> i64 {
            let count = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'onlyonce.bodies'::regclass";
            admin.query_one(count, &[]).await.expect("an answer").get(0)
        };
        let rows = async || -> i64 {
            admin.query_one("SELECT count(*) FROM onlyonce.bodies", &[]).await.expect("an answer").get(0)
        };
        assert_eq!(partitions().await, 0, "made when they are needed");
        for key in 0..5 {
            complete(key, 1).await;
        }
        for key in 5..10 {
            complete(key, 3).await;
        }
        assert_eq!((partitions().await, rows().await), (2, 10));
        let erased = complete(10, 3).await;
        store.erase(&Erase { id: erased.id }).await.expect("erased");
        assert_eq!(rows().await, 10, "an erased body goes at once");

        clock.advance(DAY * 2);
        assert!(
            matches!(store.claim(&claim_of(5)).await, Ok(ClaimAnswer::Replay(replay)) if replay.outcome.len() == 20_000)
        );
        while store.sweep(SweepBudget::DEFAULT).await.expect("swept").more {}
        assert_eq!((partitions().await, rows().await), (1, 5));
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
        assert_eq!((partitions().await, rows().await), (0, 0));
    });
}

#[test]
fn long_retentions_share_partitions() {
    let server = server(&[]);
    block_on(async {
        let clock = Arc::new(ManualClock::default());
        let store =
            PostgresStore::open_on(options(&server.url()), clock.clone()).await.expect("the store opens");
        for (key, days) in (0..).zip((61..400).step_by(10)) {
            let token = granted(&store, &claim_of(key)).await;
            let retention = Some(Retention::new(DAY * days).expect("a retention"));
            let outcome = Outcome::kept(1, vec![7; 5000]);
            store.complete(&Complete { token, outcome, retention }).await.expect("completed");
        }
        let admin = client(&server).await;
        let count = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'onlyonce.bodies'::regclass";
        let partitions: i64 = admin.query_one(count, &[]).await.expect("an answer").get(0);
        assert!(partitions <= 13, "{partitions} partitions for a year");
        // None goes before its time.
        clock.advance(DAY * 380 + Duration::from_hours(23));
        while store.sweep(SweepBudget::DEFAULT).await.expect("swept").more {}
        let answer = store.claim(&claim_of(32)).await.expect("an answer");
        assert!(matches!(answer, ClaimAnswer::Replay(_)), "{answer:?}");
        clock.advance(DAY * 60);
        while store.sweep(SweepBudget::DEFAULT).await.expect("swept").more {}
        let partitions: i64 = admin.query_one(count, &[]).await.expect("an answer").get(0);
        assert_eq!(partitions, 0);
    });
}

#[test]
fn many_processes_make_one_partition() {
    let server = server(&[]);
    block_on(async {
        for days in 1..6 {
            let mut tasks = tokio::task::JoinSet::new();
            for worker in 0..6 {
                let store = crate::stage::open(&server.url()).await;
                tasks.spawn(async move {
                    let token = granted(&store, &claim_of(u64::from(days) * 100 + worker)).await;
                    let retention = Some(Retention::new(DAY * days).expect("a retention"));
                    let outcome = Outcome::kept(1, vec![7; 5000]);
                    store.complete(&Complete { token, outcome, retention }).await.expect("completed")
                });
            }
            tasks.join_all().await;
        }
    });
}
