//! `Inbox::once`: mark and effect together, in one transaction of the caller's.

use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::outcome::Body;
use onlyonce_inbox::consumer::message_policy;
use onlyonce_inbox::suite::in_time;
use onlyonce_inbox::{Inbox, InboxError, InboxErrorKind, Message, Once};
use sqlx::Connection as _;
use tokio_postgres::{Error, Transaction};

use crate::stage::{EFFECT, Stage, block_on, message};

async fn effect(transaction: &mut Transaction<'_>, name: &str) -> Result<Bytes, Error> {
    transaction.execute(EFFECT, &[&name]).await?;
    Ok(Bytes::from(format!("paid {name}")))
}

async fn pay(inbox: &Inbox, transaction: &mut Transaction<'_>, name: &str) -> Result<Once, InboxError> {
    inbox.once(transaction, &message(name), async |transaction| effect(transaction, name).await).await
}

fn told(once: &Once) -> Option<&[u8]> {
    match once {
        Once::Duplicate(outcome) => match outcome.body() {
            Body::Kept(bytes) => Some(bytes),
            Body::Tombstone(_) => None,
        },
        _ => None,
    }
}

#[test]
fn a_second_delivery_gets_the_stored_result_and_has_no_effect() {
    block_on(async {
        let stage = Stage::new().await;
        let (inbox, mut client) = (stage.inbox().await, stage.client().await);
        for delivery in 0..3 {
            let mut transaction = client.transaction().await.unwrap();
            let once = pay(&inbox, &mut transaction, "a").await.unwrap();
            match delivery {
                0 => assert_eq!(once, Once::Done("paid a".into())),
                _ => assert_eq!(told(&once), Some(&b"paid a"[..])),
            }
            transaction.commit().await.unwrap();
        }
        assert_eq!(stage.effects("a").await, 1);
    });
}

#[test]
fn the_same_in_transactions_of_sqlx() {
    block_on(async {
        let stage = Stage::new().await;
        let inbox = stage.inbox().await;
        let mut connection = sqlx::PgConnection::connect(&stage.server.url()).await.unwrap();
        for delivery in 0..2 {
            let mut transaction = connection.begin().await.unwrap();
            let sent = message("a");
            let once = inbox.once(&mut transaction, &sent, async |transaction| {
                sqlx::query(EFFECT).bind("a").execute(&mut **transaction).await?;
                Ok::<_, sqlx::Error>(Bytes::from("paid"))
            });
            let once = once.await.unwrap();
            assert_eq!(matches!(once, Once::Done(_)), delivery == 0, "{once:?}");
            transaction.commit().await.unwrap();
        }
        // A failed one is undone, and the transaction goes on.
        let mut transaction = connection.begin().await.unwrap();
        let sent = message("b");
        let failed = inbox.once(&mut transaction, &sent, async |transaction| {
            sqlx::query(EFFECT).bind("b").execute(&mut **transaction).await?;
            sqlx::query("SELECT 1/0").execute(&mut **transaction).await?;
            Ok::<_, sqlx::Error>(Bytes::new())
        });
        assert!(failed.await.is_err());
        sqlx::query(EFFECT).bind("c").execute(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap();
        let effects = (stage.effects("a").await, stage.effects("b").await, stage.effects("c").await);
        assert_eq!(effects, (1, 0, 1));
    });
}

#[test]
fn a_failed_effect_is_undone_counted_and_may_run_again_at_once() {
    block_on(async {
        let stage = Stage::new().await;
        let inbox = stage.inbox().await.with_policy(&message_policy().attempts_max(2)).unwrap();
        let mut client = stage.client().await;
        for attempt in 1..=2 {
            let mut transaction = client.transaction().await.unwrap();
            let sent = message("a");
            let failed = inbox.once(&mut transaction, &sent, async |transaction| {
                effect(transaction, "a").await?;
                transaction.execute("SELECT 1/0", &[]).await?;
                Ok::<_, Error>(Bytes::new())
            });
            let failed = failed.await.unwrap_err();
            assert_eq!(failed.kind(), InboxErrorKind::Handler { attempt, last: attempt == 2 });
            // Another message in the same transaction is not harmed.
            let other = format!("b{attempt}");
            let sent = message(&other);
            let once =
                inbox.once(&mut transaction, &sent, async |transaction| effect(transaction, &other).await);
            assert!(matches!(once.await.unwrap(), Once::Done(_)));
            transaction.commit().await.unwrap();
        }
        let mut transaction = client.transaction().await.unwrap();
        assert!(matches!(pay(&inbox, &mut transaction, "a").await.unwrap(), Once::Done(_)));
        transaction.commit().await.unwrap();
        let effects = (stage.effects("a").await, stage.effects("b1").await, stage.effects("b2").await);
        assert_eq!(effects, (1, 1, 1));
    });
}

#[test]
fn what_the_caller_rolls_back_never_was_and_runs_again_when_its_claim_has_lapsed() {
    block_on(async {
        let stage = Stage::new().await;
        let (inbox, mut client) = (stage.inbox().await, stage.client().await);
        let mut transaction = client.transaction().await.unwrap();
        assert!(matches!(pay(&inbox, &mut transaction, "a").await.unwrap(), Once::Done(_)));
        transaction.rollback().await.unwrap();
        assert_eq!(stage.effects("a").await, 0);
        for lapsed in [false, true] {
            let mut transaction = client.transaction().await.unwrap();
            let once = pay(&inbox, &mut transaction, "a").await.unwrap();
            assert_eq!(matches!(once, Once::Done(_)), lapsed, "{once:?}");
            assert_eq!(matches!(once, Once::Busy { .. }), !lapsed, "{once:?}");
            transaction.commit().await.unwrap();
            stage.clock.advance(Duration::from_secs(31));
        }
        assert_eq!(stage.effects("a").await, 1);
    });
}

#[test]
fn a_frozen_workers_transaction_is_refused() {
    block_on(async {
        let stage = Stage::new().await;
        let (inbox, mut frozen, mut client) =
            (stage.inbox().await, stage.client().await, stage.client().await);
        let mut transaction = frozen.transaction().await.unwrap();
        let sent = message("a");
        let refused = inbox.once(&mut transaction, &sent, async |transaction| {
            let result = effect(transaction, "a").await;
            // It freezes here; its claim lapses, and another one does the work.
            stage.clock.advance(Duration::from_secs(31));
            let mut successor = client.transaction().await?;
            assert!(matches!(pay(&inbox, &mut successor, "a").await, Ok(Once::Done(_))));
            successor.commit().await?;
            result
        });
        assert_eq!(refused.await.unwrap_err().kind(), InboxErrorKind::Fenced);
        // Also if the caller commits all the same.
        transaction.commit().await.unwrap();
        assert_eq!(stage.effects("a").await, 1);
    });
}

#[test]
fn a_long_effect_keeps_its_lease() {
    block_on(async {
        let stage = Stage::new().await;
        let inbox = stage.inbox().await.with_clock(stage.clock.clone());
        let (mut client, mut other) = (stage.client().await, stage.client().await);
        let mut transaction = client.transaction().await.unwrap();
        let sent = message("a");
        let lease = Duration::from_secs(30);
        let once = inbox.once(&mut transaction, &sent, async |transaction| {
            for _ in 0..6 {
                stage.clock.slept_on_for_exactly(lease / 3).await;
                stage.clock.advance(lease / 3);
            }
            // The last renewal is on its way; twice the lease has passed.
            stage.clock.slept_on_for_exactly(lease / 3).await;
            let mut impatient = other.transaction().await?;
            assert!(matches!(pay(&inbox, &mut impatient, "a").await, Ok(Once::Busy { .. })));
            impatient.rollback().await?;
            effect(transaction, "a").await
        });
        assert_eq!(in_time("the effect", once).await.unwrap(), Once::Done("paid a".into()));
        transaction.commit().await.unwrap();
        assert_eq!(stage.effects("a").await, 1);
    });
}

#[test]
fn a_message_that_kills_its_workers_is_parked() {
    block_on(async {
        let stage = Stage::new().await;
        let inbox = stage.inbox().await.with_policy(&message_policy().attempts_max(3)).unwrap();
        for _ in 0..3 {
            let mut client = stage.client().await;
            let inbox = inbox.clone();
            // The task is dropped half way, with its connection: a worker that was killed.
            let (begun, has_begun) = tokio::sync::oneshot::channel();
            let worker = tokio::spawn(async move {
                let mut transaction = client.transaction().await.unwrap();
                let sent = message("a");
                let once = inbox.once_boxed(&mut transaction, &sent, |transaction: &mut Transaction<'_>| {
                    Box::pin(async move {
                        let result = effect(transaction, "a").await;
                        let _ = begun.send(());
                        std::future::pending::<()>().await;
                        result
                    })
                });
                let _ = once.await;
            });
            has_begun.await.unwrap();
            worker.abort();
            assert!(worker.await.unwrap_err().is_cancelled());
            stage.clock.advance(Duration::from_secs(31));
        }
        let mut client = stage.client().await;
        let mut transaction = client.transaction().await.unwrap();
        let once = pay(&inbox, &mut transaction, "a").await.unwrap();
        assert!(matches!(once, Once::Parked { .. }), "{once:?}");
        assert_eq!(stage.effects("a").await, 0);
    });
}

#[test]
fn many_workers_have_each_effect_once() {
    block_on(async {
        let stage = Stage::new().await;
        let inbox = stage.inbox().await;
        let mut workers = tokio::task::JoinSet::new();
        for worker in 0..6 {
            let (inbox, mut client) = (inbox.clone(), stage.client().await);
            workers.spawn(async move {
                let mut done = 0;
                for number in 0..30 {
                    let name = format!("message {}", (number + worker * 5) % 30);
                    loop {
                        let mut transaction = client.transaction().await.unwrap();
                        let sent = message(&name);
                        let paid = name.clone();
                        let once =
                            inbox.once_boxed(&mut transaction, &sent, |transaction: &mut Transaction<'_>| {
                                Box::pin(async move { effect(transaction, &paid).await })
                            });
                        let once = once.await.unwrap();
                        transaction.commit().await.unwrap();
                        match once {
                            Once::Busy { .. } => tokio::task::yield_now().await,
                            Once::Done(_) => {
                                done += 1;
                                break;
                            }
                            Once::Duplicate(_) => break,
                            other => panic!("{other:?}"),
                        }
                    }
                }
                done
            });
        }
        assert_eq!(workers.join_all().await.into_iter().sum::<i32>(), 30);
        for number in 0..30 {
            assert_eq!(stage.effects(&format!("message {number}")).await, 1);
        }
    });
}

#[test]
fn an_id_for_another_message_and_no_id_at_all_are_told_apart() {
    block_on(async {
        let stage = Stage::new().await;
        let (inbox, mut client) = (stage.inbox().await, stage.client().await);
        let other = Message::new("b").with_header("event-id", "id of a");
        let nameless = Message::new("c");
        for (message, name, expected) in [
            (message("a"), "a", Once::Done("paid a".into())),
            (other, "b", Once::Mismatch),
            (nameless, "c", Once::Nameless),
        ] {
            let mut transaction = client.transaction().await.unwrap();
            let once =
                inbox.once(&mut transaction, &message, async |transaction| effect(transaction, name).await);
            assert_eq!(once.await.unwrap(), expected);
            transaction.commit().await.unwrap();
        }
        assert_eq!((stage.effects("b").await, stage.effects("c").await), (0, 0));
    });
}
