//! How often the server is asked, by its own statistics: twice for a fresh key, once for a replay, and less when many
//! ask at once.

use std::collections::HashMap;
use std::sync::Arc;

use onlyonce_core::Store as _;
use onlyonce_store_postgres::PostgresStore;
use onlyonce_testkit::servers::PostgresServer;

use crate::stage::{block_on, claim_of, client, complete_of, granted, open, server};

async fn pay(store: &PostgresStore, key: u64) {
    let token = granted(store, &claim_of(key)).await;
    store.complete(&complete_of(key, token)).await.expect("completed");
}

/// The calls of each function that a session made. Sessions report when they end.
async fn calls(server: &PostgresServer) -> HashMap<String, i64> {
    let admin = client(server).await;
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onlyonce'";
    while admin.query_one(sessions, &[]).await.expect("an answer").get::<_, i64>(0) > 0 {
        tokio::task::yield_now().await;
    }
    let functions = "SELECT funcname::text, calls FROM pg_stat_user_functions \
        WHERE funcname IN ('claim', 'complete', 'lookup', 'renew', 'release', 'wait_for')";
    let rows = admin.query(functions, &[]).await.expect("an answer");
    admin.execute("SELECT pg_stat_reset()", &[]).await.expect("an answer");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[test]
fn a_fresh_key_asks_twice_and_a_replay_once() {
    let server = server(&["track_functions=pl"]);
    block_on(async {
        let store = open(&server.url()).await;
        for key in 0..50 {
            pay(&store, key).await;
        }
        for key in 0..50 {
            store.claim(&claim_of(key)).await.expect("a replay");
        }
        drop(store);
        let expected = [("claim", 100), ("complete", 50)].map(|(name, calls)| (name.to_owned(), calls));
        assert_eq!(calls(&server).await, HashMap::from(expected));

        // One connection, so that everything that comes while it is under way waits for it together.
        let store = open(&format!("{}&connections=1", server.url())).await;
        let mut callers = tokio::task::JoinSet::new();
        for caller in 0..64 {
            let store = Arc::clone(&store);
            callers.spawn(async move {
                for key in 0..10 {
                    pay(&store, 1000 + caller * 10 + key).await;
                }
            });
        }
        callers.join_all().await;
        drop(store);
        let calls = calls(&server).await;
        assert!(calls["claim"] < 320 && calls["complete"] < 320, "640 keys took {calls:?}");
    });
}
