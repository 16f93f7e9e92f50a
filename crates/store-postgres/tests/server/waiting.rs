//! Waiting for what another process changes: told through the server, and only when someone waits.

use std::time::Duration;

use onlyonce_core::Store as _;
use onlyonce_core::transition::{ClaimAnswer, Token};
use tokio_postgres::Client;

use crate::stage::{block_on, claim_of, client, complete_of, granted, open, server};

#[test]
fn a_completion_by_another_process_wakes() {
    let server = server(&[]);
    block_on(async {
        let (ours, theirs) = (open(&server.url()).await, open(&server.url()).await);
        let mut told = 0;
        // Who is not told looks again after 100 ms at the earliest: whoever wakes before that was told. On a loaded
        // machine many are late; three that are not are enough.
        for key in 0..500 {
            let token = granted(&theirs, &claim_of(key)).await;
            let watch = ours.watch(&token.id).await.expect("a watch");
            assert!(matches!(ours.claim(&claim_of(key)).await, Ok(ClaimAnswer::Busy(_))));
            theirs.complete(&complete_of(key, token)).await.expect("completed");
            let begun = std::time::Instant::now();
            tokio::time::timeout(Duration::from_mins(1), watch).await.expect("the watch wakes");
            told += u32::from(begun.elapsed() < Duration::from_millis(90));
            if told == 3 {
                return;
            }
        }
        panic!("only {told} of 500 were told");
    });
}

/// Until the server knows that someone waits for `token`: on a loaded machine that is later than the watch is there.
async fn registered(admin: &Client, token: Token) {
    let known = "SELECT count(*) FROM onlyonce.waiting WHERE id = $1";
    let id = token.id.as_bytes().as_slice();
    while admin.query_one(known, &[&id]).await.expect("an answer").get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn nobody_is_told_what_nobody_waits_for() {
    let server = server(&[]);
    block_on(async {
        let (heard, mut hear) = tokio::sync::mpsc::unbounded_channel();
        let (listener, mut connection) =
            tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.expect("a connection");
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                if let tokio_postgres::AsyncMessage::Notification(notification) = message {
                    let _ = heard.send(notification.payload().to_owned());
                }
            }
        });
        listener.batch_execute("LISTEN \"onlyonce.onlyonce\"").await.expect("listening");
        let store = open(&server.url()).await;
        let admin = client(&server).await;
        let unwatched = granted(&store, &claim_of(1)).await;
        store.complete(&complete_of(1, unwatched)).await.expect("completed");
        let watched = granted(&store, &claim_of(2)).await;
        let _watch = store.watch(&watched.id).await.expect("a watch");
        registered(&admin, watched).await;
        store.complete(&complete_of(2, watched)).await.expect("completed");
        // Notifications come in the order of their commits: the first one heard is of the second key.
        assert_eq!(hear.recv().await, Some(watched.id.to_string()));
        let count = "SELECT count(*) FROM onlyonce.waiting";
        let waiting: i64 = admin.query_one(count, &[]).await.expect("an answer").get(0);
        assert_eq!(waiting, 1);
        // Who waited until a while ago does not wait any more.
        let given_up = granted(&store, &claim_of(3)).await;
        let _watch = store.watch(&given_up.id).await.expect("a watch");
        registered(&admin, given_up).await;
        let watched = granted(&store, &claim_of(4)).await;
        let _watch = store.watch(&watched.id).await.expect("a watch");
        registered(&admin, watched).await;
        let age = "UPDATE onlyonce.waiting SET until = 1 WHERE id = $1";
        admin.execute(age, &[&given_up.id.as_bytes().as_slice()]).await.expect("over");
        store.complete(&complete_of(3, given_up)).await.expect("completed");
        store.complete(&complete_of(4, watched)).await.expect("completed");
        assert_eq!(hear.recv().await, Some(watched.id.to_string()));
    });
}
