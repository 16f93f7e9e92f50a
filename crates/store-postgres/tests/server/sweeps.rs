//! A pass of the sweep goes on where the call before it ended, and still leaves nothing behind.

use std::time::Duration;

use onlyonce_core::record::State;
use onlyonce_core::store::{SweepBudget, Swept};
use onlyonce_core::transition::{Complete, Token};
use onlyonce_core::{Retention, Store as _, Timestamp};
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
fn what_was_held_or_came_late_is_swept_by_the_same_pass() {
    let server = server(&[]);
    block_on(async {
        let (store, clock) = open_on_clock(&server).await;
        let (admin, mut stranger) = (client(&server).await, client(&server).await);
        let first = complete_for(&store, 0, 10).await;
        for key in 1..7 {
            complete_for(&store, key, 10 + u32::try_from(key).expect("small")).await;
        }
        complete_for(&store, 100, 1000).await;
        clock.advance(SECOND * 60);
        let transaction = stranger.transaction().await.expect("a transaction");
        take(&transaction, first).await;
        // The one that comes first is held: it is passed over, and the next call goes on behind the others.
        let swept = sweep_two(&store).await;
        assert_eq!((swept.removed, swept.more), (2, true));
        transaction.rollback().await.expect("a rollback");
        // Expires before all that are left.
        let mut late = store.lookup(&claim_of(100).id).await.expect("readable").expect("a record");
        if let State::Completed(completed) = &mut late.state {
            completed.expires_at = Timestamp::from_millis(1);
        }
        store.import(&[(claim_of(200).id, late)]).await.expect("taken in");
        let swept = sweep_two(&store).await;
        assert_eq!((swept.removed, swept.more), (2, true));
        assert_eq!(
            count(&admin, RECORDS).await,
            5,
            "two that expired last, the two behind, and the one that lives"
        );
        let mut removed = 0;
        let mut calls = 0;
        loop {
            let swept = sweep_two(&store).await;
            removed += swept.removed;
            calls += 1;
            if !swept.more {
                break;
            }
        }
        assert_eq!((removed, count(&admin, RECORDS).await), (4, 1), "after {calls} calls");
        assert!(calls <= 5, "{calls} calls");
        assert!(!sweep_two(&store).await.more, "nothing is left to do");
    });
}
