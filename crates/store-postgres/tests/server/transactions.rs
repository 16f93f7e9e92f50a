//! Claims and completions in the caller's own transaction: effect, mark and outcome are there together or not at all.

use std::sync::Arc;

use onlyonce_core::Store as _;
use onlyonce_core::transition::{ClaimAnswer, CompleteAnswer, Token};
use onlyonce_testkit::servers::PostgresServer;

use crate::stage::{
    block_on, claim_of, claim_under, client, complete_of, granted, open, outcome_of, rerun, server,
};

const EFFECTS: &str = "CREATE TABLE effects (key bigint NOT NULL)";
const EFFECT: &str = "INSERT INTO effects VALUES ($1)";

async fn effects(server: &PostgresServer, key: u64) -> i64 {
    let count = "SELECT count(*) FROM effects WHERE key = $1";
    client(server).await.query_one(count, &[&key.cast_signed()]).await.expect("an answer").get(0)
}

#[test]
fn what_is_rolled_back_was_never_claimed() {
    let server = server(&[]);
    block_on(async {
        let store = open(&server.url()).await;
        let mut client = client(&server).await;
        client.batch_execute(EFFECTS).await.expect("a table");
        for (key, commits) in [(1, false), (2, true)] {
            let mut transaction = client.transaction().await.expect("a transaction");
            let claim = claim_of(key);
            let answer = store.claim_in(&mut transaction, &claim).await.expect("an answer");
            let ClaimAnswer::Granted(grant) = answer else { panic!("expected a grant, got {answer:?}") };
            transaction.execute(EFFECT, &[&key.cast_signed()]).await.expect("an effect");
            let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
            let completed = store.complete_in(&mut transaction, &complete_of(key, token)).await;
            assert_eq!(completed.expect("an answer"), CompleteAnswer::Completed);
            if commits {
                transaction.commit().await.expect("a commit");
            } else {
                transaction.rollback().await.expect("a rollback");
            }
            assert_eq!(effects(&server, key).await, i64::from(commits));
            match store.claim(&claim_of(key)).await.expect("an answer") {
                ClaimAnswer::Replay(replay) if commits => assert_eq!(replay.outcome, outcome_of(key)),
                ClaimAnswer::Granted(_) if !commits => {}
                other => panic!("key {key}: {other:?}"),
            }
        }
    });
}

#[test]
fn a_second_claim_waits_for_the_first_transaction_and_replays_it() {
    let server = server(&[]);
    block_on(async {
        let store = open(&server.url()).await;
        client(&server).await.batch_execute(EFFECTS).await.expect("a table");
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (store, mut client) = (Arc::clone(&store), client(&server).await);
            workers.spawn(async move {
                for key in 0..20u64 {
                    let mut transaction = client.transaction().await.expect("a transaction");
                    let claim = claim_of(key);
                    match store.claim_in(&mut transaction, &claim).await.expect("an answer") {
                        ClaimAnswer::Granted(grant) => {
                            transaction.execute(EFFECT, &[&key.cast_signed()]).await.expect("an effect");
                            let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
                            let complete = complete_of(key, token);
                            store.complete_in(&mut transaction, &complete).await.expect("an answer");
                            transaction.commit().await.expect("a commit");
                        }
                        ClaimAnswer::Replay(replay) => assert_eq!(replay.outcome, outcome_of(key)),
                        other => panic!("expected a grant or its outcome, got {other:?}"),
                    }
                }
            });
        }
        workers.join_all().await;
        for key in 0..20 {
            assert_eq!(effects(&server, key).await, 1, "key {key}");
        }
    });
}

#[test]
fn a_stale_fence_is_refused_in_the_transaction() {
    let server = server(&[]);
    block_on(async {
        let store = open(&server.url()).await;
        let lease = std::time::Duration::from_millis(1);
        let stale = granted(&store, &claim_under(1, rerun(lease))).await;
        let claim = claim_under(1, rerun(std::time::Duration::from_mins(1)));
        // The lease of the first is over within a millisecond of the server's clock.
        let live = loop {
            if let Ok(ClaimAnswer::Granted(grant)) = store.claim(&claim).await {
                break Token { id: claim.id, owner: claim.owner, fence: grant.fence };
            }
        };
        let mut client = client(&server).await;
        let mut transaction = client.transaction().await.expect("a transaction");
        let refused = store.complete_in(&mut transaction, &complete_of(1, stale)).await;
        assert_eq!(refused.expect("an answer"), CompleteAnswer::Fenced);
        let taken = store.complete_in(&mut transaction, &complete_of(1, live)).await;
        assert_eq!(taken.expect("an answer"), CompleteAnswer::Completed);
        transaction.commit().await.expect("a commit");
    });
}

#[test]
fn an_open_transaction_holds_up_its_own_key_only() {
    let server = server(&[]);
    block_on(async {
        let store = open(&format!("{}&connections=1", server.url())).await;
        let mut client = client(&server).await;
        let mut transaction = client.transaction().await.expect("a transaction");
        let claim = claim_of(7);
        store.claim_in(&mut transaction, &claim).await.expect("an answer");
        // All in one batch, with the one that is held in the middle.
        let claims: Vec<_> = (0..15).map(claim_of).collect();
        let answers = store.claim_many(&claims).await.expect("answers");
        for (key, answer) in answers.into_iter().enumerate() {
            match answer.expect("an answer") {
                ClaimAnswer::Busy(_) if key == 7 => {}
                ClaimAnswer::Granted(_) if key != 7 => {}
                other => panic!("key {key}: {other:?}"),
            }
        }
        transaction.rollback().await.expect("a rollback");
        granted(&store, &claim_of(7)).await;
    });
}

#[cfg(feature = "sqlx")]
#[test]
fn transactions_of_sqlx_do_the_same() {
    use sqlx::Connection as _;

    let server = server(&[]);
    block_on(async {
        let store = open(&server.url()).await;
        let mut connection = sqlx::PgConnection::connect(&server.url()).await.expect("a connection");
        sqlx::query(EFFECTS).execute(&mut connection).await.expect("a table");
        for (key, commits) in [(1u64, false), (2, true)] {
            let mut transaction = connection.begin().await.expect("a transaction");
            let claim = claim_of(key);
            let answer = store.claim_in(&mut transaction, &claim).await.expect("an answer");
            let ClaimAnswer::Granted(grant) = answer else { panic!("expected a grant, got {answer:?}") };
            sqlx::query(EFFECT).bind(key.cast_signed()).execute(&mut *transaction).await.expect("an effect");
            let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
            let completed = store.complete_in(&mut transaction, &complete_of(key, token)).await;
            assert_eq!(completed.expect("an answer"), CompleteAnswer::Completed);
            if commits {
                transaction.commit().await.expect("a commit");
                let mut transaction = connection.begin().await.expect("a transaction");
                let again = store.claim_in(&mut transaction, &claim_of(key)).await.expect("an answer");
                assert!(matches!(again, ClaimAnswer::Replay(replay) if replay.outcome == outcome_of(key)));
            } else {
                transaction.rollback().await.expect("a rollback");
            }
            assert_eq!(effects(&server, key).await, i64::from(commits));
        }
    });
}
