//! Transactions of strangers that stay open: whatever they hold, nobody but who asks for that very record waits.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::{
    Abandon, Actor, ClaimAnswer, CompleteAnswer, Erase, Release, Renew, RenewAnswer, Resolve, Token, Verdict,
};
use onlyonce_core::{Lease, Store as _, StoreErrorKind};
use onlyonce_store_postgres::PostgresStore;
use onlyonce_testkit::servers::PostgresServer;
use tokio_postgres::Transaction;

use crate::stage::{
    LARGE, PARTITIONS, block_on, claim_of, client, complete_of, count, granted, large, open, server,
    until_held_up,
};

/// Longer than a whole test may take on a loaded machine, and far less than a held row is held.
const SOON: Duration = Duration::from_mins(2);

/// Takes the row of `token` and keeps it.
pub(crate) async fn take(transaction: &Transaction<'_>, token: Token) {
    let take = "SELECT 1 FROM onlyonce.records WHERE id = $1 FOR UPDATE";
    assert_eq!(transaction.execute(take, &[&token.id.as_bytes().as_slice()]).await.expect("the row"), 1);
}

async fn claim_in(store: &PostgresStore, transaction: &mut Transaction<'_>, key: u64) -> Token {
    let claim = claim_of(key);
    match store.claim_in(transaction, &claim).await.expect("an answer") {
        ClaimAnswer::Granted(grant) => Token { id: claim.id, owner: claim.owner, fence: grant.fence },
        other => panic!("expected a grant, got {other:?}"),
    }
}

#[test]
fn a_large_body_in_an_open_transaction_holds_nobody_up() {
    let server = server(&[]);
    block_on(async {
        let store = open(&server.url()).await;
        let mut stranger = client(&server).await;
        let mut transaction = stranger.transaction().await.expect("a transaction");
        let token = claim_in(&store, &mut transaction, 1).await;
        // The first body of its day: nobody made a partition for it yet.
        let completed = store.complete_in(&mut transaction, &large(token)).await.expect("an answer");
        assert_eq!(completed, CompleteAnswer::Completed);
        for key in 2..6 {
            let token = granted(&store, &claim_of(key)).await;
            let completed = store.complete(&large(token)).await;
            assert_eq!(completed.expect("nobody waits for the stranger"), CompleteAnswer::Completed);
        }
        // The store makes it although the stranger's transaction is still open.
        let admin = client(&server).await;
        while count(&admin, PARTITIONS).await == 0 {
            tokio::task::yield_now().await;
        }
        transaction.commit().await.expect("a commit");
        for key in 1..6 {
            let answer = store.claim(&claim_of(key)).await;
            assert!(matches!(answer, Ok(ClaimAnswer::Replay(replay)) if replay.outcome.len() == LARGE));
        }
        // From now on they lie there, also in a stranger's transaction.
        let mut transaction = stranger.transaction().await.expect("a transaction");
        let token = claim_in(&store, &mut transaction, 7).await;
        store.complete_in(&mut transaction, &large(token)).await.expect("an answer");
        transaction.commit().await.expect("a commit");
        let placed = "SELECT count(*) FROM onlyonce.bodies WHERE id = $1";
        let row = admin.query_one(placed, &[&token.id.as_bytes().as_slice()]).await.expect("an answer");
        assert_eq!(row.get::<_, i64>(0), 1);
    });
}

/// What everybody else does meanwhile. On one connection, so that whatever holds it up holds all of it up.
async fn others_go_on(store: &PostgresStore, keys: std::ops::Range<u64>) {
    for key in keys {
        let token = granted(store, &claim_of(key)).await;
        store.renew(&Renew { token, lease: Lease::DEFAULT }).await.expect("renewed");
        store.complete(&complete_of(key, token)).await.expect("completed");
        store.lookup(&token.id).await.expect("readable");
    }
}

#[test]
fn a_held_key_is_waited_for_elsewhere() {
    let server = server(&[]);
    block_on(async {
        let store = open(&format!("{}&connections=1", server.url())).await;
        let mut stranger = client(&server).await;
        let mut transaction = stranger.transaction().await.expect("a transaction");
        claim_in(&store, &mut transaction, 7).await;
        // Many ask for the held key again and again, for as long as others have work.
        let asking = (0..8).map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                loop {
                    let answer = store.claim(&claim_of(7)).await;
                    assert!(matches!(answer, Ok(ClaimAnswer::Busy(_))), "{answer:?}");
                }
            })
        });
        let asking: Vec<_> = asking.collect();
        // When the others had to wait with them, each of these would take a second or more.
        let begun = std::time::Instant::now();
        others_go_on(&store, 100..400).await;
        let took = begun.elapsed();
        for task in &asking {
            assert!(!task.is_finished(), "the held key was answered wrongly");
            task.abort();
        }
        assert!(took < SOON, "the others took {took:?}");
        transaction.rollback().await.expect("a rollback");
        // Who is remembered as held is free as soon as it is tried.
        loop {
            match store.claim(&claim_of(7)).await.expect("an answer") {
                ClaimAnswer::Granted(_) => break,
                // One of those that were cut off got it; or the rollback is not seen yet.
                ClaimAnswer::Busy(busy) if busy.left > Duration::from_secs(1) => break,
                ClaimAnswer::Busy(_) => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn commands_for_a_held_record_give_up_and_leave_the_lanes_to_others() {
    let server = server(&[]);
    block_on(async {
        let store = open(&format!("{}&connections=1", server.url())).await;
        let mut stranger = client(&server).await;
        let tokens = [
            granted(&store, &claim_of(1)).await,
            granted(&store, &claim_of(2)).await,
            granted(&store, &claim_of(3)).await,
        ];
        let transaction = stranger.transaction().await.expect("a transaction");
        for token in tokens {
            take(&transaction, token).await;
        }
        // More than there are connections for such calls, and of every kind.
        let mut held = tokio::task::JoinSet::new();
        for token in tokens {
            let resolve = Resolve {
                id: token.id,
                fence: token.fence,
                verdict: Verdict::StillUnknown,
                actor: Actor::Hook,
            };
            let stores = [(); 6].map(|()| Arc::clone(&store));
            let [resolving, erasing, abandoning, completing, releasing, renewing] = stores;
            held.spawn(async move { resolving.resolve(&resolve).await.map(drop) });
            held.spawn(async move { erasing.erase(&Erase { id: token.id }).await.map(drop) });
            held.spawn(async move { abandoning.abandon(&Abandon { token }).await.map(drop) });
            held.spawn(async move { completing.complete(&complete_of(1, token)).await.map(drop) });
            let release = Release { token, keep_fingerprint: true };
            held.spawn(async move { releasing.release(&release).await.map(drop) });
            let renew = Renew { token, lease: Lease::DEFAULT };
            held.spawn(async move { renewing.renew(&renew).await.map(drop) });
        }
        others_go_on(&store, 100..150).await;
        store.sweep(SweepBudget::DEFAULT).await.expect("swept");
        let watching = tokio::time::timeout(SOON, store.watch(&tokens[0].id)).await;
        watching.expect("a watch is set soon").expect("a watch");
        for ended in held.join_all().await {
            let error = ended.expect_err("the stranger holds it");
            assert_eq!((error.kind(), error.outcome_unknown()), (StoreErrorKind::Unavailable, false));
            assert!(error.is_retryable());
        }
        transaction.rollback().await.expect("a rollback");
        let renewed =
            store.renew(&Renew { token: tokens[0], lease: Lease::DEFAULT }).await.expect("an answer");
        assert!(matches!(renewed, RenewAnswer::Renewed(_)), "{renewed:?}");
        for (key, token) in (1..).zip(tokens) {
            let completed = store.complete(&complete_of(key, token)).await.expect("an answer");
            assert_eq!(completed, CompleteAnswer::Completed);
        }
    });
}

#[test]
fn an_import_waits_for_no_open_claim_and_no_claim_for_it() {
    let server = server(&[]);
    block_on(async {
        let store = open(&server.url()).await;
        let record = {
            let token = granted(&store, &claim_of(1)).await;
            store.complete(&complete_of(1, token)).await.expect("completed");
            let mut record = store.lookup(&token.id).await.expect("readable").expect("a record");
            record.fence = onlyonce_core::Fence::new(1 << 40).expect("a fence");
            record
        };
        let mut stranger = client(&server).await;
        let mut transaction = stranger.transaction().await.expect("a transaction");
        claim_in(&store, &mut transaction, 2).await;
        let floor = record.fence;
        store.import(&[(claim_of(3).id, record)]).await.expect("taken in, although a claim is open");
        let token = granted(&store, &claim_of(4)).await;
        assert!(token.fence > floor, "{:?} is not above {floor:?}", token.fence);
        transaction.rollback().await.expect("a rollback");
    });
}

/// Nobody but a table's owner can hold the table itself; for that everybody waits, and is not told a lie.
#[test]
fn a_table_that_is_held_for_a_moment_is_waited_for() {
    let server: PostgresServer = server(&[]);
    block_on(async {
        let store = open(&server.url()).await;
        let mut stranger = client(&server).await;
        let transaction = stranger.transaction().await.expect("a transaction");
        transaction.batch_execute("LOCK TABLE onlyonce.records").await.expect("the table");
        let error = store.claim(&claim_of(1)).await.expect_err("the table is held");
        assert!(error.is_retryable() && !error.outcome_unknown(), "{error:?}");
        let claiming = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.claim(&claim_of(2)).await }
        });
        let watcher = client(&server).await;
        until_held_up(&watcher, "claim", &claiming).await;
        transaction.rollback().await.expect("a rollback");
        match claiming.await.expect("no panic") {
            Ok(ClaimAnswer::Granted(_)) => {}
            // On a machine that stalls here for a second.
            Err(error) => assert!(error.is_retryable()),
            other => panic!("{other:?}"),
        }
    });
}
