//! A server whose default is not to wait for its disk is made to wait.

use onlyonce_core::Store as _;
use onlyonce_core::transition::ClaimAnswer;
use onlyonce_testkit::servers::PostgresEnd;

use crate::stage::{block_on, claim_of, client, complete_of, granted, open, server};

/// How many keys are completed before the end.
const KEYS: u64 = 200;

#[test]
fn an_asynchronous_default_loses_nothing() {
    // Nothing else brings the log to the disk for as long as this test takes.
    let server = server(&["synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=1GB"]);
    block_on(async {
        let store = open(&server.url()).await;
        assert!(store.durability().power_cut && !store.durability().node_loss);
        for key in 0..KEYS {
            let token = granted(&store, &claim_of(key)).await;
            store.complete(&complete_of(key, token)).await.expect("completed");
        }
        // One more that only an asynchronous commit wrote: the setting is what it says.
        client(&server).await.execute("CREATE TABLE lost ()", &[]).await.expect("a table");
        tokio::task::block_in_place(|| {
            server.end(PostgresEnd::Immediate).expect("the server ends");
            server.restart().expect("the server starts again");
        });
        let store = open(&server.url()).await;
        for key in 0..KEYS {
            let answer = store.claim(&claim_of(key)).await.expect("an answer");
            assert!(matches!(answer, ClaimAnswer::Replay(_)), "key {key}: {answer:?}");
        }
        let row = client(&server).await.query_one("SELECT to_regclass('lost') IS NULL", &[]).await;
        assert!(
            row.expect("an answer").get::<_, bool>(0),
            "the server synced by itself: this test shows nothing"
        );
    });
}
