//! A pass of the sweep goes on where the call before it ended, and still leaves nothing behind.

use std::time::Duration;

use onlyonce_core::store::{SweepBudget, Swept};
use onlyonce_core::transition::{Complete, Token};
use onlyonce_core::{Retention, Store as _};
use onlyonce_store_postgres::PostgresStore;

use crate::held::take;
use crate::stage::{block_on, claim_of, client, complete_of, count, granted, open_on_clock, server};

const RECORDS: &str = "SELECT count(*) FROM onlyonce.records";
const SECOND: Duration = Duration::from_secs(1);

async fn complete_for(store: &PostgresStore, key: u64, seconds: u32) -> Token {
    let token = granted(store, &claim_of(key)).await;
    let retention = Some(Retention::new(SECOND * seconds).expect("a retention"));
    store.complete(&Complete { retention, ..complete_of(key, token) }).await.expect("completed");
    token
}

async fn sweep_two(store: &PostgresStore) -> Swept {
    store.sweep(SweepBudget::new(2).expect("a budget")).await.expect("swept")
}

#[test]
fn what_was_held_is_swept_by_the_same_pass() {
    let server = server(&[]);
    block_on(async {
        let (store, clock) = open_on_clock(&server).await;
        let (admin, mut stranger) = (client(&server).await, client(&server).await);
        let held = [complete_for(&store, 0, 8).await, complete_for(&store, 1, 9).await];
        for (key, seconds) in (2..7).zip(10..) {
            complete_for(&store, key, seconds).await;
        }
        complete_for(&store, 100, 1000).await;
        clock.advance(SECOND * 60);
        let transaction = stranger.transaction().await.expect("a transaction");
        for token in held {
            take(&transaction, token).await;
        }
        // Those that come first are held: they are passed over, and the next call goes on behind the others.
        let swept = sweep_two(&store).await;
        assert_eq!((swept.removed, swept.more), (2, true));
        transaction.rollback().await.expect("a rollback");
        let swept = sweep_two(&store).await;
        assert_eq!((swept.removed, swept.more), (2, true));
        for token in held {
            let sql = "SELECT count(*) FROM onlyonce.records WHERE id = $1";
            let row = admin.query_one(sql, &[&token.id.as_bytes().as_slice()]).await.expect("an answer");
            assert_eq!(row.get::<_, i64>(0), 1, "a call began anew");
        }
        let (mut removed, mut calls, mut more) = (0, 0, true);
        while more {
            let swept = sweep_two(&store).await;
            (removed, calls, more) = (removed + swept.removed, calls + 1, swept.more);
        }
        assert_eq!((removed, count(&admin, RECORDS).await), (3, 1), "after {calls} calls");
        assert!(calls <= 5, "{calls} calls");
        assert!(!sweep_two(&store).await.more, "nothing is left to do");
    });
}
