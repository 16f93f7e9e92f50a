//! Rows that others hold in the wrong order: the call that the server undoes is sent again, and nobody hears of it.

use std::sync::Arc;

use onlyonce_core::Store as _;
use onlyonce_core::transition::{CompleteAnswer, Release};

use crate::stage::{block_on, claim_of, client, complete_of, granted, id_of, open, server};

#[test]
fn a_call_that_was_undone_for_a_deadlock_is_sent_again() {
    let server = server(&["deadlock_timeout=50ms"]);
    block_on(async {
        let store = open(&server.url()).await;
        let (low, high) = if id_of(1) < id_of(2) { (1, 2) } else { (2, 1) };
        let (low_token, high_token) =
            (granted(&store, &claim_of(low)).await, granted(&store, &claim_of(high)).await);
        // Someone else holds the higher row and then wants the lower one, which our batch took first.
        let mut other = client(&server).await;
        let transaction = other.transaction().await.expect("a transaction");
        let take = "SELECT 1 FROM onlyonce.records WHERE id = $1 FOR UPDATE";
        transaction.execute(take, &[&high_token.id.as_bytes().as_slice()]).await.expect("the row");
        // The server looks for the circle when someone has waited for long enough: it must be ours.
        transaction.batch_execute("SET LOCAL deadlock_timeout = '1min'").await.expect("a setting");
        let batch = [complete_of(low, low_token), complete_of(high, high_token)];
        let ours = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.complete_many(&batch).await }
        });
        let watcher = client(&server).await;
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%complete%'";
        while watcher.query_one(waits, &[]).await.expect("an answer").get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
        transaction
            .execute(take, &[&low_token.id.as_bytes().as_slice()])
            .await
            .expect("the row, once ours was undone");
        transaction.rollback().await.expect("a rollback");
        let answers = ours.await.expect("no panic").expect("answers");
        assert!(answers.iter().all(|answer| matches!(answer, Ok(CompleteAnswer::Completed))), "{answers:?}");
        let undone = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        let mut deadlocks = 0;
        while deadlocks == 0 {
            // The server counts a little later.
            deadlocks = watcher.query_one(undone, &[]).await.expect("an answer").get::<_, i64>(0);
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn batches_over_the_same_records_never_wait_in_a_circle() {
    // A circle would be noticed after ten minutes only, and so by this test's end.
    let server = server(&["deadlock_timeout=10min"]);
    block_on(async {
        let stores = [open(&server.url()).await, open(&server.url()).await];
        let mut tasks = tokio::task::JoinSet::new();
        for worker in 0..8u64 {
            let store = Arc::clone(&stores[usize::from(worker % 2 == 0)]);
            tasks.spawn(async move {
                for round in 0..20u64 {
                    let order = |at: u64| if worker % 2 == 0 { at } else { 15 - at };
                    let claims: Vec<_> = (0..16).map(|at| claim_of(round * 16 + order(at))).collect();
                    let answers = store.claim_many(&claims).await.expect("answers");
                    let tokens = claims.iter().zip(answers).filter_map(|(claim, answer)| match answer {
                        Ok(onlyonce_core::transition::ClaimAnswer::Granted(grant)) => {
                            Some(onlyonce_core::transition::Token {
                                id: claim.id,
                                owner: claim.owner,
                                fence: grant.fence,
                            })
                        }
                        _ => None,
                    });
                    let releases: Vec<_> =
                        tokens.map(|token| Release { token, keep_fingerprint: true }).collect();
                    for answer in store.release_many(&releases).await.expect("answers") {
                        answer.expect("a live owner releases");
                    }
                }
            });
        }
        tasks.join_all().await;
    });
}
