//! Waiting for what another process changes: told through the server, and only when someone waits.

use std::time::Duration;

use onlyonce_core::Store as _;
use onlyonce_core::transition::ClaimAnswer;

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
        let unwatched = granted(&store, &claim_of(1)).await;
        store.complete(&complete_of(1, unwatched)).await.expect("completed");
        let watched = granted(&store, &claim_of(2)).await;
        let _watch = store.watch(&watched.id).await.expect("a watch");
        store.complete(&complete_of(2, watched)).await.expect("completed");
        // Notifications come in the order of their commits: the first one heard is of the second key.
        assert_eq!(hear.recv().await, Some(watched.id.to_string()));
        let count = "SELECT count(*) FROM onlyonce.waiting";
        let waiting: i64 = client(&server).await.query_one(count, &[]).await.expect("an answer").get(0);
        assert_eq!(waiting, 1);
    });
}
