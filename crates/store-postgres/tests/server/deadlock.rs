//! Rows that others hold in the wrong order: the call that the server undoes is sent again, and nobody hears of it.

use std::sync::Arc;

use onlyonce_core::Store as _;
use onlyonce_core::transition::{CompleteAnswer, Release};
use onlyonce_store_postgres::PostgresStore;
use onlyonce_testkit::servers::PostgresServer;
use tokio_postgres::Client;

use crate::stage::{
    block_on, claim_of, client, complete_of, count, granted, id_of, open, server, until_held_up,
};

#[test]
fn a_call_that_was_undone_for_a_deadlock_is_sent_again() {
    let server = server(&["deadlock_timeout=20ms"]);
    block_on(async {
        let store = open(&server.url()).await;
        let watcher = client(&server).await;
        let undone = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        // The server looks for a circle once, when our call has waited for so long: it must be closed by then, which
        // a loaded machine does not manage every time. Either way nobody hears of it.
        let mut key = 0;
        while count(&watcher, undone).await == 0 {
            meet_in_a_circle(&server, &watcher, &store, key).await;
            key += 2;
        }
    });
}

/// Someone else holds the higher of two rows and then wants the lower one, which our batch took first.
async fn meet_in_a_circle(server: &PostgresServer, watcher: &Client, store: &Arc<PostgresStore>, key: u64) {
    let (low, high) = if id_of(key) < id_of(key + 1) { (key, key + 1) } else { (key + 1, key) };
    let (low_token, high_token) =
        (granted(store, &claim_of(low)).await, granted(store, &claim_of(high)).await);
    let mut other = client(server).await;
    let transaction = other.transaction().await.expect("a transaction");
    let take = "SELECT 1 FROM onlyonce.records WHERE id = $1 FOR UPDATE";
    transaction.execute(take, &[&high_token.id.as_bytes().as_slice()]).await.expect("the row");
    // Whoever has waited for long enough looks for the circle, and is undone: it must be ours.
    transaction.batch_execute("SET LOCAL deadlock_timeout = '1min'").await.expect("a setting");
    let batch = [complete_of(low, low_token), complete_of(high, high_token)];
    let ours = tokio::spawn({
        let store = Arc::clone(store);
        async move { store.complete_many(&batch).await }
    });
    until_held_up(watcher, "complete", &ours).await;
    transaction
        .execute(take, &[&low_token.id.as_bytes().as_slice()])
        .await
        .expect("the row, sooner or later");
    transaction.rollback().await.expect("a rollback");
    for answer in ours.await.expect("no panic").expect("answers") {
        match answer {
            Ok(answer) => assert_eq!(answer, CompleteAnswer::Completed),
            // Held for longer than it waits, on a machine that stalls here.
            Err(error) => assert!(error.is_retryable() && !error.outcome_unknown(), "{error:?}"),
        }
    }
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
