//! Reads that race with what takes bodies away: the answer is of before or of after, and never "damaged".

use std::sync::Arc;

use onlyonce_core::transition::{Claim, ClaimAnswer, Erase};
use onlyonce_core::{Body, Store as _, Tombstone};
use onlyonce_store_postgres::PostgresStore;
use tokio_postgres::Client;

use crate::stage::{
    LARGE, PARTITIONS, block_on, claim_of, client, count, granted, id_of, large, open, server, until_held_up,
};

/// How many records one call reads.
const RECORDS: u64 = 60;

async fn complete_large(store: &PostgresStore, key: u64) {
    let token = granted(store, &claim_of(key)).await;
    store.complete(&large(token)).await.expect("completed");
}

/// Makes a partition, so that the next bodies lie in it.
async fn open_day(store: &PostgresStore, admin: &Client) {
    complete_large(store, u64::MAX).await;
    while count(admin, PARTITIONS).await == 0 {
        tokio::task::yield_now().await;
    }
}

fn is_whole_or_erased(answer: &ClaimAnswer) -> bool {
    let ClaimAnswer::Replay(replay) = answer else { return false };
    match replay.outcome.body() {
        Body::Kept(body) => body.len() == LARGE,
        Body::Tombstone(why) => *why == Tombstone::Erased,
    }
}

/// The body goes between the look at the row and the look at the body, at a point that the server is made to stop at.
#[test]
fn a_body_that_is_erased_under_a_replay_is_not_damage() {
    let server = server(&[]);
    block_on(async {
        let store = open(&format!("{}&connections=1", server.url())).await;
        let mut admin = client(&server).await;
        open_day(&store, &admin).await;
        let (low, high) = if id_of(1) < id_of(2) { (1, 2) } else { (2, 1) };
        for key in [low, high] {
            complete_large(&store, key).await;
        }
        let transaction = admin.transaction().await.expect("a transaction");
        let id = id_of(high);
        transaction.execute("SELECT onlyonce.erase($1)", &[&id.as_bytes().as_slice()]).await.expect("erased");
        transaction.batch_execute("LOCK TABLE onlyonce.bodies").await.expect("the bodies");
        // The call has read both rows when it waits for the body of the first.
        let claims: Vec<Claim> = [low, high].map(claim_of).to_vec();
        let asking = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.claim_many(&claims).await }
        });
        let watcher = client(&server).await;
        until_held_up(&watcher, "claim", &asking).await;
        transaction.commit().await.expect("a commit");
        for answer in asking.await.expect("no panic").expect("answers") {
            match answer {
                Ok(answer) => assert!(is_whole_or_erased(&answer), "{answer:?}"),
                // Held for longer than it waits, on a machine that stalls here.
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        }
    });
}

#[test]
fn replays_and_lookups_beside_erasure_are_never_damaged() {
    let server = server(&[]);
    block_on(async {
        let (ours, theirs) = (open(&server.url()).await, open(&server.url()).await);
        open_day(&ours, &client(&server).await).await;
        for round in 0..4 {
            let keys = round * RECORDS..(round + 1) * RECORDS;
            for key in keys.clone() {
                complete_large(&ours, key).await;
            }
            let erasing = tokio::spawn({
                let (theirs, keys) = (Arc::clone(&theirs), keys.clone());
                async move {
                    for key in keys.rev() {
                        theirs.erase(&Erase { id: id_of(key) }).await.expect("erased");
                    }
                }
            });
            while !erasing.is_finished() {
                let claims: Vec<_> = keys.clone().map(claim_of).collect();
                for answer in ours.claim_many(&claims).await.expect("answers") {
                    let answer = answer.expect("no damage");
                    assert!(is_whole_or_erased(&answer), "{answer:?}");
                }
                ours.list(&onlyonce_core::store::Listing::default()).await.expect("no damage");
            }
            erasing.await.expect("no panic");
        }
    });
}
